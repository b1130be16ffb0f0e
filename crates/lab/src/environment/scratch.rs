//! An in-memory file system visible only in the lab. It has no path on the host, so no other user can
//! tamper with it, and it disappears with the lab, however that ends.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A directory that every system has. It is mounted over briefly, in the lab's mount namespace.
const WORKSHOP: &str = "/tmp";
/// Held while the directory is mounted over: a second file system would cover the first, and both
/// users would find the second.
static COVERED: Mutex<()> = Mutex::new(());

/// Mounts a new file system while `work` runs, and passes its root to it. Whatever is then open or
/// bind-mounted elsewhere survives. Only one can be mounted at a time; others wait.
pub(crate) fn with_file_system<R>(work: impl FnOnce(&Path) -> io::Result<R>) -> io::Result<R> {
    let _alone = COVERED.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), WORKSHOP, Some("tmpfs"), flags, Some("mode=755"))?;
    let done = work(Path::new(WORKSHOP));
    umount2(WORKSHOP, MntFlags::MNT_DETACH)?;
    done
}

/// A private directory of one lab for the sockets of its gateways.
#[derive(Debug)]
pub(crate) struct RunDirectory(File);

/// Name of the directory in the file system. The parent is what is kept open, so that the path does
/// not end in a symbolic link of `/proc`.
const NAME: &str = "skyhop";

impl RunDirectory {
    /// Creates the directory. The process must have entered its own namespaces.
    pub(crate) fn new() -> io::Result<Self> {
        with_file_system(|root| {
            DirBuilder::new().mode(0o700).create(root.join(NAME))?;
            File::open(root).map(Self)
        })
    }

    /// Returns the path at which every process in the lab finds the directory.
    pub(crate) fn path(&self) -> PathBuf {
        own_descriptor(&self.0).join(NAME)
    }
}

/// Returns the path at which others in the lab find this process's descriptor.
pub(crate) fn own_descriptor(descriptor: impl AsFd) -> PathBuf {
    // Not getpid(): /proc may belong to a different PID namespace than this process.
    let process = fs::read_link("/proc/self").unwrap_or_else(|_| PathBuf::from("self"));
    let number = descriptor.as_fd().as_raw_fd();
    Path::new("/proc").join(process).join("fd").join(number.to_string())
}
