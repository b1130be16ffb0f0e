//! The fields of a packet's headers that may change from packet to packet, and their predictions.

use core::ops::Range;

use smallvec::SmallVec;

use crate::wire::profile::InnerProtocol;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ESP: u8 = 50;

/// Size of the fixed header of each protocol, in bytes.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP_HEADER: usize = 8;
const TCP_HEADER: usize = 20;
const ESP_HEADER: usize = 8;
const RTP_HEADER: usize = 12;

/// Offsets of the fields that are used, from the start of their header.
pub(super) const V4_LENGTH: usize = 2;
const V4_ID: usize = 4;
const V4_FRAGMENT: usize = 6;
const V4_TTL: usize = 8;
pub(super) const V4_PROTOCOL: usize = 9;
pub(super) const V4_CHECKSUM: usize = 10;
pub(super) const V4_ADDRESSES: usize = 12;
pub(super) const V6_LENGTH: usize = 4;
pub(super) const V6_NEXT: usize = 6;
const V6_HOP_LIMIT: usize = 7;
pub(super) const V6_ADDRESSES: usize = 8;
pub(super) const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;
const TCP_CHECKSUM: usize = 16;
const RTP_SEQUENCE: usize = 2;
const RTP_TIMESTAMP: usize = 4;
pub(super) const RTP_SOURCE: usize = 8;

/// The longest compressible header: IPv6, and TCP with all its options.
pub(super) const MAX_HEADERS: usize = IPV6 + 60;
/// Size of buffers for headers, at least [`MAX_HEADERS`].
pub(super) const HEADER_BUFFER: usize = 128;

/// The encoding of a field that differs from its prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldCoding {
    /// The value of the field.
    Raw,
    /// The signed difference, which is short if it is small.
    Delta,
}

/// The prediction of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRule {
    /// The value is that of the context.
    Same,
    /// The value rises by one with each packet of the flow.
    Counts,
    /// The value rises by the context's stride with each packet of the flow.
    Strides,
}

/// A field of one, two or four bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeaderField {
    /// Offset in the packet, in bytes.
    at: u8,
    size: u8,
    pub(super) rule: FieldRule,
    pub(super) code: FieldCoding,
}

impl HeaderField {
    /// A field of `size` bytes, one, two or four, less than 256 bytes into the packet.
    fn new(at: usize, size: u8, code: FieldCoding) -> Self {
        debug_assert!(at <= MAX_HEADERS);
        Self { at: at as u8, size, rule: FieldRule::Same, code }
    }

    fn raw(at: usize, size: u8) -> Self {
        Self::new(at, size, FieldCoding::Raw)
    }

    fn delta(at: usize, size: u8) -> Self {
        Self::new(at, size, FieldCoding::Delta)
    }

    fn range(&self) -> Range<usize> {
        usize::from(self.at)..usize::from(self.at + self.size)
    }

    pub(super) fn size(&self) -> usize {
        self.size.into()
    }

    pub(super) fn get(&self, header: &[u8]) -> u32 {
        header[self.range()].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
    }

    pub(super) fn set(&self, header: &mut [u8], value: u32) {
        header[self.range()].copy_from_slice(&value.to_be_bytes()[4 - self.size()..]);
    }

    /// `value` modulo the size of the field, as the signed number closest to zero.
    pub(super) fn signed(&self, value: u32) -> i64 {
        match self.size {
            1 => i64::from(value as i8),
            2 => i64::from(value as i16),
            _ => i64::from(value as i32),
        }
    }
}

/// The place of the checksum in the transport header.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChecksumField {
    pub(super) at: usize,
    pub(super) is_udp: bool,
}

/// The structure of a packet's headers.
#[derive(Debug, Clone)]
pub(super) struct HeaderLayout {
    pub(super) is_v4: bool,
    /// Length of the IP header in bytes.
    pub(super) ip: usize,
    /// Length of all headers in bytes.
    pub(super) len: usize,
    /// The field that counts the packets of the flow, if there is one.
    pub(super) index: Option<HeaderField>,
    /// Fields that may differ from their prediction. Their order is that of the bits of the
    /// changes; those that change most often come first, so that the bits take few bytes.
    pub(super) fields: SmallVec<[HeaderField; 8]>,
    pub(super) has_udp: bool,
    pub(super) sum: Option<ChecksumField>,
}

