//! A session of an adversary: its knowledge of the other side, and its next packets.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::adversary::own_address;
use super::forger::PacketForger;
use super::tactics::Tactic;
use super::{Choices, grammar};
use crate::StreamId;
use crate::wire::ecn::EcnCounts;
use crate::wire::frame::{self, AckReport, Frame, TruncatedOffset};

/// Maximum size of the frames of a packet, in bytes, with which it passes every path.
pub(super) const ROOM: usize = 1180;
/// Number of sent packets kept, to be sent again.
const RECORDED: usize = 32;
/// Maximum number of challenges that wait for their answers.
const CHALLENGES: usize = 8;

/// The packets that an adversary acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckHabit {
    Honest,
    Never,
    /// Every second packet, as if the others were lost.
    Half,
    /// Any packets, also some that were never sent.
    Anything,
}

/// A stream that the adversary has opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WrittenStream {
    /// Number of bytes sent so far, in order.
    pub(super) sent: u64,
    /// Number of bytes that may be sent: the window in its OPEN, or more by now.
    pub(super) limit: u64,
    /// Number of RETURN frames sent.
    pub(super) returns_sent: u64,
    /// Number of bytes that the other side may send on it.
    pub(super) credit: u64,
}

/// A session of an adversary.
pub(super) struct HostileSession {
    /// Index of the adversary's key; 0 for a hub.
    pub(super) key: usize,
    /// The address at which it was set up.
    pub(super) home: SocketAddr,
    pub(super) forger: PacketForger,
    pub(super) tactics: Vec<Tactic>,
    pub(super) acks: AckHabit,
    /// The identifier of the next stream opened here.
    pub(super) next_stream: u64,
    pub(super) written: BTreeMap<StreamId, WrittenStream>,
    /// Number of bytes sent on all streams.
    pub(super) sent: u64,
    /// Number of bytes that may be sent on all streams.
    pub(super) credit: u64,
    /// Streams of the other side, each with the highest offset received.
    pub(super) theirs: BTreeMap<StreamId, u64>,
    /// Numbers of RETURN frames received.
    returns_received: BTreeMap<StreamId, u64>,
    /// Counts of ECN codepoints, true or false, that it reports.
    pub(super) counted: EcnCounts,
    /// Challenges to be answered, each with the address at which it arrived.
    pub(super) challenges: VecDeque<(SocketAddr, u64)>,
    pub(super) recorded: VecDeque<Vec<u8>>,
    /// REKEY frames to be sent.
    pub(super) rekeys: VecDeque<Frame<'static>>,
    /// Set once the other side has ended the session.
    pub(super) closed: bool,
}

impl HostileSession {
    /// A session of a terminal with this key and address, or of a hub.
    pub(super) fn new(
        forger: PacketForger,
        terminal: Option<(usize, SocketAddr)>,
        choices: &mut Choices,
    ) -> Self {
        let count = if choices.one_in(2) { 1 } else { 2 + choices.below(2) };
        let tactics = (0..count).map(|_| choices.pick(&Tactic::ALL)).collect();
        let acks = [
            AckHabit::Honest,
            AckHabit::Honest,
            AckHabit::Never,
            AckHabit::Half,
            AckHabit::Anything,
        ];
        let (key, home) = terminal.unwrap_or((0, own_address(0)));
        Self {
            key,
            home,
            credit: forger.allowed.memory,
            forger,
            tactics,
            acks: choices.pick(&acks),
            next_stream: u64::from(terminal.is_none()),
            written: BTreeMap::new(),
            sent: 0,
            theirs: BTreeMap::new(),
            returns_received: BTreeMap::new(),
            counted: EcnCounts::default(),
            challenges: VecDeque::new(),
            recorded: VecDeque::new(),
            rekeys: VecDeque::new(),
            closed: false,
        }
    }

    /// Reads a packet of the other side. Returns `false` if it is not authentic.
    pub(super) fn receive(&mut self, at: SocketAddr, datagram: &mut [u8]) -> bool {
        let Some(mut frames) = self.forger.open(datagram) else { return false };
        while let Ok(Some(frame)) = frame::read(&mut frames) {
            match frame {
                Frame::Open { stream, .. } => _ = self.theirs.entry(stream).or_default(),
                Frame::Stream { stream, offset, data, .. } => {
                    if let Some(highest) = self.theirs.get_mut(&stream) {
                        let end = offset.expand(*highest) + data.len() as u64;
                        *highest = end.max(*highest);
                    }
                }
                Frame::SessionCredit(limit) => self.credit = self.credit.max(limit),
                Frame::StreamCredit { stream, returns, limit } => {
                    let written = self.written.get_mut(&stream);
                    // Credit that crossed a RETURN does not hold.
                    if let Some(written) = written.filter(|written| written.returns_sent == returns)
                    {
                        written.limit = written.limit.max(limit);
                    }
                }
                Frame::Return { stream, returns, .. } => {
                    self.returns_received.insert(stream, returns);
                }
                Frame::Reset { stream, .. } => {
                    self.written.remove(&stream);
                    self.theirs.remove(&stream);
                    self.returns_received.remove(&stream);
                }
                Frame::PathChallenge(token) if self.challenges.len() < CHALLENGES => {
                    self.challenges.push_back((at, token));
                }
                Frame::Rekey { generation, key } => {
                    self.forger.phases.drop_previous();
                    self.rekeys.extend(self.forger.phases.on_rekey(generation, key).ok().flatten());
                }
                Frame::Close(_) => self.closed = true,
                _ => {}
            }
        }
        true
    }

