//! A network namespace without a name: it lives as long as somebody holds it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigmaskHow, sigprocmask};

use crate::supervise;

/// A network namespace, held by a file descriptor.
#[derive(Debug, Clone)]
pub struct NetNs {
    fd: Arc<OwnedFd>,
}

impl NetNs {
    /// Makes a new, empty one (even its `lo` is down).
    pub(crate) fn create() -> io::Result<Self> {
        // A thread's network namespace is its own, so a thread that ends at once
        // makes the namespace and leaves this one's alone.
        in_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::open(Path::new("/proc/thread-self/ns/net"))
        })
    }

    /// Takes hold of the one at `path`, such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: Arc::new(File::open(path)?.into()) })
    }

    /// A command that will run in this namespace. Signals that end things reach
    /// it, also where this process waits for them with the signals blocked.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let namespace = Arc::clone(&self.fd);
        let (mut command, endings) = (Command::new(program), supervise::endings());
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

    /// Runs `f` in this namespace, in a thread of its own. Sockets made there
    /// stay in the namespace wherever they are used later.
    ///
    /// # Panics
    /// When `f` does, and when the process has lost the right to enter its own
    /// namespace.
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

    /// The number of the descriptor, for `/proc/PID/fd/…`.
    pub(crate) fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
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
