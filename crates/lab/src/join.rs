//! Enters a running lab from outside.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{fstat, stat};

use crate::enter::{EnterError, expect_one_thread, refused};
use crate::environment::PROXIES;
use crate::supervise;

/// A handle to enter a host of a lab.
#[derive(Debug)]
pub struct Entry {
    pub(crate) user: OwnedFd,
    pub(crate) mount: OwnedFd,
    pub(crate) pid: OwnedFd,
    pub(crate) net: OwnedFd,
    pub(crate) variables: Vec<(String, String)>,
}

impl Entry {
    /// Moves the process there for good. [`Self::run`] then runs commands, which end with the lab.
    ///
    /// # Errors
    /// If there is a second thread, or the kernel refuses a namespace.
    pub fn enter(&self) -> Result<(), EnterError> {
        expect_one_thread()?;
        let directory = std::env::current_dir();
        // The kernel refuses to re-enter the current user namespace.
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

    /// Runs a command there and waits for it. Returns its exit code, or 128 + the signal that ended
    /// it. Terminating signals are passed on to it, and it ends when this process does.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&self, command: &mut Command) -> io::Result<i32> {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for proxy in PROXIES {
            command.env_remove(proxy);
        }
        supervise::attend(command)
    }
}

fn set(namespace: &OwnedFd, kind: CloneFlags) -> Result<(), EnterError> {
    setns(namespace, kind).map_err(refused("enter the lab"))
}

/// Whether this process is in the namespace already.
fn is_own(namespace: impl AsFd, own: &str) -> bool {
    let there = fstat(namespace.as_fd()).map(|stat| (stat.st_dev, stat.st_ino));
    let here: Result<_, Errno> = stat(Path::new(own)).map(|stat| (stat.st_dev, stat.st_ino));
    there.is_ok() && there == here
}
