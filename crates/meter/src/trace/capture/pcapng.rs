//! Reads pcapng files block by block (draft-ietf-opsawg-pcapng).
//!
//! Only the fields that the analysis needs are parsed, so that an odd option, a comment in another
//! encoding or a missing end of the options does not make a file unreadable.

use std::io::{self, ErrorKind, Read};

use units::Instant;

use super::file::{CaptureError, CaptureRecord};
use super::link_type::LinkType;
use super::packet::CapturedPacket;

/// The type of a section header: the same in both byte orders (§4.1).
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Maximum number of interfaces per section.
pub(super) const INTERFACES_MAX: usize = 4096;
/// Maximum length in bytes of a block whose contents are parsed; other tools use the same.
const BLOCK_MAX: u32 = 16 << 20;
/// Length of a block's type and length, and of the length at its end.
const FRAME: u32 = 12;

const SECTION_HEADER: u32 = u32::from_be_bytes(SECTION);
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
/// Names, a journal, secrets and custom data: blocks without packets.
const WITHOUT_PACKETS: [u32; 5] = [4, 9, 10, 0x0bad, 0x4000_0bad];

/// Passes the contents of each block to `see`, up to the first error.
pub(super) fn read(
    source: impl Read,
    see: &mut dyn FnMut(CaptureRecord<'_>),
) -> Result<(), CaptureError> {
    let mut blocks = BlockReader { source, big: false, interfaces: Vec::new(), body: Vec::new() };
    while let Some(kind) = blocks.next()? {
        if let Some(record) = blocks.record(kind)? {
            see(record);
        }
    }
    Ok(())
}

/// The blocks of a file.
struct BlockReader<R> {
    source: R,
    /// Set if the section is big-endian.
    big: bool,
    /// The interfaces described in the section so far.
    interfaces: Vec<InterfaceDescription>,
    /// The last block, between its two lengths.
    body: Vec<u8>,
}

impl<R: Read> BlockReader<R> {
    /// Reads a block; returns its type, or `None` at the end of the file.
    fn next(&mut self) -> Result<Option<u32>, CaptureError> {
        let mut head = [0; 8];
        let read = read_full(&mut self.source, &mut head)?;
        if read == 0 {
            return Ok(None);
        }
        if read < head.len() {
            return Err(CaptureError::Truncated);
        }
        let [k0, k1, k2, k3, l0, l1, l2, l3] = head;
        let kind = [k0, k1, k2, k3];
        let length = [l0, l1, l2, l3];
        self.body.clear();
        if kind == SECTION {
            self.fill(4)?;
            self.big = match self.body[..] {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return Err(damaged(format!("byte order {:02x?} of a section", self.body))),
            };
        }
        let kind = self.number(kind);
        let length = self.number(length);
        let rest = length.checked_sub(FRAME + self.body.len() as u32);
        // Blocks are padded to 32 bits (§3.1).
        let rest = rest.filter(|_| length.is_multiple_of(4));
        let rest = rest.ok_or_else(|| damaged(format!("a block of {length} bytes")))?;
        if !is_parsed(kind) {
            self.skip(rest)?;
        } else if length > BLOCK_MAX {
            return Err(damaged(format!("a block of {length} bytes")));
        } else {
            self.fill(rest)?;
        }
        // The length stands at both ends of a block (§3.1).
        let mut again = [0; 4];
        if read_full(&mut self.source, &mut again)? < again.len() {
            return Err(CaptureError::Truncated);
        }
        match self.number(again) {
            same if same == length => Ok(Some(kind)),
            other => Err(damaged(format!("a block of {length} bytes that ends with {other}"))),
        }
    }

    /// Appends `count` bytes to the body; the memory grows with what the file really holds.
    fn fill(&mut self, count: u32) -> Result<(), CaptureError> {
        let wanted = u64::from(count);
        let read = self.source.by_ref().take(wanted).read_to_end(&mut self.body)?;
        if (read as u64) < wanted { Err(CaptureError::Truncated) } else { Ok(()) }
    }

    /// Skips `count` bytes without memory for them, however long the block is.
    fn skip(&mut self, count: u32) -> Result<(), CaptureError> {
        let wanted = u64::from(count);
        let skipped = io::copy(&mut self.source.by_ref().take(wanted), &mut io::sink())?;
        if skipped < wanted { Err(CaptureError::Truncated) } else { Ok(()) }
    }

    /// Parses the last block; `None` if it holds nothing to pass on.
    fn record(&mut self, kind: u32) -> Result<Option<CaptureRecord<'_>>, CaptureError> {
        match kind {
            SECTION_HEADER => {
                let version = BlockFields { bytes: &self.body, big: self.big }.u16(4)?;
                if version != 1 {
                    return Err(damaged(format!("a section of the unknown version {version}")));
                }
                // Each section describes its interfaces anew (§4.1).
                self.interfaces.clear();
                Ok(None)
            }
            INTERFACE => {
                if self.interfaces.len() == INTERFACES_MAX {
                    return Err(damaged(format!("more than {INTERFACES_MAX} interfaces")));
                }
                let fields = BlockFields { bytes: &self.body, big: self.big };
                self.interfaces.push(InterfaceDescription::read(&fields)?);
                Ok(None)
            }
            kind => {
                let fields = BlockFields { bytes: &self.body, big: self.big };
                fields.record(kind, &self.interfaces)
            }
        }
    }

    fn number(&self, bytes: [u8; 4]) -> u32 {
        if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

fn is_parsed(kind: u32) -> bool {
    let packet = [ENHANCED_PACKET, SIMPLE_PACKET, OBSOLETE_PACKET];
    packet.contains(&kind) || [SECTION_HEADER, INTERFACE, STATISTICS].contains(&kind)
}

/// Reads until the buffer is full or the file ends.
fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn damaged(what: String) -> CaptureError {
    CaptureError::Damaged { what }
}

/// An interface described in the file (§4.2).
struct InterfaceDescription {
    link: LinkType,
    snap_length: u32,
    resolution: u8,
    /// Seconds to add to its time stamps.
    offset: i64,
}

impl InterfaceDescription {
    fn read(fields: &BlockFields<'_>) -> Result<Self, CaptureError> {
        // Zero means no limit (§4.2).
        let snap_length = match fields.u32(4)? {
            0 => u32::MAX,
            length => length,
        };
        let link = LinkType::from_number(fields.u16(0)?.into());
        // Time stamps are in microseconds unless the option `if_tsresol` (9) says otherwise.
        let mut interface = Self { link, snap_length, resolution: 6, offset: 0 };
        for (code, value) in fields.options(8) {
            match (code, value) {
                (9, &[resolution]) => interface.resolution = resolution,
                // `if_tsoffset`: the seconds to add to every time stamp.
                (14, value) => {
                    let offset = BlockFields { bytes: value, big: fields.big }.u64(0);
                    interface.offset = offset.map_or(0, u64::cast_signed);
                }
                _ => {}
            }
        }
        Ok(interface)
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
struct BlockFields<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl<'a> BlockFields<'a> {
    fn record(
        &self,
        kind: u32,
        interfaces: &[InterfaceDescription],
    ) -> Result<Option<CaptureRecord<'a>>, CaptureError> {
        let packet = match kind {
            ENHANCED_PACKET => self.stamped(self.u32(0)?, interfaces)?,
            // Sixteen bits of interface and sixteen of drop count.
            OBSOLETE_PACKET => self.stamped(self.u16(0)?.into(), interfaces)?,
            SIMPLE_PACKET => {
                // Simple packets belong to the first interface and have no captured length (§4.4).
                let interface = described(interfaces, 0)?;
                let length = self.u32(0)?;
                let kept = length.min(interface.snap_length);
                self.packet(0, interface, [4, kept], length, None)?
            }
            STATISTICS => {
                return Ok(self
                    .lost()
                    .map(|(interface, packets)| CaptureRecord::Lost { interface, packets }));
            }
            other if WITHOUT_PACKETS.contains(&other) => return Ok(None),
            other => return Ok(Some(CaptureRecord::Unknown { kind: other })),
        };
        Ok(Some(CaptureRecord::Packet(packet)))
    }

    fn stamped(
        &self,
        number: u32,
        interfaces: &[InterfaceDescription],
    ) -> Result<CapturedPacket<'a>, CaptureError> {
        let interface = described(interfaces, number)?;
        let stamp = u64::from(self.u32(4)?) << 32 | u64::from(self.u32(8)?);
        let kept = self.u32(12)?.min(interface.snap_length);
        let length = self.u32(16)?;
        self.packet(number, interface, [20, kept], length, Some(interface.time(stamp)))
    }

    /// Returns the packet whose `kept` captured bytes lie at `at`.
    fn packet(
        &self,
        number: u32,
        interface: &InterfaceDescription,
        [at, kept]: [u32; 2],
        length: u32,
        time: Option<Instant>,
    ) -> Result<CapturedPacket<'a>, CaptureError> {
        let bytes = self.bytes.get(at as usize..).and_then(|rest| rest.get(..kept as usize));
        let bytes = bytes.ok_or_else(|| {
            damaged(format!("a packet of {kept} bytes in a block of {}", self.bytes.len()))
        })?;
        // Combines the interface numbers of the file and of the link-layer header.
        let of_header = interface.link.interface(bytes);
        let both = number.wrapping_add(of_header.wrapping_mul(INTERFACES_MAX as u32));
        Ok(CapturedPacket { time, interface: both, link: interface.link, bytes, length })
    }

    /// Returns an interface and the number of packets that it and the capturing system dropped so
    /// far, from an interface statistics block (§4.6): the options `isb_ifdrop` and `isb_osdrop`.
    fn lost(&self) -> Option<(u32, u64)> {
        // `isb_ifdrop` (5) and `isb_osdrop` (7): lost before the capturing program saw them.
        let drops = self.options(12).filter(|(code, _)| [5, 7].contains(code));
        let counts =
            drops.filter_map(|(_, value)| BlockFields { bytes: value, big: self.big }.u64(0).ok());
        let packets = counts.fold(0, u64::saturating_add);
        Some((self.u32(0).ok()?, packets)).filter(|_| packets > 0)
    }

    /// Returns the options from `at` on. Anything that is not an option ends them.
    fn options(&self, at: usize) -> impl Iterator<Item = (u16, &'a [u8])> {
        let bytes = self.bytes;
        let big = self.big;
        let mut at = at;
        std::iter::from_fn(move || {
            let fields = BlockFields { bytes, big };
            let code = fields.u16(at).ok()?;
            let length = fields.u16(at + 2).ok()?;
            let value = bytes.get(at + 4..at + 4 + usize::from(length))?;
            // Values are padded to 32 bits (§3.5).
            at += 4 + usize::from(length).next_multiple_of(4);
            (code != 0).then_some((code, value))
        })
    }

    fn u64(&self, at: usize) -> Result<u64, CaptureError> {
        let bytes = self.array(at)?;
        Ok(if self.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn u32(&self, at: usize) -> Result<u32, CaptureError> {
        let bytes = self.array(at)?;
        Ok(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u16(&self, at: usize) -> Result<u16, CaptureError> {
        let bytes = self.array(at)?;
        Ok(if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], CaptureError> {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().ok_or_else(|| damaged(format!("a block of only {} bytes", self.bytes.len())))
    }
}

fn described(
    interfaces: &[InterfaceDescription],
    number: u32,
) -> Result<&InterfaceDescription, CaptureError> {
    let interface = interfaces.get(number as usize);
    interface.ok_or_else(|| damaged(format!("a packet of the undescribed interface {number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field in the byte order of the file.
    #[derive(Clone, Copy)]
    enum Field<'a> {
        Two(u16),
        Four(u32),
        Eight(u64),
        Bytes(&'a [u8]),
    }

    use Field::{Bytes, Eight, Four, Two};

    fn written(big: bool, fields: &[Field<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in fields {
            let number = match *field {
                Two(it) => it.to_be_bytes().to_vec(),
                Four(it) => it.to_be_bytes().to_vec(),
                Eight(it) => it.to_be_bytes().to_vec(),
                Bytes(it) => {
                    bytes.extend(it);
                    continue;
                }
            };
            if big {
                bytes.extend(number);
            } else {
                bytes.extend(number.iter().rev());
            }
        }
        bytes
    }

    fn block(big: bool, kind: u32, fields: &[Field<'_>]) -> Vec<u8> {
        let mut body = written(big, fields);
        body.resize(body.len().next_multiple_of(4), 0);
        let length = Four(FRAME + body.len() as u32);
        written(big, &[Four(kind), length, Bytes(&body), length])
    }

    fn section(big: bool) -> Vec<u8> {
        block(big, SECTION_HEADER, &[Four(0x1a2b_3c4d), Two(1), Two(2), Eight(u64::MAX)])
    }

    fn interface(big: bool, options: &[Field<'_>]) -> Vec<u8> {
        let head = [Two(101), Two(0), Four(4)];
        block(big, INTERFACE, &[&head, options].concat())
    }

    /// What a file holds, one line each, and how it ends.
    fn lines(file: &[u8]) -> (Vec<String>, Option<String>) {
        let mut lines = Vec::new();
        let end = read(file, &mut |record| {
            lines.push(match record {
                CaptureRecord::Packet(it) => {
                    let time = it
                        .time
                        .map_or_else(|| "no time".to_owned(), |time| time.as_nanos().to_string());
                    format!("{time}: {:?} of {} on {}", it.bytes, it.length, it.interface)
                }
                CaptureRecord::Lost { interface, packets } => {
                    format!("lost {packets} on {interface}")
                }
                CaptureRecord::Unknown { kind } => format!("unknown {kind:#x}"),
            });
        });
        (lines, end.err().map(|error| error.to_string()))
    }

    #[test]
    fn blocks_of_both_byte_orders_are_read() {
        for big in [false, true] {
            let data = Bytes(&[1, 2, 3, 4, 5, 6, 7, 8]);
            let file = [
                section(big),
                // Nanoseconds, a second later, and no end of the options.
                interface(big, &[Two(9), Two(1), Bytes(&[9, 0, 0, 0]), Two(14), Two(8), Eight(1)]),
                block(big, ENHANCED_PACKET, &[Four(0), Four(0), Four(7), Four(8), Four(9), data]),
                block(
                    big,
                    OBSOLETE_PACKET,
                    &[Two(0), Two(9), Four(0), Four(8), Four(2), Four(3), data],
                ),
                block(big, SIMPLE_PACKET, &[Four(1500), data]),
                block(big, 0x77, &[Bytes(b"?")]),
                block(big, 4, &[Bytes(b"names")]),
                block(big, STATISTICS, &[Four(0), Eight(0), Two(5), Two(8), Eight(2)]),
            ];
            let found = [
                "1000000007: [1, 2, 3, 4] of 9 on 0",
                "1000000008: [1, 2] of 3 on 0",
                "no time: [1, 2, 3, 4] of 1500 on 0",
                "unknown 0x77",
                "lost 2 on 0",
            ];
            assert_eq!(lines(&file.concat()), (found.map(str::to_owned).to_vec(), None));
        }
    }

    #[test]
    fn options_that_nobody_needs_may_be_anything() {
        let odd: [&[Field<'_>]; 5] = [
            // A name in Latin-1, a time zone of 8 bytes, an option without its value, one that is
            // longer than the block, and half an option.
            &[Two(3), Two(2), Bytes(&[0xe9, 0xff, 0, 0]), Four(0)],
            &[Two(10), Two(8), Eight(1), Four(0)],
            &[Two(9), Two(0)],
            &[Two(2), Two(400), Four(1)],
            &[Two(3), Two(0)],
        ];
        for options in odd {
            let packet =
                block(false, ENHANCED_PACKET, &[Four(0), Four(0), Four(5), Four(0), Four(9)]);
            let file = [section(false), interface(false, options), packet].concat();
            assert_eq!(lines(&file), (vec!["5000: [] of 9 on 0".to_owned()], None));
        }
    }

    #[test]
    fn damage_is_named_and_memory_is_that_of_the_file() {
        let end = |blocks: &[&[u8]]| lines(&blocks.concat()).1.unwrap();
        let head = section(false);
        let unknown = block(false, ENHANCED_PACKET, &[Four(3), Eight(0), Four(0), Four(0)]);
        assert!(end(&[&head, &unknown]).contains("undescribed interface 3"));
        let long = written(false, &[Four(ENHANCED_PACKET), Four(BLOCK_MAX), Four(0)]);
        assert_eq!(end(&[&head, &long]), CaptureError::Truncated.to_string());
        let longer = written(false, &[Four(ENHANCED_PACKET), Four(BLOCK_MAX + 4)]);
        assert!(end(&[&head, &longer]).contains("a block of 16777220 bytes"));
        let mut crooked = block(false, 0x77, &[Four(0)]);
        crooked[12] = 1;
        assert!(end(&[&head, &crooked]).contains("ends with"));
        assert_eq!(end(&[&head, &[1, 2, 3]]), CaptureError::Truncated.to_string());
        let short = block(false, SIMPLE_PACKET, &[Four(10)]);
        assert!(end(&[&head, &interface(false, &[]), &short]).contains("a packet of 4 bytes"));
    }
}
