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
//! The endpoint of `slacp` decides and has no clock; the driver passes it the time and the
//! datagrams; relays move bytes between TCP sockets and its streams; interception redirects
//! clients' connections to the gateway and is removed on every kind of exit.
//!
//! | module | contents |
//! |---|---|
//! | `config` | reading of configuration files and keys |
//! | `intercept` | transparent interception: tables, rules, routes, listeners, deferred answers |
//! | `relay` | connections and their sockets: dialling, copying, splicing, name look-ups |
//! | `hop` | the endpoint's driver, its sockets, and the peers with sessions |
//! | `stack` | skyhop's own TCP on the WAN side of a solo gateway |
//! | `figures` | counters, live and refused connections |
//! | `operate` | control socket, metrics, log, service manager |
//! | `doctor` | checks of machine and configuration |
//! | `services` | the features: names, HTTP, bundles, proxy, tunnel, DLEP, enrolment, key rotation |
//! | `roles` | hub, terminal and solo, and the loop that runs them |
//! | `network` | sockets' options, TLS, absent addresses; nftables tables, rules, routes and devices |
//! | `process` | single-threaded runtimes with limited wake-ups, the clock, errors |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod config;
pub mod doctor;
mod figures;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hop;
mod intercept;
mod network;
mod operate;
mod process;
mod relay;
mod roles;
mod services;
mod stack;
#[cfg(test)]
mod testkit;

pub use self::config::keys;
pub use self::config::pair::PORT;
pub use operate::{control_socket, log};
pub use pep::egress::EgressRules;
pub use pep::routes::TerminalQuota;
pub use pep::traffic::Prefix;
pub use process::error::RunError;
pub use process::refusal::KernelRefusal;
pub use process::runtime;
pub use roles::{hub, solo, terminal};
pub use services::enrolment;
