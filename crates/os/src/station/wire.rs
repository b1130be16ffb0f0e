//! The link-layer protocols of a station on Ethernet: its own IP packets, ARP (RFC 826) and
//! neighbour discovery (RFC 4861). No clock, no socket.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use etherparse::icmpv6::{Icmpv6PayloadSlice, NeighborAdvertisementHeader};
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, EtherType, Ethernet2Header, Icmpv6Header, Icmpv6Type, IpEcn,
    IpNumber, Ipv4Header, Ipv6Header, NetSlice, SlicedPacket, TransportSlice,
};

/// A hardware address on Ethernet.
pub(super) type Mac = [u8; 6];

const BROADCAST: Mac = [0xff; 6];
/// Maximum number of packets that wait for address resolution.
const WAITING: usize = 64;
/// Maximum number of resolved addresses remembered; beyond it all are resolved again.
const REMEMBERED: usize = 4096;
const HOP_LIMIT: u8 = 64;
/// RFC 4861 §7.1: packets with a lower hop limit do not come from a neighbour.
const NEIGHBOUR_HOP_LIMIT: u8 = 255;

/// The payload of an IP packet, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StationDatagram {
    /// Source address in the IP header.
    pub from: IpAddr,
    /// Destination address in the IP header.
    pub to: IpAddr,
    /// The IP protocol number; 6 is TCP.
    pub protocol: u8,
    /// The two ECN bits of the traffic class (RFC 3168 §5).
    pub ecn: u8,
    /// The bytes after the IP header.
    pub payload: Vec<u8>,
}

/// The link layer of one station.
#[derive(Debug)]
pub(super) struct StationWire {
    mac: Mac,
    addresses: Vec<IpAddr>,
    /// True if the wire has no address resolution (IFF_NOARP).
    direct: bool,
    /// Hardware addresses of neighbours, and of hosts behind them.
    known: BTreeMap<IpAddr, Mac>,
    /// Packets waiting for address resolution.
    waiting: VecDeque<(IpAddr, Vec<u8>)>,
    /// Frames to send, in order.
    pub(super) outbox: VecDeque<Vec<u8>>,
    /// The identification of the next IPv4 packet (RFC 6864: they may be
    /// fragmented).
    identification: u16,
}

impl StationWire {
    pub(super) fn new(addresses: &[IpAddr]) -> Self {
        Self {
            mac: station_of(addresses),
            addresses: addresses.to_vec(),
            direct: false,
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
            outbox: VecDeque::new(),
            identification: 0,
        }
    }

    /// Makes it the link layer of a wire without address resolution.
    pub(super) fn direct(self) -> Self {
        Self { direct: true, ..self }
    }

    /// Returns true if packets for `to` can leave without address resolution.
    pub(super) fn knows(&self, to: IpAddr) -> bool {
        self.direct || self.known.contains_key(&to)
    }

    /// Handles a received frame. Returns its datagram, if it is for us.
    pub(super) fn handle_frame(&mut self, frame: &[u8]) -> Option<StationDatagram> {
        let (ethernet, _) = Ethernet2Header::from_slice(frame).ok()?;
        if ethernet.source == self.mac {
            return None;
        }
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let net = packet.net.as_ref()?;
        let (from, to, ecn, hops) = match net {
            NetSlice::Arp(arp) => {
                self.handle_arp(&arp.to_packet().try_eth_ipv4().ok()?);
                return None;
            }
            NetSlice::Ipv4(v4) => {
                let header = v4.header();
                let from = header.source_addr().into();
                let to = header.destination_addr().into();
                (from, to, header.ecn().value(), header.ttl())
            }
            NetSlice::Ipv6(v6) => {
                let header = v6.header();
                let from = header.source_addr().into();
                let to = header.destination_addr().into();
                (from, to, header.traffic_class() & 0b11, header.hop_limit())
            }
        };
        if let Some(TransportSlice::Icmpv6(icmp)) = &packet.transport
            && hops == NEIGHBOUR_HOP_LIMIT
            && let Ok(payload) = icmp.payload_slice()
        {
            self.handle_neighbour(from, ethernet.source, &payload);
            return None;
        }
        if !self.addresses.contains(&to) {
            return None;
        }
        // Answers go back through the neighbour that delivered it, without address resolution.
        self.remember(from, ethernet.source);
        let payload = net.ip_payload_ref().filter(|payload| !payload.fragmented)?;
        let protocol = payload.ip_number.0;
        Some(StationDatagram { from, to, protocol, ecn, payload: payload.payload.to_vec() })
    }

