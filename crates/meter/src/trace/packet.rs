//! Extracts the TCP segment from a captured packet.
//!
//! Not modelled: TCP inside tunnels (GRE, IP in IP, VXLAN) and in IP fragments, which are counted;
//! checksums, which are wrong in captures on the sender's own machine because of offloading.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TcpHeaderSlice};
use units::Instant;

use super::link_type::{LinkType, Network};
use super::segment::{Flags, Options, Segment};

const TCP: u8 = 6;
const TCP_HEADER_MIN: usize = 20;

/// The contents of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A TCP segment.
    Tcp(Segment),
    /// Anything else; not an error.
    Other,
    /// A fragment of an IP packet with TCP.
    Fragment,
    /// Too little was captured, or the headers contradict each other.
    Unreadable,
}

/// A captured packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// When it was captured, since 1970.
    pub time: Instant,
    /// Index of the interface in the file.
    pub interface: u32,
    /// Its link-layer header type.
    pub link: LinkType,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// The original length in bytes.
    pub length: u32,
}

impl Packet<'_> {
    /// Parses the packet.
    pub fn content(&self) -> Content {
        let Some((network, rest)) = self.link.network(self.bytes) else {
            return Content::Unreadable;
        };
        let sliced = match network {
            Network::Ethernet => LaxSlicedPacket::from_ethernet(rest).ok(),
            Network::Ip => LaxSlicedPacket::from_ip(rest).ok(),
            Network::Type(ether_type) => {
                Some(LaxSlicedPacket::from_ether_type(EtherType(ether_type), rest))
            }
        };
        sliced.map_or(Content::Unreadable, |sliced| self.in_net(&sliced))
    }

    fn in_net(&self, sliced: &LaxSlicedPacket<'_>) -> Content {
        let Some(net) = &sliced.net else {
            return if sliced.stop_err.is_some() { Content::Unreadable } else { Content::Other };
        };
        let Some(ip) = Ip::of(net) else { return Content::Other };
        if ip.protocol != TCP {
            return Content::Other;
        }
        if ip.fragment {
            return Content::Fragment;
        }
        let at = |part: &[u8]| (part.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        // An IPv4 length of zero: the sender left it to its network card (TCP segmentation
        // offload), or the packet is a jumbogram.
        let end = match ip.length {
            0 => self.length as usize,
            length => at(ip.header) + length,
        };
        let Some(on_wire) = end.checked_sub(at(ip.payload)) else { return Content::Unreadable };
        self.tcp(&ip, on_wire).map_or(Content::Unreadable, Content::Tcp)
    }

    /// Parses the segment in an IP payload of `on_wire` bytes.
    fn tcp(&self, ip: &Ip<'_>, on_wire: usize) -> Option<Segment> {
        let mut fixed = [0; TCP_HEADER_MIN];
        fixed.copy_from_slice(ip.payload.get(..TCP_HEADER_MIN)?);
        let header_length = usize::from(fixed[12] >> 4) * 4;
        // The options are parsed separately, because they may be truncated.
        fixed[12] = (fixed[12] & 0x0f) | 0x50;
        let header = TcpHeaderSlice::from_slice(&fixed).ok()?;
        let length = on_wire.checked_sub(header_length.max(TCP_HEADER_MIN))?;
        let options_end = header_length.max(TCP_HEADER_MIN).min(ip.payload.len());
        Some(Segment {
            time: self.time,
            from: SocketAddr::new(ip.from, header.source_port()),
            to: SocketAddr::new(ip.to, header.destination_port()),
            sequence: header.sequence_number(),
            ack: header.ack().then(|| header.acknowledgment_number()),
            window: header.window_size(),
            flags: Flags { syn: header.syn(), fin: header.fin(), rst: header.rst() },
            length: u32::try_from(length).ok()?,
            options: Options::read(&ip.payload[TCP_HEADER_MIN..options_end]),
        })
    }
}

/// The relevant parts of an IP packet.
struct Ip<'a> {
    from: IpAddr,
    to: IpAddr,
    header: &'a [u8],
    /// Length of the whole packet according to its header; zero if the header does not say.
    length: usize,
    payload: &'a [u8],
    protocol: u8,
    fragment: bool,
}

impl<'a> Ip<'a> {
    fn of(net: &'a LaxNetSlice<'_>) -> Option<Self> {
        let payload = net.ip_payload_ref()?;
        let (protocol, fragment) = (payload.ip_number.0, payload.fragmented);
        let (from, to, header, length) = match net {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                let addresses = (header.source_addr().into(), header.destination_addr().into());
                (addresses.0, addresses.1, header.slice(), usize::from(header.total_len()))
            }
            LaxNetSlice::Ipv6(ip) => {
                let header = ip.header();
                let length = match usize::from(header.payload_length()) {
                    0 => 0,
                    length => length + header.slice().len(),
                };
                let addresses = (header.source_addr().into(), header.destination_addr().into());
                (addresses.0, addresses.1, header.slice(), length)
            }
            LaxNetSlice::Arp(_) => return None,
        };
        Some(Self { from, to, header, length, payload: payload.payload, protocol, fragment })
    }
}
