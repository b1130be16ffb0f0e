//! Keys as people handle them: base64 text, and files that only their owner
//! may read.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use slacp::{KeyPair, PublicKey};
use thiserror::Error;
use zeroize::Zeroizing;

/// What a key looks like, for error messages.
pub(crate) const KEY_FORM: &str = "32 bytes in base64 (44 characters), as `skyhop keygen` prints";

const READABLE_BY_OTHERS: u32 = 0o077;

/// The private key of a gateway (Curve25519). Never printed by `{:?}`, and
/// overwritten when dropped.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// Why there is no usable key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not a key.
    #[error("not a key: expected {KEY_FORM}")]
    Malformed,
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The file's text is not a key.
    #[error("{} holds no key: expected {KEY_FORM}", path.display())]
    MalformedFile {
        /// The file.
        path: PathBuf,
    },
    /// Others than the owner may read the file.
    #[error(
        "{} holds a private key and others may read it (mode {mode:04o}): chmod 600 {}",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    NoRandomness(getrandom::Error),
}

impl PrivateKey {
    /// A new key from the system's random numbers.
    ///
    /// # Errors
    /// When the system has none.
    pub fn generate() -> Result<Self, KeyError> {
        random_bytes().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// Reads a key from its base64 text.
    ///
    /// # Errors
    /// When the text is not 32 bytes of base64.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse_key(text).map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// Reads a key from a file that holds its base64 text and that nobody but
    /// its owner may read.
    ///
    /// # Errors
    /// When the file cannot be read, is not a key, or is open to others.
    pub fn read_file(path: &Path) -> Result<Self, KeyError> {
        let read = |cause| KeyError::Read { path: path.to_owned(), cause };
        check_permissions(path, &fs::metadata(path).map_err(read)?)?;
        let text = Zeroizing::new(fs::read_to_string(path).map_err(read)?);
        Self::parse(&text).map_err(|_| KeyError::MalformedFile { path: path.to_owned() })
    }

    /// Writes the key to a new file of mode 0600.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    pub fn write_file(&self, path: &Path) -> Result<(), KeyError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
            .open(path)
            .and_then(|mut file| writeln!(file, "{}", self.to_base64()))
            .map_err(|cause| KeyError::Write { path: path.to_owned(), cause })
    }

    /// The key as text. Anybody who has it is this gateway.
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

/// Refuses a file that holds a private key and is open to others. Pipes and
/// the like have no readers besides ours.
pub(crate) fn check_permissions(path: &Path, metadata: &fs::Metadata) -> Result<(), KeyError> {
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & READABLE_BY_OTHERS != 0 {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Reads a public key from its base64 text.
///
/// # Errors
/// When the text is not 32 bytes of base64.
pub fn parse_public_key(text: &str) -> Result<PublicKey, KeyError> {
    parse_key(text).map(PublicKey)
}

/// A public key as base64 text.
pub fn format_public_key(key: &PublicKey) -> String {
    STANDARD.encode(key.0)
}

/// 32 random bytes of the system: a key, or the seed of an endpoint.
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
    fn public_keys_read_back_and_others_are_refused() {
        let key = PrivateKey::generate().unwrap().public();
        assert_eq!(parse_public_key(&format_public_key(&key)).unwrap(), key);
        for bad in ["", "AAAA", "not base64!", &format!("{}A", format_public_key(&key))] {
            assert!(parse_public_key(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_private_key_is_not_printed() {
        let key = PrivateKey::generate().unwrap();
        assert_eq!(format!("{key:?}"), "PrivateKey(…)");
    }
}
