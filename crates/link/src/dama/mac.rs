//! A terminal's buffers: IP queues, MAC buffers, and the flow control between them.
//!
//! Each class of traffic has an IP queue and a MAC buffer. With flow control a packet waits in the
//! IP queue until all of its cells fit into the MAC buffer; without it packets go straight to the
//! MAC buffer. A packet of a higher class goes first, but one whose cells have begun to leave is
//! finished, unless the higher class has only the constant rate ([`CapacityKind::Cra`]): its cells go in
//! between. Control packets (SLACP's control channel) have no IP queue: they are ahead of
//! everything. Packets sent by contention are kept until the hub has them ([`contended`]).

mod contended;

use std::collections::VecDeque;

use units::Instant;

use super::category::CapacityKind;
use super::config::{MacLimit, TerminalConfig};
use super::frames::Cell;
use crate::payload::NumberedPacket;
use crate::queue::SerialiserQueue;
use crate::{CarriedPacket, Dice, PacketCounters, Tally, TrafficClass};
use contended::ContendedPackets;

/// A packet divided into cells.
#[derive(Debug)]
pub(super) struct SegmentedPacket<P> {
    pub(super) frame: NumberedPacket<P>,
    pub(super) class: TrafficClass,
    /// Cells that have not left.
    pub(super) left: u32,
    /// True if it is lost: a burst of errors hit one of its cells.
    pub(super) is_hit: bool,
    /// True if it was taken for contention: then it is the next to leave.
    pub(super) contended: bool,
}

/// The buffers of one class.
#[derive(Debug)]
struct ClassBuffer<P> {
    queue: SerialiserQueue<P>,
    /// A packet that was taken from the IP queue, but does not fit yet.
    staged: Option<NumberedPacket<P>>,
    mac: VecDeque<SegmentedPacket<P>>,
    /// Occupancy of the MAC buffer, in the unit of its limit.
    held: u64,
    /// Cells in the MAC buffer.
    cells: u32,
    /// Cells that have entered it since the last request.
    entered: u32,
}

/// All buffers of a terminal.
#[derive(Debug)]
pub(super) struct TerminalBuffers<P> {
    cell: Cell,
    limit: MacLimit,
    flow_control: bool,
    /// True for classes whose cells go between those of a less urgent packet.
    interrupts: [bool; TrafficClass::COUNT],
    lanes: [ClassBuffer<P>; TrafficClass::COUNT],
    /// The packet whose cells are leaving.
    current: Option<SegmentedPacket<P>>,
    contended: ContendedPackets<P>,
    pub(super) counters: PacketCounters,
}

impl<P: CarriedPacket> TerminalBuffers<P> {
    pub(super) fn new(
        config: &TerminalConfig,
        cell: Cell,
        origin: Instant,
        seeds: &mut Dice,
    ) -> Self {
        let mut lane = || {
            let mut queue = SerialiserQueue::new(config.queue, Dice::new(seeds.bits()));
            queue.set_discipline(origin, config.discipline);
            ClassBuffer { queue, staged: None, mac: VecDeque::new(), held: 0, cells: 0, entered: 0 }
        };
        Self {
            cell,
            limit: config.mac,
            flow_control: config.flow_control,
            interrupts: TrafficClass::ALL.map(|class| config.category(class) == CapacityKind::Cra),
            lanes: core::array::from_fn(|_| lane()),
            current: None,
            contended: ContendedPackets::default(),
            counters: PacketCounters::default(),
        }
    }

    /// Queues a packet at `now`, or drops and counts it.
    pub(super) fn push(&mut self, now: Instant, packet: P) {
        let class = packet.class();
        let len = packet.wire_len();
        let carried = u64::from(self.cell.count(len)) * u64::from(self.cell.wire);
        let mut frame =
            NumberedPacket { packet, len, carried, number: self.counters.offered.packets };
        self.counters.offered.add(len);
        let fits = self.fits(class, len);
        let lane = &mut self.lanes[class as usize];
        let direct = fits && lane.staged.is_none() && lane.queue.len() == 0;
        // Control traffic has no IP queue: it enters the MAC buffer at once, or is dropped.
        let has_queue = self.flow_control && class != TrafficClass::Control;
        if has_queue && !lane.queue.admit(now, direct, &mut frame, &mut self.counters) {
            return;
        }
        if direct {
            // The discipline must learn that a packet has found the queue empty.
            lane.queue.pass(now, &frame);
            self.enter(class, frame);
        } else {
            let refused = if has_queue { lane.queue.push(now, frame).is_err() } else { true };
            if refused {
                return self.counters.dropped_queue.add(len);
            }
        }
        self.counters.inside.add(len);
    }

    /// Returns the cells that can leave before anything else can enter a MAC buffer or another
    /// packet is next: those of the current packet, at most as many as free the room for the first
    /// one that waits.
    pub(super) fn ready(&mut self) -> u32 {
        self.select();
        let Some(current) = &self.current else { return 0 };
        let lane = &self.lanes[current.class as usize];
        if lane.queue.len() == 0 && lane.staged.is_none() {
            return current.left;
        }
        match self.limit {
            MacLimit::Cells(limit) => {
                let staged = lane.staged.as_ref().map(|frame| frame.len);
                let need = self.cost(staged.unwrap_or_else(|| lane.queue.front_len()));
                let over = (lane.held + need).saturating_sub(limit.into()).max(1);
                current.left.min(u32::try_from(over).unwrap_or(u32::MAX))
            }
            // Bytes become free only when the whole packet has left.
            MacLimit::Bytes(_) => current.left,
        }
    }

    /// Returns the packet whose cells are leaving, after [`TerminalBuffers::ready`].
    pub(super) fn current(&mut self) -> Option<&mut SegmentedPacket<P>> {
        self.current.as_mut()
    }

