//! Other processes at a hub's address: one that still has sessions, and one that has lost its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::{IndexShare, PublicKey};

/// Another process at a hub's address, which carries its sessions until they end. Packets of those
/// sessions do not arrive here, or only for a short time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiblingProcess {
    /// The share that its receiver indices are from.
    pub indices: IndexShare,
    /// The names of its sessions ([`Endpoint::names`](crate::Endpoint::names)).
    pub sessions: BTreeSet<u64>,
    /// The succession token of each terminal's session ([`Endpoint::succession_tokens`]). For a while,
    /// only a machine that knows it gets the terminal's session here.
    ///
    /// [`Endpoint::succession_tokens`]: crate::Endpoint::succession_tokens
    pub tokens: BTreeMap<PublicKey, u64>,
}

/// The last contact with a terminal, from which another process can call it in the hub's place
/// ([`Endpoint::call`](crate::Endpoint::call)). Not secret, but whoever has it and the hub's public
/// key can make the terminal start a handshake, once every 5 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalContact {
    /// The terminal's address when it was last heard.
    pub address: SocketAddr,
    /// The index of the hub that its packets carry.
    pub index: u32,
    /// The largest packet number received from it.
    pub number: u64,
}
