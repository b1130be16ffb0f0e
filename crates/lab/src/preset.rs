//! Presets: the satellite link that a lab builds, from a file.
//!
//! A preset is a TOML file; the built-in ones (directory `presets`) are compiled
//! in, and a user's own file works the same way. Each field can be overridden
//! ([`Overrides`]).

use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};

use link::{LinkConfig, Loss};
use serde::Deserialize;
use thiserror::Error;
use units::{BitRate, Probability, format_duration};

use crate::Queue;

/// The built-in presets: name and file.
const BUILT_IN: [(&str, &str); 7] = [
    ("geo", include_str!("../presets/geo.toml")),
    ("geo-ka", include_str!("../presets/geo-ka.toml")),
    ("t1", include_str!("../presets/t1.toml")),
    ("itu-45m", include_str!("../presets/itu-45m.toml")),
    ("atm-155m", include_str!("../presets/atm-155m.toml")),
    ("meo", include_str!("../presets/meo.toml")),
    ("leo", include_str!("../presets/leo.toml")),
];

/// The least MTU of a link that carries IPv6 (RFC 8200 §5).
const LEAST_MTU: u16 = 1280;
/// Beyond jumbo frames nothing is a packet link.
const GREATEST_MTU: u16 = 9216;
const GREATEST_RATE: BitRate = BitRate::from_mbit(10_000);
const GREATEST_DELAY: Duration = Duration::from_secs(60);

/// A satellite hop: two links and an MTU.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// `geo`; for a user's file, its name without `.toml`.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Hub → terminal.
    pub forward: Direction,
    /// Terminal → hub.
    pub ret: Direction,
    /// The longest IP packet of the hop in bytes.
    pub mtu: u16,
}

/// One direction of the hop.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// In bits of IP packets per second.
    pub rate: BitRate,
    /// One way.
    pub delay: Duration,
    /// What is lost on the way.
    pub loss: Loss,
    /// How much may wait for the link.
    pub queue: Queue,
}

/// What to change in a preset; `None` leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Overrides {
    /// The rate of the forward link.
    pub rate: Option<BitRate>,
    /// The rate of the return link.
    pub return_rate: Option<BitRate>,
    /// The one-way delay of both links.
    pub delay: Option<Duration>,
    /// The packet error rate of both links, in place of other losses.
    pub per: Option<Probability>,
    /// The bit error rate of both links, in place of other losses.
    pub ber: Option<Probability>,
    /// The queue of both links.
    pub queue: Option<Queue>,
    /// The longest IP packet in bytes.
    pub mtu: Option<u16>,
}

/// Why there is no such preset, or it is no link.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PresetError {
    /// No built-in preset has this name.
    #[error(
        "no preset {name:?}: there is {known}; a file of your own is given by a path that \
         contains / or ends in .toml"
    )]
    Unknown {
        /// The name as given.
        name: String,
        /// The names of the built-in ones.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read preset {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The file is not TOML, or not a preset.
    #[error("{origin}:{line}: {text:?}: {message}")]
    Syntax {
        /// The file, or the built-in preset's name.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// That line.
        text: String,
        /// What is wrong with it, and what would be accepted.
        message: String,
    },
    /// A value is possible nowhere.
    #[error("{origin}: {key} = {value}: expected {expected}")]
    Value {
        /// The file, the built-in preset's name, or the command line.
        origin: String,
        /// The key, such as `forward.rate`.
        key: String,
        /// The value as given.
        value: String,
        /// What would be accepted.
        expected: String,
    },
}

/// A preset as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPreset {
    description: String,
    mtu: u16,
    forward: RawDirection,
    #[serde(rename = "return")]
    ret: RawDirection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDirection {
    rate: BitRate,
    #[serde(with = "units::serde_duration")]
    delay: Duration,
    queue: Queue,
    per: Option<Probability>,
    ber: Option<Probability>,
}

impl Preset {
    /// The built-in presets.
    pub fn built_in() -> impl Iterator<Item = Self> {
        let parsed = |(name, text): (&str, &str)| Self::parse(name, name, text);
        BUILT_IN.into_iter().map(move |each| parsed(each).expect("tests parse every built-in"))
    }

    /// The preset of that name, or in the file at that path.
    ///
    /// # Errors
    /// When there is none, or it is not a possible link.
    pub fn load(preset: &str) -> Result<Self, PresetError> {
        if preset.contains('/') || preset.ends_with(".toml") {
            return Self::read(Path::new(preset));
        }
        match BUILT_IN.iter().find(|(name, _)| *name == preset) {
            Some((name, text)) => Self::parse(name, name, text),
            None => {
                let known = BUILT_IN.map(|(name, _)| name).join(", ");
                Err(PresetError::Unknown { name: preset.to_owned(), known })
            }
        }
    }

