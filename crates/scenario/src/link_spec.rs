//! One direction of a link as users describe it.

pub(crate) mod raw;
mod read;

use core::time::Duration;

use link::{
    Delay, DisciplineChoice, Encapsulation, Jitter, LinkConfig, Loss, Outage, QueueSize, Rate,
};
use units::BitRate;

pub(crate) use read::Changes;

/// One direction of a link. Sizes may depend on where it is: [`Self::config`] says what "1 BDP" is
/// in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// In bits per second after encapsulation.
    pub rate: Rate,
    /// How packets are encapsulated.
    pub encapsulation: Encapsulation,
    /// One-way delay.
    pub delay: Delay,
    /// Variation of the delay.
    pub jitter: Jitter,
    /// Packet loss.
    pub loss: Loss,
    /// Times without reception, counted from the start.
    pub outages: Vec<Outage>,
    /// Size of the queue for the link.
    pub queue: QueueSize,
    /// Drops before the queue is full.
    pub discipline: DisciplineChoice,
    /// Whether the discipline marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
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

    /// Whether the rate changes over time.
    pub fn rate_changes(&self) -> bool {
        self.rate.least() != self.rate.greatest()
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
            outages: self.outages.clone(),
            discipline: self.discipline.on(rate, rtt, mtu, self.ecn),
            ..LinkConfig::new(self.rate.clone(), self.delay.clone(), self.loss.clone(), limit)
        }
    }
}
