//! Configuration files of gateways: parses TOML into the types of [`config`].
//!
//! A terminal:
//!
//! ```toml
//! private_key_file = "terminal.key"
//! hub = "hub.example.net:5900"
//! hub_key = "6Vv2ZmPFGh0mLPqGSmGBkXzGUvlzEKOmwP8yTFhxRmA="
//! rate = "10 Mbit/s"           # the return link, on which this side sends
//!
//! [intercept]
//! interfaces = ["lan0"]        # interfaces towards the clients
//! bypass = ["10.0.0.0/8"]      # destinations that pass unaccelerated
//!
//! [accept]                     # connections from the hub's side; none without this section
//! to = ["10.1.0.0/16:22"]
//!
//! [proxy]                      # instead of [intercept], or in addition
//! listen = "127.0.0.1:1080"    # SOCKS5 and HTTP CONNECT
//! ```
//!
//! A hub:
//!
//! ```toml
//! private_key_file = "hub.key"
//! rate = "50 Mbit/s"           # the forward link, on which this side sends
//!
//! [[terminal]]
//! name = "ship-1"
//! key = "0YJ7D8fzVCLh8TbVzDyv7B8cnX3sCXMlyUd2KVeuJgE="
//! networks = ["10.1.0.0/16", "fd00:1::/64"]   # addresses of its clients
//! deny = ["10.0.0.0/8"]        # destinations that its clients may not reach
//! ```
//!
//! This module does no I/O: the caller reads the file, and the private key that it names.

mod bundles;
mod classes;
mod dlep;
mod dns;
mod egress;
mod entrances;
mod guarantees;
mod hop;
mod http;
mod limits;
mod links;
mod operation;
mod pair;
mod permits;
mod policies;
mod rate;
mod raw;
mod restart_keys;
mod shared;
mod solo;
#[cfg(test)]
mod tests;
mod tunnel;

use core::fmt::Display;
use core::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use config::{HubConfig, SoloConfig, TerminalConfig};
use serde::Deserialize;
use slacp::KeyPair;

use crate::document::TomlDocument;
use crate::folder::BaseFolder;
use crate::place::{KeyContext, quoted};
use crate::{FileError, FileKind};
pub use permits::PermittedTerminals;
pub(crate) use raw::{RawHub, RawPermit, RawSolo, RawTerminal};
pub use restart_keys::{RestartKeys, WrittenKeys};

/// Longest name of a network interface, in bytes: IFNAMSIZ without the terminating zero.
const LONGEST_INTERFACE_NAME: usize = 15;

/// A gateway's configuration file as it was read.
#[derive(Debug, Clone, Copy)]
pub struct ConfigFile<'a> {
    /// Path of the file, for errors and relative paths.
    pub path: &'a Path,
    /// Contents of the file.
    pub text: &'a str,
    /// True for a regular file, which can be read again and whose paths are relative to its directory.
    /// Paths in other files, such as `/dev/stdin`, are relative to the working directory.
    pub regular: bool,
}

/// The source of a gateway's private key.
pub enum KeySource {
    /// The configuration, as base64 text.
    Inline(String),
    /// A file of its own.
    File(PathBuf),
}

impl ConfigFile<'_> {
    /// Parses a hub's configuration; `key` reads its private key.
    ///
    /// # Errors
    /// If it is not a valid hub's configuration, or `key` fails.
    pub fn hub<E: Display>(
        &self,
        key: impl Fn(KeySource) -> Result<KeyPair, E>,
    ) -> Result<HubConfig, FileError> {
        self.parse(FileKind::Hub, |place, raw| pair::hub(place, raw, self, key))
    }

    /// Parses a terminal's configuration; `key` reads its private key.
    ///
    /// # Errors
    /// If it is not a valid terminal's configuration, or `key` fails.
    pub fn terminal<E: Display>(
        &self,
        key: impl FnOnce(KeySource) -> Result<KeyPair, E>,
    ) -> Result<TerminalConfig, FileError> {
        self.parse(FileKind::Terminal, |place, raw| pair::terminal(place, raw, self, key))
    }

    /// Parses a solo gateway's configuration.
    ///
    /// # Errors
    /// If it is not a valid solo gateway's configuration.
    pub fn solo(&self) -> Result<SoloConfig, FileError> {
        self.parse(FileKind::Solo, |place, raw| solo::read(place, raw, self))
    }

    fn parse<R: for<'d> Deserialize<'d>, T>(
        &self,
        kind: FileKind,
        read: impl FnOnce(&KeyContext<'_>, R) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let origin = self.path.display().to_string();
        let folder =
            if self.regular { BaseFolder::of(self.path) } else { BaseFolder::Disk(Path::new("")) };
        let document = TomlDocument::parse(&origin, folder, self.text, kind)?;
        let raw = document.read()?;
        read(&KeyContext::file(&document), raw)
    }
}

/// Reads the private key from the one of two sources that is configured.
fn identity<E: Display>(
    place: &KeyContext<'_>,
    inline: Option<String>,
    file: Option<String>,
    read: impl FnOnce(KeySource) -> Result<KeyPair, E>,
) -> Result<KeyPair, FileError> {
    const FILE: &str = "private_key_file";
    let (key, source) = match (inline, file) {
        (Some(_), Some(file)) => {
            let expected = "only one of `private_key` and `private_key_file`";
            return Err(place.wrong_value(FILE, quoted(file), expected));
        }
        (None, None) => return Err(place.missing_key(FILE, "a file written by `skyhop keygen`")),
        (Some(text), None) => ("private_key", KeySource::Inline(text)),
        (None, Some(file)) => (FILE, KeySource::File(place.folder().locate(Path::new(&file)))),
    };
    read(source).map_err(|error| place.unreadable(key, error))
}

/// Checks that an optional number is within `range`; `unit` is empty or a plural with a space before
/// it.
fn number(
    place: &KeyContext<'_>,
    key: &str,
    value: Option<i64>,
    range: RangeInclusive<i64>,
    unit: &str,
) -> Result<Option<i64>, FileError> {
    let good = value.is_none_or(|value| range.contains(&value));
    let expected = format!("{} to {}{unit}", range.start(), range.end());
    place.check(good, key, value.unwrap_or_default(), expected).map(|()| value)
}

/// Checks the name of a network interface.
fn interface(place: &KeyContext<'_>, key: &str, name: &str) -> Result<(), FileError> {
    let good = (1..=LONGEST_INTERFACE_NAME).contains(&name.len()) && name.is_ascii();
    place.check(good, key, quoted(name), "the name of an interface, 1 to 15 characters")
}
