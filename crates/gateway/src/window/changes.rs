//! Watches the machine's routes and links.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use units::Instant;

use crate::clock;

/// Multicast groups (`linux/rtnetlink.h`): links, IPv4 routes, IPv6 routes.
const GROUPS: [u32; 3] = [1, 7, 11];
/// Delay before a report, because changes come in bursts.
const PAUSE: Duration = Duration::from_millis(100);

/// A netlink socket that receives changes.
pub(crate) struct Changes {
    socket: AsyncFd<Told>,
    /// When pending changes will be reported.
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

    /// Waits until there have been changes, plus a short delay. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                () = clock::sleep_until(self.due) => {
                    self.due = None;
                    return;
                }
                ready = self.socket.readable() => {
                    // Fails only while the runtime shuts down.
                    let Ok(mut ready) = ready else { return std::future::pending().await };
                    // ENOBUFS means that changes were lost, which is a change too.
                    while ready.try_io(|told| told.get_ref().0.recv_from_full()).is_ok() {}
                    self.due.get_or_insert_with(|| clock::now() + PAUSE);
                }
            }
        }
    }
}
