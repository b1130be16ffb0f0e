//! Presets describe the satellite link that a lab builds.
//!
//! A preset is a TOML file. The built-in ones (directory `presets`) are compiled in; users' own
//! files work the same way. Each field can be overridden ([`Overrides`]).

mod built_in;
mod error;
mod overrides;
mod raw;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod typed;

use core::fmt;
use core::time::Duration;
use std::path::Path;

use link::{Delay, Encapsulation, Jitter, LinkConfig, Loss, Outage, Rate};
use units::BitRate;

use self::built_in::BUILT_IN;
use self::raw::RawPreset;
use self::trace::Folder;
use self::typed::Wrong;
use crate::crossing::Extent;
use crate::{Discipline, LinkName, Queue};

pub use self::error::PresetError;
pub use self::overrides::{Overrides, TerrestrialOverrides};
pub use self::trace::TraceFault;

/// A satellite hop: two links and an MTU.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// `geo`; for a user's file, the file name without `.toml`.
    pub name: String,
    /// A description in one line.
    pub description: String,
    /// Hub → terminal.
    pub forward: Direction,
    /// Terminal → hub.
    pub ret: Direction,
    /// MTU of the hop in bytes.
    pub mtu: u16,
    /// Number of terminals, from 1 to [`Site::MOST`](crate::Site::MOST). They share the forward
    /// link and have a return link each.
    pub terminals: u8,
    /// Both directions between hub and server; `None` for a LAN.
    pub terrestrial: Option<Direction>,
}

/// One direction of the hop.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
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
    /// Times without reception, counted from the start of the lab.
    pub outages: Vec<Outage>,
    /// Size of the queue for the link.
    pub queue: Queue,
    /// Drops before the queue is full.
    pub discipline: Discipline,
    /// Whether the discipline marks ECN-capable packets instead of dropping them.
    pub ecn: bool,
}

impl Direction {
    /// The maximum rate that IP packets of `len` bytes ever get.
    pub fn peak_rate(&self, len: u16) -> BitRate {
        self.of_packets(self.rate.greatest(), len)
    }

    /// Whether the rate changes over time.
    pub fn rate_changes(&self) -> bool {
        self.rate.least() != self.rate.greatest()
    }

    /// The part of `rate` that is left for back-to-back packets of `len` bytes.
    fn of_packets(&self, rate: BitRate, len: u16) -> BitRate {
        if self.encapsulation == Encapsulation::None {
            return rate;
        }
        let share = f64::from(len) / self.encapsulation.mean_wire_bytes(len.into());
        BitRate::from_bits_per_second((rate.bits_per_second() as f64 * share) as u64)
    }

    /// The link, in a hop with round-trip time `rtt`.
    fn link(&self, rtt: Duration, mtu: u16) -> LinkConfig {
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

impl Preset {
    /// The built-in presets.
    pub fn built_in() -> impl Iterator<Item = Self> {
        let parsed = |(name, text): (&str, &str)| Self::parse(name, name, Folder::BuiltIn, text);
        BUILT_IN.into_iter().map(move |each| parsed(each).expect("tests parse every built-in"))
    }

    /// Loads the built-in preset of that name, or the file at that path.
    ///
    /// # Errors
    /// If there is none, or it does not describe a valid link.
    pub fn load(preset: &str) -> Result<Self, PresetError> {
        if preset.contains('/') || preset.ends_with(".toml") {
            return Self::read(Path::new(preset));
        }
        match BUILT_IN.iter().find(|(name, _)| *name == preset) {
            Some((name, text)) => Self::parse(name, name, Folder::BuiltIn, text),
            None => {
                let known = BUILT_IN.map(|(name, _)| name).join(", ");
                Err(PresetError::Unknown { name: preset.to_owned(), known })
            }
        }
    }

    /// Round-trip time of the empty hop for packets of no length, without jitter; the maximum if
    /// the delay changes.
    pub fn rtt(&self) -> Duration {
        self.forward.delay.greatest() + self.ret.delay.greatest()
    }

    /// The links, forward and return.
    pub fn links(&self) -> [LinkConfig; 2] {
        [&self.forward, &self.ret].map(|direction| direction.link(self.rtt(), self.mtu))
    }

    /// Round-trip time between client and server for packets of no length on empty links; the
    /// maximum if a delay changes.
    pub fn path_rtt(&self) -> Duration {
        let twice = |direction: &Direction| 2 * direction.delay.greatest();
        self.rtt() + self.terrestrial.as_ref().map_or(Duration::ZERO, twice)
    }

    /// What the lab has to consist of.
    pub(crate) fn extent(&self) -> Extent {
        let (terminals, mtu) = (self.terminals, self.mtu);
        Extent { terminals, terrestrial: self.terrestrial.is_some(), mtu, cabled: false }
    }

    /// The part of the preset that describes a link. Without a terrestrial link, the forward one
    /// stands in for it.
    pub(crate) fn direction(&self, name: LinkName) -> &Direction {
        match name {
            LinkName::Forward => &self.forward,
            LinkName::Return(_) => &self.ret,
            LinkName::TerrestrialForward | LinkName::TerrestrialReturn => {
                self.terrestrial.as_ref().unwrap_or(&self.forward)
            }
        }
    }

    /// The round-trip time and MTU that a link's queue size refers to. For a terrestrial queue a
    /// BDP means the round-trip time of the whole path, because that is what a flow through it
    /// sees.
    pub(crate) fn scale(&self, name: LinkName) -> (Duration, u16) {
        if name.is_hop() {
            (self.rtt(), self.mtu)
        } else {
            (self.path_rtt(), self.extent().lan_mtu())
        }
    }

    /// The configuration of a link of the lab.
    pub(crate) fn link(&self, name: LinkName) -> LinkConfig {
        let (rtt, mtu) = self.scale(name);
        self.direction(name).link(rtt, mtu)
    }

    fn read(path: &Path) -> Result<Self, PresetError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| PresetError::Read { path: path.to_owned(), cause })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let folder = Folder::Disk(path.parent().unwrap_or(Path::new("")));
        Self::parse(&name, &path.display().to_string(), folder, &text)
    }

    /// Parses a preset, which may refer only to built-in traces.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn from_text(text: &str) -> Result<Self, PresetError> {
        Self::parse("own", "own.toml", Folder::BuiltIn, text)
    }

    fn parse(
        name: &str,
        origin: &str,
        folder: Folder<'_>,
        text: &str,
    ) -> Result<Self, PresetError> {
        let raw = RawPreset::parse(origin, text)?;
        let wrong = |prefix| Wrong { origin, prefix, folder };
        wrong("").mtu(raw.mtu)?;
        wrong("").terminals(raw.terminals)?;
        let terrestrial = raw.terrestrial.map(|raw| wrong("terrestrial.").direction(raw));
        Ok(Self {
            name: name.to_owned(),
            description: raw.description,
            forward: wrong("forward.").direction(raw.forward)?,
            ret: wrong("return.").direction(raw.ret)?,
            mtu: raw.mtu,
            terminals: raw.terminals,
            terrestrial: terrestrial.transpose()?,
        })
    }
}

/// Writes a complete preset file, with all keys and with traces inline.
impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(&RawPreset::from(self)).map_err(|_| fmt::Error)?)
    }
}
