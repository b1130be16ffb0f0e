//! What will happen, in the order of (time, sequence number).

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use units::Instant;

/// Future events. Two events of the same instant happen in the order in which
/// they were entered, so no order depends on addresses or hashes.
///
/// An event cannot be removed; its owner's [`Alarm`] tells it from outdated
/// ones.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    serial: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Instant,
    serial: u64,
    what: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.serial)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The number of an entry; never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl<T> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), serial: 0 }
    }

    /// Enters an event.
    pub(crate) fn enter(&mut self, at: Instant, what: T) -> Ticket {
        self.serial += 1;
        self.heap.push(Reverse(Entry { at, serial: self.serial, what }));
        Ticket(self.serial)
    }

    /// When the next event is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<(Instant, Ticket, T)> {
        let Reverse(Entry { at, serial, what }) = self.heap.pop()?;
        Some((at, Ticket(serial), what))
    }
}

/// The one wake-up of a machine that still counts.
///
/// A machine's time-out mostly moves away from it with every packet. Its entry
/// stays where it is then: it comes early, the machine is asked again (early is
/// harmless), and a new entry is made. So a packet costs no entry of its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alarm(Option<(Instant, Ticket)>);

impl Alarm {
    /// Makes sure that `what` happens at `at` or before.
    pub(crate) fn set<T>(&mut self, agenda: &mut Agenda<T>, at: Option<Instant>, what: T) {
        let Some(at) = at else { return };
        if self.0.is_none_or(|(entered, _)| at < entered) {
            self.0 = Some((at, agenda.enter(at, what)));
        }
    }

    /// The entry `ticket` has come up: whether it counts.
    pub(crate) fn ring(&mut self, ticket: Ticket) -> bool {
        let counts = self.0.is_some_and(|(_, live)| live == ticket);
        if counts {
            self.0 = None;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_later_wish_waits_for_the_earlier_entry_and_an_earlier_one_outdates_it() {
        let (mut agenda, mut alarm) = (Agenda::new(), Alarm::default());
        alarm.set(&mut agenda, Some(at(5)), 'a');
        alarm.set(&mut agenda, Some(at(9)), 'b');
        alarm.set(&mut agenda, Some(at(3)), 'c');
        alarm.set(&mut agenda, None, 'd');
        let (time, ticket, what) = agenda.pop().unwrap();
        assert_eq!((time, what, alarm.ring(ticket)), (at(3), 'c', true));
        let (time, ticket, what) = agenda.pop().unwrap();
        assert_eq!((time, what, alarm.ring(ticket)), (at(5), 'a', false));
        assert!(agenda.pop().is_none());
    }

    proptest! {
        #[test]
        fn events_come_in_the_order_of_time_and_entry(times in prop::collection::vec(0u64..8, 0..50)) {
            let mut agenda = Agenda::new();
            for (index, time) in times.iter().enumerate() {
                agenda.enter(at(*time), index);
            }
            let mut expected: Vec<_> = times.iter().copied().zip(0..).collect();
            expected.sort_unstable();
            let popped = core::iter::from_fn(|| agenda.pop());
            let order: Vec<_> = popped.map(|(time, _, what)| (time.as_nanos(), what)).collect();
            prop_assert_eq!(order, expected);
        }
    }
}
