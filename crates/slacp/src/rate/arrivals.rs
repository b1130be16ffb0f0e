//! Queueing delay and arrival rate of our packets, by the peer's clock.
//!
//! The two clocks have an arbitrary offset and drift apart slowly. So only differences between
//! times of the same clock are used, and one-way delays only relative to their recent minimum.
//! Neither a queue on the return path nor late or lost acknowledgements disturb these measurements.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use crate::spare::FreeSpare as _;

/// Apparent rise of the path's own delay, relative to the time: two clocks that are off by 100 ppm
/// in opposite directions (IEEE 802.3 allows that much), and satellites in low orbits that recede
/// (7 km/s both up and down: 50 ppm).
pub(crate) const DRIFT: f64 = 250e-6;

/// Between two arrivals the path was down if less than this fraction of the packets arrived.
const DOWN: f64 = 0.5;

/// Maximum rise of the base for slower links without a measurement, in µs: the time of a packet at
/// 480 kbit/s.
const LENGTHENED: f64 = 25_000.0;

/// Weight of one sample in the mean noise.
const NOISE_GAIN: f64 = 1.0 / 16.0;

/// A sample counts for at most this multiple of the mean plus this many µs: the bends where a queue
/// begins and ends are not noise.
const NOISE_STEP: (f64, f64) = (4.0, 500.0);

/// Length of the history kept, and of the longest window in it.
const KEPT: Duration = Duration::from_secs(2);
pub(crate) const LONGEST: Duration = Duration::from_millis(1500);
/// This many arrivals without a pause are kept for longer: at the slowest rate a full packet takes
/// 1.2 s. With 2 s, a session that a crowd had pushed to 20 kbit/s learned nothing, and stayed
/// there.
const SPARSE: (usize, Duration) = (4, Duration::from_secs(8));

/// The newest packet of an acknowledgement, as the peer received it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Arrival {
    /// Time at which it was sent, by our clock.
    pub(crate) sent: Instant,
    /// Time at which it arrived, in µs of the peer's clock.
    pub(crate) arrived: i64,
    /// All bytes sent up to and including it: by the session, and over the link, if that is shared
    /// with other sessions.
    pub(crate) sent_bytes: u64,
    pub(crate) link_bytes: u64,
    /// All bytes acknowledged by then.
    pub(crate) delivered: u64,
}

impl Arrival {
    /// The one-way delay in µs, plus the unknown clock offset.
    fn delay(&self) -> i64 {
        self.arrived - micros(self.sent)
    }
}

/// Summary of the packets between two [`Arrival`]s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    /// The rates in bit/s at which they were sent, and at which they were acknowledged. On a shared
    /// link, of everything sent between them.
    pub(crate) sent: f64,
    pub(crate) delivered: f64,
    /// The fraction that is not acknowledged.
    pub(crate) missing: f64,
    /// The shortest queueing delay among them, relative to the path's minimum.
    pub(crate) queue: Duration,
    /// The longest queueing delay among them.
    pub(crate) longest: Duration,
    /// The queueing delay of the newest.
    pub(crate) latest: Duration,
    /// A single pause took more than half of the time.
    pub(crate) torn: bool,
    /// Mean variation of the delay from packet to packet.
    pub(crate) noise: Duration,
    /// Size of the packets in bytes.
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// The peer's clock as received, and unwrapped.
    clock: Option<(u32, i64)>,
    recent: VecDeque<Arrival>,
    /// The path's own delay in µs, plus the offset of the clocks, as of that time.
    base: Option<(f64, Instant)>,
    /// Mean deviation of delays from the line through their neighbours, in µs.
    noise: f64,
    /// Rise of the base by [`Self::lengthen`] since it was measured, in µs.
    lengthened: f64,
}

impl Arrivals {
    /// Unwraps the peer's clock, in µs.
    pub(crate) fn unwrap_clock(&mut self, clock: u32) -> i64 {
        let time = match self.clock {
            None => i64::from(clock),
            Some((last, time)) => time + i64::from(clock.wrapping_sub(last) as i32),
        };
        self.clock = Some((clock, time));
        time
    }

