//! Hubs with one identity behind one address. Each draws the receiver indices of its sessions from
//! a share of its own, so that a load balancer in front of them finds a packet's hub by its index,
//! whatever address the packet comes from.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use crate::wire::packet::Index;

/// Maximum number of hubs behind one address.
pub const MAX_SHARES: u8 = 64;

/// The number of a hub among those behind one address. As text: `1 of 2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexShare {
    /// The hub's number, from 0.
    number: u8,
    /// Number of hubs that share the address.
    count: u8,
}

impl IndexShare {
    /// The share of an endpoint that is alone at its address.
    pub const WHOLE: Self = Self { number: 0, count: 1 };

    /// The share of hub `number`, from 1, among `of` hubs. `None` unless 1 ≤ `number` ≤ `of` ≤
    /// [`MAX_SHARES`].
    pub fn new(number: u8, of: u8) -> Option<Self> {
        let is_one = (1..=of).contains(&number) && of <= MAX_SHARES;
        is_one.then(|| Self { number: number - 1, count: of })
    }

    /// The first half of this share, or the second: one for each process during an upgrade.
    #[must_use]
    pub fn half(self, second: bool) -> Self {
        Self { number: 2 * self.number + u8::from(second), count: 2 * self.count }
    }

    /// The range of the first byte, in network byte order, of its indices. The ranges of all hubs
    /// are about equal and cover all bytes.
    pub fn first_bytes(self) -> RangeInclusive<u8> {
        // Each share ends where the next begins, so that together they cover all bytes.
        let begin = |number: u8| (256 * u16::from(number)).div_ceil(self.count.into());
        begin(self.number) as u8..=(begin(self.number + 1) - 1) as u8
    }

    /// Maps a random number to an index of this share.
    pub(crate) fn index_for(self, random: u32) -> Index {
        let bytes = self.first_bytes();
        let count = u32::from(bytes.end() - bytes.start()) + 1;
        let first = u32::from(*bytes.start()) + (random >> 24) % count;
        first << 24 | random & 0x00ff_ffff
    }

    pub(crate) fn contains(self, index: Index) -> bool {
        self.first_bytes().contains(&((index >> 24) as u8))
    }
}

impl FromStr for IndexShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = text.split_once(" of ").and_then(|(number, of)| {
            Self::new(number.trim().parse().ok()?, of.trim().parse().ok()?)
        });
        share.ok_or_else(|| {
            format!("{text:?}: expected this hub's number among at most {MAX_SHARES}: \"1 of 2\"")
        })
    }
}

impl fmt::Display for IndexShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.number + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_written_as_which_of_how_many() {
        let share: IndexShare = "2 of 3".parse().unwrap();
        assert_eq!((share.to_string(), share.first_bytes()), ("2 of 3".to_owned(), 86..=170));
        assert_eq!("1 of 1".parse(), Ok(IndexShare::WHOLE));
        for wrong in ["", "1", "0 of 2", "3 of 2", "1 of 0", "1 of 65", "1 of 300", "one of two"] {
            let error = wrong.parse::<IndexShare>().unwrap_err();
            assert!(error.contains("1 of 2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn the_shares_divide_all_indices(of in 1..=MAX_SHARES, random: u32) {
            let all: Vec<IndexShare> =
                (1..=of).map(|number| IndexShare::new(number, of).unwrap()).collect();
            prop_assert_eq!(all.iter().filter(|share| share.contains(random)).count(), 1);
            for share in all {
                prop_assert!(share.contains(share.index_for(random)));
                let size = share.first_bytes().count();
                prop_assert!(size.abs_diff(256 / usize::from(of)) <= 1, "{size}");
            }
            prop_assert_eq!(IndexShare::WHOLE.index_for(random), random);
            let share = IndexShare::new(of, of).unwrap();
            let bounds = |share: IndexShare| share.first_bytes().into_inner();
            let [first, second] = [false, true].map(|second| bounds(share.half(second)));
            prop_assert_eq!((first.0, second.1), bounds(share));
            prop_assert_eq!(first.1 + 1, second.0);
        }
    }
}
