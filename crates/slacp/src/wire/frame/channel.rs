//! The frames of packet channels.

use core::time::Duration;

use super::TruncatedOffset;
use crate::ChannelId;
use crate::ids::CHANNELS;
use crate::wire::profile::HeaderProfile;
use crate::wire::varint;

pub(super) const CHANNEL: u8 = 0x20;
pub(super) const GONE: u8 = 0x24;
pub(super) const PACKET: u8 = 0x18;
pub(super) const PACKET_LEN: u8 = 0x01;
pub(super) const PACKET_PART: u8 = 0x02;
pub(super) const CONTEXT: u8 = 0x25;
pub(super) const COMPRESSED: u8 = 0x28;
pub(super) const COMPRESSED_LEN: u8 = 0x01;
pub(super) const COMPRESSED_CHANGED: u8 = 0x02;

/// Maximum size of a [`Frame::Channel`](super::Frame::Channel), in bytes.
pub(crate) const CHANNEL_SIZE: usize = 1 + 1 + 2;

/// Maximum deadline of a channel.
pub(crate) const MAX_DEADLINE: Duration = Duration::from_secs(10);

/// Number of lanes of a channel, to which its flows are hashed. Each lane is ordered on its own, so
/// a loss hardly delays other flows.
pub(crate) const LANES: u8 = 64;

/// Maximum size of an IP packet, in bytes.
pub(crate) const MAX_PACKET: usize = 65_535;

/// The announcement of a channel: the time for which the receiver waits for missing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelAnnouncement {
    pub(crate) channel: ChannelId,
    /// In whole milliseconds, at most [`MAX_DEADLINE`].
    pub(crate) deadline: Duration,
}

/// A packet that the sender has given up, so that the receiver need not wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoneFrame {
    pub(crate) channel: ChannelId,
    pub(crate) lane: u8,
    /// Its sequence number in the lane, in full.
    pub(crate) sequence: u64,
}

/// A whole packet, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelPacket<'a> {
    pub(crate) channel: ChannelId,
    pub(crate) lane: u8,
    /// The low 30 bits of the packet's sequence number in the lane.
    pub(crate) sequence: TruncatedOffset,
    pub(crate) part: Option<PacketPart>,
    pub(crate) data: &'a [u8],
}

/// The position of a part in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketPart {
    pub(crate) offset: usize,
    /// Size of the whole packet in bytes.
    pub(crate) total: usize,
}

impl ChannelAnnouncement {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        // A longer deadline would end the session as malformed.
        let ms = u64::try_from(self.deadline.min(MAX_DEADLINE).as_millis()).unwrap_or(0);
        super::write_numbers(out, CHANNEL, &[u64::from(self.channel.0), ms]);
    }

    pub(super) fn read(input: &mut &[u8]) -> Option<Self> {
        let channel = read_channel(input)?;
        let deadline = Duration::from_millis(varint::read(input)?);
        (deadline <= MAX_DEADLINE).then_some(Self { channel, deadline })
    }
}

impl GoneFrame {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let names = [u64::from(self.channel.0), u64::from(self.lane), self.sequence];
        super::write_numbers(out, GONE, &names);
    }

    pub(super) fn read(input: &mut &[u8]) -> Option<Self> {
        let channel = read_channel(input)?;
        let lane = read_lane(input)?;
        Some(Self { channel, lane, sequence: varint::read(input)? })
    }
}

impl<'a> ChannelPacket<'a> {
    /// Maximum of [`Self::head`] for a whole packet: type, channel, lane and sequence number.
    pub(crate) const MAX_HEAD: usize = 1 + 1 + 1 + TruncatedOffset::MAX_SEQUENCE_LEN;

    /// Size of the frame before its data, without a length, in bytes.
    pub(crate) fn head(&self) -> usize {
        let part = self
            .part
            .map_or(0, |part| varint::len(part.offset as u64) + varint::len(part.total as u64));
        1 + 1 + 1 + varint::len(self.sequence.low) + part
    }

    /// Appends the frame, with its length unless it is the last of its packet.
    pub(crate) fn write(&self, out: &mut Vec<u8>, last: bool) {
        let flags = if last { 0 } else { PACKET_LEN };
        let part = if self.part.is_some() { PACKET_PART } else { 0 };
        let names = [u64::from(self.channel.0), u64::from(self.lane), self.sequence.low];
        super::write_numbers(out, PACKET | flags | part, &names);
        if let Some(part) = self.part {
            varint::write(out, part.offset as u64);
            varint::write(out, part.total as u64);
        }
        if !last {
            varint::write(out, self.data.len() as u64);
        }
        out.extend_from_slice(self.data);
    }

