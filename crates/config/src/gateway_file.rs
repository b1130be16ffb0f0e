//! Configuration files of gateways: parses TOML into the types of this crate.
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

use core::fmt::Display;

use slacp::KeyPair;

use crate::file::{FileError, FileKind};
use crate::values::source::{ConfigFile, KeySource};
use crate::{HubConfig, SoloConfig, TerminalConfig, hub, solo, terminal};

impl ConfigFile<'_> {
    /// Parses a hub's configuration; `key` reads its private key.
    ///
    /// # Errors
    /// If it is not a valid hub's configuration, or `key` fails.
    pub fn hub<E: Display>(
        &self,
        key: impl Fn(KeySource) -> Result<KeyPair, E>,
    ) -> Result<HubConfig, FileError> {
        self.parse(FileKind::Hub, |place, raw| hub::hub(place, raw, self, key))
    }

    /// Parses a terminal's configuration; `key` reads its private key.
    ///
    /// # Errors
    /// If it is not a valid terminal's configuration, or `key` fails.
    pub fn terminal<E: Display>(
        &self,
        key: impl FnOnce(KeySource) -> Result<KeyPair, E>,
    ) -> Result<TerminalConfig, FileError> {
        self.parse(FileKind::Terminal, |place, raw| terminal::terminal(place, raw, self, key))
    }

    /// Parses a solo gateway's configuration.
    ///
    /// # Errors
    /// If it is not a valid solo gateway's configuration.
    pub fn solo(&self) -> Result<SoloConfig, FileError> {
        self.parse(FileKind::Solo, |place, raw| solo::read(place, raw, self))
    }
}
