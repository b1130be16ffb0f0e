//! SLACP, the protocol of the satellite hop (`docs/slacp.md`).
//!
//! This crate does no I/O and has no clock: an [`Endpoint`] takes datagrams and the time, and
//! returns datagrams and events. The gateway drives it over a UDP socket; tests drive it over a
//! simulated link.

#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod channels;
mod closing;
mod config;
mod endpoint;
mod errors;
mod event;
mod event_log;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod ids;
mod index_share;
mod jitter;
mod keys;
mod links;
mod networks;
mod pacer;
mod parts;
mod path;
mod rate;
mod rate_state;
mod recovery;
mod scheduler;
mod session;
mod session_share;
mod sessions;
mod setup;
mod spare;
mod stats;
mod streams;
mod wire;

pub use channels::{ChannelConfig, ErrorControl, QueueDiscipline};
pub use closing::{CloseReason, DownReason, ResetReason, StopAnnouncement};
pub use config::{Config, MAX_LINKS};
pub use endpoint::{DatagramRun, Endpoint, LinkUse};
pub use errors::{ChannelError, ConfigError, RateError, StreamError};
pub use event::{EndpointNotice, Event, ReadOutcome};
pub use event_log::{DropReason, LogEntry, LogEvent, PayloadUnit};
pub use ids::{ChannelId, ClassId, PublicKey, SessionId, StreamId};
pub use index_share::{IndexShare, MAX_SHARES};
pub use keys::key::KeyPair;
pub use networks::{client_network, network};
pub use parts::{InitiationHandover, MAX_PARTS, PACKET_MARK, PacketMark, part_of};
pub use rate::{AggregateId, Law, PathKey, PathMemory, Rate};
pub use rate_state::{EcnState, Overload, RateState};
pub use scheduler::{ClassConfig, ClassRates};
pub use session::Wake;
pub use session_share::SessionShare;
pub use sessions::use_link;
pub use setup::sibling::{SiblingProcess, TerminalContact};
pub use setup::strangers::Stranger;
pub use stats::{
    ChannelStats, ClassStats, EndpointFootprint, HandshakeEffort, LinkStats, SessionStats,
    StreamStats,
};
pub use streams::pieces::WriteRoom;
pub use wire::ecn::Ecn;
pub use wire::open::{Destination, Host, HostName, StreamOpening};
