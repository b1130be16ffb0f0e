//! Captures as pcapng (draft-ietf-opsawg-pcapng): IP packets of one interface with nanosecond time
//! stamps.

use core::time::Duration;
use std::borrow::Cow;
use std::io::{self, Write};

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};

/// Time stamp resolution: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// A captured packet.
#[derive(Debug, Clone, Copy)]
pub struct WrittenPacket<'a> {
    /// The packet from its IP header on; possibly only its beginning.
    pub bytes: &'a [u8],
    /// Length of the whole packet.
    pub length: usize,
    /// Time stamp in nanoseconds since the epoch.
    pub wall: u64,
    /// True if the interface sent the packet.
    pub outgoing: bool,
}

/// A writer of a capture.
pub struct CaptureWriter<W: Write>(PcapNgWriter<W>);

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture of the interface `name`. `snap_length` is the maximum number of bytes kept of a
    /// packet; zero for all.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn begin(writer: W, name: &str, snap_length: u32) -> io::Result<Self> {
        // In a little-endian file, pcap-file 2.0.0 swaps the halves of a statistics block's time.
        let writer = PcapNgWriter::with_endianness(writer, Endianness::Big).map_err(unwrapped)?;
        let mut capture = Self(writer);
        capture.write_block(InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: snap_length,
            options: vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        })?;
        Ok(capture)
    }

    /// Writes a packet as an enhanced packet block.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&mut self, packet: &WrittenPacket<'_>) -> io::Result<()> {
        self.write_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(packet.wall),
            original_len: u32::try_from(packet.length).unwrap_or(u32::MAX),
            data: Cow::Borrowed(packet.bytes),
            // Bits 0 and 1 of `epb_flags`: 1 is inbound, 2 outbound.
            options: vec![EnhancedPacketOption::Flags(if packet.outgoing { 2 } else { 1 })],
        })
    }

    /// Writes the number of packets that could not be captured in time by `wall`, so that they are not
    /// taken for losses on the path.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_dropped(&mut self, wall: u64, dropped: u64) -> io::Result<()> {
        self.write_block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: wall,
            options: vec![InterfaceStatisticsOption::IsbIfDrop(dropped)],
        })
    }

    /// Flushes the writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }

    fn write_block<'a>(&mut self, block: impl PcapNgBlock<'a>) -> io::Result<()> {
        self.0.write_pcapng_block(block).map(drop).map_err(unwrapped)
    }
}

fn unwrapped(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Block types (section 4 of the draft).
    const SECTION: u32 = 0x0A0D_0D0A;
    const INTERFACE: u32 = 1;
    const STATISTICS: u32 = 5;
    const ENHANCED_PACKET: u32 = 6;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes[at..][..4].try_into().unwrap())
    }

    fn time_at(bytes: &[u8], at: usize) -> u64 {
        u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
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

    /// A capture with these packets and a number of dropped ones.
    fn capture(packets: &[(Vec<u8>, u64, bool)], dropped: Option<(u64, u64)>) -> Vec<u8> {
        let mut file = Vec::new();
        let mut capture = CaptureWriter::begin(&mut file, "sat0", 0).unwrap();
        for (bytes, wall, outgoing) in packets {
            let length = bytes.len() + 7;
            let packet = WrittenPacket { bytes, length, wall: *wall, outgoing: *outgoing };
            capture.write(&packet).unwrap();
        }
        if let Some((wall, count)) = dropped {
            capture.write_dropped(wall, count).unwrap();
        }
        capture.flush().unwrap();
        file
    }

    #[test]
    fn a_file_begins_with_the_section_and_the_interface() {
        let file = capture(&[], None);
        let blocks = blocks(&file);
        assert_eq!(blocks[0].0, SECTION);
        assert_eq!(u32_at(blocks[0].1, 0), 0x1A2B_3C4D);
        assert_eq!((blocks[1].0, u32_at(blocks[1].1, 0)), (INTERFACE, 101 << 16));
        assert_eq!(&blocks[1].1[8..16], b"\0\x02\0\x04sat0");
        assert_eq!(&blocks[1].1[16..24], b"\0\x09\0\x01\x09\0\0\0");
        assert_eq!(blocks.len(), 2);
    }

    #[test]
    fn dropped_packets_are_counted_with_their_time() {
        let wall = 0x0123_4567_89AB_CDEF;
        let dropped = 7;
        let file = capture(&[], Some((wall, dropped)));
        let (kind, body) = blocks(&file)[2];
        assert_eq!((kind, time_at(body, 4)), (STATISTICS, wall));
        assert_eq!((u32_at(body, 12), time_at(body, 16)), (5 << 16 | 8, dropped));
    }

    proptest! {
        #[test]
        fn packets_are_found_in_the_file(
            packets in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..50), any::<u64>(), any::<bool>()), 0..5),
        ) {
            let file = capture(&packets, None);
            let blocks = blocks(&file);
            prop_assert_eq!(blocks.len(), 2 + packets.len());
            for ((kind, body), (bytes, wall, outgoing)) in blocks[2..].iter().zip(&packets) {
                prop_assert_eq!(*kind, ENHANCED_PACKET);
                prop_assert_eq!(time_at(body, 4), *wall);
                prop_assert_eq!(u32_at(body, 12) as usize, bytes.len());
                prop_assert_eq!(u32_at(body, 16) as usize, bytes.len() + 7);
                prop_assert_eq!(&body[20..][..bytes.len()], &bytes[..]);
                let flags = 20 + bytes.len().next_multiple_of(4) + 4;
                prop_assert_eq!(u32_at(body, flags), if *outgoing { 2 } else { 1 });
            }
        }
    }
}
