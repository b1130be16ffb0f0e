//! All streams of a session: their life cycle, their credit, and which sends next.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use thiserror::Error;
use units::{Instant, RangeSet};

use self::budget::{Budget, Usage};
use self::departing::Departure;
use self::flow::{Limits, Pace, RecvCredit, SendCredit};
use self::milestones::Milestones;
use self::recv_buffer::{GAP_COST, RecvBuffer, Violation};
use self::send_buffer::SendBuffer;
use crate::scheduler::{FairQueue, RemovableQueue, Ticket};
use crate::spare::{ENTRY, Spare as _};
use crate::wire::frame::Frame;
use crate::{ClassId, Event, ResetReason, StreamId, StreamStats};

pub(crate) mod budget;
mod commands;
mod departing;
pub(crate) mod flow;
mod granting;
#[cfg(test)]
mod long;
pub(crate) mod milestones;
mod peer;
pub(crate) mod pieces;
pub(crate) mod recv_buffer;
mod returning;
pub(crate) mod send_buffer;
mod sending;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire;

/// The peer broke the protocol; the session must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ProtocolError {
    #[error("stream {stream:?}: {violation}")]
    Stream { stream: StreamId, violation: Violation },
    #[error("the peer exceeds the credit of the session")]
    SessionCredit,
    #[error("the peer opens streams far beyond its limit")]
    TooMany,
    #[error("the peer uses a stream that only this side may open")]
    NotOpened,
    #[error("the peer sends a compact offset in a session over several links")]
    Compact,
}

/// The state of one stream. It is dropped once both directions are done or the stream is reset.
#[derive(Debug)]
struct Stream {
    send: SendBuffer,
    recv: RecvBuffer,
    /// How far the peer may send ahead of the reader. Reserved for the stream until its end is
    /// known.
    window: u64,
    /// The part of it that is counted in `Streams::granted`.
    charged: Usage,
    /// The client that the stream's connection comes from.
    client: IpAddr,
    /// The acceptor has connected it, or has nothing to connect.
    connected: bool,
    /// Something has been read, so the window is needed.
    proven: bool,
    /// When the reader started on the current window, and at which offset.
    measured: Option<(Instant, u64)>,
    /// What is counted in `Streams::openings` until the peer grants the first credit.
    opening: Usage,
    /// How often the peer has returned its window, whether it has less than a first window, and how
    /// often this side has returned its own.
    taken_back: u64,
    is_small: bool,
    returned: u64,
    /// When this side's window is returned unless something is sent or received.
    rest_ends: Option<Instant>,
    /// Data has come and nothing has been written since.
    owes_answer: bool,
    /// Reference points for completing compact offsets.
    milestones: Milestones,
    /// False while data has come but the opening frame has not.
    opened: bool,
    /// Whether its data is sent in segments.
    compressed: bool,
    /// The owner has read everything and waits for more.
    reader_waits: bool,
    /// The owner has read the end of the stream.
    end_told: bool,
    /// The owner has reset the stream, after what it had written.
    departure: Option<Departure>,
    /// The class whose share of the rate the stream uses.
    class: ClassId,
    /// Whether the stream is in `Streams::ready` (new data) and in `Streams::retransmit`.
    ready: bool,
    retransmit: Option<Ticket>,
    /// Bytes retransmitted, and bytes received in packets that FEC restored.
    resent: u64,
    recovered: u64,
}

impl Stream {
    /// A stream with these initial credits, both counted from its beginning.
    fn new(send_credit: u64, recv_limit: u64, opened: bool) -> Self {
        Self {
            window: recv_limit,
            charged: Usage::default(),
            client: UNKNOWN,
            connected: false,
            proven: false,
            measured: None,
            opening: Usage::default(),
            taken_back: 0,
            is_small: false,
            returned: 0,
            rest_ends: None,
            owes_answer: false,
            send: SendBuffer::new(send_credit),
            recv: RecvBuffer::new(recv_limit),
            milestones: Milestones::default(),
            opened,
            compressed: false,
            reader_waits: true,
            end_told: false,
            departure: None,
            class: ClassId::DEFAULT,
            ready: false,
            retransmit: None,
            resent: 0,
            recovered: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.send.is_done() && self.end_told
    }
}

/// A piece of a stream for the next packet.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) stream: StreamId,
    pub(crate) range: Range<u64>,
    pub(crate) fin: bool,
    /// The stream does not fill the link, so somebody is waiting for this data.
    pub(crate) sparse: bool,
    /// Whether so few bytes are held that the offset fits a compact frame.
    pub(crate) compact: bool,
}

/// The client of a stream whose opening has not come yet.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// How much a stream may send in one turn, and ahead of others if it was quiet: enough for a reply
/// that somebody waits for, but not a download. Takes 5 ms at 50 Mbit/s.
const SPARSE: usize = 32 * 1024;

