//! Searches for free capacity: a short train now and then, and a longer one to confirm its result.

mod outlast;

use super::super::{FULL, PACKET, Plan, TRAIN_RATE};
use crate::rate::train::{Bucket, Measured, Unmeasured};
use outlast::Outlast;
pub(in super::super) use outlast::Passed;

/// A train that arrived faster than our rate by this factor calls for a longer one.
const FASTER: f64 = 1.3;
/// Maximum time that a short train occupies the link, in seconds, and bounds of its length in
/// packets.
const PROBE: f64 = 0.015;
const PROBE_PACKETS: (usize, usize) = (6, 24);
const CONFIRM: f64 = 0.04;
const CONFIRM_PACKETS: (usize, usize) = (32, 256);
/// Time on the link of a train that shows the rate of others, in seconds, beside
/// [`CONFIRM_PACKETS`].
const OTHERS: f64 = 0.01;
/// Rate of the longer train, relative to the rate it is to confirm.
const EXCESS: f64 = 1.25;
/// A longer train must show this multiple of our rate, and shows at most this one.
const CONFIRMED: f64 = 1.1;
const MOST_GROWTH: f64 = 64.0;
/// A link of which others take less than this part has no others.
const UNUSED: f64 = 0.05;
/// If the link has become faster since the last short train by at least the factor `RISEN`, this
/// fraction of the promised rate is used until the longer train has arrived: with the 3 % that an
/// empty queue adds, nearly the link's rate. The short train must have taken this multiple of the
/// delay variation to be conclusive.
const TRUST: f64 = 0.92;
const RISEN: f64 = 1.1;
const CLEAR: f64 = 8.0;
/// Where bursts do not pass, as with a policer, this multiple of our rate is tried, in this many
/// packets at least.
const PACED: f64 = 2.5;
const PACED_PACKETS: usize = 8;
/// Maximum rounds between trains that find nothing, and behind a bucket, where nothing else shows
/// that the rate has risen.
const MOST_ROUNDS: u32 = 16;
const MOST_POLICED: u32 = 6;

#[derive(Debug)]
pub(super) struct Probe {
    /// Rounds to wait between trains, and until the next one.
    wait: u32,
    left: u32,
    /// Purpose of the next train, if it is another one than to search.
    next: Option<Purpose>,
    under_way: Purpose,
    /// The whole link's rate as shown by the last short train, in bit/s.
    whole: f64,
    /// The path lets no burst pass: it is policed, or its queue holds only a few packets.
    no_bursts: bool,
    outlast: Outlast,
    /// The next train is to show the whole link.
    of_link: bool,
    /// The next train is to show the rate of others on a link of this rate, in bit/s.
    of_others: Option<f64>,
    /// The next train replaces the one in flight, because it shows more.
    urgent: bool,
    /// An urgent train is due or in flight.
    hurried: bool,
}

/// Purpose of the train in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    /// To find free capacity, by a short train.
    Search,
    /// The same on a path that bursts do not pass: at this rate, in bit/s.
    Paced(f64),
    /// To confirm this rate, in bit/s. A short train shows the rate of the link; a longer one gets
    /// less of it if others send too.
    Confirm(f64),
    /// To show the rate of the whole link behind a queue.
    Link,
    /// To show the rate of others on a link of this rate, in bit/s.
    Others(f64),
}

/// Conclusion from a train, for the capacity and for the sharing of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Found {
    Nothing,
    /// This much capacity, in bit/s.
    Capacity(f64),
    /// The path is policed. `capacity`, in bit/s, is the bucket's rate if that is above ours for
    /// sure.
    Policed {
        bucket: Bucket,
        capacity: Option<f64>,
    },
    /// The rate of the whole link, bit/s.
    Link(f64),
    /// The rate of others on the link, infinite if unknown, and a capacity larger than ours that
    /// they leave; in bit/s.
    Others {
        taken: f64,
        capacity: Option<f64>,
    },
}

impl Probe {
    /// Begins on a link of this rate, in bit/s, as a train has shown it; `passed`: the last train
    /// of the start, if it came whole.
    pub(super) fn new(link: f64, passed: Option<Passed>) -> Self {
        Self {
            wait: 1,
            left: 2,
            next: None,
            under_way: Purpose::Search,
            whole: link,
            no_bursts: false,
            outlast: Outlast::new(passed),
            of_link: false,
            of_others: None,
            urgent: false,
            hurried: false,
        }
    }

    /// Searches with the next packets, even if a train is in flight.
    pub(super) fn hurry(&mut self) {
        (self.left, self.wait) = (0, 1);
        self.be_urgent();
    }

