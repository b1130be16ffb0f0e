//! A context: the headers of a packet as the template for those of later ones.

use smallvec::SmallVec;

use super::checksum::checksum;
use super::layout::{
    FieldCoding, FieldRule, HeaderField, HeaderLayout, MAX_HEADERS, UDP_LENGTH, V4_ADDRESSES,
    V4_CHECKSUM, V4_LENGTH, V4_PROTOCOL, V6_ADDRESSES, V6_LENGTH, V6_NEXT,
};
use crate::ChannelId;
use crate::wire::frame::MAX_PACKET;
use crate::wire::profile::HeaderProfile;
use crate::wire::varint;

/// A packet's channel, lane, and sequence number in the lane.
pub(crate) type LanePosition = (ChannelId, u8, u64);

/// The headers of a packet, and its place in its lane.
#[derive(Debug, Clone)]
pub(super) struct HeaderContext {
    header: SmallVec<[u8; 64]>,
    layout: HeaderLayout,
    profile: HeaderProfile,
    pub(super) channel: ChannelId,
    pub(super) lane: u8,
    /// Its sequence number in the lane.
    pub(super) sequence: u64,
}

/// Encoded differences of a packet from its prediction; empty if there are none.
pub(super) type Changes = SmallVec<[u8; 32]>;

/// A packet's headers relative to a context.
pub(super) struct HeaderDifference {
    pub(super) changes: Changes,
    /// Length of the packet's headers, in bytes.
    pub(super) header: usize,
}

/// Changes under construction, in the order of the items.
#[derive(Default)]
struct ChangeSet {
    mask: u64,
    /// The bit of the next item.
    bit: u32,
    values: Changes,
}

impl ChangeSet {
    /// Adds the next item. `value` writes it if it has changed.
    fn note(&mut self, changed: bool, value: impl FnOnce(&mut Changes)) {
        if changed {
            self.mask |= 1 << self.bit;
            value(&mut self.values);
        }
        self.bit += 1;
    }

    fn changes(&self) -> Changes {
        let mut changes = Changes::new();
        if self.mask != 0 {
            put(&mut changes, self.mask);
            changes.extend_from_slice(&self.values);
        }
        changes
    }
}

impl HeaderContext {
    /// The context made of a packet; `None` if it has no compressible headers.
    pub(super) fn new(profile: HeaderProfile, place: LanePosition, packet: &[u8]) -> Option<Self> {
        let (channel, lane, sequence) = place;
        let layout = HeaderLayout::of(packet, profile.inner, profile.id_counts)?;
        let header = SmallVec::from_slice(packet.get(..layout.len)?);
        debug_assert!(header.len() <= MAX_HEADERS);
        let context = Self { header, layout, profile, channel, lane, sequence };
        // Wrong lengths, or a wrong checksum of IPv4, could not be rebuilt.
        context.difference(0, packet).is_some().then_some(context)
    }

    pub(super) fn profile(&self) -> HeaderProfile {
        self.profile
    }

    /// Memory besides the context itself, in bytes.
    pub(super) fn spilled(&self) -> usize {
        let header = if self.header.spilled() { self.header.capacity() } else { 0 };
        let fields = &self.layout.fields;
        header + if fields.spilled() { fields.capacity() * size_of::<HeaderField>() } else { 0 }
    }

    /// The difference of a packet, `distance` after this one in its lane, from its prediction;
    /// `None` if the packet could not be rebuilt from that.
    pub(super) fn difference(&self, distance: u64, packet: &[u8]) -> Option<HeaderDifference> {
        let (actual, payload) = packet.split_at_checked(self.layout.len)?;
        let mut header = self.header.clone();
        let mut found = ChangeSet::default();
        let skip = self.skip(distance, actual);
        if let Some(index) = self.layout.index {
            index.set(&mut header, index.get(actual));
        }
        // The skip expresses any index, so that this field has no item of its own.
        found.note(skip != 0, |out| put(out, zigzag(skip)));
        let count = (distance as i64).wrapping_add(skip);
        for field in &self.layout.fields {
            let predicted = self.predict(field, count);
            let value = field.get(actual);
            field.set(&mut header, value);
            let changed = field.signed(value.wrapping_sub(predicted)) != 0;
            found.note(changed, |out| put_field(out, field, value, predicted));
        }
        self.complete(&mut header, packet.len());
        if let Some(sum) = self.layout.sum {
            let value = read_u16(actual, sum.at);
            let changed = value != self.checksum(&header, payload);
            found.note(changed, |out| out.extend_from_slice(&value.to_be_bytes()));
            write_u16(&mut header, sum.at, value);
        }
        // Bytes that are in no field, such as addresses, must be those of the context.
        let changes = (header[..] == *actual).then(|| found.changes())?;
        Some(HeaderDifference { changes, header: self.layout.len })
    }

    /// The difference between the packets that the index has counted and those of the lane.
    fn skip(&self, distance: u64, actual: &[u8]) -> i64 {
        self.layout.index.map_or(0, |index| {
            let risen = index.get(actual).wrapping_sub(index.get(&self.header));
            index.signed(risen.wrapping_sub(distance as u32))
        })
    }

