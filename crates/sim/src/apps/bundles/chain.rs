//! The nodes on the way, each with its agent.

use core::time::Duration;
use std::collections::BTreeMap;

use bundles::tcpcl::{KEEPALIVE, Message, SEGMENT};
use bundles::{
    Agent, AgentConfig, BundleId, Decision, Limits, Neighbour, NewBundle, Node, Origin, PeerId,
    Purpose, Returned, Summary, read,
};
use units::{ByteCount, Instant};

use super::length;

/// The service of the last node that files are for: the gateway's.
const SERVICE: &str = "1000";
/// The time of day, which stands still, in milliseconds since 1970: nothing expires.
const NOW: u64 = 1_795_600_000_000;
const LIFETIME: Duration = Duration::from_secs(86_400);
/// More than any file.
const ENOUGH: u64 = 1 << 60;

#[derive(Debug)]
pub(super) struct Chain {
    nodes: Vec<Node>,
    pub(super) agents: Vec<Agent>,
    /// Payload of the file, and of a bundle, in bytes.
    sizes: [u64; 2],
    /// What bundles say of themselves, until they are delivered.
    pub(super) known: BTreeMap<BundleId, Summary>,
    /// Bundles that have not been delivered.
    pub(super) left: u64,
}

impl Chain {
    pub(super) fn new(count: usize, sizes: [u64; 2], window: u32) -> Self {
        let nodes: Vec<_> = (1..=count).map(node).collect();
        let agents = (0..count).map(|at| agent(&nodes, at, window)).collect();
        let left = sizes[0].div_ceil(sizes[1]);
        Self { nodes, agents, sizes, known: BTreeMap::new(), left }
    }

    /// How long the parameters of the two sides of a link are, in bytes.
    pub(super) fn parameters(&self, at: usize) -> [u64; 2] {
        [at, at + 1].map(|at| {
            length(&Message::SessInit {
                keepalive: KEEPALIVE,
                segment_mru: SEGMENT,
                transfer_mru: ENOUGH,
                node: &self.nodes[at].to_string(),
                critical: false,
            })
        })
    }

    /// Hands the file to the first node.
    pub(super) fn hand_in(&mut self) {
        let [file, size] = self.sizes;
        let (mut summary, count) = (self.summary(size.min(file), 0), file.div_ceil(size));
        for number in 0..count {
            if number + 1 == count {
                summary = self.summary(file - number * size, number);
            } else if number > 0 {
                // Its payload is of no account; its length is that of the first one.
                summary = Summary { length: summary.length, ..self.summary(0, number) };
            }
            self.known.insert(summary.id, summary.clone());
            self.take(0, Origin::Here, &summary);
        }
    }

    fn summary(&self, payload: u64, sequence: u64) -> Summary {
        let service = |node: &Node| node.service(SERVICE).expect("a number is a service of ipn");
        let [source, destination] = [0, self.nodes.len() - 1].map(|at| service(&self.nodes[at]));
        let bundle = NewBundle {
            source: &source,
            destination: &destination,
            created: NOW,
            sequence,
            lifetime: LIFETIME,
            file_name: None,
            purpose: Purpose::Data,
            payload: &vec![0; payload as usize],
        };
        read(&bundle.encode()).expect("what was made can be read").0
    }

    fn take(&mut self, at: usize, from: Origin, summary: &Summary) {
        let agent = &mut self.agents[at];
        let begun = agent.begin(from, Some(summary.id), summary.length);
        if let Ok(Decision::Take(ticket)) = begun
            && let Ok(Decision::Take(record)) = agent.offer(ticket, NOW, summary)
        {
            agent.stored(ticket, record);
        }
        debug_assert!(agent.whereabouts(&summary.id).is_some(), "nothing is refused");
    }

    /// A bundle has crossed a link.
    pub(super) fn pass(&mut self, at: usize, id: BundleId) {
        // One that was delivered comes again if its acknowledgement was lost.
        let Some(summary) = self.known.get(&id).cloned() else { return };
        let previous = Origin::Peer(PeerId(0));
        self.take(at + 1, previous, &summary);
        let last = self.agents.last_mut().expect("a chain has nodes");
        while let Some(record) = last.next_arrived(Some(SERVICE)) {
            last.taken(&record.id).expect("it was given out");
            self.known.remove(&record.id);
            self.left -= 1;
        }
        self.tidy(self.agents.len() - 1);
    }

    /// A link comes up or goes down.
    pub(super) fn set_link(&mut self, at: usize, up: bool) {
        self.agents[at].set_peer(next(at), up);
    }

    pub(super) fn acknowledged(&mut self, at: usize, id: &BundleId) {
        self.agents[at].acknowledged(id);
        self.tidy(at);
    }

    pub(super) fn returned(&mut self, now: Instant, at: usize, id: &BundleId) {
        self.agents[at].returned(now, id, Returned::Lost);
    }

    /// Forgets what a node need not keep.
    fn tidy(&mut self, at: usize) {
        while let Some((record, _)) = self.agents[at].poll_remove() {
            self.agents[at].removed(&record.id);
        }
    }

    /// The next bundle to send: over which link, and its length in bytes.
    pub(super) fn next_to_send(&mut self) -> Option<(usize, BundleId, u64)> {
        let mut all = self.agents.iter_mut().enumerate();
        all.find_map(|(at, agent)| agent.poll_send().map(|(_, it)| (at, it.id, it.length)))
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.left == 0
    }
}

fn node(number: usize) -> Node {
    format!("ipn:{number}.0").parse().expect("a number is a node of ipn")
}

/// A node's next one among its neighbours, of which the previous one is the first.
fn next(at: usize) -> PeerId {
    PeerId(usize::from(at > 0))
}

fn agent(nodes: &[Node], at: usize, window: u32) -> Agent {
    let neighbour = |near: usize, behind: &[Node]| Neighbour {
        node: nodes[near].clone(),
        behind: behind.to_vec(),
        everything: false,
    };
    let before = at.checked_sub(1).map(|near| neighbour(near, &nodes[..near]));
    let after = (at + 1 < nodes.len()).then(|| neighbour(at + 1, &nodes[at + 2..]));
    let limits = Limits {
        bytes: ByteCount::new(ENOUGH),
        bundles: ENOUGH as usize,
        largest: ByteCount::new(ENOUGH / 8),
        remembered: ENOUGH as usize,
        lifetime: LIFETIME,
        window: window as usize,
        window_bytes: ByteCount::new(ENOUGH),
    };
    let peers = before.into_iter().chain(after).collect();
    let config = AgentConfig { node: nodes[at].clone(), peers, limits, reports: false };
    Agent::new(config, Vec::new(), Vec::new())
}
