//! Entry points for fuzzing: every parser of untrusted bytes in this crate.

use crate::bundles;
use crate::bundles::tcpcl::Role;
use crate::compression::{Decoder, DecoderPool, Encoder, Malformed, Slots};
use crate::cost;
use crate::dlep;
use crate::http;
use crate::names;
use crate::proxy::fuzzing::converse;
use crate::traffic::{Packet, Syn, clamped};

/// Does `work` on an input, and fails if that costs more than `per_byte` for each of its bytes, and `once`.
///
/// # Panics
/// If it costs more, or `work` does.
pub fn bounded(input: &[u8], (once, per_byte): (u64, u64), work: impl FnOnce()) {
    let ((), cost) = cost::of(work);
    let most = once + per_byte * input.len() as u64;
    assert!(cost <= most, "{} bytes cost {cost}, more than {most}", input.len());
}

/// An IP packet from a client, as delivered by the kernel.
///
/// # Panics
/// On a bug in this crate.
pub fn intercepted(bytes: &[u8]) {
    let packet = Packet::parse(bytes);
    if let Some(small) = clamped(bytes, || Some(1_280)) {
        assert!(clamped(&small, || Some(1_280)).is_none(), "once is enough");
    }
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
    bounded(said, (0, 8), || {
        let whole = converse([said].into_iter());
        let in_pieces = converse(said.chunks(usize::from(*first % 32) + 1));
        assert_eq!(whole.is_some(), in_pieces.is_some(), "pieces make no difference");
    });
}

/// A DLEP modem: an offer, and then the bytes on the connection. The first byte is the length of
/// the offer, the second selects how the rest is cut into pieces.
///
/// # Panics
/// On a bug in this crate.
pub fn dlep(bytes: &[u8]) {
    let Some(([offer, pieces], said)) = bytes.split_first_chunk() else { return };
    let (offer, said) = said.split_at(said.len().min(usize::from(*offer)));
    // The valid messages before these take their part.
    bounded(said, (2000, 12), || {
        let whole = dlep::fuzzing::converse(offer, said, said.len().max(1));
        let in_pieces = dlep::fuzzing::converse(offer, said, usize::from(*pieces) + 1);
        assert_eq!(whole, in_pieces, "pieces make no difference");
        let whole = dlep::fuzzing::serve(offer, said, said.len().max(1));
        let in_pieces = dlep::fuzzing::serve(offer, said, usize::from(*pieces) + 1);
        assert_eq!(whole, in_pieces, "pieces make no difference");
    });
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
    // Each is asked three times and more, and its reply has the question before it.
    bounded(said, (10_000, 100), || {
        names::fuzzing::resolve(message, reply, behind);
        names::fuzzing::look_up(message, reply, behind);
    });
}

/// A client's request, and what its server says. The first two bytes are the length of the request, the
/// third selects how the rest is cut into pieces. The same bytes are a file of the cache.
///
/// # Panics
/// On a bug in this crate.
pub fn http(bytes: &[u8]) {
    http::fuzzing::record(bytes);
    let Some(([high, low, piece], said)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let (asked, said) = said.split_at(said.len().min(length));
    let piece = usize::from(*piece) + 1;
    bounded(asked, (256 << 10, 16), || http::fuzzing::arrive(asked, piece));
    bounded(bytes, (100_000, 64), || http::fuzzing::converse(asked, said, piece));
}

/// Two clients that ask for the same at the same time, and what the server says to the first. The first
/// four bytes are the lengths of their requests, the fifth when its answer comes, in seconds.
///
/// # Panics
/// On a bug in this crate.
pub fn flights(bytes: &[u8]) {
    let Some(([one, two, three, four, later], said)) = bytes.split_first_chunk() else { return };
    let length = |high: u8, low: u8| usize::from(u16::from_be_bytes([high, low]));
    let (first, said) = said.split_at(said.len().min(length(*one, *two)));
    let (second, said) = said.split_at(said.len().min(length(*three, *four)));
    http::fuzzing::merge(first, second, said, (*later).into());
}

/// A request of DNS over HTTPS (method, target and media type, a line each), then what is answered.
///
/// # Panics
/// On a bug in this crate.
pub fn doh(bytes: &[u8]) {
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    let [method, target, kind, answer] = [(); 4].map(|()| lines.next().unwrap_or_default());
    let [method, target] = [method, target].map(String::from_utf8_lossy);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*target, None),
    };
    match names::doh::question(&method, path, query, Some(kind)) {
        Ok(names::doh::Place::Target(message)) => {
            assert!(message.len() <= names::doh::LONGEST_QUESTION + 3);
        }
        Ok(names::doh::Place::Body) => assert_eq!(method, "POST"),
        Err(why) => assert!((400..500).contains(&why.status())),
    }
    // RFC 8767 §4: no record is kept for longer than a week.
    assert!(names::doh::freshness(answer) <= 7 * 86_400);
}