    /// The preset with some of it changed.
    ///
    /// # Errors
    /// When the result is not a possible link.
    pub fn with(mut self, overrides: &Overrides) -> Result<Self, PresetError> {
        let wrong = Wrong("command line");
        let loss = wrong.loss("--per, --ber", overrides.per, overrides.ber)?;
        self.forward.rate = overrides.rate.unwrap_or(self.forward.rate);
        self.ret.rate = overrides.return_rate.unwrap_or(self.ret.rate);
        self.mtu = overrides.mtu.unwrap_or(self.mtu);
        for direction in [&mut self.forward, &mut self.ret] {
            direction.delay = overrides.delay.unwrap_or(direction.delay);
            direction.queue = overrides.queue.unwrap_or(direction.queue);
            if let Some(loss) = &loss {
                direction.loss = loss.clone();
            }
        }
        wrong.rate("--rate", self.forward.rate)?;
        wrong.rate("--return-rate", self.ret.rate)?;
        wrong.delay("--delay", self.forward.delay)?;
        wrong.mtu("--mtu", self.mtu)?;
        Ok(self)
    }

    /// The round-trip time of the empty hop for a packet without length.
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.ret.delay
    }

    /// The links, forward and return.
    pub fn links(&self) -> [LinkConfig; 2] {
        [&self.forward, &self.ret].map(|direction| {
            let &Direction { rate, delay, ref loss, queue } = direction;
            LinkConfig::new(rate, delay, loss.clone(), queue.limit(rate, self.rtt(), self.mtu))
        })
    }

    fn read(path: &Path) -> Result<Self, PresetError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| PresetError::Read { path: path.to_owned(), cause })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &path.display().to_string(), &text)
    }

    fn parse(name: &str, origin: &str, text: &str) -> Result<Self, PresetError> {
        let raw: RawPreset =
            toml::from_str(text).map_err(|error| syntax_error(origin, text, &error))?;
        let wrong = Wrong(origin);
        wrong.mtu("mtu", raw.mtu)?;
        Ok(Self {
            name: name.to_owned(),
            description: raw.description,
            forward: wrong.direction("forward", &raw.forward)?,
            ret: wrong.direction("return", &raw.ret)?,
            mtu: raw.mtu,
        })
    }
}

/// Finds what is wrong with values that come from the place it names.
struct Wrong<'a>(&'a str);

impl Wrong<'_> {
    fn direction(&self, name: &str, raw: &RawDirection) -> Result<Direction, PresetError> {
        let key = |key: &str| format!("{name}.{key}");
        self.rate(&key("rate"), raw.rate)?;
        self.delay(&key("delay"), raw.delay)?;
        let loss = self.loss(&key("per, ber"), raw.per, raw.ber)?.unwrap_or(Loss::None);
        Ok(Direction { rate: raw.rate, delay: raw.delay, loss, queue: raw.queue })
    }

    fn loss(
        &self,
        key: &str,
        per: Option<Probability>,
        ber: Option<Probability>,
    ) -> Result<Option<Loss>, PresetError> {
        match (per, ber) {
            (Some(per), Some(ber)) => {
                let value = format!("{per}, {ber}");
                self.check(false, key, &value, || "only one of the two".to_owned()).map(|()| None)
            }
            (Some(Probability::ZERO), None) | (None, Some(Probability::ZERO)) => {
                Ok(Some(Loss::None))
            }
            (Some(per), None) => Ok(Some(Loss::Per(per))),
            (None, Some(ber)) => Ok(Some(Loss::Ber(ber))),
            (None, None) => Ok(None),
        }
    }

    fn rate(&self, key: &str, rate: BitRate) -> Result<(), PresetError> {
        let good = rate.bits_per_second() > 0 && rate <= GREATEST_RATE;
        self.check(good, key, &rate, || format!("above 0, at most {GREATEST_RATE}"))
    }

    fn delay(&self, key: &str, delay: Duration) -> Result<(), PresetError> {
        let expected = || format!("at most {}", format_duration(GREATEST_DELAY));
        self.check(delay <= GREATEST_DELAY, key, &format_duration(delay), expected)
    }

    fn mtu(&self, key: &str, mtu: u16) -> Result<(), PresetError> {
        let expected = || format!("{LEAST_MTU} (the least for IPv6) to {GREATEST_MTU}");
        self.check((LEAST_MTU..=GREATEST_MTU).contains(&mtu), key, &mtu, expected)
    }

    fn check(
        &self,
        good: bool,
        key: &str,
        value: &dyn core::fmt::Display,
        expected: impl FnOnce() -> String,
    ) -> Result<(), PresetError> {
        if good {
            return Ok(());
        }
        let (origin, key, value) = (self.0.to_owned(), key.to_owned(), value.to_string());
        Err(PresetError::Value { origin, key, value, expected: expected() })
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

#[cfg(test)]
mod tests;