    /// Sends a datagram through the neighbour `via`.
    pub(super) fn send(&mut self, datagram: &StationDatagram, via: IpAddr) {
        let Some(packet) = self.packet(datagram) else { return };
        let known = self.known.get(&datagram.to).or_else(|| self.known.get(&via)).copied();
        let known = if self.direct { Some(BROADCAST) } else { known };
        match known {
            Some(mac) => self.outbox.push_back(self.frame(mac, ether_type(datagram.to), &packet)),
            None => {
                // The oldest is dropped, as by the kernel, if a neighbour does not answer.
                if self.waiting.len() >= WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back((via, packet));
                self.request_address(via);
            }
        }
    }

    /// Builds the IP packet; `None` if it would be too long.
    fn packet(&mut self, datagram: &StationDatagram) -> Option<Vec<u8>> {
        let protocol = IpNumber(datagram.protocol);
        let payload = &datagram.payload;
        let ecn = IpEcn::try_new(datagram.ecn & 0b11).ok()?;
        let mut bytes = Vec::with_capacity(40 + payload.len());
        match (datagram.from, datagram.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let length = u16::try_from(payload.len()).ok()?;
                let header =
                    Ipv4Header::new(length, HOP_LIMIT, protocol, from.octets(), to.octets());
                let mut header = header.ok()?;
                header.ecn = ecn;
                // A router may fragment: path MTU discovery is not modelled.
                header.dont_fragment = false;
                header.identification = self.identification;
                self.identification = self.identification.wrapping_add(1);
                header.header_checksum = header.calc_header_checksum();
                bytes.extend_from_slice(&header.to_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let header = Ipv6Header {
                    traffic_class: ecn.value(),
                    payload_length: u16::try_from(payload.len()).ok()?,
                    next_header: protocol,
                    hop_limit: HOP_LIMIT,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv6Header::default()
                };
                bytes.extend_from_slice(&header.to_bytes());
            }
            _ => return None,
        }
        bytes.extend_from_slice(payload);
        Some(bytes)
    }

    fn frame(&self, to: Mac, ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
        let header = Ethernet2Header { source: self.mac, destination: to, ether_type };
        [&header.to_bytes()[..], payload].concat()
    }

    /// Sends a request for the hardware address of `address`.
    fn request_address(&mut self, address: IpAddr) {
        let own = self.addresses.iter().find(|own| own.is_ipv4() == address.is_ipv4());
        match (own.copied(), address) {
            (Some(IpAddr::V4(own)), IpAddr::V4(address)) => {
                self.send_arp(ArpOperation::REQUEST, own.octets(), [0; 6], address.octets());
            }
            (Some(IpAddr::V6(own)), IpAddr::V6(address)) => {
                let group = solicited_node(address);
                self.send_neighbour_message(
                    own,
                    group,
                    multicast(group),
                    address,
                    NeighbourMessage::Solicitation,
                );
            }
            _ => {}
        }
    }

    fn handle_arp(&mut self, arp: &ArpEthIpv4Packet) {
        let target = arp.target_ipv4_addr();
        if !self.addresses.contains(&target.into()) {
            return;
        }
        self.record_neighbour(arp.sender_ipv4_addr().into(), arp.sender_mac);
        if arp.operation == ArpOperation::REQUEST {
            let to = arp.sender_mac;
            let address = arp.sender_ipv4;
            self.send_arp(ArpOperation::REPLY, target.octets(), to, address);
        }
    }

