//! A TCP endpoint for research and for the wire (`docs/tcp.md`).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod cc;
mod config;
mod connection;
mod delivery_snapshot;
mod flight;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod math;
mod options;
mod pacer;
pub mod packet;
mod payload;
mod profile;
mod prr;
mod rack;
mod rate;
mod receiver;
mod rtt;
mod segment;
mod send_buffer;
mod sender;
mod seq;
mod stack;
mod stats;
mod tao;
mod tcb;
mod wake;
pub mod wire;

pub use config::{AckConfig, AfterSlowStart, Config, Counting, Detection, Keepalive, SynData};
pub use connection::{Abort, Connection, Event, State, WriteError, refusal};
pub use options::ConfigError;
pub use payload::{ByteRange, Payload};
pub use profile::{Profile, UnknownProfile};
pub use prr::PrrBound;
pub use rtt::{RtoConfig, Sampling};
pub use segment::{
    Cookie, Counts, Ecn, Flags, Options, SackBlock, SackBlocks, Segment, Snack, Timestamps,
};
pub use seq::SeqNr;
pub use stack::{Cut, FlowId, Limits, Read, Stack, StackCounts, StackError, StackEvent};
pub use stats::Stats;
pub use tao::{TaoCache, Transactions};
pub use tcb::{ControlBlock, Sharing};
pub use wake::Wake;
