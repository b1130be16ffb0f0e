//! Adaptive coding and modulation: the table `acm` of a link.

use core::time::Duration;

use link::{Acm, Adaptation, Delay, Modcod, Modcods, Outage, Rate, Standard, Trace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Decibels, SymbolRate, format_duration};

use super::read::{own, trace};
use crate::trace::Source;
use config::FileError;
use config::file::place::{KeyContext, quoted};
use config::file::text::{Text, Time};

/// A carrier that adapts its MODCOD to rain, in place of a link's rate.
#[derive(Debug, Clone, PartialEq)]
pub struct AcmSpec {
    standard: Standard,
    acm: Acm,
    clear_sky: Decibels,
    rain: Trace<Decibels>,
    /// The MODCODs over time, which follow from the other fields.
    adaptation: Adaptation,
    /// The rates of the adaptation.
    rate: Rate,
}

impl AcmSpec {
    /// Creates a carrier with MODCODs of `standard`, whose receiver has the Es/N0 `clear_sky` minus the
    /// attenuation `rain`.
    pub fn new(standard: Standard, acm: Acm, clear_sky: Decibels, rain: Trace<Decibels>) -> Self {
        // Only the attenuation counts: the noise that rain adds is not modelled.
        let adaptation = acm.follow(rain.map(|attenuation| clear_sky - *attenuation));
        let rates = adaptation.rates();
        let rate = match *rates.values().collect::<Vec<_>>() {
            [constant] => Rate::Constant(*constant),
            _ => Rate::Trace(rates),
        };
        Self { standard, acm, clear_sky, rain, adaptation, rate }
    }

    /// Returns the MODCODs that the hub uses over time.
    pub fn adaptation(&self) -> &Adaptation {
        &self.adaptation
    }

    /// Returns the rates of the carrier.
    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    /// Returns the times at which the receiver cannot decode the signal. If the delay changes, its maximum
    /// counts.
    pub(super) fn outages(&self, delay: &Delay) -> Vec<Outage> {
        self.adaptation.outages(delay.greatest())
    }
}

/// A carrier that adapts to rain by adaptive coding and modulation.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(rename = "Acm")]
pub(crate) struct RawAcm {
    /// The standard that defines the MODCODs: dvb-s2, dvb-s2 pilots, dvb-s, dvb-rcs.
    #[schemars(extend("examples" = ["dvb-s2", "dvb-s2 pilots", "dvb-s", "dvb-rcs"]))]
    standard: Option<Text<Standard>>,
    /// Symbols per second, 1 kbaud to 100 Gbaud.
    #[schemars(extend("examples" = ["30 Mbaud"]))]
    symbol_rate: Option<Text<SymbolRate>>,
    /// Es/N0 at the receiver without rain, -50 to 50 dB.
    #[schemars(extend("examples" = ["12 dB"]))]
    clear_sky: Option<Text<Decibels>>,
    /// A trace of the attenuation by rain, 0 to 100 dB; a path or its lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("examples" = ["storm.rain", ["0s 0 dB", "60s 4.5 dB", "loop 90s"]]))]
    rain: Option<Source>,
    /// Margin of the Es/N0 above a MODCOD's threshold, 0 to 20 dB.
    #[schemars(extend("default" = "1 dB"))]
    margin: Option<Text<Decibels>>,
    /// Additional margin for a change to a more efficient MODCOD, 0 to 20 dB.
    #[schemars(extend("default" = "0.5 dB"))]
    hysteresis: Option<Text<Decibels>>,
    /// Time from a measurement until the hub sends with the MODCOD for it; at most 60 s.
    #[schemars(extend("default" = "500 ms"))]
    reaction: Option<Text<Time>>,
    /// The MODCODs that the hub may use: all, one (which does not adapt), or a list.
    #[schemars(extend("examples" = ["all", "8PSK 3/4", ["QPSK 1/2", "8PSK 3/4"]]))]
    modcods: Option<Names>,
}

/// Names of MODCODs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected \"all\", the name of a MODCOD, or a list of names")]
#[schemars(inline)]
enum Names {
    One(String),
    List(Vec<String>),
}

const LEAST_SYMBOL_RATE: SymbolRate = SymbolRate::from_baud(1_000);
const GREATEST_SYMBOL_RATE: SymbolRate = SymbolRate::from_baud(100_000_000_000);
const GREATEST_ES_N0: Decibels = Decibels::from_thousandths(50_000);
const GREATEST_ATTENUATION: Decibels = Decibels::from_thousandths(100_000);
const GREATEST_MARGIN: Decibels = Decibels::from_thousandths(20_000);
const GREATEST_REACTION: Duration = Duration::from_secs(60);
const USUAL_MARGIN: Decibels = Decibels::from_thousandths(1_000);
const USUAL_HYSTERESIS: Decibels = Decibels::from_thousandths(500);
const USUAL_REACTION: Duration = Duration::from_millis(500);

