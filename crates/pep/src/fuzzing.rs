//! Entry points for fuzzing: every parser of untrusted bytes in this crate.

use crate::dlep;
use crate::names;
use crate::proxy::fuzzing::converse;
use crate::traffic::{Packet, Syn};

/// An IP packet from a client, as delivered by the kernel.
///
/// # Panics
/// On a bug in this crate.
pub fn intercepted(bytes: &[u8]) {
    let packet = Packet::parse(bytes);
    let Some(syn) = Syn::parse(bytes) else { return };
    assert!(packet.is_some_and(|packet| packet.source == syn.open().source.ip()));
    assert_eq!(Syn::parse(syn.packet()).as_ref(), Some(&syn), "whole once, whole for ever");
    assert!(Syn::parse(&syn.refusal()).is_none(), "a RST is no SYN");
    for prohibited in [false, true] {
        assert!(syn.unreachable(prohibited).len() > 8);
    }
}

/// A request to the proxy; the first byte selects how it is cut into pieces.
///
/// # Panics
/// On a bug in this crate.
pub fn proxy(bytes: &[u8]) {
    let Some((first, said)) = bytes.split_first() else { return };
    let whole = converse([said].into_iter());
    let in_pieces = converse(said.chunks(usize::from(*first % 32) + 1));
    assert_eq!(whole.is_some(), in_pieces.is_some(), "pieces make no difference");
}

/// A DLEP modem: an offer, and then the bytes on the connection. The first byte is the length of
/// the offer, the second selects how the rest is cut into pieces.
///
/// # Panics
/// On a bug in this crate.
pub fn dlep(bytes: &[u8]) {
    let Some(([offer, pieces], said)) = bytes.split_first_chunk() else { return };
    let (offer, said) = said.split_at(said.len().min(usize::from(*offer)));
    let whole = dlep::fuzzing::converse(offer, said, said.len().max(1));
    let in_pieces = dlep::fuzzing::converse(offer, said, usize::from(*pieces) + 1);
    assert_eq!(whole, in_pieces, "pieces make no difference");
    let whole = dlep::fuzzing::serve(offer, said, said.len().max(1));
    let in_pieces = dlep::fuzzing::serve(offer, said, usize::from(*pieces) + 1);
    assert_eq!(whole, in_pieces, "pieces make no difference");
}

/// A DNS question, and the reply to it. The first byte is the length of the question; the lowest bit of
/// the second puts the question before the reply.
///
/// # Panics
/// On a bug in this crate.
pub fn names(bytes: &[u8]) {
    let Some(([length, behind], said)) = bytes.split_first_chunk() else { return };
    let (message, reply) = said.split_at(said.len().min(usize::from(*length)));
    let behind = behind & 1 != 0;
    names::fuzzing::resolve(message, reply, behind);
    names::fuzzing::look_up(message, reply, behind);
}