    /// Seals a packet with the next number.
    pub(super) fn seal(&mut self, frames: &[u8], source: bool) -> Vec<u8> {
        let number = self.forger.sealed_end;
        self.seal_as(number, frames, source)
    }

    /// Seals a packet with any number.
    pub(super) fn seal_as(&mut self, number: u64, frames: &[u8], source: bool) -> Vec<u8> {
        let packet = self.forger.seal(number, source, frames);
        if self.tactics.contains(&Tactic::Replay) {
            self.recorded.truncate(RECORDED - 1);
            self.recorded.push_front(packet.clone());
        }
        packet
    }

    /// Number of bytes that the other side allows on the stream in all.
    pub(super) fn limit(&self, id: StreamId) -> u64 {
        self.written.get(&id).map_or(0, |written| written.limit)
    }

    /// A stream that was opened here, or a new one.
    pub(super) fn stream(&mut self, out: &mut Vec<u8>, choices: &mut Choices) -> StreamId {
        let most = self.forger.allowed.max_streams.min(8) as usize;
        if self.written.len() < most && (self.written.is_empty() || choices.one_in(8)) {
            return self.open(out, choices);
        }
        let nth = choices.below(self.written.len() as u64) as usize;
        self.written.keys().nth(nth).copied().unwrap_or(StreamId(self.next_stream))
    }

    /// Number of RETURN frames received for a stream.
    pub(super) fn returns_received(&self, id: StreamId) -> u64 {
        self.returns_received.get(&id).copied().unwrap_or(0)
    }

    /// Opens a stream on which the other side may send a large amount.
    pub(super) fn open(&mut self, out: &mut Vec<u8>, choices: &mut Choices) -> StreamId {
        let credit = if choices.one_in(4) { choices.extreme() } else { 1 << 40 };
        self.open_for(credit, out, choices)
    }

    /// Opens a stream on which the other side may send `credit`.
    pub(super) fn open_for(
        &mut self,
        credit: u64,
        out: &mut Vec<u8>,
        choices: &mut Choices,
    ) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 2;
        let allowed = self.forger.allowed;
        let windows = [0, allowed.memory / 64, allowed.memory / 16, allowed.stream_window];
        let window = if choices.one_in(256) { choices.extreme() } else { choices.pick(&windows) };
        self.written
            .insert(stream, WrittenStream { limit: window, credit, ..WrittenStream::default() });
        let open = Box::new(grammar::destination(choices));
        let compressed = choices.one_in(4);
        Frame::Open { stream, window, credit, compressed, open }.write(out, false);
        stream
    }

    /// Writes the next bytes of a stream, within the credit.
    pub(super) fn write(&mut self, id: StreamId, size: u64, out: &mut Vec<u8>) {
        let offset = self.written.get(&id).map_or(0, |written| written.sent);
        let room = self.limit(id).saturating_sub(offset);
        let size = size.min(room).min(self.credit.saturating_sub(self.sent));
        let data = [id.0 as u8; ROOM];
        let (offset, stream) = (TruncatedOffset::new(offset), id);
        Frame::Stream { stream, offset, fin: false, data: &data[..size as usize] }
            .write(out, false);
        self.sent += size;
        if let Some(written) = self.written.get_mut(&id) {
            written.sent += size;
        }
    }

    /// Appends an acknowledgement in this adversary's manner.
    pub(super) fn acknowledge(&self, out: &mut Vec<u8>, choices: &mut Choices) {
        let heard = &self.forger.received;
        if heard.is_empty() || self.acks == AckHabit::Never {
            return;
        }
        match self.acks {
            AckHabit::Half => {
                let largest = self.forger.received_end() - 1;
                let alternate = (0..largest.min(100)).map(|i| largest - 2 * i.min(largest / 2));
                let mut ranges: Vec<_> = alternate.map(|n| n..n + 1).collect();
                ranges.dedup();
                let none = core::iter::empty();
                frame::write_ack(out, ranges.into_iter(), none, &AckReport::default(), 800);
            }
            AckHabit::Anything => grammar::any_ack(self.forger.received_end(), out, choices),
            AckHabit::Honest | AckHabit::Never => {
                let none = core::iter::empty();
                frame::write_ack(out, heard.descending(), none, &AckReport::default(), 800);
            }
        }
    }
}
