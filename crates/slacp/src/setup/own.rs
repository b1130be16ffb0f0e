//! Settings of a hub for individual terminals.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use units::ByteCount;

use crate::keys::handshake::HandshakeParams;
use crate::{Config, PublicKey, Rate};

/// Overrides by terminal, for sessions set up and links added from now on.
#[derive(Default)]
pub(super) struct TerminalOverrides {
    /// Replaces [`Config::memory`], in bytes.
    pub(super) memory: BTreeMap<PublicKey, ByteCount>,
    /// Replaces the rates of [`Config::links`], by their indices.
    pub(super) link_rates: BTreeMap<PublicKey, BTreeMap<u8, Rate>>,
    /// The source addresses of their packets; `None` for those from which no packets are received.
    pub(super) addresses: BTreeMap<PublicKey, Option<Ipv4Addr>>,
}

impl TerminalOverrides {
    /// The configuration for a terminal's sessions, if it has settings of its own.
    pub(super) fn of(&self, usual: &Config, key: &PublicKey) -> Option<Config> {
        let memory = self.memory.get(key);
        let rates = self.link_rates.get(key);
        if memory.is_none() && rates.is_none() {
            return None;
        }
        let mut own = usual.clone();
        if let Some(memory) = memory {
            // A stream's window is a share of the memory.
            (own.memory, own.stream_window) = (*memory, usual.stream_window.min(*memory));
        }
        for (link, rate) in rates.into_iter().flatten() {
            let usual = own.links.get_mut(usize::from(*link));
            usual.into_iter().for_each(|usual| usual.clone_from(rate));
        }
        Some(own)
    }
    /// Adds a terminal's address to the parameters that answer `theirs`. Without an address that it takes, it
    /// is not offered any packet channel: its packets would be dropped.
    pub(super) fn address(
        &self,
        key: &PublicKey,
        theirs: &HandshakeParams,
        mut ours: HandshakeParams,
    ) -> HandshakeParams {
        let Some(address) = self.addresses.get(key) else { return ours };
        match address.filter(|_| theirs.address.is_some()) {
            Some(address) => ours.address = Some(address.to_bits().into()),
            None => ours.limits.channels = 0,
        }
        ours
    }
}
