//! The attacks of an adversary on a session.

use super::Choices;
use super::contact::{HostileSession, ROOM};
use super::grammar;
use crate::StreamId;
use crate::wire::frame::{Frame, TruncatedOffset};

/// The kinds of attack. All but the last three break no rule that ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tactic {
    /// Sends stream data in order, up to the limits, whether it is read or not.
    Talk,
    /// Opens and resets streams without end.
    OpenReset,
    /// Sends single bytes with gaps between them.
    Islands,
    /// Sends the last byte within the credit, and then a reset.
    FarEnd,
    /// Sends repairs of blocks that never complete, or that contradict each other.
    Repairs,
    /// Skips packet numbers.
    Gaps,
    /// Sends the smallest packets that must be acknowledged.
    Pings,
    /// Settles packets below some number, high or low.
    Settle,
    /// Grants credit, small and large.
    Credits,
    /// Writes a little and returns the window, over and over.
    Return,
    /// Opens streams so that the other side sends, and grants little or no credit.
    Stall,
    /// Sends challenges, and answers to challenges that were not sent.
    Challenges,
    /// Changes the keys again and again.
    Rekey,
    /// Sends parts of packets of channels that never become complete.
    Parts,
    /// Sends packets again, or out of order.
    Replay,
    /// Sends from other addresses, some of which are its own.
    Roam,
    /// Sends nothing but acknowledgements.
    Silence,
    /// Sends ECN counts that may be true or not.
    Counts,
    /// Acknowledges any packets.
    FalseAcks,
    /// Sends frames of any type.
    AnyFrames,
    /// Sends bytes that are not frames.
    Garbage,
}

impl Tactic {
    pub(super) const ALL: [Self; 21] = [
        Self::Talk,
        Self::OpenReset,
        Self::Islands,
        Self::FarEnd,
        Self::Repairs,
        Self::Gaps,
        Self::Pings,
        Self::Settle,
        Self::Credits,
        Self::Return,
        Self::Stall,
        Self::Challenges,
        Self::Rekey,
        Self::Parts,
        Self::Replay,
        Self::Roam,
        Self::Silence,
        Self::Counts,
        Self::FalseAcks,
        Self::AnyFrames,
        Self::Garbage,
    ];

    /// The next packet of this attack, if it sends one.
    pub(super) fn packet(
        self,
        contact: &mut HostileSession,
        choices: &mut Choices,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(ROOM + 64);
        if self == Self::Counts {
            count(contact, &mut out, choices);
        }
        if choices.one_in(4) {
            contact.acknowledge(&mut out, choices);
        }
        let source = choices.one_in(2);
        match self {
            Self::Silence => {
                contact.acknowledge(&mut out, choices);
                return (!out.is_empty()).then(|| contact.seal(&out, false));
            }
            Self::Gaps => {
                let skipped =
                    if choices.one_in(64) { choices.bits(31) } else { 1 + choices.below(3) };
                let number = contact.forger.sealed_end + skipped;
                Frame::Ping.write(&mut out, false);
                return Some(contact.seal_as(number, &out, source));
            }
            Self::Replay => return replay(contact, &out, choices),
            Self::Repairs => repairs(contact, &mut out, choices),
            Self::Garbage => out.extend((0..choices.below(60)).map(|_| choices.bits(8) as u8)),
            Self::FalseAcks => {
                grammar::any_ack(contact.forger.received_end(), &mut out, choices);
            }
            Self::Talk | Self::Roam => {
                let id = contact.stream(&mut out, choices);
                let room = ROOM.saturating_sub(out.len() + 20) as u64;
                contact.write(id, room.min(1 + choices.below(1200)), &mut out);
            }
            _ => self.fill(contact, &mut out, choices),
        }
        Some(contact.seal(&out, source))
    }

    /// Fills a packet with small frames.
    fn fill(self, contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
        let most = if self == Self::Pings { 1 } else { 1 + choices.below(200) };
        for _ in 0..most {
            if out.len() + 60 > ROOM {
                break;
            }
            self.small(contact, out, choices);
        }
    }

