//! All streams of a session: their life cycle, their credit, and the order in which they send.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use thiserror::Error;
use units::{Instant, RangeSet};

use self::budget::{ClientUsage, MemoryBudget};
use self::departing::DelayedReset;
use self::flow::{PeerLimits, RecvCredit, SendCredit, SessionPace};
use self::milestones::OffsetMilestones;
use self::recv_buffer::{GAP_COST, RecvBuffer, StreamViolation};
use self::send_buffer::SendBuffer;
use crate::scheduler::{FairQueue, QueueTicket, RemovableQueue};
use crate::spare::{ENTRY, FreeSpare as _};
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

/// A violation of the protocol by the peer, which ends the session (`docs/slacp.md`, Violations).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ProtocolError {
    #[error("stream {stream:?}: {violation}")]
    Stream { stream: StreamId, violation: StreamViolation },
    #[error("the peer exceeds the credit of the session")]
    SessionCredit,
    #[error("the peer opens streams far beyond its limit")]
    TooMany,
    #[error("the peer uses a stream that only this side may open")]
    NotOpened,
    #[error("the peer sends a compact offset in a session over several links")]
    Compact,
}

/// The state of one stream, until both directions are done or the stream is reset.
#[derive(Debug)]
struct StreamEntry {
    send: SendBuffer,
    recv: RecvBuffer,
    /// Number of bytes that the peer may send ahead of the reader. Reserved for the stream until
    /// its end is known.
    window: u64,
    /// The memory charged for the stream in `Streams::granted`.
    charged: ClientUsage,
    /// The client that the stream's connection comes from.
    client: IpAddr,
    /// Set once the acceptor has connected the stream, or if there is nothing to connect.
    connected: bool,
    /// Set once something has been read, which shows that the window is needed.
    proven: bool,
    /// Time and offset at which the reader began with the current window.
    measured: Option<(Instant, u64)>,
    /// The memory charged in `Streams::openings` until the peer grants the first credit.
    opening: ClientUsage,
    /// Number of RETURN frames of the peer.
    returns_received: u64,
    /// Set if the peer has less than a first window, because it has returned its window or because
    /// its client held too much.
    is_small: bool,
    /// Number of RETURN frames of this side.
    returns_sent: u64,
    /// The time at which this side returns its window, unless data is sent or received before.
    rest_deadline: Option<Instant>,
    /// Set if data has come and nothing has been written since.
    owes_answer: bool,
    /// Reference points for completing compact offsets.
    milestones: OffsetMilestones,
    /// False while data has come but the OPEN frame has not.
    opened: bool,
    /// Set if data is sent in segments, some of which may be compressed.
    compressed: bool,
    /// Set if the owner has read everything and waits for more.
    reader_waits: bool,
    /// Set once the owner has read the end of the stream.
    end_read: bool,
    /// The reset by the owner that waits until everything written before it is acknowledged.
    delayed_reset: Option<DelayedReset>,
    /// The class whose share of the rate the stream uses.
    class: ClassId,
    /// Set while the stream is in `Streams::ready`, that is, has new data to send.
    ready: bool,
    /// Its place in [`StreamSet::retransmit`]; `None` if no data of it is lost.
    retransmit: Option<QueueTicket>,
    /// Number of bytes retransmitted after losses.
    resent: u64,
    /// Number of bytes received in packets that FEC restored.
    recovered: u64,
}

