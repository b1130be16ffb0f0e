//! Tells when the machine's routes or links have changed.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// Multicast groups (`linux/rtnetlink.h`): links, routes of IPv4 and of IPv6.
const GROUPS: [u32; 3] = [1, 7, 11];
/// Changes come in swarms.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket to which the kernel tells changes.
pub(crate) struct Changes {
    socket: AsyncFd<Told>,
    /// There have been some: they are reported then.
    due: Option<Instant>,
}

struct Told(Socket);

impl AsRawFd for Told {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Changes {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        // SAFETY: the descriptor is open, its owner goes into the AsyncFd and is
        // neither replaced nor closed there.
        let socket = unsafe { AsyncFd::register_with_interest(Told(socket), Interest::READABLE) }?;
        Ok(Self { socket, due: None })
    }

    /// Waits until there have been changes, and a moment more. May be cancelled
    /// without losing any.
    pub(crate) async fn next(&mut self) {
        loop {
            let due = self.due.unwrap_or_else(Instant::now);
            tokio::select! {
                () = sleep_until(due), if self.due.is_some() => {
                    self.due = None;
                    return;
                }
                ready = self.socket.readable() => {
                    // It fails only while the runtime ends.
                    let Ok(mut ready) = ready else { return std::future::pending().await };
                    // ENOBUFS, some were lost, is a change too.
                    while ready.try_io(|told| told.get_ref().0.recv_from_full()).is_ok() {}
                    self.due.get_or_insert_with(|| Instant::now() + PAUSE);
                }
            }
        }
    }
}
