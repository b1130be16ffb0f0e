//! Reads the fields of a segment in place.

use super::{ACK, CWR, ECE, FIN, PSH, RST, SLOW_START, SYN, WireError};
use crate::SeqNr;
use crate::segment::{HEADER_LEN, HeaderFlags};

/// The bytes of a segment whose header is known to be complete.
#[derive(Debug, Clone, Copy)]
pub struct SegmentView<'a> {
    fixed: &'a [u8; HEADER_LEN],
    bytes: &'a [u8],
}

impl<'a> SegmentView<'a> {
    /// Wraps `bytes`, which must be exactly one segment. The checksum is not verified.
    ///
    /// # Errors
    /// If the header is incomplete.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let len = bytes.len();
        let fixed = bytes.first_chunk().ok_or(WireError::Short { len })?;
        let view = Self { fixed, bytes };
        let offset = view.header_len();
        // The data offset is the peer's word.
        if offset < HEADER_LEN || offset > len {
            return Err(WireError::Offset { offset, len });
        }
        Ok(view)
    }

    fn two(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.fixed[at], self.fixed[at + 1]])
    }

    fn four(&self, at: usize) -> u32 {
        u32::from(self.two(at)) << 16 | u32::from(self.two(at + 2))
    }

    /// Returns the source port.
    pub fn source_port(&self) -> u16 {
        self.two(0)
    }

    /// Returns the destination port.
    pub fn destination_port(&self) -> u16 {
        self.two(2)
    }

    /// Returns the number of the first byte, or of the SYN.
    pub fn seq(&self) -> SeqNr {
        SeqNr::new(self.four(4))
    }

    /// The acknowledgement number, if the ACK flag is set.
    pub fn ack(&self) -> Option<SeqNr> {
        self.has(ACK).then(|| SeqNr::new(self.four(8)))
    }

    /// Size of the header with its options, in bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.fixed[12] >> 4) * 4
    }

    fn has(&self, bit: u8) -> bool {
        self.fixed[13] & bit != 0
    }

    /// Returns the flags other than ACK.
    pub fn flags(&self) -> HeaderFlags {
        HeaderFlags {
            syn: self.has(SYN),
            fin: self.has(FIN),
            rst: self.has(RST),
            psh: self.has(PSH),
            ece: self.has(ECE),
            cwr: self.has(CWR),
            slow_start: self.fixed[12] & SLOW_START != 0,
        }
    }

    /// Returns the window field as sent, not scaled.
    pub fn window(&self) -> u16 {
        self.two(14)
    }

    /// Returns the bytes of the options, which may be malformed.
    pub fn options(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.header_len()]
    }

    /// Returns the data after the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_len()..]
    }
}
