//! A veth pair as a substitute for a TUN device, if `/dev/net/tun` is not accessible.
//!
//! The near end is the device. The far end is in a network namespace that only our packet socket
//! keeps alive, so the pair goes away with the socket, however the process ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{SockFlag, SockaddrStorage, getsockname};
use units::ByteCount;

use super::offload;
use crate::namespace::NetNs;
use crate::netlink::{RouteSocket, VethEnd};
use crate::packet::{CaptureDirection, SocketLayer, address, bind, is_ipv6, send_to, unbound};
use crate::socket::{BufferKind, set_buffer};

const FAR: &str = "far";
/// Locally administered hardware address. It need not be unique: the pair has no other stations.
const NEAR_STATION: [u8; 6] = [0x02, 0x73, 0x6b, 0x79, 0x00, 0x01];
/// Size of the kernel's receive buffer, for the time in which the process is busy.
const KERNEL_BUFFER: ByteCount = ByteCount::new(4 << 20);

/// The kernel removes namespaces asynchronously: the device of a killed process may persist for a
/// moment.
const ATTEMPTS: u32 = 40;
const INTERVAL: Duration = Duration::from_millis(50);

/// Address of the near end as seen from the far end: the far device's index.
#[derive(Debug, Clone, Copy)]
pub struct NearEnd(u32);

/// Creates the device `name`, which must not exist, in the calling thread's network namespace; it
/// is still down. Returns a non-blocking packet socket on the far end: the IP packets that the
/// kernel sends on the device can be read from it.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN and CAP_SYS_ADMIN; `AlreadyExists`.
pub fn open(name: &str) -> io::Result<(OwnedFd, NearEnd)> {
    let here = NetNs::current()?;
    let far = NetNs::create()?;
    let made = far.run(|| {
        add_pair(name, &here, &far)?;
        RouteSocket::open()?.bring_up(FAR, Some(u16::MAX), false)?;
        listen()
    })?;
    // The near end then delivers the packets that a wire would carry: no segments of 64 KB, and no
    // checksums left to the device.
    offload::switch_off(name)?;
    Ok(made)
}

fn add_pair(name: &str, here: &NetNs, far: &NetNs) -> io::Result<()> {
    let mut kernel = RouteSocket::open()?;
    let near = VethEnd { netns: here.as_fd(), name, station: Some(NEAR_STATION) };
    let far = VethEnd { netns: far.as_fd(), name: FAR, station: None };
    for _ in 1..ATTEMPTS {
        match kernel.add_veth([&far, &near]) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => thread::sleep(INTERVAL),
            added => return added,
        }
    }
    kernel.add_veth([&far, &near])
}

fn listen() -> io::Result<(OwnedFd, NearEnd)> {
    let index = if_nametoindex(FAR)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = unbound(SocketLayer::Ip, CaptureDirection::Incoming, flags)?;
    // Without the privilege for it the buffer is smaller, which works too.
    let _ = set_buffer(&socket, BufferKind::Receive, KERNEL_BUFFER);
    bind(&socket, &address(index, libc::ETH_P_ALL, NEAR_STATION))?;
    Ok((socket, NearEnd(index)))
}

/// Returns the near end of the pair with this packet socket, which another process has opened.
///
/// # Errors
/// Those of getsockname(2); `InvalidInput` if it is not a packet socket.
pub fn near_of(socket: &OwnedFd) -> io::Result<NearEnd> {
    let any: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let far = any.as_link_addr().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(NearEnd(far.ifindex() as u32))
}

impl NearEnd {
    /// Sends an IP packet to the near end, from the packet socket at the far end.
    ///
    /// # Errors
    /// If the device is down, or its queue is full.
    pub fn send(self, socket: impl AsFd, packet: &[u8]) -> io::Result<usize> {
        let protocol = if is_ipv6(packet) { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
        send_to(socket, packet, &address(self.0, protocol, NEAR_STATION))
    }
}
