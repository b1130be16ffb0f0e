//! The error models of the SLACP paper, by name.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use super::burst::{Burst, Span};
use crate::Loss;

/// The satellite error models of D. Astuti et al., "TCP and Link Layer
/// Enhancements in DVB-S/DVB-RCS Satellite Systems with Bandwidth on Demand"
/// (SLACP), Table 2: two states with uniform durations.
///
/// | model | time between bursts | burst length |
/// |---|---|---|
/// | none | no errors | |
/// | low | 10 to 30 s | 60 ms |
/// | medium | 5 to 15 s | 100 to 300 ms |
/// | high | 2 to 10 s | 100 to 300 ms |
/// | huge | 0 to 7 s | 100 ms |
///
/// The table gives no unit for the time between bursts; next to lengths "60ms",
/// and with some errors in transfers of tens of seconds, it is seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorModel {
    /// Without any error.
    None,
    /// 0.3 % of the time is bad.
    Low,
    /// 2 % of the time is bad.
    Medium,
    /// 3.2 % of the time is bad.
    High,
    /// 2.8 % of the time is bad, in twice as many bursts.
    Huge,
}

/// A text that names no [`ErrorModel`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no error model: expected none, low, medium, high or huge")]
#[non_exhaustive]
pub struct UnknownErrorModel {
    /// The text as given.
    pub text: String,
}

impl ErrorModel {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 5] = [Self::None, Self::Low, Self::Medium, Self::High, Self::Huge];

    /// The bursts of the model, or `None` for the one without any.
    pub const fn burst(self) -> Option<Burst> {
        let (good, bad) = match self {
            Self::None => return None,
            Self::Low => (Span::millis(10_000, 30_000), Span::millis(60, 60)),
            Self::Medium => (Span::millis(5_000, 15_000), Span::millis(100, 300)),
            Self::High => (Span::millis(2_000, 10_000), Span::millis(100, 300)),
            Self::Huge => (Span::millis(0, 7_000), Span::millis(100, 100)),
        };
        Some(Burst::known(good, bad))
    }

    /// Its name in the paper, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Huge => "huge",
        }
    }
}

impl From<ErrorModel> for Loss {
    fn from(model: ErrorModel) -> Self {
        model.burst().map_or(Self::None, Self::Burst)
    }
}

impl FromStr for ErrorModel {
    type Err = UnknownErrorModel;

    fn from_str(text: &str) -> Result<Self, UnknownErrorModel> {
        let named = |model: &Self| model.name() == text.trim();
        Self::ALL.into_iter().find(named).ok_or_else(|| UnknownErrorModel { text: text.to_owned() })
    }
}

impl fmt::Display for ErrorModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn names_read_back() {
        for model in ErrorModel::ALL {
            assert_eq!(model.to_string().parse(), Ok(model));
        }
        let error = "terrible".parse::<ErrorModel>().unwrap_err().to_string();
        assert!(error.contains("terrible") && error.contains("huge"), "{error}");
    }

    #[test]
    fn the_models_are_those_of_the_table() {
        let seconds = |min, max| Duration::from_secs(min)..=Duration::from_secs(max);
        let millis = |min, max| Duration::from_millis(min)..=Duration::from_millis(max);
        for (model, good, bad) in [
            (ErrorModel::Low, seconds(10, 30), millis(60, 60)),
            (ErrorModel::Medium, seconds(5, 15), millis(100, 300)),
            (ErrorModel::High, seconds(2, 10), millis(100, 300)),
            (ErrorModel::Huge, seconds(0, 7), millis(100, 100)),
        ] {
            assert_eq!(model.burst(), Some(Burst::new(good, bad).unwrap()), "{model}");
        }
        assert_eq!(Loss::from(ErrorModel::None), Loss::None);
    }

    #[test]
    fn the_shares_of_bad_time_follow() {
        let shares = ErrorModel::ALL.map(|model| model.burst().map_or(0.0, Burst::bad_share));
        let expected = [0.0, 0.06 / 20.06, 0.2 / 10.2, 0.2 / 6.2, 0.1 / 3.6];
        for (share, expected) in shares.into_iter().zip(expected) {
            assert!((share - expected).abs() < 1e-12, "{share} {expected}");
        }
    }
}
