//! Pipes through which the kernel moves bytes from socket to socket without copying.
//!
//! A connection borrows a pipe while it holds bytes and returns it empty: idle connections hold
//! none, and active ones share a few.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};

use nix::Result;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::{pipe2, read, write};

/// Capacity of a pipe, in bytes: what a connection may hold for a slow reader besides the sockets'
/// buffers.
pub(crate) const CAPACITY: usize = 256 << 10;
/// Empty pipes kept per thread for reuse.
const SPARE: usize = 16;

thread_local! {
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A borrowed pipe.
pub(crate) struct Pipe {
    /// Read end.
    outlet: OwnedFd,
    inlet: OwnedFd,
}

impl Pipe {
    /// Borrows an empty pipe.
    ///
    /// # Errors
    /// If the process or the system has no descriptors left.
    pub(crate) fn borrow() -> Result<Self> {
        match PIPES.with_borrow_mut(Vec::pop) {
            Some(pipe) => Ok(pipe),
            None => Self::new(),
        }
    }

    fn new() -> Result<Self> {
        let (outlet, inlet) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
        // The kernel limits the pipe memory of a user; smaller pipes work too.
        let _ = fcntl(&inlet, FcntlArg::F_SETPIPE_SZ(CAPACITY as libc::c_int));
        Ok(Self { outlet, inlet })
    }

    /// Returns an empty pipe for reuse.
    pub(crate) fn give_back(self) {
        PIPES.with_borrow_mut(|pipes| {
            if pipes.len() < SPARE {
                pipes.push(self);
            }
        });
    }

    /// Moves what `socket` has received into the empty pipe; 0 means a FIN.
    ///
    /// # Errors
    /// EAGAIN if nothing has arrived, or the socket's error.
    pub(crate) fn fill(&self, socket: impl AsFd) -> Result<usize> {
        splice(socket, None, &self.inlet, None, CAPACITY, flags())
    }

    /// Like [`Self::fill`] for a single byte, which is copied.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub(crate) fn copy_byte(&self, socket: impl AsFd) -> Result<usize> {
        let mut byte = [0];
        match read(socket, &mut byte)? {
            0 => Ok(0),
            _ => write(&self.inlet, &byte),
        }
    }

    /// Moves at most `count` bytes, which are in the pipe, into `socket`.
    ///
    /// # Errors
    /// EAGAIN if the socket has no room, or the socket's error.
    pub(crate) fn empty(&self, socket: impl AsFd, count: usize) -> Result<usize> {
        splice(&self.outlet, None, socket, None, count, flags())
    }
}

/// Without SPLICE_F_MORE, which delays a small message by 200 ms.
fn flags() -> SpliceFFlags {
    SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK
}
