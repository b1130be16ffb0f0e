//! Presets: the satellite link that a lab builds, from a file.
//!
//! A preset is a TOML file; the built-in ones (directory `presets`) are compiled
//! in, and a user's own file works the same way. Each field can be overridden
//! ([`Overrides`]).

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
    /// How many terminals share the forward link and have a return link each;
    /// from 1 to [`Site::MOST`](crate::Site::MOST).
    pub terminals: u8,
    /// Both directions between hub and server; `None` is a LAN.
    pub terrestrial: Option<Direction>,
}

/// One direction of the hop.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// In bits per second of what the encapsulation makes of packets.
    pub rate: Rate,
    /// How packets are wrapped.
    pub encapsulation: Encapsulation,
    /// One way.
    pub delay: Delay,
    /// What the delay varies by.
    pub jitter: Jitter,
    /// What is lost on the way.
    pub loss: Loss,
    /// When nothing is received, counted from the start of the lab.
    pub outages: Vec<Outage>,
    /// How much may wait for the link.
    pub queue: Queue,
    /// What the queue drops although there is room.
    pub discipline: Discipline,
    /// Whether the discipline marks packets that can be marked instead of
    /// dropping them.
    pub ecn: bool,
}

impl Direction {
    /// The greatest rate that IP packets of `len` bytes ever get.
    pub fn peak_rate(&self, len: u16) -> BitRate {
        self.of_packets(self.rate.greatest(), len)
    }

    /// Whether the rate is not the same all the time.
    pub fn rate_changes(&self) -> bool {
        self.rate.least() != self.rate.greatest()
    }

    /// What is left of `rate` when packets of `len` bytes follow each other.
    fn of_packets(&self, rate: BitRate, len: u16) -> BitRate {
        if self.encapsulation == Encapsulation::None {
            return rate;
        }
        let share = f64::from(len) / self.encapsulation.mean_wire_bytes(len.into());
        BitRate::from_bits_per_second((rate.bits_per_second() as f64 * share) as u64)
    }

    /// The link in a hop of round-trip time `rtt`.
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

    /// The preset of that name, or in the file at that path.
    ///
    /// # Errors
    /// When there is none, or it is not a possible link.
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

    /// The round-trip time of the empty hop for a packet without length and
    /// without jitter; the greatest, if the delay changes.
    pub fn rtt(&self) -> Duration {
        self.forward.delay.greatest() + self.ret.delay.greatest()
    }

    /// The links, forward and return.
    pub fn links(&self) -> [LinkConfig; 2] {
        [&self.forward, &self.ret].map(|direction| direction.link(self.rtt(), self.mtu))
    }

    /// The round-trip time between client and server, for packets without length
    /// on empty links; the greatest, if a delay changes.
    pub fn path_rtt(&self) -> Duration {
        let twice = |direction: &Direction| 2 * direction.delay.greatest();
        self.rtt() + self.terrestrial.as_ref().map_or(Duration::ZERO, twice)
    }

    /// What has to be built.
    pub(crate) fn extent(&self) -> Extent {
        let (terminals, mtu) = (self.terminals, self.mtu);
        Extent { terminals, terrestrial: self.terrestrial.is_some(), mtu, cabled: false }
    }

    /// The preset's part that describes a link; the forward one's stands in for
    /// a terrestrial one that there is not.
    pub(crate) fn direction(&self, name: LinkName) -> &Direction {
        match name {
            LinkName::Forward => &self.forward,
            LinkName::Return(_) => &self.ret,
            LinkName::TerrestrialForward | LinkName::TerrestrialReturn => {
                self.terrestrial.as_ref().unwrap_or(&self.forward)
            }
        }
    }

    /// The round-trip time and the MTU that a link's queue is measured by. A BDP
    /// of a terrestrial queue counts the round-trip time of the whole path:
    /// whoever fills it takes that.
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

    /// The preset of that text, which can name only built-in traces.
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

/// As a file, complete: all keys are there, and traces line by line.
impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(&RawPreset::from(self)).map_err(|_| fmt::Error)?)
    }
}
