//! Searches for free capacity: a short train now and then, and a longer one to confirm its result.

use super::super::{FULL, PACKET, Plan, TRAIN_RATE};
use crate::rate::train::Measured;

/// A train that arrived faster than our rate by this factor calls for a longer one.
const FASTER: f64 = 1.3;
/// Maximum time that a short train occupies the link, in seconds, and bounds of its length in
/// packets.
const PROBE: f64 = 0.015;
const PROBE_PACKETS: (usize, usize) = (6, 24);
const CONFIRM: f64 = 0.04;
const CONFIRM_PACKETS: (usize, usize) = (16, 256);
/// Rate of the longer train, relative to the rate it is to confirm.
const EXCESS: f64 = 1.25;
/// A rate is confirmed if the longer train arrives at this fraction of it.
const CONFIRMED: f64 = 0.85;
/// If the link has become faster since the last short train by at least the factor `RISEN`, this
/// fraction of the promised rate is used until the longer train has arrived. The short train must
/// have taken this multiple of the delay variation to be conclusive.
const TRUST: f64 = 0.92;
const RISEN: f64 = 1.1;
const CLEAR: f64 = 8.0;
/// Maximum rounds between trains that find nothing.
const MOST_ROUNDS: u32 = 16;

#[derive(Debug)]
pub(super) struct Probe {
    /// Rounds to wait between trains, and until the next one.
    wait: u32,
    left: u32,
    /// A rate that a train has shown and that awaits confirmation, in bit/s.
    seen: Option<f64>,
    /// The whole link's rate as shown by the last short train, in bit/s.
    whole: Option<f64>,
    under_way: Purpose,
    /// The next train is to show the whole link.
    of_link: bool,
    /// The next train is worth more than the one in flight.
    urgent: bool,
    /// An urgent train is due or in flight.
    hurried: bool,
}

/// Purpose of the train in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    /// To find free capacity.
    Search,
    /// To confirm this rate, in bit/s. A short train shows the rate of the link; a longer one gets
    /// less of it if others send too.
    Confirm(f64),
    /// To show the rate of the whole link behind a queue.
    Link,
}

/// Result of a train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Found {
    Nothing,
    /// This much capacity, in bit/s.
    Capacity(f64),
    /// The rate of the whole link, bit/s.
    Link(f64),
}

impl Probe {
    pub(super) fn new() -> Self {
        Self {
            wait: 1,
            left: 2,
            seen: None,
            whole: None,
            under_way: Purpose::Search,
            of_link: false,
            urgent: false,
            hurried: false,
        }
    }

    /// Searches at once.
    pub(super) fn hurry(&mut self) {
        (self.left, self.wait) = (0, 1);
        self.be_urgent();
    }

    /// Measures the whole link at once.
    pub(super) fn show_link(&mut self) {
        (self.left, self.of_link) = (0, true);
        self.be_urgent();
    }

    fn be_urgent(&mut self) {
        let confirming = matches!(self.under_way, Purpose::Confirm(_));
        if !self.hurried && !confirming {
            (self.hurried, self.urgent) = (true, true);
        }
    }

    /// Whether the next train need not wait for the one that has left.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Ends a round. Behind a queue, trains find only the rate of the whole link.
    pub(super) fn end_round(&mut self, queued: bool, of_link: bool) {
        self.left = self.left.saturating_sub(1);
        if queued {
            self.of_link |= of_link;
            self.left = if self.of_link { 0 } else { self.left.max(1) };
        }
    }

    /// The train due before the next payload.
    pub(super) fn next_train(&mut self, capacity: f64) -> Option<Plan> {
        self.urgent = false;
        if let Some(rate) = self.seen.take() {
            self.under_way = Purpose::Confirm(rate);
            let packets = (capacity * CONFIRM / PACKET) as usize + CONFIRM_PACKETS.0;
            let packets = packets.min(CONFIRM_PACKETS.1);
            return Some(Plan { packets, rate: rate * EXCESS, padding: FULL });
        }
        if self.left > 0 {
            return None;
        }
        self.left = self.wait;
        let of_link = core::mem::take(&mut self.of_link);
        self.under_way = if of_link { Purpose::Link } else { Purpose::Search };
        let packets = (capacity * PROBE / PACKET) as usize;
        let packets = packets.clamp(PROBE_PACKETS.0, PROBE_PACKETS.1);
        Some(Plan { packets, rate: TRAIN_RATE, padding: FULL })
    }

    /// Processes the result of the train in flight, if it has one; `noise` is the delay variation
    /// in seconds.
    pub(super) fn train_came(
        &mut self,
        train: Option<Measured>,
        capacity: f64,
        noise: f64,
    ) -> Found {
        let under_way = core::mem::replace(&mut self.under_way, Purpose::Search);
        self.hurried &= self.urgent;
        match (under_way, train) {
            (Purpose::Link, Some(seen)) => {
                self.whole = Some(seen.received);
                Found::Link(seen.received)
            }
            // Trains are inconclusive on such a path.
            (Purpose::Link, None) => Found::Link(f64::INFINITY),
            (Purpose::Confirm(rate), Some(seen))
                if seen.received > (CONFIRMED * rate).max(capacity) =>
            {
                self.wait = 1;
                Found::Capacity(seen.received)
            }
            (Purpose::Confirm(_), _) => {
                self.wait = (self.wait * 2).min(MOST_ROUNDS);
                Found::Nothing
            }
            (Purpose::Search, Some(seen)) => self.searched(seen, capacity, noise),
            _ => Found::Nothing,
        }
    }

    /// A short train shows the whole link. If that has become faster, so has our
    /// share of it.
    fn searched(&mut self, seen: Measured, capacity: f64, noise: f64) -> Found {
        let before = self.whole.replace(seen.received).unwrap_or(f64::INFINITY);
        let share = (capacity * seen.received / before).min(seen.received).min(TRAIN_RATE);
        if seen.time > CLEAR * noise && share > RISEN * capacity {
            self.seen = Some(share);
            return Found::Capacity(capacity.max(share * TRUST));
        }
        if seen.received > FASTER * capacity {
            self.seen = Some(seen.received.min(TRAIN_RATE));
        }
        Found::Nothing
    }
}
