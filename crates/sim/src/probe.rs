//! What is noted of a run for tables and plots.

use core::time::Duration;

use tcp::{ByteRange, Payload as _, Segment, SeqNr};
use units::Instant;

use crate::network::LaneId;
use crate::slab::Key;

/// So many marks are kept of a connection's end; later ones are left out.
const MARKS: usize = 400_000;

/// Everything that was noted.
#[derive(Debug, Default)]
pub struct Probe {
    pub(crate) every: Option<Duration>,
    /// The ends of connections that were watched, in the order in which they
    /// were opened.
    pub senders: Vec<Sender>,
    /// The links that were watched.
    pub links: Vec<Line>,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Sender {
    /// The flow's name, the segment of the connection, and which end it is.
    pub label: String,
    pub(crate) socket: Option<Key>,
    first: Option<SeqNr>,
    /// Its state from time to time.
    pub states: Vec<State>,
    /// Its segments, for a time-sequence graph.
    pub marks: Vec<Mark>,
}

/// The state of a sender at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// When.
    pub at: Instant,
    /// The congestion window, in bytes.
    pub cwnd: u64,
    /// The slow-start threshold, in bytes; `u64::MAX` while it is arbitrarily
    /// high.
    pub ssthresh: u64,
    /// Sent and not acknowledged, in bytes.
    pub outstanding: u64,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
}

/// A segment with data that left, or an acknowledgement that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Instant,
    /// Which.
    pub kind: MarkKind,
    /// The first byte of the data, or the byte expected next.
    pub from: u32,
    /// Bytes of data.
    pub len: u32,
}

/// What a mark stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkKind {
    /// A segment with data left.
    Data,
    /// An acknowledgement came.
    Ack,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Line {
    /// Its name.
    pub label: String,
    pub(crate) lane: LaneId,
    /// From time to time.
    pub loads: Vec<Load>,
}

/// The load of a link at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// When.
    pub at: Instant,
    /// Packets that wait.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Bytes that have come through so far.
    pub delivered: u64,
}

impl Probe {
    pub(crate) fn watch(&mut self, label: String, socket: Key) -> u32 {
        let (states, marks) = (Vec::new(), Vec::new());
        self.senders.push(Sender { label, socket: Some(socket), first: None, states, marks });
        self.senders.len() as u32 - 1
    }

    pub(crate) fn unwatch(&mut self, sender: u32) {
        if let Some(sender) = self.senders.get_mut(sender as usize) {
            sender.socket = None;
        }
    }

    pub(crate) fn note_departure(&mut self, id: u32, at: Instant, segment: &Segment<ByteRange>) {
        let Some(sender) = self.senders.get_mut(id as usize) else { return };
        let first = *sender.first.get_or_insert(segment.seq);
        if !segment.payload.is_empty() {
            let from = segment.seq.get().wrapping_sub(first.get());
            sender.mark(Mark { at, kind: MarkKind::Data, from, len: segment.payload.len() as u32 });
        }
    }

    pub(crate) fn note_arrival(&mut self, id: u32, at: Instant, segment: &Segment<ByteRange>) {
        let Some(sender) = self.senders.get_mut(id as usize) else { return };
        if let (Some(first), Some(ack)) = (sender.first, segment.ack) {
            let from = ack.get().wrapping_sub(first.get());
            sender.mark(Mark { at, kind: MarkKind::Ack, from, len: 0 });
        }
    }
}

impl Sender {
    fn mark(&mut self, mark: Mark) {
        if self.marks.len() < MARKS {
            self.marks.push(mark);
        }
    }

    /// Whether it ever sent data: the other end of a one-way transfer did not.
    pub fn has_sent(&self) -> bool {
        self.marks.iter().any(|mark| mark.kind == MarkKind::Data)
    }

    /// The mean and the greatest amount of outstanding data, in bytes.
    pub fn outstanding(&self) -> Option<(f64, u64)> {
        let busy = || self.states.iter().map(|state| state.outstanding).filter(|bytes| *bytes > 0);
        let count = busy().count();
        let mean = busy().sum::<u64>() as f64 / count as f64;
        busy().max().map(|most| (mean, most))
    }
}
