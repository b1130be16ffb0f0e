//! UDP datagrams with a traffic class of their own (DSCP and ECN), which `quinn-udp` cannot set.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

/// Datagrams for one destination, all of the same class.
#[derive(Debug, Clone, Copy)]
pub struct MarkedDatagrams<'a> {
    /// The destination. On an IPv6 socket IPv4 addresses are mapped (`::ffff:a.b.c.d`).
    pub destination: SocketAddr,
    /// The source address; the system chooses if `None`.
    pub source: Option<IpAddr>,
    /// The code point in the upper six bits, ECN in the lower two (RFC 2474 §3, RFC 3168 §5).
    pub traffic_class: u8,
    /// The payloads, one after another.
    pub bytes: &'a [u8],
    /// Length of each payload but the last, which may be shorter. Above 0; `None` for one datagram.
    pub segment: Option<u16>,
}

/// Sends the datagrams, in one system call where the device can split them (GSO, udp(7)), otherwise
/// one by one.
///
/// # Errors
/// Those of sendmsg(2). If the datagrams are sent one by one, some may have been sent.
pub fn send_marked(socket: impl AsFd, datagrams: &MarkedDatagrams<'_>) -> io::Result<()> {
    match (send(&socket, datagrams), datagrams.segment) {
        (Err(Errno::EIO | Errno::EINVAL), Some(segment)) => {
            // The device or the kernel cannot split them.
            for bytes in datagrams.bytes.chunks(usize::from(segment).max(1)) {
                send(&socket, &MarkedDatagrams { bytes, segment: None, ..*datagrams })?;
            }
            Ok(())
        }
        (sent, _) => Ok(sent?),
    }
}

fn send(socket: impl AsFd, datagrams: &MarkedDatagrams<'_>) -> nix::Result<()> {
    let MarkedDatagrams { destination, source, traffic_class, bytes, ref segment } = *datagrams;
    let is_v4 = destination.ip().to_canonical().is_ipv4();
    let class = i32::from(traffic_class);
    let v4 = source.and_then(info_v4);
    let v6 = source.and_then(info_v6);
    let mark = match is_v4 {
        true => ControlMessage::Ipv4Tos(&traffic_class),
        false => ControlMessage::Ipv6TClass(&class),
    };
    let segments = segment.as_ref().map(ControlMessage::UdpGsoSegments);
    let from_v4 = v4.as_ref().map(ControlMessage::Ipv4PacketInfo);
    let from_v6 = v6.as_ref().map(ControlMessage::Ipv6PacketInfo);
    let control: Vec<_> = [Some(mark), segments, from_v4, from_v6].into_iter().flatten().collect();
    let to = SockaddrStorage::from(destination);
    let socket = socket.as_fd().as_raw_fd();
    let flags = MsgFlags::empty();
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &control, flags, Some(&to)) {
            Err(Errno::EINTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}

fn info_v4(source: IpAddr) -> Option<libc::in_pktinfo> {
    let IpAddr::V4(address) = source else { return None };
    let address = libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
    let none = libc::in_addr { s_addr: 0 };
    // ip(7): the kernel sends from `ipi_spec_dst`.
    Some(libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: none })
}

fn info_v6(source: IpAddr) -> Option<libc::in6_pktinfo> {
    let IpAddr::V6(address) = source else { return None };
    let address = libc::in6_addr { s6_addr: address.octets() };
    Some(libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use nix::sys::socket::{ControlMessageOwned, recvmsg, setsockopt, sockopt};

    use super::*;
    use crate::testkit::skip;

    /// Receives a datagram; returns its payload's length and its traffic class.
    fn receive(socket: &OwnedFd) -> (usize, u8) {
        let mut bytes = [0; 2048];
        let mut control = nix::cmsg_space!([u8; 256]);
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let socket = socket.as_raw_fd();
        let flags = MsgFlags::empty();
        let got =
            recvmsg::<SockaddrStorage>(socket, &mut parts, Some(&mut control), flags).unwrap();
        let class = got.cmsgs().unwrap().find_map(|message| match message {
            ControlMessageOwned::Ipv4Tos(class) => Some(class),
            ControlMessageOwned::Ipv6TClass(class) => Some(class as u8),
            _ => None,
        });
        (got.bytes, class.expect("a traffic class"))
    }

    fn receiver(local: &str) -> Option<UdpSocket> {
        let socket = UdpSocket::bind(local).ok()?;
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        match local.starts_with('[') {
            true => setsockopt(&socket, sockopt::Ipv6RecvTClass, &true).unwrap(),
            false => setsockopt(&socket, sockopt::IpRecvTos, &true).unwrap(),
        }
        Some(socket)
    }

    #[test]
    fn each_datagram_has_the_class_it_was_sent_with() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Some(receiver) = receiver(local) else {
                skip("no IPv6 here");
                continue;
            };
            let sender = UdpSocket::bind(local).unwrap();
            let destination = receiver.local_addr().unwrap();
            let source = Some(sender.local_addr().unwrap().ip());
            let receiver = OwnedFd::from(receiver);
            for traffic_class in [46 << 2, 34 << 2 | 2, 48 << 2 | 1, 0] {
                let one = MarkedDatagrams {
                    destination,
                    source,
                    traffic_class,
                    bytes: &[7; 30],
                    segment: None,
                };
                send_marked(&sender, &one).unwrap();
                assert_eq!(receive(&receiver), (30, traffic_class), "{local}");
                let several = MarkedDatagrams { bytes: &[7; 250], segment: Some(100), ..one };
                send_marked(&sender, &several).unwrap();
                let got = [(); 3].map(|()| receive(&receiver));
                assert_eq!(got, [100, 100, 50].map(|len| (len, traffic_class)), "{local}");
            }
        }
    }

    #[test]
    fn an_ipv6_socket_marks_for_mapped_addresses_too() {
        let Ok(sender) = UdpSocket::bind("[::]:0") else { return skip("no IPv6 here") };
        let receiver = receiver("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        let destination = format!("[::ffff:127.0.0.1]:{port}").parse().unwrap();
        let traffic_class = 46 << 2;
        let bytes = &[7; 30][..];
        let one =
            MarkedDatagrams { destination, source: None, traffic_class, bytes, segment: None };
        send_marked(&sender, &one).unwrap();
        assert_eq!(receive(&OwnedFd::from(receiver)), (30, traffic_class));
    }
}
