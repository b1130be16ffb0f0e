//! The sending side of packet channels: queues, their order, and retransmissions.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use units::{ByteCount, Instant};

use super::codel::{CoDel, CoDelParams};
use super::piece::{PacketPiece, PieceFit, PieceRoom};
use super::{ChannelConfig, QueueDiscipline, flow};
use crate::event::log::{DropReason, EventLog, LogEvent, PayloadUnit};
use crate::event::stats::ChannelStats;
use crate::scheduler::{ClassBacklog, FairQueue};
use crate::spare::FreeSpare as _;
use crate::wire::frame::{CHANNEL_SIZE, GoneFrame, MAX_DEADLINE, MAX_PACKET};
use crate::{ChannelError, ChannelId, ClassId};

/// Identifies a lane of a channel.
type LaneId = (ChannelId, u8);

/// The sending side of all packet channels of a session.
#[derive(Debug)]
pub(crate) struct OutboundChannels {
    /// Boxed, like the lanes, because a map's nodes have room for eleven values each.
    channels: BTreeMap<ChannelId, Box<ChannelSender>>,
    /// Lanes with packets, per class.
    ready_lanes: Vec<FairQueue<LaneId>>,
    urgent: UrgentQueue,
    /// Number of gathered bytes that count as a full packet of the hop.
    full_packet: usize,
}

/// Pieces that go before new packets: the rest of a packet that was sent in part, then
/// retransmissions. Bounded by the packets in flight, because a piece is retransmitted only once.
#[derive(Debug, Default)]
struct UrgentQueue {
    pieces: VecDeque<PacketPiece>,
    bytes: usize,
}

impl UrgentQueue {
    fn push_front(&mut self, piece: PacketPiece) {
        self.bytes += size_of::<PacketPiece>() + piece.len();
        self.pieces.push_front(piece);
    }

    fn push_back(&mut self, piece: PacketPiece) {
        self.bytes += size_of::<PacketPiece>() + piece.len();
        self.pieces.push_back(piece);
    }

    fn pop_front(&mut self) -> Option<PacketPiece> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= size_of::<PacketPiece>() + piece.len();
        Some(piece)
    }
}

#[derive(Debug)]
struct ChannelSender {
    config: ChannelConfig,
    /// Set once the peer has acknowledged an announcement of the channel with its present deadline.
    announced: bool,
    /// Bytes of the packets in all lanes.
    bytes: usize,
    lanes: BTreeMap<u8, Box<OutboundLane>>,
    /// The next sequence numbers of lanes that were empty when the session rested.
    resting: BTreeMap<u8, u64>,
    /// The time since which packets are gathered. Until they are released, their lanes have no
    /// turns.
    gathered_since: Option<Instant>,
    /// The time at which gathered packets were last released: their wait in the queue began then.
    released: Instant,
    stats: ChannelStats,
}

#[derive(Debug, Default)]
struct OutboundLane {
    queue: VecDeque<QueuedPacket>,
    bytes: usize,
    next_sequence: u64,
    codel: CoDel,
}

#[derive(Debug)]
struct QueuedPacket {
    since: Instant,
    data: Arc<[u8]>,
}

/// A new piece, and the bytes that its class is charged for.
#[derive(Debug)]
pub(crate) struct ChargedPiece {
    pub(crate) piece: PacketPiece,
    /// Size of the whole packet with its frame, even if a part of it is sent later.
    pub(crate) bytes: usize,
}

impl ChannelSender {
    /// The lane with this number, which is created if necessary. One that rested continues with its
    /// sequence number.
    fn lane(&mut self, number: u8) -> &mut OutboundLane {
        let resting = &mut self.resting;
        self.lanes.entry(number).or_insert_with(|| {
            let next_sequence = resting.remove(&number).unwrap_or_default();
            Box::new(OutboundLane { next_sequence, ..OutboundLane::default() })
        })
    }

    /// Frees empty lanes, except for their next sequence numbers.
    fn free_spare(&mut self) {
        let empty = self.lanes.extract_if(.., |_, lane| lane.queue.is_empty());
        self.resting.extend(empty.map(|(number, lane)| (number, lane.next_sequence)));
        self.lanes.free_spare();
    }

