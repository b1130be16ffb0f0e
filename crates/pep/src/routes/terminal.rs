//! Settings of a terminal that a hub serves.

use std::collections::BTreeMap;

use slacp::{ClassRates, PublicKey, Rate};
use units::UnixTime;

use crate::accounting::VolumeQuota;
use crate::admission::TerminalQuota;
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