impl HeaderLayout {
    /// The structure of a packet's headers; `None` if they cannot be compressed. `inner` is the
    /// protocol after the transport header. `id_counts` says that the IPv4 identification counts
    /// packets.
    pub(super) fn of(packet: &[u8], inner: InnerProtocol, id_counts: bool) -> Option<Self> {
        let mut layout = Self::of_ip(packet)?;
        let protocol = packet[if layout.is_v4 { V4_PROTOCOL } else { V6_NEXT }];
        match protocol {
            UDP => layout.add_udp(packet, inner)?,
            TCP if inner == InnerProtocol::None => layout.add_tcp(packet)?,
            ESP if inner == InnerProtocol::Esp => layout.add_esp(packet)?,
            _ if inner == InnerProtocol::None => {}
            _ => return None,
        }
        layout.add_ip_fields(id_counts);
        Some(layout)
    }

    fn of_ip(packet: &[u8]) -> Option<Self> {
        let (is_v4, ip) = match packet.first()? {
            // Version 4, no options.
            0x45 => (true, IPV4),
            first if first >> 4 == 6 => (false, IPV6),
            _ => return None,
        };
        let header = packet.get(..ip)?;
        // More fragments, or an offset.
        let is_fragment = is_v4 && HeaderField::raw(V4_FRAGMENT, 2).get(header) & 0x3fff != 0;
        (!is_fragment).then_some(Self {
            is_v4,
            ip,
            len: ip,
            index: None,
            fields: SmallVec::new(),
            has_udp: false,
            sum: None,
        })
    }

    fn add_udp(&mut self, packet: &[u8], inner: InnerProtocol) -> Option<()> {
        let start = self.ip;
        self.sum = Some(ChecksumField { at: start + UDP_CHECKSUM, is_udp: true });
        self.has_udp = true;
        self.len += UDP_HEADER;
        match inner {
            InnerProtocol::None => {}
            InnerProtocol::Rtp => self.add_rtp(),
            InnerProtocol::Esp => self.add_esp(packet)?,
        }
        packet.get(..self.len).map(|_| ())
    }

    fn add_rtp(&mut self) {
        let start = self.len;
        self.index = Some(HeaderField {
            rule: FieldRule::Counts,
            ..HeaderField::delta(start + RTP_SEQUENCE, 2)
        });
        let time = HeaderField {
            rule: FieldRule::Strides,
            ..HeaderField::delta(start + RTP_TIMESTAMP, 4)
        };
        // Marker and payload type change when a talk spurt begins or a digit is dialled.
        self.fields.extend([HeaderField::raw(start + 1, 1), time]);
        self.len += RTP_HEADER;
    }

    fn add_esp(&mut self, packet: &[u8]) -> Option<()> {
        self.index =
            Some(HeaderField { rule: FieldRule::Counts, ..HeaderField::delta(self.len + 4, 4) });
        self.len += ESP_HEADER;
        packet.get(..self.len).map(|_| ())
    }

    fn add_tcp(&mut self, packet: &[u8]) -> Option<()> {
        let start = self.ip;
        let header = usize::from(packet.get(start + 12)? >> 4) * 4;
        self.len += header;
        let options = packet.get(start + TCP_HEADER..self.len)?;
        let [seq, ack, flags, window, urgent] = [(4, 4), (8, 4), (13, 1), (14, 2), (18, 2)];
        let [seq, ack] = [seq, ack].map(|(at, size)| HeaderField::delta(start + at, size));
        let [flags, window, urgent] =
            [flags, window, urgent].map(|(at, size)| HeaderField::raw(start + at, size));
        self.fields.extend([ack, seq, window, flags]);
        self.add_options(options, start + TCP_HEADER);
        self.fields.push(urgent);
        self.sum = Some(ChecksumField { at: start + TCP_CHECKSUM, is_udp: false });
        Some(())
    }

    /// Adds the numbers in timestamps (RFC 7323) and SACK blocks (RFC 2018).
    fn add_options(&mut self, options: &[u8], start: usize) {
        let mut at = 0;
        while let Some(kind) = options.get(at) {
            let size = match (kind, options.get(at + 1)) {
                (0, _) => return,
                (1, _) => 1,
                (_, Some(size)) if *size >= 2 => usize::from(*size),
                _ => return,
            };
            if matches!((kind, size), (8, 10)) || *kind == 5 {
                let numbers = (at + 2..at + size).step_by(4);
                let whole = numbers.filter(|number| number + 4 <= options.len().min(at + size));
                self.fields.extend(whole.map(|number| HeaderField::delta(start + number, 4)));
            }
            at += size;
        }
    }

