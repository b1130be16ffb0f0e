//! Reads pcap and pcapng files as a stream of packets.
//!
//! The crate `pcap-file` splits a file into records. Their contents are parsed here, because that
//! crate rejects packets of captures with a snap length and takes all pcapng time stamps for
//! nanoseconds. Simple packet blocks of pcapng have no time stamp and are skipped.

use std::io::{self, Chain, Cursor, Read};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{Endianness, PcapError, TsResolution};
use thiserror::Error;
use units::Instant;

use super::link_type::LinkType;
use super::packet::Packet;

/// Maximum number of interfaces per section of a file.
const INTERFACES_MAX: usize = 4096;
/// The first bytes of a pcapng file (draft-ietf-opsawg-pcapng §4.1).
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const ENHANCED_PACKET: u32 = 6;
const OBSOLETE_PACKET: u32 = 2;

/// Why a file could not be read, or not to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file is not a capture.
    #[error("not a capture: it begins with {found:02x?}, which is neither pcap nor pcapng")]
    Foreign {
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// The file is truncated.
    #[error("the file ends in the middle of a record")]
    Truncated,
    /// A record is invalid.
    #[error("the file is damaged: {what}")]
    Damaged {
        /// What is wrong.
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

/// Passes each packet of the capture to `see`, up to the first error.
///
/// # Errors
/// The error in the file; all packets before it have been passed.
pub fn read(mut source: impl Read, see: &mut dyn FnMut(&Packet<'_>)) -> Result<(), CaptureError> {
    let mut head = Vec::new();
    source.by_ref().take(4).read_to_end(&mut head)?;
    let magic: [u8; 4] =
        head.try_into().map_err(|found: Vec<u8>| CaptureError::Foreign { found })?;
    let source = Cursor::new(magic).chain(source);
    match magic {
        SECTION => read_pcapng(source, see),
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
    see: &mut dyn FnMut(&Packet<'_>),
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
        let (time, length) = (Instant::from_nanos(nanos), packet.orig_len);
        see(&Packet { time, interface, link, bytes: &packet.data, length });
    }
    Ok(())
}

fn read_pcapng<R: Read>(
    source: Source<R>,
    see: &mut dyn FnMut(&Packet<'_>),
) -> Result<(), CaptureError> {
    let mut reader = PcapNgReader::new(source)?;
    let mut interfaces: Vec<Interface> = Vec::new();
    loop {
        let (kind, found) = match reader.next_raw_block() {
            None => return Ok(()),
            Some(block) => {
                let block = block?;
                (block.type_, block.body.into_owned())
            }
        };
        // The reader keeps the descriptions; a new section clears them.
        let known = reader.interfaces();
        interfaces.truncate(if kind == u32::from_be_bytes(SECTION) { 0 } else { known.len() });
        interfaces.extend(known[interfaces.len()..].iter().map(Interface::of));
        if interfaces.len() > INTERFACES_MAX {
            return Err(CaptureError::Damaged {
                what: format!("more than {INTERFACES_MAX} interfaces"),
            });
        }
        let big = reader.section().endianness == Endianness::Big;
        let fields = Fields { bytes: &found, big };
        if let Some(packet) = fields.packet(kind, &interfaces)? {
            see(&packet);
        }
    }
}

/// An interface described in a pcapng file.
struct Interface {
    link: LinkType,
    snap_length: u32,
    resolution: u8,
    /// Seconds to add to its time stamps.
    offset: i64,
}

impl Interface {
    fn of(block: &InterfaceDescriptionBlock<'_>) -> Self {
        let mut interface = Self {
            link: LinkType::from_number(u32::from(block.linktype)),
            snap_length: if block.snaplen == 0 { u32::MAX } else { block.snaplen },
            resolution: 6,
            offset: 0,
        };
        for option in &block.options {
            match *option {
                InterfaceDescriptionOption::IfTsResol(resolution) => {
                    interface.resolution = resolution;
                }
                InterfaceDescriptionOption::IfTsOffset(offset) => {
                    interface.offset = offset.cast_signed();
                }
                _ => {}
            }
        }
        interface
    }

    /// Converts a time stamp, whose unit is a fraction of a second by a power of ten or two.
    fn time(&self, stamp: u64) -> Instant {
        let exponent = u32::from(self.resolution & 0x7f);
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        // With a resolution this fine, a second does not fit in 64 bits.
        let per_second = base.checked_pow(exponent).unwrap_or(u128::MAX);
        let nanos = u128::from(stamp) * 1_000_000_000 / per_second;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX);
        let nanos = nanos.saturating_add(i128::from(self.offset) * 1_000_000_000);
        Instant::from_nanos(nanos.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

/// The body of a block.
struct Fields<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl<'a> Fields<'a> {
    /// The packet in a block of this kind, if it has one.
    fn packet(
        &self,
        kind: u32,
        interfaces: &[Interface],
    ) -> Result<Option<Packet<'a>>, CaptureError> {
        match kind {
            ENHANCED_PACKET => {
                let (length, kept) = (self.u32(16)?, self.u32(12)?);
                self.stamped(self.u32(0)?, interfaces, length, kept)
            }
            OBSOLETE_PACKET => {
                let number = self.u32(0)?;
                // Sixteen bits of interface and sixteen of drop count.
                let interface = if self.big { number >> 16 } else { number & 0xffff };
                self.stamped(interface, interfaces, self.u32(16)?, self.u32(12)?)
            }
            _ => Ok(None),
        }
    }

    fn stamped(
        &self,
        number: u32,
        interfaces: &[Interface],
        length: u32,
        kept: u32,
    ) -> Result<Option<Packet<'a>>, CaptureError> {
        let Some(interface) = interfaces.get(number as usize) else {
            let what = format!("a packet of the undescribed interface {number}");
            return Err(CaptureError::Damaged { what });
        };
        let kept = kept.min(interface.snap_length) as usize;
        let Some(bytes) = self.bytes.get(20..).and_then(|rest| rest.get(..kept)) else {
            let what = format!("a packet of {kept} bytes in a block of {}", self.bytes.len());
            return Err(CaptureError::Damaged { what });
        };
        let stamp = u64::from(self.u32(4)?) << 32 | u64::from(self.u32(8)?);
        // Combines the interface numbers of the file and of the link-layer header.
        let of_header = interface.link.interface(bytes);
        let both = number.wrapping_add(of_header.wrapping_mul(INTERFACES_MAX as u32));
        let (time, link) = (interface.time(stamp), interface.link);
        Ok(Some(Packet { time, interface: both, link, bytes, length }))
    }

    fn u32(&self, at: usize) -> Result<u32, CaptureError> {
        let Some(bytes) = self.bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
            let what = format!("a block of only {} bytes", self.bytes.len());
            return Err(CaptureError::Damaged { what });
        };
        Ok(if self.big { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) })
    }
}