    fn send_arp(&mut self, operation: ArpOperation, own: [u8; 4], to: Mac, target_ipv4: [u8; 4]) {
        let sender_mac = self.mac;
        let arp = ArpEthIpv4Packet {
            operation,
            sender_mac,
            sender_ipv4: own,
            target_mac: to,
            target_ipv4,
        };
        // A request goes to everyone: the address that it asks for is zero.
        let to = if to == [0; 6] { BROADCAST } else { to };
        self.outbox.push_back(self.frame(to, EtherType::ARP, &arp.to_bytes()));
    }

    /// Handles a neighbour solicitation or advertisement (RFC 4861 §7.2).
    fn handle_neighbour(&mut self, from: IpAddr, mac: Mac, payload: &Icmpv6PayloadSlice<'_>) {
        match (payload, from) {
            (Icmpv6PayloadSlice::NeighborSolicitation(question), IpAddr::V6(from)) => {
                let target = question.target_address();
                if self.addresses.contains(&target.into()) && !from.is_unspecified() {
                    self.record_neighbour(from.into(), mac);
                    self.send_neighbour_message(
                        target,
                        from,
                        mac,
                        target,
                        NeighbourMessage::Advertisement,
                    );
                }
            }
            (Icmpv6PayloadSlice::NeighborAdvertisement(answer), _) => {
                self.record_neighbour(answer.target_address().into(), mac);
            }
            _ => {}
        }
    }

    fn send_neighbour_message(
        &mut self,
        own: Ipv6Addr,
        to: Ipv6Addr,
        to_mac: Mac,
        target: Ipv6Addr,
        question: NeighbourMessage,
    ) {
        let (kind, option) = match question {
            NeighbourMessage::Solicitation => (Icmpv6Type::NeighborSolicitation, 1),
            NeighbourMessage::Advertisement => {
                let header = NeighborAdvertisementHeader {
                    router: false,
                    solicited: true,
                    r#override: true,
                };
                (Icmpv6Type::NeighborAdvertisement(header), 2)
            }
        };
        // The target, and our own link-layer address as an 8-byte option.
        let body = [&target.octets()[..], &[option, 1], &self.mac].concat();
        let own = own.octets();
        let to = to.octets();
        let Ok(icmp) = Icmpv6Header::with_checksum(kind, own, to, &body) else { return };
        let icmp = [&icmp.to_bytes()[..], &body].concat();
        let header = Ipv6Header {
            payload_length: icmp.len() as u16,
            next_header: IpNumber::IPV6_ICMP,
            hop_limit: NEIGHBOUR_HOP_LIMIT,
            source: own,
            destination: to,
            ..Ipv6Header::default()
        };
        let packet = [&header.to_bytes()[..], &icmp].concat();
        self.outbox.push_back(self.frame(to_mac, EtherType::IPV6, &packet));
    }

    /// Records a neighbour's hardware address and sends the packets that waited for it.
    fn record_neighbour(&mut self, address: IpAddr, mac: Mac) {
        self.remember(address, mac);
        let waiting = core::mem::take(&mut self.waiting);
        for (via, packet) in waiting {
            if via == address {
                self.outbox.push_back(self.frame(mac, ether_type(via), &packet));
            } else {
                self.waiting.push_back((via, packet));
            }
        }
    }

    fn remember(&mut self, address: IpAddr, mac: Mac) {
        if self.known.len() >= REMEMBERED && !self.known.contains_key(&address) {
            self.known.clear();
        }
        self.known.insert(address, mac);
    }
}

/// The kinds of neighbour messages (RFC 4861 §4.3, §4.4).
#[derive(Clone, Copy)]
enum NeighbourMessage {
    Solicitation,
    Advertisement,
}

/// Returns a locally administered hardware address, derived from the IP addresses.
fn station_of(addresses: &[IpAddr]) -> Mac {
    let [a, b, c, d] = match addresses.first() {
        Some(IpAddr::V4(address)) => address.octets(),
        Some(IpAddr::V6(address)) => {
            let bytes = address.octets();
            [bytes[12], bytes[13], bytes[14], bytes[15]]
        }
        None => [0; 4],
    };
    [0x02, 0x73, a, b, c, d]
}

fn ether_type(address: IpAddr) -> EtherType {
    if address.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 }
}

