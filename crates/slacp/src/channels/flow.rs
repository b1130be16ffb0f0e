//! Maps IP packets to the lanes of a channel, by their flows.

use crate::wire::frame::LANES;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FRAGMENT_HEADER: u8 = 44;

/// The lane of an IP packet. Packets of one flow (addresses, protocol, and ports if there are any)
/// share a lane. Fragments are assigned by address only, so that they stay in order among
/// themselves. Anything that is not an IP packet is in lane 0.
pub(crate) fn lane(packet: &[u8]) -> u8 {
    let parts = match packet.first().map(|first| first >> 4) {
        Some(4) => v4(packet),
        Some(6) => v6(packet),
        _ => None,
    };
    // A lane for each flow, not one for the channel: with twenty flows and 0.2 % lost, 80 % of the
    // packets would wait for another flow's retransmission, instead of 6.7 %.
    let Some(parts) = parts else { return 0 };
    let bytes = parts.iter().flat_map(|part| part.iter());
    let hash =
        bytes.fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    (hash ^ hash >> 32) as u8 % LANES
}

/// The parts of a packet that identify its flow: addresses, protocol, ports.
type Parts<'a> = [&'a [u8]; 3];

fn v4(packet: &[u8]) -> Option<Parts<'_>> {
    let header = usize::from(packet[0] & 0x0f) * 4;
    let protocol = packet.get(9..10)?;
    // More fragments, or an offset: only the first fragment has ports.
    let fragmented = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff != 0;
    let ports = if fragmented { &[] } else { ports(protocol[0], packet.get(header..)) };
    Some([packet.get(12..20)?, protocol, ports])
}

fn v6(packet: &[u8]) -> Option<Parts<'_>> {
    let protocol = packet.get(6..7)?;
    let ports =
        if protocol[0] == FRAGMENT_HEADER { &[] } else { ports(protocol[0], packet.get(40..)) };
    Some([packet.get(8..40)?, protocol, ports])
}

fn ports(protocol: u8, payload: Option<&[u8]>) -> &[u8] {
    let known = matches!(protocol, TCP | UDP);
    payload.filter(|_| known).and_then(|payload| payload.get(..4)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An IPv4 packet with this last byte of its source, protocol and source port.
    fn packet(host: u8, protocol: u8, port: u16) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[9] = protocol;
        packet[15] = host;
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet
    }

    #[test]
    fn flows_are_spread_and_keep_their_lane() {
        let lanes: std::collections::BTreeSet<u8> =
            (0..1000).map(|port| lane(&packet(1, UDP, port))).collect();
        assert_eq!(lanes.len(), usize::from(LANES));
        let mut more = packet(1, UDP, 7);
        more[30] = 99;
        assert_eq!(lane(&more), lane(&packet(1, UDP, 7)));
    }

    #[test]
    fn fragments_and_other_protocols_go_by_their_addresses() {
        let mut first = packet(1, UDP, 5000);
        first[6] = 0x20;
        let mut second = packet(1, UDP, 99);
        second[7] = 40;
        assert_eq!(lane(&first), lane(&second));
        assert_eq!(lane(&packet(1, 50, 5)), lane(&packet(1, 50, 6)));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_lane(bytes in prop::collection::vec(any::<u8>(), 0..80), v6: bool) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0x0f };
            }
            prop_assert!(lane(&bytes) < LANES);
        }
    }
}
