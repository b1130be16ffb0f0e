//! Duplication, reordering and corruption of datagrams, as networks do it.

use core::ops::Range;
use core::time::Duration;

use units::{Instant, Probability};

use crate::Dice;
use crate::propagation::schedule::DueSchedule;

/// Settings of the mangling of each datagram delivered by a link, independently. The default
/// changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Mangle {
    /// Probability that a datagram arrives twice.
    pub duplicate: Probability,
    /// Probability that a copy of a datagram is held back, so that later ones overtake it.
    pub reorder: Probability,
    /// Maximum time a copy is held back; uniform from zero.
    pub reorder_by: Duration,
    /// Probability that one to four bytes of a copy are changed.
    pub corrupt: Probability,
    /// Times at which datagrams leaving the link are lost.
    pub outages: Vec<Range<Instant>>,
    /// MTU of the path. Larger packets, including their headers on the link, are silently lost.
    pub mtu: Option<usize>,
}

/// Counters of mangled copies and lost datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mangled {
    /// Number of duplicates made.
    pub duplicated: u64,
    /// Copies held back, so that others may overtake.
    pub reordered: u64,
    /// Copies with changed bytes.
    pub corrupted: u64,
    /// Datagrams lost in an outage.
    pub lost_in_outage: u64,
    /// Datagrams above the MTU.
    pub too_large: u64,
}

/// Applies a [`Mangle`]. The same random numbers are drawn for every datagram, so that one setting
/// does not affect what the others hit.
#[derive(Debug)]
pub(super) struct Mangler {
    pub(super) settings: Mangle,
    pub(super) counters: Mangled,
    dice: Dice,
    held: DueSchedule<Vec<u8>>,
}

impl Mangler {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            settings: Mangle::default(),
            counters: Mangled::default(),
            dice: Dice::new(seed),
            held: DueSchedule::new(),
        }
    }

    /// Handles a datagram that left the link at `at`, with `overhead` bytes of headers.
    pub(super) fn handle_datagram(&mut self, at: Instant, datagram: Vec<u8>, overhead: usize) {
        let twice = self.dice.happens(self.settings.duplicate);
        // Drawn for both copies in any case, so that a setting does not affect what the others hit.
        let first = self.draw_changes();
        let second = self.draw_changes();
        if self.settings.outages.iter().any(|outage| outage.contains(&at)) {
            self.counters.lost_in_outage += 1;
            return;
        }
        if self.settings.mtu.is_some_and(|mtu| datagram.len() + overhead > mtu) {
            self.counters.too_large += 1;
            return;
        }
        if twice {
            self.counters.duplicated += 1;
            self.hold(at, second, datagram.clone());
        }
        self.hold(at, first, datagram);
    }

    /// Returns the next datagram that arrives by `now`.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.held.pop_due(now).map(|(_, datagram)| datagram)
    }

    /// Returns the time at which the next datagram arrives.
    pub(super) fn next(&self) -> Option<Instant> {
        self.held.first()
    }

    fn draw_changes(&mut self) -> CopyChanges {
        let late = self.dice.happens(self.settings.reorder);
        let most = u64::try_from(self.settings.reorder_by.as_nanos()).unwrap_or(u64::MAX);
        let by = Duration::from_nanos(self.dice.below(most));
        let corrupt = self.dice.happens(self.settings.corrupt);
        let wounds = self.dice.bits();
        CopyChanges { delay: late.then_some(by), corruption_seed: corrupt.then_some(wounds) }
    }

    fn hold(&mut self, at: Instant, fate: CopyChanges, mut datagram: Vec<u8>) {
        if let Some(seed) = fate.corruption_seed {
            self.counters.corrupted += 1;
            corrupt(&mut datagram, seed);
        }
        self.counters.reordered += u64::from(fate.delay.is_some());
        self.held.insert(at + fate.delay.unwrap_or_default(), datagram);
    }
}

/// The changes to one copy of a datagram.
#[derive(Clone, Copy)]
struct CopyChanges {
    /// Time for which it is held back.
    delay: Option<Duration>,
    /// Seed of its corruption; `None` if it stays intact.
    corruption_seed: Option<u64>,
}

/// Changes one to four adjacent bytes of `datagram`, the first of them always.
fn corrupt(datagram: &mut [u8], seed: u64) {
    let mut dice = Dice::new(seed);
    let begin = dice.below(datagram.len() as u64) as usize;
    let count = 1 + dice.below(4) as usize;
    for (index, byte) in datagram.iter_mut().skip(begin).take(count).enumerate() {
        let flips = dice.bits() as u8;
        *byte ^= if index == 0 { flips.max(1) } else { flips };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn run(settings: Mangle) -> (Vec<Vec<u8>>, Mangled) {
        let mut mangler = Mangler::new(1);
        mangler.settings = settings;
        for index in 0..100u8 {
            mangler.handle_datagram(at(u64::from(index)), vec![index; 10], 28);
        }
        let out = core::iter::from_fn(|| mangler.poll(Instant::MAX)).collect();
        (out, mangler.counters)
    }

    fn sent() -> Vec<Vec<u8>> {
        (0..100).map(|index| vec![index; 10]).collect()
    }

    #[test]
    fn the_default_changes_nothing() {
        assert_eq!(run(Mangle::default()), (sent(), Mangled::default()));
    }

    #[test]
    fn duplicates_are_equal_neighbours() {
        let (out, counters) = run(Mangle { duplicate: Probability::ONE, ..Mangle::default() });
        assert_eq!(counters.duplicated, 100);
        assert!(out.chunks(2).zip(sent()).all(|(pair, one)| pair == [one.clone(), one]));
    }

    #[test]
    fn reordering_loses_nothing() {
        let half = Probability::new(0.5).unwrap();
        let reorder_by = Duration::from_nanos(20);
        let (mut out, counters) = run(Mangle { reorder: half, reorder_by, ..Mangle::default() });
        assert!((30..70).contains(&counters.reordered));
        assert_ne!(out, sent());
        out.sort();
        assert_eq!(out, sent());
    }

    #[test]
    fn corruption_changes_each_datagram_and_no_length() {
        let (out, counters) = run(Mangle { corrupt: Probability::ONE, ..Mangle::default() });
        assert_eq!(counters.corrupted, 100);
        assert!(out.iter().zip(sent()).all(|(a, b)| *a != b && a.len() == b.len()));
    }

    #[test]
    fn what_exceeds_the_mtu_is_lost() {
        assert_eq!(run(Mangle { mtu: Some(38), ..Mangle::default() }).0, sent());
        let (out, counters) = run(Mangle { mtu: Some(37), ..Mangle::default() });
        assert_eq!((out.len(), counters.too_large), (0, 100));
    }

    #[test]
    fn an_empty_datagram_has_nothing_to_corrupt() {
        corrupt(&mut [], 1);
    }

    #[test]
    fn an_outage_begins_and_ends() {
        let outages = [at(10)..at(20), at(50)..at(51)].into();
        let (out, counters) = run(Mangle { outages, ..Mangle::default() });
        assert_eq!(counters.lost_in_outage, 11);
        assert_eq!(out.len(), 89);
        assert!(!out.contains(&vec![10; 10]) && out.contains(&vec![20; 10]));
    }
}
