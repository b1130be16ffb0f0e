//! A DLEP router (RFC 8175): the modem itself reports its rate.
//!
//! [`pep::dlep`] decides and has no clock; [`driver`] provides sockets and the time.
//! [`crate::peers`] maps what the modem reports to sessions.

mod client;
mod driver;
mod signals;

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use self::client::{Client, changed};

/// DLEP settings. Section `[dlep]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DlepConfig {
    /// How to find the modem. Key `interface` or `modem`.
    pub way: Way,
    /// Interval of our heartbeats, 1 s to 1 h. Key `heartbeat`, default 5 s.
    pub heartbeat: Duration,
    /// Ignores packets forwarded by a router: the TTL must be 255 (RFC 5082). Key `gtsm`, default
    /// true.
    pub gtsm: bool,
}

/// How to find the modem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By discovery on this interface.
    Discover(String),
    /// At this address.
    Modem(SocketAddr),
}
