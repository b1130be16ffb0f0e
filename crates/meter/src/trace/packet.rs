//! From the bytes of a captured packet to its TCP segment.
//!
//! Not modelled: TCP inside tunnels (GRE, IP in IP, VXLAN) and in fragments of
//! IP packets, which are counted; checksums, which offloading leaves wrong in
//! captures of the sender's own machine.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TcpHeaderSlice};
use units::Instant;

use super::link_type::{LinkType, Network};
use super::segment::{Flags, Options, Segment};

const TCP: u8 = 6;
const TCP_HEADER_MIN: usize = 20;

/// What a packet holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A TCP segment.
    Tcp(Segment),
    /// Something else, which is no fault.
    Other,
    /// A part of an IP packet with TCP in it.
    Fragment,
    /// The capture has too little of it, or its headers contradict each other.
    Unreadable,
}

/// One packet of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// When it was captured, since 1970.
    pub time: Instant,
    /// Which interface of the file saw it.
    pub interface: u32,
    /// What its first bytes are.
    pub link: LinkType,
    /// The bytes that were kept.
    pub bytes: &'a [u8],
    /// The bytes that there were.
    pub length: u32,
}

impl Packet<'_> {
    /// Looks into it.
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
        // An IPv4 length of zero: the sender's machine left it to its network
        // card (TCP segmentation offload), or the packet is a jumbogram.
        let end = match ip.length {
            0 => self.length as usize,
            length => at(ip.header) + length,
        };
        let Some(on_wire) = end.checked_sub(at(ip.payload)) else { return Content::Unreadable };
        self.tcp(&ip, on_wire).map_or(Content::Unreadable, Content::Tcp)
    }

    /// The segment in an IP payload that had `on_wire` bytes.
    fn tcp(&self, ip: &Ip<'_>, on_wire: usize) -> Option<Segment> {
        let mut fixed = [0; TCP_HEADER_MIN];
        fixed.copy_from_slice(ip.payload.get(..TCP_HEADER_MIN)?);
        let header_length = usize::from(fixed[12] >> 4) * 4;
        // The options are read apart from it: they may be cut off.
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

/// What is needed of an IP packet.
struct Ip<'a> {
    from: IpAddr,
    to: IpAddr,
    header: &'a [u8],
    /// Of the whole packet as its header says; zero if it does not say.
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
