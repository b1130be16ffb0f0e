//! Queue disciplines as written by users.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use thiserror::Error;
use units::{BitRate, ByteCount, Probability, format_duration, parse_duration};

use crate::{CoDel, Discipline, Red};

/// The discipline of a queue. Text: `"drop-tail"`, `"drop-head"`, `"red min=5 max=15 max-p=0.1 weight=0.002"`,
/// `"codel target=30ms interval=600ms"`. Missing parameters are derived from the link.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum DisciplineChoice {
    /// No drops while there is room.
    #[default]
    DropTail,
    /// The oldest packet makes room for a new one.
    DropHead,
    /// Random early detection ([`crate::Red`]).
    Red {
        /// Lower threshold in packets. Default 5.
        min: Option<f64>,
        /// Upper threshold in packets. Default three times the lower.
        max: Option<f64>,
        /// Drop probability at the upper threshold. Default 0.1.
        max_p: Option<Probability>,
        /// Weight of the current queue length in the average. Default 0.002.
        weight: Option<Probability>,
    },
    /// Controlled delay ([`crate::CoDel`]).
    CoDel {
        /// Acceptable standing wait. Default a twentieth of the interval.
        target: Option<Duration>,
        /// Time for which the wait may exceed the target. Default the hop's RTT.
        interval: Option<Duration>,
    },
}

/// A text that is not a valid discipline.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a discipline: expected drop-tail, drop-head, red [min=5] [max=15] [max-p=0.1] \
     [weight=0.002] with 0 <= min < max, or codel [target=30ms] [interval=600ms] with target \
     <= interval"
)]
#[non_exhaustive]
pub struct DisciplineError {
    /// The rejected text, as given.
    pub text: String,
}

impl DisciplineChoice {
    /// The discipline on a link of `rate`, in a hop of round-trip time `rtt`, for packets of up to
    /// `mtu` bytes.
    pub fn on(self, rate: BitRate, rtt: Duration, mtu: u16, ecn: bool) -> Discipline {
        match self {
            Self::DropTail => Discipline::DropTail,
            Self::DropHead => Discipline::DropHead,
            Self::Red { min, max, max_p, weight } => {
                let usual = Red::recommended(rate, ByteCount::new(mtu.into()));
                let min_threshold = min.unwrap_or(usual.min_threshold);
                Discipline::Red(Red {
                    min_threshold,
                    // Three to one, as in Floyd's recommendation.
                    max_threshold: max.unwrap_or(3.0 * min_threshold),
                    max_p: max_p.unwrap_or(usual.max_p),
                    weight: weight.unwrap_or(usual.weight),
                    ecn,
                    ..usual
                })
            }
            Self::CoDel { target, interval } => {
                let usual = CoDel::for_rtt(interval.unwrap_or(rtt));
                // A given target may exceed the interval that is derived from a short RTT.
                let target = target.unwrap_or(usual.target).min(usual.interval);
                Discipline::CoDel(CoDel { target, ecn, ..usual })
            }
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let mut discipline = match words.next()? {
            "drop-tail" => Self::DropTail,
            "drop-head" => Self::DropHead,
            "red" => Self::Red { min: None, max: None, max_p: None, weight: None },
            "codel" => Self::CoDel { target: None, interval: None },
            _ => return None,
        };
        for word in words {
            let (name, value) = word.split_once('=')?;
            discipline.set(name, value)?;
        }
        discipline.is_possible().then_some(discipline)
    }

    /// Sets a parameter; `None` if it is already set or unknown.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let threshold = |value: &str| value.parse().ok().filter(|packets: &f64| *packets >= 0.0);
        let twice = match self {
            Self::DropTail | Self::DropHead => return None,
            Self::Red { min, max, max_p, weight } => match name {
                "min" => min.replace(threshold(value)?).is_some(),
                "max" => max.replace(threshold(value)?).is_some(),
                "max-p" => max_p.replace(value.parse().ok()?).is_some(),
                "weight" => weight.replace(value.parse().ok()?).is_some(),
                _ => return None,
            },
            Self::CoDel { target, interval } => match name {
                "target" => target.replace(parse_duration(value).ok()?).is_some(),
                "interval" => interval.replace(parse_duration(value).ok()?).is_some(),
                _ => return None,
            },
        };
        (!twice).then_some(())
    }

