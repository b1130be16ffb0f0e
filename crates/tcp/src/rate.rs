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
    /// acknowledged and now.
    delivered: ByteCount,
    /// That time, in nanoseconds; not 0.
    interval: u64,
    /// The sender had nothing to send in that time: the path may carry more.
    pub is_app_limited: bool,
    /// Bytes that had been delivered when that segment was sent.
    pub prior_delivered: ByteCount,
}

impl RateSample {
    /// The bytes delivered over the time that it took. Most controllers do not
    /// ask, and are spared the division.
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
    /// `min_rtt` is in nanoseconds.
    pub(crate) fn sample(&mut self, min_rtt: Option<u64>) -> Option<RateSample> {
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let (_, prior, sent_at) = self.newest.take()?;
        let between = |a: Instant, b: Instant| a.as_nanos().saturating_sub(b.as_nanos());
        let send = between(sent_at, prior.first_sent_at);
        let ack = between(self.delivered_at, prior.delivered_at);
        let interval = send.max(ack);
        // Shorter than any round trip: acknowledgements of retransmissions that
        // were not needed.
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