    fn small(self, contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
        let (sealed, heard) = (contact.forger.sealed_end, contact.forger.received_end());
        match self {
            Self::OpenReset => {
                let stream = contact.open(out, choices);
                if choices.one_in(2) {
                    contact.write(stream, choices.below(9), out);
                }
                reset(contact, stream, out, choices);
            }
            Self::Islands => island(contact, out, choices),
            Self::FarEnd => far_end(contact, out, choices),
            Self::Settle => Frame::Settled(choices.near(sealed)).write(out, false),
            Self::Credits if choices.one_in(2) => {
                Frame::SessionCredit(choices.extreme()).write(out, false);
            }
            Self::Credits => {
                let (stream, limit) = (grammar::stream(choices), choices.extreme());
                let returns = match choices.below(4) {
                    0 => choices.extreme(),
                    1 => choices.near(contact.returns_received(stream)),
                    _ => contact.returns_received(stream),
                };
                Frame::StreamCredit { stream, returns, limit }.write(out, false);
            }
            Self::Return => give_back(contact, out, choices),
            Self::Stall => stall(contact, out, choices),
            Self::Challenges if choices.one_in(2) => {
                Frame::PathChallenge(choices.bits(64)).write(out, false);
            }
            Self::Challenges => Frame::PathAnswer(choices.bits(64)).write(out, false),
            Self::Rekey => rekey(contact, out, choices),
            Self::Parts if choices.one_in(32) => {
                Frame::Channel(grammar::announcement(choices)).write(out, false);
            }
            Self::Parts => Frame::Packet(grammar::part(&[7; 30], choices)).write(out, false),
            Self::AnyFrames => grammar::any(sealed, heard, out, choices),
            _ if choices.one_in(2) => Frame::Mark.write(out, false),
            _ => Frame::Ping.write(out, false),
        }
    }
}

/// Reports a few more packets by ECN codepoint, now and then any number.
fn count(contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
    contact.counted.ect0 += choices.below(4);
    contact.counted.ce += choices.below(2);
    let counts = match choices.below(256) {
        0 => grammar::counts(contact.forger.received_end(), choices),
        _ => contact.counted,
    };
    Frame::Ecn(counts).write(out, false);
}

/// Resets a stream, with a true or a false number of bytes sent.
fn reset(contact: &mut HostileSession, stream: StreamId, out: &mut Vec<u8>, choices: &mut Choices) {
    let written = contact.written.remove(&stream).unwrap_or_default();
    let limit = contact.limit(stream);
    let more = limit.saturating_sub(written.sent);
    let sent = match choices.below(512) {
        0 => choices.near(limit),
        1..=32 if contact.sent + more <= contact.credit => {
            contact.sent += more;
            limit
        }
        _ => written.sent,
    };
    Frame::Reset { stream, reason: grammar::reason(choices), sent }.write(out, false);
}

/// Writes a few bytes and returns all or some of the credit beyond them. Now and then it returns
/// credit that was not granted, or skips a RETURN.
fn give_back(contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
    let stream = contact.stream(out, choices);
    contact.write(stream, choices.below(20), out);
    let Some(written) = contact.written.get_mut(&stream) else { return };
    let (sent, granted) = (written.sent, written.limit.saturating_sub(written.sent));
    if choices.one_in(1024) {
        let (returns, limit) =
            (choices.near(written.returns_sent + 1), choices.near(written.limit));
        return Frame::Return { stream, returns, limit }.write(out, false);
    }
    let limit = match choices.below(4) {
        0 => sent,
        1 => sent + granted,
        _ => sent + choices.below(granted + 1),
    };
    written.returns_sent += 1;
    written.limit = limit;
    Frame::Return { stream, returns: written.returns_sent, limit }.write(out, false);
}

