//! Pipes through which the kernel moves bytes from socket to socket without copying.
//!
//! A connection borrows a pipe while it holds bytes and returns it empty: idle connections hold
//! none, and active ones share a few.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};

use nix::Result;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::{pipe2, read, write};

/// Capacity of a pipe in bytes: the most that a connection holds for a slow reader outside the sockets'
/// buffers.
pub(crate) const CAPACITY: usize = 256 << 10;
/// Empty pipes kept per thread for reuse.
const SPARE: usize = 16;

thread_local! {
    static PIPES: RefCell<Vec<SplicePipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe borrowed from those of the thread.
pub(crate) struct SplicePipe {
    /// The end to read from.
    outlet: OwnedFd,
    /// The end to write to.
    inlet: OwnedFd,
}

impl SplicePipe {
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

    /// Moves received data of `socket` into the empty pipe. 0 means a FIN.
    ///
    /// # Errors
    /// EAGAIN without received data, or the socket's error.
    pub(crate) fn fill(&self, socket: impl AsFd) -> Result<usize> {
        splice(socket, None, &self.inlet, None, CAPACITY, flags())
    }

    /// Like [`Self::fill`], but copies a single byte.
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

    /// Moves at most `count` of the bytes in the pipe into `socket`.
    ///
    /// # Errors
    /// EAGAIN if the socket has no room, or the socket's error.
    pub(crate) fn empty(&self, socket: impl AsFd, count: usize) -> Result<usize> {
        splice(&self.outlet, None, socket, None, count, flags())
    }
}

/// Flags of all `splice` calls.
fn flags() -> SpliceFFlags {
    // Without SPLICE_F_MORE, which would delay a small message by 200 ms.
    SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use nix::errno::Errno;

    use super::*;
    use crate::testkit::payload;

    fn pair() -> [UnixStream; 2] {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        [near, far]
    }

    #[test]
    fn a_pipe_that_was_given_back_is_lent_again() {
        let numbers = |pipe: &SplicePipe| [&pipe.inlet, &pipe.outlet].map(AsRawFd::as_raw_fd);
        let pipe = SplicePipe::borrow().unwrap();
        let before = numbers(&pipe);
        pipe.give_back();
        assert_eq!(numbers(&SplicePipe::borrow().unwrap()), before);
    }

    #[test]
    fn no_more_pipes_are_kept_than_a_few() {
        let pipes: Vec<_> = (0..2 * SPARE).map(|_| SplicePipe::borrow().unwrap()).collect();
        pipes.into_iter().for_each(SplicePipe::give_back);
        assert_eq!(PIPES.with_borrow(Vec::len), SPARE);
    }

    #[test]
    fn bytes_pass_in_order_as_far_as_there_are_any() {
        let ([mut client, from], [mut server, to]) = (pair(), pair());
        let (pipe, data) = (SplicePipe::new().unwrap(), payload(7, 10_000));
        assert_eq!(pipe.fill(&from), Err(Errno::EAGAIN), "nothing has come");
        client.write_all(&data).unwrap();
        let mut filled = 0;
        while filled < data.len() {
            filled += pipe.fill(&from).unwrap();
        }
        // A reader that takes a little at a time.
        assert_eq!(pipe.empty(&to, 100), Ok(100));
        let mut left = filled - 100;
        while left > 0 {
            left -= pipe.empty(&to, left).unwrap();
        }
        assert_eq!(pipe.empty(&to, 1), Err(Errno::EAGAIN), "the pipe is empty");
        let mut received = vec![0; data.len()];
        server.read_exact(&mut received).unwrap();
        assert_eq!(received, data);
        drop(client);
        assert_eq!(pipe.fill(&from), Ok(0), "the end");
    }

    #[test]
    fn a_byte_is_copied_into_its_place_between_others() {
        let ([mut client, from], [mut server, to]) = (pair(), pair());
        let pipe = SplicePipe::new().unwrap();
        client.write_all(b"a").unwrap();
        assert_eq!(pipe.fill(&from), Ok(1));
        client.write_all(b"!b").unwrap();
        assert_eq!(pipe.copy_byte(&from), Ok(1));
        assert_eq!(pipe.fill(&from), Ok(1));
        let mut left = 3;
        while left > 0 {
            left -= pipe.empty(&to, left).unwrap();
        }
        let mut received = [0; 3];
        server.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"a!b");
        drop(client);
        assert_eq!(pipe.copy_byte(&from), Ok(0));
    }
}
