//! A proxy handshake with a fuzzed client.

use super::handshake::{Handshake, Step};

/// Runs a handshake in which the client sends these `pieces`. Returns `true` if it is accepted, `false` if
/// it is refused, `None` if it is incomplete.
pub(crate) fn converse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<bool> {
    let mut handshake = Handshake::default();
    for piece in pieces {
        handshake.handle_input(piece);
        loop {
            match handshake.step() {
                Step::Read => break,
                Step::Write(answer) => assert!(!answer.is_empty()),
                Step::Connect(_) => return Some(true),
                Step::Refuse(_) => return Some(false),
            }
        }
    }
    None
}