    /// Size of the announcement that must precede a packet, in bytes.
    fn announcement(&self) -> usize {
        if self.announced { 0 } else { CHANNEL_SIZE }
    }

    /// Drops the oldest packet of a lane. Returns `false` if the lane is empty.
    fn drop_head(&mut self, now: Instant, id: LaneId, why: DropReason, log: &mut EventLog) -> bool {
        let Some(lane) = self.lanes.get_mut(&id.1) else { return false };
        let Some(queued) = lane.queue.pop_front() else { return false };
        lane.bytes -= queued.data.len();
        self.bytes -= queued.data.len();
        match why {
            DropReason::Full => self.stats.dropped_full += 1,
            DropReason::Stale => self.stats.dropped_stale += 1,
            DropReason::Aqm => self.stats.dropped_aqm += 1,
        }
        log.record(now, || LogEvent::Dropped { channel: id.0, lane: id.1, why });
        true
    }

    /// Returns `true` if a drop-tail queue has no room for the packet, which then counts as
    /// dropped.
    fn drop_tail(
        &mut self,
        now: Instant,
        channel: ChannelId,
        packet: &[u8],
        log: &mut EventLog,
    ) -> bool {
        let full = (self.bytes + packet.len()) as u64 > self.config.queue.get();
        if !full || self.config.discipline != QueueDiscipline::DropTail {
            return false;
        }
        self.stats.dropped_full += 1;
        let lane = flow::lane(packet);
        log.record(now, || LogEvent::Dropped { channel, lane, why: DropReason::Full });
        true
    }

    fn longest_lane(&self) -> Option<u8> {
        self.lanes.iter().max_by_key(|(_, lane)| lane.bytes).map(|(lane, _)| *lane)
    }

    /// The reason to drop the head of the lane now, if there is one.
    fn drop_reason(&mut self, now: Instant, lane: u8, law: &CoDelParams) -> Option<DropReason> {
        let lane = self.lanes.get_mut(&lane)?;
        let head = lane.queue.front()?;
        // Time spent gathering was asked for, and is no sign of a standing queue.
        let since = head.since.max(self.released);
        let wait = now.saturating_since(since);
        let size = head.data.len();
        if wait > self.config.queue_time {
            return Some(DropReason::Stale);
        }
        if self.config.discipline == QueueDiscipline::DropTail {
            return None;
        }
        // RFC 8289 §5.6: no drop if what remains is at most one packet, here one of this size.
        let last = lane.bytes - size <= size;
        lane.codel.should_drop(now, wait, last, law).then_some(DropReason::Aqm)
    }

    /// The head of a lane as a piece, which stays in the queue.
    fn peek(&self, now: Instant, id: LaneId) -> Option<PacketPiece> {
        let lane = self.lanes.get(&id.1)?;
        let data = Arc::clone(&lane.queue.front()?.data);
        Some(PacketPiece {
            channel: id.0,
            lane: id.1,
            sequence: lane.next_sequence,
            error_control: self.config.error_control,
            first_sent: now,
            again: false,
            range: 0..data.len(),
            data,
        })
    }

    /// Removes the head of a lane. Returns `true` if another packet follows.
    fn pop(&mut self, now: Instant, lane: u8) -> bool {
        let Some(lane) = self.lanes.get_mut(&lane) else { return false };
        let Some(queued) = lane.queue.pop_front() else { return false };
        lane.next_sequence += 1;
        lane.bytes -= queued.data.len();
        self.bytes -= queued.data.len();
        self.stats.sent += 1;
        self.stats.bytes_sent += queued.data.len() as u64;
        self.stats.queue_wait = now.saturating_since(queued.since);
        !lane.queue.is_empty()
    }
}

impl OutboundChannels {
    /// The channels of a session with `classes` classes and packets of `mtu` bytes.
    pub(crate) fn new(
        channels: &BTreeMap<ChannelId, ChannelConfig>,
        classes: usize,
        mtu: usize,
    ) -> Self {
        let sender = |config: &ChannelConfig| {
            Box::new(ChannelSender {
                config: *config,
                announced: false,
                bytes: 0,
                lanes: BTreeMap::new(),
                resting: BTreeMap::new(),
                gathered_since: None,
                released: Instant::ZERO,
                stats: ChannelStats::default(),
            })
        };
        Self {
            channels: channels.iter().map(|(id, config)| (*id, sender(config))).collect(),
            ready_lanes: (0..classes).map(|_| FairQueue::new(mtu)).collect(),
            urgent: UrgentQueue::default(),
            full_packet: mtu - mtu / 8,
        }
    }

