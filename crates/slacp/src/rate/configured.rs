//! A rate known from the configuration or, temporarily, from the modem.

use core::time::Duration;

use units::{BitRate, ByteCount, Instant};

use super::breaker::{Breaker, Change};
use crate::recovery::path::loss::PacketFate;
use crate::scheduler::pacer::{BURST, Pacer};
use crate::{Overload, RateError};

/// The configured rate, and the one reported by the modem until it expires. A circuit breaker
/// lowers it if it is several times too high.
#[derive(Debug)]
pub(crate) struct ConfiguredRate {
    configured: BitRate,
    from_modem: bool,
    reported: Option<(BitRate, Instant)>,
    breaker: Breaker,
    /// Paces the session while the breaker lowers its rate, and is not charged otherwise. In the pacer
    /// that all sessions share, a packet at that rate would hold up the others, and they would get no
    /// more bytes than this one.
    pacer: Pacer,
    /// The breaker's last change, until the owner takes it.
    change: Option<Change>,
}

impl ConfiguredRate {
    pub(crate) fn fixed(rate: BitRate) -> Self {
        Self {
            configured: rate,
            from_modem: false,
            reported: None,
            breaker: Breaker::new(rate),
            pacer: Pacer::new(rate, BURST),
            change: None,
        }
    }

    pub(crate) fn modem(initial: BitRate) -> Self {
        Self { from_modem: true, ..Self::fixed(initial) }
    }

    /// Applies a new configured rate; returns `false` if it comes from another source.
    pub(crate) fn configure(&mut self, now: Instant, rate: BitRate, from_modem: bool) -> bool {
        if from_modem != self.from_modem {
            return false;
        }
        let before = self.told();
        self.configured = rate;
        // While a report holds, the configured rate is not in use, and the breaker keeps its
        // opinion.
        if self.told() != before {
            let change = self.breaker.reset(now, self.told());
            self.note(now, change);
        }
        true
    }

    /// The configured or reported rate.
    pub(crate) fn told(&self) -> BitRate {
        self.reported.map_or(self.configured, |(rate, _)| rate)
    }

    /// The rate at which the session may send: [`Self::told`], or less if the breaker has tripped.
    pub(crate) fn rate(&self) -> BitRate {
        self.breaker.rate()
    }

    pub(crate) fn is_tripped(&self) -> bool {
        self.breaker.is_tripped()
    }

    pub(crate) fn overload(&self) -> Option<&Overload> {
        self.breaker.overload()
    }

    /// Time from which the session itself allows payload to leave; `None` at rate 0.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        (self.rate().bits_per_second() > 0).then(|| self.pacer.ready_at())
    }

    fn is_lowered(&self) -> bool {
        self.rate() < self.told()
    }

    pub(crate) fn report(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        if !self.from_modem {
            return Err(RateError::NotFromModem);
        }
        self.reported = Some((rate, now + valid_for));
        let change = self.breaker.follow(now, rate);
        self.note(now, change);
        Ok(())
    }

    /// Ends the report at once, if there is one.
    pub(crate) fn expire(&mut self, now: Instant) -> Result<(), RateError> {
        if !self.from_modem {
            return Err(RateError::NotFromModem);
        }
        if self.reported.take().is_some() {
            let change = self.breaker.follow(now, self.configured);
            self.note(now, change);
        }
        Ok(())
    }

    /// Follows a rate that the modem reports; its expiry is the caller's.
    pub(crate) fn follow(&mut self, now: Instant, rate: BitRate) {
        self.configured = rate;
        let change = self.breaker.follow(now, rate);
        self.note(now, change);
    }

    /// Goes on after another law has set the rate. The bytes that this has left in the link's queue
    /// leave first: at a rate that the link just carries, the queue would stay.
    pub(crate) fn resume(&mut self, now: Instant, queued: ByteCount) {
        self.breaker.resume(now);
        self.pacer.charge(now, queued);
    }

    pub(crate) fn sent(&mut self, now: Instant, size: ByteCount) {
        self.breaker.sent(now);
        if self.is_lowered() {
            self.pacer.charge(now, size);
        }
    }

    /// Processes the fate of a packet; returns `true` if it changes the rate.
    pub(crate) fn saw(&mut self, now: Instant, rtt: Duration, fate: &PacketFate) -> bool {
        let change = self.breaker.saw(now, rtt, fate);
        if change.is_some() {
            self.note(now, change);
        }
        change.is_some()
    }

    pub(crate) fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    fn note(&mut self, now: Instant, change: Option<Change>) {
        self.pacer.set_rate(now, self.breaker.rate());
        // A change that was not taken yet stays until there is a newer one.
        self.change = change.or(self.change);
    }

    /// Time at which the reported rate expires, or the breaker has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let expiry = self.reported.map(|(_, until)| until);
        expiry.into_iter().chain(self.breaker.poll_timeout()).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.reported.is_some_and(|(_, until)| until <= now) {
            // Only a modem's report expires.
            let _ = self.expire(now);
        }
        let change = self.breaker.handle_timeout(now);
        self.note(now, change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_rate_holds_until_it_expires() {
        let (at, mbit) = (|s: u64| Instant::from_nanos(s * 1_000_000_000), BitRate::from_mbit);
        let mut rate = ConfiguredRate::modem(mbit(50));
        rate.report(at(1), mbit(5), Duration::from_secs(10)).unwrap();
        assert_eq!((rate.rate(), rate.poll_timeout()), (mbit(5), Some(at(11))));
        rate.handle_timeout(at(10));
        assert_eq!(rate.rate(), mbit(5));
        rate.handle_timeout(at(11));
        assert_eq!((rate.rate(), rate.poll_timeout()), (mbit(50), None));
    }

    #[test]
    fn a_fixed_rate_is_not_reported() {
        let mut rate = ConfiguredRate::fixed(BitRate::from_mbit(50));
        let answer = rate.report(Instant::ZERO, BitRate::from_mbit(5), Duration::MAX);
        assert_eq!(answer, Err(RateError::NotFromModem));
        assert_eq!(rate.rate(), BitRate::from_mbit(50));
    }
}
