//! Namespaces (namespaces(7)): creating and entering them, running commands in them.

mod enter;
mod net;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;

pub use enter::{EnterError, enter, enter_user, expect_one_thread};
pub use net::NetNs;

/// The namespaces that a process can move to: those of a process that [entered](enter()) its own,
/// with one of its network namespaces.
#[derive(Debug)]
pub struct Namespaces {
    user: OwnedFd,
    mount: OwnedFd,
    pid: OwnedFd,
    net: OwnedFd,
}

impl Namespaces {
    /// Number of descriptors that refer to the namespaces.
    pub const COUNT: usize = 4;

    /// Opens this process's namespaces, with `net` as the network namespace.
    ///
    /// # Errors
    /// If there is no `/proc`.
    pub fn own(net: &NetNs) -> io::Result<Self> {
        let open = |kind| File::open(format!("/proc/self/ns/{kind}")).map(OwnedFd::from);
        let net = net.as_fd().try_clone_to_owned()?;
        Ok(Self { user: open("user")?, mount: open("mnt")?, pid: open("pid")?, net })
    }

    /// Returns the descriptors, in the order that [`Self::from`] takes them.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; Self::COUNT] {
        [&self.user, &self.mount, &self.pid, &self.net].map(AsFd::as_fd)
    }

    /// Moves this process into the namespaces for good. Only its later children are in the PID
    /// namespace.
    ///
    /// # Errors
    /// If there is a second thread, or the kernel refuses a namespace.
    pub fn enter(&self) -> Result<(), EnterError> {
        expect_one_thread()?;
        let directory = std::env::current_dir();
        let set = |namespace: &OwnedFd, kind| {
            setns(namespace, kind).map_err(EnterError::refused("enter the lab"))
        };
        // The user namespace comes first, as it gives the right to enter the others. The kernel
        // refuses to re-enter the current one.
        if !is_own(&self.user, "/proc/self/ns/user") {
            set(&self.user, CloneFlags::CLONE_NEWUSER)?;
        }
        set(&self.pid, CloneFlags::CLONE_NEWPID)?;
        set(&self.net, CloneFlags::CLONE_NEWNET)?;
        set(&self.mount, CloneFlags::CLONE_NEWNS)?;
        // Entering a mount namespace changes the working directory to its root.
        if let Ok(directory) = directory {
            let _ = std::env::set_current_dir(directory);
        }
        Ok(())
    }
}

impl From<[OwnedFd; Self::COUNT]> for Namespaces {
    fn from([user, mount, pid, net]: [OwnedFd; Self::COUNT]) -> Self {
        Self { user, mount, pid, net }
    }
}

/// Returns true if this process is in the namespace already.
fn is_own(namespace: &OwnedFd, own: &str) -> bool {
    let identity = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    let here = File::open(own).ok().and_then(|own| identity(own.as_fd()));
    here.is_some() && identity(namespace.as_fd()) == here
}
