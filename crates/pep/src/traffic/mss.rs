//! Lowers the maximum segment size that a SYN announces, so that each segment fits into one packet of
//! the hop.

use super::header::{IPV4_HEADER, IPV6_HEADER};
use super::syn::{CHECKSUM, TCP_HEADER, segment_of};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
/// TCP options (RFC 9293 §3.2).
const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: [u8; 2] = [2, 4];
/// MSS that every host accepts over IPv4 without the option (RFC 9293 §3.7.1). A path that carries less
/// fragments the packets.
const LEAST: usize = 536;

/// Returns a copy of a SYN or SYN-ACK whose MSS option (RFC 9293 §3.7.1) limits segments to IP packets of
/// `longest` bytes, with an adjusted checksum. `None` if the packet is anything else, or its option is
/// missing or small enough. `longest` is called only for a SYN.
///
/// A wrong checksum stays wrong. Options are read up to the first malformed one.
pub fn clamped(packet: &[u8], longest: impl FnOnce() -> Option<usize>) -> Option<Vec<u8>> {
    let headers = TCP_HEADER + if packet.first()? >> 4 == 4 { IPV4_HEADER } else { IPV6_HEADER };
    let segment = segment_of(packet)?;
    let tcp = packet.get(segment.clone()).filter(|tcp| tcp.len() >= TCP_HEADER)?;
    let options = TCP_HEADER..usize::from(tcp[12] >> 4) * 4;
    if tcp[13] & (SYN | RST) != SYN || options.end > tcp.len() {
        return None;
    }
    let most = u16::try_from(longest()?.saturating_sub(headers).max(LEAST)).ok()?;
    let mut clamped = None;
    for at in announced(tcp, options) {
        let told = u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        if told > most {
            let packet = clamped.get_or_insert_with(|| packet.to_vec());
            replace(&mut packet[segment.clone()], at, most);
        }
    }
    clamped
}

/// Offsets of the values of all MSS options: a receiver may use the last of several.
fn announced(tcp: &[u8], options: core::ops::Range<usize>) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = options.start;
    while at < options.end && tcp[at] != END {
        if tcp[at] == NOTHING {
            at += 1;
            continue;
        }
        let length = tcp.get(at + 1).copied().map_or(0, usize::from);
        // Malformed: a receiver reads no further either.
        if length < 2 || at + length > options.end {
            break;
        }
        if tcp[at..at + 2] == MSS {
            found.push(at + 2);
        }
        at += length;
    }
    found
}

/// Replaces two bytes of a segment, and updates its checksum (RFC 1624, equation 3).
fn replace(tcp: &mut [u8], at: usize, new: u16) {
    let old = u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    tcp[at..at + 2].copy_from_slice(&new.to_be_bytes());
    let checksum = u16::from_be_bytes([tcp[CHECKSUM], tcp[CHECKSUM + 1]]);
    // A value at an odd offset spans two words of the checksum, with its bytes swapped.
    let in_words = |value: u16| if at.is_multiple_of(2) { value } else { value.swap_bytes() };
    let mut sum = u32::from(!checksum) + u32::from(!in_words(old)) + u32::from(in_words(new));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::syn::{has_right_checksum, syn_packet, syn_with};
    use super::*;

    fn clamped(packet: &[u8], longest: usize) -> Option<Vec<u8>> {
        super::clamped(packet, || Some(longest))
    }

    /// The MSS that a SYN of ours announces in its only option.
    fn mss(packet: &[u8], v6: bool) -> u16 {
        let at = if v6 { IPV6_HEADER } else { IPV4_HEADER } + TCP_HEADER + 2;
        u16::from_be_bytes([packet[at], packet[at + 1]])
    }

    #[test]
    fn a_syn_announces_at_most_what_fits_into_a_packet() {
        for (v6, fits) in [(false, 1_360), (true, 1_340)] {
            let syn = syn_packet(v6, false, b"");
            assert_eq!(mss(&syn, v6), 1_460);
            let clamped = clamped(&syn, 1_400).unwrap();
            assert_eq!(mss(&clamped, v6), fits);
            assert!(has_right_checksum(&clamped));
            assert_eq!(self::clamped(&clamped, 1_400), None, "once is enough");
            assert_eq!(self::clamped(&syn, 1_520), None, "it fits already");
        }
    }

    #[test]
    fn a_segment_never_becomes_shorter_than_every_host_takes() {
        let clamped = clamped(&syn_packet(false, false, b""), 300).unwrap();
        assert_eq!(mss(&clamped, false), 536);
    }

    #[test]
    fn only_a_syn_is_changed() {
        let syn = syn_packet(false, false, b"");
        let flags = IPV4_HEADER + 13;
        for (flag, changes) in
            [(0x02, true), (0x12, true), (0xc2, true), (0x10, false), (0x06, false)]
        {
            let mut packet = syn.clone();
            packet[flags] = flag;
            assert_eq!(clamped(&packet, 1_000).is_some(), changes, "{flag:#x}");
        }
        let mut fragment = syn.clone();
        fragment[6] = 0x20;
        assert_eq!(clamped(&fragment, 1_000), None);
        let mut datagram = syn;
        datagram[9] = super::super::UDP;
        assert_eq!(clamped(&datagram, 1_000), None);
    }

    proptest! {
        /// Of any options, well formed or not, only the values of MSS options change, and the checksum
        /// stays as right as it was.
        #[test]
        fn nothing_else_changes(
            v6: bool, right: bool, longest in 0usize..3_000,
            options in prop::collection::vec(
                prop_oneof![
                    Just(vec![1]),
                    any::<u16>().prop_map(|mss| [&[2, 4][..], &mss.to_be_bytes()].concat()),
                    Just(vec![4, 2]),
                    prop::collection::vec(any::<u8>(), 0..6),
                ],
                0..12,
            ),
        ) {
            let mut options = options.concat();
            options.truncate(40);
            options.resize(options.len().next_multiple_of(4), 1);
            let mut syn = syn_with(v6, false, &options, b"data");
            if !right {
                let at = syn.len() - 1;
                syn[at] ^= 1;
            }
            let Some(clamped) = clamped(&syn, longest) else { return Ok(()) };
            prop_assert_eq!(has_right_checksum(&clamped), right);
            let begin = syn.len() - options.len() - 4 - TCP_HEADER;
            let checksum = begin + CHECKSUM..begin + CHECKSUM + 2;
            let end = TCP_HEADER + options.len();
            let places = announced(&syn[begin..], TCP_HEADER..end);
            let is_mss = |at: usize| places.iter().any(|place| (begin + place..begin + place + 2).contains(&at));
            for at in 0..syn.len() {
                let may_differ = checksum.contains(&at) || is_mss(at);
                prop_assert!(may_differ || syn[at] == clamped[at], "{}", at);
            }
            let limit = longest.saturating_sub(begin + TCP_HEADER).max(LEAST);
            for place in places {
                let value = |packet: &[u8]| {
                    u16::from_be_bytes([packet[begin + place], packet[begin + place + 1]])
                };
                prop_assert_eq!(usize::from(value(&clamped)), usize::from(value(&syn)).min(limit));
            }
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..120), longest: usize) {
            if let Some(clamped) = clamped(&bytes, longest) {
                prop_assert_eq!(clamped.len(), bytes.len());
            }
        }
    }
}