    /// Records an arrival, unless it is older than the last one.
    pub(crate) fn enter(&mut self, now: Instant, arrival: Arrival) {
        if self.recent.back().is_some_and(|last| last.arrived >= arrival.arrived) {
            return;
        }
        // Arrivals from before a pause of the sender are no measure of the present rate.
        let paused = self.recent.back().is_some_and(|last| last.sent + KEPT < arrival.sent);
        self.enter_delay(now, arrival.delay());
        self.recent.push_back(arrival);
        self.enter_noise();
        let few = if paused { 0 } else { SPARSE.0 };
        let kept = |count: usize| if count > few { KEPT } else { SPARSE.1 };
        while let Some(first) = self.recent.front()
            && first.sent + kept(self.recent.len()) < arrival.sent
        {
            self.recent.pop_front();
        }
    }

    /// Records a one-way delay in µs, plus the offset of the clocks.
    pub(crate) fn enter_delay(&mut self, now: Instant, delay: i64) {
        if self.base.is_none_or(|(base, _)| (delay as f64) < base) {
            self.lengthened = 0.0;
        }
        // The base rises with the drift of the clocks, so that an old minimum does not stay for
        // ever.
        let risen = |(base, since): (f64, Instant)| {
            base + DRIFT * 1e6 * now.saturating_since(since).as_secs_f64()
        };
        let base = self.base.map_or(f64::INFINITY, risen);
        self.base = Some((base.min(delay as f64), now));
    }

    /// Raises the base by this much, because the link takes longer to send a packet; below 0 lowers
    /// it again, as far as it had been raised.
    pub(crate) fn lengthen(&mut self, seconds: f64) {
        let more = (seconds * 1e6).clamp(-self.lengthened, LENGTHENED - self.lengthened);
        self.lengthened += more;
        if let Some((base, _)) = &mut self.base {
            *base += more;
        }
    }

    /// Learns the noise from the newest three delays. A queue grows and shrinks linearly;
    /// deviations are jitter, or time slots of the link.
    fn enter_noise(&mut self) {
        let mut delays = self.recent.iter().rev().map(Arrival::delay);
        let Some(c) = delays.next() else { return };
        let Some(b) = delays.next() else { return };
        let Some(a) = delays.next() else { return };
        // The distance of the middle one from the line through its neighbours.
        let off = (a - 2 * b + c).unsigned_abs() as f64 / 2.0;
        let off = off.min(NOISE_STEP.0 * self.noise + NOISE_STEP.1);
        self.noise += (off - self.noise) * NOISE_GAIN;
    }

    fn base(&self) -> Option<i64> {
        self.base.map(|(base, _)| base as i64)
    }

    /// Adopts the lowest recent delay as the path's own, which has become longer.
    pub(crate) fn rebase(&mut self, now: Instant, over: Duration) {
        let least = self.over(over).map(Arrival::delay).min();
        self.base = least.map(|least| (least as f64, now));
    }

    /// Forgets all arrivals, but keeps the path's own delay.
    pub(crate) fn forget(&mut self) {
        self.recent.clear();
    }

    /// Frees memory that is not in use. After a pause, only the newest arrivals matter, as
    /// neighbours of the next one ([`Self::enter_noise`]).
    pub(crate) fn free_spare(&mut self) {
        let old = self.recent.len().saturating_sub(3);
        self.recent.drain(..old);
        self.recent.free_spare();
    }

    /// Forgets arrivals older than `time`.
    pub(crate) fn forget_before(&mut self, time: Duration) {
        let kept = self.over(time).count();
        self.recent.drain(..self.recent.len() - kept);
    }

    pub(crate) fn last(&self) -> Option<&Arrival> {
        self.recent.back()
    }