impl StreamEntry {
    /// A stream with these initial limits for sending and receiving, as offsets.
    fn new(send_credit: u64, recv_limit: u64, opened: bool) -> Self {
        Self {
            window: recv_limit,
            charged: ClientUsage::default(),
            client: UNKNOWN_CLIENT,
            connected: false,
            proven: false,
            measured: None,
            opening: ClientUsage::default(),
            returns_received: 0,
            is_small: false,
            returns_sent: 0,
            rest_deadline: None,
            owes_answer: false,
            send: SendBuffer::new(send_credit),
            recv: RecvBuffer::new(recv_limit),
            milestones: OffsetMilestones::default(),
            opened,
            compressed: false,
            reader_waits: true,
            end_read: false,
            delayed_reset: None,
            class: ClassId::DEFAULT,
            ready: false,
            retransmit: None,
            resent: 0,
            recovered: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.send.is_done() && self.end_read
    }
}

/// A piece of a stream for the next packet.
#[derive(Debug)]
pub(crate) struct StreamChunk {
    pub(crate) stream: StreamId,
    pub(crate) range: Range<u64>,
    pub(crate) fin: bool,
    /// Set if the stream is sparse: it sends little, such as a reply that a user waits for.
    pub(crate) sparse: bool,
    /// Set if so few bytes are held that the offset fits a compact frame.
    pub(crate) compact: bool,
}

/// The client of a stream whose OPEN frame has not come yet.
const UNKNOWN_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Number of bytes that a stream may send in one turn, and ahead of others after a pause: enough
/// for a reply, but not for a download. Takes 5 ms at 50 Mbit/s.
const STREAM_QUANTUM: usize = 32 * 1024;

/// The remaining state of a stream that this side reset, until the peer's RESET or FIN.
#[derive(Debug)]
struct ResettingStream {
    /// One more than the highest offset received.
    highest: u64,
    milestones: OffsetMilestones,
    /// The bytes that the peer may still be sending, as charged in `Streams::granted`.
    charged: ClientUsage,
    client: IpAddr,
}

/// Received data of a stream that the peer reset. The owner reads it before it learns of the reset,
/// as from the kernel's buffer of a TCP connection.
#[derive(Debug)]
struct DrainingStream {
    recv: RecvBuffer,
    client: IpAddr,
    reason: ResetReason,
    until: Instant,
}

/// Number of control frames that may wait however few streams there are: those of the session, and
/// those sent twice by mistake.
const SPARE_FRAMES: u64 = 1024;

/// The streams of a session, with their shared credit and queues.
#[derive(Debug)]
pub(crate) struct StreamSet {
    /// 0 if this side opens even stream identifiers, 1 if odd.
    parity: u64,
    next_id: u64,
    own_open: u32,
    peer_open: u32,
    /// Number of streams the peer has ever opened.
    peer_opened: u64,
    limits: PeerLimits,
    peer_limits: PeerLimits,
    /// Maximum number of written but unsent bytes per stream.
    unsent_limit: u64,
    /// Boxed because the map's nodes have room for eleven streams each.
    map: BTreeMap<StreamId, Box<StreamEntry>>,
    /// Streams opened by the peer that are over, by half their identifiers.
    retired: RangeSet,
    /// Streams this side reset while the peer may still be sending.
    resetting: BTreeMap<StreamId, ResettingStream>,
    /// Streams the peer reset that still have data to read.
    drains: BTreeMap<StreamId, DrainingStream>,
    /// The time at which the unread data of each drain is dropped.
    drain_ends: BTreeSet<(Instant, StreamId)>,
    /// The time at which each departing stream is reset at the latest.
    departures: BTreeSet<(Instant, StreamId)>,
    send_credit: SendCredit,
    recv_credit: RecvCredit,
    /// Memory for the windows of all streams, and for what peers may still send on reset ones.
    window_budget: MemoryBudget,
    /// Memory that the peer reserves for streams that this side opened, until it grants them their
    /// first credit.
    opening_budget: MemoryBudget,
    /// The first credit of the newest stream of each client, as granted by the peer.
    first_credits: BTreeMap<IpAddr, u64>,
    /// Set if offsets are sent in full and must come so: a session over several links has several
    /// sequences of packet numbers, and compact offsets need one.
    full_offsets: bool,
    /// Streams at rest, by the time at which their windows are returned.
    resting: BTreeSet<(Instant, StreamId)>,
    pace: SessionPace,
    /// Start of the current round trip, and bytes received in it.
    round: (Instant, u64),
    /// The most bytes received in a round trip so far.
    flight: u64,
    /// Bytes held in all send buffers.
    held: u64,
    /// Number of gaps in all receive buffers.
    gaps: usize,
    /// Frames that must arrive; sent before any stream data.
    control: VecDeque<Frame<'static>>,
    /// Streams with lost data to retransmit, in order.
    retransmit: RemovableQueue<StreamId>,
    /// Streams with new data to send, per class.
    ready: Vec<FairQueue<StreamId>>,
    /// Streams whose last write did not fit.
    writers: BTreeSet<StreamId>,
    /// The limits of what a stream may hold, in all and unsent, when all writers were last checked
    /// for room, or the lowest since then.
    checked_limits: [u64; 2],
    /// Number of times that a writer was checked for room.
    #[cfg(test)]
    looks: usize,
    events: VecDeque<Event>,
}

impl StreamSet {
    /// The streams of a session with `classes` classes and packets of `mtu` bytes.
    pub(crate) fn new(
        parity: u64,
        limits: PeerLimits,
        peer_limits: PeerLimits,
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
            window_budget: MemoryBudget::for_windows(&limits),
            opening_budget: MemoryBudget::for_openings(&peer_limits),
            first_credits: BTreeMap::new(),
            full_offsets: false,
            resting: BTreeSet::new(),
            pace: SessionPace::default(),
            round: (Instant::ZERO, 0),
            flight: 0,
            held: 0,
            gaps: 0,
            control: VecDeque::new(),
            retransmit: RemovableQueue::default(),
            // With this quantum a short exchange ends within its turn (docs/slacp.md, Scheduling).
            ready: (0..classes).map(|_| FairQueue::new(mtu.max(STREAM_QUANTUM))).collect(),
            writers: BTreeSet::new(),
            checked_limits: [0; 2],
            #[cfg(test)]
            looks: 0,
            events: VecDeque::new(),
        }
    }