    /// Applies new settings to existing channels, and a new number of classes. A channel without
    /// new settings moves to the default class. Queued packets stay.
    pub(crate) fn configure(
        &mut self,
        channels: &BTreeMap<ChannelId, ChannelConfig>,
        classes: usize,
        mtu: usize,
    ) {
        self.ready_lanes = (0..classes).map(|_| FairQueue::new(mtu)).collect();
        for (id, sender) in &mut self.channels {
            let usual = ChannelConfig { class: ClassId::DEFAULT, ..sender.config };
            let config = channels.get(id).copied().unwrap_or(usual);
            // The receiver must hear of another deadline.
            sender.announced &= config.deadline == sender.config.deadline;
            sender.config = config;
            // Gathered packets get their turns below, with all others.
            sender.gathered_since = None;
            let waiting = sender.lanes.iter().filter(|(_, lane)| !lane.queue.is_empty());
            let turns = &mut self.ready_lanes[usize::from(config.class.0)];
            waiting.for_each(|(lane, _)| turns.push((*id, *lane)));
        }
    }

    pub(crate) fn stats(&self, id: ChannelId) -> Option<ChannelStats> {
        let sender = self.channels.get(&id)?;
        let urgent =
            self.urgent.pieces.iter().filter(|piece| piece.channel == id).map(PacketPiece::len);
        let waiting = sender.bytes + urgent.sum::<usize>();
        Some(ChannelStats { waiting: ByteCount::new(waiting as u64), ..sender.stats.clone() })
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.channels.values_mut().for_each(|sender| sender.free_spare());
        self.ready_lanes.iter_mut().for_each(FairQueue::free_spare);
        self.urgent.pieces.free_spare();
    }