    /// The arrivals of the last `time`, by the peer's clock, and the one before them.
    fn over(&self, time: Duration) -> impl Iterator<Item = &Arrival> {
        let last = self.recent.back().map_or(0, |last| last.arrived);
        let from = last - i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 2);
        let begin = self.recent.partition_point(|arrival| arrival.arrived <= from);
        self.recent.iter().skip(begin.saturating_sub(1))
    }

    /// The longest time without an arrival, in µs.
    fn longest_pause(&self, time: Duration) -> i64 {
        let times = || self.over(time).map(|arrival| arrival.arrived);
        times().zip(times().skip(1)).map(|(a, b)| b - a).max().unwrap_or(0)
    }

    /// The flow of the last `time`, `all`, without the outages of the path: the time between two
    /// arrivals in which most packets were lost. A link that overflows goes on delivering, and
    /// loses the same share at all times.
    fn flow_without_outages(&self, time: Duration, all: Flow) -> Flow {
        let pairs = self.over(time).zip(self.over(time).skip(1));
        let flows = pairs.filter_map(|(a, b)| a.flow_to(b));
        let up = flows.filter(|flow| flow.delivered >= DOWN * flow.sent);
        let up = up.fold(Flow::default(), Flow::plus);
        // If most of the time looks like outages, most is lost all the time.
        if up.arriving * 2.0 >= all.arriving { up } else { all }
    }

    /// Summarises the last `time`; `None` until that much is known.
    pub(crate) fn window(&self, time: Duration) -> Option<Window> {
        let first = *self.over(time).next()?;
        let last = *self.recent.back()?;
        let arriving = last.arrived - first.arrived;
        if arriving < i64::try_from(time.as_micros()).ok()? {
            return None;
        }
        let flow = self.flow_without_outages(time, first.flow_to(&last)?);
        // The first one's delay belongs to the packets before.
        let delays = || self.over(time).skip(1).map(Arrival::delay);
        let least = delays().min()?;
        let most = delays().max()?;
        let base = self.base()?;
        let queue = |delay: i64| Duration::from_micros(u64::try_from(delay - base).unwrap_or(0));
        // Packets that others sent between two of ours also arrived between them.
        let all = flow.link / flow.sent.max(1.0);
        Some(Window {
            sent: flow.sent * 8.0 / flow.sending.max(1e-6) * all,
            delivered: flow.delivered * 8.0 / flow.arriving * all,
            missing: (1.0 - flow.delivered / flow.sent.max(1.0)).max(0.0),
            queue: queue(least),
            longest: queue(most),
            latest: queue(last.delay()),
            torn: self.longest_pause(time) * 2 > arriving,
            bytes: flow.sent as u64,
            noise: Duration::from_micros(self.noise as u64),
        })
    }
}

impl Arrival {
    /// The flow up to a later arrival; `None` if reordering, or a lying peer, makes a packet that
    /// was sent first arrive last.
    fn flow_to(&self, later: &Self) -> Option<Flow> {
        Some(Flow {
            sent: later.sent_bytes.checked_sub(self.sent_bytes)? as f64,
            link: later.link_bytes.checked_sub(self.link_bytes)? as f64,
            sending: later.sent.saturating_since(self.sent).as_secs_f64(),
            delivered: later.delivered.checked_sub(self.delivered)? as f64,
            arriving: (later.arrived - self.arrived) as f64 / 1e6,
        })
    }
}

/// Bytes sent and acknowledged, and the times in s that sending and arriving took.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    sent: f64,
    /// Bytes that all members sent over a shared link.
    link: f64,
    sending: f64,
    delivered: f64,
    arriving: f64,
}

impl Flow {
    fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            link: self.link + other.link,
            sending: self.sending + other.sending,
            delivered: self.delivered + other.delivered,
            arriving: self.arriving + other.arriving,
        }
    }
}

