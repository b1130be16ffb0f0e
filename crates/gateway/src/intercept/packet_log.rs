//! Packets that the rules of our table log to the gateway.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::read;
use os::WatchedDescriptor;
use os::netlink::netfilter::logged_packets;

/// Receives the packets of a log group.
pub(super) struct PacketLog {
    socket: WatchedDescriptor,
    buffer: Vec<u8>,
}

impl PacketLog {
    /// Reads the descriptor of a group ([`os::netlink::netfilter::NetfilterSocket::listen_to_log`]), whose
    /// messages together are at most `longest` bytes long.
    ///
    /// # Errors
    /// If the descriptor cannot be watched.
    pub(super) fn new(group: OwnedFd, longest: usize) -> io::Result<Self> {
        Ok(Self { socket: WatchedDescriptor::new(group)?, buffer: vec![0; longest] })
    }

    /// Waits for the next packets, in order of time, and returns what `parse` makes of them; `None` if the
    /// kernel has dropped some. Cancel-safe.
    pub(super) async fn next<T>(&mut self, parse: fn(&[u8]) -> Option<T>) -> Option<Vec<T>> {
        loop {
            // Fails only while the runtime shuts down.
            let Ok(mut ready) = self.socket.readable().await else { return pending().await };
            match ready.try_io(|fd| Ok(read(fd.get_ref(), &mut self.buffer)?)) {
                Ok(Ok(length)) => {
                    return Some(
                        logged_packets(&self.buffer[..length]).filter_map(parse).collect(),
                    );
                }
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {
                    return None;
                }
                _ => {}
            }
        }
    }
}
