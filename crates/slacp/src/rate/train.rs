//! Packet trains: packets sent faster than the believed link rate spread out to the link's real
//! rate, so their arrival times reveal it within one round trip.
//!
//! The rate is the slope of a straight line through arrivals and bytes (least squares). How far the
//! arrivals are off that line, and how long none came, says how much the rate may be wrong: this is
//! how jitter, time slots and frames show, and why a train has to be long against them.

mod bucket;

use units::Instant;

use super::arrivals::micros;
pub(crate) use bucket::Bucket;

/// Approximate number of packets of a train whose arrival is examined.
const MARKS: usize = 16;
/// Minimum number of packets between the first and the last mark for a measurement.
const FEWEST: usize = 4;
/// Minimum duration of the arrival in µs: the peer's clock and its readings are no more precise.
const FASTEST: i64 = 40;

/// A train to be sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    pub(super) packets: usize,
    /// Rate at which it is sent, in bit/s.
    pub(super) rate: f64,
    /// Size of a packet of padding, in bytes.
    pub(super) padding: usize,
}

/// A train that is being sent or has been sent.
#[derive(Debug)]
pub(crate) struct Train {
    length: usize,
    /// Size of the packets that complete the train when there is no data, in bytes.
    padding: Option<usize>,
    packets: Vec<Packet>,
    complete: bool,
}

#[derive(Debug)]
struct Packet {
    number: u64,
    size: u32,
    sent: Instant,
    arrived: Option<i64>,
    acked: bool,
}

/// The result of a train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// The rates in bit/s at which it was sent, and at which it arrived.
    pub(crate) sent: f64,
    pub(crate) received: f64,
    /// Duration of the arrival, in seconds.
    pub(crate) time: f64,
    /// Relative error of the arrival rate, to be expected from the jitter of the arrivals: about a
    /// standard deviation.
    pub(crate) error: f64,
}

/// Why a train measured nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Unmeasured {
    /// Too few packets left or arrived.
    TooFew,
    /// All arrived at once: the link is very fast, or it collects packets and sends them in a time
    /// slot.
    AtOnce,
    /// A token bucket has dropped what exceeded its rate.
    Policed(Bucket),
}

impl Unmeasured {
    /// The bucket that has policed the train, if one has.
    pub(crate) fn bucket(self) -> Option<Bucket> {
        match self {
            Self::Policed(bucket) => Some(bucket),
            Self::TooFew | Self::AtOnce => None,
        }
    }
}

impl Train {
    /// A train of `length` packets, completed with `padding` of that size if there is no data.
    pub(crate) fn new(length: usize, padding: Option<usize>) -> Self {
        Self { length, padding, packets: Vec::with_capacity(length), complete: false }
    }

    /// Returns `true` if padding completes it when there is no data.
    pub(crate) fn has_padding(&self) -> bool {
        self.padding.is_some()
    }

