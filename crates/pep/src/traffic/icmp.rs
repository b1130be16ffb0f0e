//! ICMP and ICMPv6 messages that report an error about a packet.

use std::net::IpAddr;

use super::header::{ip_header, pseudo_header, sum};

/// IANA protocol numbers of ICMP and ICMPv6.
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// Type and code of *port unreachable* (RFC 792; RFC 4443 §3.1).
const PORT_UNREACHABLE: [u8; 2] = [3, 3];
const PORT_UNREACHABLE_V6: [u8; 2] = [1, 4];
const HEADER: usize = 8;
/// The most bytes of the packet that are quoted: its headers, by which the sender finds its socket. RFC 792 demands
/// 8 bytes of the payload; more would only make a flood of refusals longer.
const LONGEST_QUOTE: usize = 128;

/// Builds an ICMP message with a quoted packet, without IP header. `pseudo` is the unfolded sum of the pseudo-header,
/// 0 for IPv4; without it the kernel computes the checksum.
pub(super) fn error_message(kind: u8, code: u8, quoted: &[u8], pseudo: Option<u32>) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0, 0, 0, 0, 0], quoted].concat();
    if let Some(pseudo) = pseudo {
        let checksum = !sum(pseudo, &message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    message
}

/// Builds the IP packet by which `from`, the destination of `packet`, tells its sender `to` that the port is
/// unreachable.
pub(super) fn port_unreachable(from: IpAddr, to: IpAddr, packet: &[u8]) -> Vec<u8> {
    let quoted = &packet[..packet.len().min(LONGEST_QUOTE)];
    let length = HEADER + quoted.len();
    let (protocol, [kind, code], pseudo) = match from {
        IpAddr::V4(_) => (ICMP, PORT_UNREACHABLE, 0),
        IpAddr::V6(_) => (ICMP_V6, PORT_UNREACHABLE_V6, pseudo_header(from, to, ICMP_V6, length)),
    };
    let message = error_message(kind, code, quoted, Some(pseudo));
    [ip_header(from, to, protocol, length), message].concat()
}
