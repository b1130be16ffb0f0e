//! Descriptors that the calling thread's tokio runtime watches.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// A non-blocking descriptor, watched until dropped.
#[derive(Debug)]
pub struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Registers the descriptor, which must be non-blocking, for reading.
    ///
    /// # Errors
    /// If it cannot be watched (epoll_ctl(2)), as a regular file.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` is open and the same as long as it lives; it is never handed out
        // mutably.
        Ok(Self(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?))
    }

    /// Waits until the descriptor may be readable. Cancel-safe.
    ///
    /// # Errors
    /// While the runtime shuts down.
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.readable().await
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
