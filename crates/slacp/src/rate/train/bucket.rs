//! Trains through a token bucket (a policer): what the bucket holds passes at the speed of the link
//! behind it, and after that only what new tokens allow.
//!
//! A queue that overflows loses packets, too, but those that arrive have waited: the longer, the
//! more of the train it has taken in. Behind a bucket nothing waits.

use super::{Packet, Slope, Train};
use crate::rate::arrivals::micros;
use crate::rate::constants::PACKET;

/// This many losses, and this share of what was sent from the first one on, are not random.
const LOST: (usize, f64) = (3, 0.1);
/// Fewer packets than these before the first loss change the slope of all arrivals but little.
const HEAD: usize = 4;
/// Fewer packets than these after the first loss show no rate.
const FEWEST: usize = 3;
/// Number of delays that are averaged for [`Train::waited`].
const LAST: usize = 3;
/// A queue that would make packets wait less than this, in seconds, looks like none.
const VISIBLE: f64 = 500e-6;
/// Packets have waited in a queue if their delay has risen by this part of what that takes.
const WAITED: f64 = 1.0 / 3.0;
/// A queue lets at least this part pass of what its link could carry in the time of the train.
const LESS: f64 = 1.3;

/// A token bucket as a train shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    /// The rate of its tokens, in bit/s.
    pub(crate) rate: f64,
    /// The relative error of that, about a standard deviation.
    pub(crate) error: f64,
    /// The tokens that it held when the train came, in bits.
    pub(crate) held: f64,
}

/// Packets that have to pass after the first loss: the error is then less than that of a train which
/// tells a rate from one lower by a quarter.
const PASSED: f64 = 12.0;

impl Bucket {
    /// Returns `true` if [`PASSED`] packets or more have passed after the first loss.
    pub(crate) fn is_sure(self) -> bool {
        self.error <= 1.0 / PASSED
    }

    /// The length of a train in packets that is sent at twice the rate and shows it for sure.
    pub(crate) fn packets(self) -> usize {
        (2.0 * (self.held / PACKET + PASSED)) as usize + 1
    }
}

impl Train {
    /// The bucket that has policed the train; `None` if none has, or too little has passed after the
    /// first loss.
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        let first = self.packets.iter().position(|packet| !packet.acked)?;
        let (head, tail) = self.packets.split_at(first);
        if head.len() < HEAD {
            return None;
        }
        let lost = tail.iter().filter(|packet| !packet.acked).count();
        if lost < LOST.0 || (lost as f64) < LOST.1 * tail.len() as f64 {
            return None;
        }
        self.bucket_by_tail(head, tail).or_else(|| self.bucket_by_share())
    }

    /// The bucket by the packets that passed after the first loss: as nothing waits, they passed at
    /// the rate of the tokens while they were sent.
    fn bucket_by_tail(&self, head: &[Packet], tail: &[Packet]) -> Option<Bucket> {
        let passed = tail.iter().filter(|packet| packet.acked).count();
        if passed < FEWEST {
            return None;
        }
        let rate = acked_bits(tail) / sending(tail)?;
        let held = (acked_bits(head) - rate * (sending(&self.packets)? - sending(tail)?)).max(0.0);
        let waits = held / rate;
        let waited = self.waited(head, tail)?;
        // A queue loses packets, too, but those that arrive have waited in it.
        if waits < VISIBLE || waited > WAITED * waits {
            return None;
        }
        // A packet more or less may have passed.
        Some(Bucket { rate, error: 1.0 / passed as f64, held })
    }

    /// The bucket by all packets that passed, if they are fewer than a queue would have let pass at
    /// the speed at which they arrived. It says little: the tokens held are among them.
    fn bucket_by_share(&self) -> Option<Bucket> {
        let points: Vec<(f64, f64)> = Self::arrivals(&self.packets).collect();
        let speed = Slope::through(&points)?.bytes_per_second * 8.0;
        let held = acked_bits(&self.packets);
        let rate = held / sending(&self.packets)?;
        (rate * LESS < speed).then_some(Bucket { rate, error: 1.0, held })
    }

    /// Delay of the last marked packets of the tail, in seconds beyond that of the fastest packet
    /// of the train. If none of these has arrived, a late one of the head stands for them: a queue
    /// was half full by then.
    fn waited(&self, head: &[Packet], tail: &[Packet]) -> Option<f64> {
        let mut marks: Vec<i64> = delays(tail).collect();
        if marks.is_empty() {
            marks.extend(delays(&head[head.len().div_ceil(2)..]).last());
        }
        let last = marks.rchunks(LAST).next()?;
        let mean = last.iter().sum::<i64>() as f64 / last.len() as f64;
        Some((mean - self.least_delay()? as f64) / 1e6)
    }
}

fn acked_bits(packets: &[Packet]) -> f64 {
    let acked = packets.iter().filter(|packet| packet.acked);
    acked.map(|packet| f64::from(packet.size) * 8.0).sum()
}

