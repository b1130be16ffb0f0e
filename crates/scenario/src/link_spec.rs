//! One direction of a link as users describe it.

mod acm;
pub(crate) mod raw;
mod read;
#[cfg(test)]
mod tests;

use core::time::Duration;

use link::{
    Delay, DisciplineChoice, Encapsulation, Jitter, LinkConfig, Loss, Outage, Policer, QueueSize,
    Rate,
};
use units::BitRate;

pub use acm::AcmSpec;
pub(crate) use read::{Changes, check_rate};

/// One direction of a link. Sizes may depend on where it is: [`Self::config`] says what "1 BDP" is
/// in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// In bits per second after encapsulation.
    pub rate: RateSpec,
    /// How packets are encapsulated.
    pub encapsulation: Encapsulation,
    /// One-way delay.
    pub delay: Delay,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Packet loss.
    pub loss: Loss,
    /// Times without reception, counted from the start; in addition to those of
    /// [`RateSpec::Acm`].
    pub outages: Vec<Outage>,
    /// Drops what exceeds a rate before it reaches the queue.
    pub policer: Option<Policer>,
    /// Size of the queue for the link.
    pub queue: QueueSize,
    /// Drops before the queue is full.
    pub discipline: DisciplineChoice,
    /// Whether the discipline marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

/// The rate of a link, in bits per second after encapsulation.
#[derive(Debug, Clone, PartialEq)]
pub enum RateSpec {
    /// A constant or a trace.
    Given(Rate),
    /// That of a carrier that follows the rain, with times at which it cannot be decoded.
    Acm(Box<AcmSpec>),
}

impl RateSpec {
    /// The rate over time.
    pub fn over_time(&self) -> &Rate {
        match self {
            Self::Given(rate) => rate,
            Self::Acm(acm) => acm.rate(),
        }
    }

    /// The maximum rate; for opportunities, the mean.
    pub fn greatest(&self) -> BitRate {
        self.over_time().greatest()
    }

    /// The minimum rate above zero, or zero if there is none; for opportunities, the mean.
    pub fn least(&self) -> BitRate {
        self.over_time().least()
    }

    /// When the far end cannot decode what arrives, because the rate does not suit the weather.
    fn outages(&self, delay: &Delay) -> Vec<Outage> {
        match self {
            Self::Given(_) => Vec::new(),
            Self::Acm(acm) => acm.outages(delay),
        }
    }
}

impl<R: Into<Rate>> From<R> for RateSpec {
    fn from(rate: R) -> Self {
        Self::Given(rate.into())
    }
}

impl LinkSpec {
    /// The maximum rate that back-to-back IP packets of `len` bytes ever get: what encapsulation
    /// leaves of the greatest rate.
    pub fn peak_rate(&self, len: u16) -> BitRate {
        let rate = self.rate.greatest();
        if self.encapsulation == Encapsulation::None {
            return rate;
        }
        let share = f64::from(len) / self.encapsulation.mean_wire_bytes(len.into());
        BitRate::from_bits_per_second((rate.bits_per_second() as f64 * share) as u64)
    }

    /// Whether less than the greatest rate may pass: it changes over time, or is policed.
    pub fn rate_changes(&self) -> bool {
        self.policer.is_some() || self.rate.least() != self.rate.greatest()
    }

    /// The link, on a path of round-trip time `rtt` with packets of up to `mtu` bytes.
    ///
    /// A queue holds IP packets, so its size in BDPs and RED's averaging refer to the rate that IP
    /// packets get ([`Self::peak_rate`]), not to the rate after encapsulation.
    pub fn config(&self, rtt: Duration, mtu: u16) -> LinkConfig {
        let rate = self.peak_rate(mtu);
        let limit = self.queue.limit(rate, rtt, mtu);
        LinkConfig {
            encapsulation: self.encapsulation,
            jitter: self.jitter,
            outages: [&self.outages[..], &self.rate.outages(&self.delay)].concat(),
            policer: self.policer,
            discipline: self.discipline.on(rate, rtt, mtu, self.ecn),
            ..LinkConfig::new(
                self.rate.over_time().clone(),
                self.delay.clone(),
                self.loss.clone(),
                limit,
            )
        }
    }
}
