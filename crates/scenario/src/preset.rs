//! Presets, which describe a satellite hop.
//!
//! A preset is a TOML file. Those in the directory `presets` are compiled in; users can write their
//! own. Each field can be overridden ([`PresetOverrides`]).

mod overrides;
mod raw;
#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;
use std::path::Path;

use link::LinkConfig;

use crate::built_in::{BUILT_IN, TRACES};
use crate::{DamaSpec, LinkSpec};
use config::file::document::TomlDocument;
use config::file::folder::BaseFolder;
use config::file::place::KeyContext;
use config::{FileError, FileKind};

pub use overrides::{PresetOverrides, TerrestrialOverrides};
pub(crate) use raw::RawPreset;

/// A satellite hop: two links and an MTU.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name such as `geo`; for a user's file, the file name without `.toml`.
    pub name: String,
    /// A description in one line.
    pub description: String,
    /// Forward link, hub → terminal.
    pub forward: LinkSpec,
    /// Return link, terminal → hub.
    pub ret: LinkSpec,
    /// MTU of the hop in bytes.
    pub mtu: u16,
    /// Number of terminals, from 1 to [`Self::MOST_TERMINALS`]. They share the forward link and
    /// have a return link each.
    pub terminals: u8,
    /// Capacity on demand on the return link; `None` if each terminal has a link of its own.
    pub dama: Option<DamaSpec>,
    /// Both directions between hub and server; `None` for a LAN.
    pub terrestrial: Option<LinkSpec>,
    /// Both directions between each terminal and its client; `None` for a LAN.
    pub client_side: Option<LinkSpec>,
}

/// The minimum MTU of a link that carries IPv6 (RFC 8200 §5).
const LEAST_MTU: u16 = 1280;
/// The maximum MTU: no packet link exceeds jumbo frames.
const GREATEST_MTU: u16 = 9216;

impl Preset {
    /// Maximum number of terminals.
    pub const MOST_TERMINALS: u8 = 32;

    /// Returns the names of the built-in presets.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// Returns the built-in presets, parsed.
    pub fn built_in() -> impl Iterator<Item = Self> {
        let parsed =
            |(name, text): (&str, &str)| Self::parse(name, name, BaseFolder::BuiltIn(TRACES), text);
        BUILT_IN.into_iter().map(move |each| parsed(each).expect("tests parse every built-in"))
    }

    /// Loads the built-in preset of that name, or the file at that path: a text with `/` or ending in
    /// `.toml`.
    ///
    /// # Errors
    /// If it does not exist, or does not describe a valid link.
    pub fn load(preset: &str) -> Result<Self, FileError> {
        Self::load_from(BaseFolder::Disk(Path::new("")), preset)
    }

    /// Loads the file at that path, whatever its name.
    ///
    /// # Errors
    /// If it cannot be read, or does not describe a valid link.
    pub fn load_file(path: &Path) -> Result<Self, FileError> {
        Self::open(BaseFolder::Disk(Path::new("")), path)
    }

    fn open(folder: BaseFolder<'_>, path: &Path) -> Result<Self, FileError> {
        let (path, text) = folder.open(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // Paths in the file are relative to its folder, not to the working directory.
        Self::parse(&name, &path.display().to_string(), BaseFolder::of(&path), &text)
    }

    /// Loads the built-in preset of that name, or the file at that path in `folder`.
    pub(crate) fn load_from(folder: BaseFolder<'_>, preset: &str) -> Result<Self, FileError> {
        // A bare name is always a built-in preset, whatever files there are.
        if preset.contains('/') || preset.ends_with(".toml") {
            return Self::open(folder, Path::new(preset));
        }
        match BUILT_IN.iter().find(|(name, _)| *name == preset) {
            Some((name, text)) => Self::parse(name, name, BaseFolder::BuiltIn(TRACES), text),
            None => {
                let known = BUILT_IN.map(|(name, _)| name).join(", ");
                Err(FileError::UnknownPreset { name: preset.to_owned(), known })
            }
        }
    }

    /// Parses a preset, which may refer only to built-in traces.
    ///
    /// # Errors
    /// If it does not describe a valid link.
    pub fn from_text(text: &str) -> Result<Self, FileError> {
        Self::parse("own", "own.toml", BaseFolder::BuiltIn(TRACES), text)
    }

    /// Returns the round-trip time of the empty hop for packets of no length, without jitter; the
    /// maximum if the delay changes.
    pub fn rtt(&self) -> Duration {
        self.forward.delay.greatest() + self.ret.delay.greatest()
    }

    /// Returns the forward and the return link.
    pub fn links(&self) -> [LinkConfig; 2] {
        // A preset's BDP is that of the hop alone; a scenario's is that of the whole path.
        [&self.forward, &self.ret].map(|link| link.config(self.rtt(), self.mtu))
    }

    /// Returns the round-trip time between client and server for packets of no length on empty links;
    /// the maximum if a delay changes.
    pub fn path_rtt(&self) -> Duration {
        let sides = self.terrestrial.iter().chain(&self.client_side);
        // A link beside the hop has one delay for both directions.
        self.rtt() + sides.map(|link| 2 * link.delay.greatest()).sum::<Duration>()
    }

    fn parse(
        name: &str,
        origin: &str,
        folder: BaseFolder<'_>,
        text: &str,
    ) -> Result<Self, FileError> {
        let document = TomlDocument::parse(origin, folder, text, FileKind::Preset)?;
        let raw: RawPreset = document.read()?;
        let place = KeyContext::file(&document);
        check_mtu(&place, raw.mtu)?;
        check_terminals(&place, raw.terminals)?;
        let raw_terminals = raw.terminals.into();
        let link = |key, raw| LinkSpec::read(&place.within(key), raw);
        let forward = link("forward", raw.forward)?;
        let ret = link("return", raw.ret)?;
        let within = place.within("dama");
        let dama =
            raw.dama.map(|raw| DamaSpec::read(&within, &raw, [&forward, &ret], raw_terminals));
        Ok(Self {
            name: name.to_owned(),
            description: raw.description,
            dama: dama.transpose()?,
            forward,
            ret,
            mtu: raw.mtu,
            terminals: raw.terminals,
            terrestrial: raw.terrestrial.map(|raw| link("terrestrial", raw)).transpose()?,
            client_side: raw.client_side.map(|raw| link("client-side", raw)).transpose()?,
        })
    }
}

pub(crate) fn check_mtu(place: &KeyContext<'_>, mtu: u16) -> Result<(), FileError> {
    let expected = format!("{LEAST_MTU} (the least for IPv6) to {GREATEST_MTU}");
    place.check((LEAST_MTU..=GREATEST_MTU).contains(&mtu), "mtu", mtu, expected)
}

fn check_terminals(place: &KeyContext<'_>, terminals: u8) -> Result<(), FileError> {
    let good = (1..=Preset::MOST_TERMINALS).contains(&terminals);
    place.check(good, "terminals", terminals, format!("1 to {}", Preset::MOST_TERMINALS))
}

/// Writes a complete preset file, with all keys and with traces inline.
impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(&RawPreset::from(self)).map_err(|_| fmt::Error)?)
    }
}
