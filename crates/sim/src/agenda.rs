//! The future event list, ordered by (time, sequence number).

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use units::Instant;

/// Future events. Events of the same instant happen in the order in which they were entered, so
/// nothing depends on addresses or hashes.
///
/// An event cannot be removed; its owner's [`EventAlarm`] recognises outdated ones.
///
/// A timing wheel (Varghese and Lauck 1987, scheme 4) in front of a heap. Events within a few
/// milliseconds are fully ordered; events within four seconds are only in their slot. So the
/// time-outs of a thousand connections, most of which move before they expire, slow down nothing
/// else.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    /// Events of the current slot and earlier ones.
    soon: BinaryHeap<QueuedEvent<T>>,
    /// Set while the first entry of `soon` has been returned but not removed. It is removed when the
    /// next one is taken, unless a new entry replaces it. That costs half as much, and most events
    /// create another one that is due soon.
    taken: bool,
    /// The following slots; slot number `n` is at `n % SLOTS`.
    wheel: Vec<Vec<QueuedEvent<T>>>,
    /// A bit for each non-empty slot of the wheel.
    occupied: [u64; SLOTS / 64],
    /// Events that are due after the wheel's last slot.
    late: BinaryHeap<QueuedEvent<T>>,
    /// The number of the current slot.
    slot: u64,
    serial: u64,
}

/// The length of a slot as a power of two nanoseconds: about four milliseconds.
const SLOT_BITS: u32 = 22;
/// Number of slots in the wheel, which covers about four seconds.
const SLOTS: usize = 1024;

#[derive(Debug)]
struct QueuedEvent<T> {
    at: Instant,
    serial: u64,
    event: T,
}

impl<T> QueuedEvent<T> {
    /// Time and serial number in one integer, which is faster to compare.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at.as_nanos()) << 64 | u128::from(self.serial)
    }

    fn slot(&self) -> u64 {
        self.at.as_nanos() >> SLOT_BITS
    }
}

impl<T> PartialEq for QueuedEvent<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for QueuedEvent<T> {}

impl<T> PartialOrd for QueuedEvent<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Reversed, because [`BinaryHeap`] returns the greatest first.
impl<T> Ord for QueuedEvent<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The number of an entry, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventNumber(u64);

