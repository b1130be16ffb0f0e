//! A DLEP router (RFC 8175): the modem itself reports its rate.
//!
//! [`pep::dlep`] decides and has no clock; [`driver`] provides sockets and the time.
//! [`crate::hop::peers`] maps what the modem reports to sessions.

mod client;
mod driver;
mod signals;

pub(crate) use self::client::{Client, changed};
