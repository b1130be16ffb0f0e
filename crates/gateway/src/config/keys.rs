//! Keys as base64 text, and in files that only their owner may read.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pep::keys::KEY_FORM;
pub use pep::keys::{format_public_key, parse_public_key};
use slacp::KeyPair;
pub use slacp::PublicKey;
use thiserror::Error;
use zeroize::Zeroizing;

const READABLE_BY_OTHERS: u32 = 0o077;

/// Private key of a gateway (Curve25519). Never printed by `{:?}`, and wiped when dropped.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// Why a key is unusable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not a key.
    #[error("not a key: expected {KEY_FORM}")]
    Malformed,
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// Path of the key file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file's text is not a key.
    #[error("{} holds no key: expected {KEY_FORM}", path.display())]
    MalformedFile {
        /// Path of the key file.
        path: PathBuf,
    },
    /// The file is readable by others than its owner.
    #[error(
        "{} holds a private key that other users can read (mode {mode:04o}): chmod 600 {}",
        path.display(),
        path.display()
    )]
    Exposed {
        /// Path of the key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// Path of the key file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The system has no random numbers.
    #[error("cannot get random numbers from the system: {0}")]
    NoRandomness(getrandom::Error),
}

/// The text of a file that only its owner may read.
///
/// # Errors
/// Why it cannot be used.
pub(crate) fn private_text(path: &Path) -> Result<Zeroizing<String>, String> {
    let read = |error| format!("cannot read it: {error}");
    if let Some(mode) = exposed(&fs::metadata(path).map_err(read)?) {
        let file = path.display();
        return Err(format!("other users can read it (mode {mode:04o}): chmod 600 {file}"));
    }
    fs::read_to_string(path).map(Zeroizing::new).map_err(read)
}

impl PrivateKey {
    /// Generates a key from the system's random numbers.
    ///
    /// # Errors
    /// If the system has none.
    pub fn generate() -> Result<Self, KeyError> {
        random_bytes().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// Parses a key from base64.
    ///
    /// # Errors
    /// If the text is not 32 bytes of base64.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse_key(text).map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// Reads a key from a file with its base64 text, which only its owner may read.
    ///
    /// # Errors
    /// If the file cannot be read, is not a key, or is readable by others.
    pub fn read_file(path: &Path) -> Result<Self, KeyError> {
        let read = |cause| KeyError::Read { path: path.to_owned(), cause };
        check_permissions(path, &fs::metadata(path).map_err(read)?)?;
        let text = Zeroizing::new(fs::read_to_string(path).map_err(read)?);
        Self::parse(&text).map_err(|_| KeyError::MalformedFile { path: path.to_owned() })
    }

    /// Writes the key to a new file with mode 0600.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn write_file(&self, path: &Path) -> Result<(), KeyError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
            .open(path)
            .and_then(|mut file| writeln!(file, "{}", self.to_base64()))
            .map_err(|cause| KeyError::Write { path: path.to_owned(), cause })
    }

    /// The key as base64. Whoever has it can impersonate this gateway.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(*self.0)
    }

    /// The key with its public half.
    pub fn pair(&self) -> KeyPair {
        KeyPair::from_private(*self.0)
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.pair().public()
    }
}

/// Rejects a private key file that others can read. Pipes have no other readers, so they pass.
pub(crate) fn check_permissions(path: &Path, metadata: &fs::Metadata) -> Result<(), KeyError> {
    let exposed = exposed(metadata).map(|mode| KeyError::Exposed { path: path.to_owned(), mode });
    exposed.map_or(Ok(()), Err)
}

/// The permission bits of a file that others than its owner can read.
fn exposed(metadata: &fs::Metadata) -> Option<u32> {
    let mode = metadata.permissions().mode() & 0o7777;
    (metadata.is_file() && mode & READABLE_BY_OTHERS != 0).then_some(mode)
}

/// 32 random bytes from the system, for a key or the seed of an endpoint.
pub(crate) fn random_bytes() -> Result<[u8; 32], KeyError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(KeyError::NoRandomness)?;
    Ok(bytes)
}

fn parse_key(text: &str) -> Result<[u8; 32], KeyError> {
    let bytes = STANDARD.decode(text.trim()).map_err(|_| KeyError::Malformed)?;
    let bytes = Zeroizing::new(bytes);
    <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| KeyError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_way_through_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = PrivateKey::generate().unwrap();
        key.write_file(&path).unwrap();
        assert_eq!(PrivateKey::read_file(&path).unwrap().to_base64(), key.to_base64());
        assert!(matches!(key.write_file(&path), Err(KeyError::Write { .. })), "never overwritten");
    }

    #[test]
    fn a_file_open_to_others_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        PrivateKey::generate().unwrap().write_file(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = PrivateKey::read_file(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600") && error.contains("0640"), "{error}");
    }

    #[test]
    fn a_private_key_is_not_printed() {
        let key = PrivateKey::generate().unwrap();
        assert_eq!(format!("{key:?}"), "PrivateKey(…)");
    }
}
