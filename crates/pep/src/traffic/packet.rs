//! Parses the IP packets that a gateway carries whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ports::{TCP, UDP};

/// IPv6 extension headers to skip (RFC 8200 §4): hop-by-hop options, routing, destination options. Each
/// contains its own length.
const SKIPPED: [u8; 3] = [0, 43, 60];
const FRAGMENT: u8 = 44;
/// Longest chain of extension headers that is followed. Ordinary packets have fewer.
const MOST_EXTENSIONS: usize = 8;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// Fields by which an IP packet is classified and routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Source address in the IP header.
    pub source: IpAddr,
    /// Destination address, before any routing header.
    pub destination: IpAddr,
    /// DSCP (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Protocol after all extension headers (IANA number).
    pub protocol: u8,
    /// Source and destination port of TCP and UDP; `None` in all fragments but the first.
    pub ports: Option<[u16; 2]>,
    /// The fragment that it is; `None` for a whole packet.
    pub fragment: Option<PacketFragment>,
}

/// A fragment of a packet (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketFragment {
    /// Identification that all fragments of the packet share.
    pub id: u32,
    /// `true` if it is the first fragment.
    pub is_first: bool,
}

impl Packet {
    /// Parses the headers; `None` if it is not an IP packet.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => v4(bytes),
            6 => v6(bytes),
            _ => None,
        }
    }

    /// Returns `true` if routers forward a packet with these addresses: unicast, and not link-local.
    pub fn is_routable(&self) -> bool {
        [self.source, self.destination].into_iter().all(|address| match address {
            IpAddr::V4(v4) => {
                let local = v4.is_loopback() || v4.is_link_local();
                !(local || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast())
            }
            IpAddr::V6(v6) => {
                let local = v6.is_loopback() || v6.is_unicast_link_local();
                !(local || v6.is_unspecified() || v6.is_multicast())
            }
        })
    }
}

fn v4(bytes: &[u8]) -> Option<Packet> {
    let header = bytes.first_chunk::<V4_HEADER>()?;
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]))
    };
    let protocol = header[9];
    // Identification, then the fragment offset with its flags (RFC 791 §3.1).
    let [id, part] = [4, 6].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    let is_first = part & 0x1fff == 0;
    let is_last = part & 0x2000 == 0;
    // Later fragments begin with data, not with ports.
    let payload = bytes.get(usize::from(header[0] & 0x0f) * 4..).filter(|_| is_first);
    Some(Packet {
        source: address(12),
        destination: address(16),
        dscp: header[1] >> 2,
        protocol,
        ports: ports(protocol, payload),
        fragment: (!(is_first && is_last)).then_some(PacketFragment { id: id.into(), is_first }),
    })
}

fn v6(bytes: &[u8]) -> Option<Packet> {
    let header = bytes.first_chunk::<V6_HEADER>()?;
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|offset| header[at + offset]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let (protocol, payload, fragment) = behind_extensions(header[6], bytes.get(V6_HEADER..));
    Some(Packet {
        source: address(8),
        destination: address(24),
        // The traffic class straddles two bytes (RFC 8200 §3); the DSCP is its upper six bits.
        dscp: (header[0] << 2 | header[1] >> 6) & 0x3f,
        protocol,
        ports: ports(protocol, payload),
        fragment,
    })
}

/// The protocol after the extension headers, the part of its payload that is present, and the fragment.
fn behind_extensions(
    mut next: u8,
    mut payload: Option<&[u8]>,
) -> (u8, Option<&[u8]>, Option<PacketFragment>) {
    let mut fragment = None;
    for _ in 0..MOST_EXTENSIONS {
        let Some(head) = payload.and_then(|payload| payload.first_chunk::<8>()) else { break };
        let length = match next {
            FRAGMENT => {
                let part = u16::from_be_bytes([head[2], head[3]]);
                let id = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                // Fragment offset and flag M (RFC 8200 §4.5).
                let is_first = part & !0x7 == 0;
                let is_last = part & 1 == 0;
                fragment = (!(is_first && is_last)).then_some(PacketFragment { id, is_first });
                // What follows are data from the middle of the packet, not headers.
                if !is_first {
                    return (head[0], None, fragment);
                }
                8
            }
            _ if SKIPPED.contains(&next) => 8 * (usize::from(head[1]) + 1),
            _ => break,
        };
        next = head[0];
        payload = payload.and_then(|payload| payload.get(length..));
    }
    (next, payload, fragment)
}

