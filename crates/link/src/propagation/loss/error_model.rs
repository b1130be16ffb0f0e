//! The error models of the SLACP paper, by name, and custom ones.

use core::fmt;
use core::str::FromStr;

use super::burst::{BurstModel, DurationRange};
use crate::text::SettingKind;
use crate::{LossModel, SettingError};

const KIND: SettingKind = SettingKind {
    what: "error model",
    expected: "none, low, medium, high or huge, or the least and greatest durations of both \
               states, like \"good=10s..30s bad=60ms\"",
};

/// The satellite error models of D. Astuti, "TCP and Link Layer Enhancements in
/// DVB-S/DVB-RCS satellite systems" (SLACP), Table 2: two states with uniform durations.
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
///
/// Text: the name, or `"good=10s..30s bad=60ms"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorModel {
    /// The model without errors.
    None,
    /// 0.3 % of the time is bad.
    Low,
    /// 2 % of the time is bad.
    Medium,
    /// 3.2 % of the time is bad.
    High,
    /// 2.8 % of the time is bad, in twice as many bursts.
    Huge,
    /// A custom model with its own durations.
    Own(BurstModel),
}

impl ErrorModel {
    /// The models of the table, in its order.
    pub const ALL: [Self; 5] = [Self::None, Self::Low, Self::Medium, Self::High, Self::Huge];

    /// Returns the bursts of the model; `None` if it has no errors.
    pub const fn burst(self) -> Option<BurstModel> {
        let (good, bad) = match self {
            Self::None => return None,
            Self::Low => (DurationRange::millis(10_000, 30_000), DurationRange::millis(60, 60)),
            Self::Medium => (DurationRange::millis(5_000, 15_000), DurationRange::millis(100, 300)),
            Self::High => (DurationRange::millis(2_000, 10_000), DurationRange::millis(100, 300)),
            Self::Huge => (DurationRange::millis(0, 7_000), DurationRange::millis(100, 100)),
            Self::Own(burst) => return Some(burst),
        };
        Some(BurstModel::known(good, bad))
    }

    /// Returns its name in the paper, in lower case; `own` for a custom one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Huge => "huge",
            Self::Own(_) => "own",
        }
    }
}

impl From<ErrorModel> for LossModel {
    fn from(model: ErrorModel) -> Self {
        model.burst().map_or(Self::None, Self::Burst)
    }
}

impl From<BurstModel> for ErrorModel {
    fn from(burst: BurstModel) -> Self {
        let known = |model: &Self| model.burst() == Some(burst);
        Self::ALL.into_iter().find(known).unwrap_or(Self::Own(burst))
    }
}

impl FromStr for ErrorModel {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        KIND.read(text, |text| {
            let named = |model: &Self| model.name() == text;
            let known = Self::ALL.into_iter().find(named);
            known.or_else(|| BurstModel::read(text).map(Self::Own))
        })
    }
}

impl fmt::Display for ErrorModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(burst) => burst.fmt(f),
            known => f.pad(known.name()),
        }
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
        let own: ErrorModel = "good=1s..2.5s bad=60ms".parse().unwrap();
        let second = Duration::from_secs(1);
        let ms = Duration::from_millis;
        let burst = BurstModel::new(second..=ms(2500), ms(60)..=ms(60)).unwrap();
        assert_eq!((own, own.to_string().parse()), (ErrorModel::Own(burst), Ok(own)));
        assert_eq!(
            ErrorModel::from(
                "good=0s..7s bad=100ms".parse::<ErrorModel>().unwrap().burst().unwrap()
            ),
            ErrorModel::Huge
        );
        for wrong in ["", "own", "good=1s", "good=2s..1s bad=0s", "good=0s bad=0s", "good=1 bad=2"]
        {
            assert!(wrong.parse::<ErrorModel>().is_err(), "{wrong}");
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
            assert_eq!(model.burst(), Some(BurstModel::new(good, bad).unwrap()), "{model}");
        }
        assert_eq!(LossModel::from(ErrorModel::None), LossModel::None);
    }

    #[test]
    fn the_shares_of_bad_time_follow() {
        let shares = ErrorModel::ALL.map(|model| model.burst().map_or(0.0, BurstModel::bad_share));
        let expected = [0.0, 0.06 / 20.06, 0.2 / 10.2, 0.2 / 6.2, 0.1 / 3.6];
        for (share, expected) in shares.into_iter().zip(expected) {
            assert!((share - expected).abs() < 1e-12, "{share} {expected}");
        }
    }
}
