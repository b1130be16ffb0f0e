//! A hub operator's permits for terminals: writing invitations, listing and revoking.

use std::fmt::Write as _;
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::FileError;
use config::{HubAddress, HubConfig, PermittedTerminal, TcpAddress};
use pep::traffic::Prefix;
use report::{TableColumn, TextTable};
use serde::Serialize;
use slacp::PublicKey;
use thiserror::Error;
use tokio::runtime::Builder;
use units::UnixTime;

use super::etcd::{EtcdClient, EtcdError};
use super::token::JoinToken;
use crate::config::keys::{KeyError, PrivateKey, format_public_key};
use crate::config::pair::HubContact;
use crate::config::permits::{PermitLocation, TerminalPermits};
use crate::config::read_hub;
use crate::config::whole_file::{PUBLIC, replace};
use crate::process::clock;

/// Reason for which a permit was not written or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PermitError {
    /// The hub's configuration or its permits cannot be read.
    #[error(transparent)]
    Hub(#[from] FileError),
    /// The hub has neither a directory of permits nor etcd.
    #[error("{}: permits is missing: expected a directory, like permits = \"permits\", or a section [etcd]", hub.display())]
    NoDirectory {
        /// Path of the hub's configuration.
        hub: PathBuf,
    },
    /// The name cannot be the name of a file.
    #[error("{name:?} is not a valid terminal name: expected letters, digits, `-`, `_` and `.`")]
    Name {
        /// The rejected name, as it was given.
        name: String,
    },
    /// A terminal of this name exists.
    #[error("there is a terminal {name:?} already")]
    Exists {
        /// The name, which both would have.
        name: String,
    },
    /// No terminal has this name.
    #[error("there is no permit for {name:?}: expected one of {known}")]
    Unknown {
        /// The name that was looked for.
        name: String,
        /// Names of all permits, with commas between them.
        known: String,
    },
    /// The file cannot be written or removed.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// Path of the permit's file.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// No key can be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A request to etcd failed.
    #[error("{0}")]
    Etcd(String),
}

impl From<EtcdError> for PermitError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error.to_string())
    }
}

/// Storage of a hub's permits.
enum PermitStore {
    Directory(PathBuf),
    Etcd(EtcdClient),
}

/// An invitation for a new terminal.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// Name of the terminal, which is also that of its permit.
    pub name: String,
    /// The hub's address for the terminal: host and UDP port.
    pub hub: HubAddress,
    /// The hub's TCP address, where UDP is blocked.
    pub tcp: Option<TcpAddress>,
    /// Address and key of further hubs with the same permits.
    pub others: Vec<(HubAddress, PublicKey)>,
    /// Networks of the terminal's clients.
    pub networks: Vec<Prefix>,
    /// Time until the invitation expires.
    pub valid_for: Duration,
}

/// Reads all permits of a hub with this configuration.
fn read(config: &HubConfig) -> Result<TerminalPermits, PermitError> {
    let mut permits = TerminalPermits::read(config)?;
    if let Some(etcd) = &config.etcd {
        permits.set_remote(&block_on(EtcdClient::new(etcd).read())?);
    }
    Ok(permits)
}

/// Blocks until a request to etcd is answered.
fn block_on<T>(what: impl Future<Output = Result<T, EtcdError>>) -> Result<T, PermitError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| PermitError::Etcd(error.to_string()))?;
    Ok(runtime.block_on(what)?)
}

/// Reads the permits and the key of the hub with the configuration at `hub`, and its storage for
/// new ones.
fn permits(hub: &Path) -> Result<(TerminalPermits, PublicKey, PermitStore), PermitError> {
    let config = read_hub(hub)?;
    let none = || PermitError::NoDirectory { hub: hub.to_owned() };
    let store = match (&config.etcd, &config.permits) {
        (Some(etcd), _) => PermitStore::Etcd(EtcdClient::new(etcd)),
        (None, Some(directory)) => PermitStore::Directory(directory.clone()),
        (None, None) => return Err(none()),
    };
    // A terminal that joins during a key rotation gets the next key.
    let identity = config.next_identity.as_ref().unwrap_or(&config.identity).public();
    Ok((read(&config)?, identity, store))
}

