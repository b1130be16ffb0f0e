//! The Internet checksum (RFC 1071) over a segment and its pseudo header.

use std::net::IpAddr;

const PROTOCOL: u8 = 6;

/// The sum over the pseudo header (RFC 9293 §3.1 for IPv4, RFC 8200 §8.1 for
/// IPv6) of a segment of `len` bytes, for [`checksum`].
pub fn pseudo_header_sum(from: IpAddr, to: IpAddr, len: usize) -> u32 {
    sum_of(from) + sum_of(to) + u32::from(PROTOCOL) + (len as u32 >> 16) + (len as u32 & 0xffff)
}

fn sum_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => words(&address.octets()),
        IpAddr::V6(address) => words(&address.octets()),
    }
}

/// The checksum of `bytes`, starting from the sum of the pseudo header; 0 over bytes that contain
/// their correct checksum.
pub fn checksum(pseudo_header: u32, bytes: &[u8]) -> u16 {
    // A chunk of 2¹⁶ bytes cannot overflow 32 bits.
    let sum = bytes.chunks(1 << 16).fold(pseudo_header, |sum, chunk| fold(sum) + words(chunk));
    !(fold(fold(sum)) as u16)
}

fn words(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks_exact(2);
    let last = pairs.remainder().first().map_or(0, |byte| u32::from(*byte) << 8);
    last + pairs.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>()
}

fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}