    fn add_ip_fields(&mut self, id_counts: bool) {
        if self.is_v4 {
            let rule = if id_counts { FieldRule::Counts } else { FieldRule::Same };
            self.fields.push(HeaderField { rule, ..HeaderField::delta(V4_ID, 2) });
            self.fields.extend([HeaderField::raw(1, 1), HeaderField::raw(V4_TTL, 1)]);
        } else {
            // Version, traffic class and the upper four bits of the flow label.
            self.fields.extend([HeaderField::raw(0, 2), HeaderField::raw(V6_HOP_LIMIT, 1)]);
        }
    }
}

/// Returns the pattern of RTP if the UDP payloads of two packets of a flow look like it (RFC 3550
/// §5.1): version 2, the same source, and a sequence number that has risen by a little.
pub(super) fn is_rtp(before: &[u8], packet: &[u8]) -> Option<RtpPattern> {
    let start = HeaderLayout::of_ip(packet)?.ip + UDP_HEADER;
    let [before, now] = [before, packet].map(|packet| packet.get(start..start + RTP_HEADER));
    let before = before?;
    let now = now?;
    // The marker bit may differ from packet to packet.
    let same = before[0] == now[0]
        && before[1] & 0x7f == now[1] & 0x7f
        && before[RTP_SOURCE..] == now[RTP_SOURCE..];
    let risen = |field: HeaderField| field.get(now).wrapping_sub(field.get(before));
    let steps = risen(HeaderField::raw(RTP_SEQUENCE, 2)) as u16;
    let time = risen(HeaderField::raw(RTP_TIMESTAMP, 4));
    let steps_are_small = (1..=16).contains(&steps);
    let is_rtp = now[0] >> 6 == 2 && same && steps_are_small && time < 1 << 24;
    let stride = time.checked_div(u32::from(steps)).unwrap_or(0);
    is_rtp.then_some(RtpPattern { stride })
}

/// The pattern that two packets of RTP show.
pub(super) struct RtpPattern {
    /// Increment of the timestamp with each packet.
    pub(super) stride: u32,
}

/// Returns `true` if two packets of a flow carry ESP (RFC 4303), or ESP in UDP (RFC 3948).
pub(super) fn is_esp(before: &[u8], packet: &[u8]) -> bool {
    let layout = |packet| HeaderLayout::of(packet, InnerProtocol::Esp, false);
    let Some(old) = layout(before) else { return false };
    let Some(new) = layout(packet) else { return false };
    let Some(sequence) = new.index.filter(|_| old.len == new.len) else { return false };
    let spi = sequence.range().start - 4..sequence.range().start;
    let risen = sequence.get(packet).wrapping_sub(sequence.get(before));
    // In UDP an SPI of 0 marks IKE (RFC 3948 §2.2).
    let is_natural = packet[spi.clone()] == before[spi.clone()] && packet[spi] != [0; 4];
    is_natural && (1..=64).contains(&risen)
}

/// Returns `true` if the IPv4 identification has risen by one from one packet of a flow to the
/// next.
pub(super) fn id_counts(before: &[u8], packet: &[u8]) -> bool {
    let id =
        |packet: &[u8]| Some(u16::from_be_bytes([*packet.get(V4_ID)?, *packet.get(V4_ID + 1)?]));
    let Some(before) = id(before) else { return false };
    let Some(now) = id(packet) else { return false };
    packet[0] == 0x45 && now == before.wrapping_add(1)
}

/// The key of a packet's flow: addresses, protocol, and the ports or the SPI.
pub(super) fn flow_key(packet: &[u8]) -> Option<SmallVec<[u8; 64]>> {
    let layout = HeaderLayout::of_ip(packet)?;
    let (protocol, addresses) = match layout.is_v4 {
        true => (packet[V4_PROTOCOL], V4_ADDRESSES..IPV4),
        false => (packet[V6_NEXT], V6_ADDRESSES..IPV6),
    };
    let mut key = SmallVec::from_slice(&packet[addresses]);
    key.push(protocol);
    if matches!(protocol, TCP | UDP | ESP) {
        key.extend_from_slice(packet.get(layout.ip..layout.ip + 4)?);
    }
    Some(key)
}
