//! IP headers and checksums of the packets that a gateway builds.

use std::net::IpAddr;

pub(super) const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
const TTL: u8 = 64;

/// IP header for a payload of `length` bytes. The kernel fills in IPv4's identification and checksum.
pub(super) fn ip_header(from: IpAddr, to: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let [high, low] = ((IPV4_HEADER + length) as u16).to_be_bytes();
            let mut header = vec![0x45, 0, high, low, 0, 0, 0x40, 0, TTL, protocol, 0, 0];
            header.extend(from.octets());
            header.extend(to.octets());
            header
        }
        (from, to) => {
            let [high, low] = (length as u16).to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, high, low, protocol, TTL];
            for address in [from, to] {
                let IpAddr::V6(v6) = address else { continue };
                header.extend(v6.octets());
            }
            header
        }
    }
}

/// Unfolded sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
pub(super) fn pseudo_header(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    length: usize,
) -> u32 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(v4) => u32::from(sum(0, &v4.octets())),
        IpAddr::V6(v6) => u32::from(sum(0, &v6.octets())),
    };
    address(source) + address(destination) + u32::from(protocol) + length as u32
}

/// Internet checksum before complementing (RFC 1071).
pub(super) fn sum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u64::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])));
    let mut sum = words.fold(u64::from(start), |sum, word| sum + word);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
