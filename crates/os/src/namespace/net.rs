//! An unnamed network namespace, which lives as long as something refers to it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigmaskHow, sigprocmask};

use crate::process;

/// A network namespace, held by a file descriptor.
#[derive(Debug, Clone)]
pub struct NetNs {
    fd: Arc<OwnedFd>,
}

impl NetNs {
    /// Creates a new, empty namespace (even its `lo` is down).
    ///
    /// # Errors
    /// EPERM without `CAP_SYS_ADMIN`.
    pub fn create() -> io::Result<Self> {
        // Network namespaces belong to threads, so a short-lived thread can create one without
        // affecting this one.
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::current()
        })
    }

    /// Opens the namespace of the calling thread.
    ///
    /// # Errors
    /// If there is no `/proc`.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Opens the namespace at `path`, such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: Arc::new(File::open(path)?.into()) })
    }

    /// Returns a command that will run in this namespace. Terminating signals reach it even if this
    /// process blocks them while waiting.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let namespace = Arc::clone(&self.fd);
        let mut command = Command::new(program);
        let endings = process::terminating_signals();
        let prepare = move || {
            sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&endings), None)?;
            Ok(setns(&*namespace, CloneFlags::CLONE_NEWNET)?)
        };
        // SAFETY: between fork and exec only sigprocmask(2) and setns(2) are
        // called, which are async-signal-safe, the latter on a descriptor that
        // the closure keeps open.
        unsafe { command.pre_exec(prepare) };
        command
    }

    /// Runs `f` in this namespace, in a separate thread. Sockets opened there stay in the namespace
    /// wherever they are used later.
    ///
    /// # Panics
    /// If `f` panics, or if the process has lost the right to enter its own namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        in_thread(|| {
            self.enter().expect("the process may enter a namespace it made");
            f()
        })
    }

    /// Moves the calling thread into this namespace, for good.
    ///
    /// # Errors
    /// EPERM without `CAP_SYS_ADMIN` over the namespace.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&*self.fd, CloneFlags::CLONE_NEWNET)?)
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(f).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
