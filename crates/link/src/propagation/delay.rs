//! Propagation delay and jitter.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use units::{Instant, format_duration};

use crate::text::{SettingKind, duration};
use crate::{SettingError, Trace};

const JITTER: SettingKind =
    SettingKind { what: "jitter", expected: "none, \"5 ms\" or \"5 ms reordering\"" };

/// One-way delay of a link, from the last bit sent to the last bit received. A packet gets the
/// delay at the time its last bit leaves.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// The same delay for all packets.
    Constant(Duration),
    /// In steps, for moving satellites and hand-overs between them. The trace starts with the link,
    /// or when it is set.
    Trace(Trace<Duration>),
}

impl From<Duration> for Delay {
    fn from(delay: Duration) -> Self {
        Self::Constant(delay)
    }
}

impl From<Trace<Duration>> for Delay {
    fn from(trace: Trace<Duration>) -> Self {
        Self::Trace(trace)
    }
}

impl Delay {
    /// Returns the maximum delay, of a trace over all its steps.
    pub fn greatest(&self) -> Duration {
        match self {
            Self::Constant(delay) => *delay,
            Self::Trace(trace) => trace.values().max().copied().unwrap_or_default(),
        }
    }
}

/// Random extra delay per packet, uniform between zero and the duration, and independent. Text:
/// `"none"`, `"5 ms"`, `"5 ms reordering"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Jitter {
    /// No extra delay.
    #[default]
    None,
    /// Packets stay in order: one that would overtake waits for the earlier one. Arrivals therefore
    /// bunch, and the mean extra exceeds half the duration if packets follow each other faster than
    /// it.
    InOrder(Duration),
    /// Packets may overtake each other, also when the delay itself decreases.
    Reordering(Duration),
}

impl Jitter {
    /// Returns the extra delay of a packet with the random number `luck`.
    pub(crate) fn extra(self, luck: u64) -> Duration {
        let most = u64::try_from(self.greatest().as_nanos()).unwrap_or(u64::MAX);
        let width = u128::from(most) + 1;
        // The high half of the product is uniform in 0..=most, without a division.
        Duration::from_nanos(((u128::from(luck) * width) >> 64) as u64)
    }

    /// Returns true if packets may overtake each other.
    pub fn reorders(self) -> bool {
        matches!(self, Self::Reordering(_))
    }

    /// Returns the maximum extra delay.
    pub fn greatest(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::InOrder(most) | Self::Reordering(most) => most,
        }
    }
}

impl FromStr for Jitter {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        JITTER.read(text, |text| match text.strip_suffix("reordering") {
            Some(most) => duration(most).map(Self::Reordering),
            None if text == "none" => Some(Self::None),
            None => duration(text).map(Self::InOrder),
        })
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::InOrder(most) => f.write_str(&format_duration(*most)),
            Self::Reordering(most) => write!(f, "{} reordering", format_duration(*most)),
        }
    }
}

/// A delay that has started.
#[derive(Debug)]
pub(crate) struct PropagationPath {
    begin: Instant,
    length: PathDelay,
    pub(crate) jitter: Jitter,
}

#[derive(Debug)]
enum PathDelay {
    /// A constant delay in nanoseconds.
    Constant(u64),
    Trace(Trace<Duration>),
}

impl From<Delay> for PathDelay {
    fn from(delay: Delay) -> Self {
        match delay {
            Delay::Constant(delay) => {
                Self::Constant(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
            }
            Delay::Trace(trace) => Self::Trace(trace),
        }
    }
}

impl PropagationPath {
    pub(crate) fn new(delay: Delay, jitter: Jitter, begin: Instant) -> Self {
        Self { begin, length: delay.into(), jitter }
    }

    pub(crate) fn set_delay(&mut self, delay: Delay, begin: Instant) {
        (self.length, self.begin) = (delay.into(), begin);
    }

    /// Returns the arrival of a packet whose last bit leaves at `departure`, if nothing holds it
    /// up. `luck` is only called if there is jitter.
    #[inline]
    pub(crate) fn arrival(&self, departure: Instant, luck: impl FnOnce() -> u64) -> Instant {
        let arrival = match &self.length {
            // In 64 bits, because this runs for every packet.
            PathDelay::Constant(nanos) => {
                Instant::from_nanos(departure.as_nanos().saturating_add(*nanos))
            }
            PathDelay::Trace(trace) => self.arrival_by(trace, departure),
        };
        if self.jitter == Jitter::None { arrival } else { arrival + self.jitter.extra(luck()) }
    }

    #[inline(never)]
    fn arrival_by(&self, trace: &Trace<Duration>, departure: Instant) -> Instant {
        departure + *trace.value_at(departure.saturating_since(self.begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_reach_from_zero_to_the_duration() {
        let jitter = Jitter::InOrder(Duration::from_nanos(9));
        assert_eq!(jitter.extra(0), Duration::ZERO);
        assert_eq!(jitter.extra(u64::MAX), Duration::from_nanos(9));
        assert_eq!(jitter.extra(u64::MAX / 2), Duration::from_nanos(4));
        assert_eq!(Jitter::Reordering(Duration::MAX).extra(7), Duration::from_nanos(7));
        assert_eq!(Jitter::None.extra(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn jitter_is_read_back_or_refused() {
        let ms = Duration::from_millis(5);
        for jitter in [Jitter::None, Jitter::InOrder(ms), Jitter::Reordering(ms)] {
            assert_eq!(jitter.to_string().parse(), Ok(jitter));
        }
        let error = "5 ms backwards".parse::<Jitter>().unwrap_err().to_string();
        assert!(error.contains("5 ms backwards") && error.contains("5 ms reordering"), "{error}");
    }

    #[test]
    fn the_greatest_delay_of_a_trace_is_found() {
        let trace = Trace::parse("0s 5ms\n1s 9ms\n2s 7ms").unwrap();
        assert_eq!(Delay::Trace(trace).greatest(), Duration::from_millis(9));
        assert_eq!(Delay::from(Duration::MAX).greatest(), Duration::MAX);
    }
}
