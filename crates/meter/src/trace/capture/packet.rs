//! Extracts the TCP segment from a captured packet.
//!
//! Not modelled: TCP in IP fragments, which are counted; checksums, which are wrong in captures on
//! the sender's own machine because of offloading.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use etherparse::{LaxIpSlice, TcpHeaderSlice};
use units::Instant;

use super::layers::{self, InnerPacket, NoSegment, Protocol};
use super::link_type::LinkType;
use super::segment::{CapturedSegment, SegmentFlags, SegmentOptions, Sighting};

const TCP_HEADER_MIN: usize = 20;

/// The contents of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketContent {
    /// A TCP segment, possibly with truncated payload.
    Tcp(CapturedSegment),
    /// Another protocol; not an error.
    Other(Protocol),
    /// A fragment of an IP packet with TCP or a tunnel.
    Fragment,
    /// Too little was captured, or the headers contradict each other.
    Unreadable,
}

/// A packet as captured, from the link layer on.
#[derive(Debug, Clone, Copy)]
pub struct CapturedPacket<'a> {
    /// Capture time since 1970; `None` if the file does not say.
    pub time: Option<Instant>,
    /// Index of the interface in the file.
    pub interface: u32,
    /// Type of its link-layer header.
    pub link: LinkType,
    /// The captured bytes, which may be fewer than `length`.
    pub bytes: &'a [u8],
    /// The original length in bytes.
    pub length: u32,
}

impl CapturedPacket<'_> {
    /// Removes all headers and parses the TCP segment.
    pub fn content(&self) -> PacketContent {
        match layers::strip_headers(self.link, self.bytes) {
            Ok(found) => self.in_ip(&found).map_or(PacketContent::Unreadable, PacketContent::Tcp),
            Err(NoSegment::Other(protocol)) => PacketContent::Other(protocol),
            Err(NoSegment::Fragment) => PacketContent::Fragment,
            Err(NoSegment::Unreadable) => PacketContent::Unreadable,
        }
    }

    fn in_ip(&self, found: &InnerPacket<'_>) -> Option<CapturedSegment> {
        let ip = IpPacket::of(found);
        let at = |part: &[u8]| (part.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        // An IPv4 length of zero: the sender left it to its network card (TCP segmentation
        // offload), or the packet is a jumbogram.
        let end = match ip.length {
            0 => self.length as usize,
            length => at(ip.header) + length,
        };
        self.tcp(&ip, end.checked_sub(at(ip.payload))?)
    }

    /// Parses the segment in an IP payload of `on_wire` bytes.
    fn tcp(&self, ip: &IpPacket<'_>, on_wire: usize) -> Option<CapturedSegment> {
        let mut fixed = [0; TCP_HEADER_MIN];
        fixed.copy_from_slice(ip.payload.get(..TCP_HEADER_MIN)?);
        let header_length = usize::from(fixed[12] >> 4) * 4;
        // The options are parsed separately, because they may be truncated.
        fixed[12] = (fixed[12] & 0x0f) | 0x50;
        let header = TcpHeaderSlice::from_slice(&fixed).ok()?;
        let length = on_wire.checked_sub(header_length.max(TCP_HEADER_MIN))?;
        let options_end = header_length.max(TCP_HEADER_MIN).min(ip.payload.len());
        Some(CapturedSegment {
            time: self.time.unwrap_or_default(),
            timed: self.time.is_some(),
            sighting: ip.sighting,
            from: SocketAddr::new(ip.from, header.source_port()),
            to: SocketAddr::new(ip.to, header.destination_port()),
            sequence: header.sequence_number(),
            ack: header.ack().then(|| header.acknowledgment_number()),
            window: header.window_size(),
            flags: SegmentFlags { syn: header.syn(), fin: header.fin(), rst: header.rst() },
            length: u32::try_from(length).ok()?,
            options: SegmentOptions::read(&ip.payload[TCP_HEADER_MIN..options_end]),
        })
    }
}

/// The relevant parts of an IP packet.
struct IpPacket<'a> {
    from: IpAddr,
    to: IpAddr,
    header: &'a [u8],
    /// Length of the whole packet according to its header; zero if the header does not say.
    length: usize,
    payload: &'a [u8],
    sighting: Sighting,
}

impl<'a> IpPacket<'a> {
    fn of(found: &'a InnerPacket<'_>) -> Self {
        let place = found.place;
        match &found.ip {
            LaxIpSlice::Ipv4(ip) => {
                let header = ip.header();
                // Many senders write 0 where fragmentation is forbidden (RFC 6864 §4).
                let id = NonZeroU16::new(header.identification());
                Self {
                    from: header.source_addr().into(),
                    to: header.destination_addr().into(),
                    header: header.slice(),
                    length: usize::from(header.total_len()),
                    payload: ip.payload().payload,
                    sighting: Sighting { place, hop_limit: header.ttl(), id },
                }
            }
            LaxIpSlice::Ipv6(ip) => {
                let header = ip.header();
                let length = match usize::from(header.payload_length()) {
                    0 => 0,
                    length => length + header.slice().len(),
                };
                Self {
                    from: header.source_addr().into(),
                    to: header.destination_addr().into(),
                    header: header.slice(),
                    length,
                    payload: ip.payload().payload,
                    sighting: Sighting { place, hop_limit: header.hop_limit(), id: None },
                }
            }
        }
    }
}
