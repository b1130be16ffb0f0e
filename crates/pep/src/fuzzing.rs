//! Fuzz targets for every parser of untrusted bytes in this crate.

use crate::dlep;
use crate::proxy::fuzzing::converse;
use crate::traffic::{Packet, Refusal, Syn, clamped};
use crate::work::cost;

/// Runs `work` on an input, and fails if its counted cost exceeds `once` plus `per_byte` for each byte.
///
/// # Panics
/// If the cost exceeds the bound, or `work` panics.
pub fn bounded(input: &[u8], (once, per_byte): (u64, u64), work: impl FnOnce()) {
    let ((), cost) = cost::of(work);
    let most = once + per_byte * input.len() as u64;
    assert!(cost <= most, "{} bytes cost {cost}, more than {most}", input.len());
}

/// An IP packet from a client as the kernel delivers it.
///
/// # Panics
/// On a bug in this crate.
pub fn intercepted(bytes: &[u8]) {
    let packet = Packet::parse(bytes);
    if let Some(small) = clamped(bytes, || Some(1_280)) {
        assert!(clamped(&small, || Some(1_280)).is_none(), "once is enough");
    }
    if let Some(refusal) = Refusal::of(bytes) {
        let answer = Packet::parse(&refusal.packet).expect("an IP packet");
        let ends = packet.map(|packet| [packet.destination, packet.source]);
        assert_eq!(ends, Some([answer.source, refusal.client]), "in the destination's name");
        assert!(Refusal::of(&refusal.packet).is_none(), "an answer is not answered");
    }
    let Some(syn) = Syn::parse(bytes) else { return };
    assert!(packet.is_some_and(|packet| packet.source == syn.open().source.ip()));
    assert_eq!(Syn::parse(syn.packet()).as_ref(), Some(&syn), "whole once, whole for ever");
    assert!(Syn::parse(&syn.refusal()).is_none(), "a RST is no SYN");
    for prohibited in [false, true] {
        assert!(syn.unreachable(prohibited).len() > 8);
    }
}

/// A request to the proxy; the first byte selects the size of the pieces.
///
/// # Panics
/// On a bug in this crate.
pub fn proxy(bytes: &[u8]) {
    let Some((first, said)) = bytes.split_first() else { return };
    bounded(said, (0, 8), || {
        let whole = converse([said].into_iter());
        let in_pieces = converse(said.chunks(usize::from(*first % 32) + 1));
        assert_eq!(whole.is_some(), in_pieces.is_some(), "pieces make no difference");
    });
}

/// A DLEP modem: an offer, then the bytes on its connection. The first byte is the length of the offer, the
/// second selects the size of the pieces.
///
/// # Panics
/// On a bug in this crate.
pub fn dlep(bytes: &[u8]) {
    let Some(([offer, pieces], said)) = bytes.split_first_chunk() else { return };
    let (offer, said) = said.split_at(said.len().min(usize::from(*offer)));
    // The valid messages before these cost something, too.
    bounded(said, (2000, 12), || {
        let whole = dlep::fuzzing::converse(offer, said, said.len().max(1));
        let in_pieces = dlep::fuzzing::converse(offer, said, usize::from(*pieces) + 1);
        assert_eq!(whole, in_pieces, "pieces make no difference");
        let whole = dlep::fuzzing::serve(offer, said, said.len().max(1));
        let in_pieces = dlep::fuzzing::serve(offer, said, usize::from(*pieces) + 1);
        assert_eq!(whole, in_pieces, "pieces make no difference");
    });
}
