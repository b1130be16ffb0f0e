//! The wire format: RFC 9293 §3.1 with the options of RFC 2018, 7323, 7413 and SCPS-TP, and
//! checksums over the pseudo headers of IPv4 and IPv6.
//!
//! [`SegmentView`] reads the fields of a segment in place; [`decode`] and [`encode`] convert between bytes
//! and [`Segment`]. The contents of the IP header (addresses, the ECN codepoint) are part
//! of [`packet`].

mod checksum;
mod options;
pub mod packet;
#[cfg(test)]
mod tests;
mod view;

use std::net::IpAddr;

use bytes::Bytes;
use thiserror::Error;

pub use checksum::{checksum, pseudo_header_sum};
pub use view::SegmentView;

use crate::segment::{Ecn, HEADER_LEN, HeaderFlags, Segment};

/// The source and destination of a segment: addresses of the same family, and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentPath {
    /// IP address of the sender.
    pub from: IpAddr,
    /// TCP port at the sender.
    pub from_port: u16,
    /// IP address of the receiver.
    pub to: IpAddr,
    /// TCP port at the receiver.
    pub to_port: u16,
}

impl SegmentPath {
    /// Returns the path in the opposite direction.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { from: self.to, from_port: self.to_port, to: self.from, to_port: self.from_port }
    }
}

/// The reason why bytes are not a valid segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The segment is shorter than a header.
    #[error("a TCP header has at least 20 bytes, this one has {len}")]
    Short {
        /// Number of bytes that there are.
        len: usize,
    },
    /// The data offset points into the fixed header or beyond the end.
    #[error("the data offset is {offset} bytes: expected 20 to {len}")]
    Offset {
        /// The data offset in bytes.
        offset: usize,
        /// Size of the whole segment in bytes.
        len: usize,
    },
    /// The checksum does not match.
    #[error("the checksum is wrong")]
    Checksum,
    /// An option has an invalid length (RFC 9293 §3.1, MUST-7).
    #[error("option {kind} at byte {at} has the invalid length {len}")]
    OptionLength {
        /// The kind of the option.
        kind: u8,
        /// Position of the option in bytes, counted from the first option.
        at: usize,
        /// Its length field; 0 if that is missing.
        len: u8,
    },
}

/// Decodes a segment sent from `from` to `to`. Unknown options, and those with the wrong length,
/// are skipped. Returns the source port, the destination port and the segment. Its payload shares
/// `bytes`, and its ECN codepoint is `ecn`.
///
/// # Errors
/// If the bytes are not a valid segment, or its checksum is wrong.
pub fn decode(
    from: IpAddr,
    to: IpAddr,
    ecn: Ecn,
    bytes: &Bytes,
) -> Result<(SegmentPath, Segment<Bytes>), WireError> {
    let view = SegmentView::new(bytes)?;
    if checksum(pseudo_header_sum(from, to, bytes.len()), bytes) != 0 {
        return Err(WireError::Checksum);
    }
    let segment = Segment {
        seq: view.seq(),
        ack: view.ack(),
        flags: view.flags(),
        window: view.window(),
        options: options::read(view.options())?,
        ecn,
        payload: bytes.slice(view.header_len()..),
    };
    Ok((
        SegmentPath { from, from_port: view.source_port(), to, to_port: view.destination_port() },
        segment,
    ))
}

/// Appends the encoded segment to `out`, with its checksum. Options that do not fit (SACK blocks,
/// those of SCPS-TP) are left out.
pub fn encode<P: AsRef<[u8]>>(path: &SegmentPath, segment: &Segment<P>, out: &mut Vec<u8>) {
    let start = out.len();
    let options = segment.options.wire_len();
    out.extend_from_slice(&path.from_port.to_be_bytes());
    out.extend_from_slice(&path.to_port.to_be_bytes());
    out.extend_from_slice(&segment.seq.get().to_be_bytes());
    out.extend_from_slice(&segment.ack.unwrap_or_default().get().to_be_bytes());
    let reserved = if segment.flags.slow_start { SLOW_START } else { 0 };
    out.push((((HEADER_LEN + options) / 4) as u8) << 4 | reserved);
    out.push(flag_bits(segment.flags, segment.ack.is_some()));
    out.extend_from_slice(&segment.window.to_be_bytes());
    out.extend_from_slice(&[0; 4]); // checksum, urgent pointer
    options::write(&segment.options, out);
    debug_assert_eq!(out.len() - start, HEADER_LEN + options);
    out.extend_from_slice(segment.payload.as_ref());
    let sum = pseudo_header_sum(path.from, path.to, out.len() - start);
    let sum = checksum(sum, &out[start..]);
    out[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
}

/// The last reserved bit, beside the data offset: the sender is in slow start.
const SLOW_START: u8 = 0x08;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

fn flag_bits(flags: HeaderFlags, ack: bool) -> u8 {
    let all = [
        (flags.fin, FIN),
        (flags.syn, SYN),
        (flags.rst, RST),
        (flags.psh, PSH),
        (ack, ACK),
        (flags.ece, ECE),
        (flags.cwr, CWR),
    ];
    all.into_iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit)
}
