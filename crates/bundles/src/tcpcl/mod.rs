//! Bundles over TCP: TCPCLv4 (RFC 9174), within TLS if the node is to use it.
//!
//! [`Session`] is the state machine of one connection: bytes and the time in, bytes and events out.
//!
//! TLS itself is the owner's: the session says when the connection becomes TLS, and refuses a peer that
//! offers none. Without TLS on this side, one that requires it ends the session.
//!
//! Not modelled: extensions of sessions and transfers other than the length of a transfer (§5.2.5.1).

mod message;
mod session;
#[cfg(test)]
mod tests;

pub use message::{CONTACT, ContactHeader, Message, MessageError, TermReason};
pub use session::{
    KEEPALIVE, Role, SEGMENT, Session, SessionConfig, SessionEnd, SessionEvent, SessionWake,
};