/// Time in which the packets were sent, in seconds; `None` if that is zero.
fn sending(packets: &[Packet]) -> Option<f64> {
    let time = packets.last()?.sent.saturating_since(packets.first()?.sent).as_secs_f64();
    (time > 0.0).then_some(time)
}

/// One-way delays of the marked packets in µs, plus the offset of the clocks.
pub(super) fn delays(packets: &[Packet]) -> impl Iterator<Item = i64> {
    packets.iter().filter_map(|packet| Some(packet.arrived? - micros(packet.sent)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::Instant;

    use super::*;

    const MBIT: f64 = 1e6;

    /// What a train of `count` full packets at `sent` bit/s shows on a link of `link` bit/s, before
    /// which `passes` says, of each packet's time in seconds, whether it is let through.
    fn shown(
        count: usize,
        sent: f64,
        link: f64,
        mut passes: impl FnMut(f64, f64) -> bool,
    ) -> Option<Bucket> {
        let mut train = Train::new(count, None);
        let mut free = 0.0_f64;
        for n in 0..count {
            let (number, time) = (n as u64, n as f64 * PACKET / sent);
            let mark = train.wants_mark();
            train.sent(Instant::from_nanos((time * 1e9) as u64), number, 1500);
            if passes(time, (free - time).max(0.0)) {
                free = free.max(time) + PACKET / link;
                train.acknowledged(number);
                if mark {
                    train.arrived(number, 7_000_000 + (free * 1e6) as i64);
                }
            }
        }
        train.bucket()
    }

    /// A bucket of `burst` packets with tokens at `rate`.
    fn policed(count: usize, sent: f64, link: f64, rate: f64, burst: f64) -> Option<Bucket> {
        let (mut tokens, mut filled) = (burst, 0.0);
        shown(count, sent, link, |time, _| {
            tokens = f64::min(burst, tokens + (time - filled) * rate / PACKET);
            filled = time;
            let passes = tokens >= 1.0;
            tokens -= if passes { 1.0 } else { 0.0 };
            passes
        })
    }

    /// A queue of `room` packets.
    fn queued(count: usize, sent: f64, link: f64, room: f64) -> Option<Bucket> {
        let longest = room * PACKET / link;
        shown(count, sent, link, |_, waits| waits <= longest)
    }

    #[test]
    fn what_passes_after_the_first_loss_is_the_rate() {
        let bucket = policed(256, 125.0 * MBIT, 100.0 * MBIT, 30.0 * MBIT, 20.0).unwrap();
        assert!(bucket.is_sure() && (bucket.rate / (30.0 * MBIT) - 1.0).abs() < 0.05, "{bucket:?}");
        assert!((bucket.held / PACKET - 20.0).abs() < 3.0, "{bucket:?}");
    }

    #[test]
    fn a_train_that_is_hardly_longer_than_the_bucket_says_little() {
        let bucket = policed(40, 125.0 * MBIT, 100.0 * MBIT, 30.0 * MBIT, 20.0).unwrap();
        assert!(!bucket.is_sure(), "{bucket:?}");
    }

    #[test]
    fn a_fast_link_behind_a_bucket_is_not_taken_for_the_rate() {
        let bucket = policed(256, 1250.0 * MBIT, 1000.0 * MBIT, 30.0 * MBIT, 20.0).unwrap();
        assert!(bucket.rate < 200.0 * MBIT, "{bucket:?}");
    }

    #[test]
    fn losses_by_chance_are_no_bucket() {
        let each = |n: usize| {
            shown(256, 62.5 * MBIT, 50.0 * MBIT, move |time, _| {
                !((time * 62.5 * MBIT / PACKET).round() as usize + 1).is_multiple_of(n)
            })
        };
        assert_eq!((each(100), each(20), each(7)), (None, None, None));
    }

    proptest! {
        #[test]
        fn a_queue_that_overflows_is_no_bucket(
            link in 1.0f64..300.0, room in 4usize..200, excess in 1.25f64..4.0, count in 24usize..256,
        ) {
            let (sent, link) = (link * excess * MBIT, link * MBIT);
            prop_assert_eq!(queued(count, sent, link, room as f64), None);
        }

        #[test]
        fn the_rate_of_a_bucket_is_off_by_no_more_than_stated(
            rate in 1.0f64..100.0, faster in 1.5f64..30.0, burst in 5.0f64..100.0, count in 24usize..256,
        ) {
            let link = rate * faster * MBIT;
            if let Some(bucket) = policed(count, 1.25 * link, link, rate * MBIT, burst) {
                let off = (bucket.rate / (rate * MBIT) - 1.0).abs();
                prop_assert!(!bucket.is_sure() || off < 3.0 * bucket.error, "{:?}", bucket);
            }
        }
    }
}
