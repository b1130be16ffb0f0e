//! Compression of streams (`docs/slacp.md`, Compressed streams).
//!
//! Each direction of a stream is a sequence of segments, written by an [`Encoder`] and read by a
//! [`Decoder`]. A sample of the data decides whether it is compressed; encrypted data never is. All data is
//! flushed as it is written, so nothing waits for more. Each direction has a context of its own: the length
//! of one client's data says nothing about another's. Data written in small pieces starts with a dictionary
//! that every gateway has, which contains no data of users.
//!
//! [`CodedStream`] combines both for one stream whose reads and writes may be partial.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

use units::ByteCount;

mod coded;
mod decoder;
mod dictionary;
mod encoder;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod look;
mod malformed;
mod pool;
mod slots;
#[cfg(test)]
mod tests;

pub use coded::{CodedStream, StreamRead, StreamVolume};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use malformed::MalformedStream;
pub use pool::DecoderPool;
pub use slots::{ContextSlot, ContextSlots};

/// Logarithm of the window in bytes: 32 kB. Larger windows do not make logs and JSON any shorter, and take
/// two to three times the memory on both sides.
pub const WINDOW: u32 = 15;

/// Memory limit of an encoder or a decoder with an open frame, in bytes: window, blocks and tables.
pub const MEMORY: u64 = 320 << 10;

/// Number of compressed streams that a side with this much memory per session agrees to decompress at a
/// time. These, and as many that wait for slow readers, take at most a quarter of it.
pub fn decompressors(memory: ByteCount) -> u16 {
    const MOST: u64 = 32;
    (memory.get() / 8 / MEMORY).min(MOST) as u16
}

/// Segment type: the rest of the direction, uncompressed.
const REST: u8 = 0;
/// Segment type: a frame of zstd (RFC 8878).
const FRAME: u8 = 1;
/// Segment type: uncompressed bytes, whose number is in the next three bytes.
const RUN: u8 = 2;
/// Segment type: a frame of zstd that uses the [dictionary].
const SMALL_FRAME: u8 = 3;

/// Longest run, and most bytes encoded at once.
const CHUNK: usize = 64 << 10;
