//! The search for capacity that has become free: a short train now and then,
//! and a longer one to confirm what it has shown.

use super::super::{PACKET, Plan, TRAIN_RATE};
use crate::rate::train::Measured;

/// A train that came so much faster than we send calls for a longer one.
const FASTER: f64 = 1.3;
/// How long trains may occupy the link, in seconds, and how many packets they
/// have.
const PROBE: f64 = 0.015;
const PROBE_PACKETS: (usize, usize) = (6, 24);
const CONFIRM: f64 = 0.04;
const CONFIRM_PACKETS: (usize, usize) = (16, 256);
/// By how much the longer train is faster than what it is to confirm.
const EXCESS: f64 = 1.25;
/// A rate is confirmed if the longer train came at this share of it.
const CONFIRMED: f64 = 0.85;
/// Until the longer train has come, this share of what the short one promises is
/// used, if the link has become faster since the last one; and the train must
/// have taken so many times what delays vary by, or it says nothing about that.
const TRUST: f64 = 0.92;
const RISEN: f64 = 1.1;
const CLEAR: f64 = 8.0;
/// Rounds between trains that found nothing, at most.
const MOST_ROUNDS: u32 = 16;

#[derive(Debug)]
pub(super) struct Probe {
    /// Rounds to wait between trains, and until the next one.
    wait: u32,
    left: u32,
    /// A rate that a train has shown and that is to be confirmed.
    seen: Option<f64>,
    /// What the last short train has shown, of the whole link.
    whole: Option<f64>,
    under_way: Purpose,
    /// The next train is to show the whole link.
    of_link: bool,
    /// The next train is worth more than the one under way.
    urgent: bool,
    /// An urgent train is due or under way.
    hurried: bool,
}

/// What the train under way is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    /// To find free capacity.
    Search,
    /// To confirm that it is so much, bit/s. A short train shows the rate of the
    /// link; a longer one gets less of it if others send too.
    Confirm(f64),
    /// To show the whole link behind a queue.
    Link,
}

/// What a train has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Found {
    Nothing,
    /// So much capacity, bit/s.
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

    /// There is reason to look at once.
    pub(super) fn hurry(&mut self) {
        (self.left, self.wait) = (0, 1);
        self.be_urgent();
    }

    /// There is reason to look at the whole link at once.
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

    /// Whether the next train is not to wait for the one that has left.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// A round is over; trains find nothing behind a queue, except the whole
    /// link.
    pub(super) fn end_round(&mut self, queued: bool, of_link: bool) {
        self.left = self.left.saturating_sub(1);
        if queued {
            self.of_link |= of_link;
            self.left = if self.of_link { 0 } else { self.left.max(1) };
        }
    }

    /// The train that is due when payload is about to leave.
    pub(super) fn next_train(&mut self, capacity: f64) -> Option<Plan> {
        self.urgent = false;
        if let Some(rate) = self.seen.take() {
            self.under_way = Purpose::Confirm(rate);
            let packets = (capacity * CONFIRM / PACKET) as usize + CONFIRM_PACKETS.0;
            let packets = packets.min(CONFIRM_PACKETS.1);
            return Some(Plan { packets, rate: rate * EXCESS });
        }
        if self.left > 0 {
            return None;
        }
        self.left = self.wait;
        let of_link = core::mem::take(&mut self.of_link);
        self.under_way = if of_link { Purpose::Link } else { Purpose::Search };
        let packets = (capacity * PROBE / PACKET) as usize;
        let packets = packets.clamp(PROBE_PACKETS.0, PROBE_PACKETS.1);
        Some(Plan { packets, rate: TRAIN_RATE })
    }

    /// Takes what the train under way has measured, if it has, where delays vary
    /// by so many seconds.
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
            // Trains say nothing about such a path.
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
