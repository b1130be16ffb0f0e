//! The rate behind a token bucket.
//!
//! Nothing waits there, so the only signal is loss, which is as large as the excess over the
//! bucket's rate. The law is an integrator: in a feedback time the capacity changes by half of what
//! was lost beyond the link's own losses and [`TOLERATED`], so that its loop has a gain of ½ (π/2
//! would oscillate). While nothing is lost it grows, at first by what is tolerated and then faster.

use units::Instant;

use super::{Cruise, FULL};
use crate::rate::arrivals::Window;

/// Gain of the integrator, per feedback time.
const GAIN: f64 = 0.5;
/// The share that is lost in equilibrium.
const TOLERATED: f64 = 0.005;
/// Growth in a feedback time becomes faster by this factor with each round without loss, and at
/// most this much. Not derived: 13 rounds to 5 %. A bucket of 1.5 MB lets 5 % pass for 8 s, so
/// faster growth overshoots more.
const FASTER: f64 = 1.2;
const GROWTH: f64 = 0.05;
/// Losses are the link's own if they have fallen by less than half of what they would have behind a
/// bucket, once the capacity has fallen by this part, in this many feedback times at least: the
/// mean share lost follows behind.
const FALLEN: f64 = 0.05;
const SETTLED: f64 = 6.0;

/// A path behind a bucket.
#[derive(Debug)]
pub(super) struct Policing {
    /// Losses before this are those of an earlier rate.
    effect: Instant,
    /// When the first packets of a train were sent, and until when windows contain some.
    train: Option<(Instant, Option<Instant>)>,
    /// The mean share that is lost.
    lost: f64,
    growth: f64,
    fall: Option<Fall>,
}

/// A fall of the capacity.
#[derive(Debug)]
struct Fall {
    /// The capacity when it began, in bit/s.
    from: f64,
    /// The greatest mean share lost.
    lost: f64,
    /// Its duration so far, in feedback times.
    lasted: f64,
}

impl Policing {
    /// A bucket whose rate is in effect from then on, on a link that loses the share `own` by itself.
    pub(super) fn new(effect: Instant, own: f64) -> Self {
        Self { effect, train: None, lost: own, growth: TOLERATED, fall: None }
    }

    /// Returns `true` if windows that end now have only packets sent at the present rate.
    pub(super) fn is_in_effect(&self, now: Instant) -> bool {
        now >= self.effect
    }

    /// Records that a train is sent from now on, whose losses do not count.
    pub(super) fn train_leaves(&mut self, now: Instant) {
        self.train = Some((now, None));
    }

    /// Records that the train has arrived; windows contain packets of it until `until`.
    pub(super) fn train_came(&mut self, until: Instant) {
        self.train = self.train.map(|(from, _)| (from, Some(until)));
    }

    /// Returns `true` if a window that ends now, with a packet sent at `newest`, has packets of a
    /// train.
    pub(super) fn has_train(&self, now: Instant, newest: Instant) -> bool {
        self.train.is_some_and(|(from, until)| newest >= from && until.is_none_or(|end| now < end))
    }

    /// The fraction by which the capacity changes after a window that lost the share `missing` of
    /// the capacity, of which the link loses `own`; `part` of a feedback time has passed, at most
    /// one.
    fn change(&mut self, missing: f64, own: f64, part: f64) -> f64 {
        self.lost += (missing - self.lost) * GAIN * part;
        // The mean resets the growth; the capacity follows each window.
        if self.lost > own + TOLERATED {
            self.growth = TOLERATED;
        }
        let lost = (missing - own).max(0.0);
        let growth = if lost > TOLERATED { TOLERATED } else { self.growth };
        GAIN * part * (growth - lost)
    }

    /// The share that the link loses by itself, if it differs from `own`: losses do not fall with
    /// the capacity, or are less than half of `own`.
    fn own_loss(&mut self, own: f64, capacity: f64, part: f64) -> Option<f64> {
        if self.lost <= own + TOLERATED {
            self.fall = None;
            return (self.lost < own / 2.0).then_some(self.lost);
        }
        let begun = Fall { from: capacity, lost: 0.0, lasted: 0.0 };
        let fall = self.fall.get_or_insert(begun);
        (fall.lost, fall.lasted) = (fall.lost.max(self.lost), fall.lasted + part);
        let fallen = 1.0 - capacity / fall.from;
        let settled = self.fall.take_if(|fall| fallen >= FALLEN && fall.lasted >= SETTLED)?;
        // A bucket loses what exceeds its rate, so its losses fall by as much as the capacity.
        let by_bucket = (settled.lost - fallen).max(0.0);
        (self.lost > (by_bucket + settled.lost) / 2.0).then_some(self.lost)
    }

