//! A terminal: its buffers, its agent, and the slots it was granted.

mod contender;

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use super::agent::{CellBacklog, RequestAgent};
use super::ahead::{ReportedCells, ReportedQueue};
use super::category::CapacityKind;
use super::config::{DamaConfig, TerminalConfig};
use super::frames::Frames;
use super::layout::SlotRun;
use super::mac::{SegmentedPacket, TerminalBuffers};
use super::ncc::SlotGrant;
use super::request::TerminalRequest;
use crate::dice::IndexedDice;
use crate::payload::NumberedPacket;
use crate::propagation::loss::LossProcess;
use crate::propagation::outage::Outages;
use crate::propagation::reception::ReceptionTime;
use crate::{CarriedPacket, Dice, LossModel, Outage, PacketCounters, Tally, TrafficClass};

pub(super) use contender::Contender;

/// Counters of a terminal's slots, requests and bursts since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotCounters {
    /// Granted slots that have begun.
    pub granted: u64,
    /// Of these, slots that carried a cell.
    pub used: u64,
    /// Capacity requests sent; those sent by contention count once, whatever the attempts.
    pub requests: u64,
    /// Of these, lost on their way in a slot without contention.
    pub requests_lost: u64,
    /// Of these, given up after the last attempt by contention.
    pub requests_given_up: u64,
    /// Bursts sent by contention: requests, and cells of packets. The replicas of a burst count
    /// once.
    pub contention_bursts: u64,
    /// Of these, the hub did not decode.
    pub collisions: u64,
    /// Packets given up after the last attempt by contention. Those that the hub does not have are
    /// counted as lost on the link.
    pub packets_given_up: u64,
}

/// A packet whose last cell has left.
#[derive(Debug)]
pub(super) struct TerminalDeparture<P> {
    /// End of its last slot.
    pub(super) at: Instant,
    pub(super) frame: NumberedPacket<P>,
    pub(super) lost: bool,
}

#[derive(Debug)]
pub(super) struct SatelliteTerminal<P> {
    origin: Instant,
    frames: Frames,
    buffers: TerminalBuffers<P>,
    agent: RequestAgent,
    /// The reported queue in front of it, and the forecast for it.
    ahead: ReportedQueue,
    foreseen: ReportedQueue,
    /// True if it may request rates or volumes.
    may_request: bool,
    /// The kind of capacity that each class uses.
    categories: [CapacityKind; TrafficClass::COUNT],
    /// Granted slots that have not begun, in order of time.
    runs: VecDeque<SlotRun>,
    /// The last granted slot that has begun.
    begun: Option<(u64, u32)>,
    /// Slots granted for volumes, by frame, of which the agent is not informed yet.
    volumes: VecDeque<(u64, u32)>,
    /// The same for free capacity.
    free: VecDeque<(u64, u32)>,
    pub(super) slots: SlotCounters,
    channel: LossProcess,
    outages: Outages,
    loss_numbers: IndexedDice,
    seeds: Dice,
    /// Time of its next departure for which an event is scheduled.
    pub(super) alarm: Option<Instant>,
    /// The frame of its next opportunity to ask, if one is scheduled.
    pub(super) opportunity: Option<u64>,
    /// The frame of the last one.
    pub(super) last_opportunity: Option<u64>,
    /// Begin of the slot that is to carry a request.
    pub(super) piggyback_slot: Option<Instant>,
    /// The request that is being sent by contention.
    pub(super) pending: Option<TerminalRequest>,
    /// Its contenders for requests and for packets, indexed by `ChannelKind`.
    pub(super) contenders: [Option<Box<Contender>>; 2],
    /// Packets that have left in granted slots and follow a gap that contention has left.
    behind_gap: VecDeque<TerminalDeparture<P>>,
    /// Bytes that have left since nothing waited.
    sent_bytes: u64,
}

/// Streams of random numbers of a terminal, independent of each other.
const QUEUES: u64 = 1;
const CHANNEL: u64 = 2;
const CONTENTION: [u64; 2] = [3, 4];

impl<P: CarriedPacket> SatelliteTerminal<P> {
    pub(super) fn new(
        config: &DamaConfig,
        number: usize,
        origin: Instant,
        seed: u64,
        contenders: impl FnOnce([u64; 2]) -> [Option<Box<Contender>>; 2],
    ) -> Self {
        let TerminalConfig { rbdc, vbdc, loss, outages, .. } = &config.terminals[number];
        let frames = config.frames;
        // The order of the draws is part of the published results.
        let mut seeds = Dice::stream(seed, CHANNEL);
        let mut queues = Dice::stream(seed, QUEUES);
        Self {
            origin,
            frames,
            buffers: TerminalBuffers::new(
                &config.terminals[number],
                frames.cell,
                origin,
                &mut queues,
            ),
            agent: RequestAgent::new(config, number),
            ahead: ReportedQueue::default(),
            foreseen: ReportedQueue::default(),
            may_request: rbdc.bits_per_second() > 0 || *vbdc > 0,
            categories: TrafficClass::ALL.map(|class| config.terminals[number].category(class)),
            runs: VecDeque::new(),
            begun: None,
            volumes: VecDeque::new(),
            free: VecDeque::new(),
            slots: SlotCounters::default(),
            channel: LossProcess::new(loss.clone(), origin, seeds.bits()),
            outages: Outages::new(origin, outages.clone()),
            loss_numbers: IndexedDice::new(Dice::new(seed)),
            seeds,
            alarm: None,
            opportunity: None,
            last_opportunity: None,
            piggyback_slot: None,
            pending: None,
            contenders: contenders(CONTENTION.map(|stream| Dice::stream(seed, stream).bits())),
            behind_gap: VecDeque::new(),
            sent_bytes: 0,
        }
    }

