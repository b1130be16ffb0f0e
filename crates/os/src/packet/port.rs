//! One end of a link: a packet socket on a device, many packets per system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::ring::{ReceiveRing, RingFrame};
use super::socket::{CaptureDirection, SocketLayer, address, dropped, open};

/// Maximum number of packets per send call.
const BATCH: usize = 64;

/// A packet socket that reads and writes IP packets without link-layer headers.
pub struct PacketPort {
    socket: OwnedFd,
    ring: ReceiveRing,
    to4: libc::sockaddr_ll,
    to6: libc::sockaddr_ll,
}

impl PacketPort {
    /// Opens the port on `device` in the calling thread's network namespace. Packets are sent to
    /// the hardware address `peer`; received ones wait in a ring of `ring` bytes.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`; if there is no such device, or no memory.
    pub fn open(device: &str, peer: [u8; 6], mtu: u16, ring: usize) -> io::Result<Self> {
        let (socket, ring, index) =
            open(device, mtu, ring, CaptureDirection::Incoming, SocketLayer::Ip)?;
        let to4 = address(index, libc::ETH_P_IP, peer);
        let to6 = address(index, libc::ETH_P_IPV6, peer);
        Ok(Self { socket, ring, to4, to6 })
    }

    /// Passes the next received packet to `take`; `false` if there is none.
    pub fn receive(&mut self, take: impl FnOnce(RingFrame<'_>)) -> bool {
        self.ring.take(take)
    }

    /// Sends IP packets in order. Returns the number that the kernel refused.
    pub fn send(&self, packets: &[Vec<u8>]) -> u64 {
        packets.chunks(BATCH).map(|batch| self.send_batch(batch)).sum()
    }

    /// Number of packets dropped since the last call because the ring was full.
    ///
    /// # Errors
    /// Those of getsockopt(2).
    pub fn missed(&self) -> io::Result<u64> {
        dropped(&self.socket)
    }

    fn send_batch(&self, packets: &[Vec<u8>]) -> u64 {
        let mut parts = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; BATCH];
        for (part, packet) in parts.iter_mut().zip(packets) {
            *part = libc::iovec { iov_base: packet.as_ptr() as *mut _, iov_len: packet.len() };
        }
        // SAFETY: all zeros is a valid, empty message.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { core::mem::zeroed() };
        for ((message, part), packet) in messages.iter_mut().zip(&mut parts).zip(packets) {
            let to = if is_ipv6(packet) { &self.to6 } else { &self.to4 };
            message.msg_hdr.msg_name = core::ptr::from_ref(to) as *mut _;
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        let mut sent = 0;
        let mut refused = 0;
        while sent < packets.len() {
            match self.send_messages(&mut messages[sent..packets.len()]) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                // The first of the remaining packets was refused: skip it.
                Err(_) => (sent, refused) = (sent + 1, refused + 1),
            }
        }
        refused
    }

    fn send_messages(&self, messages: &mut [libc::mmsghdr]) -> nix::Result<usize> {
        let fd = self.socket.as_raw_fd();
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: every message points to an address and a packet that outlive
        // the call, and the kernel only reads them.
        let count =
            unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), messages.len() as u32, flags) };
        Errno::result(count).map(|count| count as usize)
    }
}

/// Readable when packets have been received.
impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns true if the packet is IPv4 or IPv6; the hop carries nothing else.
pub fn is_ip(packet: &[u8]) -> bool {
    is_ipv6(packet) || packet.first().is_some_and(|first| first >> 4 == 4)
}

pub(crate) fn is_ipv6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}
