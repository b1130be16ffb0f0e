//! Reads pcap and pcapng files as a stream of records.

use std::io::{self, BufReader, Chain, Cursor, Read};

use pcap_file::pcap::PcapReader;
use pcap_file::{PcapError, TsResolution};
use thiserror::Error;
use units::Instant;

use super::link_type::LinkType;
use super::packet::CapturedPacket;
use super::pcapng;

/// The reason why a file could not be read, or not to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file is not a capture.
    #[error("not a capture: it begins with {found:02x?}, which is neither pcap nor pcapng")]
    Foreign {
        /// The first bytes of the file, at most four.
        found: Vec<u8>,
    },
    /// The file ends in the middle of a record.
    #[error("the file ends in the middle of a record")]
    Truncated,
    /// A record of the file is invalid.
    #[error("the file is damaged: {what}")]
    Damaged {
        /// The defect, in one line.
        what: String,
    },
    /// The file could not be read from disk.
    #[error("cannot read: {0}")]
    Unreadable(#[from] io::Error),
}

impl From<PcapError> for CaptureError {
    fn from(error: PcapError) -> Self {
        match error {
            PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Self::Truncated
            }
            PcapError::IoError(error) => Self::Unreadable(error),
            other => Self::Damaged { what: other.to_string() },
        }
    }
}

/// A record of a capture file.
#[derive(Debug)]
pub(crate) enum CaptureRecord<'a> {
    /// A packet, with its time if the file has one.
    Packet(CapturedPacket<'a>),
    /// The number of packets that an interface of the capturing machine has dropped so far.
    Lost {
        /// Index of the interface in the file.
        interface: u32,
        /// Packets since the start of the capture.
        packets: u64,
    },
    /// A pcapng block of an unknown type, which may have held packets.
    Unknown {
        /// The block type as in the file.
        kind: u32,
    },
}

/// Passes each record of the capture to `see`, up to the first error.
///
/// # Errors
/// The error in the file; all records before it have been passed.
pub(crate) fn read(
    mut source: impl Read,
    see: &mut dyn FnMut(CaptureRecord<'_>),
) -> Result<(), CaptureError> {
    let mut head = Vec::new();
    source.by_ref().take(4).read_to_end(&mut head)?;
    let magic: [u8; 4] =
        head.try_into().map_err(|found: Vec<u8>| CaptureError::Foreign { found })?;
    // The readers of both formats expect the magic number.
    let source = Cursor::new(magic).chain(source);
    match magic {
        pcapng::SECTION => pcapng::read(BufReader::new(source), see),
        [0xa1, 0xb2, 0xc3, 0xd4]
        | [0xa1, 0xb2, 0x3c, 0x4d]
        | [0xd4, 0xc3, 0xb2, 0xa1]
        | [0x4d, 0x3c, 0xb2, 0xa1] => read_pcap(source, see),
        found => Err(CaptureError::Foreign { found: found.to_vec() }),
    }
}

type Source<R> = Chain<Cursor<[u8; 4]>, R>;

fn read_pcap<R: Read>(
    source: Source<R>,
    see: &mut dyn FnMut(CaptureRecord<'_>),
) -> Result<(), CaptureError> {
    let mut reader = PcapReader::new(source)?;
    let header = reader.header();
    let link = LinkType::from_number(header.datalink.into());
    let fraction: u64 = match header.ts_resolution {
        TsResolution::MicroSecond => 1_000,
        TsResolution::NanoSecond => 1,
    };
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet?;
        let nanos = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * fraction;
        let interface = link.interface(&packet.data);
        let time = Some(Instant::from_nanos(nanos));
        let length = packet.orig_len;
        see(CaptureRecord::Packet(CapturedPacket {
            time,
            interface,
            link,
            bytes: &packet.data,
            length,
        }));
    }
    Ok(())
}
