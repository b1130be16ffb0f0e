//! Pipes through which the kernel moves bytes from socket to socket without
//! copying them.
//!
//! A connection borrows one while bytes are in it and gives it back empty: idle
//! connections hold none, and those that carry something share a few.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};

use nix::Result;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::{pipe2, read, write};

/// The most bytes in a pipe: what a connection holds for a slow reader besides
/// the sockets' buffers.
pub(crate) const CAPACITY: usize = 256 << 10;
/// How many empty pipes each thread keeps for whoever comes next.
const SPARE: usize = 16;

thread_local! {
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe that somebody has borrowed.
pub(crate) struct Pipe {
    /// Where bytes come out.
    outlet: OwnedFd,
    inlet: OwnedFd,
}

impl Pipe {
    /// An empty pipe.
    ///
    /// # Errors
    /// When the process or the system has no descriptors left.
    pub(crate) fn borrow() -> Result<Self> {
        match PIPES.with_borrow_mut(Vec::pop) {
            Some(pipe) => Ok(pipe),
            None => Self::new(),
        }
    }

    fn new() -> Result<Self> {
        let (outlet, inlet) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
        // A user with many pipes gets short ones, which do as well.
        let _ = fcntl(&inlet, FcntlArg::F_SETPIPE_SZ(CAPACITY as libc::c_int));
        Ok(Self { outlet, inlet })
    }

    /// Returns a pipe that is empty again.
    pub(crate) fn give_back(self) {
        PIPES.with_borrow_mut(|pipes| {
            if pipes.len() < SPARE {
                pipes.push(self);
            }
        });
    }

    /// Moves what `socket` has received into the empty pipe; 0 is its FIN.
    ///
    /// # Errors
    /// EAGAIN if nothing is there, and the socket's own.
    pub(crate) fn fill(&self, socket: impl AsFd) -> Result<usize> {
        splice(socket, None, &self.inlet, None, CAPACITY, flags())
    }

    /// Moves one byte as [`Self::fill`] does, but copies it.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn copy_byte(&self, socket: impl AsFd) -> Result<usize> {
        let mut byte = [0];
        match read(socket, &mut byte)? {
            0 => Ok(0),
            _ => write(&self.inlet, &byte),
        }
    }

    /// Moves `count` bytes, which are in the pipe, or fewer into `socket`.
    ///
    /// # Errors
    /// EAGAIN if the socket has no room, and its own.
    pub(crate) fn empty(&self, socket: impl AsFd, count: usize) -> Result<usize> {
        splice(&self.outlet, None, socket, None, count, flags())
    }
}

/// Never SPLICE_F_MORE: it holds a small message back for 200 ms.
fn flags() -> SpliceFFlags {
    SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK
}
