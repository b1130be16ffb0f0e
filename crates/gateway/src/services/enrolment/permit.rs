//! The files in which a hub's operator permits terminals: invitations, and what became of them.

use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{HubAddress, HubConfig, PermittedTerminal, TcpAddress};
use pep::traffic::Prefix;
use report::{Column, Table};
use scenario::FileError;
use serde::Serialize;
use slacp::PublicKey;
use thiserror::Error;
use tokio::runtime::Builder;
use units::UnixTime;

use super::etcd::{Etcd, EtcdError};
use super::token::Token;
use crate::clock;
use crate::config::keys::{KeyError, PrivateKey, format_public_key};
use crate::config::pair::HubContact;
use crate::config::permits::{PermitPlace, Permits};
use crate::config::read_hub;
use crate::whole_file::{PUBLIC, replace};

/// Why a permit was not written or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PermitError {
    /// The hub's configuration or its permits cannot be read.
    #[error(transparent)]
    Hub(#[from] FileError),
    /// The hub has no directory with permits.
    #[error("{}: permits is missing: expected a directory, like permits = \"permits\", or a section [etcd]", hub.display())]
    NoDirectory {
        /// The hub's configuration.
        hub: PathBuf,
    },
    /// The name does not make a file's name.
    #[error("{name:?} is no name for a terminal: expected letters, digits, `-`, `_` and `.`")]
    Name {
        /// The name.
        name: String,
    },
    /// There is a terminal of this name.
    #[error("there is a terminal {name:?} already")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no terminal of this name.
    #[error("there is no permit for {name:?}: expected one of {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of permits.
        known: String,
    },
    /// The file cannot be written or removed.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// There are no keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// etcd does not do it.
    #[error("{0}")]
    Etcd(String),
}

impl From<EtcdError> for PermitError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error.to_string())
    }
}

/// Where a hub's permits are.
enum Store {
    Directory(PathBuf),
    Etcd(Etcd),
}

/// An invitation for a new terminal.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// The terminal's name.
    pub name: String,
    /// Where it reaches this hub: host and UDP port.
    pub hub: HubAddress,
    /// Where the hub takes TCP instead.
    pub tcp: Option<TcpAddress>,
    /// Further hubs with the same permits: address and key of each.
    pub others: Vec<(HubAddress, PublicKey)>,
    /// Addresses of its clients.
    pub networks: Vec<Prefix>,
    /// How long it is valid.
    pub valid_for: Duration,
}

/// All permits of a hub with this configuration.
fn read(config: &HubConfig) -> Result<Permits, PermitError> {
    let mut permits = Permits::read(config)?;
    if let Some(etcd) = &config.etcd {
        permits.set_remote(&wait(Etcd::new(etcd).read())?);
    }
    Ok(permits)
}

/// Waits for etcd.
fn wait<T>(what: impl Future<Output = Result<T, EtcdError>>) -> Result<T, PermitError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| PermitError::Etcd(error.to_string()))?;
    Ok(runtime.block_on(what)?)
}

/// The permits of the hub with the configuration at `hub`, its key, and where new ones go.
fn permits(hub: &Path) -> Result<(Permits, PublicKey, Store), PermitError> {
    let config = read_hub(hub)?;
    let none = || PermitError::NoDirectory { hub: hub.to_owned() };
    let store = match (&config.etcd, &config.permits) {
        (Some(etcd), _) => Store::Etcd(Etcd::new(etcd)),
        (None, Some(directory)) => Store::Directory(directory.clone()),
        (None, None) => return Err(none()),
    };
    // A terminal that joins while the key is replaced begins with the new one.
    let identity = config.next_identity.as_ref().unwrap_or(&config.identity).public();
    Ok((read(&config)?, identity, store))
}

