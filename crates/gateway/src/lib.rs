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
//!
//! | folder | holds |
//! |---|---|
//! | `config` | reading of configuration files and keys |
//! | `intercept` | how connections come in: tables, rules, routes, listeners, deferred answers |
//! | `proxy` | the other way in: SOCKS5 and HTTP CONNECT |
//! | `relay` | connections and their sockets: dialling, copying, splicing, name lookups |
//! | `hop` | the endpoint's driver, its UDP socket, and what is known of peers |
//! | `tunnel` | packets that are not split |
//! | `bundles` | a node for bundles: its store, and how they come and go |
//! | `dlep` | the modem's reports |
//! | `figures` | what is counted and known of connections, and the status made of it |
//! | `operate` | control socket, metrics, log, service manager |
//! | `doctor` | checks of machine and configuration |
//! | `roles` | hub, terminal and solo, and what runs them |
//! | `presence` | addresses and interfaces that are not there yet |
//! | `runtime` | how often their threads wake up |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod bundles;
mod capability;
mod clock;
pub mod config;
mod dlep;
pub mod doctor;
pub mod enrolment;
mod error;
mod figures;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod hop;
mod http;
mod intercept;
mod key_message;
mod log_limit;
mod names;
mod occasions;
mod operate;
mod presence;
mod proxy;
mod refusal;
mod relay;
mod role;
mod roles;
mod rotation;
pub mod runtime;
mod side_settings;
mod slots;
mod socket_options;
mod stack;
#[cfg(test)]
mod testkit;
mod tunnel;
mod whole_file;

pub use config::keys;
pub use config::pair::PORT;
pub use error::RunError;
pub use figures::status;
pub use operate::{control, log};
pub use pep::admission::Quota;
pub use pep::egress::Egress;
pub use pep::traffic::Prefix;
pub use refusal::Refusal;
pub use roles::{hub, solo, terminal};