    /// Size of the packet of padding that goes next if there is no data; `None` if none does.
    pub(crate) fn padding(&self) -> Option<usize> {
        self.padding.filter(|_| !self.complete)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(crate) fn is_leaving(&self) -> bool {
        !self.complete
    }

    /// Ends the train early because there is nothing to send, unless padding completes it.
    pub(crate) fn cut(&mut self) {
        self.complete |= self.padding.is_none();
    }

    /// Returns `true` if the arrival time of the next packet is to be reported by the peer.
    pub(crate) fn wants_mark(&self) -> bool {
        let index = self.packets.len();
        let last = index + 1 == self.length;
        !self.complete && (last || index.is_multiple_of(self.length.div_ceil(MARKS).max(1)))
    }

    /// Records the next packet. On a shared link, `size` includes what others have sent since the
    /// packet before: it arrives in between.
    pub(crate) fn sent(&mut self, now: Instant, number: u64, size: u32) {
        self.packets.push(Packet { number, size, sent: now, arrived: None, acked: false });
        self.complete |= self.packets.len() >= self.length;
    }

    pub(crate) fn acknowledged(&mut self, number: u64) {
        if let Some(packet) = self.packet(number) {
            packet.acked = true;
        }
    }

    /// Time at which a packet was sent; `None` if it is not one of the train.
    pub(crate) fn sent_at(&mut self, number: u64) -> Option<Instant> {
        Some(self.packet(number)?.sent)
    }

    /// Its length in packets, unless some of those that are examined were lost.
    pub(crate) fn came_whole(&self) -> Option<usize> {
        self.packets.iter().all(|packet| packet.acked).then_some(self.length)
    }

    /// Records when a packet arrived.
    pub(crate) fn arrived(&mut self, number: u64, time: i64) {
        if let Some(packet) = self.packet(number) {
            packet.arrived = Some(time);
        }
    }

    /// Forgets all arrival times, because they are not believed.
    pub(crate) fn forget_arrivals(&mut self) {
        self.packets.iter_mut().for_each(|packet| packet.arrived = None);
    }

    fn packet(&mut self, number: u64) -> Option<&mut Packet> {
        let index = self.packets.binary_search_by_key(&number, |packet| packet.number).ok()?;
        self.packets.get_mut(index)
    }

    /// The least one-way delay of a marked packet in µs, plus the offset of the clocks.
    pub(crate) fn least_delay(&self) -> Option<i64> {
        bucket::delays(&self.packets).min()
    }

    /// Returns `true` if all of it must have arrived once packet `largest` has.
    pub(crate) fn is_over(&self, largest: u64) -> bool {
        self.complete && self.packets.last().is_none_or(|last| last.number <= largest)
    }

    /// The rates between the first and the last arrival.
    pub(crate) fn measure(&self) -> Result<Measured, Unmeasured> {
        // First: behind a bucket the slope is that of the link behind it, at which its tokens pass.
        if let Some(bucket) = self.bucket() {
            return Err(Unmeasured::Policed(bucket));
        }
        let mut arrivals =
            self.packets.iter().enumerate().filter_map(|(n, p)| Some((n, p.arrived?)));
        let (first, begin) = arrivals.next().ok_or(Unmeasured::TooFew)?;
        let (last, end) = arrivals.next_back().ok_or(Unmeasured::TooFew)?;
        // The time begins with the arrival of the first one, so its own bytes do not count.
        let between = &self.packets[first + 1..=last];
        if between.len() < FEWEST {
            return Err(Unmeasured::TooFew);
        }
        let sent: u64 = between.iter().map(|packet| u64::from(packet.size)).sum();
        let time = end - begin;
        if time < FASTEST {
            return Err(Unmeasured::AtOnce);
        }
        let points: Vec<(f64, f64)> = Self::arrivals(&self.packets).collect();
        let slope = Slope::through(&points).ok_or(Unmeasured::AtOnce)?;
        let sending = micros(self.packets[last].sent) - micros(self.packets[first].sent);
        Ok(Measured {
            sent: sent as f64 * 8e6 / sending.max(1) as f64,
            received: slope.bytes_per_second * 8.0,
            time: time as f64 / 1e6,
            error: slope.error,
        })
    }

    /// The arrivals of marked packets: the acknowledged bytes up to each, and the time in s.
    fn arrivals(packets: &[Packet]) -> impl Iterator<Item = (f64, f64)> {
        let mut bytes = 0.0;
        packets.iter().filter_map(move |packet| {
            // What was dropped did not take the link's time.
            bytes += if packet.acked { f64::from(packet.size) } else { 0.0 };
            Some((bytes, packet.arrived? as f64 / 1e6))
        })
    }
}

/// A straight line through points of bytes and times.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slope {
    bytes_per_second: f64,
    /// Its relative error, about a standard deviation.
    error: f64,
}

