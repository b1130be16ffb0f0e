//! Delivery rate samples (Cheng, Cardwell, Yeganeh and Jacobson, "Delivery Rate
//! Estimation", draft-cheng-iccrg-delivery-rate-estimation-02).

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::recovery::delivery_snapshot::DeliverySnapshot;
use crate::recovery::flight::SentSegment;

/// The rate at which data reached the receiver, measured by one
/// acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered between the sending of the segment that was just
    /// acknowledged and now.
    delivered: ByteCount,
    /// The time of these deliveries, in nanoseconds; not 0.
    interval: u64,
    /// True if the sender ran out of data in that time: the path may carry more.
    pub is_app_limited: bool,
    /// Bytes delivered before that segment was sent.
    pub prior_delivered: ByteCount,
}

impl RateSample {
    #[cfg(test)]
    pub(crate) fn of(prior: u64, delivered: u64, interval: Duration) -> Self {
        Self {
            delivered: ByteCount::new(delivered),
            interval: interval.as_nanos() as u64,
            is_app_limited: false,
            prior_delivered: ByteCount::new(prior),
        }
    }

    /// The delivered bytes over the time. Computed on demand, because most controllers do not need
    /// the division.
    pub fn rate(&self) -> BitRate {
        BitRate::average(self.delivered, Duration::from_nanos(self.interval)).unwrap_or_default()
    }
}

/// Counts deliveries (C.* of the draft) and makes samples (rs.*).
#[derive(Debug, Clone, Default)]
pub(crate) struct RateMeter {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Data up to this delivery count was sent while the application had too little to send; 0 for
    /// none.
    app_limited_until: u64,
    newest: Option<(u64, DeliverySnapshot, Instant)>,
}

impl RateMeter {
    /// Returns the number of bytes delivered so far.
    #[inline]
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Records that a segment is sent `now`; `idle` if nothing was in flight.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, idle: bool) -> DeliverySnapshot {
        if idle {
            // As in the draft: a pause must not count as time in which the path delivered nothing.
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        DeliverySnapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_app_limited: self.app_limited_until > 0,
        }
    }

    /// Records that there is room to send but no data.
    #[inline]
    pub(crate) fn app_limited(&mut self, in_flight: u64) {
        // 0 would mean that no data was limited by the application.
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// Records the first delivery of a segment.
    #[inline]
    pub(crate) fn on_delivered(&mut self, now: Instant, sent: &SentSegment) {
        self.delivered += sent.len();
        self.delivered_at = now;
        if self.newest.is_none_or(|(serial, ..)| sent.serial > serial) {
            self.newest = Some((sent.serial, sent.snapshot, sent.sent_at));
            self.first_sent_at = sent.sent_at;
        }
    }

    /// The sample of the acknowledgement whose deliveries were just counted.
    /// `min_rtt` is in nanoseconds.
    pub(crate) fn sample(&mut self, min_rtt: Option<u64>) -> Option<RateSample> {
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let (_, prior, sent_at) = self.newest.take()?;
        let between = |a: Instant, b: Instant| a.as_nanos().saturating_sub(b.as_nanos());
        let send = between(sent_at, prior.first_sent_at);
        let ack = between(self.delivered_at, prior.delivered_at);
        // The longer of the two: compressed acknowledgements would show too high a rate.
        let interval = send.max(ack);
        // An interval shorter than any round trip stems from unnecessary retransmissions.
        if interval == 0 || min_rtt.is_some_and(|min| interval < min) {
            return None;
        }
        Some(RateSample {
            delivered: ByteCount::new(self.delivered - prior.delivered),
            interval,
            is_app_limited: prior.is_app_limited,
            prior_delivered: ByteCount::new(prior.delivered),
        })
    }
}
