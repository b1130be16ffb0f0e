//! Valid frames of every type, with any values.

use core::ops::Range;
use core::time::Duration;
use std::net::SocketAddr;

use super::Choices;
use crate::ChannelId;
use crate::wire::ecn::EcnCounts;
use crate::wire::frame::{
    self, AckReport, ChannelAnnouncement, ChannelPacket, CompressedPacket, ContextPacket, Frame,
    GoneFrame, PacketPart, RepairFrame, ReportedTimes, TruncatedOffset,
};
use crate::wire::profile::{HeaderProfile, InnerProtocol};
use crate::{CloseReason, Destination, Host, HostName, ResetReason, StreamId, StreamOpening};

/// Appends any frame of a side that has sealed and received packets up to these numbers. It may be
/// one that extends to the end of its packet.
pub(super) fn any(sealed: u64, heard: u64, out: &mut Vec<u8>, choices: &mut Choices) {
    let stream = stream(choices);
    let data;
    let frame = match choices.below(27) {
        0 => Frame::Ping,
        1 => Frame::Mark,
        2 => return any_ack(heard, out, choices),
        3 => Frame::Settled(choices.near(sealed)),
        4 => {
            let (window, credit) = (choices.near(0), choices.extreme());
            let (compressed, open) = (choices.one_in(4), Box::new(destination(choices)));
            Frame::Open { stream, window, credit, compressed, open }
        }
        5 => Frame::Accept(stream),
        6 => Frame::Reset { stream, reason: reason(choices), sent: choices.near(0) },
        7 => Frame::SessionCredit(choices.extreme()),
        8 => Frame::StreamCredit { stream, returns: choices.near(0), limit: choices.extreme() },
        9 => {
            data = bytes(600, choices);
            Frame::Repair(repair(sealed, &data, choices))
        }
        10 => Frame::Rekey { generation: choices.near(1), key: [choices.bits(8) as u8; 32] },
        11 => Frame::PathChallenge(choices.bits(64)),
        12 => Frame::PathAnswer(choices.bits(64)),
        13 => Frame::Channel(announcement(choices)),
        14 => {
            data = bytes(200, choices);
            Frame::Packet(part(&data, choices))
        }
        15 if choices.one_in(16) => Frame::Close(CloseReason::Shutdown),
        18 => Frame::Ecn(counts(heard, choices)),
        23 => Frame::Leaving,
        24 => Frame::LinkAsks(choices.near(2)),
        25 => Frame::Successor,
        26 => {
            let (link, ranges) = (choices.near(2) as u8, any_ranges(heard, choices));
            frame::write_link_ack(out, link, ranges.into_iter(), 900);
            return;
        }
        20 => Frame::Gone(gone(choices)),
        21 => {
            data = headers(choices);
            Frame::Context(context(&data, choices))
        }
        22 => {
            data = bytes(60, choices);
            Frame::Compressed(compressed(&data, choices))
        }
        17 => Frame::Return { stream, returns: choices.near(0), limit: choices.extreme() },
        16 => {
            data = bytes(600, choices);
            let offset = TruncatedOffset::compact(choices.near(0));
            let frame = Frame::Stream { stream, offset, fin: choices.one_in(4), data: &data };
            // A compact frame has no length.
            return frame.write(out, true);
        }
        _ => {
            data = bytes(600, choices);
            let offset = TruncatedOffset::new(choices.near(0));
            Frame::Stream { stream, offset, fin: choices.one_in(4), data: &data }
        }
    };
    frame.write(out, choices.one_in(4));
}

/// A packet that may become a compression context: UDP, TCP, ESP or another protocol.
fn headers(choices: &mut Choices) -> Vec<u8> {
    let size = 20 + choices.below(80) as usize;
    let mut packet = vec![choices.bits(8) as u8; size];
    packet[0] = if choices.one_in(4) { 0x60 } else { 0x45 };
    packet[2..4].copy_from_slice(&(size as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&[0x40, 0]);
    packet[9] = [17, 6, 50, 1][choices.below(4) as usize];
    packet[10..12].copy_from_slice(&[0, 0]);
    let words = packet[..20].as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    if size >= 28 && packet[9] == 17 {
        packet[24..26].copy_from_slice(&(size as u16 - 20).to_be_bytes());
    }
    packet
}

fn context<'a>(data: &'a [u8], choices: &mut Choices) -> ContextPacket<'a> {
    let inner =
        [InnerProtocol::None, InnerProtocol::Rtp, InnerProtocol::Esp][choices.below(3) as usize];
    let stride = if inner == InnerProtocol::Rtp { choices.bits(32) as u32 } else { 0 };
    ContextPacket {
        slot: choices.bits(8) as u8,
        profile: HeaderProfile { inner, id_counts: choices.one_in(2), stride },
        channel: channel(choices),
        lane: choices.below(64) as u8,
        sequence: choices.near(0),
        data,
    }
}

fn compressed<'a>(data: &'a [u8], choices: &mut Choices) -> CompressedPacket<'a> {
    CompressedPacket {
        slot: choices.bits(8) as u8,
        distance: choices.near(0),
        has_changed: choices.one_in(2),
        data,
    }
}