    pub(super) fn read(kind: u8, input: &mut &'a [u8]) -> Option<Self> {
        let channel = read_channel(input)?;
        let lane = read_lane(input)?;
        let sequence = super::read_truncated(input)?;
        let part = if kind & PACKET_PART != 0 { Some(PacketPart::read(input)?) } else { None };
        let data = super::read_data(input, kind & PACKET_LEN != 0)?;
        let end = part.map_or(0, |part| part.offset) + data.len();
        let fits = end <= part.map_or(MAX_PACKET, |part| part.total);
        (fits && !data.is_empty()).then_some(Self { channel, lane, sequence, part, data })
    }
}

impl PacketPart {
    fn read(input: &mut &[u8]) -> Option<Self> {
        let mut size = || varint::read(input).and_then(|size| usize::try_from(size).ok());
        let offset = size()?;
        let total = size()?;
        (offset < total && total <= MAX_PACKET).then_some(Self { offset, total })
    }
}

/// A whole packet whose headers the receiver keeps as a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContextPacket<'a> {
    pub(crate) slot: u8,
    pub(crate) profile: HeaderProfile,
    pub(crate) channel: ChannelId,
    pub(crate) lane: u8,
    /// Its sequence number in the lane, in full.
    pub(crate) sequence: u64,
    pub(crate) data: &'a [u8],
}

/// A packet whose headers are rebuilt from a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompressedPacket<'a> {
    pub(crate) slot: u8,
    /// Number of packets in the lane since that of the context.
    pub(crate) distance: u64,
    /// Set if the data begins with changes of the headers.
    pub(crate) has_changed: bool,
    pub(crate) data: &'a [u8],
}

impl<'a> ContextPacket<'a> {
    /// Size of the frame, in bytes.
    pub(crate) fn size(&self) -> usize {
        let mut profile = Vec::with_capacity(HeaderProfile::MAX_LEN);
        self.profile.write(&mut profile);
        let length = self.data.len();
        4 + profile.len() + varint::len(self.sequence) + varint::len(length as u64) + length
    }

    /// Appends the frame. It always has its length, since others may follow.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend([CONTEXT, self.slot]);
        self.profile.write(out);
        let numbers = [u64::from(self.channel.0), u64::from(self.lane), self.sequence];
        numbers.into_iter().for_each(|number| varint::write(out, number));
        varint::write(out, self.data.len() as u64);
        out.extend_from_slice(self.data);
    }

    pub(super) fn read(input: &mut &'a [u8]) -> Option<Self> {
        let [slot] = super::take::<1>(input)?;
        let profile = HeaderProfile::read(input)?;
        let channel = read_channel(input)?;
        let lane = read_lane(input)?;
        let sequence = varint::read(input)?;
        let data = super::read_data(input, true)?;
        let fits = (1..=MAX_PACKET).contains(&data.len());
        fits.then_some(Self { slot, profile, channel, lane, sequence, data })
    }
}

impl<'a> CompressedPacket<'a> {
    pub(super) fn read(kind: u8, input: &mut &'a [u8]) -> Option<Self> {
        let [slot] = super::take::<1>(input)?;
        let distance = varint::read(input)?;
        let data = super::read_data(input, kind & COMPRESSED_LEN != 0)?;
        Some(Self { slot, distance, has_changed: kind & COMPRESSED_CHANGED != 0, data })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, last: bool) {
        let parts = CompressedFrame {
            slot: self.slot,
            distance: self.distance,
            changes: self.has_changed.then_some(&[]),
            payload: self.data,
        };
        parts.write(out, last);
    }
}

/// A compressed packet to be written, with its data in two parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompressedFrame<'a> {
    pub(crate) slot: u8,
    pub(crate) distance: u64,
    /// Encoded changes of the headers, if there are any.
    pub(crate) changes: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

impl CompressedFrame<'_> {
    fn data(&self) -> usize {
        self.changes.map_or(0, <[u8]>::len) + self.payload.len()
    }

    /// Appends the frame, with its length unless it is the last.
    pub(crate) fn write(&self, out: &mut Vec<u8>, last: bool) {
        let length = if last { 0 } else { COMPRESSED_LEN };
        let changed = if self.changes.is_some() { COMPRESSED_CHANGED } else { 0 };
        out.extend([COMPRESSED | length | changed, self.slot]);
        varint::write(out, self.distance);
        if !last {
            varint::write(out, self.data() as u64);
        }
        out.extend_from_slice(self.changes.unwrap_or_default());
        out.extend_from_slice(self.payload);
    }
}

/// Removes the length of a compressed packet that turns out to be the last frame of `out`. It
/// begins at index `frame`.
pub(crate) fn drop_length(out: &mut Vec<u8>, frame: usize) {
    debug_assert_eq!(out[frame] & !COMPRESSED_CHANGED, COMPRESSED | COMPRESSED_LEN);
    out[frame] &= !COMPRESSED_LEN;
    let mut rest = &out[frame + 2..];
    varint::read(&mut rest);
    let length = out.len() - rest.len();
    varint::read(&mut rest);
    let end = out.len() - rest.len();
    out.drain(length..end);
}

