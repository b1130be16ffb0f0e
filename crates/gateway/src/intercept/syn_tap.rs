//! SYNs withheld by our nftables table, which logs and drops them; the kernel sends a copy of each
//! here (`linux/netfilter/nfnetlink_log.h`). Later they are let in again, or answered.
//!
//! A log group and a raw socket work where the alternatives do not: most users cannot open the TUN
//! device, and some kernels lack the `queue` statement of nftables.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::unistd::read;
use os::Watched;
use os::netlink::netfilter;
use pep::traffic::{Syn, Version};
use slacp::ResetReason;
use socket2::{Domain, Protocol, Socket, Type};

use crate::intercept::rule::Mark;

/// IPPROTO_RAW: a socket that sends whole IP packets.
const WHOLE_PACKETS: i32 = libc::IPPROTO_RAW;

/// Receives withheld SYNs.
pub(crate) struct SynTap {
    socket: Watched,
    waiting: VecDeque<Syn>,
    buffer: Vec<u8>,
}

impl SynTap {
    /// Subscribes to the log `group`.
    ///
    /// # Errors
    /// The kernel's refusal: without CAP_NET_ADMIN, or if the group is taken.
    pub(crate) fn open(group: u16) -> io::Result<Self> {
        let socket = Watched::new(netfilter::Socket::open()?.listen_to_log(group)?)?;
        Ok(Self { socket, waiting: VecDeque::new(), buffer: vec![0; 128 << 10] })
    }

    /// Waits for the next SYN. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Syn {
        loop {
            if let Some(syn) = self.waiting.pop_front() {
                return syn;
            }
            // Fails only while the runtime shuts down.
            let Ok(mut ready) = self.socket.readable().await else {
                return std::future::pending().await;
            };
            let received = ready.try_io(|fd| Ok(read(fd.get_ref(), &mut self.buffer)?));
            // ENOBUFS: some SYNs were lost. Clients will retransmit them.
            if let Ok(Ok(length)) = received {
                let packets = netfilter::logged_packets(&self.buffer[..length]);
                self.waiting.extend(packets.filter_map(Syn::parse));
            }
        }
    }
}

/// Lets withheld SYNs in, or refuses them.
#[derive(Debug)]
pub(crate) struct SynInjector {
    /// Sockets for packets that re-enter through loopback with our mark.
    inward: [Option<Socket>; 2],
    /// Sockets for packets to clients.
    outward: [Option<Socket>; 2],
}

impl SynInjector {
    /// `mark` is set on packets that are let in.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW and CAP_NET_ADMIN.
    pub(crate) fn new(versions: &[Version], mark: Mark) -> io::Result<Self> {
        let each = |mark: Option<Mark>| -> io::Result<[Option<Socket>; 2]> {
            let of = |version| versions.contains(&version).then(|| raw_socket(version, mark));
            Ok([of(Version::V4).transpose()?, of(Version::V6).transpose()?])
        };
        Ok(Self { inward: each(Some(mark))?, outward: each(None)? })
    }

    /// Re-injects the SYN, as if it had just arrived.
    pub(crate) fn let_in(&self, syn: &Syn) {
        send(&self.inward, syn.packet(), syn.open().destination.ip());
    }

    /// Tells the client, in the destination's name, why the connection failed. A silent destination
    /// stays silent; after a failure of ours the client may retry.
    pub(crate) fn refuse(&self, syn: &Syn, reason: ResetReason) {
        match reason {
            ResetReason::Refused | ResetReason::Reset => {
                send(&self.outward, &syn.refusal(), syn.open().source.ip());
            }
            ResetReason::Unreachable => send_icmp(syn, false),
            ResetReason::Prohibited => send_icmp(syn, true),
            _ => {}
        }
    }
}

fn raw_socket(version: Version, mark: Option<Mark>) -> io::Result<Socket> {
    let domain = if version == Version::V4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(WHOLE_PACKETS)))?;
    socket.set_nonblocking(true)?;
    if let Some(mark) = mark {
        socket.set_mark(mark.value)?;
    }
    Ok(socket)
}

fn send(sockets: &[Option<Socket>; 2], packet: &[u8], to: IpAddr) {
    let socket = &sockets[usize::from(to.is_ipv6())];
    let sent = socket.as_ref().map(|socket| socket.send_to(packet, &SocketAddr::new(to, 0).into()));
    // A lost packet: the client retransmits its SYN.
    if let Some(Err(error)) = sent {
        tracing::debug!("cannot answer a SYN: {error}");
    }
}

/// The kernel chooses our address towards the client. Opens a socket for each message, as errors
/// are rare: an open one would receive a copy of every ICMP message.
fn send_icmp(syn: &Syn, prohibited: bool) {
    let client = SocketAddr::new(syn.open().source.ip(), 0);
    let (domain, protocol) = match client {
        SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let sent = Socket::new(domain, Type::RAW, Some(protocol))
        .and_then(|socket| socket.send_to(&syn.unreachable(prohibited), &client.into()));
    if let Err(error) = sent {
        tracing::debug!("cannot answer a SYN: {error}");
    }
}
