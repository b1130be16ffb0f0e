//! One end of the satellite hop: a packet socket on a device in `sky`.

use core::mem::size_of;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};

use crate::ring::{Frame, Ring};

/// Maximum number of packets per send call.
const BATCH: usize = 64;

/// A packet socket that reads and writes IP packets without link-layer headers.
pub struct Port {
    socket: OwnedFd,
    ring: Ring,
    to4: libc::sockaddr_ll,
    to6: libc::sockaddr_ll,
}

impl Port {
    /// Opens the port on `device` in the calling thread's network namespace. Packets are sent to
    /// the hardware address `peer`; received ones wait in a ring of `ring` bytes.
    pub fn open(device: &str, peer: [u8; 6], mtu: u16, ring: usize) -> io::Result<Self> {
        let (socket, ring, index) = open(device, mtu, ring, Hears::Incoming, Layer::Ip)?;
        let to4 = address(index, libc::ETH_P_IP, peer);
        let to6 = address(index, libc::ETH_P_IPV6, peer);
        Ok(Self { socket, ring, to4, to6 })
    }

    /// Passes the next received packet to `take`; `false` if there is none.
    pub fn receive(&mut self, take: impl FnOnce(Frame<'_>)) -> bool {
        self.ring.take(take)
    }

    /// Sends IP packets in order. Returns the number that the kernel refused.
    pub fn send(&self, packets: &[Vec<u8>]) -> u64 {
        packets.chunks(BATCH).map(|batch| self.send_batch(batch)).sum()
    }

    /// Number of packets dropped since the last call because the ring was full.
    pub fn missed(&self) -> nix::Result<u64> {
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
        let (mut sent, mut refused) = (0, 0);
        while sent < packets.len() {
            match self.send_messages(&mut messages[sent..packets.len()]) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                Err(_) => (sent, refused) = (sent + 1, refused + 1),
            }
        }
        refused
    }

    fn send_messages(&self, messages: &mut [libc::mmsghdr]) -> nix::Result<usize> {
        let (fd, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: every message points to an address and a packet that outlive
        // the call, and the kernel only reads them.
        let count =
            unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), messages.len() as u32, flags) };
        Errno::result(count).map(|count| count as usize)
    }
}

/// Readable when packets have been received.
impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Which packets of a device a packet socket receives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hears {
    /// Those the device receives.
    Incoming,
    /// Those it sends as well.
    Both,
}

/// What a packet socket reads and writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// IP packets.
    Ip,
    /// Ethernet frames.
    Ethernet,
}

impl Layer {
    const fn socket_type(self) -> i32 {
        match self {
            Self::Ip => libc::SOCK_DGRAM,
            Self::Ethernet => libc::SOCK_RAW,
        }
    }
}

/// Opens a packet socket with its ring in the calling thread's network namespace. Also returns the
/// index of the device.
pub fn open(
    device: &str,
    mtu: u16,
    ring: usize,
    hears: Hears,
    layer: Layer,
) -> io::Result<(OwnedFd, Ring, u32)> {
    // Protocol 0 receives nothing yet, because the ring has to exist first.
    let kind = layer.socket_type() | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are involved.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    Errno::result(fd)?;
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let ignore = i32::from(hears == Hears::Incoming);
    set_option(&socket, libc::PACKET_IGNORE_OUTGOING, &ignore)?;
    // Makes the kernel take the stamp when the device receives the packet, not when it delivers it.
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    let ring = Ring::new(&socket, mtu, ring)?;
    let index = if_nametoindex(device)?;
    bind(&socket, &address(index, libc::ETH_P_ALL, [0; 6]))?;
    Ok((socket, ring, index))
}

/// Number of packets dropped since the last call because the socket's ring was full.
pub fn dropped(socket: &OwnedFd) -> nix::Result<u64> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the buffer and its length belong together.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut length,
        )
    };
    Errno::result(code)?;
    Ok(stats.tp_drops.into())
}

/// Whether the packet is IPv4 or IPv6; the hop carries nothing else.
pub fn is_ip(packet: &[u8]) -> bool {
    is_ipv6(packet) || packet.first().is_some_and(|first| first >> 4 == 4)
}

fn is_ipv6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// Sets an option of a packet socket.
pub fn set_option<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    let (value, length) = (core::ptr::from_ref(value), size_of::<T>() as libc::socklen_t);
    // SAFETY: the pointer and the length describe one `T`.
    let code = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value.cast(), length)
    };
    Errno::result(code)?;
    Ok(())
}

fn address(index: u32, protocol: i32, station: [u8; 6]) -> libc::sockaddr_ll {
    let mut sll_addr = [0; 8];
    sll_addr[..6].copy_from_slice(&station);
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr,
    }
}

fn bind(socket: &OwnedFd, address: &libc::sockaddr_ll) -> io::Result<()> {
    let (address, length) = (core::ptr::from_ref(address), size_of::<libc::sockaddr_ll>());
    // SAFETY: the pointer and the length describe one address.
    let code = unsafe { libc::bind(socket.as_raw_fd(), address.cast(), length as libc::socklen_t) };
    Errno::result(code)?;
    Ok(())
}