fn read_lane(input: &mut &[u8]) -> Option<u8> {
    u8::try_from(varint::read(input)?).ok().filter(|lane| *lane < LANES)
}

fn read_channel(input: &mut &[u8]) -> Option<ChannelId> {
    let number = varint::read(input)?;
    (number < u64::from(CHANNELS)).then_some(ChannelId(number as u8))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Frame, read};
    use super::*;
    use crate::wire::profile::InnerProtocol;

    proptest! {
        #[test]
        fn packets_read_back(
            channel in 0u8..32, lane in 0u8..64, sequence in 0u64..1 << 40, last: bool,
            part in prop::option::of((0usize..2000, 100usize..3000)),
            data in prop::collection::vec(any::<u8>(), 1..100)
        ) {
            let part = part.map(|(offset, more)| PacketPart { offset, total: offset + more });
            let sequence = TruncatedOffset::new(sequence);
            let packet = ChannelPacket { channel: ChannelId(channel), lane, sequence, part, data: &data };
            let mut out = Vec::new();
            packet.write(&mut out, last);
            prop_assert_eq!(out.len(), packet.head() + data.len() + if last { 0 } else { varint::len(data.len() as u64) });
            prop_assert_eq!(read(&mut &out[..]), Ok(Some(Frame::Packet(packet))));
        }

        #[test]
        fn announcements_read_back(channel in 0u8..32, ms in 0u64..=10_000) {
            let deadline = Duration::from_millis(ms);
            let announcement = ChannelAnnouncement { channel: ChannelId(channel), deadline };
            let mut out = Vec::new();
            announcement.write(&mut out);
            prop_assert!(out.len() <= CHANNEL_SIZE);
            prop_assert_eq!(read(&mut &out[..]), Ok(Some(Frame::Channel(announcement))));
        }
    }

    proptest! {
        #[test]
        fn contexts_read_back(
            slot: u8, channel in 0u8..32, lane in 0u8..64, sequence in 0u64..1 << 60,
            inner in prop::sample::select(vec![InnerProtocol::None, InnerProtocol::Rtp, InnerProtocol::Esp]),
            id_counts: bool, stride: u32, data in prop::collection::vec(any::<u8>(), 1..100)
        ) {
            let stride = if inner == InnerProtocol::Rtp { stride } else { 0 };
            let profile = HeaderProfile { inner, id_counts, stride };
            let channel = ChannelId(channel);
            let context = ContextPacket { slot, profile, channel, lane, sequence, data: &data };
            let mut out = Vec::new();
            context.write(&mut out);
            prop_assert_eq!(out.len(), context.size());
            prop_assert_eq!(read(&mut &out[..]), Ok(Some(Frame::Context(context))));
        }

        #[test]
        fn compressed_packets_read_back(
            slot: u8, distance in 0u64..1 << 60, last: bool,
            changes in prop::option::of(prop::collection::vec(any::<u8>(), 1..9)),
            payload in prop::collection::vec(any::<u8>(), 0..100)
        ) {
            let changes = changes.as_deref();
            let written = CompressedFrame { slot, distance, changes, payload: &payload };
            let mut out = Vec::new();
            written.write(&mut out, last);
            if !last {
                let (mut shortened, mut short) = (out.clone(), Vec::new());
                drop_length(&mut shortened, 0);
                written.write(&mut short, true);
                prop_assert_eq!(shortened, short);
            }
            let data = [changes.unwrap_or_default(), &payload].concat();
            let has_changed = changes.is_some();
            let packet = CompressedPacket { slot, distance, has_changed, data: &data };
            prop_assert_eq!(read(&mut &out[..]), Ok(Some(Frame::Compressed(packet))));
        }
    }

    #[test]
    fn a_packet_given_up_reads_back_and_names_a_lane_that_exists() {
        for (lane, sequence) in [(0, 0), (63, 1 << 40), (64, 7)] {
            let gone = GoneFrame { channel: ChannelId(3), lane, sequence };
            let mut out = Vec::new();
            gone.write(&mut out);
            let expected = (lane < LANES).then_some(Frame::Gone(gone));
            assert_eq!(read(&mut &out[..]).ok().flatten(), expected);
        }
    }

    #[test]
    fn parts_beyond_the_packet_are_malformed() {
        for (offset, total, len) in [(10, 10, 1), (0, 65_536, 9), (8, 10, 3), (0, 10, 0)] {
            let part = Some(PacketPart { offset, total });
            let data = vec![0; len];
            let sequence = TruncatedOffset::new(0);
            let packet =
                ChannelPacket { channel: ChannelId(0), lane: 0, sequence, part, data: &data };
            let mut out = Vec::new();
            packet.write(&mut out, true);
            assert!(read(&mut &out[..]).is_err(), "{part:?}");
        }
    }
}
