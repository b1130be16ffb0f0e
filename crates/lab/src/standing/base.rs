//! The record of persistent labs: a private directory of the user ([`os::PrivateDirectories`]), with a
//! subdirectory for each lab; `$SKYHOP_STATE_DIR` overrides it. Other users may not write there, so
//! its contents can be trusted to come from this user's skyhop.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use os::{DirectoryError, PrivateDirectory};
use thiserror::Error;

use super::name::LabName;

/// The variable that names the directory in which labs are recorded, instead of the usual one.
pub const STATE_VARIABLE: &str = "SKYHOP_STATE_DIR";

/// The lock file that serialises commands in the directory. Not a valid lab name.
const TURNS: &str = ".lock";

/// The reason why persistent labs cannot be managed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// There is no safe directory.
    #[error("cannot keep labs: {0}")]
    Place(#[from] DirectoryError),
    /// The operating system refused an operation.
    #[error("cannot {what} {}: {cause}", path.display())]
    Refused {
        /// The operation, as a verb for the message.
        what: &'static str,
        /// The file or directory it applied to.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// A lab of this name exists.
    #[error("a lab named {name} is already up: skyhop lab down {name}, or choose another --name")]
    Taken {
        /// Name under which the lab was recorded.
        name: LabName,
    },
    /// No lab of this name exists.
    #[error("no lab named {name} is up{}", others(known))]
    Unknown {
        /// The name that was asked for.
        name: LabName,
        /// Names of the labs that are up.
        known: Vec<LabName>,
    },
}

fn others(known: &[LabName]) -> String {
    let names: Vec<&str> = known.iter().map(LabName::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; running: {}", names.join(", ")) }
}

/// A directory that labs are recorded in.
#[derive(Debug, Clone)]
pub(super) struct LabsDirectory(pub(super) PrivateDirectory);

/// A lock on a [`LabsDirectory`]: while it is held, no other command reads or changes the labs there.
pub(super) struct LabsLock {
    _file: File,
}

impl LabsDirectory {
    /// Locks the directory; waits until no other command is active in it.
    pub(super) fn lock(&self) -> Result<LabsLock, StateError> {
        let path = self.0.path().join(TURNS);
        let file = file_in(&self.0, TURNS, OFlag::O_RDWR | OFlag::O_CREAT);
        let file = file.map_err(refused("open", &path))?;
        file.lock().map_err(|cause| StateError::Refused { what: "lock", path, cause })?;
        Ok(LabsLock { _file: file })
    }

    /// Returns the names that have a directory here, sorted.
    pub(super) fn names(&self) -> Vec<LabName> {
        let entries = std::fs::read_dir(self.0.path()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut names: Vec<LabName> = names.collect();
        names.sort();
        names
    }
}

/// Opens a file in a directory without following symbolic links. Commands in the lab do not inherit
/// it.
pub(super) fn file_in(directory: impl AsFd, name: &str, flags: OFlag) -> nix::Result<File> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map(File::from)
}

/// Returns a short path to a file in a directory that stays valid even if the directory is renamed.
pub(super) fn short_path(directory: impl AsFd, name: &str) -> PathBuf {
    // A socket's path is limited to 107 bytes (unix(7)).
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd()))
}

pub(super) fn refused(what: &'static str, path: &Path) -> impl Fn(Errno) -> StateError {
    let path = path.to_owned();
    move |errno| StateError::Refused { what, path: path.clone(), cause: errno.into() }
}