    /// Ends a round; `used`: all of the capacity was sent in it. Only then may the growth become
    /// faster.
    pub(super) fn end_round(&mut self, used: bool, own: f64) {
        if used && self.lost <= own + TOLERATED {
            self.growth = (self.growth * FASTER).min(GROWTH);
        }
    }
}

impl Cruise {
    /// Learns the capacity from a window behind a bucket; `part` of a feedback time has passed.
    pub(super) fn hold(&mut self, now: Instant, window: Window, part: f64) {
        let own = self.loss.share();
        let used = window.sent > FULL * self.capacity;
        // After a pause, a window shows no more than one without it.
        let part = part.min(1.0);
        // As a share of the capacity, which is what the change is relative to.
        let missing = window.missing * (window.sent / self.capacity).min(1.0);
        let Some(policing) = &mut self.policing else { return };
        if !policing.is_in_effect(now) {
            return;
        }
        let change = policing.change(missing, own, part);
        if let Some(share) = policing.own_loss(own, self.capacity, part) {
            self.loss.set(share);
        }
        // Without losses, a sender with little data shows nothing about a higher rate.
        if used || change < 0.0 {
            self.capacity = (self.capacity * (1.0 + change)).max(super::super::SLOWEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The capacity relative to the bucket's rate, and the mean share lost, over the last half of
    /// `count` feedback times of a tenth each, if the link loses `own` by itself. Losses are seen a
    /// feedback time later.
    fn follow(from: f64, own: f64, count: usize) -> (f64, f64, f64) {
        let mut policing = Policing::new(Instant::ZERO, 0.0);
        let (mut capacity, mut known) = (from, 0.0);
        let mut history = vec![from; 10];
        let (mut lost, mut sum, mut counted) = (0.0, 0.0, 0.0);
        for step in 0..count * 10 {
            let sent: f64 = history[history.len() - 10];
            let missing = 1.0 - (1.0 / sent).min(1.0) * (1.0 - own);
            capacity *= 1.0 + policing.change(missing, known, 0.1);
            known = policing.own_loss(known, capacity, 0.1).unwrap_or(known);
            if step % 10 == 9 {
                policing.end_round(true, known);
            }
            history.push(capacity);
            if step >= count * 5 {
                (lost, sum, counted) = (lost + missing, sum + capacity, counted + 1.0);
            }
        }
        (sum / counted, lost / counted, known)
    }

    #[test]
    fn the_rate_of_the_bucket_is_kept_with_few_losses() {
        for from in [0.5, 0.97, 1.0, 1.3] {
            let (capacity, lost, own) = follow(from, 0.0, 400);
            assert!((0.97..1.02).contains(&capacity) && lost < 0.012, "{from}: {capacity} {lost}");
            assert_eq!(own, 0.0, "{from}");
        }
    }

    #[test]
    fn what_the_link_loses_by_itself_is_no_reason_to_send_less() {
        for own in [0.01, 0.05] {
            let (capacity, lost, known) = follow(1.0, own, 400);
            assert!((0.9..1.03).contains(&capacity), "{own}: {capacity}");
            assert!(
                (lost - own).abs() < 0.02 && (known - own).abs() < 0.01,
                "{own}: {lost} {known}"
            );
        }
    }

    #[test]
    fn losses_of_trains_and_of_earlier_rates_do_not_count() {
        let at = Instant::from_nanos;
        let mut policing = Policing::new(at(100), 0.0);
        assert!(!policing.is_in_effect(at(99)) && policing.is_in_effect(at(100)));
        policing.train_leaves(at(200));
        assert!(!policing.has_train(at(250), at(199)) && policing.has_train(at(250), at(200)));
        policing.train_came(at(400));
        assert!(policing.has_train(at(399), at(300)) && !policing.has_train(at(400), at(300)));
    }
}
