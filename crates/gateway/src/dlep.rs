//! A DLEP router (RFC 8175): the modem itself reports its rate.
//!
//! [`router`] decides and has no clock; [`driver`] provides sockets and the time. [`base`] holds
//! what the modem has reported: a rate for the whole link, and rates for destinations.
//! [`crate::peers`] maps these to sessions.
//!
//! Not supported: TLS (§9), credit windows and other extensions, sessions with more than one modem,
//! requesting a rate from the modem (§12.18).

mod base;
mod client;
mod driver;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod item;
mod message;
mod router;
mod signals;

use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use self::base::Base;
pub(crate) use self::client::{Client, changed};
pub(crate) use self::router::{Phase, Report};

/// The UDP and TCP port of DLEP (RFC 8175 §15.14).
pub(crate) const PORT: u16 = 854;

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

/// A DLEP status code (RFC 8175 §13.1, Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Status(u8);

impl Status {
    const SUCCESS: Self = Self(0);
    const NOT_INTERESTED: Self = Self(1);
    const UNKNOWN_MESSAGE: Self = Self(128);
    const UNEXPECTED_MESSAGE: Self = Self(129);
    const INVALID_DATA: Self = Self(130);
    const INVALID_DESTINATION: Self = Self(131);
    const TIMED_OUT: Self = Self(132);
    const SHUTTING_DOWN: Self = Self(255);

    fn words(self) -> &'static str {
        match self.0 {
            0 => "success",
            1 => "not interested",
            2 => "request denied",
            3 => "inconsistent data",
            128 => "unknown message",
            129 => "unexpected message",
            130 => "invalid data",
            131 => "invalid destination",
            132 => "timed out",
            255 => "shutting down",
            _ => "no status of RFC 8175",
        }
    }
}

impl From<u8> for Status {
    fn from(code: u8) -> Self {
        Self(code)
    }
}

impl From<Status> for u8 {
    fn from(status: Status) -> Self {
        status.0
    }
}