    /// Searches as soon as no train is in flight.
    pub(super) fn search_soon(&mut self) {
        self.left = 0;
    }

    /// Measures the whole link at once.
    pub(super) fn show_link(&mut self) {
        (self.left, self.of_link) = (0, true);
        self.be_urgent();
    }

    /// Measures at once the rate of others on a link of this rate, in bit/s.
    pub(super) fn show_others(&mut self, link: f64) {
        self.of_others = Some(link);
        self.be_urgent();
    }

    fn be_urgent(&mut self) {
        // A train that tries a rate shows more than another short one, which would replace it:
        // where no burst passes, each step of a rise took two round trips more.
        let tries = matches!(self.under_way, Purpose::Confirm(_) | Purpose::Paced(_));
        if !self.hurried && !tries {
            (self.hurried, self.urgent) = (true, true);
        }
    }

    /// Returns `true` if the next train need not wait for the one that has left.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Raises the rate of the whole link to `rate` bit/s at least: where bursts of many meet in a
    /// full queue, each shows only its part.
    pub(super) fn know_link(&mut self, rate: f64) {
        self.whole = self.whole.max(rate);
    }

    /// The rate of the whole link, in bit/s.
    pub(super) fn whole(&self) -> f64 {
        self.whole
    }

    /// Ends a round in which `sent` packets were sent, `queued` if they met a queue.
    pub(super) fn end_round(&mut self, queued: bool, sent: f64) {
        self.outlast.end_round(sent);
        self.left = self.left.saturating_sub(1);
        // Behind a queue there is no free capacity: trains find only the rate of the whole link.
        if queued {
            self.left = if self.of_link { 0 } else { self.left.max(1) };
        }
    }

    /// The train due before the next payload, if one is; `rate`: the session's, in bit/s;
    /// `may_grow`: the capacity may be raised by what a train finds.
    pub(super) fn next_train(&mut self, rate: f64, may_grow: bool) -> Option<Plan> {
        self.urgent = false;
        self.under_way = self.next_purpose(rate, may_grow)?;
        let packets = |rate: f64, time: f64| (rate * time / PACKET) as usize;
        let plan = match self.under_way {
            Purpose::Confirm(found) => {
                confirming(packets(rate, CONFIRM) + CONFIRM_PACKETS.0, found * EXCESS)
            }
            Purpose::Paced(faster) => {
                let packets = packets(rate, PROBE).clamp(PACED_PACKETS, PROBE_PACKETS.1);
                let packets = self.outlast.packets(packets);
                confirming(packets, faster)
            }
            Purpose::Others(link) => {
                confirming(packets(link, OTHERS) + CONFIRM_PACKETS.0, link * EXCESS)
            }
            Purpose::Link | Purpose::Search => {
                let packets = packets(rate, PROBE).clamp(PROBE_PACKETS.0, PROBE_PACKETS.1);
                Plan { packets, rate: TRAIN_RATE, padding: FULL }
            }
        };
        self.outlast.train_leaves(&plan);
        Some(plan)
    }

    fn next_purpose(&mut self, rate: f64, may_grow: bool) -> Option<Purpose> {
        if let Some(purpose) = self.next.take().filter(|_| may_grow) {
            return Some(purpose);
        }
        if let Some(link) = self.of_others.take() {
            return Some(Purpose::Others(link));
        }
        if self.left > 0 {
            return None;
        }
        self.left = self.wait;
        if core::mem::take(&mut self.of_link) {
            return Some(Purpose::Link);
        }
        if !self.outlast.allows_train() {
            return None;
        }
        let paced = self.no_bursts && may_grow;
        Some(if paced { Purpose::Paced(rate * PACED) } else { Purpose::Search })
    }

    /// Processes the result of the train in flight, if it has one; `noise` is the delay variation
    /// in seconds.
    pub(super) fn train_came(
        &mut self,
        train: Result<Measured, Unmeasured>,
        capacity: f64,
        noise: f64,
    ) -> Found {
        let under_way = core::mem::replace(&mut self.under_way, Purpose::Search);
        self.hurried &= self.urgent;
        if let Err(Unmeasured::Policed(bucket)) = train {
            return self.policed(bucket, capacity);
        }
        match (under_way, train.ok()) {
            (Purpose::Link, Some(seen)) => {
                self.whole = seen.received;
                Found::Link(seen.received)
            }
            // Trains are inconclusive on such a path.
            (Purpose::Link, None) => Found::Link(f64::INFINITY),
            (Purpose::Others(link), Some(seen)) => {
                Found::Others { taken: taken_by_others(link, seen), capacity: None }
            }
            (Purpose::Others(_), None) => Found::Others { taken: f64::INFINITY, capacity: None },
            (Purpose::Confirm(link), Some(seen)) => self.confirmed(link, seen, capacity),
            (Purpose::Paced(_), Some(seen)) => self.paced(seen, capacity),
            (Purpose::Confirm(_) | Purpose::Paced(_), None) => {
                self.found_nothing();
                Found::Nothing
            }
            (Purpose::Search, Some(seen)) => self.searched(seen, capacity, noise),
            (Purpose::Search, None) => {
                self.no_bursts = true;
                self.next = Some(Purpose::Paced(capacity * PACED));
                Found::Nothing
            }
        }
    }