    /// Queues a packet at `now`, up to which the terminal has been advanced.
    pub(super) fn push(&mut self, now: Instant, packet: P) {
        self.ahead.enter(packet.wire_len());
        self.foreseen.enter(packet.wire_len());
        if self.buffers.is_empty() {
            // A packet that finds nothing waiting begins a new traffic burst (`choose`).
            self.sent_bytes = 0;
        }
        self.buffers.push(now, packet);
    }

    /// Sets the reported queue in front of it, in bytes.
    pub(super) fn set_backlog(&mut self, now: Instant, bytes: u64) {
        self.ahead.set(now, bytes);
    }

    /// Sets the forecast of bytes that will come to it soon.
    pub(super) fn set_foreseen(&mut self, now: Instant, bytes: u64) {
        self.foreseen.set(now, bytes);
    }

    /// Returns the number of granted slots that have not begun and begin before `end`.
    pub(super) fn granted(&self, end: Instant) -> u32 {
        let before = end - Duration::from_nanos(1);
        self.runs.iter().map(|run| self.due(run, before)).sum()
    }

    /// Adds granted slots, in order of time after those granted before.
    pub(super) fn grant(&mut self, runs: impl IntoIterator<Item = SlotRun>) {
        self.runs.extend(runs);
    }

    /// Records how many slots of these runs were granted for a volume, and how many were free.
    pub(super) fn note_grant(&mut self, grant: &SlotGrant, runs: &[SlotRun]) {
        for (noted, mut slots) in [(&mut self.volumes, grant.vbdc), (&mut self.free, grant.fca)] {
            for run in runs {
                let here = run.count.min(slots);
                if here > 0 {
                    noted.push_back((run.frame, here));
                }
                slots -= here;
            }
        }
    }

    /// Returns its request in a frame. Grants for volumes count as outstanding until their slots
    /// have passed.
    pub(super) fn request(&mut self, frame: u64) -> TerminalRequest {
        while let Some((passed, slots)) = self.volumes.pop_front_if(|(granted, _)| *granted < frame)
        {
            self.agent.handle_volume_grant(passed, slots);
        }
        while let Some((_, slots)) = self.free.pop_front_if(|(granted, _)| *granted < frame) {
            self.agent.handle_free_grant(slots);
        }
        let mut arrived = CellBacklog::default();
        let mut backlog = CellBacklog::default();
        for class in TrafficClass::ALL {
            let cells = self.buffers.waiting_cells(class);
            let entered = self.buffers.take_entered(class);
            let category = self.categories[class as usize];
            *backlog.of(category) += cells;
            *arrived.of(category) += entered;
        }
        self.count_ahead(frame, &mut arrived, &mut backlog);
        self.agent.handle_arrival(arrived);
        self.agent.request(frame, backlog)
    }

    /// Adds the reported queue in front of it, as bulk.
    fn count_ahead(&mut self, frame: u64, arrived: &mut CellBacklog, backlog: &mut CellBacklog) {
        let now = self.frames.begin(self.origin, frame);
        let ReportedCells { waiting, came, entered } = self.ahead.take(now, self.frames.cell);
        let category = self.categories[TrafficClass::Bulk as usize];
        let waits = backlog.of(category);
        let new = arrived.of(category);
        *waits = waits.saturating_add(waiting);
        // What moved on into the terminal was counted when it came to the queue in front.
        *new = new.saturating_sub(entered).saturating_add(came);
        backlog.foreseen = self.foreseen.take(now, self.frames.cell).waiting;
    }

    /// Returns true if it has nothing to send and nothing to request.
    pub(super) fn is_idle(&self) -> bool {
        let expects_nothing = self.ahead.is_empty() && self.foreseen.is_empty();
        self.buffers.is_empty() && expects_nothing && self.agent.is_idle()
    }

    /// Returns true if it may request rates or volumes.
    pub(super) fn can_request(&self) -> bool {
        self.may_request
    }

    /// Uses all slots that begin by `now`. Passes on each packet that has left, in order.
    pub(super) fn advance(&mut self, now: Instant, mut departed: impl FnMut(TerminalDeparture<P>)) {
        while let Some(run) = self.runs.front() {
            let due = self.due(run, now);
            if due == 0 {
                return;
            }
            let cells = due.min(self.buffers.ready());
            if cells == 0 {
                // Granted slots pass unused.
                self.consume(due);
            } else if let Some((packet, contended)) = self.send(cells) {
                self.put_in_order(packet, contended, &mut departed);
            }
        }
    }

