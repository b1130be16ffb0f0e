//! The link's own losses, told from those of its queue.
//!
//! A link's own losses do not depend on the rate, and are no reason to send less. They are learned
//! from windows without a queue; a queue that overflows only adds to them. Where no queue shows, an
//! overflow looks the same, so losses above [`CREDIBLE`] are not believed: the session falls back
//! to what arrives, which ends an overflow at once. If they stay the same three times, at ever
//! lower rates, they are the link's own.

use units::Instant;

use crate::rate::arrivals::Window;

/// Own losses that are believed without a test, so that fades and bursts up to there are used in
/// full at once. A link that loses more is hardly usable by anything.
const CREDIBLE: f64 = 0.15;
/// Losses that a test has found to be the link's own may rise by this factor without another test.
const VARIES: f64 = 1.25;
/// After this many falls of the rate that did not lower the share lost, each to less than this part
/// of it, it is the link's own.
const FALLS: u32 = 3;
const LOWER: f64 = 0.75;
/// Longest queue, in seconds, with which losses may be the link's own; a longer one overflows.
const UNSEEN: f64 = 0.05;
/// Weight of one window in the mean share of own losses.
const GAIN: f64 = 0.25;
/// Losses beyond the link's own by this many standard deviations plus this share are an overflow …
const SURPRISE: (f64, f64) = (4.0, 0.005);
/// … and losses below them by this many show that they are overestimated.
const UNLIKELY: f64 = 2.0;
/// In a window that lost more the path was down.
const DOWN: f64 = 0.5;

/// A window of packets, and its classification by the queue that they met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) window: Window,
    /// No packet met a queue.
    pub(super) clear: bool,
    /// The shortest queue that a packet met was below half of the target.
    pub(super) nearly_clear: bool,
    /// More was sent than passes a queue too short to see, or the path is policed: such losses do
    /// not raise the link's own.
    pub(super) above: bool,
    /// The capacity believed, in bit/s.
    pub(super) capacity: f64,
    /// Time by which the effect of a rate set now is seen.
    pub(super) effect: Instant,
}

/// Interpretation of a window's losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Meaning {
    /// No more was lost than the link loses by itself, or the path was down.
    Ordinary,
    /// The queue overflows: more was lost than the link's own losses explain.
    Overflow,
    /// The link overflows, whatever the queue looks like: the capacity is no more than what arrives.
    Overload,
    /// They are the link's own, and this was the capacity before they were doubted, in bit/s.
    Own(f64),
}

#[derive(Debug, Default)]
pub(super) struct OwnLoss {
    /// Share that the link loses by itself; `None` until a window without a queue has shown it.
    share: Option<f64>,
    /// Share lost beyond that in the last window.
    excess: f64,
    /// Share above [`CREDIBLE`] that falls of the rate have shown to be the link's own; 0 before.
    tested: f64,
    doubt: Option<Doubt>,
}

/// Losses above [`CREDIBLE`] that falls of the rate have yet to confirm.
#[derive(Debug)]
struct Doubt {
    /// The capacity before, in bit/s.
    capacity: f64,
    missing: f64,
    /// Time by which the effect of the last fall of the rate is seen.
    effect: Instant,
    /// The doubt ends then, unless such losses go on.
    until: Instant,
    falls: u32,
}

impl OwnLoss {
    /// The share that the link loses by itself; 0 while unknown.
    pub(super) fn share(&self) -> f64 {
        self.share.unwrap_or(0.0)
    }

    /// The share lost beyond that in the last window.
    pub(super) fn excess(&self) -> f64 {
        self.excess
    }

    /// The rate on the link, in bit/s, of which `delivered` is left after its own losses.
    pub(super) fn before_loss(&self, delivered: f64) -> f64 {
        delivered / (1.0 - self.share()).max(0.1)
    }

    /// Sets the share, because a test has found it.
    pub(super) fn set(&mut self, share: f64) {
        self.share = Some(share);
    }

    /// Returns `true` if a window lost no more than the link may by itself. Own losses beyond
    /// [`CREDIBLE`] do not count for this.
    pub(super) fn is_ordinary(&self, window: Window) -> bool {
        let share = self.share().min(CREDIBLE);
        window.missing <= share + UNLIKELY * deviation(share, window) + SURPRISE.1
    }

    /// Returns `true` if a window lost more than the link does by itself, if only by a packet.
    /// Behind a long queue this is an overflow.
    pub(super) fn is_exceeded(&self, window: Window) -> bool {
        let share = self.share();
        let packet = 1.0 / packets(window);
        window.missing > share + UNLIKELY * chance(share, window) + packet / 2.0
    }

    /// Learns from a window that ends now.
    pub(super) fn learn(&mut self, now: Instant, case: Case) -> Meaning {
        let window = case.window;
        self.doubt.take_if(|doubt| now > doubt.until);
        if !window.torn && self.is_incredible(window) {
            self.excess = (window.missing - self.share()).max(0.0);
            return self.doubt(now, case);
        }
        // The path was down, which tells nothing about its losses while it is up.
        if window.torn || window.missing > DOWN {
            self.excess = (window.missing - self.share()).max(0.0);
            return Meaning::Ordinary;
        }
        self.share = self.update(case);
        if self.share.is_none() && !case.above {
            return Meaning::Ordinary;
        }
        let share = self.share();
        let limit = share + SURPRISE.0 * deviation(share, window) + SURPRISE.1;
        let overflows = window.missing > limit;
        self.excess = if overflows { window.missing - share } else { 0.0 };
        if overflows { Meaning::Overflow } else { Meaning::Ordinary }
    }

