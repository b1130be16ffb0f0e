//! Paths of control sockets.
//!
//! By default `hub.sock`, `terminal.sock` or `solo.sock` in the first usable private directory
//! ([`os::Places`]), or in the directory named by `$SKYHOP_RUN_DIR`. Other users cannot write
//! there.

use std::fs;
use std::path::PathBuf;

use os::{PlaceError, Places, PrivateDirectory, RUN_VARIABLE};

use crate::operate::status::Role;

fn places() -> Places {
    Places::of_user(RUN_VARIABLE)
}

/// Directories for control sockets of this user, the preferred one first.
pub fn default_directories() -> Vec<PathBuf> {
    places().paths().map(PathBuf::from).collect()
}

/// Checks whether a socket could be created in a default directory. Creates nothing.
pub(crate) fn check_usual() -> Result<(), PlaceError> {
    places().check()
}

/// Default path of a gateway's socket. Creates the directory.
pub(super) fn usual(role: Role) -> Result<PathBuf, PlaceError> {
    Ok(places().usable()?.path().join(format!("{}.sock", role.as_str())))
}

/// The control sockets in the default directories.
pub(super) fn present() -> Vec<PathBuf> {
    let in_directory = |directory: PrivateDirectory| {
        let entries = fs::read_dir(directory.path()).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let mut sockets: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
        sockets.sort();
        sockets
    };
    places().present().into_iter().flat_map(in_directory).collect()
}
