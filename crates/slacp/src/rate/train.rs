//! Packet trains: packets that leave faster than the link is believed to be
//! spread to the link's rate, and their arrival times tell it within a round
//! trip.

use units::Instant;

use super::arrivals::micros;

/// In how many places, about, a train's arrival is looked at.
const MARKS: usize = 16;
/// With fewer packets between the first and the last mark nothing is measured.
const FEWEST: usize = 4;
/// Nor if they came within this many µs: the clock and its reader are no
/// better.
const FASTEST: i64 = 40;

/// A train that is being sent or has been.
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

/// What a train has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    /// At how many bit/s it was sent, and came.
    pub(crate) sent: f64,
    pub(crate) received: f64,
    /// In how many seconds it came.
    pub(crate) time: f64,
    /// Whether most of that was one pause: a longer train might have met more of
    /// them.
    pub(crate) torn: bool,
}

/// Why a train has shown nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmeasured {
    /// Too few packets left, or came.
    TooFew,
    /// All came at the same time: the link is very fast, or sends what has
    /// gathered when its time slot comes.
    AtOnce,
}

impl Train {
    /// A train of so many packets.
    pub(crate) fn new(length: usize) -> Self {
        Self { length, packets: Vec::with_capacity(length), complete: false }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        !self.complete
    }

    /// Ends the train early: there is nothing to send.
    pub(crate) fn cut(&mut self) {
        self.complete = true;
    }

    /// Whether the arrival of the next packet is of interest.
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

    /// Whether all of it must have come when packet `largest` has.
    pub(crate) fn is_over(&self, largest: u64) -> bool {
        self.complete && self.packets.last().is_none_or(|last| last.number <= largest)
    }

    /// The rates between the first and the last arrival, of what came.
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

    /// In µs.
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