impl Slope {
    /// The line of least squares through the points, which are in order; `None` if it does not
    /// rise. Its error is the larger of two: the standard error, if the points are off the line
    /// independently of each other; and half of the longest pause's share in the whole time, if
    /// packets are collected and sent together.
    fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let bytes = mean(|point| point.0);
        let time = mean(|point| point.1);
        let deviations = || points.iter().map(|point| (point.0 - bytes, point.1 - time));
        let across: f64 = deviations().map(|(b, t)| b * t).sum();
        let along: f64 = deviations().map(|(b, _)| b * b).sum();
        let slope = across / along;
        let off: f64 = deviations().map(|(b, t)| (t - slope * b).powi(2)).sum();
        let standard = (off / (count - 2.0).max(1.0) / along).sqrt() / slope;
        let gaps =
            points.windows(2).map(|pair| pair[1].1 - pair[0].1 - slope * (pair[1].0 - pair[0].0));
        let pause = gaps.fold(0.0, f64::max);
        let whole = slope * (points.last()?.0 - points.first()?.0);
        let rises = slope > 0.0 && slope.is_finite();
        rises.then(|| Self {
            bytes_per_second: 1.0 / slope,
            error: standard.max(pause / whole / 2.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    fn train(length: u64) -> Train {
        let mut train = Train::new(length as usize, None);
        for number in 0..length {
            train.sent(Instant::ZERO, 100 + number, 1500);
        }
        train
    }

    #[test]
    fn the_spread_is_the_links_rate() {
        let mut train = train(16);
        assert!(train.is_over(115) && !train.is_over(114));
        for number in 0..16 {
            train.acknowledged(100 + number);
            train.arrived(100 + number, 5_000_000 + 48 * number as i64);
        }
        let measured = train.measure().unwrap();
        assert!((measured.received - 250e6).abs() < 1.0 && measured.error < 1e-6, "{measured:?}");
    }

    /// What a train of `count` packets shows whose n-th packet arrives at `time(n)` in µs.
    fn measure(count: u64, mut time: impl FnMut(u64) -> f64) -> Measured {
        let mut train = train(count);
        let mut last = f64::MIN;
        for n in 0..count {
            train.acknowledged(100 + n);
            last = last.max(time(n));
            if n % count.div_ceil(16) == 0 || n + 1 == count {
                train.arrived(100 + n, last as i64);
            }
        }
        train.measure().unwrap()
    }

    #[test]
    fn one_pause_says_little() {
        let seen = measure(16, |n| if n < 9 { 0.0 } else { 26_000.0 });
        assert!(seen.error > 0.3, "{seen:?}");
    }

    /// 50 Mbit/s, and jitter of up to 20 ms.
    #[test]
    fn the_error_under_jitter_is_as_large_as_stated() {
        for count in [64, 1000] {
            let mut rng = ChaCha20Rng::seed_from_u64(count);
            let mut within = 0;
            for _ in 0..200 {
                let jitter = |n: u64| n as f64 * 240.0 + (rng.next_u64() % 20_000) as f64;
                let seen = measure(count, jitter);
                let off = (seen.received / 50e6 - 1.0).abs();
                within += u32::from(off < 3.0 * seen.error);
                assert!(seen.error < 0.08 || count == 64, "{count}: {seen:?}");
            }
            assert!(within >= 190, "{count}: {within} of 200");
        }
    }

    /// 50 Mbit/s in slots of 26 ms.
    #[test]
    fn a_train_must_be_long_against_time_slots() {
        for (count, precise) in [(250, false), (1600, true)] {
            let seen = measure(count, |n| (n as f64 * 240.0 / 26_000.0).ceil() * 26_000.0);
            assert_eq!(seen.error < 0.08, precise, "{count}: {seen:?}");
            assert!((seen.received / 50e6 - 1.0).abs() < 3.0 * seen.error, "{count}: {seen:?}");
        }
    }

    #[test]
    fn what_was_dropped_did_not_take_the_links_time() {
        let mut train = train(33);
        for number in (0..33).filter(|n| n % 4 != 2) {
            train.acknowledged(100 + number);
        }
        train.arrived(100, 0);
        train.arrived(132, 24 * 480);
        assert!((train.measure().unwrap().received - 25e6).abs() < 1.0);
    }

    #[test]
    fn too_little_measures_nothing() {
        let mut short = train(4);
        short.arrived(100, 0);
        short.arrived(103, 1000);
        assert_eq!(short.measure(), Err(Unmeasured::TooFew));
        let mut at_once = train(16);
        (0..16).for_each(|n| at_once.arrived(100 + n, 0));
        assert_eq!(at_once.measure(), Err(Unmeasured::AtOnce));
    }

    #[test]
    fn only_padding_completes_a_train_without_data() {
        let mut bare = Train::new(2, None);
        bare.cut();
        assert!(!bare.is_leaving());
        let mut padded = Train::new(2, Some(256));
        padded.cut();
        assert!(padded.is_leaving());
        for number in 0..2 {
            assert_eq!(padded.padding(), Some(256));
            padded.sent(Instant::ZERO, number, 256);
        }
        assert_eq!(padded.padding(), None);
    }

    #[test]
    fn long_trains_have_few_marks() {
        let mut train = Train::new(256, None);
        let mut marks = 0;
        for number in 0..256 {
            marks += usize::from(train.wants_mark());
            train.sent(Instant::ZERO, number, 1500);
        }
        assert_eq!(marks, 17);
        assert!(!train.wants_mark() && !train.is_leaving());
    }
}
