//! SYNs as the kernel delivers them, and packets that refuse them. No I/O.

use core::ops::Range;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use slacp::StreamOpening;

use super::header::{IPV4_HEADER, IPV6_HEADER, ip_header, pseudo_header, sum};
use super::icmp::error_message;
use super::packet::Packet;
use super::ports::TCP;

const SYN: u8 = 0x02;
const FIN_SYN_RST_ACK: u8 = 0x17;
const RST_ACK: u8 = 0x14;
pub(super) const TCP_HEADER: usize = 20;
/// Offset of the checksum in the TCP header (RFC 9293 §3.1).
pub(super) const CHECKSUM: usize = 16;
/// IPv6 extension headers that may precede TCP: hop-by-hop options, routing, destination options
/// (RFC 8200 §4.1). Each contains its length in units of 8 bytes, minus one.
const EXTENSIONS: [u8; 3] = [0, 43, 60];

/// A complete SYN with a correct checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Syn {
    packet: Vec<u8>,
    /// Offset of the TCP header.
    segment: usize,
    open: StreamOpening,
}

impl Syn {
    /// Parses an IP packet; `None` if it is not a SYN or is damaged.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (source, destination, segment, length) = parse(packet)?;
        let mut packet = packet.get(..length)?.to_vec();
        let tcp = packet.get(segment..).filter(|tcp| tcp.len() >= TCP_HEADER)?;
        let header = usize::from(tcp[12] >> 4) * 4;
        if header < TCP_HEADER || header > tcp.len() || tcp[13] & FIN_SYN_RST_ACK != SYN {
            return None;
        }
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let open = StreamOpening {
            source: SocketAddr::new(source, port(0)),
            destination: SocketAddr::new(destination, port(2)),
            dscp: Packet::parse(&packet).map(|packet| packet.dscp),
        };
        complete_checksum(&mut packet[segment..], source, destination)?;
        Some(Self { packet, segment, open })
    }

    /// Source and destination of the connection.
    pub fn open(&self) -> StreamOpening {
        self.open
    }

    /// The IP packet with a complete checksum, to be let in.
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// Builds the IP packet that refuses the connection in the destination's name: a RST that acknowledges
    /// the SYN and its data (RFC 9293 §3.10.7.1).
    pub fn refusal(&self) -> Vec<u8> {
        let tcp = &self.packet[self.segment..];
        let data = tcp.len() - usize::from(tcp[12] >> 4) * 4;
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let acknowledged = sequence.wrapping_add(1).wrapping_add(data as u32);
        let mut rst = [0; TCP_HEADER];
        rst[..2].copy_from_slice(&tcp[2..4]);
        rst[2..4].copy_from_slice(&tcp[..2]);
        rst[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        rst[12] = (TCP_HEADER as u8 / 4) << 4;
        rst[13] = RST_ACK;
        let from = self.open.destination.ip();
        let to = self.open.source.ip();
        let checksum = !sum(pseudo_header(from, to, TCP, TCP_HEADER), &rst);
        rst[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        [ip_header(from, to, TCP, TCP_HEADER), rst.to_vec()].concat()
    }

    /// Builds the ICMP message, without IP header, for an unreachable host, or for a denied one if
    /// `prohibited` (RFC 792, RFC 4443 §3.1). The kernel computes the checksum of ICMPv6.
    pub fn unreachable(&self, prohibited: bool) -> Vec<u8> {
        let (kind, code) = match (self.open.source.is_ipv4(), prohibited) {
            (true, false) => (3, 1),
            (true, true) => (3, 13),
            (false, false) => (1, 3),
            (false, true) => (1, 1),
        };
        // The client finds its connection by the headers of the packet that failed (RFC 792, RFC 4443 §3.1).
        let quoted = &self.packet[..self.packet.len().min(self.segment + TCP_HEADER)];
        let pseudo = self.open.source.is_ipv4().then_some(0);
        error_message(kind, code, quoted, pseudo)
    }
}

type ParsedHeaders = (IpAddr, IpAddr, usize, usize);

fn parse(packet: &[u8]) -> Option<ParsedHeaders> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

/// Byte range of the TCP segment of an IP packet, according to its headers; `None` for fragments and other
/// protocols. The packet may be truncated before the end of the range.
pub fn segment_of(packet: &[u8]) -> Option<Range<usize>> {
    let (.., begin, end) = parse(packet)?;
    Some(begin..end)
}

/// Source, destination, offset of the TCP header, and end of the packet.
fn parse_v4(packet: &[u8]) -> Option<ParsedHeaders> {
    let header = packet.first_chunk::<IPV4_HEADER>()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let begin = usize::from(header[0] & 0xf) * 4;
    // A connection whose SYN is fragmented cannot be intercepted.
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    if begin < IPV4_HEADER || header[9] != TCP || is_fragment {
        return None;
    }
    let address = |at: usize| -> IpAddr {
        Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
    };
    Some((address(12), address(16), begin, length))
}

fn parse_v6(packet: &[u8]) -> Option<ParsedHeaders> {
    let header = packet.first_chunk::<IPV6_HEADER>()?;
    let length = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut next = header[6];
    let mut begin = IPV6_HEADER;
    while EXTENSIONS.contains(&next) {
        let extension = packet.get(begin..)?.first_chunk::<2>()?;
        next = extension[0];
        begin += (usize::from(extension[1]) + 1) * 8;
    }
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    (next == TCP).then_some((address(8)?, address(24)?, begin, length))
}

/// Verifies the checksum. A partial one, which covers only the pseudo-header, is completed: the rest was
/// left to a network device that the packet has not reached.
fn complete_checksum(tcp: &mut [u8], source: IpAddr, destination: IpAddr) -> Option<()> {
    let pseudo = pseudo_header(source, destination, TCP, tcp.len());
    let given = u16::from_be_bytes([tcp[CHECKSUM], tcp[CHECKSUM + 1]]);
    // One's complement: a sum over data and checksum of all ones is correct (RFC 1071).
    if sum(pseudo, tcp) == 0xffff {
        return Some(());
    }
    if given != sum(pseudo, &[]) {
        return None;
    }
    tcp[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = !sum(pseudo, tcp);
    tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// A SYN with an option and some data, with a `partial` checksum as for offload, or as on the
/// wire.
#[cfg(any(test, feature = "testkit"))]
pub fn syn_packet(v6: bool, partial: bool, data: &[u8]) -> Vec<u8> {
    syn_with(v6, partial, &[2, 4, 5, 0xb4], data)
}

/// A SYN with these options, whose length is a multiple of 4.
#[cfg(any(test, feature = "testkit"))]
pub(super) fn syn_with(v6: bool, partial: bool, options: &[u8], data: &[u8]) -> Vec<u8> {
    let ends: [IpAddr; 2] = if v6 {
        ["fd00:1::2", "fd00:2::2"].map(|text| text.parse().unwrap())
    } else {
        ["10.1.0.2", "10.2.0.2"].map(|text| text.parse().unwrap())
    };
    let mut tcp = vec![0x12, 0x34, 0, 80, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let words = ((TCP_HEADER + options.len()) / 4) as u8;
    tcp.extend([words << 4, SYN, 0xfa, 0xf0, 0, 0, 0, 0]);
    tcp.extend([options, data].concat());
    let pseudo = pseudo_header(ends[0], ends[1], TCP, tcp.len());
    let checksum = if partial { sum(pseudo, &[]) } else { !sum(pseudo, &tcp) };
    tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    [ip_header(ends[0], ends[1], TCP, tcp.len()), tcp].concat()
}

/// Returns `true` if the checksum of a TCP packet is correct.
#[cfg(test)]
pub(super) fn has_right_checksum(packet: &[u8]) -> bool {
    let (source, destination, begin, length) = parse(packet).unwrap();
    let tcp = &packet[begin..length];
    sum(pseudo_header(source, destination, TCP, tcp.len()), tcp) == 0xffff
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_syn_is_read_and_its_checksum_completed() {
        for (v6, data) in [(false, &b""[..]), (false, b"GET"), (true, b""), (true, b"data")] {
            let wire = syn_packet(v6, false, data);
            for mut given in [wire.clone(), syn_packet(v6, true, data)] {
                // Ethernet pads short packets.
                given.extend([0xaa; 6]);
                let syn = Syn::parse(&given).unwrap();
                assert_eq!(syn.packet(), wire);
                assert_eq!((syn.open().source.port(), syn.open().destination.port()), (0x1234, 80));
                assert_eq!(syn.open().source.is_ipv6(), v6);
            }
        }
    }

    #[test]
    fn a_damaged_syn_and_other_packets_are_none() {
        for v6 in [false, true] {
            let good = syn_packet(v6, false, b"x");
            let begin = if v6 { IPV6_HEADER } else { IPV4_HEADER };
            let (flags, offset, last) = (begin + 13, begin + 12, good.len() - 1);
            for (at, bits) in [(last, 1), (flags, 0x10), (flags, 0x04), (offset, 0xf0), (0, 0xf0)] {
                let mut bad = good.clone();
                bad[at] ^= bits;
                assert_eq!(Syn::parse(&bad), None, "byte {at} of v6 {v6}");
            }
            assert_eq!(Syn::parse(&good[..last]), None, "cut off");
        }
        let mut fragment = syn_packet(false, false, b"");
        fragment[6] = 0x20;
        assert_eq!(Syn::parse(&fragment), None);
    }

    #[test]
    fn extension_headers_of_ipv6_are_skipped() {
        let mut given = syn_packet(true, false, b"");
        let length = (given.len() - IPV6_HEADER + 8) as u16;
        given[4..6].copy_from_slice(&length.to_be_bytes());
        given[6] = 60;
        given.splice(IPV6_HEADER..IPV6_HEADER, [TCP, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(Syn::parse(&given).unwrap().open().destination.port(), 80);
    }

    #[test]
    fn a_refusal_acknowledges_the_syn_and_its_data() {
        for v6 in [false, true] {
            let refusal = Syn::parse(&syn_packet(v6, false, b"abc")).unwrap().refusal();
            assert!(has_right_checksum(&refusal));
            let tcp = &refusal[if v6 { IPV6_HEADER } else { IPV4_HEADER }..];
            assert_eq!(tcp[..4], [0, 80, 0x12, 0x34]);
            assert_eq!(tcp[8..12], [0, 0, 0, 3], "behind 0xffffffff, SYN and three bytes");
            assert_eq!(tcp[13], RST_ACK);
        }
    }

    #[test]
    fn an_unreachable_destination_is_quoted() {
        for (v6, prohibited, head) in [
            (false, false, [3, 1]),
            (false, true, [3, 13]),
            (true, false, [1, 3]),
            (true, true, [1, 1]),
        ] {
            let syn = Syn::parse(&syn_packet(v6, false, b"abc")).unwrap();
            let message = syn.unreachable(prohibited);
            assert_eq!(message[..2], head);
            assert!(v6 || sum(0, &message) == 0xffff);
            assert!(syn.packet().starts_with(&message[8..]));
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_read_without_a_panic(
            v6: bool,
            junk in proptest::collection::vec(any::<u8>(), 0..120),
            at in 0usize..64,
            cut in 0usize..80,
        ) {
            let mut bytes = syn_packet(v6, false, b"data");
            for (to, from) in bytes.iter_mut().skip(at).zip(&junk) {
                *to = *from;
            }
            bytes.truncate(cut);
            for bytes in [bytes, junk] {
                if let Some(syn) = Syn::parse(&bytes) {
                    prop_assert!(has_right_checksum(&syn.refusal()));
                    let _ = syn.unreachable(true);
                }
            }
        }
    }
}