    /// Rebuilds the packet `distance` after this one in its lane. `data` follows its headers in the
    /// packet; if `has_changed`, the encoded changes come before it. `None` if they are malformed.
    pub(super) fn rebuild(
        &self,
        distance: u64,
        has_changed: bool,
        mut data: &[u8],
    ) -> Option<Vec<u8>> {
        let mut header = self.header.clone();
        let mut mask = if has_changed { varint::read(&mut data)? } else { 0 };
        let mut next = || {
            let changed = mask & 1 != 0;
            mask >>= 1;
            changed
        };
        let skip = if next() { unzigzag(varint::read(&mut data)?) } else { 0 };
        let count = (distance as i64).wrapping_add(skip);
        if let Some(index) = self.layout.index {
            index.set(&mut header, self.predict(&index, count));
        }
        for field in &self.layout.fields {
            let predicted = self.predict(field, count);
            let value = if next() { take_field(&mut data, field, predicted)? } else { predicted };
            field.set(&mut header, value);
        }
        let sum =
            if self.layout.sum.is_some() && next() { Some(take_u16(&mut data)?) } else { None };
        let total = header.len() + data.len();
        // Bits remain for items that this layout does not have.
        if mask != 0 || total > MAX_PACKET {
            return None;
        }
        self.complete(&mut header, total);
        if let Some(place) = self.layout.sum {
            let value = sum.unwrap_or_else(|| self.checksum(&header, data));
            write_u16(&mut header, place.at, value);
        }
        let mut packet = header.into_vec();
        packet.extend_from_slice(data);
        Some(packet)
    }

    fn predict(&self, field: &HeaderField, count: i64) -> u32 {
        let step = match field.rule {
            FieldRule::Same => 0,
            FieldRule::Counts => 1,
            FieldRule::Strides => self.profile.stride,
        };
        field.get(&self.header).wrapping_add(step.wrapping_mul(count as u32))
    }

    /// Sets the lengths, and the checksum of IPv4, for a packet of this size.
    fn complete(&self, header: &mut [u8], total: usize) {
        // The lengths of UDP and IPv6 do not include the IP header.
        let payload = (total - self.layout.ip) as u16;
        if self.layout.has_udp {
            write_u16(header, self.layout.ip + UDP_LENGTH, payload);
        }
        if !self.layout.is_v4 {
            return write_u16(header, V6_LENGTH, payload);
        }
        write_u16(header, V4_LENGTH, total as u16);
        write_u16(header, V4_CHECKSUM, 0);
        let sum = checksum(&[&header[..self.layout.ip]]);
        write_u16(header, V4_CHECKSUM, sum);
    }

    /// The checksum that the transport header of this packet should have; 0 in UDP if that of the
    /// context had none (RFC 768).
    fn checksum(&self, header: &[u8], payload: &[u8]) -> u16 {
        let Some(sum) = self.layout.sum else { return 0 };
        if sum.is_udp && read_u16(&self.header, sum.at) == 0 {
            return 0;
        }
        let (protocol, addresses) = match self.layout.is_v4 {
            true => (header[V4_PROTOCOL], V4_ADDRESSES..self.layout.ip),
            false => (header[V6_NEXT], V6_ADDRESSES..self.layout.ip),
        };
        let length = ((header.len() - self.layout.ip + payload.len()) as u32).to_be_bytes();
        let before = &header[self.layout.ip..sum.at];
        let after = &header[sum.at + 2..];
        // The pseudo-headers of IPv4 and IPv6 differ only in zeros and order, so their sum is one.
        let pseudo = [&header[addresses], &length, &[0, protocol]];
        let value = checksum(&[pseudo[0], pseudo[1], pseudo[2], before, after, payload]);
        // RFC 768: 0 stands for no checksum, so a computed 0 is sent as all ones.
        if sum.is_udp && value == 0 { u16::MAX } else { value }
    }
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn write_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Maps signed numbers to unsigned ones, so that small numbers of either sign stay small.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn put(out: &mut Changes, value: u64) {
    let mut bytes = Vec::with_capacity(8);
    varint::write(&mut bytes, value);
    out.extend_from_slice(&bytes);
}

fn put_field(out: &mut Changes, field: &HeaderField, value: u32, predicted: u32) {
    match field.code {
        FieldCoding::Raw => out.extend_from_slice(&value.to_be_bytes()[4 - field.size()..]),
        FieldCoding::Delta => put(out, zigzag(field.signed(value.wrapping_sub(predicted)))),
    }
}

fn take_field(data: &mut &[u8], field: &HeaderField, predicted: u32) -> Option<u32> {
    match field.code {
        FieldCoding::Raw => {
            let (bytes, rest) = data.split_at_checked(field.size())?;
            *data = rest;
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        }
        FieldCoding::Delta => Some(predicted.wrapping_add(unzigzag(varint::read(data)?) as u32)),
    }
}

fn take_u16(data: &mut &[u8]) -> Option<u16> {
    let (bytes, rest) = data.split_first_chunk()?;
    *data = rest;
    Some(u16::from_be_bytes(*bytes))
}
