//! How a terminal gets its permit: the hub's operator writes an invitation, whose token the terminal
//! uses once to replace it with its own key. Nobody else ever has that key.
//!
//! ```text
//!  hub                                         terminal
//!  invite: permit with the invitation's key
//!          token (hubs, invitation's secret) ─► join: session with the invitation's key
//!                                               stream to enrol.invalid: own public key
//!  permit with the terminal's key            ◄─┘
//!  session of the invitation is closed          session with the own key: it is served
//! ```

pub(crate) mod etcd;
pub mod join;
pub mod permit;
mod serve;
mod service;
pub mod token;

pub(crate) use serve::is_meant;
use serve::serve;
pub(crate) use service::Enrolments;

/// Where a terminal says its key. No name ends in this (RFC 6761 §6.4), so it is resolved nowhere.
const PLACE: &str = "enrol.invalid";
/// The port, which means nothing.
const PORT: u16 = 1;
