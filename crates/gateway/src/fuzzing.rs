//! Entry points for fuzzing: everything of strangers that is parsed here.

use crate::dlep;
use crate::packet::Packet;
use crate::proxy::fuzzing::converse;
use crate::syn::Syn;

/// An IP packet of a client, as the kernel shows it.
///
/// # Panics
/// When something is wrong with this crate.
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

/// What a client of the proxy says; the first byte tells in which pieces.
///
/// # Panics
/// When something is wrong with this crate.
pub fn proxy(bytes: &[u8]) {
    let Some((first, said)) = bytes.split_first() else { return };
    let whole = converse([said].into_iter());
    let in_pieces = converse(said.chunks(usize::from(*first % 32) + 1));
    assert_eq!(whole.is_some(), in_pieces.is_some(), "pieces make no difference");
}

/// What a modem says by DLEP: an offer, and then what comes on the connection. The first
/// byte tells how long the offer is, the second in which pieces the rest comes.
///
/// # Panics
/// When something is wrong with this crate.
pub fn dlep(bytes: &[u8]) {
    let Some(([offer, pieces], said)) = bytes.split_first_chunk() else { return };
    let (offer, said) = said.split_at(said.len().min(usize::from(*offer)));
    let whole = dlep::fuzzing::converse(offer, said, said.len().max(1));
    let in_pieces = dlep::fuzzing::converse(offer, said, usize::from(*pieces) + 1);
    assert_eq!(whole, in_pieces, "pieces make no difference");
}
