//! Keys of a side's rate: `rate`, `initial_rate`, `maximum_rate`, `probe` and `probe_share`.

use units::{BitRate, Probability};

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::values::{InitialRate, RateChoice};

const RATE: &str =
    "the rate at which this side sends, like \"10 Mbit/s\", or \"auto\", or \"modem\"";

/// The keys of the rate as written.
pub(crate) struct RateKeys {
    pub(crate) rate: Option<Text<RateChoice>>,
    pub(crate) initial: Option<Text<InitialRate>>,
    pub(crate) maximum: Option<Text<BitRate>>,
    pub(crate) probe: Option<bool>,
    pub(crate) probe_share: Option<Text<Probability>>,
}

/// The settings that follow from the keys.
pub(crate) struct RateSettings {
    pub(crate) rate: slacp::Rate,
    /// Upper limit of the rate.
    pub(crate) maximum: Option<BitRate>,
    /// Share of sent bytes that padding may take, if it is set.
    pub(crate) probe_share: Option<f64>,
}

impl RateKeys {
    pub(crate) fn read(self, place: &KeyContext<'_>) -> Result<RateSettings, FileError> {
        let choice = self.rate.ok_or_else(|| place.missing_key("rate", RATE))?.0;
        let initial = self.initial.map(|initial| Text(initial.0.0));
        let initial = rate(place, "initial_rate", initial)?;
        let maximum = rate(place, "maximum_rate", self.maximum)?;
        let probe = self.probe.unwrap_or(true);
        let source = match (choice, initial) {
            (RateChoice::Auto, _) => slacp::Rate::Auto { ceiling: maximum, probe },
            (RateChoice::Modem, Some(initial)) => slacp::Rate::Modem { initial },
            (RateChoice::Modem, None) => slacp::Rate::ModemOrAuto { ceiling: maximum, probe },
            (RateChoice::Fixed(rate), _) => slacp::Rate::Fixed(above_zero(place, "rate", rate)?),
        };
        if let Some(initial) = initial {
            let expected = "no such key, or rate = \"modem\"";
            let good = choice == RateChoice::Modem;
            place.check(good, "initial_rate", quoted(initial), expected)?;
        }
        if let Some(probe) = self.probe {
            let expected = "no such key, or rate = \"auto\", or \"modem\" without an initial_rate";
            let good = matches!(source, slacp::Rate::Auto { .. } | slacp::Rate::ModemOrAuto { .. });
            place.check(good, "probe", probe, expected)?;
        }
        if let Some(Text(share)) = self.probe_share {
            let expected = "no such key, or a rate that is measured with probe = true";
            place.check(source.probes(), "probe_share", quoted(share), expected)?;
        }
        if let Some(maximum) = maximum {
            let expected = "no such key, or rate = \"auto\" or \"modem\"";
            let good = !matches!(choice, RateChoice::Fixed(_));
            place.check(good, "maximum_rate", quoted(maximum), expected)?;
            let least = initial.unwrap_or(maximum);
            let expected = format!("at least the initial_rate, {least}");
            place.check(maximum >= least, "maximum_rate", quoted(maximum), expected)?;
        }
        let probe_share = self.probe_share.map(|share| share.0.get());
        Ok(RateSettings { rate: source, maximum, probe_share })
    }
}

/// Checks that an optional rate is above zero.
pub(crate) fn rate(
    place: &KeyContext<'_>,
    key: &str,
    rate: Option<Text<BitRate>>,
) -> Result<Option<BitRate>, FileError> {
    rate.map(|rate| above_zero(place, key, rate.0)).transpose()
}

fn above_zero(place: &KeyContext<'_>, key: &str, rate: BitRate) -> Result<BitRate, FileError> {
    let expected = "a rate above 0, like \"10 Mbit/s\"";
    place.check(rate.bits_per_second() > 0, key, quoted(rate), expected).map(|()| rate)
}
