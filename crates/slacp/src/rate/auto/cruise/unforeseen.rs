//! The cause of a queue that was not foreseen and does not drain.
//!
//! A train sent into it shows the rate of the whole link, a second one the rate of others on it. If
//! this session has nearly all of the link, the queue is its own; if others have most of the rest,
//! theirs. Otherwise there is room on the link, so there is no queue: the path has become longer.
//! The latter is not concluded from windows with losses, which a longer path does not cause.

use core::time::Duration;

use units::Instant;

use super::LOOK_PACKETS;
use super::PACKET;
use crate::rate::arrivals::Window;

/// A session that gets this part of the link has it to itself.
const ALL: f64 = 0.95;
/// A link of which less than this part is used has no queue.
const ROOM: f64 = 0.7;
/// Others who take less than this part of the link are none.
const SOME: f64 = 0.1;
/// Time that trains have to show something, in round trips; and the least time without losses.
const PATIENCE: u32 = 3;
const AT_LEAST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Unforeseen {
    /// The rate of the whole link as shown since the queue appeared, and that of others, in bit/s;
    /// infinite if it cannot be measured.
    link: Option<f64>,
    taken: Option<f64>,
    /// A train has been asked for that shows the latter.
    asked: bool,
    /// The last time at which more was lost than the link loses by itself.
    lossy: Instant,
}

/// Cause of a queue: the sender to whom it belongs, or a longer path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Whose {
    /// Not known yet: trains are under way, or the present windows do not count.
    Open,
    /// Not known before a train has shown the rate of others on a link of this rate in bit/s.
    Ask(f64),
    Ours,
    Others,
    /// No queue: the path has become longer.
    Path,
    /// Trains show nothing, as on a path that jitters. It may have become longer.
    Unknown,
}

impl Unforeseen {
    pub(super) fn new(now: Instant) -> Self {
        Self { link: None, taken: None, asked: false, lossy: now }
    }

    /// Forgets what trains have shown, because a queue appears.
    pub(super) fn begin(&mut self) {
        (self.link, self.taken, self.asked) = (None, None, false);
    }

    /// Records the link's rate as a train has shown it, in bit/s; infinite if it cannot be
    /// measured.
    pub(super) fn show_link(&mut self, rate: f64) {
        self.link = Some(rate);
    }

    /// Records that a train will show the rate of others.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// Records the rate of others as a train has shown it, in bit/s; infinite if it cannot be
    /// measured.
    pub(super) fn show_taken(&mut self, taken: f64) {
        self.taken = Some(taken);
    }

    /// Judges a queue that has stood since `since`. `share` is this session's part of the link in
    /// bit/s, in a window whose losses are the link's own if `ordinary`.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        since: Instant,
        rtt: Duration,
        window: Window,
        ordinary: bool,
        share: f64,
    ) -> Whose {
        if !ordinary {
            self.lossy = now;
        }
        let patience = rtt * PATIENCE;
        let lossy = now.saturating_since(self.lossy) < patience.max(AT_LEAST);
        let little = (window.bytes as f64) * 8.0 < LOOK_PACKETS * PACKET * 0.9;
        // A longer path causes no losses. A session that took an overflowing queue for the path
        // would see no queue from then on, and push out those that do.
        match self.by_trains(now.saturating_since(since) > patience, share) {
            Whose::Path | Whose::Unknown if lossy || little => Whose::Open,
            whose => whose,
        }
    }

    /// Classifies the queue from the results of trains; `waited`: these have had time enough.
    fn by_trains(&self, waited: bool, share: f64) -> Whose {
        match (self.link, self.taken) {
            (None, _) if !waited => Whose::Open,
            (Some(link), _) if share > ALL * link => Whose::Ours,
            (Some(link), None) if link.is_finite() && self.asked => Whose::Open,
            (Some(link), None) if link.is_finite() => Whose::Ask(link),
            (Some(link), Some(taken)) if link.is_finite() && taken + share > ROOM * link => {
                // With so much of our own, a longer path looks the same.
                if taken > SOME * link { Whose::Others } else { Whose::Open }
            }
            (Some(link), Some(taken)) if link.is_finite() && taken.is_finite() => Whose::Path,
            _ => Whose::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn window(missing: f64) -> Window {
        let ms = Duration::from_millis;
        let (queue, longest, latest) = (ms(100), ms(100), ms(100));
        let noise = Duration::ZERO;
        let (sent, delivered) = (10e6, 10e6 * (1.0 - missing));
        Window {
            sent,
            delivered,
            missing,
            queue,
            longest,
            latest,
            torn: false,
            noise,
            bytes: 400_000,
        }
    }

    fn judge(unforeseen: &mut Unforeseen, share: f64) -> Whose {
        unforeseen.judge(at(11), at(10), RTT, window(0.0), true, share)
    }

    #[test]
    fn trains_show_whose_it_is() {
        let mut unforeseen = Unforeseen::new(at(0));
        unforeseen.begin();
        assert_eq!(judge(&mut unforeseen, 10e6), Whose::Open);
        unforeseen.show_link(50e6);
        assert_eq!(judge(&mut unforeseen, 48e6), Whose::Ours);
        assert_eq!(judge(&mut unforeseen, 10e6), Whose::Ask(50e6));
        unforeseen.ask();
        assert_eq!(judge(&mut unforeseen, 10e6), Whose::Open);
        unforeseen.show_taken(38e6);
        assert_eq!(judge(&mut unforeseen, 10e6), Whose::Others);
        unforeseen.show_taken(1e6);
        assert_eq!(judge(&mut unforeseen, 40e6), Whose::Open);
        assert_eq!(judge(&mut unforeseen, 10e6), Whose::Path);
    }

    #[test]
    fn without_trains_nothing_is_known_in_the_end() {
        let mut unforeseen = Unforeseen::new(at(0));
        let judge = |unforeseen: &mut Unforeseen, now| {
            unforeseen.judge(at(now), at(10), RTT, window(0.0), true, 1e6)
        };
        assert_eq!(judge(&mut unforeseen, 11), Whose::Open);
        assert_eq!(judge(&mut unforeseen, 12), Whose::Unknown);
    }

    #[test]
    fn losses_show_a_queue() {
        let mut unforeseen = Unforeseen::new(at(0));
        unforeseen.show_link(f64::INFINITY);
        let lossy = unforeseen.judge(at(20), at(10), RTT, window(0.2), false, 1e6);
        assert_eq!((lossy, judge(&mut unforeseen, 1e6)), (Whose::Open, Whose::Open));
    }
}
