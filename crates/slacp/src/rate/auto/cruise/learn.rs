//! Learning the capacity from arrivals and losses.

use core::time::Duration;

use units::Instant;

use super::super::SLOWEST;
use super::loss::{Case, Meaning};
use super::{Cruise, DROP, EMPTY, FULL, OVERFLOW};
use crate::rate::arrivals::Window;

/// Weight of one sample, unless the capacity has dropped.
const GAIN: f64 = 0.25;
/// Pauses in the arrivals count as slowness only after this time: a path that becomes longer pauses
/// once.
const PAUSE: Duration = Duration::from_secs(1);
/// A window with pauses that was sent at less than this fraction of the capacity is one without
/// enough to send.
const IDLE: f64 = 0.5;
/// Losses beyond the link's own from which an overflow without a queue may be a bucket's.
const MUCH: f64 = 0.05;

impl Cruise {
    /// Learns the capacity from a window whose newest packet was sent at `newest`; `part` of a feedback
    /// time has passed.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        rtt: Duration,
        window: Window,
        newest: Instant,
        part: f64,
    ) {
        let idle = self.is_idle(window);
        self.torn_since = (window.torn && !idle).then(|| self.torn_since.unwrap_or(now));
        let paused = self.torn_since.is_some_and(|since| now.saturating_since(since) < PAUSE);
        let mut stands = window.queue.as_secs_f64() > self.stands_above();
        // A train behind a bucket loses packets and takes tokens from those that follow: counted,
        // this lowered a rate of 1 Mbit/s for seconds after each train.
        if self.policing.as_ref().is_some_and(|policing| policing.has_train(now, newest)) {
            return;
        }
        if !self.overflow_test.marks(newest) {
            // A queue that overflows stands, even if it is too short to see.
            stands |= self.learn_loss(now, rtt, window) == Meaning::Overflow;
        }
        // Nothing waits behind a bucket, so where a queue stands there is none, or it does not
        // matter.
        if window.queue.as_secs_f64() > self.target() / 2.0 {
            self.policing = None;
            self.probe.forget_bucket();
        }
        if self.policing.is_some() {
            if !idle && !paused {
                self.hold(now, window, part);
            }
            return;
        }
        self.follow_arrivals(window, stands, !idle && !paused);
    }

    /// Moves the capacity towards what arrives, if a queue stands and the arrivals count, or if
    /// more arrives than the capacity.
    fn follow_arrivals(&mut self, window: Window, stands: bool, counts: bool) {
        let share = self.loss.before_loss(window.delivered);
        if !stands {
            // More arrives than was sent when the path becomes shorter.
            let proven = share.min(window.sent);
            return self.approach(proven.max(self.capacity), GAIN);
        }
        // With a queue the link gives all it has, if we sent that much; and at least what arrives,
        // if that exceeds what was sent.
        let full = window.sent > FULL * self.capacity || share < 0.95 * window.sent;
        let more = share > self.capacity.max(1.05 * window.sent);
        if (full || more) && counts {
            let gain = if share < DROP * self.capacity { 1.0 } else { GAIN };
            self.approach(share, gain);
        }
    }

    /// Returns `true` if the sender had too little to send, so that pauses in the arrivals are its
    /// own.
    pub(super) fn is_idle(&self, window: Window) -> bool {
        window.torn && window.sent < IDLE * self.capacity
    }

    /// Lowers the share of a session that sends little towards the fair one, for `part` of a
    /// feedback time: it has no arrivals from which to learn that its share has become smaller.
    pub(super) fn yield_unheard(&mut self, part: f64) {
        let lowered = self.price.lowered(&self.law, self.link(), self.capacity, part);
        self.capacity = lowered.max(SLOWEST);
    }

    fn approach(&mut self, share: f64, gain: f64) {
        let next = self.capacity + (share - self.capacity) * gain;
        // The ceiling bounds growth in a round, but must not take away what a train has shown.
        self.capacity = next.min(self.ceiling.max(self.capacity)).max(SLOWEST);
    }

    /// Handles losses beyond the link's own without a queue. If the path is known to be policed, if
    /// a train has promised more, or if others seem to use the link, they are a bucket's, and the
    /// rate of the arrivals is that of its tokens.
    fn exceeds_bucket(&mut self, now: Instant, window: Window, effect: Instant) {
        // What arrived of less than the capacity is no measure of the tokens.
        if window.sent < FULL * self.capacity {
            return;
        }
        // What is believed to be the link's own loss has just begun, if this is a bucket's.
        let passes = match self.policing {
            Some(_) => self.loss.before_loss(window.delivered),
            None => window.delivered,
        };
        let passes = passes.max(SLOWEST);
        let refuted = self.probe.refute(passes);
        if !(refuted || self.shared || self.policing.is_some()) {
            return;
        }
        self.capacity = passes;
        // Until that is in effect, later windows show it better.
        if self.policing.as_ref().is_none_or(|policing| policing.is_in_effect(now)) {
            self.police(effect);
        }
    }

    fn learn_loss(&mut self, now: Instant, rtt: Duration, window: Window) -> Meaning {
        let longest = window.longest.as_secs_f64();
        // Behind a bucket there is no queue that could be short.
        let room = if self.policing.is_some() { f64::INFINITY } else { self.room };
        let case = Case {
            window,
            clear: longest < EMPTY * self.smooth_target().min(room / OVERFLOW) + self.noise,
            nearly_clear: window.queue.as_secs_f64() < self.target() / 2.0,
            above: self.overflow_test.is_above(window.sent) || self.policing.is_some(),
            capacity: self.capacity,
            effect: now + self.feedback(rtt),
        };
        let meaning = self.loss.learn(now, case);
        match meaning {
            Meaning::Ordinary => return meaning,
            Meaning::Overflow => self.room = self.room.min(longest * OVERFLOW),
            // A bucket's overload is for `exceeds_bucket`.
            Meaning::Overload if self.policing.is_some() && case.clear => {}
            Meaning::Overload => self.fall_to(window.delivered),
            Meaning::Own(capacity) => {
                (self.capacity, self.ceiling) = (capacity, capacity);
                self.policing = None;
            }
        }
        let much = meaning == Meaning::Overload || self.loss.excess() > MUCH;
        if much && case.clear && !matches!(meaning, Meaning::Own(_)) {
            self.exceeds_bucket(now, window, case.effect);
        }
        self.boost = 1.0;
        self.overflowing |= !matches!(meaning, Meaning::Own(_));
        meaning
    }
}