    /// Forgets slots that have begun by `now` if nothing waits. Without traffic, those of a constant
    /// rate would pile up.
    pub(super) fn pass_idle(&mut self, now: Instant) {
        if self.buffers.is_empty() {
            self.advance(now, |_| {});
        }
    }

    /// Returns the number of slots of a run that begin by `now`.
    fn due(&self, run: &SlotRun, now: Instant) -> u32 {
        let begin = self.frames.begin(self.origin, run.frame);
        if begin > now {
            return 0;
        }
        let since = now.saturating_since(begin).as_nanos() + 1;
        let frame = self.frames.duration.as_nanos().max(1);
        // The last slot of the frame that has begun.
        let last = (since * u128::from(self.frames.slots) - 1) / frame;
        let begun = (last + 1).saturating_sub(run.slot.into()).min(run.count.into());
        begun as u32
    }

    /// Takes slots off the first run; returns it as it was.
    fn consume(&mut self, count: u32) -> Option<SlotRun> {
        let run = self.runs.front_mut()?;
        let was = *run;
        self.begun = Some((run.frame, run.slot + count - 1));
        run.slot += count;
        run.count -= count;
        if run.count == 0 {
            self.runs.pop_front();
        }
        self.slots.granted += u64::from(count);
        Some(was)
    }

    /// Sends cells in the first slots. Returns the packet that they complete, and true if it had
    /// been taken for contention.
    fn send(&mut self, cells: u32) -> Option<(TerminalDeparture<P>, bool)> {
        let run = self.consume(cells)?;
        self.slots.used += u64::from(cells);
        let frames = self.frames;
        let origin = self.origin;
        let begin = |slot| frames.slot_begin(origin, run.frame, slot);
        let reception = ReceptionTime { from: begin(run.slot), until: begin(run.slot + cells) };
        let struck = self.is_hit(reception);
        // A packet is lost with any of its cells, also with those of earlier slots.
        self.buffers.current()?.is_hit |= struck;
        let last_slot = begin(run.slot + cells - 1);
        let SegmentedPacket { frame, is_hit: struck, contended, .. } =
            self.buffers.send(last_slot, cells)?;
        self.sent_bytes = self.sent_bytes.saturating_add(frame.len as u64);
        // Whole cells count: a bit error in their padding loses the packet, too.
        let wire = self.frames.cell.count(frame.len) as usize * self.frames.cell.wire as usize;
        let lost = self.channel.loses(wire, reception, || self.loss_numbers.chance(frame.number));
        Some((TerminalDeparture { at: reception.until, frame, lost: lost || struck }, contended))
    }

    /// Returns true if an outage hits this reception.
    pub(super) fn is_silent(&mut self, reception: ReceptionTime) -> bool {
        self.outages.hit(reception)
    }

    /// Returns true if an error burst or an outage hits this reception.
    pub(super) fn is_hit(&mut self, reception: ReceptionTime) -> bool {
        let struck = self.channel.is_hit_by_burst(reception);
        // Both are evaluated, so that an outage does not affect the random numbers of bursts.
        self.outages.hit(reception) || struck
    }

    /// Returns the begin of the last slot that the next packet needs, if it is granted.
    pub(super) fn departure(&mut self) -> Option<Instant> {
        let mut cells = self.buffers.until_departure();
        if cells == 0 {
            return None;
        }
        for run in &self.runs {
            if cells <= run.count {
                return Some(self.frames.slot_begin(self.origin, run.frame, run.slot + cells - 1));
            }
            cells -= run.count;
        }
        None
    }

    /// Changes the loss model of cells that leave from now on.
    pub(super) fn set_loss(&mut self, now: Instant, loss: LossModel) {
        self.channel = LossProcess::new(loss, now, self.seeds.bits());
    }

    pub(super) fn add_outage(&mut self, now: Instant, outage: Outage) {
        self.outages.add(now, outage);
    }

    pub(super) fn end_outages(&mut self, now: Instant) {
        self.outages.end(now);
    }

    pub(super) fn counters(&mut self) -> &mut PacketCounters {
        &mut self.buffers.counters
    }

    pub(super) fn read(&self) -> &PacketCounters {
        &self.buffers.counters
    }

    /// Returns the packets and bytes that wait in the IP queues.
    pub(super) fn queued(&self) -> Tally {
        self.buffers.queued()
    }

    /// Returns the cells that wait in the MAC buffer of a class.
    pub(super) fn mac_cells_of(&self, class: TrafficClass) -> u32 {
        self.buffers.mac_cells(class)
    }

    /// Returns the cells that wait in the MAC buffers of all classes.
    pub(super) fn mac_cells(&self) -> u32 {
        TrafficClass::ALL.iter().map(|class| self.buffers.mac_cells(*class)).sum()
    }

    /// Returns the number of volume requests that were assumed lost.
    pub(super) fn replaced(&self) -> u64 {
        self.agent.replaced()
    }
}
