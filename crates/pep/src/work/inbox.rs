//! Bytes that have arrived on a connection and are not used yet.

use crate::work::cost;

/// A buffer that is filled at the end and consumed from the front. The cost per byte does not depend on the
/// size of the parts consumed: the space of consumed bytes is reclaimed only when they are at least as many
/// as the bytes that have to be moved.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Length of the used part.
    used: usize,
}

impl Inbox {
    /// Appends bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room().extend_from_slice(bytes);
        cost::count(bytes.len());
    }

    /// The buffer to append bytes to. It must not be changed in any other way.
    pub fn room(&mut self) -> &mut Vec<u8> {
        let unused = self.bytes.len() - self.used;
        // At least as much is reclaimed as is moved, so each byte is moved about once.
        if self.used >= unused {
            cost::count(unused);
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        &mut self.bytes
    }

    /// Bytes that are not used yet.
    pub fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Marks the first `count` unused bytes as used. An inbox without unused bytes holds no memory.
    ///
    /// # Panics
    /// If fewer bytes are unused.
    pub fn consume(&mut self, count: usize) {
        self.used += count;
        assert!(self.used <= self.bytes.len(), "more is used than there is");
        if self.used == self.bytes.len() {
            *self = Self::default();
        }
    }

    /// Number of unused bytes.
    pub fn len(&self) -> usize {
        self.unused().len()
    }

    /// Returns `true` if all bytes are used.
    pub fn is_empty(&self) -> bool {
        self.unused().is_empty()
    }

    /// Takes the unused bytes and leaves the inbox empty.
    pub fn take(&mut self) -> Vec<u8> {
        let Self { mut bytes, used } = std::mem::take(self);
        bytes.drain(..used);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_out_in_order_and_move_at_most_once_for_each_that_is_used(
            steps in prop::collection::vec((0..300usize, 0..300usize), 0..100),
        ) {
            let (mut inbox, mut expected) = (Inbox::default(), VecDeque::new());
            let (mut number, mut pushed) = (0u8, 0);
            let ((), cost) = cost::of(|| for (push, consume) in steps {
                let bytes: Vec<u8> = std::iter::repeat_with(|| { number = number.wrapping_add(1); number }).take(push).collect();
                inbox.push(&bytes);
                pushed += push as u64;
                expected.extend(bytes);
                let consume = consume.min(inbox.len());
                assert!(inbox.unused().iter().eq(expected.iter()));
                inbox.consume(consume);
                expected.drain(..consume);
            });
            prop_assert!(cost <= 2 * pushed);
            prop_assert!(inbox.take().iter().eq(expected.iter()) && inbox.is_empty());
        }
    }

    /// Whoever moves bytes without counting them is seen by where they are.
    #[test]
    fn bytes_that_are_not_used_yet_stay_where_they_are() {
        let mut inbox = Inbox::default();
        inbox.push(&[4; 1000]);
        let end = inbox.unused().as_ptr_range().end;
        while inbox.len() > 501 {
            inbox.consume(1);
            inbox.room();
            assert_eq!(inbox.unused().as_ptr_range().end, end, "of {}", inbox.len());
        }
        inbox.consume(500);
        assert_eq!(inbox.unused().as_ptr_range().end, end);
    }

    /// The case that a buffer drained for each part makes quadratic.
    #[test]
    fn small_parts_of_much_cost_no_more_than_large_ones() {
        let ((), cost) = cost::of(|| {
            let mut inbox = Inbox::default();
            for _ in 0..16 {
                inbox.push(&[4; 64 << 10]);
                while inbox.len() > 1000 {
                    inbox.consume(1);
                }
            }
        });
        assert!(cost <= 16 * (65 << 10), "{cost}");
    }
}
