//! One direction of a link as users describe it.

mod acm;
mod or_none;
pub(crate) mod raw;
mod read;
#[cfg(test)]
mod tests;

use core::time::Duration;

use link::{
    Delay, DisciplineChoice, Encapsulation, Jitter, LinkConfig, LossModel, Outage, Policer,
    QueueSize, Rate,
};
use units::BitRate;

pub use acm::AcmSpec;
pub use or_none::{OrNone, OrNoneError};
pub(crate) use read::{LinkChanges, check_rate};

/// One direction of a link. Sizes may depend on the path: [`Self::config`] converts "1 BDP" to bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Rate after encapsulation.
    pub rate: RateSpec,
    /// Encapsulation of IP packets, whose overhead counts against the rate.
    pub encapsulation: Encapsulation,
    /// One-way propagation delay.
    pub delay: Delay,
    /// Random extra delay of each packet.
    pub jitter: Jitter,
    /// Model of packet loss.
    pub loss: LossModel,
    /// Times without reception, counted from the start; in addition to those of
    /// [`RateSpec::Acm`].
    pub outages: Vec<Outage>,
    /// Drops packets that exceed a rate before they reach the queue.
    pub policer: Option<Policer>,
    /// Size of the queue for the link.
    pub queue: QueueSize,
    /// Queue discipline, which may drop packets before the queue is full.
    pub discipline: DisciplineChoice,
    /// True if the discipline marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

/// The rate of a link, in bits per second after encapsulation.
#[derive(Debug, Clone, PartialEq)]
pub enum RateSpec {
    /// A constant rate or a trace of rates.
    Given(Rate),
    /// The rate of a carrier that adapts to rain, with times at which it cannot be decoded.
    Acm(Box<AcmSpec>),
}

impl RateSpec {
    /// Returns the rate over time.
    pub fn over_time(&self) -> &Rate {
        match self {
            Self::Given(rate) => rate,
            Self::Acm(acm) => acm.rate(),
        }
    }

    /// Returns the maximum rate; for opportunities, the mean.
    pub fn greatest(&self) -> BitRate {
        self.over_time().greatest()
    }

    /// Returns the minimum rate above zero, or zero if there is none; for opportunities, the mean.
    pub fn least(&self) -> BitRate {
        self.over_time().least()
    }

    /// Returns the times at which the far end cannot decode the signal, because of rain.
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
    /// Returns the maximum rate of back-to-back IP packets of `len` bytes: the greatest rate without the
    /// overhead of encapsulation.
    pub fn peak_rate(&self, len: u16) -> BitRate {
        let rate = self.rate.greatest();
        if self.encapsulation == Encapsulation::None {
            return rate;
        }
        // The mean, because encapsulated sizes differ with packing.
        let share = f64::from(len) / self.encapsulation.mean_wire_bytes(len.into());
        BitRate::from_bits_per_second((rate.bits_per_second() as f64 * share) as u64)
    }

    /// Returns true if less than the greatest rate may pass, because the rate changes or is policed.
    pub fn rate_changes(&self) -> bool {
        self.policer.is_some() || self.rate.least() != self.rate.greatest()
    }

    /// Returns the link for a path of round-trip time `rtt` with packets of up to `mtu` bytes.
    ///
    /// A queue holds IP packets, so its size in BDPs and RED's averaging refer to the rate that IP
    /// packets get ([`Self::peak_rate`]), not to the rate after encapsulation.
    pub fn config(&self, rtt: Duration, mtu: u16) -> LinkConfig {
        let rate = self.peak_rate(mtu);
        let limit = self.queue.limit(rate, rtt, mtu);
        LinkConfig {
            encapsulation: self.encapsulation,
            jitter: self.jitter,
            // Rain that defeats every MODCOD adds to the file's outages.
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