/// Fewer bytes than `end`, all with the same value.
fn bytes(end: u64, choices: &mut Choices) -> Vec<u8> {
    vec![choices.bits(8) as u8; choices.below(end) as usize]
}

/// ECN counts near the number of packets, or anywhere.
pub(super) fn counts(packets: u64, choices: &mut Choices) -> EcnCounts {
    EcnCounts { ect0: choices.near(packets), ce: choices.near(packets / 8) }
}

/// Appends an acknowledgement of packets that may never have been sent. `heard` is one more than
/// the highest number received.
pub(super) fn any_ack(heard: u64, out: &mut Vec<u8>, choices: &mut Choices) {
    let ranges = any_ranges(heard, choices);
    let every = 1 + choices.below(5) as usize;
    let restored: Vec<Range<u64>> = ranges.iter().step_by(every).cloned().collect();
    let age = |choices: &mut Choices| Duration::from_micros(choices.extreme() >> choices.below(62));
    let times = choices.one_in(2).then(|| {
        let mut marks: Vec<_> =
            (0..choices.below(20)).map(|_| (choices.near(heard), age(choices))).collect();
        marks.sort();
        ReportedTimes { clock: choices.bits(32) as u32, marks }
    });
    let held = if choices.one_in(2) { age(choices) } else { Duration::ZERO };
    frame::write_ack(
        out,
        ranges.into_iter(),
        restored.into_iter(),
        &AckReport { held, times },
        900,
    );
}

/// Ranges of numbers, the highest first.
fn any_ranges(heard: u64, choices: &mut Choices) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut end = choices.near(heard).max(1);
    for _ in 0..1 + choices.below(60) {
        let run =
            if choices.one_in(8) { 1 + choices.extreme() } else { 1 + choices.below(9) }.min(end);
        ranges.push(end - run..end);
        end = (end - run).saturating_sub(1 + choices.below(5));
        if end == 0 {
            break;
        }
    }
    ranges
}

/// An opening with any destination.
pub(super) fn destination(choices: &mut Choices) -> StreamOpening<Destination> {
    let address = SocketAddr::from(([192, 0, 2, choices.bits(8) as u8], 80));
    let destination = match HostName::new("server.example") {
        Some(name) if choices.one_in(8) => Destination::Name(name, 80),
        _ if choices.one_in(16) => Destination::Resolver,
        _ if choices.one_in(16) => Destination::Exchange(Host::Address(address)),
        _ if choices.one_in(16) => Destination::Bundles,
        _ => address.into(),
    };
    StreamOpening { destination, source: address, dscp: Some(choices.bits(8) as u8) }
}

/// A stream that may or may not exist.
pub(super) fn stream(choices: &mut Choices) -> StreamId {
    StreamId(if choices.one_in(8) { choices.extreme() } else { choices.below(40) })
}

pub(super) fn reason(choices: &mut Choices) -> ResetReason {
    choices.pick(&[ResetReason::Reset, ResetReason::Refused, ResetReason::Limit])
}

/// A repair in a packet whose number is `number`.
pub(super) fn repair<'a>(number: u64, shard: &'a [u8], choices: &mut Choices) -> RepairFrame<'a> {
    let repairs = 1 + choices.below(255) as usize;
    RepairFrame {
        distance: if choices.one_in(8) { choices.near(number) } else { 1 + choices.below(600) },
        stride: if choices.one_in(8) { choices.extreme() } else { 1 + choices.below(4) },
        count: 1 + choices.below(255) as usize,
        repairs,
        index: choices.below(repairs as u64) as usize,
        shard: &shard[..shard.len() / 2 * 2],
    }
}

fn gone(choices: &mut Choices) -> GoneFrame {
    let channel = ChannelId(choices.below(32) as u8);
    GoneFrame { channel, lane: choices.below(64) as u8, sequence: choices.near(0) }
}

pub(super) fn announcement(choices: &mut Choices) -> ChannelAnnouncement {
    let deadline = Duration::from_millis(choices.below(10_001));
    ChannelAnnouncement { channel: channel(choices), deadline }
}

/// Usually one of the configured channels.
fn channel(choices: &mut Choices) -> ChannelId {
    let most = if choices.one_in(8) { 32 } else { 4 };
    ChannelId(choices.below(most) as u8)
}

/// A packet of a channel, or more often a part of one.
pub(super) fn part<'a>(data: &'a [u8], choices: &mut Choices) -> ChannelPacket<'a> {
    let data = if data.is_empty() { &[0][..] } else { data };
    let total = data.len() + choices.below(65_536 - data.len() as u64) as usize;
    let offset = choices.below((total - data.len()) as u64 + 1) as usize;
    let number = if choices.one_in(8) { choices.extreme() } else { choices.below(4_000) };
    ChannelPacket {
        channel: channel(choices),
        lane: choices.below(64) as u8,
        sequence: TruncatedOffset::new(number),
        part: (!choices.one_in(8)).then_some(PacketPart { offset, total }),
        data,
    }
}
