//! A packet socket, its address and its ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};

use super::ring::ReceiveRing;
use crate::socket::option;

/// The packets of a device that a packet socket receives, by direction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureDirection {
    /// Packets that the device receives.
    Incoming,
    /// Packets that it receives or sends.
    Both,
}

/// The layer at which a packet socket reads and writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketLayer {
    /// IP packets, without link-layer headers.
    Ip,
    /// Ethernet frames, with their headers.
    Ethernet,
}

impl SocketLayer {
    const fn socket_type(self) -> SockType {
        match self {
            Self::Ip => SockType::Datagram,
            Self::Ethernet => SockType::Raw,
        }
    }
}

/// Opens a packet socket with its ring in the calling thread's network namespace. Also returns the
/// index of the device.
pub(crate) fn open(
    device: &str,
    mtu: u16,
    ring: usize,
    hears: CaptureDirection,
    layer: SocketLayer,
) -> io::Result<(OwnedFd, ReceiveRing, u32)> {
    let socket = unbound(layer, hears, SockFlag::SOCK_CLOEXEC)?;
    // Makes the kernel take the stamp when the device receives the packet, not when it delivers it.
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    let ring = ReceiveRing::new(&socket, mtu, ring)?;
    let index = if_nametoindex(device)?;
    bind(&socket, &address(index, libc::ETH_P_ALL, [0; 6]))?;
    Ok((socket, ring, index))
}

/// A packet socket that receives nothing yet: a ring has to exist first.
pub(crate) fn unbound(
    layer: SocketLayer,
    hears: CaptureDirection,
    flags: SockFlag,
) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Packet, layer.socket_type(), flags, None)?;
    let ignore = i32::from(hears == CaptureDirection::Incoming);
    option::set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, ignore)?;
    Ok(socket)
}

/// Number of packets dropped since the last call because the socket's ring was full.
pub(super) fn dropped(socket: &OwnedFd) -> io::Result<u64> {
    // `struct tpacket_stats`: packets, drops.
    let mut stats = [0; 8];
    option::get(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut stats)?;
    let [.., a, b, c, d] = stats;
    Ok(u32::from_ne_bytes([a, b, c, d]).into())
}

/// Receives frames for hardware addresses that the device itself does not have.
pub(crate) fn enable_promiscuous_mode(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    option::set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
}

/// The address of a station on the device with this index.
pub(crate) fn address(index: u32, protocol: i32, station: [u8; 6]) -> libc::sockaddr_ll {
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

pub(crate) fn bind(socket: &OwnedFd, address: &libc::sockaddr_ll) -> io::Result<()> {
    let address = core::ptr::from_ref(address);
    let length = size_of::<libc::sockaddr_ll>();
    // SAFETY: the pointer and the length describe one address.
    let code = unsafe { libc::bind(socket.as_raw_fd(), address.cast(), length as libc::socklen_t) };
    Errno::result(code)?;
    Ok(())
}

/// Sends a packet to a station.
pub(crate) fn send_to(
    socket: impl AsFd,
    packet: &[u8],
    address: &libc::sockaddr_ll,
) -> io::Result<usize> {
    let data = packet.as_ptr().cast();
    let to = core::ptr::from_ref(address).cast();
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of::<libc::sockaddr_ll>();
    // SAFETY: the pointers and lengths describe the packet and the address, which the kernel only
    // reads.
    let sent = unsafe { libc::sendto(fd, data, packet.len(), 0, to, length as libc::socklen_t) };
    Ok(Errno::result(sent)? as usize)
}
