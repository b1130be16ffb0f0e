//! The gateway pair: takes over TCP connections, splits them, and carries them
//! over the satellite hop with SLACP over UDP.
//!
//! ```text
//!  client ── LAN ── terminal ═══ hop ═══ hub ── server
//!                   │                     │
//!   Interception ───┤ Listener            │ dial
//!                   └─ relay ─ Hop        └─ relay ─ Hop
//!                               │                     │
//!                            Driver ── UDP ──────── Driver
//! ```
//!
//! The endpoint of `slacp` decides and has no clock; the driver hands it the time
//! and the datagrams; relays move bytes between TCP sockets and its streams;
//! interception brings clients' connections to us and is undone on every way
//! out.

mod clock;
pub mod config;
mod counters;
mod dial;
mod driver;
mod error;
mod gateway;
mod hop;
pub mod hub;
mod interception;
pub mod keys;
mod listener;
mod netfilter;
mod netlink;
mod prefix;
mod relay;
mod routing;
mod rule;
mod scratch;
mod tcp;
pub mod terminal;
#[cfg(test)]
mod testkit;
mod timer;
mod udp;

pub use error::RunError;
pub use interception::print_rules;
pub use prefix::{Prefix, PrefixError};
