//! How the capacity is learned from what arrives, and from what is lost.

use core::time::Duration;

use units::Instant;

use super::super::SLOWEST;
use super::loss::{Case, Meaning};
use super::{Cruise, DROP, EMPTY, FULL, OVERFLOW};
use crate::rate::arrivals::Window;

/// Weight of one sample, unless the capacity has dropped.
const GAIN: f64 = 0.25;
/// How long pauses in the arrivals may last before they count as slowness: a path that becomes
/// longer pauses once.
const PAUSE: Duration = Duration::from_secs(1);
/// A window with pauses that was sent at less than this fraction of the capacity is one without
/// enough to send.
const IDLE: f64 = 0.5;
/// So much lost at once shows the rate of a bucket.
const MUCH: f64 = 0.05;

impl Cruise {
    /// Learns the capacity from a window whose newest packet was sent at `newest`; `part` of a feedback
    /// time has passed.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        rtt: Duration,
        window: Window,
        (newest, part): (Instant, f64),
    ) {
        let idle = self.is_idle(window);
        self.torn_since = (window.torn && !idle).then(|| self.torn_since.unwrap_or(now));
        let paused = self.torn_since.is_some_and(|since| now.saturating_since(since) < PAUSE);
        let mut stands = window.queue.as_secs_f64() > self.stands_above();
        // What a train loses behind a bucket, and leaves of its tokens, is not for the rate.
        if self.policing.as_ref().is_some_and(|policing| policing.has_train(now, newest)) {
            return;
        }
        if !self.overflow_test.marks(newest) {
            // A queue that overflows stands, even if it is too short to see.
            stands |= self.learn_loss(now, rtt, window) == Meaning::Overflow;
        }
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
        if (full || more) && !idle && !paused {
            let gain = if share < DROP * self.capacity { 1.0 } else { GAIN };
            self.approach(share, gain);
        }
    }

    /// Whether pauses in the arrivals are our own, and so say nothing.
    pub(super) fn is_idle(&self, window: Window) -> bool {
        window.torn && window.sent < IDLE * self.capacity
    }

    /// A session that sends little does not learn from arrivals how its share falls in `part` of a
    /// feedback time.
    pub(super) fn yield_unheard(&mut self, part: f64) {
        let lowered = self.price.lowered(&self.law, self.link(), self.capacity, part);
        self.capacity = lowered.max(SLOWEST);
    }

    fn approach(&mut self, share: f64, gain: f64) {
        let next = self.capacity + (share - self.capacity) * gain;
        self.capacity = next.min(self.ceiling.max(self.capacity)).max(SLOWEST);
    }

    /// More was lost than the link loses, and there was no queue. If the path is known to be policed,
    /// if a train has promised more, or if others seem to use the link, it is a bucket, and what came
    /// is what it lets pass.
    fn exceeds_bucket(&mut self, now: Instant, window: Window, effect: Instant) {
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
