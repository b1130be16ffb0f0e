//! Enrolment of terminals: the hub's operator writes an invitation, and the terminal replaces it,
//! once, with its own key. Its private key never leaves the terminal.
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

pub(crate) use serve::is_enrolment;
use serve::serve;
pub(crate) use service::Enrolments;

/// Host name of enrolment streams. RFC 6761 §6.4 reserves `.invalid`, so it is no real host.
const ENROL_HOST: &str = "enrol.invalid";
/// Port of enrolment streams, which has no meaning.
const ENROL_PORT: u16 = 1;