    fn is_possible(self) -> bool {
        // Any link will do: only relations between parameters are checked, with their defaults.
        let link = self.on(BitRate::from_mbit(1), Duration::MAX, 1500, false);
        match (self, link) {
            (_, Discipline::Red(red)) => {
                red.min_threshold < red.max_threshold && red.max_threshold.is_finite()
            }
            (Self::CoDel { target: Some(target), interval: Some(interval) }, _) => {
                target <= interval
            }
            _ => true,
        }
    }
}

impl FromStr for DisciplineChoice {
    type Err = DisciplineError;

    fn from_str(text: &str) -> Result<Self, DisciplineError> {
        Self::read(text).ok_or_else(|| DisciplineError { text: text.to_owned() })
    }
}

impl fmt::Display for DisciplineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |name: &str, value: Option<String>| {
            value.map_or(String::new(), |value| format!(" {name}={value}"))
        };
        let time = |name, value: Option<Duration>| {
            word(name, value.map(|value| format_duration(value).replace(' ', "")))
        };
        match self {
            Self::DropTail => f.write_str("drop-tail"),
            Self::DropHead => f.write_str("drop-head"),
            Self::Red { min, max, max_p, weight } => {
                let number = |name, value: &Option<f64>| word(name, value.map(|v| v.to_string()));
                let share =
                    |name, value: &Option<Probability>| word(name, value.map(|v| v.to_string()));
                let thresholds = number("min", min) + &number("max", max);
                write!(f, "red{thresholds}{}{}", share("max-p", max_p), share("weight", weight))
            }
            Self::CoDel { target, interval } => {
                write!(f, "codel{}{}", time("target", *target), time("interval", *interval))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str) -> Discipline {
        let discipline: DisciplineChoice = text.parse().unwrap();
        discipline.on(BitRate::from_mbit(12), Duration::from_millis(600), 1500, true)
    }

    #[test]
    fn missing_values_follow_from_the_link() {
        assert_eq!(on("drop-tail"), Discipline::DropTail);
        let codel = CoDel { ecn: true, ..CoDel::for_rtt(Duration::from_millis(600)) };
        assert_eq!(on("codel"), Discipline::CoDel(codel));
        let interval = CoDel { ecn: true, ..CoDel::for_rtt(Duration::from_millis(100)) };
        assert_eq!(on("codel interval=100ms"), Discipline::CoDel(interval));
        let red = Red::recommended(BitRate::from_mbit(12), ByteCount::new(1500));
        assert_eq!(red.packet_time, Duration::from_millis(1));
        assert_eq!(on("red"), Discipline::Red(Red { ecn: true, ..red }));
        let wide = Red { ecn: true, min_threshold: 50.0, max_threshold: 150.0, ..red };
        assert_eq!(on("red min=50"), Discipline::Red(wide));
    }

    #[test]
    fn text_is_read_back_or_refused() {
        for text in [
            "drop-tail",
            "drop-head",
            "red",
            "red min=50 max=120.5 max-p=0.02 weight=0.001",
            "codel",
            "codel target=30ms interval=600ms",
        ] {
            assert_eq!(text.parse::<DisciplineChoice>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "fq_codel",
            "drop-tail min=5",
            "drop-head min=5",
            "red min=9 max=9",
            "red max=4",
            "red min=-1",
            "red min=nan",
            "red max=inf",
            "red min=1 min=2",
            "red max-p=2",
            "codel target=2s interval=1s",
            "codel 5ms",
        ] {
            let error = wrong.parse::<DisciplineChoice>().unwrap_err().to_string();
            assert!(error.contains("expected drop-tail, drop-head, red"), "{error}");
        }
    }
}
