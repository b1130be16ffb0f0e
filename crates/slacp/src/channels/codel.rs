//! Decides when to drop the head of a lane's queue: CoDel (RFC 8289 §5), and a limit for
//! unresponsive senders.
//!
//! CoDel tolerates queues that absorb bursts, and drops at an increasing rate while the wait stays
//! above its target. If a sender does not slow down on loss, the queue takes minutes to shrink over
//! a hop of 600 ms. So once the wait has been too long for [`PATIENCE`] intervals of dropping,
//! every packet that has waited for the target plus [`SLACK`] is dropped.
//!
//! Not modelled: marking instead of dropping. The ECN bits of the packets in the tunnel are not
//! changed.

use core::time::Duration;

use units::Instant;

/// Number of ineffective dropping intervals after which a sender counts as unresponsive.
const PATIENCE: u32 = 4;
/// Minimum time beyond the target that a packet of an unresponsive sender may wait.
const SLACK: Duration = Duration::from_millis(20);
/// A queue of this many packets is no standing queue: each packet waits for the one before it,
/// however short the queue is kept (RFC 8289 §4.4).
const MIN_STANDING: u32 = 3;

/// The two parameters of RFC 8289 §4, and the slack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoDelParams {
    /// Acceptable wait in a standing queue.
    pub(crate) target: Duration,
    /// Estimated round-trip time of the flows in the channel.
    pub(crate) interval: Duration,
    /// Time beyond the target that a packet of an unresponsive sender may wait.
    slack: Duration,
}

impl CoDelParams {
    /// Parameters for flows over a hop with this round-trip time, on which a full packet takes
    /// `packet_time`. The interval is the RTT, at least the RFC's 100 ms. The target is a twentieth
    /// of it, at least the time of [`MIN_STANDING`] packets.
    pub(crate) fn new(rtt: Duration, packet_time: Duration) -> Self {
        let interval = rtt.max(Duration::from_millis(100));
        let target = (interval / 20).max(packet_time * MIN_STANDING);
        Self { target, interval, slack: SLACK.max(packet_time) }
    }
}

/// The state of RFC 8289 §5.2, per queue.
#[derive(Debug, Default)]
pub(crate) struct CoDel {
    /// The time at which the wait will have exceeded the target for a full interval.
    first_above: Option<Instant>,
    /// The time at which dropping started, while it lasts.
    dropping: Option<Instant>,
    drop_next: Instant,
    count: u64,
    last_count: u64,
}

impl CoDel {
    /// Returns `true` if the head of the queue, which has waited for `wait`, is to be dropped. The
    /// `last` packet in the queue is never dropped.
    pub(crate) fn should_drop(
        &mut self,
        now: Instant,
        wait: Duration,
        last: bool,
        law: &CoDelParams,
    ) -> bool {
        let bad = self.is_above_target(now, wait, last, law);
        match self.dropping {
            None if bad => {
                self.start_dropping(now, law);
                true
            }
            Some(_) if !bad => {
                self.dropping = None;
                false
            }
            // The sender has not reacted to the drops so far: without this case, packets of a UDP
            // flow of 13 Mbit/s over 10 wait for the whole queue time, 503 instead of 54 ms.
            Some(since)
                if now >= since + law.interval * PATIENCE && wait > law.target + law.slack =>
            {
                true
            }
            Some(_) if now >= self.drop_next => {
                self.count += 1;
                self.drop_next = self.next_drop(self.drop_next, law);
                true
            }
            _ => false,
        }
    }

    /// §5.4, `dodequeue`: returns `true` if the wait has been above the target for an interval.
    fn is_above_target(
        &mut self,
        now: Instant,
        wait: Duration,
        last: bool,
        law: &CoDelParams,
    ) -> bool {
        if wait < law.target || last {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + law.interval)
    }

    /// §5.5: starts dropping, at nearly the previous rate if that was recent.
    fn start_dropping(&mut self, now: Instant, law: &CoDelParams) {
        self.dropping = Some(now);
        let delta = self.count.saturating_sub(self.last_count);
        // Within 16 intervals the previous drop rate is a good estimate (RFC 8289 §5.5).
        let recent = now.saturating_since(self.drop_next) < law.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.next_drop(now, law);
    }

    /// §5.3: the more drops there have been, the shorter the interval to the next.
    fn next_drop(&self, from: Instant, law: &CoDelParams) -> Instant {
        from + law.interval.div_f64((self.count as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: CoDelParams = CoDelParams {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        slack: SLACK,
    };

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// When packets are dropped if every head has waited for `wait` and one is sent per
    /// millisecond.
    fn drops(wait: Duration, until: u64) -> Vec<u64> {
        let mut codel = CoDel::default();
        let mut drops = Vec::new();
        for at in 0..until {
            while codel.should_drop(ms(1000 + at), wait, false, &LAW) {
                drops.push(at);
                assert!(drops.len() < 10_000);
            }
        }
        drops
    }

    /// 1,450 bytes take 90.6 ms at 128 kbit/s.
    #[test]
    fn on_a_slow_link_a_queue_of_a_few_packets_is_left_alone() {
        let (rtt, packet_time) = (Duration::from_millis(600), Duration::from_micros(90_625));
        let law = CoDelParams::new(rtt, packet_time);
        assert_eq!((law.target, law.slack), (packet_time * 3, packet_time));
        let mut codel = CoDel::default();
        assert!((0..10_000).all(|at| !codel.should_drop(ms(at), packet_time * 2, false, &law)));
        let fast = CoDelParams::new(rtt, Duration::from_millis(1));
        assert_eq!((fast.target, fast.interval, fast.slack), (rtt / 20, rtt, SLACK));
    }

    #[test]
    fn a_wait_below_the_target_drops_nothing() {
        assert!(drops(Duration::from_millis(4), 5000).is_empty());
    }

    /// §5.3: one interval after the wait first exceeded the target, and then after 100, 100 / √2,
    /// 100 / √3, … ms.
    #[test]
    fn a_long_wait_drops_at_the_times_of_the_control_law() {
        let expected: Vec<u64> = (0..6)
            .scan(100.0, |at, count| {
                let now = *at;
                *at += 100.0 / f64::sqrt(f64::from(count + 1));
                Some(f64::ceil(now) as u64)
            })
            .collect();
        assert_eq!(drops(Duration::from_millis(6), 425), expected);
    }

    #[test]
    fn a_deaf_sender_gets_no_more_than_the_target_and_a_little() {
        let mut codel = CoDel::default();
        for at in 0..500 {
            codel.should_drop(ms(at), Duration::from_millis(200), false, &LAW);
        }
        for at in 500..550 {
            assert!(codel.should_drop(ms(at), Duration::from_millis(26), false, &LAW));
        }
        assert!(!codel.should_drop(ms(551), Duration::from_millis(4), false, &LAW));
        assert!(!codel.should_drop(ms(552), Duration::from_millis(26), false, &LAW));
    }

    #[test]
    fn the_last_packet_is_no_standing_queue() {
        let mut codel = CoDel::default();
        for at in 0..2000 {
            assert!(!codel.should_drop(ms(at), Duration::from_millis(50), true, &LAW));
        }
    }
}
