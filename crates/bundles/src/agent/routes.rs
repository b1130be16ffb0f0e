//! Which bundles a node takes, and where each goes.

use core::time::Duration;

use thiserror::Error;
use units::ByteCount;

use super::Origin;
use crate::{Endpoint, Fragment, Node, Summary};

/// How far the clocks of nodes may differ.
const CLOCKS: Duration = Duration::from_secs(3600);

/// A node that this one exchanges bundles with, by its place in [`AgentConfig::peers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId(pub usize);

/// Where a bundle goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// To an endpoint of this node.
    Here,
    /// To another node.
    Peer(PeerId),
    /// There is no route any more.
    Nowhere,
}

/// What an agent is and may keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// This node.
    pub node: Node,
    /// The nodes that it exchanges bundles with.
    pub peers: Vec<Neighbour>,
    /// What it may keep.
    pub limits: Limits,
    /// Whether it reports to those whom bundles name what happened to these.
    pub reports: bool,
}

/// A node that bundles are exchanged with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Itself.
    pub node: Node,
    /// Nodes behind it, whose bundles it may hand over, and to which it passes bundles on.
    pub behind: Vec<Node>,
    /// Whether everything is behind it that is nowhere else.
    pub everything: bool,
}

/// What an agent may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in the store.
    pub bytes: ByteCount,
    /// Bundles in the store.
    pub bundles: usize,
    /// Bytes of one bundle.
    pub largest: ByteCount,
    /// Bundles in the store and remembered.
    pub remembered: usize,
    /// The longest lifetime of a bundle.
    pub lifetime: Duration,
    /// Bundles sent to a node and not acknowledged.
    pub window: usize,
    /// Their bytes, unless it is one bundle.
    pub window_bytes: ByteCount,
}

/// Why a bundle is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The store is full.
    #[error("the store is full")]
    Full,
    /// The disk does not take it.
    #[error("the disk does not take it")]
    Disk,
    /// The same bundle is coming in another way, or too many are.
    #[error("the same bundle, or too many others, are coming in")]
    Busy,
    /// No more bundles can be remembered.
    #[error("no more bundles can be remembered until others expire")]
    Memory,
    /// It has arrived damaged.
    #[error("it has arrived damaged")]
    Damaged,
    /// It is larger than permitted.
    #[error("it is larger than permitted")]
    TooLarge,
    /// Its lifetime is longer than permitted.
    #[error("its lifetime is longer than permitted")]
    Lifetime,
    /// It is of no more use.
    #[error("it has expired")]
    Expired,
    /// It was made in the future: one of the clocks is wrong.
    #[error("it was made in the future")]
    Future,
    /// No node that this one knows leads to its destination.
    #[error("no route leads to its destination")]
    NoRoute,
    /// The node that hands it over may not hand over bundles of its source.
    #[error("its source is not behind the node that sends it")]
    Source,
    /// It is a record for a service, or anything else for the node itself.
    #[error("a node itself takes administrative records only, and its services take all others")]
    Endpoint,
    /// It is not what was announced, or no bundle.
    #[error("it is malformed")]
    Malformed,
}

impl Refusal {
    /// Whether the same bundle may be taken later.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Full | Self::Disk | Self::Busy | Self::Memory | Self::Damaged)
    }
}

impl AgentConfig {
    /// Where bundles for an endpoint go; never back to where they come from.
    pub(super) fn route(&self, to: &Endpoint, from: Option<PeerId>) -> Option<Place> {
        let node = to.node();
        if *node == self.node {
            return Some(Place::Here);
        }
        let leads = |peer: &Neighbour| peer.node == *node || peer.behind.contains(node);
        let exact = self.peers.iter().position(leads);
        let place = exact.or_else(|| self.peers.iter().position(|peer| peer.everything))?;
        let peer = PeerId(place);
        (Some(peer) != from).then_some(Place::Peer(peer))
    }

    /// Where a bundle goes, if it is taken. `now` is in milliseconds since 1970.
    pub(super) fn check(&self, from: Origin, bundle: &Summary, now: u64) -> Result<Place, Refusal> {
        let peer = match from {
            Origin::Here => None,
            Origin::Peer(peer) => Some(peer),
        };
        if !self.may_hand_over(peer, bundle.source.node()) {
            return Err(Refusal::Source);
        }
        if bundle.length > self.limits.largest.get() {
            return Err(Refusal::TooLarge);
        }
        if !is_within_whole(bundle) {
            return Err(Refusal::Malformed);
        }
        if bundle.lifetime > self.limits.lifetime {
            return Err(Refusal::Lifetime);
        }
        if bundle.expires(now) <= now {
            return Err(Refusal::Expired);
        }
        let latest = now.saturating_add(CLOCKS.as_millis() as u64);
        if bundle.created.is_some_and(|created| created > latest) {
            return Err(Refusal::Future);
        }
        match self.route(&bundle.destination, peer) {
            None | Some(Place::Nowhere) => Err(Refusal::NoRoute),
            // A node takes records, its services do not.
            Some(Place::Here)
                if bundle.is_administrative == bundle.destination.service().is_some() =>
            {
                Err(Refusal::Endpoint)
            }
            Some(place @ Place::Here) => self.check_part(bundle).map(|()| place),
            Some(place) => Ok(place),
        }
    }

    /// Whether a bundle for this node is a part of one that it may take.
    fn check_part(&self, bundle: &Summary) -> Result<(), Refusal> {
        let Some(Fragment { total, .. }) = bundle.fragment else { return Ok(()) };
        if bundle.is_administrative || bundle.payload.is_empty() {
            return Err(Refusal::Malformed);
        }
        if total > self.limits.largest.get() {
            return Err(Refusal::TooLarge);
        }
        Ok(())
    }

    /// Whether a node may hand over bundles of this source.
    fn may_hand_over(&self, from: Option<PeerId>, source: &Node) -> bool {
        let Some(PeerId(number)) = from else { return *source == self.node };
        let Some(peer) = self.peers.get(number) else { return false };
        let is_behind = |peer: &Neighbour| peer.node == *source || peer.behind.contains(source);
        if peer.everything {
            let others = self.peers.iter().enumerate().filter(|(place, _)| *place != number);
            return *source != self.node && !others.map(|(_, it)| it).any(is_behind);
        }
        is_behind(peer)
    }
}

/// Whether a part ends within its whole. No node can use one that does not, and its end may be no number.
fn is_within_whole(bundle: &Summary) -> bool {
    bundle.fragment.is_none_or(|Fragment { offset, total }| {
        offset.checked_add(bundle.payload.len() as u64).is_some_and(|end| end <= total)
    })
}
