//! IP packets with TCP segments, and ICMP errors about them, as bytes.

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;

use crate::segment::{Ecn, HeaderFlags, Segment};
use crate::{SeqNr, wire};
use bytes::Bytes;
use etherparse::{
    Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpDscp, IpEcn, IpNumber, Ipv4Header,
    Ipv6Header, LaxNetSlice, LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice, icmpv4,
    icmpv6,
};

const HOP_LIMIT: u8 = 64;
/// The smallest path MTUs that are believed (RFC 8200 §5; for IPv4, Linux's `min_pmtu`): a forged
/// error could otherwise cut a stream into crumbs.
const MIN_MTU_V4: u16 = 552;
const MIN_MTU_V6: u16 = 1280;

/// An IP packet from the network, as a [`Stack`](crate::Stack) takes it.
#[derive(Debug, Clone, PartialEq)]
pub enum IncomingPacket {
    /// A segment, and the DSCP of its packet.
    Segment(wire::SegmentPath, Segment<Bytes>, u8),
    /// The destination of our segment with this number, sent along this path, is unreachable.
    Unreachable(wire::SegmentPath, SeqNr),
    /// Packets along this path may have this many bytes at most.
    TooBig(wire::SegmentPath, u16),
}

/// Reads an IP packet. `None` if it is neither a valid TCP segment nor an ICMP error about one.
pub fn read(packet: &Bytes) -> Option<IncomingPacket> {
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let net = sliced.net.as_ref()?;
    match &sliced.transport {
        Some(TransportSlice::Icmpv4(icmp)) => {
            if let Icmpv4Type::DestinationUnreachable(how) = icmp.icmp_type() {
                return quoted(icmp.payload(), unreachable_v4(&how)?);
            }
            None
        }
        Some(TransportSlice::Icmpv6(icmp)) => match icmp.icmp_type() {
            Icmpv6Type::PacketTooBig { mtu } => {
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(MIN_MTU_V6);
                quoted(icmp.payload(), Some(mtu))
            }
            Icmpv6Type::DestinationUnreachable(_) => quoted(icmp.payload(), None),
            _ => None,
        },
        _ => {
            // Fragments are not reassembled.
            let payload = net.ip_payload_ref().filter(|payload| !payload.fragmented)?;
            if payload.ip_number != IpNumber::TCP {
                return None;
            }
            let bytes = packet.slice_ref(payload.payload);
            let (from, to, dscp, ecn) = header(net)?;
            let (path, segment) = wire::decode(from, to, Ecn::from_bits(ecn), &bytes).ok()?;
            Some(IncomingPacket::Segment(path, segment, dscp))
        }
    }
}

/// Returns source, destination, DSCP and ECN bits of a packet.
pub(crate) fn header(net: &NetSlice<'_>) -> Option<(IpAddr, IpAddr, u8, u8)> {
    match net {
        NetSlice::Ipv4(v4) => {
            let header = v4.header();
            let dscp = header.dcp().value();
            let ecn = header.ecn().value();
            Some((header.source_addr().into(), header.destination_addr().into(), dscp, ecn))
        }
        NetSlice::Ipv6(v6) => {
            let header = v6.header();
            let class = v6.header().traffic_class();
            let from = header.source_addr().into();
            let to = header.destination_addr().into();
            Some((from, to, class >> 2, class & 3))
        }
        NetSlice::Arp(_) => None,
    }
}

/// Interprets an ICMP code: `Some(Some(mtu))` for a path MTU, `Some(None)` for an unreachable
/// destination, `None` for transient errors.
#[allow(clippy::option_option, reason = "used once")]
fn unreachable_v4(how: &icmpv4::DestUnreachableHeader) -> Option<Option<u16>> {
    use icmpv4::DestUnreachableHeader::{FragmentationNeeded, SourceRouteFailed};
    match how {
        FragmentationNeeded { next_hop_mtu } => Some(Some((*next_hop_mtu).max(MIN_MTU_V4))),
        SourceRouteFailed => None,
        _ => Some(None),
    }
}