impl<T: Copy> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self {
            soon: BinaryHeap::new(),
            taken: false,
            wheel: core::iter::repeat_with(Vec::new).take(SLOTS).collect(),
            occupied: [0; SLOTS / 64],
            late: BinaryHeap::new(),
            slot: 0,
            serial: 0,
        }
    }

    /// Enters `what` at the time `at`, and returns the number by which the owner recognises it.
    #[inline]
    pub(crate) fn schedule(&mut self, at: Instant, what: T) -> EventNumber {
        self.serial += 1;
        self.place(QueuedEvent { at, serial: self.serial, event: what });
        EventNumber(self.serial)
    }

    #[inline]
    fn place(&mut self, entry: QueuedEvent<T>) {
        if entry.slot() > self.slot {
            return self.place_later(entry);
        }
        // The event returned last is still the root of the heap: replacing it sifts once, not twice.
        if core::mem::take(&mut self.taken)
            && let Some(mut first) = self.soon.peek_mut()
        {
            *first = entry;
            return;
        }
        self.soon.push(entry);
    }

    #[inline(never)]
    fn place_later(&mut self, entry: QueuedEvent<T>) {
        let slot = entry.slot();
        if slot - self.slot < SLOTS as u64 {
            let place = slot as usize % SLOTS;
            self.wheel[place].push(entry);
            self.occupied[place / 64] |= 1 << (place % 64);
        } else {
            self.late.push(entry);
        }
    }

    /// Takes the next event if it is due by `end`.
    pub(crate) fn pop_due(&mut self, end: Instant) -> Option<(Instant, EventNumber, T)> {
        if core::mem::take(&mut self.taken) {
            self.soon.pop();
        }
        if self.soon.is_empty() {
            self.advance_slot()?;
        }
        let &QueuedEvent { at, serial, event: what } = self.soon.peek()?;
        self.taken = at <= end;
        self.taken.then_some((at, EventNumber(serial), what))
    }

    /// Moves on to the next non-empty slot; `None` if there is none.
    #[inline(never)]
    fn advance_slot(&mut self) -> Option<()> {
        let late = self.late.peek().map(QueuedEvent::slot);
        let next = self.next_occupied();
        // After a gap longer than the wheel only `late` has events.
        self.slot = next.into_iter().chain(late).min()?;
        if next == Some(self.slot) {
            let place = self.slot as usize % SLOTS;
            self.occupied[place / 64] &= !(1 << (place % 64));
            self.soon.extend(self.wheel[place].drain(..));
        }
        // The wheel has turned, so events that lay beyond it may now have a slot.
        while self.late.peek().is_some_and(|entry| entry.slot() - self.slot < SLOTS as u64)
            && let Some(entry) = self.late.pop()
        {
            self.place(entry);
        }
        Some(())
    }

    /// Returns the number of the first non-empty slot after the current one.
    fn next_occupied(&self) -> Option<u64> {
        let first = (self.slot + 1) as usize % SLOTS;
        // The first slot's word is checked twice: the second time for the bits before that slot,
        // which are one full turn later.
        (0..=self.occupied.len()).find_map(|step| {
            let word = (first / 64 + step) % self.occupied.len();
            let mask = if step == 0 { u64::MAX << (first % 64) } else { u64::MAX };
            let bits = self.occupied[word] & mask;
            let place = word * 64 + bits.trailing_zeros() as usize;
            let ahead = (place + SLOTS - first) % SLOTS;
            (bits != 0).then_some(self.slot + 1 + ahead as u64)
        })
    }
}

/// The one wake-up of a machine that is still valid.
///
/// A machine's time-out usually moves later with every packet. Its entry then stays where it is: it
/// fires early, the machine is asked again (early is harmless), and a new entry is made. So a
/// packet does not cost an entry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EventAlarm(Option<(Instant, EventNumber)>);

impl EventAlarm {
    /// Returns true if an entry is pending.
    pub(crate) fn is_set(self) -> bool {
        self.0.is_some()
    }

    /// Makes sure that `what` happens at `at` or earlier.
    #[inline]
    pub(crate) fn set<T: Copy>(&mut self, agenda: &mut Agenda<T>, at: Option<Instant>, what: T) {
        let Some(at) = at else { return };
        if self.0.is_none_or(|(entered, _)| at < entered) {
            self.0 = Some((at, agenda.schedule(at, what)));
        }
    }

    /// Clears the alarm if `ticket` is its entry; returns false if the entry is outdated.
    pub(crate) fn ring(&mut self, ticket: EventNumber) -> bool {
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
        let (mut agenda, mut alarm) = (Agenda::new(), EventAlarm::default());
        alarm.set(&mut agenda, Some(at(5)), 'a');
        alarm.set(&mut agenda, Some(at(9)), 'b');
        alarm.set(&mut agenda, Some(at(3)), 'c');
        alarm.set(&mut agenda, None, 'd');
        let (time, ticket, what) = agenda.pop_due(Instant::MAX).unwrap();
        assert_eq!((time, what, alarm.ring(ticket)), (at(3), 'c', true));
        let (time, ticket, what) = agenda.pop_due(Instant::MAX).unwrap();
        assert_eq!((time, what, alarm.ring(ticket)), (at(5), 'a', false));
        assert!(agenda.pop_due(Instant::MAX).is_none());
    }