impl Invitation {
    /// Writes the invitation to the permits of the hub with the configuration at `hub`, which need
    /// not run. Returns the token for the terminal.
    ///
    /// # Errors
    /// [`PermitError`].
    pub fn write(&self, hub: &Path) -> Result<JoinToken, PermitError> {
        let (permits, key, store) = permits(hub)?;
        let name = &self.name;
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(known) {
            return Err(PermitError::Name { name: name.clone() });
        }
        if permits.all().iter().any(|terminal| terminal.name == *name) {
            return Err(PermitError::Exists { name: name.clone() });
        }
        // The permit has its public key only, so that a reader of the permits cannot join.
        let secret = PrivateKey::generate()?;
        let text = self.text(&secret.public());
        match store {
            PermitStore::Directory(directory) => {
                let path = directory.join(format!("{name}.toml"));
                create(&path, &text).map_err(|cause| PermitError::Write { path, cause })?;
            }
            PermitStore::Etcd(etcd) => block_on(etcd.put(name, None, &text))?,
        }
        let other = |(address, key): &(HubAddress, PublicKey)| HubContact {
            address: address.clone(),
            tcp: None,
            key: *key,
        };
        let first = HubContact { address: self.hub.clone(), tcp: self.tcp.clone(), key };
        let hubs = [first].into_iter().chain(self.others.iter().map(other)).collect();
        Ok(JoinToken { name: name.clone(), hubs, secret })
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

/// Removes the permit of a terminal. Its sessions then end.
///
/// # Errors
/// [`PermitError`].
pub fn revoke(hub: &Path, name: &str) -> Result<(), PermitError> {
    let (permits, _, store) = permits(hub)?;
    let unknown = || PermitError::Unknown { name: name.to_owned(), known: permits.names() };
    match (permits.location_of(name).ok_or_else(unknown)?, store) {
        (PermitLocation::File(path), _) => {
            fs::remove_file(&path).map_err(|cause| PermitError::Write { path, cause })
        }
        (PermitLocation::Etcd(key), PermitStore::Etcd(etcd)) => {
            block_on(etcd.remove(&key)).map(drop)
        }
        (PermitLocation::Etcd(_), PermitStore::Directory(_)) => Err(unknown()),
    }
}

/// A terminal that may connect, as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedTerminal {
    /// Name of the terminal in its permit.
    pub name: String,
    /// Its public key, or its invitation's.
    pub key: String,
    /// Set until it has joined.
    pub invited: bool,
    /// End of the permit or the invitation (RFC 3339).
    pub expires: Option<String>,
    /// Networks that its clients are in.
    pub networks: Vec<String>,
}

/// Lists all terminals of the hub with the configuration at `hub`, also expired ones.
///
/// # Errors
/// [`PermitError`].
pub fn list(hub: &Path) -> Result<Vec<ListedTerminal>, PermitError> {
    let permits = read(&read_hub(hub)?)?;
    let listed = |terminal: &PermittedTerminal| ListedTerminal {
        name: terminal.name.clone(),
        key: format_public_key(&terminal.key),
        invited: terminal.invited,
        expires: terminal.expires.map(|end| end.to_string()),
        networks: terminal.networks.iter().map(ToString::to_string).collect(),
    };
    Ok(permits.all().iter().map(listed).collect())
}

/// Formats terminals as a table.
pub fn table(terminals: &[ListedTerminal]) -> String {
    let mut table = TextTable::new(["terminal", "state", "expires", "key"].map(TableColumn::left));
    for terminal in terminals {
        let state = if terminal.invited { "invited" } else { "joined" };
        let expires = terminal.expires.as_deref().unwrap_or("never");
        table.row([&terminal.name, state, expires, &terminal.key]);
    }
    table.to_string()
}

/// Writes a new permit. It gets its name only when it is complete.
fn create(path: &Path, text: &str) -> io::Result<()> {
    // `replace` would overwrite it.
    if path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    replace(path, text.as_bytes(), PUBLIC)
}
