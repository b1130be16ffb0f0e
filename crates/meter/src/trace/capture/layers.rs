//! Removes the headers around a TCP segment: the link layer's, and those of tunnels.
//!
//! Understood are VLAN tags, MPLS, PPP and PPPoE, IP in IP, 6in4, GRE (also with Ethernet, PPP and
//! ERSPAN), and the UDP tunnels VXLAN, Geneve and GTP-U. Not modelled: fragments are not
//! reassembled, and encrypted or compressed packets are not opened.

use core::fmt;

use etherparse::{IpNumber, LaxIpSlice};

use super::link_type::LinkType;

/// Maximum number of headers around a segment.
const LAYERS_MAX: usize = 32;
const TCP: u8 = 6;

/// A header, and everything behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer<'a> {
    /// An Ethernet frame, from its addresses on.
    Ethernet(&'a [u8]),
    /// A packet of the given EtherType.
    Type(u16, &'a [u8]),
    /// An IPv4 or IPv6 packet.
    Ip(&'a [u8]),
    /// A PPP frame, from its protocol field on or with the address field before it.
    Ppp(&'a [u8]),
    /// A PPPoE packet of a session.
    Session(&'a [u8]),
}

/// The network protocol of a packet that is not analysed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// The number of an IP protocol.
    Ip(u8),
    /// An EtherType that is not understood.
    EtherType(u16),
    /// The number of a PPP protocol.
    Ppp(u16),
    /// An Ethernet frame with a length instead of a type.
    Llc,
    /// An MPLS payload that is neither IP nor Ethernet.
    Mpls,
    /// More than 32 headers around each other.
    Layers,
}

/// The reason why a packet has no segment to analyse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSegment {
    /// The packet is of another protocol.
    Other(Protocol),
    /// A fragment of a packet with TCP or a tunnel.
    Fragment,
    /// Too little was captured, or the headers contradict each other.
    Unreadable,
}

/// A digest of the place where a packet was captured: link-layer addresses, tags, and the ends of
/// tunnels. The same packet has another one behind the next router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturePlace(u64);

impl Default for CapturePlace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl CapturePlace {
    /// Adds a field (FNV-1a; <http://www.isthe.com/chongo/tech/comp/fnv/>).
    pub(crate) fn add(&mut self, field: &[u8]) {
        for byte in field {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The innermost IP packet, which holds a TCP segment.
pub(crate) struct InnerPacket<'a> {
    pub(crate) ip: LaxIpSlice<'a>,
    pub(crate) place: CapturePlace,
}

/// Removes all headers before the IP packet with TCP.
pub(crate) fn strip_headers(link: LinkType, bytes: &[u8]) -> Result<InnerPacket<'_>, NoSegment> {
    let mut place = CapturePlace::default();
    let mut layer = link.first(bytes, &mut place).ok_or(NoSegment::Unreadable)?;
    // UDP ports are only a hint: what does not look like the tunnel is plain UDP.
    let mut guessed = false;
    for _ in 0..LAYERS_MAX {
        let next = match layer {
            Layer::Ip(packet) => match ip(packet, &mut place) {
                Ok(IpContent::Tcp(ip)) => return Ok(InnerPacket { ip, place }),
                Ok(IpContent::Layer(layer)) => Ok(layer),
                Ok(IpContent::Guess(layer)) => {
                    guessed = true;
                    Ok(layer)
                }
                Err(closed) => Err(closed),
            },
            Layer::Ethernet(frame) => ethernet(frame, &mut place),
            Layer::Type(ether_type, rest) => by_ether_type(ether_type, rest, &mut place),
            Layer::Ppp(frame) => ppp(frame),
            Layer::Session(packet) => session(packet, &mut place),
        };
        layer = match next {
            Err(NoSegment::Unreadable) if guessed => {
                return Err(NoSegment::Other(Protocol::Ip(IpNumber::UDP.0)));
            }
            next => next?,
        };
    }
    Err(NoSegment::Other(Protocol::Layers))
}

/// The contents of an IP packet.
enum IpContent<'a> {
    Tcp(LaxIpSlice<'a>),
    Layer(Layer<'a>),
    /// A layer, if the UDP port is not used for something else.
    Guess(Layer<'a>),
}

fn ethernet<'a>(frame: &'a [u8], place: &mut CapturePlace) -> Result<Layer<'a>, NoSegment> {
    let (addresses, rest) = split_at(frame, 12)?;
    place.add(addresses);
    let (ether_type, rest) = number(rest)?;
    match (ether_type, rest) {
        (0x0600.., rest) => Ok(Layer::Type(ether_type, rest)),
        // IEEE 802 SNAP with an EtherType (RFC 1042).
        (_, &[0xaa, 0xaa, 3, 0, 0, 0, high, low, ref rest @ ..]) => {
            Ok(Layer::Type(u16::from_be_bytes([high, low]), rest))
        }
        _ => Err(NoSegment::Other(Protocol::Llc)),
    }
}

fn by_ether_type<'a>(
    ether_type: u16,
    rest: &'a [u8],
    place: &mut CapturePlace,
) -> Result<Layer<'a>, NoSegment> {
    match ether_type {
        0x0800 | 0x86dd => Ok(Layer::Ip(rest)),
        // IEEE 802.1Q and 802.1ad, and their older numbers.
        0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
            let (tag, rest) = split_at(rest, 2)?;
            // The VLAN belongs to the place, its priority does not.
            place.add(&[tag[0] & 0x0f, tag[1]]);
            let (ether_type, rest) = number(rest)?;
            Ok(Layer::Type(ether_type, rest))
        }
        0x8847 | 0x8848 => mpls(rest, place),
        0x8864 => Ok(Layer::Session(rest)),
        0x6558 => Ok(Layer::Ethernet(rest)),
        other => Err(NoSegment::Other(Protocol::EtherType(other))),
    }
}

