//! Valid frames of every type, with any values.

use core::ops::Range;
use core::time::Duration;
use std::net::SocketAddr;

use super::Dice;
use crate::channels::ChannelId;
use crate::frame::{
    self, Announcement, Frame, Packet, Part, Repair, Report, ReportedTimes, TruncatedOffset,
};
use crate::{CloseReason, Destination, HostName, Open, ResetReason, StreamId};

/// Appends any frame at all of a side that has sealed and heard packets up to
/// these numbers. It may be one that takes the rest of its packet.
pub(super) fn any(sealed: u64, heard: u64, out: &mut Vec<u8>, dice: &mut Dice) {
    let stream = stream(dice);
    let data;
    let frame = match dice.below(19) {
        0 => Frame::Ping,
        1 => Frame::Mark,
        2 => return any_ack(heard, out, dice),
        3 => Frame::Settled(dice.near(sealed)),
        4 => {
            let (window, credit) = (dice.near(0), dice.extreme());
            Frame::Open { stream, window, credit, open: Box::new(destination(dice)) }
        }
        5 => Frame::Accept(stream),
        6 => Frame::Reset { stream, reason: reason(dice), sent: dice.near(0) },
        7 => Frame::SessionCredit(dice.extreme()),
        8 => Frame::StreamCredit { stream, returns: dice.near(0), limit: dice.extreme() },
        9 => {
            data = bytes(600, dice);
            Frame::Repair(repair(sealed, &data, dice))
        }
        10 => Frame::Rekey { generation: dice.near(1), key: [dice.bits(8) as u8; 32] },
        11 => Frame::PathChallenge(dice.bits(64)),
        12 => Frame::PathAnswer(dice.bits(64)),
        13 => Frame::Channel(announcement(dice)),
        14 => {
            data = bytes(200, dice);
            Frame::Packet(part(&data, dice))
        }
        15 if dice.one_in(16) => Frame::Close(CloseReason::Shutdown),
        17 => Frame::Return { stream, returns: dice.near(0), limit: dice.extreme() },
        16 => {
            data = bytes(600, dice);
            let offset = TruncatedOffset::compact(dice.near(0));
            let frame = Frame::Stream { stream, offset, fin: dice.one_in(4), data: &data };
            // A compact frame has no length.
            return frame.write(out, true);
        }
        _ => {
            data = bytes(600, dice);
            let offset = TruncatedOffset::new(dice.near(0));
            Frame::Stream { stream, offset, fin: dice.one_in(4), data: &data }
        }
    };
    frame.write(out, dice.one_in(4));
}

/// Fewer bytes than `end`, all the same.
fn bytes(end: u64, dice: &mut Dice) -> Vec<u8> {
    vec![dice.bits(8) as u8; dice.below(end) as usize]
}

/// Appends an acknowledgement of what may never have been sent; `heard` is one
/// more than the highest number that was.
pub(super) fn any_ack(heard: u64, out: &mut Vec<u8>, dice: &mut Dice) {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut end = dice.near(heard).max(1);
    for _ in 0..1 + dice.below(60) {
        let run = if dice.one_in(8) { 1 + dice.extreme() } else { 1 + dice.below(9) }.min(end);
        ranges.push(end - run..end);
        end = (end - run).saturating_sub(1 + dice.below(5));
        if end == 0 {
            break;
        }
    }
    let every = 1 + dice.below(5) as usize;
    let restored: Vec<Range<u64>> = ranges.iter().step_by(every).cloned().collect();
    let age = |dice: &mut Dice| Duration::from_micros(dice.extreme() >> dice.below(62));
    let times = dice.one_in(2).then(|| {
        let mut marks: Vec<_> =
            (0..dice.below(20)).map(|_| (dice.near(heard), age(dice))).collect();
        marks.sort();
        ReportedTimes { clock: dice.bits(32) as u32, marks }
    });
    let held = if dice.one_in(2) { age(dice) } else { Duration::ZERO };
    frame::write_ack(out, ranges.into_iter(), restored.into_iter(), &Report { held, times }, 900);
}

/// What a stream is opened for.
pub(super) fn destination(dice: &mut Dice) -> Open<Destination> {
    let address = SocketAddr::from(([192, 0, 2, dice.bits(8) as u8], 80));
    let destination = match HostName::new("server.example") {
        Some(name) if dice.one_in(8) => Destination::Name(name, 80),
        _ => address.into(),
    };
    Open { destination, source: address, dscp: Some(dice.bits(8) as u8) }
}

/// A stream that may be there, or not.
pub(super) fn stream(dice: &mut Dice) -> StreamId {
    StreamId(if dice.one_in(8) { dice.extreme() } else { dice.below(40) })
}

pub(super) fn reason(dice: &mut Dice) -> ResetReason {
    dice.pick(&[ResetReason::Reset, ResetReason::Refused, ResetReason::Limit])
}

/// A repair in a packet whose number is `number`.
pub(super) fn repair<'a>(number: u64, shard: &'a [u8], dice: &mut Dice) -> Repair<'a> {
    let repairs = 1 + dice.below(255) as usize;
    Repair {
        distance: if dice.one_in(8) { dice.near(number) } else { 1 + dice.below(600) },
        stride: if dice.one_in(8) { dice.extreme() } else { 1 + dice.below(4) },
        count: 1 + dice.below(255) as usize,
        repairs,
        index: dice.below(repairs as u64) as usize,
        shard: &shard[..shard.len() / 2 * 2],
    }
}

pub(super) fn announcement(dice: &mut Dice) -> Announcement {
    let deadline = Duration::from_millis(dice.below(10_001));
    Announcement { channel: channel(dice), deadline }
}

/// One of the channels there are, or another.
fn channel(dice: &mut Dice) -> ChannelId {
    let most = if dice.one_in(8) { 32 } else { 4 };
    ChannelId(dice.below(most) as u8)
}

/// A packet of a channel, or more often a part of one.
pub(super) fn part<'a>(data: &'a [u8], dice: &mut Dice) -> Packet<'a> {
    let data = if data.is_empty() { &[0][..] } else { data };
    let total = data.len() + dice.below(65_536 - data.len() as u64) as usize;
    let offset = dice.below((total - data.len()) as u64 + 1) as usize;
    let number = if dice.one_in(8) { dice.extreme() } else { dice.below(4_000) };
    Packet {
        channel: channel(dice),
        lane: dice.below(64) as u8,
        sequence: TruncatedOffset::new(number),
        part: (!dice.one_in(8)).then_some(Part { offset, total }),
        data,
    }
}
