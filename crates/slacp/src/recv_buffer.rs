//! The receiving half of a stream: bytes that came and are not read yet.

use std::collections::VecDeque;

use thiserror::Error;
use units::RangeSet;

use crate::send_buffer::KEEP_CAPACITY;

/// Puts bytes back in order.
#[derive(Debug, Default)]
pub(crate) struct RecvBuffer {
    /// The offset of `data[0]`: everything before has been read.
    read: u64,
    /// What came, with holes where it has not.
    data: VecDeque<u8>,
    have: RangeSet,
    /// The end of the stream, once known.
    end: Option<u64>,
    /// What the peer may send; an offset at or beyond it breaks the protocol.
    limit: u64,
}

/// The peer broke a rule of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Violation {
    #[error("bytes up to {end} exceed the credit of {limit}")]
    Credit { end: u64, limit: u64 },
    #[error("the end of the stream moved from {was} to {is}")]
    End { was: u64, is: u64 },
}

impl RecvBuffer {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// As if so many bytes had come and been read.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        assert!(self.data.is_empty());
        self.read += bytes;
        self.limit += bytes;
    }

    /// One more than the highest offset received.
    pub(crate) fn highest(&self) -> u64 {
        self.read + self.data.len() as u64
    }

    pub(crate) fn read_offset(&self) -> u64 {
        self.read
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// The end of the stream, once known.
    pub(crate) fn end(&self) -> Option<u64> {
        self.end
    }

    /// Whether the end has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.end == Some(self.read)
    }

    /// Whether there are bytes, or the end, to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.ready() > 0 || self.is_done()
    }

    fn ready(&self) -> usize {
        match self.have.first() {
            Some(first) if first.start <= self.read => (first.end - self.read) as usize,
            _ => 0,
        }
    }

    /// Enters bytes; overlaps are harmless. Returns by how much the highest
    /// offset grew.
    ///
    /// # Errors
    /// When the peer exceeds its credit or contradicts itself about the end;
    /// nothing is changed then.
    pub(crate) fn insert(
        &mut self,
        offset: u64,
        bytes: &[u8],
        fin: bool,
    ) -> Result<u64, Violation> {
        let end = offset + bytes.len() as u64;
        let before = self.highest();
        if end > self.limit {
            return Err(Violation::Credit { end, limit: self.limit });
        }
        match self.end {
            Some(was) if end > was || (fin && end != was) => {
                return Err(Violation::End { was, is: end });
            }
            None if fin && end < before => return Err(Violation::End { was: before, is: end }),
            _ => {}
        }
        if fin {
            self.end = Some(end);
        }
        if end > self.read {
            let skip = self.read.saturating_sub(offset) as usize;
            self.place(offset.max(self.read), &bytes[skip..]);
        }
        Ok(self.highest() - before)
    }

    fn place(&mut self, offset: u64, bytes: &[u8]) {
        let start = (offset - self.read) as usize;
        let end = start + bytes.len();
        if start == self.data.len() {
            self.data.extend(bytes);
        } else {
            if end > self.data.len() {
                self.data.resize(end, 0);
            }
            let (front, back) = self.data.as_mut_slices();
            let split = front.len().clamp(start, end) - start;
            if split > 0 {
                front[start..start + split].copy_from_slice(&bytes[..split]);
            }
            if split < bytes.len() {
                let at = start + split - front.len();
                back[at..at + bytes.len() - split].copy_from_slice(&bytes[split..]);
            }
        }
        self.have.insert(offset..offset + bytes.len() as u64);
    }

    /// Forgets what came behind a hole; how many bytes are left to read.
    pub(crate) fn cut(&mut self) -> usize {
        let ready = self.ready();
        self.data.truncate(ready);
        ready
    }

    /// Takes the next bytes in order into `out`; how many.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.ready().min(out.len());
        let (front, back) = self.data.as_slices();
        let first = count.min(front.len());
        out[..first].copy_from_slice(&front[..first]);
        out[first..count].copy_from_slice(&back[..count - first]);
        self.data.drain(..count);
        self.read += count as u64;
        self.have.remove(0..self.read);
        if self.data.is_empty() && self.data.capacity() > KEEP_CAPACITY {
            self.data = VecDeque::new();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_order_and_overlap_gives_the_bytes_back(
            pieces in prop::collection::vec((0usize..200, 1usize..60, 0usize..40), 1..60)
        ) {
            let original: Vec<u8> = (0..260).map(|i| (i * 7 % 251) as u8).collect();
            let mut buffer = RecvBuffer::new(260);
            let mut read = Vec::new();
            let mut grown = 0;
            for (start, len, take) in pieces {
                grown += buffer.insert(start as u64, &original[start..start + len], false).unwrap();
                let mut out = vec![0; take];
                let count = buffer.read(&mut out);
                read.extend_from_slice(&out[..count]);
            }
            prop_assert_eq!(grown, buffer.highest());
            grown += buffer.insert(0, &original, true).unwrap();
            prop_assert_eq!(grown, 260);
            let mut out = vec![0; 300];
            let count = buffer.read(&mut out);
            read.extend_from_slice(&out[..count]);
            prop_assert_eq!(read, original);
            prop_assert!(buffer.is_done());
        }
    }

    #[test]
    fn credit_and_end_are_enforced() {
        let mut buffer = RecvBuffer::new(10);
        assert_eq!(buffer.insert(8, b"abc", false), Err(Violation::Credit { end: 11, limit: 10 }));
        assert_eq!(buffer.insert(4, b"ab", true), Ok(6));
        assert_eq!(buffer.insert(5, b"ab", false), Err(Violation::End { was: 6, is: 7 }));
        assert_eq!(buffer.insert(0, b"a", true), Err(Violation::End { was: 6, is: 1 }));
        assert!(!buffer.is_readable());
    }

    #[test]
    fn an_empty_stream_ends_at_once() {
        let mut buffer = RecvBuffer::new(0);
        buffer.insert(0, b"", true).unwrap();
        assert!(buffer.is_readable() && buffer.is_done());
    }
}
