//! Simulated IP packets and their sizes.

use link::TrafficClass;
use scenario::{IpVersion, Overhead};
use tcp::{ByteRange, Ecn, Segment};
use units::Instant;

use crate::ids::NodeId;
use crate::slab::SlabKey;

/// Size of an IPv4 header without options, in bytes.
pub(crate) const IP_HEADER: usize = 20;
/// Size of an IPv6 header without extensions, in bytes (RFC 8200 §3).
const IPV6_HEADER: usize = 40;
/// Size of a UDP header, in bytes.
pub(crate) const UDP_HEADER: usize = 8;
/// Bytes of a SLACP data packet that only the secure tunnel needs, besides the headers of IP and
/// UDP: the session index (a link layer has the MAC's addresses instead), and the authentication
/// tag.
pub(crate) const TUNNEL_ONLY: usize = 4 + 16;

/// Returns the size of a packet's IP headers, in bytes.
pub(crate) const fn headers_of(ip: IpVersion) -> usize {
    match ip {
        IpVersion::Ipv4 => IP_HEADER,
        IpVersion::Ipv6 => IPV6_HEADER,
        IpVersion::Ipv6InIpv4 => IP_HEADER + IPV6_HEADER,
    }
}

/// A simulated IP packet. It is boxed on links, because a link moves its packets several times.
#[derive(Debug)]
pub struct SimulatedPacket {
    /// The sending node.
    pub from: NodeId,
    /// The destination node.
    pub to: NodeId,
    /// Version of the IP header or headers.
    pub ip: IpVersion,
    /// The payload of the IP packet.
    pub body: PacketBody,
}

impl SimulatedPacket {
    /// Creates a packet with an IPv4 header.
    pub(crate) fn v4(from: NodeId, to: NodeId, body: PacketBody) -> Self {
        Self { from, to, ip: IpVersion::Ipv4, body }
    }

    /// Creates a TCP packet to be filled in.
    pub(crate) fn blank() -> Box<Self> {
        let body = PacketBody::Tcp {
            source: SlabKey::default(),
            destination: SlabKey::default(),
            segment: Segment::default(),
        };
        Box::new(Self { from: NodeId(0), to: NodeId(0), ip: IpVersion::Ipv4, body })
    }
}

/// The payload of an IP packet.
#[derive(Debug)]
pub enum PacketBody {
    /// A segment from one socket to another.
    Tcp {
        /// The sender's socket.
        source: SlabKey,
        /// The receiver's socket.
        destination: SlabKey,
        /// The segment. Its data is represented by ranges, without any bytes.
        segment: Segment<ByteRange>,
    },
    /// A datagram of a constant-rate application.
    Cbr(AppDatagram),
    /// A datagram of a SLACP session.
    Slacp(SlacpDatagram),
}

/// A datagram of a SLACP session, with its real bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlacpDatagram {
    /// The UDP payload: sealed and authenticated, as on a real network.
    pub bytes: Vec<u8>,
    /// True if it belongs to the control channel and carries no new data.
    pub is_control: bool,
    /// Overhead that a link charges for it besides its frames.
    pub overhead: Overhead,
}

impl SlacpDatagram {
    /// Size on the link, in bytes.
    pub(crate) fn wire_len(&self) -> usize {
        match self.overhead {
            Overhead::Tunnel => self.tunnel_len(),
            Overhead::LinkLayer => self.bytes.len().saturating_sub(TUNNEL_ONLY),
        }
    }

    /// Size of the whole IP packet in bytes.
    pub(crate) fn tunnel_len(&self) -> usize {
        IP_HEADER + UDP_HEADER + self.bytes.len()
    }
}

/// A UDP datagram without contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppDatagram {
    /// The application's index.
    pub app: u32,
    /// The datagram's number within the application.
    pub number: u64,
    /// Time of sending, for the one-way delay.
    pub sent_at: Instant,
    /// Payload size in bytes, without the headers of UDP and IP.
    pub len: u32,
    /// Code point in the IP header, 0 to 63.
    pub dscp: u8,
}

impl link::CarriedPacket for Box<SimulatedPacket> {
    #[inline]
    fn wire_len(&self) -> usize {
        let body = match &self.body {
            PacketBody::Tcp { segment, .. } => segment.wire_len(),
            PacketBody::Cbr(datagram) => UDP_HEADER + datagram.len as usize,
            // Counts its own IP header; on a link layer it has none.
            PacketBody::Slacp(sealed) => return sealed.wire_len(),
        };
        headers_of(self.ip) + body
    }