/// Removes MPLS labels (RFC 3032 §2.1). The first four bits behind them show what follows (RFC 4928
/// §3).
fn mpls<'a>(mut rest: &'a [u8], place: &mut CapturePlace) -> Result<Layer<'a>, NoSegment> {
    loop {
        let (entry, behind) = split_at(rest, 4)?;
        place.add(&[entry[0], entry[1], entry[2] & 0xf0]);
        rest = behind;
        if entry[2] & 1 == 1 {
            break;
        }
    }
    match rest.first().map(|byte| byte >> 4) {
        Some(4 | 6) => Ok(Layer::Ip(rest)),
        // The control word of an Ethernet pseudowire (RFC 4448 §4.6).
        Some(0) => Ok(Layer::Ethernet(split_at(rest, 4)?.1)),
        Some(_) => Err(NoSegment::Other(Protocol::Mpls)),
        None => Err(NoSegment::Unreadable),
    }
}

/// Removes the header of a PPPoE session (RFC 2516 §4).
fn session<'a>(packet: &'a [u8], place: &mut CapturePlace) -> Result<Layer<'a>, NoSegment> {
    let (head, rest) = split_at(packet, 6)?;
    place.add(&head[2..4]);
    if head[0] == 0x11 && head[1] == 0 { Ok(Layer::Ppp(rest)) } else { Err(NoSegment::Unreadable) }
}

/// Removes the header of a PPP frame (RFC 1661 §2), and the address field if present (RFC 1662
/// §3.1).
fn ppp(frame: &[u8]) -> Result<Layer<'_>, NoSegment> {
    let frame = frame.strip_prefix(&[0xff, 0x03]).unwrap_or(frame);
    let (protocol, rest) = match frame {
        // A compressed protocol field (RFC 1661 §6.5): only its last byte is odd.
        &[low, ref rest @ ..] if low & 1 == 1 => (low.into(), rest),
        _ => number(frame)?,
    };
    match protocol {
        0x0021 | 0x0057 => Ok(Layer::Ip(rest)),
        0x0281 | 0x0283 => Ok(Layer::Type(0x8847, rest)),
        other => Err(NoSegment::Other(Protocol::Ppp(other))),
    }
}

