//! Decides which bundles a node takes, and where each goes.

use core::time::Duration;

use thiserror::Error;
use units::ByteCount;

use super::BundleOrigin;
use crate::{BundleEndpoint, BundleNodeId, BundleSummary, FragmentPosition};

/// Largest permitted difference between the clocks of nodes.
const MOST_CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// A neighbour of this node by its index in [`AgentConfig::peers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId(pub usize);

/// Next hop of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BundleRoute {
    /// To an endpoint of this node.
    Here,
    /// To this neighbour, which may forward it.
    Peer(PeerId),
    /// No route at present.
    Nowhere,
}

/// Settings of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Identity of the node itself.
    pub node: BundleNodeId,
    /// Neighbours in the order of their [`PeerId`]s.
    pub peers: Vec<NeighbourConfig>,
    /// Limits of the store and of transfers.
    pub limits: AgentLimits,
    /// `true` if status reports are sent to the endpoints that bundles name.
    pub reports: bool,
}

/// A node with which bundles are exchanged directly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeighbourConfig {
    /// Node ID that it must present.
    pub node: BundleNodeId,
    /// Nodes behind it: it may hand over their bundles, and forwards bundles to them.
    pub behind: Vec<BundleNodeId>,
    /// `true` if all nodes that are not listed elsewhere are behind it (default route).
    pub everything: bool,
}

/// Limits of the store and of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLimits {
    /// Total size of the bundles in the store.
    pub bytes: ByteCount,
    /// Bundles in the store.
    pub bundles: usize,
    /// Bytes of a single bundle.
    pub largest: ByteCount,
    /// Bundles in the store and past ones remembered.
    pub remembered: usize,
    /// Longest lifetime of a bundle.
    pub lifetime: Duration,
    /// Bundles sent to a node and not acknowledged yet.
    pub window: usize,
    /// Bytes of these; a single bundle may exceed it.
    pub window_bytes: ByteCount,
}

/// Reason why a bundle is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BundleRefusal {
    /// The store has no room for it, or not for this destination.
    #[error("the store is full")]
    Full,
    /// The disk could not store it.
    #[error("the disk does not take it")]
    Disk,
    /// The same bundle is arriving by another way, or too many bundles are arriving.
    #[error("the same bundle, or too many others, are arriving")]
    Busy,
    /// No more bundles can be remembered.
    #[error("no more bundles can be remembered until others expire")]
    Memory,
    /// Its bytes do not have the announced digest.
    #[error("it arrived damaged")]
    Damaged,
    /// It is larger than permitted.
    #[error("it is larger than permitted")]
    TooLarge,
    /// Its lifetime is longer than permitted.
    #[error("its lifetime is longer than permitted")]
    Lifetime,
    /// Its lifetime ended before it arrived.
    #[error("it has expired")]
    Expired,
    /// It was made in the future: one of the clocks is wrong.
    #[error("its creation time is in the future")]
    Future,
    /// This node has no route to its destination.
    #[error("no route leads to its destination")]
    NoRoute,
    /// Its source is not behind the node that hands it over.
    #[error("its source is not behind the node that sends it")]
    Source,
    /// It is an administrative record for a service, or another bundle for the node itself.
    #[error("the node's own endpoint accepts administrative records only, its services none")]
    Endpoint,
    /// It differs from what was announced, or is not a bundle.
    #[error("it is malformed")]
    Malformed,
}

impl BundleRefusal {
    /// Returns `true` if the same bundle may be accepted later.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Full | Self::Disk | Self::Busy | Self::Memory | Self::Damaged)
    }
}

impl AgentConfig {
    /// The next hop of bundles for an endpoint; never the node that they come from.
    pub(super) fn route(&self, to: &BundleEndpoint, from: Option<PeerId>) -> Option<BundleRoute> {
        let node = to.node();
        if *node == self.node {
            return Some(BundleRoute::Here);
        }
        let leads = |peer: &NeighbourConfig| peer.node == *node || peer.behind.contains(node);
        let exact = self.peers.iter().position(leads);
        let place = exact.or_else(|| self.peers.iter().position(|peer| peer.everything))?;
        let peer = PeerId(place);
        (Some(peer) != from).then_some(BundleRoute::Peer(peer))
    }

    /// Checks a bundle and finds its next hop. `now` is in milliseconds since 1970.
    pub(super) fn check(
        &self,
        from: BundleOrigin,
        bundle: &BundleSummary,
        now: u64,
    ) -> Result<BundleRoute, BundleRefusal> {
        let peer = match from {
            BundleOrigin::Here => None,
            BundleOrigin::Peer(peer) => Some(peer),
        };
        if !self.may_hand_over(peer, bundle.source.node()) {
            return Err(BundleRefusal::Source);
        }
        if bundle.length > self.limits.largest.get() {
            return Err(BundleRefusal::TooLarge);
        }
        if !is_within_whole(bundle) {
            return Err(BundleRefusal::Malformed);
        }
        self.check_times(bundle, now)?;
        match self.route(&bundle.destination, peer) {
            None | Some(BundleRoute::Nowhere) => Err(BundleRefusal::NoRoute),
            // The node's own endpoint accepts administrative records only, and services accept all other
            // bundles.
            Some(BundleRoute::Here)
                if bundle.is_administrative == bundle.destination.service().is_some() =>
            {
                Err(BundleRefusal::Endpoint)
            }
            Some(place @ BundleRoute::Here) => self.check_part(bundle).map(|()| place),
            Some(place) => Ok(place),
        }
    }

    /// Checks lifetime, expiry and creation time of a bundle.
    fn check_times(&self, bundle: &BundleSummary, now: u64) -> Result<(), BundleRefusal> {
        if bundle.lifetime > self.limits.lifetime {
            return Err(BundleRefusal::Lifetime);
        }
        if bundle.expires(now) <= now {
            return Err(BundleRefusal::Expired);
        }
        let latest = now.saturating_add(MOST_CLOCK_SKEW.as_millis() as u64);
        match bundle.created {
            Some(created) if created > latest => Err(BundleRefusal::Future),
            _ => Ok(()),
        }
    }

    /// Checks a fragment of a bundle for this node.
    fn check_part(&self, bundle: &BundleSummary) -> Result<(), BundleRefusal> {
        let Some(FragmentPosition { total, .. }) = bundle.fragment else { return Ok(()) };
        if bundle.is_administrative || bundle.payload.is_empty() {
            return Err(BundleRefusal::Malformed);
        }
        if total > self.limits.largest.get() {
            return Err(BundleRefusal::TooLarge);
        }
        Ok(())
    }

    /// Returns `true` if a node may hand over bundles of this source; `None` is this node itself.
    fn may_hand_over(&self, from: Option<PeerId>, source: &BundleNodeId) -> bool {
        let Some(PeerId(number)) = from else { return *source == self.node };
        let Some(peer) = self.peers.get(number) else { return false };
        let is_behind =
            |peer: &NeighbourConfig| peer.node == *source || peer.behind.contains(source);
        if peer.everything {
            let others = self.peers.iter().enumerate().filter(|(place, _)| *place != number);
            return *source != self.node && !others.map(|(_, it)| it).any(is_behind);
        }
        is_behind(peer)
    }
}

/// Returns `true` if a fragment ends within its whole. No node could use another one, and its end may
/// overflow.
fn is_within_whole(bundle: &BundleSummary) -> bool {
    bundle.fragment.is_none_or(|FragmentPosition { offset, total }| {
        offset.checked_add(bundle.payload.len() as u64).is_some_and(|end| end <= total)
    })
}
