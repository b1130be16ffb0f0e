//! The configuration files of both sides: TOML in, validated types out.
//!
//! A terminal:
//!
//! ```toml
//! private_key_file = "terminal.key"
//! hub = "hub.example.net:5900"
//! hub_key = "6Vv2ZmPFGh0mLPqGSmGBkXzGUvlzEKOmwP8yTFhxRmA="
//! rate = "10 Mbit/s"           # of the return link: what this side sends
//!
//! [intercept]
//! interfaces = ["lan0"]        # where the clients are
//! bypass = ["10.0.0.0/8"]      # destinations that are left alone
//! ```
//!
//! A hub:
//!
//! ```toml
//! private_key_file = "hub.key"
//! rate = "50 Mbit/s"           # of the forward link: what this side sends
//!
//! [[terminal]]
//! name = "ship-1"
//! key = "0YJ7D8fzVCLh8TbVzDyv7B8cnX3sCXMlyUd2KVeuJgE="
//! ```

mod parse;
mod raw;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use slacp::PublicKey;
use thiserror::Error;

use crate::keys::{KeyError, PrivateKey, check_permissions};
use crate::prefix::Prefix;

/// What a terminal is told.
#[derive(Debug, Clone)]
pub struct TerminalConfig {
    /// Who this terminal is. Key `private_key` or `private_key_file`.
    pub identity: PrivateKey,
    /// Where the hub is: an address or a name, with the UDP port. Key `hub`.
    pub hub: HubAddress,
    /// Who the hub is. Key `hub_key`.
    pub hub_key: PublicKey,
    /// The local UDP address; `None` lets the system choose. Key `listen`.
    pub listen: Option<SocketAddr>,
    /// The hop. Keys `rate`, `mtu`, `memory`, `stream_window`.
    pub link: slacp::Config,
    /// How long a connection to a destination may take to open. Key
    /// `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Which connections are taken over. Section `intercept`.
    pub intercept: InterceptConfig,
}

/// Which connections a gateway takes over.
#[derive(Debug, Clone)]
pub struct InterceptConfig {
    /// The interfaces that the clients are behind; at least one.
    pub interfaces: Vec<String>,
    /// Destinations that are left alone.
    pub bypass: Vec<Prefix>,
}

/// What a hub is told.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Who this hub is. Key `private_key` or `private_key_file`.
    pub identity: PrivateKey,
    /// The local UDP address; `None` is port 5900 of every address. Key
    /// `listen`.
    pub listen: Option<SocketAddr>,
    /// The hop. Keys `rate`, `mtu`, `memory`, `stream_window`.
    pub link: slacp::Config,
    /// How long a connection to a destination may take to open. Key
    /// `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Whether terminals may reach what listens on the hub's own loopback
    /// addresses. Key `allow_loopback`, default false.
    pub allow_loopback: bool,
    /// Who may connect; at least one. Sections `[[terminal]]`.
    pub terminals: Vec<PermittedTerminal>,
}

/// A terminal that a hub serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermittedTerminal {
    /// What the hub's log calls it.
    pub name: String,
    /// Who it is.
    pub key: PublicKey,
}

/// Where the hub is: `host:port`, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress(String);

impl HubAddress {
    /// `host:port`, as a resolver takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why there is no usable configuration. Each prints as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not TOML, or has a key or a type that it should not have.
    #[error("{file}, line {line} ({text}): {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What stands on that line.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A key that has no default is not there.
    #[error("{file}: `{key}` is missing: expected {accepted}")]
    Missing {
        /// The file.
        file: String,
        /// The key.
        key: &'static str,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A key has a value that it cannot have.
    #[error("{file}: {key} = {value}: {problem}")]
    Value {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// Its value, as given.
        value: String,
        /// What is wrong and what would be accepted.
        problem: String,
    },
    /// The private key cannot be used, or not safely.
    #[error("{file}: {source}")]
    Key {
        /// The file.
        file: String,
        /// Why.
        source: KeyError,
    },
}

impl TerminalConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// When the file cannot be read or is not a terminal's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        parse::terminal(&source, &text)
    }
}

impl HubConfig {
    /// Reads the file at `path`, which may be a pipe such as `/dev/stdin`.
    ///
    /// # Errors
    /// When the file cannot be read or is not a hub's configuration.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let (source, text) = Source::read(path)?;
        parse::hub(&source, &text)
    }
}

/// Where a configuration came from.
struct Source {
    /// The file, for error messages.
    file: String,
    path: PathBuf,
    metadata: fs::Metadata,
}

impl Source {
    fn read(path: &Path) -> Result<(Self, String), ConfigError> {
        let file = path.display().to_string();
        let failed = |source| ConfigError::Read { file: file.clone(), source };
        let metadata = fs::metadata(path).map_err(failed)?;
        let text = fs::read_to_string(path).map_err(failed)?;
        Ok((Self { file, path: path.to_owned(), metadata }, text))
    }

    /// A path in the configuration begins where the file is; in a pipe, where
    /// we are.
    fn relative(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(parent) if self.metadata.is_file() => parent.join(path),
            _ => PathBuf::from(path),
        }
    }

    /// A key in the file itself is as secret as one in a key file.
    fn inline_key(&self, text: &str) -> Result<PrivateKey, KeyError> {
        check_permissions(&self.path, &self.metadata)?;
        PrivateKey::parse(text)
    }
}