    /// Records a token bucket: trains are paced, and long enough to outlast it.
    pub(super) fn police(&mut self, bucket: Bucket) {
        self.no_bursts = true;
        self.outlast.meet(bucket);
    }

    /// Forgets the bucket, because a queue has formed: there is none, or it does not matter.
    pub(super) fn forget_bucket(&mut self) {
        if self.outlast.is_there() {
            (self.outlast, self.no_bursts) = (Outlast::new(None), false);
        }
    }

    /// Takes back the growth that a train has promised, if it is recent, because losses show that
    /// only `rate` bit/s pass. Returns `true` if there was one.
    pub(super) fn refute(&mut self, rate: f64) -> bool {
        let Some(wait) = self.outlast.refute(rate) else { return false };
        (self.wait, self.left, self.next, self.no_bursts) = (wait, wait, None, true);
        true
    }

    fn policed(&mut self, bucket: Bucket, capacity: f64) -> Found {
        // The bucket is the only bottleneck that there is: the session is alone behind it.
        self.whole = capacity;
        let least = if bucket.is_sure() { bucket.rate } else { bucket.rate * (1.0 - bucket.error) };
        let faster = least > CONFIRMED * capacity;
        self.outlast.be_unsure(faster && !bucket.is_sure());
        if !faster {
            self.found_nothing();
        } else {
            self.wait = 1;
            let again = Purpose::Paced(capacity * PACED);
            self.next = (!bucket.is_sure()).then_some(again);
        }
        let capacity = (faster && bucket.is_sure()).then_some(bucket.rate);
        Found::Policed { bucket, capacity }
    }

    fn found_nothing(&mut self) {
        let most = if self.outlast.is_there() { MOST_POLICED } else { MOST_ROUNDS };
        self.wait = (self.wait * 2).min(most);
    }

    /// Judges a longer train that has arrived through a link of this rate, in bit/s.
    fn confirmed(&mut self, link: f64, seen: Measured, before: f64) -> Found {
        let taken = taken_by_others(link, seen);
        // All who use the link will find the same room.
        let capacity = (before * fair_growth(link, taken, before)).min(seen.received);
        let least = if taken < UNUSED * link { 1.0 } else { CONFIRMED };
        let found = capacity > least * before;
        if found {
            self.wait = 1;
            self.outlast.grow();
        } else {
            self.found_nothing();
        }
        Found::Others { taken, capacity: found.then_some(capacity) }
    }

    /// Judges a train at a faster pace, or what has passed of it. If it passes, the next one is
    /// faster still.
    fn paced(&mut self, seen: Measured, before: f64) -> Found {
        let capacity = seen.received.min(seen.sent);
        if capacity <= CONFIRMED * before {
            self.found_nothing();
            return Found::Nothing;
        }
        self.wait = 1;
        self.no_bursts = self.outlast.is_there();
        self.next = Some(Purpose::Paced(capacity * PACED));
        self.outlast.grow();
        Found::Capacity(capacity)
    }

    /// Judges a short train, which shows the whole link. If that has become faster, so has our
    /// share of it.
    fn searched(&mut self, seen: Measured, capacity: f64, noise: f64) -> Found {
        let before = core::mem::replace(&mut self.whole, seen.received);
        let share = (capacity * seen.received / before).min(seen.received).min(TRAIN_RATE);
        let confirm = Some(Purpose::Confirm(seen.received.min(TRAIN_RATE)));
        // Used before it is confirmed: to wait for the longer train would cost a round trip.
        if seen.time > CLEAR * noise && share > RISEN * capacity {
            self.next = confirm;
            self.outlast.grow();
            return Found::Capacity(capacity.max(share * TRUST));
        }
        if seen.received > FASTER * capacity {
            self.next = confirm;
        }
        Found::Nothing
    }
}

