//! Keys as base64 text, and in files that only their owner may read.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use os::sync_directory;
use pep::keys::KEY_FORM;
pub use pep::keys::{format_public_key, parse_public_key};
use slacp::KeyPair;
pub use slacp::PublicKey;
use thiserror::Error;
use zeroize::Zeroizing;

/// Permission bits that a private file must not have: any for others than its owner.
const OTHERS_MASK: u32 = 0o077;
/// The same for a TLS key, which the programs of a group may share.
const OUTSIDE_GROUP_MASK: u32 = 0o037;
/// User numbers below this belong to services (the usual `SYS_UID_MAX` of login.defs, plus one).
/// Root reads their files: `sudo skyhop doctor` reads a packaged hub's.
const FIRST_PERSON_UID: u32 = 1000;
/// Size limit of a private file, in bytes: a PEM file may have a chain of certificates beside the
/// key.
const MAX_FILE: u64 = 1 << 20;

/// Private key of a gateway (Curve25519). Never printed by `{:?}`, and wiped when dropped.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// Reason for which a key cannot be used.
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
        /// The error of the system call.
        cause: io::Error,
    },
    /// The file's text is not a key.
    #[error("{} holds no key: expected {KEY_FORM}", path.display())]
    MalformedFile {
        /// Path of the key file.
        path: PathBuf,
    },
    /// The file is not private.
    #[error("{} holds a private key: {why}", path.display())]
    Exposed {
        /// Path of the key file.
        path: PathBuf,
        /// The wrong owner or mode.
        why: FileExposure,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// Path of the key file.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The system has no random numbers.
    #[error("cannot get random numbers from the system: {0}")]
    NoRandomness(getrandom::Error),
}

/// Access of others to a file that should be private.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileExposure {
    /// Its mode lets others read or change it.
    #[error("other users can read it (mode {mode:04o}): chmod 600 {}", path.display())]
    Mode {
        /// Path of the exposed file.
        path: PathBuf,
        /// Its permission bits, such as 0o644.
        mode: u32,
    },
    /// Another user than this process's owns it.
    #[error(
        "user {owner} owns it and can read and change it: chown {user} {}", path.display()
    )]
    Owner {
        /// Path of the exposed file.
        path: PathBuf,
        /// User ID of the owner.
        owner: u32,
        /// User ID of this process.
        user: u32,
    },
}

/// Reason for which a private file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum PrivateFileError {
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Exposed(#[from] FileExposure),
}

/// Reads a file that only its owner may read: this user or root.
///
/// # Errors
/// The file cannot be read, or is not private.
pub(crate) fn private_text(path: &Path) -> Result<Zeroizing<String>, PrivateFileError> {
    read_private(path, OTHERS_MASK)
}

/// Reads a TLS key, whose file a group may read.
///
/// # Errors
/// The file cannot be read, or is not private.
pub(crate) fn private_pem(path: &Path) -> Result<Zeroizing<String>, PrivateFileError> {
    read_private(path, OUTSIDE_GROUP_MASK)
}

fn read_private(path: &Path, forbidden: u32) -> Result<Zeroizing<String>, PrivateFileError> {
    let (file, metadata) = open_with_metadata(path)?;
    // The open file is checked: its path may lead elsewhere a moment later.
    check(path, &metadata, forbidden)?;
    Ok(read_text(file)?)
}

