//! Where labs that stay are remembered: one private directory of the user
//! ([`os::Places`]), with a directory for each lab; `$SKYHOP_STATE_DIR` takes its
//! place. Nobody else may write there, so what is read there is what this user's
//! skyhop wrote.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use os::{PlaceError, PrivateDirectory};
use thiserror::Error;

use super::name::LabName;

/// Names the directory that labs are remembered in, instead of the usual one.
pub const STATE_VARIABLE: &str = "SKYHOP_STATE_DIR";

/// The file by which commands take turns in the directory. It is no lab's name.
const TURNS: &str = ".lock";

/// Why labs that stay cannot be looked after.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// There is no safe directory.
    #[error("cannot keep labs: {0}")]
    Place(#[from] PlaceError),
    /// The system refuses something.
    #[error("cannot {what} {}: {cause}", path.display())]
    Refused {
        /// What was tried.
        what: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// There is such a lab.
    #[error("a lab named {name} is up already: skyhop lab down {name}, or choose another --name")]
    Taken {
        /// Its name.
        name: LabName,
    },
    /// There is no such lab.
    #[error("no lab named {name} is up{}", others(known))]
    Unknown {
        /// The name.
        name: LabName,
        /// The labs there are.
        known: Vec<LabName>,
    },
}

fn others(known: &[LabName]) -> String {
    let names: Vec<&str> = known.iter().map(LabName::as_str).collect();
    if names.is_empty() { String::new() } else { format!(": there is {}", names.join(", ")) }
}

/// A directory that labs are in.
#[derive(Debug, Clone)]
pub(super) struct Base(pub(super) PrivateDirectory);

/// While it lives no other command looks at the labs of a [`Base`] or changes
/// which there are.
pub(super) struct Turn {
    _file: File,
}

impl Base {
    /// Waits until no other command is at work in this directory.
    pub(super) fn turn(&self) -> Result<Turn, StateError> {
        let path = self.0.path().join(TURNS);
        let file = file_in(&self.0, TURNS, OFlag::O_RDWR | OFlag::O_CREAT);
        let file = file.map_err(refused("open", &path))?;
        file.lock().map_err(|cause| StateError::Refused { what: "lock", path, cause })?;
        Ok(Turn { _file: file })
    }

    /// The names that have a directory here, in order.
    pub(super) fn names(&self) -> Vec<LabName> {
        let entries = std::fs::read_dir(self.0.path()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut names: Vec<LabName> = names.collect();
        names.sort();
        names
    }
}

/// Opens a file in a directory; not through a symbolic link, and not one that
/// commands in the lab inherit.
pub(super) fn file_in(directory: impl AsFd, name: &str, flags: OFlag) -> nix::Result<File> {
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map(File::from)
}

/// A path to a file in a directory that stays short and leads there whatever
/// happens to the directory's name.
pub(super) fn short_path(directory: impl AsFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd()))
}

pub(super) fn refused(what: &'static str, path: &Path) -> impl Fn(Errno) -> StateError {
    let path = path.to_owned();
    move |errno| StateError::Refused { what, path: path.clone(), cause: errno.into() }
}
