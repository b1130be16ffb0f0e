//! A veth pair as a substitute for a TUN device, if `/dev/net/tun` is not accessible.
//!
//! The near end is the tunnel's device. The far end is in a network namespace that only our packet
//! socket keeps alive, so the pair goes away with the socket, however the process ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};

use super::link;
use crate::routing::Kernel;

const FAR: &str = "far";
/// Locally administered hardware addresses; the pair has no other stations.
const NEAR_STATION: [u8; 6] = [0x02, 0x73, 0x6b, 0x79, 0x00, 0x01];
/// Socket buffer, in bytes: what the kernel holds while we are busy.
const KERNEL_BUFFER: libc::c_int = 4 << 20;

/// The kernel removes namespaces asynchronously: the device of a killed gateway may persist for a
/// moment.
const ATTEMPTS: u32 = 40;
const INTERVAL: Duration = Duration::from_millis(50);

/// Address of the near end as seen from the far end: the far device's index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Near(libc::c_int);

/// Creates the device `name`, which must not exist, in the calling thread's network namespace.
/// Returns a packet socket on the far end.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN and CAP_SYS_ADMIN; `AlreadyExists`.
pub(super) fn open(name: &str) -> io::Result<(OwnedFd, Near)> {
    let here = File::open("/proc/thread-self/ns/net")?;
    let attempt = || {
        thread::scope(|scope| {
            let made = scope.spawn(|| make(name, here.as_raw_fd())).join();
            made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    };
    let mut made = attempt();
    for _ in 0..ATTEMPTS {
        if !made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            break;
        }
        thread::sleep(INTERVAL);
        made = attempt();
    }
    let made = made?;
    // The near end then delivers the packets that a wire would carry: no segments of 64 KB, and no
    // checksums left to the device.
    os::offload::switch_off(name)?;
    Ok(made)
}

/// Runs in its own thread, which stays in the new namespace until it ends.
fn make(name: &str, here: RawFd) -> io::Result<(OwnedFd, Near)> {
    // SAFETY: no pointers are passed; other threads keep their namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut kernel = Kernel::open()?;
    let mut near = LinkMessage::default();
    near.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Address(NEAR_STATION.to_vec()),
        LinkAttribute::NetNsFd(here),
    ];
    let mut far = LinkMessage::default();
    far.attributes = vec![
        LinkAttribute::IfName(FAR.to_owned()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(near))),
        ]),
    ];
    kernel.request(RouteNetlinkMessage::NewLink(far), NLM_F_CREATE | NLM_F_EXCL)?;
    link::bring_up(FAR, u16::MAX)?;
    listen(link::index(FAR)?)
}

fn listen(index: u32) -> io::Result<(OwnedFd, Near)> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nothing else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    // Exceeds the system's limit if permitted; less works too.
    let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, KERNEL_BUFFER);
    let near = Near(index as libc::c_int);
    let address = near.address(libc::ETH_P_ALL as u16);
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address and the length are those of `address`.
    let bound = unsafe { libc::bind(fd, (&raw const address).cast(), length) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok((socket, near)) }
}

impl Near {
    /// Sends an IP packet to the near end.
    pub(super) fn send(self, socket: &OwnedFd, packet: &[u8]) -> io::Result<usize> {
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let address = self.address(if v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP } as u16);
        let length = size_of_val(&address) as libc::socklen_t;
        let (data, to) = (packet.as_ptr().cast(), (&raw const address).cast());
        let fd = socket.as_raw_fd();
        // SAFETY: `data` points to the packet's bytes and `to` to an address of `length` bytes;
        // both outlive the call.
        let sent = unsafe { libc::sendto(fd, data, packet.len(), 0, to, length) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn address(self, protocol: u16) -> libc::sockaddr_ll {
        let [a, b, c, d, e, f] = NEAR_STATION;
        libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: self.0,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: NEAR_STATION.len() as u8,
            sll_addr: [a, b, c, d, e, f, 0, 0],
        }
    }
}

fn set(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the address and the length are those of `value`.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
