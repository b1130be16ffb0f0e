//! A TCP endpoint for research and for the wire (`docs/tcp.md`).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod cc;
mod config;
mod connection;
mod estimate;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod receiver;
mod recovery;
mod segment;
mod sender;
mod sharing;
mod stack;
mod stats;
mod wake;
pub mod wire;

pub use config::options::ConfigError;
pub use config::profile::{Profile, UnknownProfile};
pub use config::{
    AckConfig, AckCounting, AfterSlowStart, Config, KeepaliveConfig, LossDetector, SynData,
};
pub use connection::{AbortReason, Connection, ConnectionEvent, TcpState, WriteError, refusal};
pub use estimate::rtt::{RtoConfig, RttSampling};
pub use recovery::prr::PrrBound;
pub use segment::payload::{ByteRange, SegmentPayload};
pub use segment::seq::SeqNr;
pub use segment::{
    Cookie, CountOptions, Ecn, HeaderFlags, HeaderOptions, SackBlock, SackBlocks, Segment, Snack,
    Timestamps,
};
pub use sharing::tao::{TaoCache, TransactionSettings};
pub use sharing::tcb::{ControlBlock, TcbSharing};
pub use stack::{
    FlowFailure, FlowId, FlowRead, Stack, StackCounts, StackError, StackEvent, StackLimits,
};
pub use stats::ConnectionStats;
pub use wake::TimerKind;
