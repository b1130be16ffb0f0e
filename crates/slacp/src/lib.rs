//! SLACP, the protocol of the satellite hop (`docs/slacp.md`).
//!
//! This is a sans-I/O crate: an [`Endpoint`] takes datagrams and the time, and returns datagrams
//! and events. The gateway drives it over a UDP socket; tests drive it over a simulated link.

#![deny(unsafe_code)]

mod api;
mod channels;
mod crypto;
mod endpoint;
mod event_log;
mod fade;
mod fec;
mod flow;
mod foreign;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod handshake;
mod hub;
mod jitter;
mod key;
mod knock;
mod loss;
mod migration;
mod milestones;
mod open;
mod pacer;
mod packet;
mod phases;
mod planner;
mod pmtu;
mod rate;
mod received;
mod recv_buffer;
mod reordering;
mod replacement;
mod rtt;
mod scheduler;
#[allow(unsafe_code, reason = "wipes the values of other crates")]
mod secret;
mod send_buffer;
mod sent;
mod session;
mod stats;
mod streams;
mod terminal;
mod varint;
#[cfg(test)]
mod vectors;

pub use api::{
    CloseReason, Config, DownReason, Effort, Event, Footprint, Notice, PublicKey, Read,
    ResetReason, SessionId, StreamError, StreamId,
};
pub use channels::{ChannelConfig, ChannelError, ChannelId, ConfigError, ErrorControl};
pub use endpoint::Endpoint;
pub use event_log::{DropReason, LogEntry, LogEvent, Unit};
pub use key::KeyPair;
pub use open::{Destination, HostName, Open};
pub use rate::{PathKey, PathMemory, Rate, RateError, RateState};
pub use scheduler::{ClassConfig, ClassId};
pub use session::Wake;
pub use stats::{ChannelStats, ClassStats, Stats, StreamStats};
