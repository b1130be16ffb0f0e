//! A handle to a process (pidfd_open(2)), which never refers to a later process of the same number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;

/// A process. Its descriptor is readable once the process has ended.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// Opens the process that has this number now; `None` if there is none.
    ///
    /// # Errors
    /// Those of pidfd_open(2).
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match Errno::result(fd) {
            // SAFETY: the descriptor is new and owned by nothing else.
            Ok(fd) => Ok(Some(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))),
            Err(Errno::ESRCH) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a signal (pidfd_send_signal(2)). `false` if the process has ended.
    ///
    /// # Errors
    /// `PermissionDenied` if it belongs to another user.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let fd = self.0.as_raw_fd();
        let none = core::ptr::null::<libc::siginfo_t>();
        // SAFETY: without a siginfo the kernel fills one in as for kill(2).
        let code =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal as i32, none, 0) };
        match Errno::result(code) {
            Ok(_) => Ok(true),
            Err(Errno::ESRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