pub(crate) fn micros(time: Instant) -> i64 {
    (time.as_nanos() / 1000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A packet of 1000 bytes every millisecond, the n-th delayed by `delay(n)` µs.
    fn arrivals(count: u64, delay: impl Fn(u64) -> i64) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for n in 0..count {
            let sent = Instant::from_nanos(n * 1_000_000);
            let arrived = micros(sent) + delay(n);
            let bytes = n * 1000;
            let arrival =
                Arrival { sent, arrived, sent_bytes: bytes, link_bytes: bytes, delivered: bytes };
            arrivals.enter(sent, arrival);
        }
        arrivals
    }

    /// Ten packets of 1500 bytes, so many ms apart.
    fn sparse(apart: u64) -> Option<Window> {
        let mut arrivals = Arrivals::default();
        for n in 0..10 {
            let (sent, bytes) = (Instant::from_nanos(n * apart * 1_000_000), n * 1500);
            let arrived = micros(sent);
            let arrival =
                Arrival { sent, arrived, sent_bytes: bytes, link_bytes: bytes, delivered: bytes };
            arrivals.enter(sent, arrival);
        }
        arrivals.window(LONGEST)
    }

    #[test]
    fn the_slowest_rate_is_seen_and_pauses_are_not() {
        for apart in [400, 700, 1200] {
            let delivered = sparse(apart).map(|window| window.delivered);
            let expected = 12e6 / apart as f64;
            assert!(delivered.is_some_and(|rate| (rate / expected - 1.0).abs() < 1e-6), "{apart}");
        }
        assert_eq!(sparse(2100), None);
    }

    /// The last 300 ms of a packet of 1000 bytes every millisecond, of which some are lost.
    fn window_with_losses(is_lost: impl Fn(u64) -> bool) -> Window {
        let mut arrivals = Arrivals::default();
        let mut delivered = 0;
        for n in (0..400).filter(|n| !is_lost(*n)) {
            let sent = Instant::from_nanos(n * 1_000_000);
            delivered += 1000;
            let (arrived, sent_bytes) = (micros(sent), n * 1000);
            arrivals.enter(
                sent,
                Arrival { sent, arrived, sent_bytes, link_bytes: sent_bytes, delivered },
            );
        }
        arrivals.window(ms(300)).unwrap()
    }

    #[test]
    fn an_outage_says_nothing_about_the_rate_and_an_overflow_does() {
        let outage = window_with_losses(|n| (200..260).contains(&n));
        assert!((outage.delivered - 8e6).abs() < 1e5 && outage.missing < 0.01, "{outage:?}");
        let overflow = window_with_losses(|n| n % 4 == 2);
        assert!((overflow.delivered - 6e6).abs() < 1e5, "{overflow:?}");
        assert!((overflow.missing - 0.25).abs() < 0.01, "{overflow:?}");
        let flood = window_with_losses(|n| n % 10 != 3);
        assert!((flood.delivered - 0.8e6).abs() < 1e5, "{flood:?}");
        assert!((flood.missing - 0.9).abs() < 0.01, "{flood:?}");
    }

    #[test]
    fn the_offset_of_the_clocks_does_not_matter() {
        for offset in [0, 1 << 40, -(1 << 40)] {
            let window = arrivals(300, |n| offset + if n < 100 { 0 } else { 7000 });
            let window = window.window(ms(100)).unwrap();
            // Less what the clocks may have drifted since.
            assert!(window.queue.abs_diff(ms(7)) < Duration::from_micros(100));
            assert!((window.delivered - 8e6).abs() < 1.0 && (window.sent - 8e6).abs() < 1.0);
        }
    }

    #[test]
    fn a_packet_that_was_sent_first_and_arrives_last_ends_no_window() {
        let mut arrivals = arrivals(300, |_| 0);
        let (sent, arrived) = (Instant::ZERO, 400_000);
        arrivals.enter(
            sent,
            Arrival { sent, arrived, sent_bytes: 0, link_bytes: 0, delivered: 300_000 },
        );
        assert_eq!(arrivals.window(ms(150)), None);
    }

    #[test]
    fn drift_is_no_queue() {
        let window = arrivals(100_000, |n| (n / 10) as i64).window(ms(100)).unwrap();
        assert!(window.queue <= ms(2), "{window:?}");
    }

    /// A link that becomes slower takes longer to send a packet, which is no queue.
    #[test]
    fn a_longer_path_has_a_higher_base_up_to_a_limit() {
        let mut arrivals = arrivals(300, |n| if n < 100 { 0 } else { 12_000 });
        arrivals.lengthen(0.012);
        assert_eq!(arrivals.window(ms(100)).unwrap().queue, ms(0));
        let before = arrivals.base().unwrap();
        (0..10).for_each(|_| arrivals.lengthen(0.012));
        assert_eq!(arrivals.base().unwrap() - before, 13_000);
        (0..10).for_each(|_| arrivals.lengthen(-0.012));
        assert_eq!(before - arrivals.base().unwrap(), 12_000, "as it was measured");
    }

    #[test]
    fn a_clock_wraps() {
        let mut arrivals = Arrivals::default();
        let begin = arrivals.unwrap_clock(u32::MAX - 10);
        assert_eq!(arrivals.unwrap_clock(20) - begin, 31);
        assert_eq!(arrivals.unwrap_clock(15) - begin, 26);
    }

    #[test]
    fn a_new_base_holds_from_then_on() {
        let mut arrivals = arrivals(1000, |n| if n < 100 { 0 } else { 290_000 });
        let queue = arrivals.window(ms(100)).unwrap().queue;
        assert!(queue.abs_diff(ms(290)) < Duration::from_micros(300));
        arrivals.rebase(Instant::from_nanos(1_000_000_000), ms(100));
        assert_eq!(arrivals.window(ms(100)).unwrap().queue, ms(0));
    }
}
