//! The receiving side of packet channels: reassembles packets, restores their order, and bounds the
//! wait for missing ones.

mod lane;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use units::{ByteCount, Instant};

use super::{ChannelConfig, RebuiltPacket};
use crate::ChannelId;
use crate::event::log::{EventLog, LogEvent, PayloadUnit};
use crate::event::stats::ChannelStats;
use crate::spare::{ENTRY, FreeSpare as _};
use crate::wire::frame::{ChannelAnnouncement, ChannelPacket, GoneFrame, TruncatedOffset};
use lane::{LaneTable, PacketOutcome};

/// Time for which a channel without a deadline remembers missing packets, so that none is delivered
/// twice.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The receiving side of all packet channels of a session.
#[derive(Debug)]
pub(crate) struct InboundChannels {
    /// Boxed because a map's nodes have room for eleven values each.
    channels: BTreeMap<ChannelId, Box<ChannelReceiver>>,
    /// The time at which the first missing packet of each lane is given up.
    deadlines: BTreeSet<(Instant, ChannelId, u8)>,
    /// Packets in order, for the owner to take.
    ready: VecDeque<(ChannelId, Box<[u8]>)>,
    /// Memory of `ready`, in bytes.
    ready_bytes: usize,
    /// Memory of the packets, parts and gaps in all lanes, in bytes.
    held: usize,
    /// Maximum of `held` and `ready_bytes` together, with [`ENTRY`] per packet, part and gap. The
    /// lanes themselves, at most 64 for each of the owner's channels, are not counted.
    limit: usize,
    /// Number of frames for channels that this side does not have.
    unknown_channels: u64,
    /// Number of compressed packets that could not be rebuilt.
    without_context: u64,
}

#[derive(Debug, Default)]
struct ChannelReceiver {
    /// Zero until announced, that is, missing packets are not waited for.
    deadline: Duration,
    lanes: LaneTable,
    stats: ChannelStats,
}

impl ChannelReceiver {
    fn patience(&self) -> Duration {
        if self.deadline.is_zero() { REMEMBERED } else { self.deadline }
    }
}

impl InboundChannels {
    /// A receiver of these channels that holds at most `limit` bytes.
    pub(crate) fn new(channels: &BTreeMap<ChannelId, ChannelConfig>, limit: usize) -> Self {
        Self {
            channels: channels.keys().map(|id| (*id, Box::default())).collect(),
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            held: 0,
            limit,
            unknown_channels: 0,
            without_context: 0,
        }
    }

    /// Adds the receiving side's counters to those of the sending side.
    pub(crate) fn stats(&self, id: ChannelId, sent: ChannelStats) -> ChannelStats {
        let Some(receiver) = self.channels.get(&id) else { return sent };
        let ChannelStats { received, recovered, delivered, bytes_delivered, late, missing, .. } =
            receiver.stats.clone();
        let held = receiver.lanes.bytes();
        let held = ByteCount::new(held as u64);
        ChannelStats {
            received,
            recovered,
            held,
            delivered,
            bytes_delivered,
            late,
            missing,
            ..sent
        }
    }

    /// Frees memory that is not in use.
    pub(crate) fn free_spare(&mut self) {
        self.channels.values_mut().for_each(|receiver| receiver.lanes.free_spare());
        self.deadlines.free_spare();
        self.ready.free_spare();
    }

    /// Number of frames for channels that this side does not have.
    pub(crate) fn unknown_channels(&self) -> u64 {
        self.unknown_channels
    }

    /// Number of compressed packets that could not be rebuilt.
    pub(crate) fn without_context(&self) -> u64 {
        self.without_context
    }

    /// Memory in bytes: packets that wait for missing ones or for the owner.
    pub(crate) fn held(&self) -> usize {
        self.held + self.ready_bytes
    }

