//! Accounting at a hub: volume per terminal and class, and volume quotas.
//!
//! [`UsageTally`] counts what the sessions carry; [`Ledger`] adds it up per terminal and calendar period, and
//! decides whose quota is used up. Wall-clock time is passed in as Unix seconds. Counted is what clients send
//! and receive: bytes of connections and of packets carried whole, without the hop's headers, repairs and
//! retransmissions.

use core::convert::Infallible;
use core::fmt;
use core::str::FromStr;

mod ledger;
mod period;
mod tally;

pub use ledger::{CLASSES_MAX, Ledger, OTHER_CLASSES, PeriodUsage, QuotaChange, TerminalAccount};
pub use period::RenewalPeriod;
pub use tally::{TrafficDirection, UsageRecord, UsageTally};
use units::{BitRate, ByteCount};

/// Traffic carried for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficUsage {
    /// Bytes of connections and packets towards the terminal.
    pub bytes_to: u64,
    /// Bytes of connections and packets from the terminal.
    pub bytes_from: u64,
    /// Packets carried whole towards the terminal.
    pub packets_to: u64,
    /// Packets carried whole from the terminal.
    pub packets_from: u64,
    /// Connections, opened by either side.
    pub connections: u64,
}

impl TrafficUsage {
    /// Bytes in both directions together, which is what quotas count.
    pub fn bytes(&self) -> u64 {
        self.bytes_to.saturating_add(self.bytes_from)
    }

    /// Adds further usage; counters saturate.
    pub fn add(&mut self, more: &Self) {
        let Self { bytes_to, bytes_from, packets_to, packets_from, connections } = more;
        self.bytes_to = self.bytes_to.saturating_add(*bytes_to);
        self.bytes_from = self.bytes_from.saturating_add(*bytes_from);
        self.packets_to = self.packets_to.saturating_add(*packets_to);
        self.packets_from = self.packets_from.saturating_add(*packets_from);
        self.connections = self.connections.saturating_add(*connections);
    }
}

/// A volume quota; both directions count together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeQuota {
    /// Bytes per period. Key `quota`.
    pub volume: ByteCount,
    /// When the quota is renewed. Key `quota_period`, default `"month"`.
    pub period: RenewalPeriod,
    /// Treatment when it is used up. Key `quota_then`, default `"block"`.
    pub then: ExhaustedAction,
}

/// Volume quota of terminals without one of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeDefaults {
    /// Bytes per period; `None` for no quota.
    pub quota: Option<ByteCount>,
    /// When the quota is renewed.
    pub period: RenewalPeriod,
    /// Treatment when it is used up.
    pub then: ExhaustedAction,
}

impl Default for VolumeDefaults {
    fn default() -> Self {
        Self { quota: None, period: RenewalPeriod::Month, then: ExhaustedAction::Block }
    }
}

impl FromStr for ExhaustedAction {
    type Err = Infallible;

    /// Parses `block`, a rate, or else the name of a class.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        // "block" before classes: a class of that name could not be chosen.
        Ok(match (text, text.parse()) {
            ("block", _) => Self::Block,
            (_, Ok(rate)) => Self::Rate(rate),
            (name, Err(_)) => Self::Class(name.to_owned()),
        })
    }
}

impl fmt::Display for ExhaustedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("block"),
            Self::Rate(rate) => write!(f, "{rate}"),
            Self::Class(name) => f.write_str(name),
        }
    }
}

/// Treatment of a terminal whose quota is used up, until the period ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExhaustedAction {
    /// Its connections end, and the hub carries nothing more for it.
    Block,
    /// At most this rate towards the terminal.
    Rate(BitRate),
    /// All of its traffic goes to the class of this name.
    Class(String),
}
