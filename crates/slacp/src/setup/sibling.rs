//! Other processes at a hub's address: one that still has sessions, and one that has lost them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::{IndexShare, PublicKey};

/// Another process at a hub's address, which carries the sessions that it has until they end. What
/// belongs to them does not come here, or not for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// From which its indices are.
    pub indices: IndexShare,
    /// The names of its sessions ([`Endpoint::names`](crate::Endpoint::names)).
    pub sessions: BTreeSet<u64>,
    /// The succession token of each terminal's session ([`Endpoint::succession_tokens`]). For a while,
    /// only a machine that knows it gets the terminal's session here.
    ///
    /// [`Endpoint::succession_tokens`]: crate::Endpoint::succession_tokens
    pub tokens: BTreeMap<PublicKey, u64>,
}

/// How a terminal was last heard, so that another process can call it in the hub's place
/// ([`Endpoint::call`](crate::Endpoint::call)). Not secret, but whoever has it and the hub's public key
/// can make the terminal ask the hub, once every 5 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// The terminal's address.
    pub address: SocketAddr,
    /// The index that its packets carry.
    pub index: u32,
    /// The number of its last packet.
    pub number: u64,
}
