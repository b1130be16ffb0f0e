//! SLACP, the protocol of the satellite hop (`docs/slacp.md`).
//!
//! This is a sans-I/O crate: an [`Endpoint`] takes datagrams and the time, and returns datagrams
//! and events. The gateway drives it over a UDP socket; tests drive it over a simulated link.

#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod api;
mod channels;
mod endpoint;
mod event_log;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod jitter;
mod keys;
mod links;
mod pacer;
mod path;
mod rate;
mod recovery;
mod scheduler;
mod session;
mod setup;
mod spare;
mod stats;
mod streams;
mod wire;

pub use api::{
    CloseReason, Config, Contact, DownReason, Effort, Event, Farewell, Footprint, MOST_LINKS,
    Notice, PublicKey, Read, ResetReason, SessionId, Sibling, StreamError, StreamId,
};
pub use channels::{
    ChannelConfig, ChannelError, ChannelId, ConfigError, ErrorControl, QueueDiscipline,
};
pub use endpoint::{Endpoint, LinkUse, Run, SessionShare, use_link};
pub use event_log::{DropReason, LogEntry, LogEvent, Unit};
pub use keys::key::KeyPair;
pub use rate::{
    AggregateId, EcnState, Law, Overload, PathKey, PathMemory, Rate, RateError, RateState,
};
pub use scheduler::{ClassConfig, ClassId, ClassRates};
pub use session::Wake;
pub use setup::gate::network;
pub use setup::index_share::{IndexShare, MOST_SHARES};
pub use setup::parts::{Handover, MOST_PARTS, PACKET_MARK, PacketMark, part_of};
pub use setup::strangers::Stranger;
pub use stats::{ChannelStats, ClassStats, LinkStats, Stats, StreamStats};
pub use streams::pieces::Room;
pub use wire::ecn::Ecn;
pub use wire::open::{Destination, Host, HostName, Open, client_network};
