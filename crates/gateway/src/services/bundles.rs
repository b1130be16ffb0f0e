//! A delay-tolerant node: drives the crate `bundles` with a disk, streams of the hop, and TCP.

mod hop;
mod incoming;
mod node;
mod requests;
pub(crate) mod secure;
mod store;
mod tcpcl;
#[cfg(test)]
mod tests;
mod warnings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bundles::PeerId;
use config::{BundlesConfig, NodeReach};
use control::protocol::{ControlAnswer, ControlRequest};
use control::status::{BundlesStatus, GatewayStatus};
use slacp::{Destination, Event, ResetReason, SessionId, StreamOpening};
use tokio::task::JoinSet;

use self::node::{BundleNode, PeerLink};
use self::requests::BundleRequests;
use super::{Service, Surroundings, Uplink};
use crate::hop::{Hop, SessionStream};
use crate::network::presence;
use crate::operate::control_socket::ControlCall;
use crate::process::clock;
use crate::process::error::RunError;

/// Limit of a peer's open streams, per bundle of its window: a stream ends some time after its
/// reply.
const STREAMS_PER_BUNDLE: usize = 4;

/// A running node. Dropping it ends all its tasks and sessions.
pub(crate) struct BundleService {
    node: Arc<BundleNode>,
    requests: BundleRequests,
    tasks: JoinSet<()>,
    /// Tasks that receive bundles, by peer.
    answering: BTreeMap<PeerId, JoinSet<()>>,
    /// The sessions and their states as set last.
    links: BTreeMap<PeerId, (SessionId, bool)>,
    /// The hub session in use last, so that each is warned of once.
    uplink: Option<SessionId>,
}

impl BundleService {
    /// Starts a node; [`None`] if its disk fails.
    pub(crate) async fn start(config: BundlesConfig) -> Result<Option<Self>, RunError> {
        let Some(node) = BundleNode::open(config)? else { return Ok(None) };
        let mut tasks = JoinSet::new();
        tasks.spawn(node.clone().run());
        if let Some(address) = node.config.listen {
            let listener = presence::listen(address).map_err(|cause| RunError::Bundles {
                problem: format!("cannot listen on TCP {address}: {cause}"),
            })?;
            tasks.spawn(tcpcl::listen(node.clone(), listener));
        }
        for (place, reach) in node.config.reach.iter().enumerate() {
            if let NodeReach::Connect(address) = reach {
                tasks.spawn(tcpcl::connect(node.clone(), PeerId(place), *address));
            }
        }
        Ok(Some(Self {
            requests: BundleRequests::new(node.clone()),
            node,
            tasks,
            answering: BTreeMap::new(),
            links: BTreeMap::new(),
            uplink: None,
        }))
    }

    fn peer(&self, which: impl Fn(&NodeReach) -> bool) -> Option<PeerId> {
        self.node.config.reach.iter().position(which).map(PeerId)
    }

    /// The peer that is the terminal of this name.
    fn terminal(&self, name: &str) -> Option<PeerId> {
        self.peer(|reach| matches!(reach, NodeReach::Terminal(terminal) if terminal == name))
    }

    /// The peer that is the hub.
    fn hub(&self) -> Option<PeerId> {
        self.peer(|reach| *reach == NodeReach::Hub)
    }

    /// The peer at the other end of a session.
    fn peer_of(&self, role: &Surroundings<'_>, session: SessionId) -> Option<PeerId> {
        match role.terminal(session) {
            Some(terminal) => self.terminal(&terminal.name),
            None => self.hub(),
        }
    }

    /// Sets the session to a peer and its reachability. A session whose peer does not take bundles
    /// counts as none.
    fn set_session(&mut self, hop: &Hop, peer: PeerId, session: Option<SessionId>, up: bool) {
        let session = session.filter(|session| hop.peer_takes_bundles(*session));
        let wanted = session.map(|session| (session, up));
        // On a terminal this is called after every event, so mostly nothing has changed.
        if self.links.get(&peer).copied() == wanted {
            return;
        }
        match wanted {
            Some(wanted) => drop(self.links.insert(peer, wanted)),
            None => drop(self.links.remove(&peer)),
        }
        let link = session.map(|session| PeerLink::Hop(hop.clone(), session));
        self.node.set_link(peer, link, up);
    }

    /// Removes the link of a session that has ended.
    fn end_session(&mut self, session: SessionId) {
        let over = self.links.iter().filter(|(_, (its, _))| *its == session).map(|(peer, _)| *peer);
        for peer in over.collect::<Vec<_>>() {
            self.links.remove(&peer);
            self.node.set_link(peer, None, false);
        }
    }

    /// Receives the bundle that a peer's stream carries.
    fn receive(&mut self, peer: PeerId, stream: SessionStream) {
        let answering = self.answering.entry(peer).or_default();
        // Forget finished tasks first: only running ones count.
        while answering.try_join_next().is_some() {}
        if answering.len() >= STREAMS_PER_BUNDLE * self.node.config.agent.limits.window {
            return stream.reset(ResetReason::Limit);
        }
        answering.spawn(hop::receive(self.node.clone(), peer, stream));
    }

    fn status(&self) -> BundlesStatus {
        BundlesStatus::new(&self.node.agent().stats(), clock::unix_millis())
    }

    fn warn_once(&mut self, hop: &Hop, session: SessionId) {
        if self.hub().is_some()
            && self.uplink.replace(session) != Some(session)
            && !hop.peer_takes_bundles(session)
        {
            tracing::warn!("the hub has no section [bundles]: bundles for it wait in the store");
        }
    }
}

impl Service for BundleService {
    fn answers(&self, destination: &Destination) -> bool {
        *destination == Destination::Bundles
    }

    fn answer(
        &mut self,
        role: &mut Surroundings<'_>,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
    ) {
        match self.peer_of(role, stream.session()) {
            Some(peer) => self.receive(peer, stream),
            None => role.refuse(stream, open, ResetReason::Prohibited),
        }
    }

    fn handle_session(&mut self, role: &mut Surroundings<'_>, session: SessionId, event: &Event) {
        let up = match event {
            Event::Up { .. } | Event::Reachable => true,
            Event::Unreachable => false,
            Event::Down(_) => return self.end_session(session),
            _ => return,
        };
        if let (Some(hop), Some(peer)) = (role.hop, self.peer_of(role, session)) {
            self.set_session(hop, peer, Some(session), up);
        }
    }

    fn follow_uplink(&mut self, role: &mut Surroundings<'_>) {
        let Some(hop) = role.hop else { return };
        let Some(hub) = self.hub() else { return };
        let Uplink { session, is_good, .. } = role.uplink;
        session.into_iter().for_each(|session| self.warn_once(hop, session));
        self.set_session(hop, hub, session, is_good);
    }

    fn answer_operator(&mut self, call: ControlCall) -> Option<ControlCall> {
        while self.tasks.try_join_next().is_some() {}
        let ControlRequest::Bundle(request) = call.request.clone() else { return Some(call) };
        // A task of its own: most requests wait for the disk, on which the role's loop must not.
        let requests = self.requests.clone();
        self.tasks.spawn(async move {
            let answer = requests.answer(request).await;
            call.answer(answer.unwrap_or_else(ControlAnswer::Error));
        });
        None
    }

    fn add_status(&self, _: &Surroundings<'_>, status: &mut GatewayStatus) {
        status.bundles = Some(self.status());
    }

    /// Returns `false`: the next process needs the lock of the store, which this one holds to its
    /// end.
    fn release(&mut self, _: &mut Surroundings<'_>, _: Duration) -> bool {
        false
    }
}