impl AcmSpec {
    /// Reads the table `acm`.
    pub(super) fn read(place: &KeyContext<'_>, raw: RawAcm) -> Result<Self, FileError> {
        let missing = |key, expected| move || place.missing_key(key, expected);
        let standard = own(raw.standard);
        let standard = standard.ok_or_else(missing("standard", "dvb-s2, dvb-s or dvb-rcs"))?;
        let clear_sky = own(raw.clear_sky);
        let clear_sky =
            clear_sky.ok_or_else(missing("clear-sky", "an Es/N0, such as \"12 dB\""))?;
        let range = Decibels::ZERO - GREATEST_ES_N0..=GREATEST_ES_N0;
        let expected = format!("{} to {}", range.start(), range.end());
        place.check(range.contains(&clear_sky), "clear-sky", clear_sky, expected)?;
        let acm = Acm {
            modcods: modcods(place, standard, raw.modcods)?,
            symbol_rate: symbol_rate(place, own(raw.symbol_rate))?,
            margin: distance(place, "margin", own(raw.margin), USUAL_MARGIN)?,
            hysteresis: distance(place, "hysteresis", own(raw.hysteresis), USUAL_HYSTERESIS)?,
            reaction: reaction(place, raw.reaction)?,
        };
        Ok(Self::new(standard, acm, clear_sky, rain(place, raw.rain.as_ref())?))
    }
}

fn symbol_rate(
    place: &KeyContext<'_>,
    symbol_rate: Option<SymbolRate>,
) -> Result<SymbolRate, FileError> {
    let missing = || place.missing_key("symbol-rate", "a symbol rate, such as \"30 Mbaud\"");
    let symbol_rate = symbol_rate.ok_or_else(missing)?;
    let good = (LEAST_SYMBOL_RATE..=GREATEST_SYMBOL_RATE).contains(&symbol_rate);
    let expected = format!("{LEAST_SYMBOL_RATE} to {GREATEST_SYMBOL_RATE}");
    place.check(good, "symbol-rate", symbol_rate, expected).map(|()| symbol_rate)
}

/// Checks a margin or a hysteresis.
fn distance(
    place: &KeyContext<'_>,
    key: &str,
    distance: Option<Decibels>,
    usual: Decibels,
) -> Result<Decibels, FileError> {
    let distance = distance.unwrap_or(usual);
    let good = (Decibels::ZERO..=GREATEST_MARGIN).contains(&distance);
    place.check(good, key, distance, format!("0 to {GREATEST_MARGIN}")).map(|()| distance)
}

fn reaction(place: &KeyContext<'_>, reaction: Option<Text<Time>>) -> Result<Duration, FileError> {
    let reaction = own(reaction).map_or(USUAL_REACTION, |time| time.0);
    let expected = format!("at most {}", format_duration(GREATEST_REACTION));
    let good = reaction <= GREATEST_REACTION;
    place.check(good, "reaction", format_duration(reaction), expected).map(|()| reaction)
}

fn rain(place: &KeyContext<'_>, source: Option<&Source>) -> Result<Trace<Decibels>, FileError> {
    // Without a trace the carrier keeps the MODCOD of clear sky.
    let dry = Source::Lines(vec![format!("0s {}", Decibels::ZERO)]);
    let rain: Trace<Decibels> = trace(place, "rain", source.unwrap_or(&dry))?;
    let range = Decibels::ZERO..=GREATEST_ATTENUATION;
    let wrong = rain.values().find(|attenuation| !range.contains(attenuation));
    let value = wrong.copied().unwrap_or_default();
    let expected = format!("attenuations of 0 to {GREATEST_ATTENUATION}");
    place.check(wrong.is_none(), "rain", value, expected).map(|()| rain)
}

fn modcods(
    place: &KeyContext<'_>,
    standard: Standard,
    names: Option<Names>,
) -> Result<Modcods, FileError> {
    let all = || standard.modcods().iter().map(Modcod::to_string).collect::<Vec<_>>().join(", ");
    let wrong = |name| place.wrong_value("modcods", name, format!("\"all\", or some of {}", all()));
    let named = |name: &str| standard.modcod(name).ok_or_else(|| wrong(quoted(name)));
    let chosen = match names {
        None => standard.modcods(),
        Some(Names::One(all)) if all == "all" => standard.modcods(),
        Some(Names::One(name)) => vec![named(&name)?],
        Some(Names::List(names)) => {
            names.iter().map(|name| named(name)).collect::<Result<_, _>>()?
        }
    };
    Modcods::new(chosen).ok_or_else(|| wrong("[]".to_owned()))
}

impl From<&AcmSpec> for RawAcm {
    fn from(spec: &AcmSpec) -> Self {
        let AcmSpec { standard, acm, clear_sky, rain, .. } = spec;
        let names: Vec<_> = acm.modcods.iter().map(Modcod::to_string).collect();
        let all = Modcods::new(standard.modcods()).as_ref() == Some(&acm.modcods);
        let names = match &names[..] {
            _ if all => Names::One("all".to_owned()),
            [name] => Names::One(name.clone()),
            _ => Names::List(names),
        };
        Self {
            standard: Some(Text(*standard)),
            symbol_rate: Some(Text(acm.symbol_rate)),
            clear_sky: Some(Text(*clear_sky)),
            // Inline, because the new file may be read where the trace's file is not.
            rain: Some(Source::lines_of(rain)),
            margin: Some(Text(acm.margin)),
            hysteresis: Some(Text(acm.hysteresis)),
            reaction: Some(Text(Time(acm.reaction))),
            modcods: Some(names),
        }
    }
}
