//! Settings of a terminal that a hub serves.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use slacp::{ClassRates, PublicKey, Rate, SessionShare};
use units::{ByteCount, UnixTime};

use crate::accounting::VolumeQuota;
use crate::egress::EgressRules;
use crate::traffic::Prefix;

/// A terminal that a hub serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermittedTerminal {
    /// Name in log, status and metrics.
    pub name: String,
    /// Public key by which the hub recognises it, or that of its invitation.
    pub key: PublicKey,
    /// Addresses of its clients, as seen from the hub's side. Networks of different terminals must
    /// not overlap. Key `networks`, default none.
    pub networks: Vec<Prefix>,
    /// Source address of its packets in the hub's tunnel, from the pool, which is then its only network; `None` if
    /// it has networks of its own, or no address is free.
    pub address: Option<Ipv4Addr>,
    /// Destinations its clients may reach through the hub. Keys `reach` and `deny`; by default
    /// those of section `egress`, or else everything except special addresses and the hub's own.
    pub egress: EgressRules,
    /// The forward link that it shares with other terminals of the same name; `None` shares none.
    /// Matters with `rate = "auto"`. Key `carrier`, by default the hub's `carrier`.
    pub carrier: Option<String>,
    /// Name of the part of the hub's cache that it shares with the terminals of the same name; `None`
    /// shares with no other terminal. Key `cache`, default none.
    pub cache: Option<String>,
    /// Limits on its use of the hub. Keys `max_connections`, `connections_per_second`, `lookups`,
    /// by default those of section `limits`; and `memory`.
    pub quota: TerminalQuota,
    /// Rates of classes towards it, by name, in place of those of their sections `class`; `None` in a rate
    /// keeps the section's value. Key `classes`, default none.
    pub classes: BTreeMap<String, ClassRates>,
    /// Rates at which the hub sends to it on links, by name, in place of those of their sections `link`.
    /// Key `links`, default none.
    pub links: BTreeMap<String, Rate>,
    /// Volume quota. Keys `quota`, `quota_period` and `quota_then`, by default those of section `limits`;
    /// default none.
    pub volume: Option<VolumeQuota>,
    /// Time from which it is no longer served. Key `expires`, default never.
    pub expires: Option<UnixTime>,
    /// `true` if the key is that of an invitation: its holder can only replace it with the terminal's own.
    /// Key `invite` in place of `key`.
    pub invited: bool,
}

/// Limits of one terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalQuota {
    /// Share of the hub's rate: a weight relative to the others while all want more than there is,
    /// a rate that it has in any case, and one that it never exceeds. Keys `weight`, 1 to 1000,
    /// default 1; `guaranteed` and `maximum`, default none.
    pub share: SessionShare,
    /// Maximum concurrent connections opened by the terminal. Key `max_connections`; by default all
    /// of the hub's if there is one terminal, otherwise half of them.
    pub connections: Option<u64>,
    /// New connections per second in the long run. Key `connections_per_second`, default 1000.
    pub per_second: u32,
    /// Maximum concurrent name lookups; as many may wait. Key `lookups`, default 16.
    pub lookups: usize,
    /// Memory for the streams of its session, in each direction; by default that of all terminals.
    /// Key `memory`.
    pub memory: Option<ByteCount>,
}

impl Default for TerminalQuota {
    /// A page takes 20 to 50 connections, so 1,000 per second are at least 20 pages per second, and
    /// a fifth of what one core of a hub can open (`cargo bench -p skyhop --bench cost --
    /// connections`). A lookup takes 0.1 s if the resolver has to ask others, so 16 at once are 160
    /// names per second.
    fn default() -> Self {
        Self {
            share: SessionShare::default(),
            connections: None,
            per_second: 1000,
            lookups: 16,
            memory: None,
        }
    }
}
