//! Detects that the configured rate exceeds what the link carries, for the operator. It changes no
//! rate.
//!
//! The breaker trips only where most is lost, because rain halves a link's rate. A rate that is 10 %
//! to 300 % too high stays, fills the queue before the link and loses what does not fit. That is
//! reported, as soon as three intervals and 10 s in a row show both:
//!
//! - *more than 5 % lost*, outages left out ([`Interval`](super::Interval)), and
//! - *a queue*: the smoothed round-trip time is a quarter, and 20 ms, above the shortest so far.
//!   Losses by chance build no queue, however many there are.
//!
//! It is over after three intervals and 10 s in a row that do not show both.
//!
//! Not modelled: links that drop what exceeds their rate without a queue (policers), where losses
//! of overload look like random losses; and a queue of other traffic on a link with random losses,
//! which looks like an overload, and is one of the link.

use core::time::Duration;

use units::{BitRate, Instant};

use super::interval::Measured;
use crate::Overload;

/// Losses in percent beyond which an interval may be overloaded.
const LOSS: u64 = 5;
/// A queue is a round-trip time longer than the shortest by one part in this many, and by this
/// time.
const QUEUE_PART: u32 = 4;
const QUEUE: Duration = Duration::from_millis(20);
/// Intervals, and their time, in a row until a verdict changes.
const INTERVALS: u32 = 3;
const PERSISTENT: Duration = Duration::from_secs(10);

/// Judges intervals, one after the other.
#[derive(Debug, Default)]
pub(super) struct Detector {
    /// Shortest smoothed round-trip time so far.
    base_rtt: Option<Duration>,
    overload: Option<Overload>,
    /// Consecutive intervals that contradict the present verdict, and the start of the first.
    intervals: u32,
    since: Option<Instant>,
    sum: Measured,
}

impl Detector {
    pub(super) fn overload(&self) -> Option<&Overload> {
        self.overload.as_ref()
    }

    /// Forgets the verdict, because the rate has changed. The path is the same.
    pub(super) fn reset(&mut self) {
        *self = Self { base_rtt: self.base_rtt, ..Self::default() };
    }

    pub(super) fn saw(&mut self, rtt: Duration) {
        self.base_rtt = Some(self.base_rtt.map_or(rtt, |base| base.min(rtt)));
    }

    /// Judges an interval from `begin` to `end` at this rate, which had enough packets.
    pub(super) fn judge(
        &mut self,
        begin: Instant,
        end: Instant,
        rate: BitRate,
        rtt: Duration,
        measured: &Measured,
    ) {
        let base_rtt = self.base_rtt.unwrap_or(rtt);
        // Losses alone would alarm at a packet error rate of 5 %.
        let queues = rtt >= base_rtt + (base_rtt / QUEUE_PART).max(QUEUE);
        let is_overloaded = queues && measured.lost_more_than(LOSS);
        if is_overloaded == self.overload.is_some() {
            self.intervals = 0;
            self.since = None;
            self.sum = Measured::default();
            if let Some(known) = &mut self.overload {
                let carries = measured.delivered().unwrap_or(known.carries);
                *known = Overload { rate, carries, loss: measured.loss(), rtt, base_rtt };
            }
            return;
        }
        self.intervals += 1;
        self.sum.add(measured);
        let since = *self.since.get_or_insert(begin);
        if self.intervals < INTERVALS || end.saturating_since(since) < PERSISTENT {
            return;
        }
        let sum = core::mem::take(&mut self.sum);
        (self.intervals, self.since) = (0, None);
        self.overload = is_overloaded.then(|| Overload {
            rate,
            carries: sum.delivered().unwrap_or_default(),
            loss: sum.loss(),
            rtt,
            base_rtt,
        });
    }
}
