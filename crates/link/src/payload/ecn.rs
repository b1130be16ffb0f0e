//! Explicit congestion notification (RFC 3168) in IP packets.

/// The codepoint for "congestion experienced".
const CE: u8 = 0b11;

/// Marks an IPv4 or IPv6 packet as "congestion experienced" if it is ECN-capable (RFC 3168 §5:
/// ECT(0), ECT(1), or already marked). Returns false, with the bytes unchanged, for every other
/// packet and for invalid ones.
pub fn mark_ce(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => mark_ipv4(packet),
        Some(6) => mark_ipv6(packet),
        _ => false,
    }
}

/// RFC 791: the ECN field is the last two bits of byte 1, and the header has a checksum.
fn mark_ipv4(packet: &mut [u8]) -> bool {
    let Some(header) = packet.first_chunk_mut::<20>() else { return false };
    let old = u16::from_be_bytes([header[0], header[1]]);
    // Not ECN-capable: the packet is dropped instead (RFC 3168 §5).
    if header[1] & CE == 0 {
        return false;
    }
    header[1] |= CE;
    let new = u16::from_be_bytes([header[0], header[1]]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    [header[10], header[11]] = update_checksum(checksum, old, new).to_be_bytes();
    true
}

/// RFC 8200 §3: the traffic class is the 8 bits after the version.
fn mark_ipv6(packet: &mut [u8]) -> bool {
    let Some(header) = packet.first_chunk_mut::<40>() else { return false };
    if header[1] >> 4 & CE == 0 {
        return false;
    }
    header[1] |= CE << 4;
    true
}

/// Updates a checksum for a changed 16-bit word (RFC 1624, equation 3).
fn update_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071: zero over a header that includes its correct checksum.
    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        !((folded & 0xffff) + (folded >> 16)) as u16
    }

    fn ipv4(tos: u8, rest: [u8; 18]) -> Vec<u8> {
        let mut header = [&[0x45, tos][..], &rest].concat();
        [header[10], header[11]] = [0, 0];
        let sum = checksum(&header);
        [header[10], header[11]] = sum.to_be_bytes();
        header
    }

    #[test]
    fn only_ecn_capable_packets_are_marked() {
        for (ecn, marked) in [(0b00, false), (0b01, true), (0b10, true), (0b11, true)] {
            let mut packet = ipv4(0xb8 | ecn, [7; 18]);
            assert_eq!(mark_ce(&mut packet), marked);
            assert_eq!(packet[1], if marked { 0xbb } else { 0xb8 });

            let mut packet = [0u8; 40];
            (packet[0], packet[1]) = (0x6f, ecn << 4 | 0x0a);
            assert_eq!(mark_ce(&mut packet), marked);
            assert_eq!(packet[..2], [0x6f, if marked { 0x3a } else { 0x0a }]);
        }
    }

    #[test]
    fn bytes_that_are_no_packet_stay_as_they_are() {
        for mut bytes in [vec![], vec![0x45; 19], vec![0x6f; 39], vec![0x15; 60]] {
            let before = bytes.clone();
            assert!(!mark_ce(&mut bytes));
            assert_eq!(bytes, before);
        }
    }

    proptest! {
        #[test]
        fn the_checksum_stays_right(tos: u8, rest: [u8; 18]) {
            let mut packet = ipv4(tos, rest);
            mark_ce(&mut packet);
            prop_assert_eq!(checksum(&packet), 0);
        }
    }
}
