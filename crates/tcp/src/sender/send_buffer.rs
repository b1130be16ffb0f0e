//! Data written and not yet acknowledged.

use core::ops::Range;
use std::collections::VecDeque;

use crate::SegmentPayload;

/// Bytes at consecutive positions. Finding a position costs O(log n) in the number of chunks. There
/// is only one chunk as long as written data can be joined without copying.
#[derive(Debug, Clone)]
pub(crate) struct SendBuffer<P> {
    /// Position and chunk; none is empty.
    chunks: VecDeque<(u64, P)>,
    start: u64,
    end: u64,
}

impl<P: SegmentPayload> SendBuffer<P> {
    /// An empty buffer; the first byte written gets the position `start`.
    pub(crate) fn new(start: u64) -> Self {
        Self { chunks: VecDeque::new(), start, end: start }
    }

    /// Returns the position after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes held.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn push(&mut self, data: P) {
        let len = data.len() as u64;
        if len == 0 {
            return;
        }
        let joined = self.chunks.back_mut().is_some_and(|(_, last)| last.try_join(&data));
        if !joined {
            self.chunks.push_back((self.end, data));
        }
        self.end += len;
    }

    /// Returns the bytes at `range`, which must be within.
    pub(crate) fn get(&self, range: Range<u64>) -> P {
        debug_assert!(self.start <= range.start && range.end <= self.end);
        // The usual case needs no search.
        if let (Some((at, chunk)), 1) = (self.chunks.front(), self.chunks.len()) {
            return chunk.slice((range.start - at) as usize..(range.end - at) as usize);
        }
        let mut out = P::default();
        let first =
            self.chunks.partition_point(|(at, chunk)| at + chunk.len() as u64 <= range.start);
        for (at, chunk) in self.chunks.range(first..) {
            if *at >= range.end {
                break;
            }
            let from = range.start.saturating_sub(*at) as usize;
            let to = ((range.end - at) as usize).min(chunk.len());
            out.append(&chunk.slice(from..to));
        }
        out
    }

    /// Drops the bytes before `position`.
    pub(crate) fn release(&mut self, position: u64) {
        let position = position.min(self.end);
        while let Some((at, chunk)) = self.chunks.front_mut() {
            let end = *at + chunk.len() as u64;
            if end > position {
                if *at < position {
                    *chunk = chunk.slice((position - *at) as usize..chunk.len());
                    *at = position;
                }
                break;
            }
            self.chunks.pop_front();
        }
        self.start = self.start.max(position);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::ByteRange;

    #[test]
    fn ranges_join_to_one_chunk() {
        let mut buffer = SendBuffer::new(1);
        (0..100).for_each(|n| buffer.push(ByteRange::new(n * 10..n * 10 + 10)));
        assert_eq!(buffer.chunks.len(), 1);
        assert_eq!(buffer.get(11..33), ByteRange::new(10..32));
        buffer.release(501);
        assert_eq!((buffer.len(), buffer.end()), (500, 1001));
        assert_eq!(buffer.get(501..1001), ByteRange::new(500..1000));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_bytes_back(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..20),
            release in 0..400usize, cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let all = chunks.concat();
            let mut buffer = SendBuffer::new(7);
            chunks.iter().for_each(|chunk| buffer.push(Bytes::from(chunk.clone())));
            let release = release.min(all.len());
            buffer.release(7 + release as u64);
            prop_assert_eq!(buffer.len() as usize, all.len() - release);
            let rest = &all[release..];
            let a = cut.0.index(rest.len() + 1);
            let b = cut.1.index(rest.len() + 1);
            let (a, b) = (a.min(b), a.max(b));
            let base = 7 + release as u64;
            let got = buffer.get(base + a as u64..base + b as u64);
            prop_assert_eq!(&got[..], &rest[a..b]);
        }
    }
}