fn ip<'a>(packet: &'a [u8], place: &mut CapturePlace) -> Result<IpContent<'a>, NoSegment> {
    // Lax, because captures may cut packets short.
    let (ip, _) = LaxIpSlice::from_slice(packet).map_err(|_| NoSegment::Unreadable)?;
    let payload = ip.payload();
    let number = payload.ip_number;
    let rest = payload.payload;
    let other = NoSegment::Other(Protocol::Ip(number.0));
    if number.0 == TCP {
        return if payload.fragmented { Err(NoSegment::Fragment) } else { Ok(IpContent::Tcp(ip)) };
    }
    let next = match number {
        IpNumber::IPV4 | IpNumber::IPV6 => IpContent::Layer(Layer::Ip(rest)),
        IpNumber::GRE if payload.fragmented => return Err(NoSegment::Fragment),
        IpNumber::GRE => IpContent::Layer(gre(rest).ok_or(other)??),
        IpNumber::UDP => match udp(rest) {
            Some(_) if payload.fragmented => return Err(NoSegment::Fragment),
            tunnel => IpContent::Guess(tunnel.ok_or(other)?),
        },
        _ => return Err(other),
    };
    if payload.fragmented {
        return Err(NoSegment::Fragment);
    }
    // The outer addresses belong to the place: a packet in two tunnels was seen at two places.
    match &ip {
        LaxIpSlice::Ipv4(ip) => place.add(&ip.header().slice()[12..20]),
        LaxIpSlice::Ipv6(ip) => place.add(&ip.header().slice()[8..40]),
    }
    Ok(next)
}

/// Removes a GRE header (RFC 2784 and 2890), or that of PPTP (version 1, RFC 2637 §4.1); `None` if
/// it is not understood.
fn gre(packet: &[u8]) -> Option<Result<Layer<'_>, NoSegment>> {
    let Ok((flags, rest)) = number(packet) else { return Some(Err(NoSegment::Unreadable)) };
    let Ok((protocol, rest)) = number(rest) else { return Some(Err(NoSegment::Unreadable)) };
    let version = flags & 7;
    let present = |flag: u16| usize::from(flags & flag != 0);
    // Checksum, key, sequence number and, in version 1, acknowledgement.
    let fields = present(0x8000) + present(0x2000) + present(0x1000);
    if version > 1 || flags & 0x4000 != 0 {
        return None;
    }
    let behind = 4 * if version == 1 { fields + present(0x0080) } else { fields };
    let Some(rest) = rest.get(behind..) else { return Some(Err(NoSegment::Unreadable)) };
    match (version, protocol) {
        (1, 0x880b) if present(0x1000) == 1 => Some(Ok(Layer::Ppp(rest))),
        (1, _) => None,
        // ERSPAN types I and II (draft-foschiano-erspan §4).
        (_, 0x88be) => {
            let header = 8 * present(0x1000);
            Some(rest.get(header..).map(Layer::Ethernet).ok_or(NoSegment::Unreadable))
        }
        (_, protocol) => Some(Ok(Layer::Type(protocol, rest))),
    }
}

/// Returns the layer in a UDP packet to the port of a tunnel, if its head is that of one.
fn udp(packet: &[u8]) -> Option<Layer<'_>> {
    let port = u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]);
    let rest = packet.get(8..)?;
    match (port, rest) {
        // VXLAN (RFC 7348 §5), also at the port that Linux used first.
        (4789 | 8472, &[0x08, 0, 0, 0, _, _, _, 0, ref rest @ ..]) => Some(Layer::Ethernet(rest)),
        // Geneve (RFC 8926 §3.4), version 0.
        (6081, &[options @ 0..0x40, _, high, low, _, _, _, 0, ref rest @ ..]) => {
            let rest = rest.get(usize::from(options) * 4..)?;
            Some(Layer::Type(u16::from_be_bytes([high, low]), rest))
        }
        // GTP-U (3GPP TS 29.281 §5.1): version 1, a G-PDU.
        (2152, &[flags @ 0x30..0x38, 0xff, _, _, _, _, _, _, ref rest @ ..]) => gtp(flags, rest),
        _ => None,
    }
}