/// What other nodes for bundles say. The first byte says where: a bundle, a stream of the hop, or a TCP
/// connection that the node has opened or accepted; the second selects how the rest is cut into pieces.
///
/// # Panics
/// On a bug in this crate.
pub fn bundles(bytes: &[u8]) {
    let Some(([place, pieces], said)) = bytes.split_first_chunk() else { return };
    let (whole, piece) = (said.len().max(1), usize::from(*pieces) + 1);
    let role = match place % 4 {
        0 => return bundles::fuzzing::parse(said),
        1 => {
            let once = bundles::fuzzing::transfer(said, whole);
            let in_pieces = bundles::fuzzing::transfer(said, piece);
            assert!(once.starts_with(&in_pieces) || in_pieces.starts_with(&once));
            return;
        }
        2 => Role::Active,
        _ => Role::Passive,
    };
    bounded(said, (0, 12), || {
        bundles::fuzzing::converse(said, piece, role, true);
        let once = bundles::fuzzing::converse(said, whole, role, false);
        let in_pieces = bundles::fuzzing::converse(said, piece, role, false);
        assert_eq!(once, in_pieces, "pieces make no difference");
    });
}

/// A direction of a compressed stream. The first two bytes select how it arrives and is read in
/// pieces. The same bytes as plain data must come out of a decoder as they went into an encoder.
///
/// # Panics
/// On a bug in this crate.
pub fn compressed(bytes: &[u8]) {
    let Some(([arriving, reading], data)) = bytes.split_first_chunk() else { return };
    let (arriving, reading) = (usize::from(*arriving) + 1, 16 * usize::from(*reading) + 1);
    let whole = decompress(data, data.len().max(1), 1 << 16);
    assert_eq!(whole, decompress(data, arriving, reading), "pieces make no difference");
    let encoder = Encoder::new(Slots::new(1));
    let mut encoder = encoder.with_dictionary(arriving.is_multiple_of(2));
    let mut segments = Vec::new();
    for piece in data.chunks(reading) {
        assert_eq!(encoder.encode(piece, &mut segments), piece.len());
    }
    encoder.finish(&mut segments);
    assert_eq!(decompress(&segments, arriving, reading).as_deref(), Ok(data));
}

/// The first 4 MB of what segments hold, which arrive and are read in pieces of these sizes.
fn decompress(mut bytes: &[u8], arriving: usize, reading: usize) -> Result<Vec<u8>, Malformed> {
    const MOST: usize = 4 << 20;
    let mut decoder = Decoder::new(DecoderPool::new(1));
    let (mut out, mut buffer) = (Vec::new(), vec![0; reading]);
    while !bytes.is_empty() {
        let mut piece = &bytes[..arriving.min(bytes.len())];
        bytes = &bytes[piece.len()..];
        loop {
            let before = decoder.work();
            let most = 300_000 + 16 * piece.len() as u64 + buffer.len() as u64;
            let count = decoder.decode(&mut piece, &mut buffer)?;
            assert!(decoder.work() - before <= most, "too much work in a call");
            out.extend_from_slice(&buffer[..count]);
            if out.len() >= MOST {
                out.truncate(MOST);
                return Ok(out);
            }
            if count == 0 && piece.is_empty() {
                break;
            }
        }
    }
    decoder.end()?;
    Ok(out)
}
