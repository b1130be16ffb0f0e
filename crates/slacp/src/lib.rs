//! SLACP, the protocol of the satellite hop (`docs/slacp.md`).
//!
//! A sans-I/O crate: an [`Endpoint`] is handed datagrams and the time, and
//! hands out datagrams and events. The gateway puts it on a UDP socket, tests
//! on a virtual link.

mod api;
mod crypto;
mod endpoint;
mod fec;
mod flow;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod hub;
mod key;
mod loss;
mod pacer;
mod packet;
mod planner;
mod ranges;
mod received;
mod recv_buffer;
mod rtt;
mod send_buffer;
mod sent;
mod session;
mod stats;
mod streams;
mod terminal;
mod varint;

pub use api::{
    Config, Event, Open, PublicKey, Read, ResetReason, SessionId, StreamError, StreamId,
};
pub use endpoint::Endpoint;
pub use key::KeyPair;
pub use session::Wake;
pub use stats::Stats;