/// Opens a file. The metadata is of this file, not of what is at its path a moment later.
pub(crate) fn open_with_metadata(path: &Path) -> io::Result<(File, Metadata)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Reads text that may be secret, and leaves no copy of it in memory.
pub(crate) fn read_text(file: File) -> io::Result<Zeroizing<String>> {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    if length > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    // With enough capacity: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length.max(4096) as usize + 1));
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    let text = core::str::from_utf8(&bytes).map(str::to_owned);
    text.map(Zeroizing::new)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

impl PrivateKey {
    /// Generates a key from the system's random numbers.
    ///
    /// # Errors
    /// The system has none.
    pub fn generate() -> Result<Self, KeyError> {
        random_bytes().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// Parses a key from base64.
    ///
    /// # Errors
    /// The text is not 32 bytes of base64.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse_key(text).map(|bytes| Self(Zeroizing::new(bytes)))
    }

    /// Reads a key from a file with its base64 text, which only its owner may read.
    ///
    /// # Errors
    /// The file cannot be read, is not a key, or is readable by others.
    pub fn read_file(path: &Path) -> Result<Self, KeyError> {
        let path_of = || path.to_owned();
        let text = private_text(path).map_err(|error| match error {
            PrivateFileError::Read(cause) => KeyError::Read { path: path_of(), cause },
            PrivateFileError::Exposed(why) => KeyError::Exposed { path: path_of(), why },
        })?;
        Self::parse(&text).map_err(|_| KeyError::MalformedFile { path: path.to_owned() })
    }

    /// Writes the key to a new file with mode 0600.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn write_file(&self, path: &Path) -> Result<(), KeyError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
            .open(path)
            .and_then(|mut file| {
                writeln!(file, "{}", self.to_base64())?;
                file.sync_all()
            })
            // Without this, a power cut may undo the creation.
            .and_then(|()| sync_directory(path))
            .map_err(|cause| KeyError::Write { path: path.to_owned(), cause })
    }

    /// The key as base64. Its holder can impersonate this gateway.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(*self.0)
    }

    /// The key pair of this private key.
    pub fn pair(&self) -> KeyPair {
        KeyPair::from_private(*self.0)
    }

    /// The public key of this private key.
    pub fn public(&self) -> PublicKey {
        self.pair().public()
    }
}

/// Checks that the open file of a private key is private.
pub(crate) fn check_private(path: &Path, metadata: &Metadata) -> Result<(), KeyError> {
    let exposed = |why| KeyError::Exposed { path: path.to_owned(), why };
    check(path, metadata, OTHERS_MASK).map_err(exposed)
}

/// Checks the owner and mode of a regular file. Pipes pass: they have no other readers.
fn check(path: &Path, metadata: &Metadata, forbidden: u32) -> Result<(), FileExposure> {
    check_for(nix::unistd::geteuid().as_raw(), path, metadata, forbidden)
}

/// As [`check`], for a gateway of this user.
fn check_for(
    user: u32,
    path: &Path,
    metadata: &Metadata,
    forbidden: u32,
) -> Result<(), FileExposure> {
    let mode = metadata.permissions().mode() & 0o7777;
    let owner = metadata.uid();
    let path = path.to_owned();
    let is_trusted = owner == user || owner == 0 || user == 0 && owner < FIRST_PERSON_UID;
    match metadata.is_file() {
        true if !is_trusted => Err(FileExposure::Owner { path, owner, user }),
        true if mode & forbidden != 0 => Err(FileExposure::Mode { path, mode }),
        _ => Ok(()),
    }
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
    use std::fs;
    use std::os::unix::fs::chown;

    use os::testkit::durable_steps;

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
    fn a_file_of_another_user_is_refused_whatever_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        PrivateKey::generate().unwrap().write_file(&path).unwrap();
        // To another user it is another's also without being given away, which only root can do.
        let metadata = fs::metadata(&path).unwrap();
        let (owner, system) = (metadata.uid(), metadata.uid() < FIRST_PERSON_UID);
        for (user, permitted) in [(owner, true), (owner + 1, owner == 0), (0, system)] {
            let checked = check_for(user, &path, &metadata, OTHERS_MASK);
            assert_eq!(checked.is_ok(), permitted, "of {owner} for {user}: {checked:?}");
        }
        if chown(&path, Some(1234), None).is_err() {
            return;
        }
        for read in [private_text, private_pem] {
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("user 1234") && error.contains("chown"), "{error}");
        }
        let error = PrivateKey::read_file(&path).unwrap_err().to_string();
        assert!(error.contains("user 1234"), "{error}");
    }

    #[test]
    fn a_key_for_tls_may_be_read_by_a_group_and_no_further() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for (mode, permitted) in [(0o600, true), (0o640, true), (0o660, false), (0o644, false)] {
            fs::write(&path, "text").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(private_pem(&path).is_ok(), permitted, "{mode:o}");
        }
    }

    #[test]
    fn a_new_key_and_its_name_are_on_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let (path, key) = (directory.path().join("key"), PrivateKey::generate().unwrap());
        let steps = durable_steps(directory.path(), || key.write_file(&path).unwrap());
        let Some(steps) = steps else { return };
        assert_eq!(steps, ["sync key", "sync ."]);
    }

    #[test]
    fn a_private_key_is_not_printed() {
        let key = PrivateKey::generate().unwrap();
        assert_eq!(format!("{key:?}"), "PrivateKey(…)");
    }
}