    /// Queues a packet. If the channel's queue is full, a drop-tail queue drops the packet;
    /// otherwise the longest lane loses its oldest packets.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        packet: &[u8],
        log: &mut EventLog,
    ) -> Result<(), ChannelError> {
        let sender = self.channels.get_mut(&channel).ok_or(ChannelError::NoChannel)?;
        let size = packet.len();
        if !(1..=MAX_PACKET).contains(&size) {
            return Err(ChannelError::Size { size });
        }
        sender.stats.offered += 1;
        if sender.drop_tail(now, channel, packet, log) {
            return Ok(());
        }
        let class = usize::from(sender.config.class.0);
        let id = (channel, flow::lane(packet));
        let lane = sender.lane(id.1);
        lane.queue.push_back(QueuedPacket { since: now, data: packet.into() });
        lane.bytes += size;
        let gathers = !sender.config.gather.is_zero();
        // Once packets wait for a turn, others join them without being gathered.
        if gathers && (sender.bytes == 0 || sender.gathered_since.is_some()) {
            sender.gathered_since.get_or_insert(now);
        } else {
            self.ready_lanes[class].push(id);
        }
        sender.bytes += size;
        let is_full = sender.bytes >= self.full_packet;
        while sender.bytes as u64 > sender.config.queue.get() {
            let Some(longest) = sender.longest_lane() else { break };
            sender.drop_head(now, (channel, longest), DropReason::Full, log);
            if sender.lanes.get(&longest).is_none_or(|lane| lane.queue.is_empty()) {
                self.ready_lanes[class].remove((channel, longest));
            }
        }
        if is_full {
            self.release(now, channel);
        }
        Ok(())
    }

    /// The time at which gathered packets must be released at the latest.
    pub(crate) fn gathered_until(&self) -> Option<Instant> {
        let until = |sender: &ChannelSender| Some(sender.gathered_since? + sender.config.gather);
        self.channels.values().filter_map(|sender| until(sender)).min()
    }

    /// Returns `true` if no new packet waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.channels.values().all(|sender| sender.bytes == 0)
    }

    /// Maximum time that the next packets may wait for others, if packets of a channel that gathers
    /// are about to leave.
    pub(crate) fn gather_time(&self) -> Option<Duration> {
        let waiting = self.channels.values().filter(|sender| sender.bytes > 0);
        waiting.map(|sender| sender.config.gather).max().filter(|gather| !gather.is_zero())
    }

    /// Releases gathered packets: those that have waited long enough, or `all`.
    pub(crate) fn release_gathered(&mut self, now: Instant, all: bool) {
        let is_due = |sender: &ChannelSender| {
            sender.gathered_since.is_some_and(|since| all || since + sender.config.gather <= now)
        };
        let due = self.channels.iter().filter(|(_, sender)| is_due(sender));
        let due: smallvec::SmallVec<[ChannelId; 4]> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.release(now, id));
    }

    /// Gives the lanes of gathered packets their turns.
    fn release(&mut self, now: Instant, channel: ChannelId) {
        let Some(sender) = self.channels.get_mut(&channel) else { return };
        if sender.gathered_since.take().is_none() {
            return;
        }
        sender.released = now;
        let turns = &mut self.ready_lanes[usize::from(sender.config.class.0)];
        let waiting = sender.lanes.iter().filter(|(_, lane)| !lane.queue.is_empty());
        waiting.for_each(|(lane, _)| turns.push((channel, *lane)));
    }

    /// Returns `true` if the headers of a piece may be compressed: it must be a whole packet.
    pub(crate) fn compresses(&self, piece: &PacketPiece) -> bool {
        let is_whole = piece.len() == piece.data.len();
        is_whole && self.channels.get(&piece.channel).is_some_and(|sender| sender.config.compress)
    }

    /// Counts the header bytes of a packet that were saved, or added for its context: the size with
    /// plain headers, and the size written.
    pub(crate) fn on_compressed(&mut self, channel: ChannelId, plain: usize, written: usize) {
        let Some(sender) = self.channels.get_mut(&channel) else { return };
        let stats = &mut sender.stats;
        stats.compressed += u64::from(written < plain);
        // The first context costs more than has been saved by then.
        let saved = (stats.header_bytes_saved + plain as u64).saturating_sub(written as u64);
        stats.header_bytes_saved = saved;
    }

    /// Number of bytes waiting. Visits each channel, 32 at most.
    pub(crate) fn held(&self) -> usize {
        let queued = self.channels.values().map(|sender| sender.bytes).sum::<usize>();
        self.urgent.bytes + queued
    }

    /// Returns `true` if rests of packets or retransmissions wait, which go before new data.
    pub(crate) fn has_urgent(&self) -> bool {
        !self.urgent.pieces.is_empty()
    }

    /// Returns `true` if anything may be sent now.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.has_urgent() || self.ready_lanes.iter().any(|class| !class.is_empty())
    }

    /// The lanes of a class with packets that have turns.
    pub(crate) fn backlog(&self, class: usize) -> ClassBacklog {
        let turns = &self.ready_lanes[class];
        ClassBacklog { flows: turns.len(), sparse: turns.has_sparse() }
    }

    /// Number of bytes in a class that wait for its turn.
    pub(crate) fn waiting(&self, class: usize) -> u64 {
        let senders = self.channels.values();
        let of_class = senders.filter(|sender| usize::from(sender.config.class.0) == class);
        of_class.map(|sender| sender.bytes as u64).sum()
    }

    /// Takes the next rest of a packet or retransmission, if it fits in `room`.
    pub(crate) fn next_urgent(
        &mut self,
        now: Instant,
        room: PieceRoom,
        log: &mut EventLog,
    ) -> Option<PacketPiece> {
        loop {
            let piece = self.urgent.pieces.front()?;
            let sender = self.channels.get_mut(&piece.channel)?;
            // The receiver waits for it no longer.
            if piece.again
                && now.saturating_since(piece.first_sent) > retransmission_time(&sender.config)
            {
                sender.give_up(now, piece, log);
                self.urgent.pop_front();
                continue;
            }
            let fit = piece.fit(sender.announcement(), room);
            match fit {
                PieceFit::Later => return None,
                PieceFit::Never => {
                    sender.give_up(now, piece, log);
                    self.urgent.pop_front();
                    continue;
                }
                PieceFit::Whole | PieceFit::Cut(_) => {}
            }
            let mut piece = self.urgent.pop_front()?;
            if let PieceFit::Cut(size) = fit {
                self.urgent.push_front(piece.cut(size));
            }
            if piece.again {
                sender.stats.retransmitted += 1;
            }
            return Some(piece);
        }
    }

    /// Takes the next packet of a class that queue management lets through, if it fits in `room`.
    /// If the packet is cut, its rest follows in the next packets.
    pub(crate) fn next_new(
        &mut self,
        now: Instant,
        class: usize,
        room: PieceRoom,
        law: &CoDelParams,
        log: &mut EventLog,
    ) -> Option<ChargedPiece> {
        loop {
            let (id, _) = self.ready_lanes[class].front()?;
            let sender = self.channels.get_mut(&id.0)?;
            while let Some(why) = sender.drop_reason(now, id.1, law) {
                sender.drop_head(now, id, why, log);
            }
            let Some(mut piece) = sender.peek(now, id) else {
                // Queue management has emptied the lane.
                self.ready_lanes[class].charge_front(id, 0, false);
                continue;
            };
            let bytes = piece.frame().head() + piece.len();
            let fit = piece.fit(sender.announcement(), room);
            match fit {
                PieceFit::Later => return None,
                // It would block its lane.
                PieceFit::Never => {
                    sender.drop_head(now, id, DropReason::Full, log);
                    continue;
                }
                PieceFit::Whole | PieceFit::Cut(_) => {}
            }
            let more = sender.pop(now, id.1);
            self.ready_lanes[class].charge_front(id, bytes, more);
            if let PieceFit::Cut(size) = fit {
                self.urgent.push_front(piece.cut(size));
            }
            return Some(ChargedPiece { piece, bytes });
        }
    }

    /// The announcement of the channel, while the peer may not know it.
    pub(crate) fn announcement(&self, channel: ChannelId) -> Option<Duration> {
        let sender = self.channels.get(&channel)?;
        (!sender.announced).then_some(sender.config.deadline)
    }

    /// Records that the peer knows the channel with this deadline.
    pub(crate) fn on_announced(&mut self, channel: ChannelId, deadline: Duration) {
        if let Some(sender) = self.channels.get_mut(&channel) {
            // The deadline may have changed since the acknowledged announcement.
            sender.announced = deadline == sender.config.deadline;
        }
    }

    pub(crate) fn on_acknowledged(&mut self, channel: ChannelId) {
        if let Some(sender) = self.channels.get_mut(&channel) {
            sender.stats.acknowledged += 1;
        }
    }

    /// Records that a piece was lost and is not retransmitted.
    pub(crate) fn on_gone(&mut self, channel: ChannelId) {
        if let Some(sender) = self.channels.get_mut(&channel) {
            sender.stats.lost += 1;
        }
    }

    /// Records that a retransmission was lost, and with it the packet.
    pub(crate) fn on_last_lost(&mut self, now: Instant, gone: GoneFrame, log: &mut EventLog) {
        self.on_gone(gone.channel);
        let GoneFrame { channel, lane, sequence } = gone;
        log.record(now, || LogEvent::GivenUp {
            unit: PayloadUnit::Packet { channel, lane, sequence },
        });
    }

    /// Queues the retransmission of a piece that was, or may have been, lost, unless it is too
    /// late.
    pub(crate) fn resend(&mut self, now: Instant, piece: PacketPiece, log: &mut EventLog) {
        let Some(sender) = self.channels.get_mut(&piece.channel) else { return };
        if now.saturating_since(piece.first_sent) > retransmission_time(&sender.config) {
            return sender.give_up(now, &piece, log);
        }
        self.urgent.push_back(PacketPiece { again: true, ..piece });
    }
}

impl ChannelSender {
    /// Counts a piece as lost for good.
    fn give_up(&mut self, now: Instant, piece: &PacketPiece, log: &mut EventLog) {
        self.stats.lost += 1;
        let unit = PayloadUnit::from(piece);
        log.record(now, || LogEvent::GivenUp { unit });
    }
}

/// Time after the first transmission of a packet during which a retransmission is useful: as long
/// as the receiver waits for it.
fn retransmission_time(config: &ChannelConfig) -> Duration {
    if config.deadline.is_zero() { MAX_DEADLINE } else { config.deadline }
}