/// What is kept of a stream that this side reset.
#[derive(Debug)]
struct Resetting {
    /// One more than the highest offset received.
    highest: u64,
    milestones: Milestones,
    /// What the peer may still be sending, as counted in `Streams::granted`.
    charged: Usage,
    client: IpAddr,
}

/// What is left of a stream that the peer reset. It is read to the end first, as from the kernel's
/// buffer of a TCP connection.
#[derive(Debug)]
struct Drain {
    recv: RecvBuffer,
    client: IpAddr,
    reason: ResetReason,
    until: Instant,
}

/// Control frames allowed to wait however few streams there are: those of the session, and those
/// sent twice by mistake.
const SPARE_FRAMES: u64 = 1024;

#[derive(Debug)]
pub(crate) struct Streams {
    /// 0 if this side opens even stream identifiers, 1 if odd.
    parity: u64,
    next_id: u64,
    own_open: u32,
    peer_open: u32,
    /// Number of streams the peer has ever opened.
    peer_opened: u64,
    limits: Limits,
    peer_limits: Limits,
    /// Maximum number of written but unsent bytes per stream.
    unsent_limit: u64,
    /// Boxed because the map's nodes have room for eleven streams each.
    map: BTreeMap<StreamId, Box<Stream>>,
    /// Streams opened by the peer that are over.
    retired: RangeSet,
    /// Streams this side reset while the peer may still be sending.
    resetting: BTreeMap<StreamId, Resetting>,
    /// Streams the peer reset that still have data to read.
    drains: BTreeMap<StreamId, Drain>,
    /// When the reader of each drain is given up.
    drain_ends: BTreeSet<(Instant, StreamId)>,
    /// When each departing stream is reset at the latest.
    departures: BTreeSet<(Instant, StreamId)>,
    send_credit: SendCredit,
    recv_credit: RecvCredit,
    /// The windows of all streams, and the rest of those of reset streams.
    granted: Budget,
    /// Memory the peer reserves for streams that this side opened, until it grants them their first
    /// credit.
    openings: Budget,
    /// What the peer granted the stream that each client opened last.
    offered: BTreeMap<IpAddr, u64>,
    /// Offsets are sent in full, and must come so: packets come over several links, and each numbers
    /// its own.
    full_offsets: bool,
    /// Streams at rest, by the time their windows are returned.
    resting: BTreeSet<(Instant, StreamId)>,
    pace: Pace,
    /// Start of the current round trip, and bytes received in it.
    round: (Instant, u64),
    flight: u64,
    /// Bytes held in all send buffers.
    held: u64,
    /// Number of gaps in all receive buffers.
    gaps: usize,
    /// Frames that must arrive; sent before any stream data.
    control: VecDeque<Frame<'static>>,
    retransmit: RemovableQueue<StreamId>,
    /// Streams with new data to send, per class.
    ready: Vec<FairQueue<StreamId>>,
    /// Streams whose last write did not fit.
    writers: BTreeSet<StreamId>,
    /// What a stream could hold when all writers were last looked at, or the least since: its share
    /// of the memory, and unsent.
    looked_at: [u64; 2],
    /// How often a writer was looked at.
    #[cfg(test)]
    looks: usize,
    events: VecDeque<Event>,
}

impl Streams {
    /// The streams of a session with this many `classes`, for packets of `mtu` bytes.
    pub(crate) fn new(
        parity: u64,
        limits: Limits,
        peer_limits: Limits,
        unsent_limit: u64,
        classes: usize,
        mtu: usize,
    ) -> Self {
        Self {
            parity,
            next_id: parity,
            own_open: 0,
            peer_open: 0,
            peer_opened: 0,
            limits,
            peer_limits,
            unsent_limit,
            map: BTreeMap::new(),
            retired: RangeSet::default(),
            resetting: BTreeMap::new(),
            drains: BTreeMap::new(),
            drain_ends: BTreeSet::new(),
            departures: BTreeSet::new(),
            send_credit: SendCredit::new(peer_limits.memory),
            recv_credit: RecvCredit::new(limits.memory),
            granted: Budget::for_windows(&limits),
            openings: Budget::for_openings(&peer_limits),
            offered: BTreeMap::new(),
            full_offsets: false,
            resting: BTreeSet::new(),
            pace: Pace::default(),
            round: (Instant::ZERO, 0),
            flight: 0,
            held: 0,
            gaps: 0,
            control: VecDeque::new(),
            retransmit: RemovableQueue::default(),
            ready: (0..classes).map(|_| FairQueue::new(mtu.max(SPARSE))).collect(),
            writers: BTreeSet::new(),
            looked_at: [0; 2],
            #[cfg(test)]
            looks: 0,
            events: VecDeque::new(),
        }
    }

    /// Sends offsets in full from now on, and expects them so.
    pub(crate) fn send_full_offsets(&mut self) {
        self.full_offsets = true;
    }

