//! Packet trains: packets sent faster than the believed link rate spread out to the link's real
//! rate, so their arrival times reveal it within one round trip.

use units::Instant;

use super::arrivals::micros;

/// Approximate number of packets of a train whose arrival is examined.
const MARKS: usize = 16;
/// Minimum number of packets between the first and the last mark for a measurement.
const FEWEST: usize = 4;
/// Minimum duration of the arrival in µs: the peer's clock and its readings are no more precise.
const FASTEST: i64 = 40;

/// A train that is being sent or has been sent.
#[derive(Debug)]
pub(crate) struct Train {
    length: usize,
    packets: Vec<Packet>,
    complete: bool,
}

#[derive(Debug)]
struct Packet {
    number: u64,
    size: u16,
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
    /// Whether most of that was a single pause; a longer train might have met more of them.
    pub(crate) torn: bool,
}

/// Why a train measured nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmeasured {
    /// Too few packets left or arrived.
    TooFew,
    /// All arrived at once: the link is very fast, or it collects packets and sends them in a time
    /// slot.
    AtOnce,
}

impl Train {
    /// A train of `length` packets.
    pub(crate) fn new(length: usize) -> Self {
        Self { length, packets: Vec::with_capacity(length), complete: false }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        !self.complete
    }

    /// Ends the train early because there is nothing to send.
    pub(crate) fn cut(&mut self) {
        self.complete = true;
    }

    /// Whether the arrival of the next packet matters.
    pub(crate) fn wants_mark(&self) -> bool {
        let index = self.packets.len();
        let last = index + 1 == self.length;
        !self.complete && (last || index.is_multiple_of(self.length.div_ceil(MARKS).max(1)))
    }

    pub(crate) fn sent(&mut self, now: Instant, number: u64, size: u16) {
        self.packets.push(Packet { number, size, sent: now, arrived: None, acked: false });
        self.complete |= self.packets.len() >= self.length;
    }

    pub(crate) fn acknowledged(&mut self, number: u64) {
        if let Some(packet) = self.packet(number) {
            packet.acked = true;
        }
    }

    pub(crate) fn arrived(&mut self, number: u64, time: i64) {
        if let Some(packet) = self.packet(number) {
            packet.arrived = Some(time);
        }
    }

    fn packet(&mut self, number: u64) -> Option<&mut Packet> {
        let index = self.packets.binary_search_by_key(&number, |packet| packet.number).ok()?;
        self.packets.get_mut(index)
    }

    /// Whether all of it must have arrived once packet `largest` has.
    pub(crate) fn is_over(&self, largest: u64) -> bool {
        self.complete && self.packets.last().is_none_or(|last| last.number <= largest)
    }

    /// The rates between the first and the last arrival.
    pub(crate) fn measure(&self) -> Result<Measured, Unmeasured> {
        let mut arrivals =
            self.packets.iter().enumerate().filter_map(|(n, p)| Some((n, p.arrived?)));
        let (Some((first, begin)), Some((last, end))) = (arrivals.next(), arrivals.next_back())
        else {
            return Err(Unmeasured::TooFew);
        };
        let between = &self.packets[first + 1..=last];
        if between.len() < FEWEST {
            return Err(Unmeasured::TooFew);
        }
        let received: u64 = between.iter().filter(|p| p.acked).map(|p| u64::from(p.size)).sum();
        let sent: u64 = between.iter().map(|packet| u64::from(packet.size)).sum();
        let time = end - begin;
        if time < FASTEST {
            return Err(Unmeasured::AtOnce);
        }
        let sending = micros(self.packets[last].sent) - micros(self.packets[first].sent);
        Ok(Measured {
            sent: sent as f64 * 8e6 / sending.max(1) as f64,
            received: received as f64 * 8e6 / time as f64,
            time: time as f64 / 1e6,
            torn: self.longest_pause() * 2 > time,
        })
    }

    /// Longest pause between arrivals, in µs.
    fn longest_pause(&self) -> i64 {
        let arrivals = || self.packets.iter().filter_map(|packet| packet.arrived);
        arrivals().zip(arrivals().skip(1)).map(|(a, b)| b - a).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(length: u64) -> Train {
        let mut train = Train::new(length as usize);
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
        assert!((measured.received - 250e6).abs() < 1.0 && !measured.torn, "{measured:?}");
    }

    #[test]
    fn one_pause_says_little() {
        let mut train = train(16);
        (0..16).for_each(|n| train.arrived(100 + n, if n < 9 { 0 } else { 26_000 }));
        assert!(train.measure().unwrap().torn);
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
    fn long_trains_have_few_marks() {
        let mut train = Train::new(256);
        let mut marks = 0;
        for number in 0..256 {
            marks += usize::from(train.wants_mark());
            train.sent(Instant::ZERO, number, 1500);
        }
        assert_eq!(marks, 17);
        assert!(!train.wants_mark() && !train.is_leaving());
    }
}
