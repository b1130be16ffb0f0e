//! Bundles over TCP: TCPCLv4 (RFC 9174), over TLS if the node is configured so.
//!
//! [`TcpclConnection`] is the state machine of one connection: received bytes and the time in, bytes to send
//! and events out.
//!
//! TLS itself is left to the owner: the session reports when the connection becomes TLS, and rejects a peer
//! that does not offer it. A peer that requires TLS ends the session if this side has none.
//!
//! Not modelled: session extensions, and transfer extensions other than the Transfer Length (§5.2.5.1).

mod message;
mod session;
#[cfg(test)]
mod tests;

pub use message::{CONTACT, ContactHeader, MessageError, TcpclMessage, TermReason};
pub use session::{
    ConnectionRole, KEEPALIVE, SEGMENT, SessionConfig, SessionEnd, SessionEvent, SessionWake,
    TcpclConnection,
};
