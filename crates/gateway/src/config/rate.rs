//! Source of a side's rate: `rate`, `initial_rate` and `maximum_rate`.

use units::BitRate;

use super::parse::quoted;
use super::{ConfigError, Source};

const RATE: &str =
    "the rate at which this side sends, like \"10 Mbit/s\", or \"auto\", or \"modem\"";
const INITIAL: &str = "the rate while the modem reports none, like \"10 Mbit/s\"";

/// The three keys as written.
#[derive(Default)]
pub(super) struct Written {
    pub(super) rate: Option<String>,
    pub(super) initial: Option<String>,
    pub(super) maximum: Option<String>,
}

impl Source {
    /// The source of the rate, and the maximum that overrides it.
    pub(super) fn rate(
        &self,
        written: Written,
    ) -> Result<(slacp::Rate, Option<BitRate>), ConfigError> {
        let text = written.rate.ok_or_else(|| self.missing("rate", RATE))?;
        let initial = self.bit_rate("initial_rate", written.initial)?;
        let maximum = self.bit_rate("maximum_rate", written.maximum)?;
        let rate = match text.as_str() {
            "auto" => slacp::Rate::Auto { ceiling: maximum },
            "modem" => {
                let initial = initial.ok_or_else(|| self.missing("initial_rate", INITIAL))?;
                slacp::Rate::Modem { initial }
            }
            _ => slacp::Rate::Fixed(self.fixed_rate(&text)?),
        };
        if let (Some(initial), false) = (initial, text == "modem") {
            let problem = "allowed only with rate = \"modem\"";
            return Err(self.value("initial_rate", quoted(initial), problem));
        }
        if let (Some(maximum), slacp::Rate::Fixed(_)) = (maximum, &rate) {
            let problem = "allowed only with rate = \"auto\" or \"modem\"";
            return Err(self.value("maximum_rate", quoted(maximum), problem));
        }
        if let (Some(maximum), Some(initial)) = (maximum, initial)
            && initial > maximum
        {
            let problem = format!("expected at least the initial_rate, {initial}");
            return Err(self.value("maximum_rate", quoted(maximum), problem));
        }
        Ok((rate, maximum))
    }

    fn fixed_rate(&self, text: &str) -> Result<BitRate, ConfigError> {
        let rate: BitRate = text.parse().map_err(|e| {
            self.value("rate", quoted(text), format!("{e}, or \"auto\", or \"modem\""))
        })?;
        if rate.bits_per_second() == 0 {
            return Err(self.value("rate", quoted(text), format!("expected {RATE}")));
        }
        Ok(rate)
    }

    fn bit_rate(
        &self,
        key: &'static str,
        text: Option<String>,
    ) -> Result<Option<BitRate>, ConfigError> {
        let Some(text) = text else { return Ok(None) };
        let rate: BitRate = text.parse().map_err(|e| self.value(key, quoted(&text), e))?;
        if rate.bits_per_second() == 0 {
            return Err(self.value(key, quoted(&text), "expected more than 0"));
        }
        Ok(Some(rate))
    }
}
