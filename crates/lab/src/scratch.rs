//! A file system in memory that only the lab sees. It has no name on the machine, so
//! nobody can be there first, and it is gone with the lab, however that ends.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A directory that every system has; it is covered for a moment, in the lab's mount
/// namespace.
const WORKSHOP: &str = "/tmp";
/// Held while it is covered: a second file system would lie upon the first, and be what
/// both find.
static COVERED: Mutex<()> = Mutex::new(());

/// Mounts a new file system for the duration of `work`, which is handed its root.
/// What is then open or bound elsewhere lives on. Others who want one wait.
pub(crate) fn with<R>(work: impl FnOnce(&Path) -> io::Result<R>) -> io::Result<R> {
    let _alone = COVERED.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), WORKSHOP, Some("tmpfs"), flags, Some("mode=755"))?;
    let done = work(Path::new(WORKSHOP));
    umount2(WORKSHOP, MntFlags::MNT_DETACH)?;
    done
}

/// A private directory of one lab, for the sockets of its gateways.
#[derive(Debug)]
pub(crate) struct RunDirectory(File);

/// Its name in the file system: what is opened is its parent, so that the path does not
/// end in a symbolic link of `/proc`.
const NAME: &str = "skyhop";

impl RunDirectory {
    /// Makes one; the process must have entered namespaces of its own.
    pub(crate) fn new() -> io::Result<Self> {
        with(|root| {
            DirBuilder::new().mode(0o700).create(root.join(NAME))?;
            File::open(root).map(Self)
        })
    }

    /// Where every process in the lab finds it while it lives.
    pub(crate) fn path(&self) -> PathBuf {
        own_descriptor(self.0.as_raw_fd()).join(NAME)
    }
}

/// Where this process's descriptor is found by the others in the lab.
pub(crate) fn own_descriptor(descriptor: i32) -> PathBuf {
    // Not getpid(): /proc may belong to another PID namespace than this process.
    let process = fs::read_link("/proc/self").unwrap_or_else(|_| PathBuf::from("self"));
    Path::new("/proc").join(process).join("fd").join(descriptor.to_string())
}
