//! Configuration files of all roles: TOML in, the types of [`pep::config`] out.
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

mod classes;
mod dlep;
mod egress;
mod limits;
mod operation;
mod parse;
mod policy;
mod proxy;
mod rate;
mod raw;
mod solo;
#[cfg(test)]
mod tests;
mod tunnel;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use pep::config::{HubConfig, SoloConfig, TerminalConfig};
use thiserror::Error;

use crate::keys::{KeyError, PrivateKey, check_permissions};

/// Why a configuration cannot be used. Each error prints as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {file}: {cause}")]
    Read {
        /// Name of the configuration file.
        file: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file is not valid TOML, or has an unknown key or a wrong type.
    #[error("{file}, line {line} ({text}): {problem}")]
    Syntax {
        /// Name of the configuration file.
        file: String,
        /// Line number, from 1.
        line: usize,
        /// Text of the line.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// A required key is missing.
    #[error("{file}: `{key}` is missing: expected {accepted}")]
    Missing {
        /// Name of the configuration file.
        file: String,
        /// The missing key.
        key: &'static str,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A key has an invalid value.
    #[error("{file}: {key} = {value}: {problem}")]
    Value {
        /// Name of the configuration file.
        file: String,
        /// The key.
        key: String,
        /// The value as given.
        value: String,
        /// What is wrong, and what would be accepted.
        problem: String,
    },
    /// The private key is unusable, or its file is not safe.
    #[error("{file}: {cause}")]
    Key {
        /// Name of the configuration file.
        file: String,
        /// Reason.
        cause: KeyError,
    },
}

/// Reads a hub's configuration from the file at `path`, which may be a pipe such as `/dev/stdin`.
///
/// # Errors
/// If the file cannot be read or is not a hub's configuration.
pub fn read_hub(path: &Path) -> Result<HubConfig, ConfigError> {
    let (source, text) = Source::read(path)?;
    parse::hub(&source, &text)
}

/// Reads a terminal's configuration, as [`read_hub`] does a hub's.
///
/// # Errors
/// If the file cannot be read or is not a terminal's configuration.
pub fn read_terminal(path: &Path) -> Result<TerminalConfig, ConfigError> {
    let (source, text) = Source::read(path)?;
    parse::terminal(&source, &text)
}

/// Reads a solo gateway's configuration, as [`read_hub`] does a hub's.
///
/// # Errors
/// If the file cannot be read or is not a solo gateway's configuration.
pub fn read_solo(path: &Path) -> Result<SoloConfig, ConfigError> {
    let (source, text) = Source::read(path)?;
    source.solo(&text)
}

/// Origin of a configuration.
struct Source {
    /// File name for error messages.
    file: String,
    path: PathBuf,
    metadata: fs::Metadata,
}

impl Source {
    fn read(path: &Path) -> Result<(Self, String), ConfigError> {
        let file = path.display().to_string();
        let failed = |cause| ConfigError::Read { file: file.clone(), cause };
        let metadata = fs::metadata(path).map_err(failed)?;
        let text = fs::read_to_string(path).map_err(failed)?;
        Ok((Self { file, path: path.to_owned(), metadata }, text))
    }

    /// Resolves a path relative to the file's directory; for a pipe, relative to the working
    /// directory.
    fn relative(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(parent) if self.metadata.is_file() => parent.join(path),
            _ => PathBuf::from(path),
        }
    }

    /// Reads an inline key. It needs the same file permissions as a key file.
    fn inline_key(&self, text: &str) -> Result<PrivateKey, KeyError> {
        check_permissions(&self.path, &self.metadata)?;
        PrivateKey::parse(text)
    }
}
