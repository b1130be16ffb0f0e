//! A rate known from the configuration or, temporarily, from the modem.

use core::time::Duration;

use units::{BitRate, Instant};

use super::RateError;

/// The configured rate, and the one reported by the modem until it expires.
#[derive(Debug)]
pub(crate) struct ConfiguredRate {
    configured: BitRate,
    from_modem: bool,
    reported: Option<(BitRate, Instant)>,
}

impl ConfiguredRate {
    pub(crate) fn fixed(rate: BitRate) -> Self {
        Self { configured: rate, from_modem: false, reported: None }
    }

    pub(crate) fn modem(initial: BitRate) -> Self {
        Self { from_modem: true, ..Self::fixed(initial) }
    }

    /// Applies a new configured rate; `false` if it comes from another source.
    pub(crate) fn configure(&mut self, rate: BitRate, from_modem: bool) -> bool {
        if from_modem == self.from_modem {
            self.configured = rate;
        }
        from_modem == self.from_modem
    }

    pub(crate) fn rate(&self) -> BitRate {
        self.reported.map_or(self.configured, |(rate, _)| rate)
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
        Ok(())
    }

    /// When the reported rate expires.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.reported.map(|(_, until)| until)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.reported = self.reported.filter(|(_, until)| *until > now);
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
