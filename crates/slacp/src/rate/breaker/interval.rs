//! The losses and deliveries of one interval.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::recovery::path::loss::PacketFate;

/// Least duration of a slot: several of the 4 ms that a late driver sends at once, and a tenth of
/// the shortest outage (1 s) that a session does not notice at once.
const SLOT: Duration = Duration::from_millis(100);
/// Least number of packets in a slot. If a quarter of them arrive, a slot has none of them once in
/// a hundred times even if chance decides (0.75¹⁶).
const SLOT_PACKETS: u32 = 16;
/// A slot that takes longer than this floods nothing: it has less than 192 kbit/s.
const THIN: Duration = Duration::from_secs(1);
/// An interval with fewer packets says nothing. If half of the packets are lost, three quarters of
/// 32 are in one of a thousand intervals.
const ENOUGH: u32 = 32;

/// An interval of the packets sent, in progress.
///
/// It is divided into slots. A slot in which nothing arrived belongs to an outage and is left out:
/// a link that overflows goes on delivering. A peer that acknowledges nothing for a while does not
/// escape by this. Each slot with a single acknowledgement counts in full, and without any for a
/// while the session counts as faded and stops.
#[derive(Debug)]
pub(super) struct Interval {
    begin: Instant,
    slot: Slot,
    sum: Measured,
}

/// Consecutive packets of 100 ms or more, which count or are left out together.
#[derive(Debug, Default)]
struct Slot {
    begin: Option<Instant>,
    packets: u32,
    delivered: u64,
    lost: u64,
}

/// Result of an interval, without outages and times of little traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Measured {
    packets: u32,
    /// Bytes of the packets that were acknowledged, and of those that were lost.
    delivered: u64,
    lost: u64,
    /// Time in which they were sent.
    pub(super) time: Duration,
}

impl Interval {
    pub(super) fn new(begin: Instant) -> Self {
        Self { begin, slot: Slot::default(), sum: Measured::default() }
    }

    /// The sending time from which packets belong to it.
    pub(super) fn begin(&self) -> Instant {
        self.begin
    }

    /// Adds a packet. Fates come in the order of sending; those before the beginning do not count.
    pub(super) fn saw(&mut self, fate: &PacketFate) {
        if fate.time < self.begin {
            return;
        }
        let age = fate.time.saturating_since(self.slot.begin.unwrap_or(fate.time));
        if age >= THIN || age >= SLOT && self.slot.packets >= SLOT_PACKETS {
            self.end_slot(fate.time);
        }
        self.slot.add(fate);
    }

    /// Ends it at a sending time: all packets sent before have been added.
    pub(super) fn end(mut self, at: Instant) -> Measured {
        self.end_slot(at);
        self.sum
    }

    fn end_slot(&mut self, at: Instant) {
        let slot = core::mem::take(&mut self.slot);
        let Some(begin) = slot.begin else { return };
        // Not by the length of a run of losses: a peer that acknowledges one packet every half
        // second would turn all its losses into outages.
        if slot.packets < SLOT_PACKETS || slot.delivered == 0 {
            return;
        }
        self.sum.packets = self.sum.packets.saturating_add(slot.packets);
        self.sum.delivered += slot.delivered;
        self.sum.lost += slot.lost;
        // A pause of the sender's may follow the packets: the rate is rather too low than too high.
        self.sum.time += at.saturating_since(begin).min(THIN);
    }
}

impl Slot {
    fn add(&mut self, fate: &PacketFate) {
        self.begin.get_or_insert(fate.time);
        self.packets = self.packets.saturating_add(1);
        let bytes = if fate.lost { &mut self.lost } else { &mut self.delivered };
        *bytes += u64::from(fate.size);
    }
}

impl Measured {
    /// Returns `true` if there were enough packets for a judgement.
    pub(super) fn is_enough(&self) -> bool {
        self.packets >= ENOUGH
    }

    /// Returns `true` if more than `percent` of the bytes were lost.
    pub(super) fn lost_more_than(&self, percent: u64) -> bool {
        self.lost * 100 > (self.lost + self.delivered) * percent
    }

    /// Share of the bytes that were lost, 0 to 1.
    pub(super) fn loss(&self) -> f64 {
        self.lost as f64 / (self.lost + self.delivered).max(1) as f64
    }

    /// The rate at which the packets were delivered; `None` without packets.
    pub(super) fn delivered(&self) -> Option<BitRate> {
        BitRate::average(ByteCount::new(self.delivered), self.time)
    }

    /// Adds the packets of another interval.
    pub(super) fn add(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.delivered += other.delivered;
        self.lost += other.lost;
        self.time += other.time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// One packet of 1500 bytes each `every` ms up to `end`, lost unless `arrives`.
    fn measure(every: u64, end: u64, arrives: impl Fn(u64) -> bool) -> Measured {
        let mut interval = Interval::new(ms(0));
        for at in (0..end).step_by(every as usize) {
            interval.saw(&PacketFate { time: ms(at), size: 1500, lost: !arrives(at) });
        }
        interval.end(ms(end))
    }

    #[test]
    fn an_overflow_counts_in_full() {
        let measured = measure(1, 1000, |at| at % 10 == 0);
        assert!(measured.is_enough() && measured.lost_more_than(89), "{measured:?}");
        assert!(!measured.lost_more_than(90), "{measured:?}");
        assert_eq!(measured.delivered(), Some(BitRate::from_bits_per_second(1_200_000)));
    }

    #[test]
    fn an_outage_does_not_count() {
        // At most the slot in which the outage begins has losses, and the one in which it ends.
        for begin in 200..300 {
            let measured = measure(1, 2000, |at| !(begin..begin + 1000).contains(&at));
            assert!(measured.is_enough() && !measured.lost_more_than(17), "{measured:?}");
        }
        assert!(!measure(1, 2000, |_| false).is_enough(), "nothing arrives at all");
    }

    #[test]
    fn a_single_acknowledgement_now_and_then_hides_no_loss() {
        let measured = measure(1, 2000, |at| at % 500 == 0);
        assert!(measured.is_enough() && measured.lost_more_than(98), "{measured:?}");
    }

    #[test]
    fn little_traffic_says_nothing() {
        assert!(!measure(70, 10_000, |at| at % 700 == 0).is_enough());
        assert!(measure(60, 10_000, |at| at % 600 == 0).is_enough());
        assert!(!measure(1, 31, |at| at % 10 == 0).is_enough());
    }

    #[test]
    fn packets_sent_before_it_do_not_count() {
        let mut interval = Interval::new(ms(500));
        for at in 0..1000 {
            interval.saw(&PacketFate { time: ms(at), size: 1500, lost: at < 500 && at % 10 > 0 });
        }
        assert!(!interval.end(ms(1000)).lost_more_than(0));
    }

    #[test]
    fn a_pause_of_the_sender_makes_the_rate_lower_not_higher() {
        // 100 packets in 10 ms, then nothing for a minute.
        let mut interval = Interval::new(ms(0));
        for at in 0..100 {
            let time = Instant::from_nanos(at * 100_000);
            interval.saw(&PacketFate { time, size: 1500, lost: at % 10 > 0 });
        }
        let rate = interval.end(ms(60_000)).delivered().unwrap();
        assert_eq!(rate, BitRate::from_bits_per_second(10 * 12_000));
    }
}
