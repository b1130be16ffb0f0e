//! Fuzz target for both directions of a stream.

use super::{ContextSlots, Decoder, DecoderPool, Encoder, MalformedStream};

/// A direction of a compressed stream. The first two bytes select the sizes of the pieces in which it
/// arrives and is read. The same bytes as plain data must come out of a decoder as they went into an
/// encoder.
///
/// # Panics
/// On a bug in this crate.
pub fn compressed(bytes: &[u8]) {
    let Some(([arriving, reading], data)) = bytes.split_first_chunk() else { return };
    let (arriving, reading) = (usize::from(*arriving) + 1, 16 * usize::from(*reading) + 1);
    let whole = decompress(data, data.len().max(1), 1 << 16);
    assert_eq!(whole, decompress(data, arriving, reading), "pieces make no difference");
    let encoder = Encoder::new(ContextSlots::new(1));
    let mut encoder = encoder.with_dictionary(arriving.is_multiple_of(2));
    let mut segments = Vec::new();
    for piece in data.chunks(reading) {
        assert_eq!(encoder.encode(piece, &mut segments), piece.len());
    }
    encoder.finish(&mut segments);
    assert_eq!(decompress(&segments, arriving, reading).as_deref(), Ok(data));
}

/// The first 4 MB of decoded data, with pieces of these sizes.
fn decompress(
    mut bytes: &[u8],
    arriving: usize,
    reading: usize,
) -> Result<Vec<u8>, MalformedStream> {
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
