//! Where control sockets are.
//!
//! Unless the configuration says otherwise: `hub.sock`, `terminal.sock` or `solo.sock` in
//! `/run/skyhop`, in `$XDG_RUNTIME_DIR/skyhop`, or in `/tmp/skyhop-UID`, the first
//! that can be had. Nobody else may write there.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

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

/// The directories that control sockets of this user may be in, the best one
/// first.
pub fn default_directories() -> Vec<PathBuf> {
    let user = geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let first = if user.is_root() {
        Some(PathBuf::from("/run/skyhop"))
    } else {
        runtime.filter(|path| path.is_absolute()).map(|path| path.join("skyhop"))
    };
    first.into_iter().chain([PathBuf::from(format!("/tmp/skyhop-{user}"))]).collect()
}

/// The usual place for the socket of a gateway; its directory is made.
pub(super) fn usual(role: Role) -> io::Result<PathBuf> {
    Ok(usual_directory()?.join(format!("{}.sock", role.as_str())))
}

/// The first of the [`default_directories`] that can be had; it is made if it is
/// not there.
///
/// # Errors
/// When none can be had, with what is wrong with the last.
pub fn usual_directory() -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in default_directories() {
        match own_directory(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes the directory, or sees that nobody else may write in it.
fn own_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_own(&fs::symlink_metadata(path)?) {
        return Ok(());
    }
    let problem = format!("{} is somebody else's to write in", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

fn is_own(metadata: &Metadata) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    let own = metadata.uid() == geteuid().as_raw();
    metadata.is_dir() && own && metadata.mode() & OTHERS_WRITE == 0
}

/// The control sockets in the usual places.
pub(super) fn present() -> Vec<PathBuf> {
    let in_directory = |directory: PathBuf| {
        let own = fs::symlink_metadata(&directory).is_ok_and(|metadata| is_own(&metadata));
        let entries = own.then(|| fs::read_dir(&directory).ok()).flatten();
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut sockets: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
        sockets.sort();
        sockets
    };
    default_directories().into_iter().flat_map(in_directory).collect()
}