    #[test]
    fn alarms_that_are_not_due_stay() {
        let mut agenda = Agenda::new();
        agenda.schedule(at(7_000_000_000), 'a');
        assert!(agenda.pop_due(at(6_999_999_999)).is_none());
        // Before what has already been looked at.
        agenda.schedule(at(5), 'b');
        let order = core::iter::from_fn(|| agenda.pop_due(at(7_000_000_000)));
        assert_eq!(order.map(|(_, _, what)| what).collect::<String>(), "ba");
    }

    /// An instant in the current slot, within the wheel, or beyond.
    fn instants() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..8, 0u64..4_000_000, 0u64..4_300_000_000, 0u64..30_000_000_000]
    }

    proptest! {
        /// A machine whose time-out moves at random. Its alarm must fire by the time that the
        /// machine wants, and only the entry made last counts.
        #[test]
        fn an_alarm_is_never_late_and_one_entry_at_a_time_is_valid(
            steps in prop::collection::vec((1u64..6_000_000_000, 1u64..3_000_000_000), 1..60)
        ) {
            let (mut agenda, mut alarm) = (Agenda::new(), EventAlarm::default());
            let mut now = 0;
            for (wish, pass) in steps {
                let mut due = Some(now + wish);
                alarm.set(&mut agenda, due.map(at), ());
                let end = now + pass;
                while let Some((time, ticket, ())) = agenda.pop_due(at(end)) {
                    now = time.as_nanos();
                    prop_assert!(due.is_none_or(|due| now <= due), "{now} after {due:?}");
                    if alarm.ring(ticket) {
                        prop_assert!(!alarm.ring(ticket), "rang twice");
                        due = due.filter(|due| now < *due);
                        alarm.set(&mut agenda, due.map(at), ());
                    }
                }
                prop_assert!(due.is_none_or(|due| due > end), "{due:?} has not rung by {end}");
                prop_assert_eq!(alarm.is_set(), due.is_some());
                now = end;
            }
        }

        /// The end of time is an instant like others, and so is any bound in between: what is due
        /// by then comes out, all of it, and nothing else.
        #[test]
        fn what_is_due_by_a_bound_comes_out_and_the_rest_stays(
            wishes in prop::collection::vec(prop_oneof![9 => instants(), 1 => Just(u64::MAX)], 1..60),
            mut bounds in prop::collection::vec(instants(), 1..10),
        ) {
            bounds.sort_unstable();
            let mut agenda = Agenda::new();
            for wish in &wishes {
                agenda.schedule(at(*wish), *wish);
            }
            let mut left = wishes;
            left.sort_unstable();
            for bound in bounds.into_iter().chain([u64::MAX]) {
                let due = core::iter::from_fn(|| agenda.pop_due(at(bound)));
                let due: Vec<_> = due.map(|(_, _, wish)| wish).collect();
                let count = left.iter().filter(|wish| **wish <= bound).count();
                prop_assert_eq!(due, left.drain(..count).collect::<Vec<_>>());
            }
        }

        /// A random run. Each step enters events at or after the time of the last one taken, then
        /// takes some.
        #[test]
        fn events_come_in_the_order_of_time_and_entry(
            steps in prop::collection::vec((prop::collection::vec(instants(), 0..20), 0usize..20), 0..20)
        ) {
            let (mut agenda, mut plain) = (Agenda::new(), std::collections::BTreeMap::new());
            let (mut now, mut serial) = (0, 0);
            for (wishes, taken) in steps.into_iter().chain([(vec![], usize::MAX)]) {
                for wish in wishes {
                    serial += 1;
                    agenda.schedule(at(now + wish), serial);
                    plain.insert((now + wish, serial), serial);
                }
                for _ in 0..taken {
                    let ours = agenda.pop_due(Instant::MAX);
                    let expected = plain.pop_first();
                    prop_assert_eq!(
                        ours.map(|(at, EventNumber(ticket), what)| ((at.as_nanos(), ticket), what)),
                        expected
                    );
                    match expected {
                        Some(((at, _), _)) => now = at,
                        None => break,
                    }
                }
            }
            prop_assert!(plain.is_empty());
        }
    }
}
