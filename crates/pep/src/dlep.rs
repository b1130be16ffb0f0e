//! DLEP (RFC 8175), by which a modem reports its rate to a router.
//!
//! [`Router`] and [`Modem`] are the state machines of the two sides; [`InformationBase`] holds what a modem
//! has reported: a rate for the whole link, and rates for destinations. [`DlepMessage`] and [`DataItem`] are
//! the codec.
//!
//! A router on a link with capacity on demand reports its backlog to the modem by the rate that it requests
//! ([`DRAIN_TIME`]).
//!
//! Not supported: TLS (§9), credit windows and other extensions, sessions with more than one peer,
//! requests for a received rate or a latency, and for one of several destinations.

mod base;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod item;
mod message;
mod modem;
mod request;
mod router;

pub use base::{DestinationRow, InformationBase};
pub use item::{DataItem, InvalidItem, LinkAddress, code};
pub use message::{DlepMessage, MessageKind, discovery, emit};
pub use modem::{LinkMetrics, LinkRates, Modem, ModemSettings, ReachableDestination};
pub use request::{CapacityRequest, DRAIN_TIME, LATER, backlog_of, rate_to_request};
pub use router::{DlepOutput, DlepPhase, DlepReport, Router, Wake};

/// The UDP and TCP port of DLEP (RFC 8175 §15.14).
pub const PORT: u16 = 854;

/// A DLEP status code (RFC 8175 §13.1, Table 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DlepStatusCode(u8);

impl DlepStatusCode {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// Not Interested.
    pub const NOT_INTERESTED: Self = Self(1);
    /// Request Denied.
    pub const REQUEST_DENIED: Self = Self(2);
    /// Unknown Message.
    pub const UNKNOWN_MESSAGE: Self = Self(128);
    /// Unexpected Message.
    pub const UNEXPECTED_MESSAGE: Self = Self(129);
    /// Invalid Data.
    pub const INVALID_DATA: Self = Self(130);
    /// Invalid Destination.
    pub const INVALID_DESTINATION: Self = Self(131);
    /// Timed Out.
    pub const TIMED_OUT: Self = Self(132);
    /// Shutting Down.
    pub const SHUTTING_DOWN: Self = Self(255);

    fn phrase(self) -> &'static str {
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
            _ => "not a status code of RFC 8175",
        }
    }
}

impl From<u8> for DlepStatusCode {
    fn from(code: u8) -> Self {
        Self(code)
    }
}

impl From<DlepStatusCode> for u8 {
    fn from(status: DlepStatusCode) -> Self {
        status.0
    }
}