/// Returns the error about the packet that ICMP quotes. Only the first eight bytes of its segment
/// are certain to be there (RFC 792): ports and number.
fn quoted(quote: &[u8], mtu: Option<u16>) -> Option<IncomingPacket> {
    // Parsed laxly, because routers may quote only the beginning of the packet.
    let sliced = LaxSlicedPacket::from_ip(quote).ok()?;
    let net = sliced.net.as_ref()?;
    let (from, to): (IpAddr, IpAddr) = match net {
        LaxNetSlice::Ipv4(v4) => {
            (v4.header().source_addr().into(), v4.header().destination_addr().into())
        }
        LaxNetSlice::Ipv6(v6) => {
            (v6.header().source_addr().into(), v6.header().destination_addr().into())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let payload = net.ip_payload_ref().filter(|payload| !payload.fragmented)?;
    let [a, b, c, d, seq @ ..] = *payload.payload.first_chunk::<8>()?;
    if payload.ip_number != IpNumber::TCP {
        return None;
    }
    let from_port = u16::from_be_bytes([a, b]);
    let to_port = u16::from_be_bytes([c, d]);
    let path = wire::SegmentPath { from, from_port, to, to_port };
    Some(match mtu {
        Some(mtu) => IncomingPacket::TooBig(path, mtu),
        None => IncomingPacket::Unreachable(path, SeqNr::new(u32::from_be_bytes(seq))),
    })
}

/// Returns the ICMP error that answers a SYN with the number `seq`, which came along `path`: its
/// destination is unreachable, or administratively prohibited. Its source is the destination of the
/// SYN, like that of all packets of the stack. `None` if the addresses are of different families.
pub fn unreachable(path: &wire::SegmentPath, seq: SeqNr, prohibited: bool) -> Option<Vec<u8>> {
    let quote = syn(path, seq)?;
    let mut out = Vec::new();
    // From the destination of the SYN back to its source.
    match (path.to, path.from) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            use icmpv4::DestUnreachableHeader::{FilterProhibited, Host};
            let how = if prohibited { FilterProhibited } else { Host };
            let kind = Icmpv4Type::DestinationUnreachable(how);
            let message = Icmpv4Header::with_checksum(kind, &quote).to_bytes();
            let length = u16::try_from(message.len() + quote.len()).ok()?;
            let from = from.octets();
            let to = to.octets();
            let mut header = Ipv4Header::new(length, HOP_LIMIT, IpNumber::ICMP, from, to).ok()?;
            header.header_checksum = header.calc_header_checksum();
            out.extend_from_slice(&header.to_bytes());
            out.extend_from_slice(&message);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            use icmpv6::DestUnreachableCode::{Address, Prohibited};
            let how = if prohibited { Prohibited } else { Address };
            let kind = Icmpv6Type::DestinationUnreachable(how);
            let source = from.octets();
            let destination = to.octets();
            let message = Icmpv6Header::with_checksum(kind, source, destination, &quote).ok()?;
            let message = message.to_bytes();
            let header = Ipv6Header {
                payload_length: u16::try_from(message.len() + quote.len()).ok()?,
                next_header: IpNumber::IPV6_ICMP,
                hop_limit: HOP_LIMIT,
                source,
                destination,
                ..Ipv6Header::default()
            };
            out.extend_from_slice(&header.to_bytes());
            out.extend_from_slice(&message);
        }
        _ => return None,
    }
    out.extend_from_slice(&quote);
    Some(out)
}

/// Returns the packet of a SYN, as far as errors about it must quote it.
fn syn(path: &wire::SegmentPath, seq: SeqNr) -> Option<Vec<u8>> {
    let flags = HeaderFlags { syn: true, ..HeaderFlags::default() };
    let syn = Segment { seq, flags, payload: Bytes::new(), ..Segment::default() };
    let mut packet = Vec::new();
    push_header(path, syn.wire_len(), 0, Ecn::NotEct, &mut packet)?;
    wire::encode(path, &syn, &mut packet);
    Some(packet)
}

/// Writes packets that carry `segment` along `path` into `out`, one after the other, each at most
/// `mtu` bytes long, and passes each to `send`. A segment that is too long, because the path has
/// become narrower, is cut into several, as a network adapter would (TSO).
///
/// # Errors
/// Those of `send`.
pub fn write(
    path: &wire::SegmentPath,
    segment: Segment<Bytes>,
    dscp: u8,
    mtu: u16,
    out: &mut Vec<u8>,
    mut send: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let header = if path.from.is_ipv4() { Ipv4Header::MIN_LEN } else { Ipv6Header::LEN };
    let overhead = header + segment.wire_len() - segment.payload.len();
    // At least a byte, so that cutting ends whatever the MTU is.
    let room = usize::from(mtu).saturating_sub(overhead).max(1);
    let mut rest = Some(segment);
    while let Some(mut segment) = rest.take() {
        if segment.payload.len() > room {
            let mut later = segment.clone();
            later.payload = segment.payload.split_off(room);
            later.seq = segment.seq.advance(room as u64 + u64::from(segment.flags.syn));
            // The first part has SYN and CWR, the last FIN and PSH, as with TSO.
            (later.flags.syn, later.flags.cwr) = (false, false);
            (segment.flags.fin, segment.flags.psh) = (false, false);
            rest = Some(later);
        }
        out.clear();
        let length = segment.wire_len();
        if push_header(path, length, dscp, segment.ecn, out).is_some() {
            wire::encode(path, &segment, out);
            send(out)?;
        }
    }
    Ok(())
}

/// Appends the IP header of a packet with `length` bytes of TCP; `None` if that is too much.
fn push_header(
    path: &wire::SegmentPath,
    length: usize,
    dscp: u8,
    ecn: Ecn,
    out: &mut Vec<u8>,
) -> Option<()> {
    let length = u16::try_from(length).ok()?;
    match (path.from, path.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let from = from.octets();
            let to = to.octets();
            let mut header = Ipv4Header::new(length, HOP_LIMIT, IpNumber::TCP, from, to).ok()?;
            header.dscp = IpDscp::try_new(dscp).ok()?;
            header.ecn = IpEcn::try_new(ecn.bits()).ok()?;
            // Path MTU discovery (RFC 1191); so the identification means nothing (RFC 6864 §4).
            header.dont_fragment = true;
            header.header_checksum = header.calc_header_checksum();
            out.extend_from_slice(&header.to_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header {
                traffic_class: dscp << 2 | ecn.bits(),
                payload_length: length,
                next_header: IpNumber::TCP,
                hop_limit: HOP_LIMIT,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            out.extend_from_slice(&header.to_bytes());
        }
        _ => return None,
    }
    Some(())
}
