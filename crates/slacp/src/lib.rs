//! SLACP, the protocol of the satellite hop (`docs/slacp.md`).
//!
//! This crate does no I/O and has no clock: an [`Endpoint`] takes datagrams and the time, and
//! returns datagrams and events. The gateway drives it over a UDP socket; tests drive it over a
//! simulated link.

#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod channels;
mod config;
mod endpoint;
mod event;
mod ids;
mod keys;
mod rate;
mod recovery;
mod scheduler;
mod session;
mod setup;
mod spare;
mod streams;
mod wire;

pub use channels::{ChannelConfig, ErrorControl, QueueDiscipline};
pub use config::{Config, MAX_LINKS};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use endpoint::fuzzing;
pub use endpoint::{DatagramRun, Endpoint, LinkUse};
pub use event::errors::{ChannelError, ConfigError, RateError, StreamError};
pub use event::log::{DropReason, LogEntry, LogEvent, PayloadUnit};
pub use event::rate_state::{EcnState, Overload, RateState};
pub use event::stats::{
    ChannelStats, ClassStats, EndpointFootprint, HandshakeEffort, LinkStats, SessionStats,
    StreamStats,
};
pub use event::{EndpointNotice, Event, ReadOutcome};
pub use ids::networks::{client_network, network};
pub use ids::{ChannelId, ClassId, PublicKey, SessionId, StreamId};
pub use keys::key::KeyPair;
pub use rate::{AggregateId, Law, PathKey, PathMemory, Rate};
pub use scheduler::session_share::SessionShare;
pub use scheduler::{ClassConfig, ClassRates};
pub use session::Wake;
pub use session::group::use_link;
pub use setup::sibling::{SiblingProcess, TerminalContact};
pub use setup::strangers::Stranger;
pub use streams::pieces::WriteRoom;
pub use wire::closing::{CloseReason, DownReason, ResetReason, StopAnnouncement};
pub use wire::ecn::Ecn;
pub use wire::index_share::{IndexShare, MAX_SHARES};
pub use wire::open::{Destination, Host, HostName, StreamOpening};
pub use wire::parts::{InitiationHandover, MAX_PARTS, PACKET_MARK, PacketMark, part_of};
