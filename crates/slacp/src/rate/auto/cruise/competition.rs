//! Senders on the link that fill its queue until it overflows, as TCP does. They ignore the price, so
//! beside them a session keeps at least the rate of one CUBIC connection ([`Cubic`]), whatever the law
//! says.
//!
//! They are noticed by a queue that is too long, too often, for sessions that keep to the law. A
//! mistake costs little: competition begins with a test, and it is over once the queue is short.
//! But the part of the time with a long queue, and the share, are remembered: BBR empties the queue
//! now and then, and stays.
//!
//! Not by a train that shows others, which cannot tell a crowd of sessions from TCP: of 32
//! sessions, a few then kept their rates until the queue overflowed for good.

use units::Instant;

use super::cubic::{Cubic, Times};

/// Time over which the queue is judged, in feedback times, and the part of it for which the queue
/// must be too long: sessions that keep to the law make up for a newcomer in two or three, which is
/// 0.10 to 0.15. Beside BBR it is too long for about half of the time, beside CUBIC for most of it.
const JUDGED: f64 = 20.0;
const PART: f64 = 0.3;
/// Others are gone if the queue has been short for this time, in feedback times.
const GONE: f64 = 1.0;
/// The largest share is forgotten if the queue has been short for this time, in feedback times. BBR
/// pauses for two of them.
const FORGOTTEN: f64 = 10.0;
/// The largest part of the link that is claimed at first. Beside one BBR a session has 0.13, 0.20,
/// 0.24 and 0.27 of its fair share with 0.05, 0.15, 0.25 and 0.5 (bench `rate -- tcp 4`); with 0.35
/// or more, crowds of a hundred strangers overflow the link.
const CLAIM: f64 = 0.25;

/// A session's view of the queue and of its share, at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    /// The queue is longer than any number of sessions would let it be.
    pub(super) long: bool,
    /// The queue is one that sessions might keep. Between the two it is neither.
    pub(super) short: bool,
    /// The queue has lost packets since the last look.
    pub(super) overflows: bool,
    /// Others use the link, as far as trains have shown.
    pub(super) shared: bool,
    /// This session's part of the link, and the rate of the whole link, in bit/s.
    pub(super) share: f64,
    pub(super) link: f64,
    pub(super) times: Times,
}

#[derive(Debug)]
pub(super) struct Competition {
    seen_at: Instant,
    /// Part of the time in which the queue was too long, 0 to 1, averaged exponentially.
    long: f64,
    /// Seconds for which the queue has been short without a break.
    short: f64,
    /// The largest share since others were last gone, in bit/s: the law gives way to them.
    share: f64,
    cubic: Option<Cubic>,
    floor: f64,
}

impl Competition {
    pub(super) fn new(now: Instant) -> Self {
        Self { seen_at: now, long: 0.0, short: 0.0, share: 0.0, cubic: None, floor: 0.0 }
    }

    /// Returns `true` while the session competes.
    pub(super) fn is_there(&self) -> bool {
        self.cubic.is_some()
    }

    /// Least rate that the session keeps beside such senders, in bit/s; 0 without them.
    pub(super) fn floor(&self) -> f64 {
        self.floor
    }

    /// Processes what is seen now: begins or ends competition, and sets [`Self::floor`].
    pub(super) fn look(&mut self, now: Instant, sight: Sight) {
        self.judge(now, sight);
        let times = sight.times;
        if self.short > GONE * times.feedback {
            self.cubic = None;
        } else if self.cubic.is_none() && sight.shared && sight.long && self.long > PART {
            // From the share before the queue was long, not from what others have left of it since:
            // beside eight CUBICs that is 1.17 instead of 0.54 of a fair share.
            let claim = self.share.min(CLAIM * sight.link);
            self.cubic = Some(Cubic::new(now, claim, times));
        }
        self.floor = self.cubic.as_mut().map_or(0.0, |cubic| {
            if sight.overflows {
                cubic.overflow(now, times);
            }
            // A peer may claim that delays its acknowledgements and loses nothing, so that the
            // window grows without end.
            cubic.rate(now, times).min(sight.link)
        });
    }

    fn judge(&mut self, now: Instant, sight: Sight) {
        let passed = now.saturating_since(self.seen_at).as_secs_f64();
        self.seen_at = now;
        let long = if sight.long { 1.0 } else { 0.0 };
        self.long += (long - self.long) * (passed / (JUDGED * sight.times.feedback)).min(1.0);
        self.short = if sight.short { self.short + passed } else { 0.0 };
        // Kept when the queue is short for a moment: BBR empties it every ten seconds, and stays.
        if self.short > FORGOTTEN * sight.times.feedback || sight.share > self.share {
            self.share = sight.share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a queue in ms every 100 ms, with a feedback time of 1 s. Returns the rates that are
    /// kept, in Mbit/s.
    fn floors(queue: impl Fn(u32) -> u32, tenths: u32) -> Vec<f64> {
        let mut competition = Competition::new(at(0));
        let look = |n| {
            let queue = queue(n);
            let sight = Sight {
                long: queue > 75,
                short: queue < 50,
                overflows: queue >= 600,
                shared: true,
                share: 10e6,
                link: 50e6,
                times: Times { queue: f64::from(queue) / 1e3, min_rtt: 0.6, feedback: 1.0 },
            };
            competition.look(at(n), sight);
            competition.floor() / 1e6
        };
        (0..tenths).map(look).collect()
    }

    fn at(tenths: u32) -> Instant {
        Instant::from_nanos(u64::from(tenths) * 100_000_000)
    }

    #[test]
    fn a_queue_that_is_always_long_belongs_to_others() {
        let floors = floors(|_| 300, 250);
        let begin = floors.iter().position(|floor| *floor > 0.0).expect("a floor");
        assert!((85..95).contains(&begin), "{begin}");
        assert!(floors[begin] > 7.0 && floors[249] > 10.0, "{floors:?}");
    }

    #[test]
    fn a_queue_that_is_emptied_now_and_then_is_still_that_of_others() {
        let floors = floors(|n| if n % 100 < 25 { 20 } else { 300 }, 400);
        let kept = floors[250..].iter().filter(|floor| **floor > 0.0).count();
        assert!(kept > 60, "{floors:?}");
        assert!(floors.iter().all(|floor| *floor < 15.0));
    }

    #[test]
    fn a_newcomer_is_no_competition() {
        let floors = floors(|n| if n % 300 < 25 { 300 } else { 30 }, 900);
        assert!(floors.iter().all(|floor| *floor == 0.0));
    }

    /// As a peer may claim that delays its acknowledgements and loses nothing.
    #[test]
    fn no_more_is_kept_than_the_link_has() {
        let floors = floors(|_| 300, 2000);
        assert!(floors[1999] == 50.0 && floors.iter().all(|floor| *floor <= 50.0));
    }

    #[test]
    fn a_mistake_is_over_once_the_queue_is_short() {
        let floors = floors(|n| if n < 100 { 300 } else { 20 }, 150);
        assert!(floors[99] > 0.0);
        assert!(floors[112..].iter().all(|floor| *floor == 0.0));
    }

    #[test]
    fn an_overflow_is_everybodys() {
        let floors = floors(|n| if n % 150 == 149 { 600 } else { 300 }, 400);
        assert!(floors[298] > 7.0 && floors[299] == 0.0 && floors[321] < 0.9 * floors[298]);
    }
}