    fn mark_ce(&mut self) -> bool {
        match &mut self.body {
            PacketBody::Tcp { segment, .. } if segment.ecn != Ecn::NotEct => {
                segment.ecn = Ecn::Ce;
                true
            }
            _ => false,
        }
    }

    fn class(&self) -> TrafficClass {
        match &self.body {
            PacketBody::Slacp(SlacpDatagram { is_control: true, .. }) => TrafficClass::Control,
            PacketBody::Cbr(datagram) => TrafficClass::of_dscp(datagram.dscp),
            _ => TrafficClass::Bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use link::CarriedPacket as _;

    use super::*;

    fn segment(ecn: Ecn) -> Box<SimulatedPacket> {
        let mut packet = SimulatedPacket::blank();
        if let PacketBody::Tcp { segment, .. } = &mut packet.body {
            (segment.ecn, segment.payload) = (ecn, ByteRange::new(0..1000));
        }
        packet
    }

    fn sealed(len: usize, overhead: Overhead) -> PacketBody {
        PacketBody::Slacp(SlacpDatagram { bytes: vec![0; len], is_control: true, overhead })
    }

    /// A link layer's packet has neither IP and UDP headers nor what only a tunnel needs.
    #[test]
    fn a_link_layer_is_charged_for_its_own_headers_only() {
        let packet =
            |overhead| Box::new(SimulatedPacket::v4(NodeId(0), NodeId(1), sealed(1000, overhead)));
        assert_eq!(packet(Overhead::LinkLayer).wire_len(), 1000 - 20);
        assert_eq!(packet(Overhead::LinkLayer).class(), TrafficClass::Control);
        assert_eq!(segment(Ecn::NotEct).class(), TrafficClass::Bulk);
    }

    #[test]
    fn a_link_carries_the_headers_too() {
        assert_eq!(segment(Ecn::NotEct).wire_len(), 20 + 20 + 1000);
        let datagram =
            AppDatagram { app: 0, number: 0, sent_at: Instant::ZERO, len: 1000, dscp: 46 };
        for body in [PacketBody::Cbr(datagram), sealed(1000, Overhead::Tunnel)] {
            let packet = Box::new(SimulatedPacket::v4(NodeId(0), NodeId(1), body));
            assert_eq!(packet.wire_len(), 20 + 8 + 1000);
        }
    }

    /// ITU-R S.1711-1, 4.2: headers of 20 bytes, of 40, and of both in a tunnel.
    #[test]
    fn the_version_of_ip_decides_the_size_of_its_headers() {
        let mut packet = segment(Ecn::NotEct);
        for (ip, header) in
            [(IpVersion::Ipv4, 20), (IpVersion::Ipv6, 40), (IpVersion::Ipv6InIpv4, 60)]
        {
            packet.ip = ip;
            assert_eq!(packet.wire_len(), header + 20 + 1000);
        }
    }

    #[test]
    fn a_datagram_s_code_point_decides_its_class() {
        let class = |dscp| {
            let body = PacketBody::Cbr(AppDatagram {
                app: 0,
                number: 0,
                sent_at: Instant::ZERO,
                len: 1,
                dscp,
            });
            Box::new(SimulatedPacket::v4(NodeId(0), NodeId(1), body)).class()
        };
        let classes = [TrafficClass::Bulk, TrafficClass::Voice, TrafficClass::Stream];
        assert_eq!([0, 46, 34].map(class), classes);
    }

    /// RFC 3168 §5: a queue drops what it cannot mark.
    #[test]
    fn only_a_segment_of_an_ecn_capable_sender_is_marked() {
        for (before, after) in [
            (Ecn::NotEct, None),
            (Ecn::Ect0, Some(Ecn::Ce)),
            (Ecn::Ect1, Some(Ecn::Ce)),
            (Ecn::Ce, Some(Ecn::Ce)),
        ] {
            let mut packet = segment(before);
            assert_eq!(packet.mark_ce(), after.is_some());
            let PacketBody::Tcp { segment, .. } = packet.body else { unreachable!() };
            assert_eq!(segment.ecn, after.unwrap_or(before));
        }
        let body = sealed(100, Overhead::Tunnel);
        assert!(!Box::new(SimulatedPacket::v4(NodeId(0), NodeId(1), body)).mark_ce());
    }
}
