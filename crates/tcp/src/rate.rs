//! Delivery rate samples (Cheng, Cardwell, Yeganeh and Jacobson, "Delivery Rate
//! Estimation", draft-cheng-iccrg-delivery-rate-estimation-02).

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use crate::flight::Sent;

/// What a segment remembers of the moment when it was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Snapshot {
    pub(crate) delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    is_app_limited: bool,
}

/// The rate at which data reached the receiver, measured by one
/// acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered between the sending of the segment that was just
    /// acknowledged and now, over that time.
    pub rate: BitRate,
    /// The sender had nothing to send in that time: the path may carry more.
    pub is_app_limited: bool,
    /// Bytes that had been delivered when that segment was sent.
    pub prior_delivered: ByteCount,
}

/// Counts deliveries (C.* of the draft) and makes samples (rs.*).
#[derive(Debug, Clone, Default)]
pub(crate) struct RateMeter {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Data up to this count of deliveries was sent while the application had
    /// too little of it; 0 for none.
    app_limited_until: u64,
    newest: Option<(u64, Snapshot, Instant)>,
}

impl RateMeter {
    /// Bytes delivered so far.
    #[inline]
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A segment is sent `now`; `idle` if nothing was in flight.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, idle: bool) -> Snapshot {
        if idle {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            is_app_limited: self.app_limited_until > 0,
        }
    }

    /// There is nothing to send although there would be room.
    #[inline]
    pub(crate) fn app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }

    /// A segment is delivered, which was not before.
    #[inline]
    pub(crate) fn on_delivered(&mut self, now: Instant, sent: &Sent) {
        self.delivered += sent.len();
        self.delivered_at = now;
        if self.newest.is_none_or(|(serial, ..)| sent.serial > serial) {
            self.newest = Some((sent.serial, sent.snapshot, sent.sent_at));
            self.first_sent_at = sent.sent_at;
        }
    }

    /// The sample of the acknowledgement whose deliveries were just counted.
    pub(crate) fn sample(&mut self, min_rtt: Option<Duration>) -> Option<RateSample> {
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let (_, prior, sent_at) = self.newest.take()?;
        let send = sent_at.saturating_since(prior.first_sent_at);
        let ack = self.delivered_at.saturating_since(prior.delivered_at);
        let interval = send.max(ack);
        // Shorter than any round trip: acknowledgements of retransmissions that
        // were not needed.
        if min_rtt.is_some_and(|min| interval < min) {
            return None;
        }
        let delivered = ByteCount::new(self.delivered - prior.delivered);
        Some(RateSample {
            rate: BitRate::average(delivered, interval)?,
            is_app_limited: prior.is_app_limited,
            prior_delivered: ByteCount::new(prior.delivered),
        })
    }
}
