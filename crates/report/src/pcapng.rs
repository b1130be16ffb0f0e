//! Captures as pcapng (draft-ietf-opsawg-pcapng): IP packets of one interface with nanosecond time
//! stamps.

/// Link type for packets that start with the IP header.
const LINKTYPE_RAW: u16 = 101;
/// Block types (section 4).
const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
/// Options: end, `if_name`, `if_tsresol`, `epb_flags`, `isb_ifdrop`.
const OPT_END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const ISB_IFDROP: u16 = 5;
/// Time stamp resolution: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// A captured packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// The packet from its IP header on, or its beginning.
    pub bytes: &'a [u8],
    /// Length of the whole packet.
    pub length: usize,
    /// Nanoseconds since the epoch.
    pub wall: u64,
    /// Whether the interface sent it.
    pub outgoing: bool,
}

/// The beginning of a capture of the interface `name`. `snap_length` is how many bytes of a packet
/// are kept at most; zero for all.
pub fn header(name: &str, snap_length: u32) -> Vec<u8> {
    let mut file = Vec::new();
    block(&mut file, SECTION, |body| {
        body.extend(0x1A2B_3C4Du32.to_le_bytes()); // byte-order magic
        body.extend(1u16.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes()); // length not known
    });
    block(&mut file, INTERFACE, |body| {
        body.extend(LINKTYPE_RAW.to_le_bytes());
        body.extend([0; 2]);
        body.extend(snap_length.to_le_bytes());
        option(body, IF_NAME, name.as_bytes());
        option(body, IF_TSRESOL, &[NANOSECONDS]);
        option(body, OPT_END, &[]);
    });
    file
}

/// Appends a packet to a capture.
///
/// # Panics
/// If the packet has 4 GiB or more.
pub fn append(file: &mut Vec<u8>, packet: &Packet<'_>) {
    let [kept, length] = [packet.bytes.len(), packet.length]
        .map(|length| u32::try_from(length).expect("IP packets are shorter than 4 GiB"));
    block(file, ENHANCED_PACKET, |body| {
        body.extend(0u32.to_le_bytes()); // interface
        body.extend(((packet.wall >> 32) as u32).to_le_bytes());
        body.extend((packet.wall as u32).to_le_bytes());
        body.extend(kept.to_le_bytes()); // captured
        body.extend(length.to_le_bytes()); // original
        padded(body, packet.bytes);
        let direction: u32 = if packet.outgoing { 2 } else { 1 };
        option(body, EPB_FLAGS, &direction.to_le_bytes());
        option(body, OPT_END, &[]);
    });
}

/// Appends how many packets were dropped at `wall` because they could not be captured in time, so
/// that they are not taken for losses on the path.
pub fn append_dropped(file: &mut Vec<u8>, wall: u64, dropped: u64) {
    block(file, STATISTICS, |body| {
        body.extend(0u32.to_le_bytes()); // interface
        body.extend(((wall >> 32) as u32).to_le_bytes());
        body.extend((wall as u32).to_le_bytes());
        option(body, ISB_IFDROP, &dropped.to_le_bytes());
        option(body, OPT_END, &[]);
    });
}

/// A block: type, length, body, length again.
fn block(file: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = file.len();
    file.extend(kind.to_le_bytes());
    file.extend([0; 4]);
    fill(file);
    let length = ((file.len() - start) as u32 + 4).to_le_bytes();
    file[start + 4..start + 8].copy_from_slice(&length);
    file.extend(length);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    padded(body, value);
}

/// Appends bytes padded to a multiple of 32 bits.
fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend(bytes);
    let padding = bytes.len().next_multiple_of(4) - bytes.len();
    body.extend(&[0; 3][..padding]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..][..4].try_into().unwrap())
    }

    /// Splits a file into blocks of type and body.
    fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = u32_at(file, 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(u32_at(file, length - 4) as usize, length);
            blocks.push((u32_at(file, 0), &file[8..length - 4]));
            file = &file[length..];
        }
        blocks
    }

    fn capture(packets: &[(Vec<u8>, u64, bool)]) -> Vec<u8> {
        let mut file = header("sat0", 0);
        for (bytes, wall, outgoing) in packets {
            let length = bytes.len() + 7;
            append(&mut file, &Packet { bytes, length, wall: *wall, outgoing: *outgoing });
        }
        file
    }

    #[test]
    fn a_file_begins_with_the_section_and_the_interface() {
        let file = capture(&[]);
        let blocks = blocks(&file);
        assert_eq!(blocks[0].0, SECTION);
        assert_eq!(u32_at(blocks[0].1, 0), 0x1A2B_3C4D);
        assert_eq!((blocks[1].0, u32_at(blocks[1].1, 0)), (INTERFACE, 101));
        assert_eq!(&blocks[1].1[8..16], b"\x02\0\x04\0sat0");
        assert_eq!(&blocks[1].1[16..24], b"\x09\0\x01\0\x09\0\0\0");
        assert_eq!(blocks.len(), 2);
    }

    proptest! {
        #[test]
        fn packets_are_found_in_the_file(
            packets in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..50), any::<u64>(), any::<bool>()), 0..5),
        ) {
            let file = capture(&packets);
            let blocks = blocks(&file);
            prop_assert_eq!(blocks.len(), 2 + packets.len());
            for ((kind, body), (bytes, wall, outgoing)) in blocks[2..].iter().zip(&packets) {
                prop_assert_eq!(*kind, ENHANCED_PACKET);
                let stamp = u64::from(u32_at(body, 4)) << 32 | u64::from(u32_at(body, 8));
                prop_assert_eq!(stamp, *wall);
                prop_assert_eq!(u32_at(body, 12) as usize, bytes.len());
                prop_assert_eq!(u32_at(body, 16) as usize, bytes.len() + 7);
                prop_assert_eq!(&body[20..][..bytes.len()], &bytes[..]);
                let flags = 20 + bytes.len().next_multiple_of(4) + 4;
                prop_assert_eq!(u32_at(body, flags), if *outgoing { 2 } else { 1 });
            }
        }
    }
}
