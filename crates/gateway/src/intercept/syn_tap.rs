//! SYNs withheld by the nftables table, which logs and drops them. The kernel sends a copy of each
//! here (`linux/netfilter/nfnetlink_log.h`). Later they are reinjected, or refused.
//!
//! A log group and a raw socket work where the alternatives do not: most users cannot open the TUN
//! device, and some kernels lack the `queue` statement of nftables.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use os::netlink::netfilter::NetfilterSocket;
use pep::traffic::{IpFamily, Syn};
use slacp::ResetReason;
use socket2::{Domain, Protocol, Socket, Type};

use crate::intercept::packet_log::PacketLog;
use crate::network::nft::rule::FirewallMark;

/// Protocol of a raw socket that sends packets with their IP header.
const WHOLE_PACKETS: i32 = libc::IPPROTO_RAW;

/// Receives withheld SYNs from the kernel's log group.
pub(crate) struct SynTap {
    log: PacketLog,
    waiting: VecDeque<Syn>,
}

impl SynTap {
    /// Subscribes to the log `group`.
    ///
    /// # Errors
    /// The kernel's refusal: CAP_NET_ADMIN is missing, or the group is taken.
    pub(crate) fn open(group: u16) -> io::Result<Self> {
        let group = NetfilterSocket::open()?.listen_to_log(group)?;
        Ok(Self { log: PacketLog::new(group, 128 << 10)?, waiting: VecDeque::new() })
    }

    /// Waits for the next SYN. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Syn {
        loop {
            if let Some(syn) = self.waiting.pop_front() {
                return syn;
            }
            // Clients retransmit SYNs that were lost.
            self.waiting.extend(self.log.next(Syn::parse).await.unwrap_or_default());
        }
    }
}

/// Reinjects withheld SYNs, or refuses them.
#[derive(Debug)]
pub(crate) struct SynInjector {
    /// Sockets for packets that re-enter through loopback with the gateway's mark: IPv4, IPv6.
    inward: [Option<Socket>; 2],
    /// Sockets for packets to clients: IPv4, IPv6.
    outward: [Option<Socket>; 2],
}

impl SynInjector {
    /// Opens the raw sockets. `mark` is set on reinjected packets.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW and CAP_NET_ADMIN.
    pub(crate) fn new(versions: &[IpFamily], mark: FirewallMark) -> io::Result<Self> {
        let each = |mark: Option<FirewallMark>| -> io::Result<[Option<Socket>; 2]> {
            let of = |version| versions.contains(&version).then(|| raw_socket(version, mark));
            Ok([of(IpFamily::V4).transpose()?, of(IpFamily::V6).transpose()?])
        };
        Ok(Self { inward: each(Some(mark))?, outward: each(None)? })
    }

    /// Reinjects a SYN through loopback, as if it had just arrived.
    pub(crate) fn reinject(&self, syn: &Syn) {
        send(&self.inward, syn.packet(), syn.open().destination.ip());
    }

    /// Answers the client with a reset from the destination's address or an ICMP error, by the reason of the
    /// failure. Sends nothing if the destination was silent, or after a failure of the gateway: the client
    /// may retry.
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

/// Opens a socket for packets with their IP header, to which `mark` is set.
pub(crate) fn raw_socket(version: IpFamily, mark: Option<FirewallMark>) -> io::Result<Socket> {
    let domain = if version == IpFamily::V4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(WHOLE_PACKETS)))?;
    socket.set_nonblocking(true)?;
    if let Some(mark) = mark {
        // The rule for reinjected SYNs lets in only what bears the mark.
        socket.set_mark(mark.value)?;
    }
    Ok(socket)
}

fn send(sockets: &[Option<Socket>; 2], packet: &[u8], to: IpAddr) {
    let socket = &sockets[usize::from(to.is_ipv6())];
    let sent = socket.as_ref().map(|socket| socket.send_to(packet, &SocketAddr::new(to, 0).into()));
    // Not fatal: the client retransmits its SYN.
    if let Some(Err(error)) = sent {
        tracing::debug!("cannot answer a SYN: {error}");
    }
}

/// Sends an ICMP error from the address that the kernel chooses. Opens a socket for each message, since
/// errors are rare and an open socket would receive a copy of every ICMP message.
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use pep::traffic::syn_packet;

    use super::*;
    use crate::testkit::{give_address, in_namespace};

    /// A socket that sees what arrives of this protocol, with IP header.
    fn ear(protocol: Protocol) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    /// The payloads of all IPv4 packets that have come. Loopback delivers within the call.
    fn heard(mut ear: &Socket) -> Vec<Vec<u8>> {
        let mut buffer = [0; 1500];
        let packets = std::iter::from_fn(|| {
            let length = ear.read(&mut buffer).ok()?;
            Some(buffer[20..length].to_vec())
        });
        packets.collect()
    }

    #[test]
    fn a_client_hears_why_its_destination_cannot_be_reached() {
        in_namespace(|| {
            let syn = Syn::parse(&syn_packet(false, false, b"")).unwrap();
            let SocketAddr::V4(client) = syn.open().source else { unreachable!() };
            give_address("lo", *client.ip());
            let injector =
                SynInjector::new(&[IpFamily::V4], FirewallMark { value: 1, mask: 1 }).unwrap();
            let (tcp, icmp) = (ear(Protocol::TCP), ear(Protocol::ICMPV4));
            for reason in [ResetReason::Refused, ResetReason::Reset] {
                injector.refuse(&syn, reason);
                let [segment] = &heard(&tcp)[..] else { panic!("one segment for {reason:?}") };
                // RST and ACK, from the destination's port to the client's.
                assert_eq!((segment[13], &segment[..4]), (0x14, &[0, 80, 0x12, 0x34][..]));
            }
            for (reason, code) in [(ResetReason::Unreachable, 1), (ResetReason::Prohibited, 13)] {
                injector.refuse(&syn, reason);
                let [message] = &heard(&icmp)[..] else { panic!("one message for {reason:?}") };
                assert_eq!(message[..2], [3, code], "{reason:?}");
            }
            // A silent destination stays silent, and a failure of ours is not the destination's.
            for reason in [ResetReason::TimedOut, ResetReason::Limit, ResetReason::SessionLost] {
                injector.refuse(&syn, reason);
            }
            assert_eq!((heard(&tcp), heard(&icmp)), (vec![], vec![]));
        });
    }

    #[test]
    fn a_version_that_is_not_served_is_left_alone() {
        in_namespace(|| {
            let injector =
                SynInjector::new(&[IpFamily::V4], FirewallMark { value: 1, mask: 1 }).unwrap();
            let syn = Syn::parse(&syn_packet(true, false, b"")).unwrap();
            let ear = ear(Protocol::TCP);
            injector.reinject(&syn);
            injector.refuse(&syn, ResetReason::Refused);
            assert_eq!(heard(&ear), Vec::<Vec<u8>>::new());
        });
    }
}