impl Invitation {
    /// Writes the invitation beside the other permits of the hub with the configuration at `hub`,
    /// which need not run. Returns the token, with which the terminal joins.
    ///
    /// # Errors
    /// [`PermitError`].
    pub fn write(&self, hub: &Path) -> Result<Token, PermitError> {
        let (permits, key, store) = permits(hub)?;
        let name = &self.name;
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(known) {
            return Err(PermitError::Name { name: name.clone() });
        }
        if permits.all().iter().any(|terminal| terminal.name == *name) {
            return Err(PermitError::Exists { name: name.clone() });
        }
        let secret = PrivateKey::generate()?;
        let text = self.text(&secret.public());
        match store {
            Store::Directory(directory) => {
                let path = directory.join(format!("{name}.toml"));
                create(&path, &text).map_err(|cause| PermitError::Write { path, cause })?;
            }
            Store::Etcd(etcd) => wait(etcd.put(name, None, &text))?,
        }
        let other = |(address, key): &(HubAddress, PublicKey)| HubContact {
            address: address.clone(),
            tcp: None,
            key: *key,
        };
        let first = HubContact { address: self.hub.clone(), tcp: self.tcp.clone(), key };
        let hubs = [first].into_iter().chain(self.others.iter().map(other)).collect();
        Ok(Token { name: name.clone(), hubs, secret })
    }

    fn text(&self, key: &PublicKey) -> String {
        let expires = clock::unix_seconds().saturating_add(self.valid_for.as_secs());
        let mut text = format!(
            "invite = \"{}\"   # replaced by the terminal's key when it joins\nexpires = \"{}\"\n",
            format_public_key(key),
            UnixTime::from_seconds(expires)
        );
        if !self.networks.is_empty() {
            let networks: Vec<String> = self.networks.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "networks = {networks:?}");
        }
        text
    }
}

/// Removes the permit of a terminal, whose sessions then end.
///
/// # Errors
/// [`PermitError`].
pub fn revoke(hub: &Path, name: &str) -> Result<(), PermitError> {
    let (permits, _, store) = permits(hub)?;
    let unknown = || PermitError::Unknown { name: name.to_owned(), known: permits.names() };
    match (permits.place_of(name).ok_or_else(unknown)?, store) {
        (PermitPlace::File(path), _) => {
            fs::remove_file(&path).map_err(|cause| PermitError::Write { path, cause })
        }
        (PermitPlace::Etcd(key), Store::Etcd(etcd)) => wait(etcd.remove(&key)).map(drop),
        (PermitPlace::Etcd(_), Store::Directory(_)) => Err(unknown()),
    }
}

/// A terminal that may connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its public key, or that of its invitation.
    pub key: String,
    /// Whether it is still to join.
    pub invited: bool,
    /// When it, or its invitation, is no longer served (RFC 3339).
    pub expires: Option<String>,
    /// Addresses of its clients.
    pub networks: Vec<String>,
}

/// All terminals of the hub with the configuration at `hub`, also expired ones.
///
/// # Errors
/// [`PermitError`].
pub fn list(hub: &Path) -> Result<Vec<Listed>, PermitError> {
    let permits = read(&read_hub(hub)?)?;
    let listed = |terminal: &PermittedTerminal| Listed {
        name: terminal.name.clone(),
        key: format_public_key(&terminal.key),
        invited: terminal.invited,
        expires: terminal.expires.map(|end| end.to_string()),
        networks: terminal.networks.iter().map(ToString::to_string).collect(),
    };
    Ok(permits.all().iter().map(listed).collect())
}

/// Terminals as a table.
pub fn table(terminals: &[Listed]) -> String {
    let mut table = Table::new(["terminal", "state", "expires", "key"].map(Column::left));
    for terminal in terminals {
        let state = if terminal.invited { "invited" } else { "joined" };
        let expires = terminal.expires.as_deref().unwrap_or("never");
        table.row([&terminal.name, state, expires, &terminal.key]);
    }
    table.to_string()
}

/// Writes a new permit. It is complete when it has its name.
fn create(path: &Path, text: &str) -> io::Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    replace(path, text.as_bytes(), PUBLIC)
}
