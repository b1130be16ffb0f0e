//! Bundles over TCP: TCPCLv4 (RFC 9174), without TLS.
//!
//! [`Session`] is the state machine of one connection: bytes and the time in, bytes and events out.
//!
//! Not modelled: TLS (RFC 9174 §4.4; a peer that requires it is refused), and extensions of sessions
//! and transfers other than the length of a transfer (§5.2.5.1).

mod message;
mod session;
#[cfg(test)]
mod tests;

pub use message::{ContactHeader, Message, MessageError, TermReason};
pub use session::{
    KEEPALIVE, Role, SEGMENT, Session, SessionConfig, SessionEnd, SessionEvent, SessionWake,
};