    /// Returns `true` if [`Self::poll`] would return a packet.
    pub(crate) fn has_packet(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next packet in order, of any channel.
    pub(crate) fn poll(&mut self) -> Option<(ChannelId, Vec<u8>)> {
        let (channel, packet) = self.ready.pop_front()?;
        self.ready_bytes -= ENTRY + packet.len();
        Some((channel, packet.into_vec()))
    }

    pub(crate) fn announced(&mut self, announcement: &ChannelAnnouncement) {
        if let Some(receiver) = self.channels.get_mut(&announcement.channel) {
            receiver.deadline = announcement.deadline;
        }
    }

    /// Handles a packet that came with compressed headers; `None` if it could not be rebuilt.
    pub(crate) fn rebuilt(
        &mut self,
        now: Instant,
        found: Option<RebuiltPacket>,
        restored: bool,
        log: &mut EventLog,
    ) {
        let Some(RebuiltPacket { channel, lane, sequence, packet }) = found else {
            self.without_context += 1;
            return;
        };
        let sequence = TruncatedOffset::full(sequence);
        let packet = ChannelPacket { channel, lane, sequence, part: None, data: &packet };
        self.packet(now, &packet, restored, log);
    }

    /// Handles a packet, or a part of one, that was received or `restored` by FEC.
    pub(crate) fn packet(
        &mut self,
        now: Instant,
        packet: &ChannelPacket,
        restored: bool,
        log: &mut EventLog,
    ) {
        let Some(receiver) = self.channels.get_mut(&packet.channel) else {
            self.unknown_channels += 1;
            return;
        };
        receiver.stats.recovered += u64::from(restored);
        let lane = receiver.lanes.lane(packet.lane);
        let before = lane.held();
        let (sequence, outcome) = lane.insert(now, packet);
        match outcome {
            PacketOutcome::Late => receiver.stats.late += 1,
            PacketOutcome::Part => {}
            PacketOutcome::Whole => receiver.stats.received += 1,
        }
        let unit = PayloadUnit::Packet { channel: packet.channel, lane: packet.lane, sequence };
        log.record(now, || LogEvent::Arrived { unit, late: outcome == PacketOutcome::Late });
        self.held = self.held + lane.held() - before;
        if lane.has_too_many_gaps() {
            self.give_up(now, packet.channel, packet.lane, log);
        }
        self.release(now, packet.channel, packet.lane, log);
        self.keep_within_limit(now, log);
    }

    /// Handles GONE: the sender has given a packet up.
    pub(crate) fn gone(&mut self, now: Instant, gone: GoneFrame, log: &mut EventLog) {
        let GoneFrame { channel, lane: id, sequence } = gone;
        let Some(receiver) = self.channels.get_mut(&channel) else {
            self.unknown_channels += 1;
            return;
        };
        let lane = receiver.lanes.lane(id);
        let before = lane.held();
        if lane.skip(now, sequence) {
            receiver.stats.missing += 1;
            log.record(now, || LogEvent::Missing { channel, lane: id, first: sequence, count: 1 });
        }
        self.held = self.held + lane.held() - before;
        if lane.has_too_many_gaps() {
            self.give_up(now, channel, id, log);
        }
        self.release(now, channel, id, log);
        self.keep_within_limit(now, log);
    }

    /// Delivers the packets of a lane that are due, and sets its deadline.
    fn release(&mut self, now: Instant, channel: ChannelId, id: u8, log: &mut EventLog) {
        let Some(receiver) = self.channels.get_mut(&channel) else { return };
        let patience = receiver.patience();
        // Without a deadline packets are delivered as they come, each once.
        let in_order = !receiver.deadline.is_zero();
        let Some(lane) = receiver.lanes.get_mut(id) else { return };
        while let Some((sequence, packet)) = lane.pop(in_order) {
            self.held -= ENTRY + packet.len();
            self.ready_bytes += ENTRY + packet.len();
            receiver.stats.delivered += 1;
            receiver.stats.bytes_delivered += packet.len() as u64;
            let unit = PayloadUnit::Packet { channel, lane: id, sequence };
            log.record(now, || LogEvent::Delivered { unit });
            self.ready.push_back((channel, packet));
        }
        let due = lane.missing_since().map(|since| since + patience);
        if let Some(old) = core::mem::replace(&mut lane.due, due) {
            self.deadlines.remove(&(old, channel, id));
        }
        self.deadlines.extend(due.map(|due| (due, channel, id)));
    }

    /// Stays within the limit: first gives up gaps, those due first, then drops packets that the
    /// owner has not taken, the newest first.
    fn keep_within_limit(&mut self, now: Instant, log: &mut EventLog) {
        while self.held() > self.limit {
            let Some((_, channel, lane)) = self.deadlines.first().copied() else { break };
            self.give_up(now, channel, lane, log);
        }
        while self.held() > self.limit {
            let Some((channel, packet)) = self.ready.pop_back() else { break };
            self.ready_bytes -= ENTRY + packet.len();
            // It was counted as delivered when it became ready.
            if let Some(receiver) = self.channels.get_mut(&channel) {
                receiver.stats.delivered -= 1;
                receiver.stats.bytes_delivered -= packet.len() as u64;
                receiver.stats.missing += 1;
            }
        }
    }

    /// Gives up the first run of missing packets of a lane.
    fn give_up(&mut self, now: Instant, channel: ChannelId, id: u8, log: &mut EventLog) {
        let Some(receiver) = self.channels.get_mut(&channel) else { return };
        let Some(lane) = receiver.lanes.get_mut(id) else { return };
        let before = lane.held();
        let gone = lane.give_up();
        receiver.stats.missing += gone.end - gone.start;
        log.record(now, || LogEvent::Missing {
            channel,
            lane: id,
            first: gone.start,
            count: gone.end - gone.start,
        });
        self.held = self.held + lane.held() - before;
        self.release(now, channel, id, log);
    }

    /// The time at which [`Self::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(due, ..)| *due)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, log: &mut EventLog) {
        while let Some((due, channel, lane)) = self.deadlines.first().copied()
            && due <= now
        {
            self.give_up(now, channel, lane, log);
        }
    }
}