/// Opens a stream with a small window for the other side, or grants a little more of it.
fn stall(contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
    let most = contact.forger.allowed.max_streams as usize;
    if contact.written.len() < most {
        let credit = choices.pick(&[0, 1, 1_000, 20_000, 100_000]);
        let stream = contact.open_for(credit, out, choices);
        return contact.write(stream, choices.below(20), out);
    }
    let stream = contact.stream(out, choices);
    let returns = contact.returns_received(stream);
    let Some(written) = contact.written.get_mut(&stream) else { return };
    written.credit = (written.credit + choices.pick(&[0, 0, 1, 100])).min(crate::wire::varint::MAX);
    Frame::StreamCredit { stream, returns, limit: written.credit }.write(out, false);
}

/// Sends a byte without its neighbours, within the credit.
fn island(contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
    let stream = contact.stream(out, choices);
    let limit = contact.limit(stream);
    let Some(written) = contact.written.get_mut(&stream) else { return };
    // The first byte is never sent, so that nothing can be read.
    let next = written.sent + 2;
    if next > limit || contact.sent + 2 > contact.credit {
        return byte_at(stream, 1 + choices.below(written.sent.max(1)), out);
    }
    written.sent = next;
    contact.sent += 2;
    byte_at(stream, next - 1, out);
}

/// Sends the last byte that a new stream has credit for.
fn far_end(contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
    let stream = contact.open(out, choices);
    let end = contact.limit(stream).min(contact.credit.saturating_sub(contact.sent));
    if let Some(offset) = end.checked_sub(1) {
        byte_at(stream, offset, out);
        contact.sent += end;
        contact.written.entry(stream).or_default().sent = end;
    }
    let most = u64::from(contact.forger.allowed.max_streams);
    if contact.written.len() as u64 >= most || choices.one_in(2) {
        reset(contact, stream, out, choices);
    }
}

fn byte_at(stream: StreamId, offset: u64, out: &mut Vec<u8>) {
    let offset = TruncatedOffset::new(offset);
    Frame::Stream { stream, offset, fin: false, data: &[1] }.write(out, false);
}

/// Sends a repair of any block, or a contradicting one of always the same block.
fn repairs(contact: &HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
    let number = contact.forger.sealed_end;
    let size = if choices.one_in(4) { choices.below(600) } else { ROOM as u64 };
    let shard = vec![choices.bits(8) as u8; (size as usize).min(ROOM.saturating_sub(out.len()))];
    let mut repair = grammar::repair(number, &shard, choices);
    if choices.one_in(4) {
        // An old block that never existed.
        repair =
            crate::wire::frame::RepairFrame { distance: number, stride: 1, count: 200, ..repair };
    }
    Frame::Repair(repair).write(out, true);
}

/// Changes the keys, correctly or not.
fn rekey(contact: &mut HostileSession, out: &mut Vec<u8>, choices: &mut Choices) {
    if choices.one_in(65_536) {
        let frame = Frame::Rekey { generation: choices.near(1), key: [choices.bits(8) as u8; 32] };
        return frame.write(out, false);
    }
    contact.forger.phases.drop_previous();
    let offer = contact.forger.phases.offer();
    match contact.rekeys.pop_front().or(offer) {
        Some(frame) => frame.write(out, false),
        None => Frame::Ping.write(out, false),
    }
}

/// Sends an earlier packet again, or another one with any number near the last.
fn replay(contact: &mut HostileSession, frames: &[u8], choices: &mut Choices) -> Option<Vec<u8>> {
    if contact.recorded.is_empty() || choices.one_in(8) {
        let number = choices.near(contact.forger.sealed_end).min(contact.forger.sealed_end + 300);
        let mut frames = frames.to_vec();
        Frame::Ping.write(&mut frames, false);
        return Some(contact.seal_as(number, &frames, choices.one_in(2)));
    }
    let nth = choices.below(contact.recorded.len() as u64) as usize;
    contact.recorded.get(nth).cloned()
}