    /// Sends cells of the current packet at `now`, at most [`TerminalBuffers::ready`]. Returns the packet
    /// if these were its last.
    pub(super) fn send(&mut self, now: Instant, cells: u32) -> Option<SegmentedPacket<P>> {
        let current = self.current.as_mut()?;
        current.left -= cells;
        let class = current.class;
        let finished = current.left == 0;
        let len = current.frame.len;
        // Room counted in bytes is only freed by a packet's last cell.
        let freed = match self.limit {
            MacLimit::Cells(_) => u64::from(cells),
            MacLimit::Bytes(_) if finished => len as u64,
            MacLimit::Bytes(_) => 0,
        };
        let lane = &mut self.lanes[class as usize];
        lane.held -= freed;
        lane.cells -= cells;
        let packet = if finished { self.current.take() } else { None };
        self.refill(now, class);
        packet
    }

    /// Returns true if no packet waits or is in the air by contention.
    pub(super) fn is_empty(&self) -> bool {
        self.current.is_none()
            && self.contended.is_empty()
            && self
                .lanes
                .iter()
                .all(|lane| lane.mac.is_empty() && lane.staged.is_none() && lane.queue.len() == 0)
    }

    /// Returns the cells in the MAC buffer of a class.
    pub(super) fn mac_cells(&self, class: TrafficClass) -> u32 {
        self.lanes[class as usize].cells
    }

    /// Returns the packets and bytes that wait in the IP queues.
    pub(super) fn queued(&self) -> Tally {
        let mut all = Tally::default();
        for lane in &self.lanes {
            let staged = lane.staged.as_ref().map_or(0, |frame| frame.len as u64);
            all.packets += lane.queue.len() as u64 + u64::from(lane.staged.is_some());
            let bytes = lane.queue.bytes().get() + staged + all.bytes.get();
            all.bytes = units::ByteCount::new(bytes);
        }
        all
    }

    /// Returns the cells that have entered the MAC buffer of a class since the last call.
    pub(super) fn take_entered(&mut self, class: TrafficClass) -> u32 {
        core::mem::take(&mut self.lanes[class as usize].entered)
    }

    /// Returns the number of cells until the next packet has left; 0 if none can leave.
    pub(super) fn until_departure(&mut self) -> u32 {
        self.select();
        self.current.as_ref().map_or(0, |current| current.left)
    }

    /// Chooses the next packet, if none is leaving. It stays chosen only once its cells leave.
    fn select(&mut self) {
        if self.current.as_ref().is_some_and(|current| self.goes_on(current)) {
            return;
        }
        // Nothing of it has left, or a more urgent class interrupts it.
        if let Some(waiting) = self.current.take() {
            let class = waiting.class as usize;
            self.lanes[class].mac.push_front(waiting);
        }
        let from_lanes = || self.lanes.iter_mut().find_map(|lane| lane.mac.pop_front());
        self.current = self.contended.pop().or_else(from_lanes);
    }

    /// Returns true if nothing may go before the rest of the current packet.
    fn goes_on(&self, current: &SegmentedPacket<P>) -> bool {
        let begun = current.left < self.cell.count(current.frame.len);
        let more_urgent = self.lanes.iter().zip(self.interrupts).take(current.class as usize);
        let interrupted = || more_urgent.into_iter().any(|(lane, may)| may && !lane.mac.is_empty());
        current.contended || begun && !interrupted()
    }

    /// Moves packets from an IP queue to its MAC buffer while they fit.
    fn refill(&mut self, now: Instant, class: TrafficClass) {
        while let Some(frame) = self.next_fitting(now, class) {
            self.enter(class, frame);
        }
    }

    /// Returns the next packet of an IP queue, if it fits into the MAC buffer. The discipline may
    /// drop the head of the queue; if the packet behind it is too long it is staged.
    fn next_fitting(&mut self, now: Instant, class: TrafficClass) -> Option<NumberedPacket<P>> {
        let lane = &mut self.lanes[class as usize];
        // A packet that the discipline has let pass, and that found no room, goes first.
        let frame = if let Some(frame) = lane.staged.take() {
            frame
        } else {
            let waiting = lane.queue.len() > 0;
            let len = lane.queue.front_len();
            if !waiting || !self.fits(class, len) {
                return None;
            }
            self.lanes[class as usize].queue.pop(now, &mut self.counters)?
        };
        if self.fits(class, frame.len) {
            return Some(frame);
        }
        self.lanes[class as usize].staged = Some(frame);
        None
    }

    fn enter(&mut self, class: TrafficClass, frame: NumberedPacket<P>) {
        let cells = self.cell.count(frame.len);
        let cost = self.cost(frame.len);
        let lane = &mut self.lanes[class as usize];
        lane.held += cost;
        lane.cells += cells;
        lane.entered = lane.entered.saturating_add(cells);
        let packet = SegmentedPacket { frame, class, left: cells, is_hit: false, contended: false };
        lane.mac.push_back(packet);
    }

    /// Returns true if a packet fits into the MAC buffer. With flow control an empty buffer takes
    /// any packet, which would otherwise wait for ever.
    fn fits(&self, class: TrafficClass, len: usize) -> bool {
        let lane = &self.lanes[class as usize];
        let limit = match self.limit {
            MacLimit::Cells(limit) => limit.into(),
            MacLimit::Bytes(limit) => limit.get(),
        };
        lane.held + self.cost(len) <= limit || (self.flow_control && lane.held == 0)
    }

    fn cost(&self, len: usize) -> u64 {
        match self.limit {
            MacLimit::Cells(_) => self.cell.count(len).into(),
            MacLimit::Bytes(_) => len as u64,
        }
    }
}
