//! Descriptors that the calling thread's tokio runtime watches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::unistd::read;
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// The removal of a device is reported as an error only, without data to read (tun_chr_poll,
/// packet_poll).
const READABLE_OR_ERROR: Interest = Interest::READABLE.add(Interest::ERROR);

/// A non-blocking descriptor, watched until dropped.
#[derive(Debug)]
pub struct WatchedDescriptor(AsyncFd<OwnedFd>);

impl WatchedDescriptor {
    /// Registers the descriptor, which must be non-blocking, for reading.
    ///
    /// # Errors
    /// If it cannot be watched (epoll_ctl(2)), such as a regular file.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` is open and the same as long as it lives; it is never handed out
        // mutably.
        Ok(Self(unsafe { AsyncFd::register_with_interest(fd, READABLE_OR_ERROR) }?))
    }

    /// Waits until reading may return data or an error. Cancel-safe.
    ///
    /// # Errors
    /// While the runtime shuts down.
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.ready(READABLE_OR_ERROR).await
    }

    /// Waits until a netlink socket has messages, and discards them all. Cancel-safe.
    ///
    /// # Errors
    /// While the runtime shuts down.
    pub async fn discard(&self) -> io::Result<()> {
        let mut ready = self.readable().await?;
        // ENOBUFS means that messages were lost, after which there may be more.
        while ready.try_io(|fd| Ok(read(fd.get_ref(), &mut [0; 64])?)).is_ok() {}
        Ok(())
    }
}

impl AsFd for WatchedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