/// Returns the solicited-node multicast address (RFC 4291 §2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let tail = [0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c)];
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, tail[0], tail[1])
}

/// Returns the hardware address of a multicast group (RFC 2464 §7).
fn multicast(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [&str; 2] = ["10.1.0.102", "fd00:1::102"];
    const OTHER: [&str; 2] = ["10.1.0.1", "fd00:1::1"];

    fn wire(addresses: [&str; 2]) -> StationWire {
        StationWire::new(&addresses.map(|address| address.parse().unwrap()))
    }

    fn datagram(from: &str, to: &str, byte: u8) -> StationDatagram {
        let from = from.parse().unwrap();
        let to = to.parse().unwrap();
        // At least a header's worth of bytes: anything shorter is not TCP.
        let mut payload = vec![byte; 20];
        payload[12] = 5 << 4;
        StationDatagram { from, to, protocol: 6, ecn: 0b10, payload }
    }

    /// Exchanges frames until both are silent; returns what each received.
    fn talk(ends: &mut [StationWire; 2]) -> [Vec<StationDatagram>; 2] {
        let mut heard = [Vec::new(), Vec::new()];
        while ends.iter().any(|end| !end.outbox.is_empty()) {
            for from in [0, 1] {
                while let Some(frame) = ends[from].outbox.pop_front() {
                    heard[1 - from].extend(ends[1 - from].handle_frame(&frame));
                }
            }
        }
        heard
    }

    #[test]
    fn neighbours_find_each_other() {
        for (one, other) in ONE.into_iter().zip(OTHER) {
            let mut ends = [wire(ONE), wire(OTHER)];
            let sent = [datagram(one, other, 1), datagram(one, other, 2)];
            sent.iter().for_each(|datagram| ends[0].send(datagram, datagram.to));
            assert_eq!(talk(&mut ends), [vec![], sent.to_vec()], "{one}");
            // The answer needs no address resolution.
            let answer = datagram(other, one, 3);
            ends[1].send(&answer, answer.to);
            assert_eq!(ends[1].outbox.len(), 1);
            assert_eq!(talk(&mut ends), [vec![answer], vec![]], "{one}");
        }
    }

    #[test]
    fn packets_for_others_go_by_way_of_a_neighbour() {
        let mut ends = [wire(ONE), wire(OTHER)];
        let far = datagram(ONE[0], "10.2.0.2", 1);
        ends[0].send(&far, OTHER[0].parse().unwrap());
        // The neighbour receives it, but it is not addressed to the neighbour.
        assert_eq!(talk(&mut ends), [vec![], vec![]]);
        assert!(ends[0].knows(OTHER[0].parse().unwrap()) && !ends[0].knows(far.to));
    }

    #[test]
    fn questions_for_others_are_not_answered() {
        let mut ends = [wire(ONE), wire(OTHER)];
        for (own, other) in [("10.1.0.102", "10.1.0.9"), ("fd00:1::102", "fd00:1::9")] {
            ends[0].send(&datagram(own, other, 1), other.parse().unwrap());
            let question = ends[0].outbox.pop_front().unwrap();
            assert_eq!(ends[1].handle_frame(&question), None);
            assert!(ends[1].outbox.is_empty(), "{other}");
        }
    }

    #[test]
    fn few_packets_wait() {
        let mut end = wire(ONE);
        for _ in 0..10 * WAITING {
            end.send(&datagram(ONE[0], OTHER[0], 1), OTHER[0].parse().unwrap());
        }
        assert_eq!(end.waiting.len(), WAITING);
    }

    proptest::proptest! {
        #[test]
        fn foreign_bytes_do_no_harm(
            frame in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120),
            kind in 0usize..3,
        ) {
            let mut frame = frame;
            if frame.len() > 14 {
                let kinds = [[0x08, 0x00], [0x86, 0xdd], [0x08, 0x06]];
                frame[12..14].copy_from_slice(&kinds[kind]);
            }
            let mut end = wire(ONE);
            end.handle_frame(&frame);
            proptest::prop_assert!(end.outbox.len() <= 1);
        }
    }
}
