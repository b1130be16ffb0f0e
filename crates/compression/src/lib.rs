//! Compression of streams (`docs/slacp.md`, Compressed streams).
//!
//! Each direction of a stream is a sequence of segments, written by an [`Encoder`] and read by a
//! [`Decoder`]. A first look at the data decides whether it is compressed: never what is encrypted,
//! or as dense as that. Everything written is flushed, so that nothing waits for more. A direction
//! has a context of its own, which nothing else is compressed with: the length of one client's data
//! says nothing of another's. What is written in small pieces begins with a dictionary that every
//! gateway has, which holds no data of anybody.
//!
//! [`Coded`] joins both for one stream whose reads and writes may be short.

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

pub use coded::{Coded, Got, Volume};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use malformed::Malformed;
pub use pool::DecoderPool;
pub use slots::{Slot, Slots};

/// Logarithm of the window of a compressed segment, in bytes: 32 kB. Larger ones make logs and JSON no
/// shorter, and take two to three times the memory on both sides.
pub const WINDOW: u32 = 15;

/// Memory of an encoder or a decoder while it compresses or decompresses, at most, in bytes: the
/// window, blocks, and tables.
pub const MEMORY: u64 = 320 << 10;

/// How many compressed streams a side with so much memory for a session agrees to decompress at a
/// time: all of them, and as many that wait for slow readers, take at most a quarter of it.
pub fn decompressors(memory: ByteCount) -> u16 {
    const MOST: u64 = 32;
    (memory.get() / 8 / MEMORY).min(MOST) as u16
}

/// First byte of a segment: the rest of the direction, as it is.
const REST: u8 = 0;
/// A frame of zstd (RFC 8878).
const FRAME: u8 = 1;
/// As many bytes as the next three bytes say, as they are.
const RUN: u8 = 2;
/// A frame of zstd that refers to the [dictionary].
const SMALL_FRAME: u8 = 3;

/// Longest run, and the most that is encoded at once, in bytes.
const CHUNK: usize = 64 << 10;
