//! Paths of control sockets.
//!
//! By default `hub.sock`, `terminal.sock` or `solo.sock` in the first usable private directory
//! ([`os::PrivateDirectories`]), or in the directory named by `$SKYHOP_RUN_DIR`. Other users cannot write
//! there.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use config::ControlPath;
use control::Role;
use os::{DirectoryError, PrivateDirectories, RUN_VARIABLE};

const ROLES: [Role; 3] = [Role::Hub, Role::Terminal, Role::Solo];

fn default_places() -> PrivateDirectories {
    PrivateDirectories::of_user(RUN_VARIABLE)
}

/// Directories for control sockets of this user, the preferred one first.
pub fn default_directories() -> Vec<PathBuf> {
    default_places().paths().map(PathBuf::from).collect()
}

/// Checks that a socket could be created in a default directory. Creates nothing.
pub(crate) fn check_default() -> Result<(), DirectoryError> {
    default_places().check()
}

/// Default path of a gateway's socket. Creates the directory.
pub(super) fn default_path(role: Role) -> Result<PathBuf, DirectoryError> {
    Ok(default_places().open_usable()?.path().join(socket_name(role)))
}

/// The path of a gateway's control socket with this configuration; [`None`] if it has none.
pub(crate) fn path_of(place: &ControlPath, role: Role) -> Option<PathBuf> {
    match place {
        ControlPath::None => None,
        ControlPath::At(path) => Some(path.clone()),
        ControlPath::Usual => default_path(role).ok(),
    }
}

/// The role of the gateway with this socket, if it has a default name.
pub(super) fn role_of(socket: &Path) -> Option<Role> {
    let name = socket.file_name()?.to_str()?;
    ROLES.into_iter().find(|role| socket_name(*role) == name)
}

fn socket_name(role: Role) -> String {
    format!("{}.sock", role.as_str())
}

/// The control sockets in the default directories, and in their subdirectories those with a default
/// name. A service that does not run as root has a subdirectory of its own there
/// (`RuntimeDirectory=skyhop/hub`), which belongs to the service's user.
pub(super) fn existing_sockets() -> Vec<PathBuf> {
    default_places()
        .open_existing()
        .iter()
        .flat_map(|directory| sockets_in(directory.path()))
        .collect()
}

/// Lists sockets below a directory that only its owner may write to, so that its subdirectories are
/// no trap.
fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sockets = Vec::new();
    let mut below = Vec::new();
    for entry in entries {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "sock") {
            sockets.push(path);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let sockets = ROLES.into_iter().map(|role| path.join(socket_name(role)));
            below.extend(sockets.filter(|socket| is_socket(socket)));
        }
    }
    sockets.sort();
    below.sort();
    sockets.append(&mut below);
    sockets
}

/// Returns `true` for a socket, but not through a symbolic link.
fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_of_services_are_found_one_level_below() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for below in ["hub", "ship-1", "lab", "deep/er"] {
            fs::create_dir_all(at(below)).unwrap();
        }
        let sockets = ["own.sock", "hub/hub.sock", "ship-1/terminal.sock"].map(at);
        for path in sockets.iter().chain(&[at("lab/x.sock"), at("deep/er/hub.sock")]) {
            UnixListener::bind(path).unwrap();
        }
        fs::write(at("lab/hub.sock"), "").unwrap();
        symlink(at("own.sock"), at("lab/solo.sock")).unwrap();
        symlink(at("hub"), at("link")).unwrap();
        assert_eq!(sockets_in(directory.path()), sockets);
        assert_eq!(sockets_in(&at("none")), Vec::<PathBuf>::new());
    }
}
