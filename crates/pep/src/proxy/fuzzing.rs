//! A proxy handshake with a fuzzed client.

use super::handshake::{HandshakeStep, ProxyHandshake};

/// Runs a handshake in which the client sends these `pieces`. Returns `true` if it is accepted, `false` if
/// it is refused, `None` if it is incomplete.
pub(crate) fn converse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<bool> {
    let mut handshake = ProxyHandshake::default();
    for piece in pieces {
        handshake.handle_input(piece);
        loop {
            match handshake.step() {
                HandshakeStep::Read => break,
                HandshakeStep::Write(answer) => assert!(!answer.is_empty()),
                HandshakeStep::Connect(_) => return Some(true),
                HandshakeStep::Refuse(_) => return Some(false),
            }
        }
    }
    None
}