    /// Sends offsets in full from now on, and takes compact ones as violations.
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
        let new = || FairQueue::new(mtu.max(STREAM_QUANTUM));
        let mut ready: Vec<Option<FairQueue<StreamId>>> = (0..classes).map(|_| None).collect();
        // Queues are kept, so that streams keep their order and stay sparse.
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

    /// Frees memory that is not in use. Each stream frees its own when its window is returned.
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

    /// Number of live streams, with those that are reset but not read to the end.
    pub(crate) fn len(&self) -> usize {
        self.map.len() + self.drains.len()
    }

    /// Statistics of a stream; `None` if it is over or reset.
    pub(crate) fn stats(&self, id: StreamId) -> Option<StreamStats> {
        let StreamEntry { send, recv, resent, recovered, .. } = &**self.map.get(&id)?;
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

    /// Counts bytes of a stream that were received in a packet restored by FEC.
    pub(crate) fn on_recovered(&mut self, id: StreamId, bytes: usize) {
        if let Some(stream) = self.map.get_mut(&id) {
            stream.recovered += bytes as u64;
        }
    }

    /// Bytes held for all streams: to be sent or acknowledged, and to be read.
    pub(crate) fn held(&self) -> (u64, u64) {
        (self.held, self.recv_credit.held())
    }

    /// Returns `true` if more control frames wait than a well-behaved peer can cause. Each stream
    /// that exists or may be opened by the peer accounts for at most five: an OPEN, an ACCEPT, a
    /// STREAM_CREDIT, a RETURN and a RESET.
    pub(crate) fn exceeds_control_limit(&self) -> bool {
        let streams = u64::from(self.limits.max_streams) + u64::from(self.own_open);
        self.control.len() as u64 > 5 * streams + SPARE_FRAMES
    }

    /// Memory besides the data, in bytes: the streams themselves, gaps in received data, and
    /// waiting frames.
    pub(crate) fn overhead(&self) -> usize {
        // A reset stream counts as a whole one, which is more than its record and map entry take.
        self.map.len() * size_of::<StreamEntry>()
            + self.gaps * GAP_COST as usize
            + (self.resetting.len() + self.drains.len()) * size_of::<StreamEntry>()
            + (self.retired.count() + self.resting.len()) * ENTRY
            + (self.window_budget.clients()
                + self.opening_budget.clients()
                + self.first_credits.len())
                * ENTRY
            + self.control.len() * size_of::<Frame>()
    }
}

/// The end of streams: both directions are over, and all is acknowledged and read.
impl StreamSet {
    fn retire_if_done(&mut self, id: StreamId) {
        if self.map.get(&id).is_some_and(|stream| stream.is_done()) {
            self.remove(id);
            self.retire(id);
            self.events.push_back(Event::Closed(id));
        }
    }

    /// Removes a stream from every structure that refers to it.
    fn remove(&mut self, id: StreamId) -> Option<Box<StreamEntry>> {
        // While the stream is still there: it knows the time by which it is listed as resting.
        self.end_rest(id);
        let stream = self.map.remove(&id)?;
        if let Some(DelayedReset { until, .. }) = stream.delayed_reset {
            self.departures.remove(&(until, id));
        }
        self.held -= stream.send.held();
        self.gaps -= stream.recv.gaps();
        debug_assert!(!self.map.is_empty() || self.held == 0, "{} bytes of no stream", self.held);
        self.window_budget.replace(stream.client, stream.charged, ClientUsage::default());
        self.opening_budget.replace(stream.client, stream.opening, ClientUsage::default());
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
            // The peer's identifiers have one parity: halved, those in a row are one range.
            self.retired.insert_one(id.0 / 2);
        }
    }
}
