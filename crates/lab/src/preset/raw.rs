//! Presets as written in the file.

use core::num::NonZeroU64;

use link::{Delay, Encapsulation, ErrorModel, GilbertElliott, Jitter, Loss, Outage, Rate};
use serde::{Deserialize, Serialize};
use units::{BitRate, Probability};

use super::text::{Text, Time};
use super::trace::{Source, lines_of};
use super::{Direction, Preset, PresetError};
use crate::{Discipline, Queue};

/// A preset as written in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPreset {
    pub(super) description: String,
    pub(super) mtu: u16,
    #[serde(default = "one")]
    pub(super) terminals: u8,
    pub(super) forward: RawDirection,
    #[serde(rename = "return")]
    pub(super) ret: RawDirection,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terrestrial: Option<RawDirection>,
}

/// A direction as written in the file, or as overridden on the command line.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct RawDirection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<BitRate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate_trace: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encapsulation: Option<Text<Encapsulation>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay: Option<Text<Time>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay_trace: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jitter: Option<Text<Jitter>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<Text<Queue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) discipline: Option<Text<Discipline>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ecn: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per: Option<Probability>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ber: Option<Probability>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) burst: Option<Text<ErrorModel>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gilbert_elliott: Option<Text<GilbertElliott>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss_period: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss_trace: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outages: Option<Vec<Text<Outage>>>,
}

fn one() -> u8 {
    1
}

impl RawPreset {
    /// Parses `text`, which comes from `origin`.
    pub(super) fn parse(origin: &str, text: &str) -> Result<Self, PresetError> {
        toml::from_str(text).map_err(|error| syntax_error(origin, text, &error))
    }
}

fn syntax_error(origin: &str, text: &str, error: &toml::de::Error) -> PresetError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    PresetError::Syntax {
        origin: origin.to_owned(),
        line: line + 1,
        text: text.lines().nth(line).unwrap_or_default().to_owned(),
        message: error.message().replace('\n', " "),
    }
}

impl From<&Preset> for RawPreset {
    fn from(preset: &Preset) -> Self {
        Self {
            description: preset.description.clone(),
            mtu: preset.mtu,
            forward: (&preset.forward).into(),
            ret: (&preset.ret).into(),
            terminals: preset.terminals,
            terrestrial: preset.terrestrial.as_ref().map(Into::into),
        }
    }
}

impl From<&Direction> for RawDirection {
    fn from(direction: &Direction) -> Self {
        let mut raw = Self {
            encapsulation: Some(Text(direction.encapsulation)),
            jitter: Some(Text(direction.jitter)),
            queue: Some(Text(direction.queue)),
            discipline: Some(Text(direction.discipline)),
            ecn: Some(direction.ecn),
            outages: Some(direction.outages.iter().copied().map(Text).collect()),
            ..Self::default()
        };
        match &direction.rate {
            Rate::Constant(rate) => raw.rate = Some(*rate),
            Rate::Trace(trace) => raw.rate_trace = Some(lines_of(trace)),
            Rate::Opportunities(all) => {
                let lines = all.to_string().lines().map(str::to_owned).collect();
                raw.rate_trace = Some(Source::Lines(lines));
            }
            // A new kind of rate in `link` has to be added here.
            other => unreachable!("no text for {other:?}"),
        }
        match &direction.delay {
            Delay::Constant(delay) => raw.delay = Some(Text(Time(*delay))),
            Delay::Trace(trace) => raw.delay_trace = Some(lines_of(trace)),
            other => unreachable!("no text for {other:?}"),
        }
        match &direction.loss {
            Loss::None => raw.per = Some(Probability::ZERO),
            Loss::Per(per) => raw.per = Some(*per),
            Loss::Ber(ber) => raw.ber = Some(*ber),
            Loss::Burst(burst) => raw.burst = Some(Text((*burst).into())),
            Loss::Periodic(period) => raw.loss_period = Some(*period),
            Loss::GilbertElliott(model) => raw.gilbert_elliott = Some(Text(*model)),
            Loss::Trace(trace) => raw.loss_trace = Some(lines_of(trace)),
            other => unreachable!("no text for {other:?}"),
        }
        raw
    }
}