    /// The link's own losses after a window; `None` if they are still unknown.
    fn update(&self, case: Case) -> Option<f64> {
        let missing = case.window.missing;
        let Some(share) = self.share else {
            return ((case.clear || case.nearly_clear) && !case.above).then_some(missing);
        };
        // A queue adds to the losses: it may show that the share is too high, never that it is too
        // low. Otherwise an overestimate of the start would stay as long as a queue stands.
        let lower = missing + UNLIKELY * deviation(share, case.window) < share;
        let learns = lower || (case.clear && !case.above);
        Some(if learns { share + (missing - share) * GAIN } else { share })
    }

    fn is_incredible(&self, window: Window) -> bool {
        let limit = CREDIBLE.max(VARIES * self.tested);
        window.missing > limit + SURPRISE.0 * deviation(limit, window)
    }

    /// Counts a fall of the rate that did not lower the losses. Without this test, a hundred
    /// sessions that had measured each other lost 82 % of their packets, each taking it for random
    /// loss.
    fn doubt(&mut self, now: Instant, case: Case) -> Meaning {
        let missing = case.window.missing;
        let effect = case.effect;
        let unseen = case.window.queue.as_secs_f64() <= UNSEEN;
        let until = effect + effect.saturating_since(now) * 2;
        let begun = Doubt { capacity: case.capacity, missing, effect, until, falls: 0 };
        let doubt = self.doubt.get_or_insert(begun);
        // Until then, windows have packets that were sent at the rate before.
        if now < doubt.effect {
            return Meaning::Overload;
        }
        (doubt.effect, doubt.until) = (effect, until);
        // The link's own losses do not fall with the rate, and make no queue.
        if missing <= LOWER * doubt.missing || !unseen {
            (doubt.missing, doubt.falls) = (missing, 0);
            return Meaning::Overload;
        }
        doubt.falls += 1;
        if doubt.falls < FALLS {
            return Meaning::Overload;
        }
        let capacity = doubt.capacity;
        self.doubt = None;
        (self.tested, self.share) = (missing, Some(missing));
        Meaning::Own(capacity)
    }
}

/// Standard deviation of the share lost in a window, and one packet: a share is known no better.
pub(super) fn deviation(share: f64, window: Window) -> f64 {
    chance(share, window) + 1.0 / packets(window)
}

/// Standard deviation of the share lost in a window, if packets are lost independently.
fn chance(share: f64, window: Window) -> f64 {
    (share * (1.0 - share) / packets(window)).sqrt()
}

/// The number of full packets in a window.
fn packets(window: Window) -> f64 {
    (window.bytes as f64 * 8.0 / super::PACKET).max(1.0)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn window(missing: f64) -> Window {
        Window {
            sent: 10e6,
            delivered: 10e6 * (1.0 - missing),
            missing,
            queue: Duration::ZERO,
            longest: Duration::ZERO,
            latest: Duration::ZERO,
            torn: false,
            noise: Duration::ZERO,
            bytes: 400_000,
        }
    }

    /// What windows mean that come every 100 ms; the effect of a rate is seen after a second.
    fn meanings(missing: impl Fn(u32) -> f64, count: u32) -> Vec<Meaning> {
        let mut loss = OwnLoss::default();
        let case = |n: u32, window| Case {
            window,
            clear: true,
            nearly_clear: true,
            above: false,
            capacity: 10e6,
            effect: at(n + 10),
        };
        (0..count).map(|n| loss.learn(at(n), case(n, window(missing(n))))).collect()
    }

    fn at(tenths: u32) -> Instant {
        Instant::from_nanos(u64::from(tenths) * 100_000_000)
    }

    #[test]
    fn a_tenth_lost_is_believed_at_once() {
        assert!(meanings(|_| 0.1, 50).iter().all(|meaning| *meaning == Meaning::Ordinary));
    }

    #[test]
    fn a_jump_of_losses_overflows() {
        let meanings = meanings(|n| if n < 20 { 0.0 } else { 0.1 }, 21);
        assert_eq!(meanings.last(), Some(&Meaning::Overflow));
    }

    #[test]
    fn many_losses_are_doubted_until_they_have_stayed_three_times() {
        let meanings = meanings(|_| 0.3, 50);
        let own = meanings.iter().position(|meaning| *meaning == Meaning::Own(10e6));
        assert_eq!(own, Some(30), "{meanings:?}");
        assert!(meanings[..30].iter().all(|meaning| *meaning == Meaning::Overload));
        assert!(meanings[31..].iter().all(|meaning| *meaning == Meaning::Ordinary));
    }

    #[test]
    fn losses_that_fall_with_the_rate_are_never_the_links_own() {
        let meanings = meanings(|n| 0.9 * 0.7_f64.powi(n as i32 / 10), 50);
        assert!(!meanings.iter().any(|meaning| matches!(meaning, Meaning::Own(_))));
    }
}