fn confirming(packets: usize, rate: f64) -> Plan {
    Plan { packets: packets.min(CONFIRM_PACKETS.1), rate, padding: FULL }
}

/// Factor by which all who use a link can grow until they fill it, if others take `taken` of it;
/// all rates in bit/s.
fn fair_growth(link: f64, taken: f64, capacity: f64) -> f64 {
    (link / (taken + capacity)).clamp(1.0, MOST_GROWTH)
}

/// Rate at which others send into a link of this rate, both in bit/s: of two streams that fill a
/// queue served in order, each gets a part of the link in proportion to its rate.
fn taken_by_others(link: f64, seen: Measured) -> f64 {
    (seen.sent * (link / seen.received - 1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(sent: f64, received: f64) -> Measured {
        Measured { sent, received, time: 0.04, error: 0.001 }
    }

    /// The next train, however many rounds it takes.
    fn next(probe: &mut Probe, rate: f64) -> Plan {
        (0..100)
            .find_map(|_| {
                probe.end_round(false, 1000.0);
                probe.next_train(rate, true)
            })
            .expect("a train")
    }

    #[test]
    fn a_faster_link_is_used_once_a_longer_train_confirms_it() {
        let mut probe = Probe::new(10e6, None);
        assert_eq!(next(&mut probe, 10e6).rate, TRAIN_RATE);
        let found = probe.train_came(Ok(measured(TRAIN_RATE, 50e6)), 10e6, 0.0);
        assert!(matches!(found, Found::Capacity(rate) if (45e6..50e6).contains(&rate)));
        assert_eq!(next(&mut probe, 46e6).rate, 50e6 * EXCESS);
        let found = probe.train_came(Ok(measured(62.5e6, 50e6)), 46e6, 0.0);
        let Found::Others { taken, capacity } = found else { panic!("{found:?}") };
        assert!(taken < 1.0 && capacity.is_some_and(|rate| (rate - 50e6).abs() < 1.0));
    }

    #[test]
    fn a_longer_train_shows_what_others_take() {
        let mut probe = Probe::new(50e6, None);
        probe.show_others(50e6);
        let plan = next(&mut probe, 10e6);
        // 62.5 Mbit/s beside 25 get five sevenths of the link.
        let seen = measured(plan.rate, 50e6 * 62.5 / 87.5);
        let Found::Others { taken, .. } = probe.train_came(Ok(seen), 10e6, 0.0) else { panic!() };
        assert!((taken - 25e6).abs() < 1e3, "{taken}");
    }

    #[test]
    fn where_no_burst_passes_faster_paces_are_tried() {
        let mut probe = Probe::new(1e6, None);
        let mut capacity = 1e6;
        next(&mut probe, capacity);
        assert_eq!(probe.train_came(Err(Unmeasured::TooFew), capacity, 0.0), Found::Nothing);
        for _ in 0..3 {
            let plan = next(&mut probe, capacity);
            let seen = measured(plan.rate, plan.rate.min(10e6));
            let found = probe.train_came(Ok(seen), capacity, 0.0);
            let Found::Capacity(rate) = found else { panic!("{found:?} at {capacity}") };
            capacity = rate;
        }
        assert!((capacity - 10e6).abs() < 1.0, "{capacity}");
    }

    #[test]
    fn a_search_does_not_replace_a_train_that_tries_a_faster_pace() {
        let mut probe = Probe::new(1e6, None);
        probe.hurry();
        assert!(probe.is_urgent() && next(&mut probe, 1e6).rate == TRAIN_RATE);
        probe.train_came(Err(Unmeasured::TooFew), 1e6, 0.0);
        assert_eq!(next(&mut probe, 1e6).rate, PACED * 1e6);
        probe.hurry();
        assert!(!probe.is_urgent());
    }

    #[test]
    fn trains_that_find_nothing_become_rare() {
        let mut probe = Probe::new(10e6, None);
        let mut rounds = Vec::new();
        for _ in 0..6 {
            let mut waited = 0;
            while probe.next_train(10e6, true).is_none() {
                probe.end_round(false, 1000.0);
                waited += 1;
            }
            rounds.push(waited);
            probe.train_came(Ok(measured(20e6, 14e6)), 10e6, 0.0);
            if probe.next_train(10e6, true).is_some() {
                probe.train_came(Ok(measured(17.5e6, 10.2e6)), 10e6, 0.0);
            }
        }
        // The first comes after two rounds.
        let later = &rounds[1..];
        assert!(later.windows(2).all(|pair| pair[1] >= pair[0]), "{rounds:?}");
        assert!(later.last() > later.first(), "{rounds:?}");
    }
}
