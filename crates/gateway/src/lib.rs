//! The gateway pair: intercepts TCP connections, splits them, and carries them over the satellite
//! hop with SLACP over UDP.
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
//! The endpoint of `slacp` decides and has no clock; the driver hands it the time and the
//! datagrams; relays move bytes between TCP sockets and its streams; interception redirects
//! clients' connections to us and is removed on every kind of exit.

#![forbid(unsafe_code)]

mod capability;
mod class;
mod clock;
pub mod config;
mod connections;
pub mod control;
mod counters;
mod cpu;
mod deferral;
mod dial;
mod dlep;
pub mod doctor;
mod driver;
mod error;
mod events;
mod firewall;
mod gateway;
mod hop;
pub mod hub;
mod intake;
mod interception;
pub mod keys;
mod leg;
mod listener;
pub mod log;
mod metrics;
mod names;
mod netfilter;
mod nft_table;
mod notify;
mod ops;
mod own;
mod path_store;
mod peers;
mod pipe;
pub mod policy;
mod proxy;
mod refusal;
mod refusals;
mod relay;
mod routing;
mod rule;
mod scratch;
mod side;
pub mod solo;
mod sources;
pub mod status;
mod syn_tap;
mod tcp;
pub mod terminal;
#[cfg(test)]
mod testkit;
mod tunnel;
mod udp;
mod window;

pub use error::RunError;
pub use pep::admission::Quota;
pub use pep::egress::Egress;
pub use refusal::Refusal;
