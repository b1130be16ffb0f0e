//! Where control sockets are.
//!
//! Unless the configuration says otherwise: `hub.sock`, `terminal.sock` or `solo.sock` in
//! the first private directory that can be had ([`os::Places`]), or in the one that
//! `$SKYHOP_RUN_DIR` names. Nobody else may write there.

use std::fs;
use std::path::PathBuf;

use os::{PlaceError, Places, PrivateDirectory, RUN_VARIABLE};

use crate::status::Role;

/// What the configuration says of the control socket. Key `control`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ControlPath {
    /// The usual place, if it is free.
    #[default]
    Usual,
    /// Here, or the gateway does not start.
    At(PathBuf),
    /// There is none.
    None,
}

fn places() -> Places {
    Places::of_user(RUN_VARIABLE)
}

/// The directories that control sockets of this user may be in, the best one
/// first.
pub fn default_directories() -> Vec<PathBuf> {
    places().paths().map(PathBuf::from).collect()
}

/// Sees whether there can be a socket in a usual place; makes nothing.
pub(crate) fn check_usual() -> Result<(), PlaceError> {
    places().check()
}

/// The usual place for the socket of a gateway; its directory is made.
pub(super) fn usual(role: Role) -> Result<PathBuf, PlaceError> {
    Ok(places().usable()?.path().join(format!("{}.sock", role.as_str())))
}

/// The control sockets in the usual places.
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