    /// Sets the maximum number of written but unsent bytes per stream.
    pub(crate) fn set_unsent_limit(&mut self, bytes: u64) {
        self.unsent_limit = bytes;
        self.wake_writers();
    }

    /// Replaces the classes. Each stream moves to the `successor` of its class, which is one of the
    /// new ones.
    pub(crate) fn configure_classes(
        &mut self,
        classes: usize,
        mtu: usize,
        successor: impl Fn(ClassId) -> ClassId,
    ) {
        let new = || FairQueue::new(mtu.max(SPARSE));
        let mut ready: Vec<Option<FairQueue<StreamId>>> = (0..classes).map(|_| None).collect();
        for (class, queue) in (0..).map(ClassId).zip(self.ready.drain(..)) {
            match &mut ready[usize::from(successor(class).0)] {
                Some(others) => queue.backlogged().for_each(|id| others.push(id)),
                empty => *empty = Some(queue),
            }
        }
        self.ready = ready.into_iter().map(|queue| queue.unwrap_or_else(new)).collect();
        self.map.values_mut().for_each(|stream| stream.class = successor(stream.class));
    }

    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Frees what is not in use. Each stream does so when its window is returned.
    pub(crate) fn free_spare(&mut self) {
        self.map.free_spare();
        self.retired.free_spare();
        self.resetting.free_spare();
        self.drains.free_spare();
        self.drain_ends.free_spare();
        self.departures.free_spare();
        self.resting.free_spare();
        self.control.free_spare();
        self.retransmit.free_spare();
        self.writers.free_spare();
        self.events.free_spare();
        self.ready.iter_mut().for_each(FairQueue::free_spare);
    }

    /// Number of live streams.
    pub(crate) fn len(&self) -> usize {
        self.map.len() + self.drains.len()
    }

    /// Statistics of a stream.
    pub(crate) fn stats(&self, id: StreamId) -> Option<StreamStats> {
        let Stream { send, recv, resent, recovered, .. } = &**self.map.get(&id)?;
        let unsent = send.unsent();
        Some(StreamStats {
            written: send.written(),
            unsent,
            unacknowledged: send.held() - unsent,
            blocked_by_peer: send.is_blocked() || (unsent > 0 && self.send_credit.room() == 0),
            resent: *resent,
            held_to_read: recv.highest() - recv.read_offset(),
            recovered: *recovered,
        })
    }

    /// Counts bytes of a stream that came in a packet restored by FEC.
    pub(crate) fn on_recovered(&mut self, id: StreamId, bytes: usize) {
        if let Some(stream) = self.map.get_mut(&id) {
            stream.recovered += bytes as u64;
        }
    }

    /// Bytes held for streams, to send and to read.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.held, self.recv_credit.held())
    }

    /// Whether more control frames wait than a well-behaved peer can cause. Each stream that exists
    /// or may be opened by the peer accounts for at most an opening, an answer, some credit, a
    /// returned window and an end.
    pub(crate) fn owes_too_much(&self) -> bool {
        let streams = u64::from(self.limits.max_streams) + u64::from(self.own_open);
        self.control.len() as u64 > 5 * streams + SPARE_FRAMES
    }

    /// Further memory: the streams themselves, gaps in received data, waiting frames.
    pub(crate) fn overhead(&self) -> usize {
        self.map.len() * size_of::<Stream>()
            + self.gaps * GAP_COST as usize
            + (self.resetting.len() + self.drains.len()) * size_of::<Stream>()
            + (self.retired.count() + self.resting.len()) * ENTRY
            + (self.granted.clients() + self.openings.clients() + self.offered.len()) * ENTRY
            + self.control.len() * size_of::<Frame>()
    }
}

/// Ending streams.
impl Streams {
    fn retire_if_done(&mut self, id: StreamId) {
        if self.map.get(&id).is_some_and(|stream| stream.is_done()) {
            self.remove(id);
            self.retire(id);
            self.events.push_back(Event::Closed(id));
        }
    }

    /// Removes a stream from every structure that refers to it.
    fn remove(&mut self, id: StreamId) -> Option<Box<Stream>> {
        self.stir(id);
        let stream = self.map.remove(&id)?;
        if let Some(Departure { until, .. }) = stream.departure {
            self.departures.remove(&(until, id));
        }
        self.held -= stream.send.held();
        self.gaps -= stream.recv.gaps();
        debug_assert!(!self.map.is_empty() || self.held == 0, "{} bytes of no stream", self.held);
        self.granted.replace(stream.client, stream.charged, Usage::default());
        self.openings.replace(stream.client, stream.opening, Usage::default());
        self.writers.remove(&id);
        self.ready[usize::from(stream.class.0)].remove(id);
        self.retransmit.remove(stream.retransmit);
        Some(stream)
    }

    fn retire(&mut self, id: StreamId) {
        if id.0 % 2 == self.parity {
            self.own_open -= 1;
        } else {
            self.peer_open -= 1;
            self.retired.insert_one(id.0 / 2);
        }
    }
}
