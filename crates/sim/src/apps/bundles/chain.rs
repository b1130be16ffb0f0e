//! The chain of nodes that a file passes, each with its agent.

use core::time::Duration;
use std::collections::BTreeMap;

use bundles::tcpcl::{KEEPALIVE, SEGMENT, TcpclMessage};
use bundles::{
    Agent, AgentConfig, AgentLimits, BundleId, BundleNodeId, BundleOrigin, BundlePurpose,
    BundleSummary, NeighbourConfig, NewBundle, OfferDecision, PeerId, ReturnReason, read,
};
use units::{ByteCount, Instant};

use super::length;

/// Service number at the last node to which files are addressed; the same as in the gateway.
const SERVICE: &str = "1000";
/// Time of day in milliseconds since 1970. It stands still, so bundles never expire.
const NOW: u64 = 1_795_600_000_000;
const LIFETIME: Duration = Duration::from_secs(86_400);
/// A limit that is never reached: more bytes than any file has.
const UNLIMITED: u64 = 1 << 60;

#[derive(Debug)]
pub(super) struct NodeChain {
    nodes: Vec<BundleNodeId>,
    pub(super) agents: Vec<Agent>,
    /// Payload of the file and of a bundle, in bytes.
    sizes: [u64; 2],
    /// Summaries of the bundles that have not been delivered.
    pub(super) known: BTreeMap<BundleId, BundleSummary>,
    /// Number of bundles that have not been delivered.
    pub(super) left: u64,
}

impl NodeChain {
    pub(super) fn new(count: usize, sizes: [u64; 2], window: u32) -> Self {
        let nodes: Vec<_> = (1..=count).map(node).collect();
        let agents = (0..count).map(|at| agent(&nodes, at, window)).collect();
        let left = sizes[0].div_ceil(sizes[1]);
        Self { nodes, agents, sizes, known: BTreeMap::new(), left }
    }

    /// Returns the lengths of the SESS_INIT messages of both sides of a link, in bytes.
    pub(super) fn parameters(&self, at: usize) -> [u64; 2] {
        [at, at + 1].map(|at| {
            length(&TcpclMessage::SessInit {
                keepalive: KEEPALIVE,
                segment_mru: SEGMENT,
                transfer_mru: UNLIMITED,
                node: &self.nodes[at].to_string(),
                critical: false,
            })
        })
    }

    /// Hands the file to the first node.
    pub(super) fn submit_file(&mut self) {
        let [file, size] = self.sizes;
        let mut summary = self.summary(size.min(file), 0);
        let count = file.div_ceil(size);
        for number in 0..count {
            if number + 1 == count {
                summary = self.summary(file - number * size, number);
            } else if number > 0 {
                // Only the length matters, and it is that of the first bundle.
                summary = BundleSummary { length: summary.length, ..self.summary(0, number) };
            }
            self.known.insert(summary.id, summary.clone());
            self.accept_bundle(0, BundleOrigin::Here, &summary);
        }
    }

    fn summary(&self, payload: u64, sequence: u64) -> BundleSummary {
        let service =
            |node: &BundleNodeId| node.service(SERVICE).expect("a number is a service of ipn");
        let [source, destination] = [0, self.nodes.len() - 1].map(|at| service(&self.nodes[at]));
        let bundle = NewBundle {
            source: &source,
            destination: &destination,
            created: NOW,
            sequence,
            lifetime: LIFETIME,
            file_name: None,
            purpose: BundlePurpose::Data,
            payload: &vec![0; payload as usize],
        };
        read(&bundle.encode()).expect("what was made can be read").0
    }

    fn accept_bundle(&mut self, at: usize, from: BundleOrigin, summary: &BundleSummary) {
        let agent = &mut self.agents[at];
        let begun = agent.begin(from, Some(summary.id), summary.length);
        if let Ok(OfferDecision::Take(ticket)) = begun
            && let Ok(OfferDecision::Take(record)) = agent.offer(ticket, NOW, summary)
        {
            agent.stored(ticket, record);
        }
        debug_assert!(agent.whereabouts(&summary.id).is_some(), "nothing is refused");
    }

    /// Hands a bundle that has crossed a link to the next node; counts it if that is the last one.
    pub(super) fn handle_crossed(&mut self, at: usize, id: BundleId) {
        // A delivered bundle arrives again if its acknowledgement was lost.
        let Some(summary) = self.known.get(&id).cloned() else { return };
        // Every node that has a previous one knows it as peer 0 (`agent`).
        let previous = BundleOrigin::Peer(PeerId(0));
        self.accept_bundle(at + 1, previous, &summary);
        let last = self.agents.last_mut().expect("a chain has nodes");
        while let Some(record) = last.take_arrived(Some(SERVICE)) {
            last.handle_delivered(&record.id).expect("it was given out");
            self.known.remove(&record.id);
            self.left -= 1;
        }
        self.remove_finished(self.agents.len() - 1);
    }

    /// Tells the agent that the link to the next node is up or down.
    pub(super) fn set_link(&mut self, at: usize, up: bool) {
        self.agents[at].set_peer(next(at), up);
    }

    pub(super) fn acknowledged(&mut self, at: usize, id: &BundleId) {
        self.agents[at].acknowledged(id);
        self.remove_finished(at);
    }

    pub(super) fn returned(&mut self, now: Instant, at: usize, id: &BundleId) {
        self.agents[at].returned(now, id, ReturnReason::Lost);
    }

    /// Removes the bundles that a node no longer has to keep.
    fn remove_finished(&mut self, at: usize) {
        while let Some((record, _)) = self.agents[at].poll_remove() {
            self.agents[at].removed(&record.id);
        }
    }

    /// Returns the next bundle to send: the index of its link, its id and its length in bytes.
    pub(super) fn next_to_send(&mut self) -> Option<(usize, BundleId, u64)> {
        let mut all = self.agents.iter_mut().enumerate();
        all.find_map(|(at, agent)| {
            agent.poll_send().map(|(_, record)| (at, record.id, record.length))
        })
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.left == 0
    }
}

fn node(number: usize) -> BundleNodeId {
    format!("ipn:{number}.0").parse().expect("a number is a node of ipn")
}

/// Returns the peer number of the next node: 1 if there is a previous node, which is peer 0.
fn next(at: usize) -> PeerId {
    PeerId(usize::from(at > 0))
}

fn agent(nodes: &[BundleNodeId], at: usize, window: u32) -> Agent {
    let neighbour = |near: usize, behind: &[BundleNodeId]| NeighbourConfig {
        node: nodes[near].clone(),
        behind: behind.to_vec(),
        everything: false,
    };
    let before = at.checked_sub(1).map(|near| neighbour(near, &nodes[..near]));
    let after = (at + 1 < nodes.len()).then(|| neighbour(at + 1, &nodes[at + 2..]));
    let limits = AgentLimits {
        bytes: ByteCount::new(UNLIMITED),
        bundles: UNLIMITED as usize,
        largest: ByteCount::new(UNLIMITED / 8),
        remembered: UNLIMITED as usize,
        lifetime: LIFETIME,
        window: window as usize,
        window_bytes: ByteCount::new(UNLIMITED),
    };
    let peers = before.into_iter().chain(after).collect();
    let config = AgentConfig { node: nodes[at].clone(), peers, limits, reports: false };
    Agent::new(config, Vec::new(), Vec::new())
}
