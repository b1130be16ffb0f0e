//! The length that a train needs behind a token bucket: its tokens let packets pass at any speed,
//! and only the packets after these show how fast new tokens come.

use super::super::super::{PACKET, Plan};
use super::{CONFIRM_PACKETS, PACED};
use crate::rate::train::Bucket;

/// Packets of a train at [`PACED`] times the rate, after those that the bucket lets pass at once: for
/// telling that its rate is not that high, and for measuring it.
const TAIL: usize = 8;
const SURE_TAIL: usize = 30;
/// A bucket that a train did not show may hold this multiple of the tokens that the train took.
const MORE: f64 = 1.5;
/// Least number of packets between trains, so that they cost a fiftieth of all packets.
const RARE: f64 = 1000.0;
/// A growth that a train has promised is refuted by losses within this many rounds. Rounds to the
/// next train then: initial and maximum; they double.
const SURVIVES: u32 = 4;
const BACK_OFF: (u32, u32) = (32, 512);

/// A train that came whole: its length in packets, and the rate at which it was sent, in bit/s.
#[derive(Debug, Clone, Copy)]
pub(in super::super::super) struct Passed {
    pub(in super::super::super) packets: f64,
    pub(in super::super::super) rate: f64,
}

/// Knowledge of the bucket that polices the path, and of the trains that could not outlast it.
#[derive(Debug)]
pub(super) struct Outlast {
    /// The most that it is known to hold, in packets; 0 without a bucket.
    held: f64,
    /// A train has shown a rate above ours, but not for sure.
    unsure: bool,
    /// Packets sent since the last train, and that train.
    sent: f64,
    last: Option<Passed>,
    /// The train by which the capacity has grown, and the rounds for which losses still refute it.
    grown: Option<(Passed, u32)>,
    /// Rounds to wait after the next growth that is refuted.
    back_off: u32,
}

impl Outlast {
    /// Begins on a path whose capacity a train has shown, `passed` if that came whole.
    pub(super) fn new(passed: Option<Passed>) -> Self {
        // Without this, a bucket that the start did not outlast was found only after two more
        // growths of the rate, with 600 packets lost each.
        let grown = passed.map(|passed| (passed, SURVIVES));
        Self { held: 0.0, unsure: false, sent: 0.0, last: None, grown, back_off: BACK_OFF.0 }
    }

    /// Returns `true` if the path is known to have a bucket.
    pub(super) fn is_there(&self) -> bool {
        self.held > 0.0
    }

    /// Records the bucket that a train has met.
    pub(super) fn meet(&mut self, bucket: Bucket) {
        self.held = self.held.max(bucket.held / PACKET);
    }

    /// Sets whether the next train is to measure a higher rate that the last one has shown.
    pub(super) fn be_unsure(&mut self, unsure: bool) {
        self.unsure = unsure;
    }

    /// The length of a train that has `usual` packets where no bucket is.
    pub(super) fn packets(&self, usual: usize) -> usize {
        if !self.is_there() {
            return usual;
        }
        let tail = if self.unsure { SURE_TAIL } else { TAIL };
        // While n packets are sent at PACED times the rate, n / PACED new tokens come.
        (self.held / (1.0 - 1.0 / PACED)) as usize + tail
    }

    /// Returns `true` if a train is worth its losses: always without a bucket, and rarely behind
    /// one.
    pub(super) fn allows_train(&self) -> bool {
        !self.is_there() || (self.sent >= RARE && self.packets(0) <= CONFIRM_PACKETS.1)
    }

    /// Records the train that leaves now.
    pub(super) fn train_leaves(&mut self, plan: &Plan) {
        let train = Passed { packets: plan.packets as f64, rate: plan.rate };
        (self.last, self.sent) = (Some(train), 0.0);
    }

    /// Ends a round in which `sent` packets were sent.
    pub(super) fn end_round(&mut self, sent: f64) {
        self.sent += sent;
        self.grown = self.grown.and_then(|(train, left)| {
            // A round with fewer packets than the train proves nothing about the bucket.
            let counts = sent > train.packets;
            Some((train, left.checked_sub(counts.into())?))
        });
    }

    /// Records that the capacity grows by what the last train has shown.
    pub(super) fn grow(&mut self) {
        self.grown = self.last.map(|train| (train, SURVIVES));
    }

    /// Handles losses that refute the growth by a train, if it is recent: the bucket, with tokens
    /// of `rate` bit/s, holds more than the train took of it. Returns the number of rounds to wait.
    pub(super) fn refute(&mut self, rate: f64) -> Option<u32> {
        let (train, _) = self.grown.take()?;
        let took = train.packets * (1.0 - rate / train.rate);
        self.held = self.held.max(took * MORE);
        let wait = self.back_off;
        self.back_off = (wait * 2).min(BACK_OFF.1);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(held: f64) -> Bucket {
        Bucket { rate: 10e6, error: 0.1, held: held * PACKET }
    }

    fn train(packets: usize) -> Plan {
        Plan { packets, rate: PACED * 30e6, padding: 1500 }
    }

    #[test]
    fn a_train_is_longer_than_what_the_bucket_lets_pass() {
        let mut outlast = Outlast::new(None);
        assert_eq!(outlast.packets(24), 24);
        outlast.meet(bucket(60.0));
        outlast.meet(bucket(30.0));
        // At 2.5 times the rate, 60 tokens are used up by 100 packets.
        assert_eq!(outlast.packets(24), 100 + TAIL);
        outlast.be_unsure(true);
        assert_eq!(outlast.packets(24), 100 + SURE_TAIL);
    }

    #[test]
    fn trains_behind_a_bucket_are_rare_and_none_is_too_long() {
        let mut outlast = Outlast::new(None);
        assert!(outlast.allows_train());
        outlast.meet(bucket(60.0));
        assert!(!outlast.allows_train());
        outlast.end_round(RARE);
        assert!(outlast.allows_train());
        outlast.train_leaves(&train(108));
        assert!(!outlast.allows_train());
        outlast.end_round(RARE);
        outlast.meet(bucket(300.0));
        assert!(!outlast.allows_train());
    }

    #[test]
    fn losses_soon_after_a_growth_refute_it() {
        let mut outlast = Outlast::new(None);
        assert_eq!(outlast.refute(30e6), None);
        for wait in [BACK_OFF.0, 2 * BACK_OFF.0] {
            outlast.train_leaves(&train(24));
            outlast.grow();
            outlast.end_round(100.0);
            assert_eq!(outlast.refute(30e6), Some(wait));
            assert_eq!(outlast.refute(30e6), None);
        }
        assert_eq!(outlast.packets(6), (1.5 * 24.0) as usize + TAIL);
        outlast.grow();
        (0..=SURVIVES).for_each(|_| outlast.end_round(1.0));
        (0..SURVIVES).for_each(|_| outlast.end_round(100.0));
        assert!(outlast.grown.is_some());
        outlast.end_round(100.0);
        assert_eq!(outlast.refute(30e6), None);
    }

    #[test]
    fn losses_refute_what_the_start_has_found() {
        let mut outlast = Outlast::new(Some(Passed { packets: 200.0, rate: 50e6 }));
        assert_eq!(outlast.refute(30e6), Some(BACK_OFF.0));
        // The bucket gave 80 of the 200 packets, its tokens the others.
        assert_eq!(outlast.packets(24), (1.5 * 80.0 / 0.6) as usize + TAIL);
    }
}
