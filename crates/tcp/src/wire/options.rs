//! Encoding of a segment's options.

use super::WireError;
use crate::SeqNr;
use crate::segment::{HeaderOptions, SackBlock, Snack, Timestamps};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const CC: u8 = 11;
const CC_NEW: u8 = 12;
const CC_ECHO: u8 = 13;
const SCPS: u8 = 20;
const SNACK: u8 = 21;
const FAST_OPEN: u8 = 34;

/// Parses all options. If a kind appears more than once, the first one counts.
pub(super) fn read(bytes: &[u8]) -> Result<HeaderOptions, WireError> {
    let mut options = HeaderOptions::default();
    let mut at = 0;
    while let Some(&kind) = bytes.get(at) {
        match kind {
            END => break,
            NOP => at += 1,
            _ => {
                let len = bytes.get(at + 1).copied().unwrap_or(0);
                let body = (at + 2)..(at + usize::from(len));
                let error = WireError::OptionLength { kind, at, len };
                // A length below 2 makes the range invalid, so it is refused, too.
                let body = bytes.get(body).ok_or(error)?;
                read_one(kind, body, &mut options);
                at += usize::from(len);
            }
        }
    }
    Ok(options)
}

fn read_one(kind: u8, body: &[u8], options: &mut HeaderOptions) {
    match (kind, body) {
        (MSS, &[a, b]) => {
            options.mss.get_or_insert_with(|| u16::from_be_bytes([a, b]));
        }
        (WINDOW_SCALE, &[shift]) => {
            options.window_scale.get_or_insert(shift);
        }
        (SACK_PERMITTED, []) => options.sack_permitted = true,
        (SACK, blocks) if options.sack.is_empty() && blocks.len() % 8 == 0 => {
            options.sack.extend(blocks.chunks_exact(8).map(block));
        }
        (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
            let value = u32::from_be_bytes([a, b, c, d]);
            let echo = u32::from_be_bytes([e, f, g, h]);
            options.timestamps.get_or_insert(Timestamps { value, echo });
        }
        (CC, bytes @ &[_, _, _, _]) => keep_count(&mut options.counts.cc, bytes),
        (CC_NEW, bytes @ &[_, _, _, _]) => keep_count(&mut options.counts.new, bytes),
        (CC_ECHO, bytes @ &[_, _, _, _]) => keep_count(&mut options.counts.echo, bytes),
        // The second byte is the connection's identifier, which is not used.
        (SCPS, &[capabilities, _]) => {
            options.scps.get_or_insert(capabilities);
        }
        // The long form continues with a bit vector.
        (SNACK, &[a, b, c, d, ..]) => {
            let offset = u16::from_be_bytes([a, b]);
            let size = u16::from_be_bytes([c, d]);
            options.snack.get_or_insert(Snack { offset, size });
        }
        // RFC 7413 §4.1.1: a cookie has 4 to 16 bytes, and an even number.
        (FAST_OPEN, cookie)
            if cookie.is_empty() || (4..=16).contains(&cookie.len()) && cookie.len() % 2 == 0 =>
        {
            options.fast_open.get_or_insert_with(|| cookie.iter().copied().collect());
        }
        _ => {}
    }
}

/// Keeps the first of several counts.
fn keep_count(count: &mut u32, bytes: &[u8]) {
    if *count == 0 {
        *count = number(bytes);
    }
}

fn block(bytes: &[u8]) -> SackBlock {
    SackBlock { start: SeqNr::new(number(bytes)), end: SeqNr::new(number(&bytes[4..])) }
}

/// The first four bytes.
fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Writes all options, aligned as RFC 7323 appendix A and RFC 2018 §3 advise.
pub(super) fn write(options: &HeaderOptions, out: &mut Vec<u8>) {
    if let Some(mss) = options.mss {
        out.extend_from_slice(&[MSS, 4]);
        out.extend_from_slice(&mss.to_be_bytes());
    }
    write_sack_permitted_and_timestamps(options, out);
    if let Some(shift) = options.window_scale {
        out.extend_from_slice(&[NOP, WINDOW_SCALE, 3, shift]);
    }
    if options.has_room_for_counts() {
        for (kind, count) in [CC, CC_NEW, CC_ECHO].into_iter().zip(options.counts.all()) {
            if count != 0 {
                out.extend_from_slice(&[NOP, NOP, kind, 6]);
                out.extend_from_slice(&count.to_be_bytes());
            }
        }
    }
    if let Some(capabilities) = options.scps.filter(|_| options.has_room_for_scps()) {
        out.extend_from_slice(&[SCPS, 4, capabilities, 0]);
    }
    if let Some(Snack { offset, size }) = options.snack.filter(|_| options.has_room_for_snack()) {
        out.extend_from_slice(&[NOP, NOP, SNACK, 6]);
        out.extend_from_slice(&offset.to_be_bytes());
        out.extend_from_slice(&size.to_be_bytes());
    }
    if let Some(cookie) = &options.fast_open {
        out.extend_from_slice(&[FAST_OPEN, 2 + cookie.len() as u8]);
        out.extend_from_slice(cookie);
        // The data offset counts units of four bytes.
        let padding = (2 + cookie.len()).next_multiple_of(4) - 2 - cookie.len();
        out.extend_from_slice(&[NOP; 3][..padding]);
    }
    write_sack_blocks(options, out);
}

fn write_sack_permitted_and_timestamps(options: &HeaderOptions, out: &mut Vec<u8>) {
    match (options.sack_permitted, options.timestamps.is_some()) {
        // SACK-permitted or two NOPs align the timestamps to four bytes.
        (true, _) => out.extend_from_slice(&[SACK_PERMITTED, 2]),
        (false, true) => out.extend_from_slice(&[NOP, NOP]),
        (false, false) => {}
    }
    match options.timestamps {
        Some(Timestamps { value, echo }) => {
            out.extend_from_slice(&[TIMESTAMPS, 10]);
            out.extend_from_slice(&value.to_be_bytes());
            out.extend_from_slice(&echo.to_be_bytes());
        }
        None if options.sack_permitted => out.extend_from_slice(&[NOP, NOP]),
        None => {}
    }
}

/// Writes as many SACK blocks as there is room for behind all other options.
fn write_sack_blocks(options: &HeaderOptions, out: &mut Vec<u8>) {
    let blocks = options.sack_room(options.len_without_sack());
    if blocks > 0 {
        out.extend_from_slice(&[NOP, NOP, SACK, 2 + 8 * blocks as u8]);
        for block in &options.sack[..blocks] {
            out.extend_from_slice(&block.start.get().to_be_bytes());
            out.extend_from_slice(&block.end.get().to_be_bytes());
        }
    }
}