fn ports(protocol: u8, payload: Option<&[u8]>) -> Option<[u16; 2]> {
    let [a, b, c, d] = *payload.filter(|_| matches!(protocol, TCP | UDP))?.first_chunk::<4>()?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A UDP packet with 8 bytes of payload.
    pub(in crate::traffic) fn udp(
        source: &str,
        destination: &str,
        dscp: u8,
        ports: [u16; 2],
    ) -> Vec<u8> {
        let mut packet = match (source.parse().unwrap(), destination.parse().unwrap()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = vec![0x45, dscp << 2, 0, 28, 0, 0, 0, 0, 64, UDP, 0, 0];
                header.extend([source.octets(), destination.octets()].concat());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = vec![0x60 | dscp >> 2, dscp << 6, 0, 0, 0, 8, UDP, 64];
                header.extend([source.octets(), destination.octets()].concat());
                header
            }
            _ => panic!("{source} and {destination} are of two versions"),
        };
        packet.extend(ports.map(u16::to_be_bytes).concat());
        packet.extend([0, 8, 0, 0]);
        packet
    }

    #[test]
    fn both_versions_are_read() {
        for (source, destination) in [("10.1.0.2", "192.0.2.7"), ("fd00:1::2", "2001:db8::7")] {
            let packet = Packet::parse(&udp(source, destination, 46, [5000, 53])).unwrap();
            let addresses: [IpAddr; 2] = [source, destination].map(|text| text.parse().unwrap());
            assert_eq!([packet.source, packet.destination], addresses);
            assert_eq!((packet.dscp, packet.protocol), (46, UDP));
            assert_eq!(packet.ports, Some([5000, 53]));
            assert!(packet.is_routable());
        }
    }

    #[test]
    fn ports_stand_behind_options_and_not_in_later_fragments() {
        let mut options = udp("10.1.0.2", "192.0.2.7", 0, [1, 2]);
        options[0] = 0x46;
        options.splice(20..20, [1, 1, 1, 0]);
        let whole = Packet::parse(&options).unwrap();
        assert_eq!((whole.ports, whole.fragment), (Some([1, 2]), None));
        (options[5], options[6]) = (3, 0x20);
        let first = Packet::parse(&options).unwrap();
        assert_eq!(first.fragment, Some(PacketFragment { id: 3, is_first: true }));
        assert_eq!(first.ports, Some([1, 2]));
        (options[6], options[7]) = (0, 9);
        let last = Packet::parse(&options).unwrap();
        assert_eq!(
            (last.ports, last.fragment),
            (None, Some(PacketFragment { id: 3, is_first: false }))
        );

        let mut extended = udp("fd00:1::2", "fd00:2::2", 0, [1, 2]);
        extended[6] = 0;
        extended.splice(40..40, [FRAGMENT, 0, 0, 0, 0, 0, 0, 0, UDP, 0, 0, 1, 0, 0, 0, 7]);
        let first = Packet::parse(&extended).unwrap();
        assert_eq!((first.protocol, first.ports), (UDP, Some([1, 2])));
        assert_eq!(first.fragment, Some(PacketFragment { id: 7, is_first: true }));
        extended[51] = 0;
        assert_eq!(Packet::parse(&extended).unwrap().fragment, None, "an atomic one (RFC 6946)");
        extended[50] = 5;
        let later = Packet::parse(&extended).unwrap();
        assert_eq!((later.protocol, later.ports), (UDP, None));
        assert_eq!(later.fragment, Some(PacketFragment { id: 7, is_first: false }));
    }

    #[test]
    fn what_no_router_passes_on_is_known() {
        for (source, destination) in [
            ("10.1.0.2", "224.0.0.1"),
            ("0.0.0.0", "255.255.255.255"),
            ("169.254.1.1", "10.0.0.1"),
            ("10.0.0.1", "127.0.0.1"),
            ("fe80::1", "ff02::2"),
            ("::", "fd00::1"),
            ("fd00::1", "::1"),
        ] {
            let packet = Packet::parse(&udp(source, destination, 0, [1, 2])).unwrap();
            assert!(!packet.is_routable(), "{packet:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..120), v6: bool) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0x0f };
            }
            let shortest = if v6 { V6_HEADER } else { V4_HEADER };
            prop_assert_eq!(Packet::parse(&bytes).is_some(), bytes.len() >= shortest);
        }
    }
}