/// Returns the packet behind GTP-U's optional fields and extension headers (§5.2).
fn gtp(flags: u8, rest: &[u8]) -> Option<Layer<'_>> {
    if flags & 7 == 0 {
        return Some(Layer::Ip(rest));
    }
    let mut kind = *rest.get(3)?;
    let mut rest = rest.get(4..)?;
    // Without the E flag the type of the next header means nothing.
    if flags & 4 == 0 {
        kind = 0;
    }
    while kind != 0 {
        // In units of four bytes; a length of zero would never end.
        let length = usize::from(*rest.first()?) * 4;
        kind = *rest.get(length.checked_sub(1)?)?;
        rest = rest.get(length..)?;
    }
    Some(Layer::Ip(rest))
}

fn split_at(bytes: &[u8], at: usize) -> Result<(&[u8], &[u8]), NoSegment> {
    bytes.split_at_checked(at).ok_or(NoSegment::Unreadable)
}

fn number(bytes: &[u8]) -> Result<(u16, &[u8]), NoSegment> {
    let (number, rest) = split_at(bytes, 2)?;
    Ok((u16::from_be_bytes([number[0], number[1]]), rest))
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::Ip(1) | Self::Ip(58) => "ICMP",
            Self::Ip(2) => "IGMP",
            Self::Ip(17) => "UDP",
            Self::Ip(50) => "ESP (encrypted)",
            Self::Ip(132) => "SCTP",
            Self::Ip(other) => return write!(f, "IP protocol {other}"),
            Self::EtherType(0x0806) => "ARP",
            Self::EtherType(0x8863) => "PPPoE discovery",
            Self::EtherType(0x88cc) => "LLDP",
            Self::EtherType(0x88e5) => "MACsec (encrypted)",
            Self::EtherType(other) => return write!(f, "EtherType {other:#06x}"),
            Self::Ppp(other) => return write!(f, "PPP protocol {other:#06x}"),
            Self::Llc => "802.3 LLC",
            Self::Mpls => "MPLS without IP or Ethernet",
            Self::Layers => return write!(f, "more than {LAYERS_MAX} headers"),
        };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet from 10.0.0.1 to 10.0.0.2.
    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = (20 + payload.len() as u16).to_be_bytes();
        let mut packet = vec![0x45, 0, length[0], length[1], 0, 1, 0, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(payload);
        packet
    }

    fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u16).to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
        packet.extend([0xfd; 32]);
        packet.extend(payload);
        packet
    }

    fn udp_to(port: u16, payload: &[u8]) -> Vec<u8> {
        let head = [&[0xc0, 0][..], &port.to_be_bytes(), &[0; 4]].concat();
        ipv4(17, &[&head[..], payload].concat())
    }

    fn frame(rest: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], rest].concat()
    }

    fn closed(link: LinkType, bytes: &[u8]) -> Option<NoSegment> {
        strip_headers(link, bytes).err()
    }

    #[test]
    fn a_segment_is_found_in_every_tunnel() {
        let tcp = ipv4(6, &[0; 20]);
        let inner = frame(&[&[8, 0][..], &tcp].concat());
        let with = |head: &[u8]| [head, &tcp].concat();
        let carrying = |head: &[u8]| [head, &inner].concat();
        for (name, packet) in [
            ("plain", with(&[8, 0])),
            ("VLAN in VLAN", with(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x81, 0, 0, 7, 8, 0])),
            ("SNAP", with(&[0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0])),
            ("MPLS", with(&[0x88, 0x47, 0, 0, 0x10, 9, 0, 0, 0x21, 9])),
            ("pseudowire", carrying(&[0x88, 0x47, 0, 0, 0x11, 9, 0, 0, 0, 0])),
            ("PPPoE", with(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 0x21])),
            ("IP in IP", [&[8, 0][..], &ipv4(4, &tcp)].concat()),
            ("6in4", [&[8, 0][..], &ipv4(41, &ipv6(6, &[0; 20]))].concat()),
            ("4in6", [&[0x86, 0xdd][..], &ipv6(4, &tcp)].concat()),
            ("GRE", [&[8, 0][..], &ipv4(47, &with(&[0, 0, 8, 0]))].concat()),
            (
                "GRE with key",
                [&[8, 0][..], &ipv4(47, &with(&[0x20, 0, 8, 0, 0, 0, 0, 1]))].concat(),
            ),
            ("GRE tap", [&[8, 0][..], &ipv4(47, &carrying(&[0, 0, 0x65, 0x58]))].concat()),
            (
                "ERSPAN",
                [
                    &[8, 0][..],
                    &ipv4(
                        47,
                        &carrying(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
                    ),
                ]
                .concat(),
            ),
            (
                "PPTP",
                [
                    &[8, 0][..],
                    &ipv4(47, &with(&[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0, 0, 0, 0, 1, 0x21])),
                ]
                .concat(),
            ),
            ("VXLAN", [&[8, 0][..], &udp_to(4789, &carrying(&[8, 0, 0, 0, 0, 0, 1, 0]))].concat()),
            (
                "Geneve",
                [
                    &[8, 0][..],
                    &udp_to(6081, &carrying(&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 9, 9, 9, 9])),
                ]
                .concat(),
            ),
            (
                "GTP-U",
                [&[8, 0][..], &udp_to(2152, &with(&[0x30, 0xff, 0, 40, 0, 0, 0, 1]))].concat(),
            ),
            (
                "GTP-U, 5G",
                [
                    &[8, 0][..],
                    &udp_to(
                        2152,
                        &with(&[0x34, 0xff, 0, 48, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0]),
                    ),
                ]
                .concat(),
            ),
        ] {
            let packet = frame(&packet);
            assert_eq!(closed(LinkType::Ethernet, &packet), None, "{name}");
            // Cut short anywhere, it is no other segment, and nothing panics.
            for end in 0..packet.len() {
                if let Ok(found) = strip_headers(LinkType::Ethernet, &packet[..end]) {
                    assert!(found.ip.payload().payload.len() < 20, "{name} cut to {end}");
                }
            }
        }
    }

    #[test]
    fn what_is_left_out_is_named() {
        let of_ip = |protocol| closed(LinkType::Raw, &ipv4(protocol, &[0; 40])).unwrap();
        let named = |closed| match closed {
            NoSegment::Other(protocol) => protocol.to_string(),
            closed => format!("{closed:?}"),
        };
        assert_eq!(named(of_ip(17)), "UDP");
        assert_eq!(named(of_ip(50)), "ESP (encrypted)");
        assert_eq!(named(of_ip(89)), "IP protocol 89");
        let of_type = |high, low| closed(LinkType::Ethernet, &frame(&[high, low, 0, 0])).unwrap();
        assert_eq!(named(of_type(0x08, 0x06)), "ARP");
        assert_eq!(named(of_type(0x12, 0x34)), "EtherType 0x1234");
        assert_eq!(named(of_type(0, 38)), "802.3 LLC");
        // A query of a name to the port of VXLAN is UDP; a fragment of a tunnel may hold TCP.
        assert_eq!(named(closed(LinkType::Raw, &udp_to(4789, &[0; 30])).unwrap()), "UDP");
        let looks = udp_to(2152, &[0x30, 0xff, 0, 40, 0, 0, 0, 1, 1, 2, 3]);
        assert_eq!(named(closed(LinkType::Raw, &looks).unwrap()), "UDP");
        let mut fragment = ipv4(47, &[0, 0, 8, 0]);
        fragment[6] = 0x20;
        assert_eq!(closed(LinkType::Raw, &fragment), Some(NoSegment::Fragment));
        let deep = (0..40).fold(ipv4(6, &[0; 20]), |packet, _| ipv4(4, &packet));
        assert_eq!(closed(LinkType::Raw, &deep), Some(NoSegment::Other(Protocol::Layers)));
    }

    #[test]
    fn a_place_is_told_by_addresses_and_tags() {
        let tcp = ipv4(6, &[0; 20]);
        let place = |vlan: u8| {
            let tagged = frame(&[&[0x81, 0, 0, vlan, 8, 0][..], &tcp].concat());
            strip_headers(LinkType::Ethernet, &tagged).ok().unwrap().place
        };
        assert_eq!(place(10), place(10));
        assert_ne!(place(10), place(20));
        let cooked = |kind: u8| {
            let packet = [&[0, kind, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &tcp].concat();
            strip_headers(LinkType::Cooked1, &packet).ok().unwrap().place
        };
        assert_ne!(cooked(0), cooked(4));
    }
}
