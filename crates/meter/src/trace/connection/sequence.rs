//! Unwraps sequence numbers from 32 to 64 bits.

/// Start of the unwrapped numbers, so that numbers before the first one seen stay positive.
const BASE: u64 = 1 << 40;

/// Unwraps the numbers of one direction, each to the value nearest to the highest so far (RFC 9293
/// §3.4: valid numbers lie within 2^31 of it).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SequenceUnwrapper {
    highest: Option<u64>,
}

impl SequenceUnwrapper {
    /// Unwraps a number. The first one seen defines the rest.
    pub(super) fn unwrap(&mut self, wire: u32) -> u64 {
        let number = self.peek(wire);
        self.highest = self.highest.max(Some(number));
        number
    }

    /// Unwraps a number that may be wrong: it does not affect later ones.
    pub(super) fn peek(&self, wire: u32) -> u64 {
        let near = self.highest.unwrap_or_else(|| BASE + u64::from(wire));
        let away = wire.wrapping_sub(near as u32).cast_signed();
        near.saturating_add_signed(away.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_go_on_behind_the_end() {
        let mut unwrap = SequenceUnwrapper::default();
        let first = unwrap.unwrap(u32::MAX - 9);
        assert_eq!(unwrap.unwrap(5), first + 15);
        assert_eq!(unwrap.unwrap(u32::MAX - 9), first);
        assert_eq!(unwrap.unwrap(20), first + 30);
        assert_eq!(unwrap.peek(u32::MAX - 10), first - 1);
    }

    proptest! {
        #[test]
        fn any_walk_of_less_than_half_the_space_is_followed(
            first: u32, steps in proptest::collection::vec(-1000..i64::from(i32::MAX), 0..50),
        ) {
            let mut unwrap = SequenceUnwrapper::default();
            let mut at = unwrap.unwrap(first);
            for step in steps {
                at = at.saturating_add_signed(step);
                let wire = at as u32;
                prop_assert_eq!(unwrap.unwrap(wire), at);
                // Only slightly backwards from the highest.
                at = unwrap.highest.unwrap();
            }
        }
    }
}
