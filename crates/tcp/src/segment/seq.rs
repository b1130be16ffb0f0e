//! Sequence numbers (RFC 9293 §3.4).

use core::fmt;

/// A sequence number: 32 bits that wrap around. Two can be compared only if they are less than 2³¹
/// apart, which windows of at most 2³⁰ bytes (RFC 7323 §2.3) ensure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNr(u32);

impl SeqNr {
    /// The sequence number `number`.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number as it appears in segments.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number `by` bytes later, modulo 2³². Only the low 32 bits of `by` matter.
    #[must_use]
    pub const fn advance(self, by: u64) -> Self {
        Self(self.0.wrapping_add(by as u32))
    }

    /// Returns the number of bytes by which `self` is ahead of `other`; negative if it is behind.
    pub const fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Returns true if `self` is ahead of `other`.
    pub const fn is_after(self, other: Self) -> bool {
        self.since(other) > 0
    }
}

impl fmt::Display for SeqNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_order_goes_on_across_the_wrap() {
        let before = SeqNr::new(u32::MAX);
        let after = before.advance(2);
        assert_eq!(after, SeqNr::new(1));
        assert!(after.is_after(before) && !before.is_after(after) && !before.is_after(before));
        assert_eq!((after.since(before), before.since(after)), (2, -2));
    }

    proptest! {
        #[test]
        fn since_undoes_advance(start: u32, by in 0..1u32 << 31) {
            let start = SeqNr::new(start);
            prop_assert_eq!(start.advance(u64::from(by)).since(start), by as i32);
            prop_assert_eq!(start.advance(u64::from(by)).is_after(start), by > 0);
        }

        #[test]
        fn only_the_low_half_of_a_position_matters(start: u32, by: u64) {
            let start = SeqNr::new(start);
            prop_assert_eq!(start.advance(by), start.advance(by & 0xffff_ffff));
        }
    }
}
