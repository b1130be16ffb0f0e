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

pub use config::{
    AckConfig, AckCounting, AfterSlowStart, Config, KeepaliveConfig, LossDetector, SynData,
};
pub use connection::{AbortReason, Connection, ConnectionEvent, TcpState, WriteError, refusal};
pub use options::ConfigError;
pub use payload::{ByteRange, SegmentPayload};
pub use profile::{Profile, UnknownProfile};
pub use prr::PrrBound;
pub use rtt::{RtoConfig, RttSampling};
pub use segment::{
    Cookie, CountOptions, Ecn, HeaderFlags, HeaderOptions, SackBlock, SackBlocks, Segment, Snack,
    Timestamps,
};
pub use seq::SeqNr;
pub use stack::{
    FlowFailure, FlowId, FlowRead, Stack, StackCounts, StackError, StackEvent, StackLimits,
};
pub use stats::ConnectionStats;
pub use tao::{TaoCache, TransactionSettings};
pub use tcb::{ControlBlock, TcbSharing};
pub use wake::TimerKind;
