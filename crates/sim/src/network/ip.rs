//! Converts packets to bytes, for captures.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use scenario::IpVersion;
use tcp::wire;
use tcp::{ByteRange, Ecn, Segment, SegmentPayload as _};

use super::packet::{IP_HEADER, PacketBody, SimulatedPacket, UDP_HEADER, headers_of};
use crate::ids::NodeId;
use crate::slab::SlabKey;

/// UDP port of SLACP in captures.
const SLACP_PORT: u16 = 5258;
/// UDP port of constant-rate datagrams in captures.
const CBR_PORT: u16 = 5000;
/// Protocol number of IPv6 in IPv4 (RFC 4213 §3.5).
const IPV6_PROTOCOL: u8 = 41;
const HOP_LIMIT: u8 = 64;

impl NodeId {
    /// The node's IPv4 address in captures, within 10.0.0.0/8.
    pub const fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 | self.0 & 0x00ff_ffff)
    }

    /// The node's IPv6 address in captures, within fd00::/64.
    pub const fn address_v6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(0xfd00 << 112 | self.0 as u128)
    }
}

/// Returns the port of a socket in captures.
fn port(socket: SlabKey) -> u16 {
    (1024 + socket.index() % 64_512) as u16
}

impl SimulatedPacket {
    /// Encodes the packet with its headers (RFC 791, RFC 8200; a tunnel of RFC 4213). The data of TCP
    /// streams and datagrams is zeros, because it is not simulated; a datagram begins with its number
    /// if that fits. Checksums are correct.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; headers_of(self.ip)];
        let [from, to] = self.addresses();
        let (protocol, traffic_class) = match &self.body {
            PacketBody::Tcp { source, destination, segment } => {
                let path = wire::SegmentPath {
                    from,
                    from_port: port(*source),
                    to,
                    to_port: port(*destination),
                };
                wire::encode(&path, &with_zeros(segment), &mut bytes);
                (6, segment.ecn.bits())
            }
            PacketBody::Cbr(datagram) => {
                let mut payload = vec![0; datagram.len as usize];
                let number = datagram.number.to_be_bytes();
                if let Some(front) = payload.first_chunk_mut() {
                    *front = number;
                }
                self.udp(&mut bytes, CBR_PORT, &payload);
                (17, datagram.dscp << 2)
            }
            PacketBody::Slacp(sealed) => {
                self.udp(&mut bytes, SLACP_PORT, &sealed.bytes);
                (17, 0)
            }
        };
        self.header(&mut bytes, protocol, traffic_class);
        bytes
    }

    fn udp(&self, bytes: &mut Vec<u8>, port: u16, payload: &[u8]) {
        let len = (UDP_HEADER + payload.len()) as u16;
        let start = bytes.len();
        for field in [port, port, len, 0] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(payload);
        let [from, to] = self.addresses();
        // The pseudo header differs from TCP's only in the protocol number.
        let sum = wire::pseudo_header_sum(from, to, len.into()) - 6 + 17;
        let sum = match wire::checksum(sum, &bytes[start..]) {
            // RFC 768: 0 would mean no checksum.
            0 => 0xffff,
            sum => sum,
        };
        bytes[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
    }

    /// Writes the IP headers into the space at the front of `bytes`.
    fn header(&self, bytes: &mut [u8], protocol: u8, traffic_class: u8) {
        match self.ip {
            IpVersion::Ipv4 => self.header_v4(bytes, protocol, traffic_class),
            IpVersion::Ipv6 => self.header_v6(bytes, protocol, traffic_class),
            IpVersion::Ipv6InIpv4 => {
                self.header_v6(&mut bytes[IP_HEADER..], protocol, traffic_class);
                self.header_v4(bytes, IPV6_PROTOCOL, traffic_class);
            }
        }
    }

    fn header_v4(&self, bytes: &mut [u8], protocol: u8, traffic_class: u8) {
        let len = bytes.len() as u16;
        // Version 4, and a header of five 32-bit words (RFC 791 §3.1).
        bytes[0] = 0x45;
        bytes[1] = traffic_class;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes[6] = 0x40; // do not fragment
        bytes[8] = HOP_LIMIT;
        bytes[9] = protocol;
        bytes[12..16].copy_from_slice(&self.from.address().octets());
        bytes[16..20].copy_from_slice(&self.to.address().octets());
        let sum = wire::checksum(0, &bytes[..IP_HEADER]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn header_v6(&self, bytes: &mut [u8], protocol: u8, traffic_class: u8) {
        let len = (bytes.len() - headers_of(IpVersion::Ipv6)) as u16;
        // Version 6, then the traffic class across two bytes; the flow label stays 0 (RFC 8200 §3).
        bytes[0] = 0x60 | traffic_class >> 4;
        bytes[1] = traffic_class << 4;
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        bytes[6] = protocol;
        bytes[7] = HOP_LIMIT;
        bytes[8..24].copy_from_slice(&self.from.address_v6().octets());
        bytes[24..40].copy_from_slice(&self.to.address_v6().octets());
    }

    /// Returns the innermost addresses of sender and destination.
    fn addresses(&self) -> [IpAddr; 2] {
        [self.from, self.to].map(|node| match self.ip {
            IpVersion::Ipv4 => node.address().into(),
            IpVersion::Ipv6 | IpVersion::Ipv6InIpv4 => node.address_v6().into(),
        })
    }
}

/// Returns a segment whose data is zeros.
fn with_zeros(segment: &Segment<ByteRange>) -> Segment<Vec<u8>> {
    Segment {
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        options: segment.options.clone(),
        ecn: segment.ecn,
        payload: vec![0; segment.payload.len()],
    }
}

/// Returns the ECN codepoint of the outer header; [`Ecn::NotEct`] if the bytes are too short.
pub(crate) fn ecn(bytes: &[u8]) -> Ecn {
    match bytes {
        // The traffic class of IPv6 straddles the first two bytes (RFC 8200 §3).
        [first, class, ..] if first >> 4 == 6 => Ecn::from_bits(class >> 4),
        [_, class, ..] => Ecn::from_bits(*class),
        _ => Ecn::NotEct,
    }
}

#[cfg(test)]
mod tests {
    use link::CarriedPacket as _;
    use proptest::prelude::*;
    use scenario::Overhead;
    use tcp::{ByteRange, HeaderFlags, HeaderOptions, SeqNr, Timestamps};
    use units::Instant;

    use super::super::packet::{AppDatagram, SlacpDatagram};
    use super::*;

    fn sealed(bytes: Vec<u8>) -> PacketBody {
        PacketBody::Slacp(SlacpDatagram { bytes, is_control: false, overhead: Overhead::Tunnel })
    }

    #[test]
    fn the_bytes_are_as_many_as_links_charge_and_sum_to_zero() {
        let datagram =
            AppDatagram { app: 0, number: 1, sent_at: Instant::ZERO, len: 101, dscp: 46 };
        for body in [PacketBody::Cbr(datagram), sealed(vec![7; 64])] {
            let packet = Box::new(SimulatedPacket::v4(NodeId(1), NodeId(300), body));
            let bytes = packet.to_bytes();
            assert_eq!(bytes.len(), packet.wire_len());
            assert_eq!(wire::checksum(0, &bytes[..IP_HEADER]), 0);
            let [from, to] = [packet.from, packet.to].map(|node| IpAddr::V4(node.address()));
            let sum = wire::pseudo_header_sum(from, to, bytes.len() - IP_HEADER) - 6 + 17;
            assert_eq!(wire::checksum(sum, &bytes[IP_HEADER..]), 0);
        }
        assert_eq!(NodeId(300).address().to_string(), "10.0.1.44");
    }

    prop_compose! {
        fn segments()(
            [seq, ack, value, echo] in any::<[u32; 4]>(),
            [syn, fin, psh, ece] in any::<[bool; 4]>(),
            window in any::<u16>(),
            ecn in 0u8..4,
            mss in prop::option::of(any::<u16>()),
            len in 0u64..1461,
        ) -> Segment<ByteRange> {
            let timestamps = Some(Timestamps { value, echo });
            Segment {
                seq: SeqNr::new(seq),
                ack: Some(SeqNr::new(ack)),
                flags: HeaderFlags { syn, fin, psh, ece, ..HeaderFlags::default() },
                window,
                options: HeaderOptions { mss, timestamps, ..HeaderOptions::default() },
                ecn: Ecn::from_bits(ecn),
                payload: ByteRange::new(7..7 + len),
            }
        }
    }

    fn versions() -> impl Strategy<Value = IpVersion> {
        prop::sample::select(vec![IpVersion::Ipv4, IpVersion::Ipv6, IpVersion::Ipv6InIpv4])
    }

    /// What the IP headers carry, which are checked.
    fn inner(bytes: &[u8]) -> &[u8] {
        match bytes[0] >> 4 {
            4 => {
                assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
                match bytes[9] {
                    IPV6_PROTOCOL => inner(&bytes[20..]),
                    protocol => {
                        assert_eq!(protocol, 6);
                        &bytes[20..]
                    }
                }
            }
            _ => {
                let len = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
                assert_eq!((len, bytes[6]), (bytes.len() - 40, 6));
                &bytes[40..]
            }
        }
    }

    proptest! {
        /// All but the contents, which are zeros.
        #[test]
        fn a_segment_in_a_capture_is_the_one_that_was_sent(segment in segments(), ip in versions()) {
            let (source, destination) = (SlabKey::default(), SlabKey::default());
            let body = PacketBody::Tcp { source, destination, segment: segment.clone() };
            let packet = Box::new(SimulatedPacket { from: NodeId(1), to: NodeId(2), ip, body });
            let bytes = packet.to_bytes();
            prop_assert_eq!(bytes.len(), packet.wire_len());
            prop_assert_eq!(ecn(&bytes), segment.ecn);
            let inner = inner(&bytes);
            let [from, to] = packet.addresses();
            let (path, ours) =
                wire::decode(from, to, segment.ecn, &inner.to_vec().into()).unwrap();
            prop_assert_eq!((path.from_port, path.to_port), (1024, 1024));
            prop_assert_eq!(&ours.payload[..], &vec![0; segment.payload.len()][..]);
            prop_assert_eq!((ours.seq, ours.ack), (segment.seq, segment.ack));
            prop_assert_eq!((ours.flags, ours.window), (segment.flags, segment.window));
            prop_assert_eq!((ours.options, ours.ecn), (segment.options, segment.ecn));
        }
    }

    /// RFC 768: a checksum of zero means that there is none.
    #[test]
    fn a_datagram_whose_sum_is_zero_says_so_in_ones() {
        let packet = |filler: u16| {
            let body = sealed(filler.to_be_bytes().to_vec());
            SimulatedPacket::v4(NodeId(1), NodeId(2), body)
        };
        let sum = |bytes: &[u8]| u16::from_be_bytes([bytes[26], bytes[27]]);
        // Adding what is left to the sum makes its complement zero.
        let rest = sum(&packet(0).to_bytes());
        assert_eq!(sum(&packet(rest).to_bytes()), 0xffff);
    }
}
