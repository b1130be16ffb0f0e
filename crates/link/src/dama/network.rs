//! The whole return link: terminals, network control centre, and the time between them.

mod channel;
mod contention;
mod event;
mod rate;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use units::{BitRate, ByteCount, Instant, Machine, earliest};

use super::config::{DamaConfig, DamaError, RequestTransport};
use super::frames::Frames;
use super::layout::Layout;
use super::ncc::Ncc;
use super::random_access::AccessLimits;
use super::request::TerminalRequest;
use super::terminal::{SatelliteTerminal, SlotCounters, TerminalDeparture};
use crate::payload::NumberedPacket;
use crate::propagation::delay::PropagationPath;
use crate::propagation::reception::ReceptionTime;
use crate::propagation::schedule::DueSchedule;
use crate::{CarriedPacket, Dice, Jitter, LossModel, Outage, PacketCounters, Tally, TrafficClass};
use channel::RandomAccessChannel;
use contention::BurstAnswer;
use rate::Carriers;

pub use channel::ChannelKind;
pub use event::{DamaEvent, ReceivedBursts};

/// The reason for which a return link is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// A packet reaches the hub, where it may turn out to be lost.
    Arrival,
    /// A superframe is allocated, a terminal may send a request, or a packet leaves.
    Slot,
}

/// An event that is due.
#[derive(Debug, Clone, Copy)]
enum DamaTask {
    /// The next superframe is to be allocated.
    Allocation,
    /// A terminal may send a request in a frame.
    Opportunity(u32, u64),
    /// The granted slot begins in which a terminal sends its request with a cell.
    PiggybackSlot(u32),
    /// A request reaches the network control centre.
    Request(u32, TerminalRequest),
    /// A block begins in which a terminal may send.
    Contend(ChannelKind, u32, u64),
    /// The blocks of a frame in which something was sent have reached the hub.
    Blocks(ChannelKind),
    /// A plan answers a terminal's bursts.
    Answer(BurstAnswer),
    /// The last slot of a terminal's packet begins.
    Departure(u32),
}

/// A packet in the air, or lost there.
#[derive(Debug)]
struct ArrivingPacket<P> {
    terminal: u32,
    frame: NumberedPacket<P>,
    lost: bool,
}

/// The return link of many terminals, from their IP queues to the hub.
///
/// Hand packets over with [`Dama::handle_packet`]; after it and after
/// [`Machine::handle_timeout`], drain [`Dama::poll_arrival`], then [`Dama::poll_event`] if
/// [`Dama::record_events`] was called. Then wait until [`Machine::poll_timeout`].
///
/// A driver may be late: everything happens with the time at which it was due. A packet that arrives
/// at a terminal at the very moment at which a slot begins misses that slot.
///
/// Each terminal has random numbers of its own: traffic of one does not change the losses of
/// others, except by collisions.
#[derive(Debug)]
pub struct Dama<P> {
    origin: Instant,
    frames: Frames,
    path: PropagationPath,
    /// Delay of requests and contention blocks to the hub.
    request_delay: Duration,
    /// Time from the decision about a superframe to its begin.
    lead: Duration,
    period: u64,
    /// True if requests survive error bursts.
    robust: bool,
    transport: RequestTransport,
    /// The contention channels, indexed by [`ChannelKind`].
    channels: [Option<RandomAccessChannel>; 2],
    /// Limits of the packets that go by contention; `None` without random access.
    limits: Option<AccessLimits>,
    ncc: Ncc,
    carriers: Carriers,
    terminals: Vec<SatelliteTerminal<P>>,
    agenda: DueSchedule<DamaTask>,
    /// The number of the next superframe to be allocated.
    superframe: u64,
    flying: DueSchedule<ArrivingPacket<P>>,
    /// The latest arrival from each terminal, which no later packet overtakes.
    latest: Vec<Instant>,
    events: Option<VecDeque<DamaEvent>>,
}

impl<P: CarriedPacket> Dama<P> {
    /// A return link without packets. Its time starts at [`Instant::ZERO`].
    ///
    /// # Errors
    /// [`DamaError`].
    pub fn new(config: DamaConfig, seed: u64) -> Result<Self, DamaError> {
        Self::starting_at(Instant::ZERO, config, seed)
    }

    /// Like [`Dama::new`], but its time (superframes, outages, bursts) starts at `origin`.
    ///
    /// # Errors
    /// [`DamaError`].
    pub fn starting_at(origin: Instant, config: DamaConfig, seed: u64) -> Result<Self, DamaError> {
        config.check()?;
        let frames = config.frames;
        let mut seeds = Dice::new(seed);
        let count = config.terminals.len();
        let channels = contention::channels(&config)?;
        let contenders = |seeds| contention::contenders(&channels, seeds);
        // The order of the draws is part of the published results.
        let terminal =
            |number| SatelliteTerminal::new(&config, number, origin, seeds.bits(), contenders);
        let terminals = (0..count).map(terminal).collect();
        let mut network = Self {
            origin,
            frames,
            lead: config.forward_delay + config.processing,
            period: config.requests.period.into(),
            robust: config.requests.robust,
            transport: config.requests.transport,
            channels,
            limits: config.random_access.map(|access| access.limits),
            ncc: Ncc::new(&config),
            carriers: Carriers::new(&config, origin),
            terminals,
            agenda: DueSchedule::new(),
            superframe: 0,
            flying: DueSchedule::new(),
            latest: vec![origin; count],
            events: None,
            request_delay: config.delay.greatest(),
            path: PropagationPath::new(config.delay, Jitter::None, origin),
        };
        // The first superframes were decided before any terminal could send a request.
        while network.decision(network.superframe) <= origin {
            network.allocate();
        }
        network.agenda.insert(network.decision(network.superframe), DamaTask::Allocation);
        Ok(network)
    }

    /// Records events from now on, for [`Dama::poll_event`].
    pub fn record_events(&mut self) {
        self.events.get_or_insert_default();
    }

    /// Returns the number of terminals.
    pub fn terminals(&self) -> usize {
        self.terminals.len()
    }

    /// Returns the frame structure, as configured.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Passes a packet to a terminal at `now`.
    ///
    /// # Panics
    /// If there is no such terminal.
    pub fn handle_packet(&mut self, now: Instant, terminal: usize, packet: P) {
        self.handle_timeout(now);
        // Slots that begin at `now` are used first: the packet misses them.
        self.advance(now, terminal);
        self.terminals[terminal].push(now, packet);
        self.schedule_departure(terminal);
        self.await_packets(now, terminal);
        self.await_opportunity(now, terminal);
    }

    /// Returns the next packet that has reached the hub by `now`, with its terminal and the time.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<(Instant, usize, P)> {
        self.handle_timeout(now);
        loop {
            let (at, ArrivingPacket { terminal, frame, lost }) = self.flying.pop_due(now)?;
            let terminal = terminal as usize;
            let counters = self.terminals[terminal].counters();
            counters.inside.remove(frame.len);
            // A lost packet stays on the way until it would have arrived.
            if lost {
                counters.lost.add(frame.len);
                continue;
            }
            counters.deliver(&frame);
            return Some((at, terminal, frame.packet));
        }
    }

    /// Returns the next recorded event, in the order of the decisions.
    pub fn poll_event(&mut self) -> Option<DamaEvent> {
        self.events.as_mut()?.pop_front()
    }

    /// Returns the counters of a terminal's packets.
    ///
    /// # Panics
    /// If there is no such terminal, like all methods that take one.
    pub fn counters(&self, terminal: usize) -> &PacketCounters {
        self.terminals[terminal].read()
    }

    /// Returns the packets and bytes in a terminal's IP queues, as of the last time passed to the
    /// link.
    pub fn queued(&self, terminal: usize) -> Tally {
        self.terminals[terminal].queued()
    }

    /// Returns the cells that wait in a terminal's MAC buffers.
    pub fn mac_cells(&self, terminal: usize) -> u32 {
        self.terminals[terminal].mac_cells()
    }

    /// Returns the cells that wait in the MAC buffer of a class of a terminal at `now`.
    pub fn waiting(&mut self, now: Instant, terminal: usize, class: TrafficClass) -> u32 {
        self.advance_to(now, terminal);
        self.terminals[terminal].mac_cells_of(class)
    }

    /// Returns the counters of a terminal's slots and requests.
    pub fn slots(&self, terminal: usize) -> SlotCounters {
        self.terminals[terminal].slots
    }

    /// Reports the number of bytes that wait in front of a terminal, in its gateway. They count in
    /// its requests like cells in its MAC buffer, until replaced, or for [`BACKLOG_LASTS`]; 0 ends
    /// it. Each packet that comes to the terminal meanwhile is subtracted.
    ///
    /// [`BACKLOG_LASTS`]: super::BACKLOG_LASTS
    pub fn set_backlog(&mut self, now: Instant, terminal: usize, bytes: ByteCount) {
        self.handle_timeout(now);
        self.terminals[terminal].set_backlog(now, bytes.get());
        self.await_opportunity(now, terminal);
    }

    /// Reports the number of bytes that will come to a terminal soon. Capacity for them comes from
    /// slots that no terminal has requested; otherwise as [`Self::set_backlog`].
    pub fn set_foreseen(&mut self, now: Instant, terminal: usize, bytes: ByteCount) {
        self.handle_timeout(now);
        self.terminals[terminal].set_foreseen(now, bytes.get());
        self.await_opportunity(now, terminal);
    }

    /// Returns the rate of IP packets that a terminal's granted slots carry between `now` and
    /// `horizon` later. Headers of cells are subtracted; the overhead of segmentation
    /// ([`Cell::per_packet`] and the rest of a packet's last cell) is not.
    ///
    /// The plans known at any time reach a forward delay and a processing time ahead, and up to a
    /// superframe more; later slots count as not granted.
    ///
    /// [`Cell::per_packet`]: super::Cell::per_packet
    pub fn granted(&mut self, now: Instant, terminal: usize, horizon: Duration) -> BitRate {
        self.advance_to(now, terminal);
        let slots = self.terminals[terminal].granted(now + horizon);
        let bits = u128::from(slots) * u128::from(self.frames.cell.payload) * 8;
        let rate = bits * 1_000_000_000 / horizon.as_nanos().max(1);
        BitRate::from_bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the number of volume requests that a terminal assumed lost and replaced.
    pub fn replaced_requests(&self, terminal: usize) -> u64 {
        self.terminals[terminal].replaced()
    }

    /// Changes the loss model of a terminal's bursts that leave from now on.
    pub fn set_loss(&mut self, now: Instant, terminal: usize, loss: LossModel) {
        self.advance_to(now, terminal);
        self.terminals[terminal].set_loss(now, loss);
    }

    /// Adds an outage of a terminal's bursts, with times relative to `now`.
    pub fn add_outage(&mut self, now: Instant, terminal: usize, outage: Outage) {
        self.advance_to(now, terminal);
        self.terminals[terminal].add_outage(now, outage);
    }

    /// Ends the current outage of a terminal, if any, and removes later ones.
    pub fn end_outages(&mut self, now: Instant, terminal: usize) {
        self.advance_to(now, terminal);
        self.terminals[terminal].end_outages(now);
    }

    fn advance_to(&mut self, now: Instant, terminal: usize) {
        self.handle_timeout(now);
        self.advance_and_watch(now, terminal);
    }

    fn advance_and_watch(&mut self, now: Instant, terminal: usize) {
        self.advance(now, terminal);
        self.schedule_departure(terminal);
    }

    fn handle_due(&mut self, at: Instant, due: DamaTask) {
        match due {
            DamaTask::Allocation => {
                self.allocate();
                self.agenda.insert(self.decision(self.superframe), DamaTask::Allocation);
            }
            DamaTask::Opportunity(terminal, frame) => {
                self.handle_opportunity(at, terminal as usize, frame);
            }
            DamaTask::Request(terminal, request) => {
                self.ncc.handle_request(self.superframe, terminal, request);
            }
            DamaTask::PiggybackSlot(terminal) => {
                self.advance_and_watch(at, terminal as usize);
                self.await_opportunity(at + Duration::from_nanos(1), terminal as usize);
            }
            DamaTask::Contend(kind, terminal, frame) => {
                self.contend(at, kind, terminal as usize, frame);
            }
            DamaTask::Blocks(kind) => self.receive(at, kind),
            DamaTask::Answer(answer) => self.handle_answer(at, answer),
            DamaTask::Departure(terminal) => {
                let terminal = terminal as usize;
                // Alarms that were replaced are still on the agenda, and mean nothing.
                if self.terminals[terminal].alarm == Some(at) {
                    self.terminals[terminal].alarm = None;
                    self.advance_and_watch(at, terminal);
                }
            }
        }
    }

    /// Returns the time at which a superframe is decided.
    fn decision(&self, superframe: u64) -> Instant {
        let first = superframe * u64::from(self.frames.per_superframe);
        let begin = self.frames.begin(self.origin, first).as_nanos();
        let lead = u64::try_from(self.lead.as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(begin.saturating_sub(lead))
    }

    /// Decides the next superframe and gives the terminals their slots.
    fn allocate(&mut self) {
        let superframe = self.superframe;
        let decided = self.decision(superframe);
        self.superframe += 1;
        let first = superframe * u64::from(self.frames.per_superframe);
        // The announcement is a part of the plan, so it knows what was received by the decision.
        self.announce(superframe);
        let in_use = self.carriers.in_use(decided);
        self.ncc.set_capacity(in_use.capacity, in_use.frames.slots_per_terminal());
        let grants = self.ncc.allocate(superframe);
        // In a fade, only the first slots of each frame are in use.
        let mut layout = Layout::new(in_use.frames, first);
        let mut plan = Vec::new();
        for grant in &grants {
            let mut runs = Vec::with_capacity(self.frames.per_superframe as usize);
            layout.place(grant.slots(), &mut runs);
            let terminal = grant.terminal as usize;
            self.terminals[terminal].pass_idle(decided);
            self.terminals[terminal].grant(runs.iter().copied());
            self.terminals[terminal].note_grant(grant, &runs);
            self.schedule_departure(terminal);
            if self.events.is_some() {
                plan.push(runs);
            }
        }
        if let Some(events) = &mut self.events {
            let begins = self.frames.begin(self.origin, first);
            let cells = |(number, terminal): (usize, &SatelliteTerminal<P>)| {
                Some((number as u32, terminal.mac_cells())).filter(|(_, cells)| *cells > 0)
            };
            let waiting = self.terminals.iter().enumerate().filter_map(cells).collect();
            events.push_back(DamaEvent::Allocated { begins, superframe, grants, plan, waiting });
        }
    }

    /// Lets a terminal use its slots up to `now`.
    fn advance(&mut self, now: Instant, terminal: usize) {
        if let Some(at) = self.terminals[terminal].piggyback_slot.take_if(|at| *at <= now) {
            // The slot carries the request whether or not a cell is left to go with it.
            self.use_slots(Instant::from_nanos(at.as_nanos().saturating_sub(1)), terminal);
            let frame = self.frames.at(self.origin, at);
            self.send_request(at, terminal, frame);
        }
        self.use_slots(now, terminal);
    }

    fn use_slots(&mut self, now: Instant, terminal: usize) {
        let flying = &mut self.flying;
        let path = &self.path;
        let latest = &mut self.latest[terminal];
        self.terminals[terminal].advance(now, |TerminalDeparture { at, frame, lost }| {
            // A delay that becomes shorter does not reorder a terminal's packets.
            *latest = (*latest).max(path.arrival(at, || 0));
            flying.insert(*latest, ArrivingPacket { terminal: terminal as u32, frame, lost });
        });
    }

    /// Schedules the departure of a terminal's next packet.
    fn schedule_departure(&mut self, terminal: usize) {
        let next = self.terminals[terminal].departure();
        if next == self.terminals[terminal].alarm {
            return;
        }
        self.terminals[terminal].alarm = next;
        if let Some(at) = next {
            self.agenda.insert(at, DamaTask::Departure(terminal as u32));
        }
    }

    /// Schedules a terminal's next opportunity to ask, if it has a reason and none is scheduled.
    fn await_opportunity(&mut self, now: Instant, terminal: usize) {
        let asks = &self.terminals[terminal];
        let busy =
            asks.opportunity.is_some() || asks.piggyback_slot.is_some() || asks.pending.is_some();
        if busy || !asks.can_request() || asks.is_idle() {
            return;
        }
        let (frame, at) = self.opportunity(now, terminal);
        self.terminals[terminal].opportunity = Some(frame);
        self.agenda.insert(at, DamaTask::Opportunity(terminal as u32, frame));
    }

    /// Returns the frame and the time of a terminal's next opportunity.
    fn opportunity(&self, now: Instant, terminal: usize) -> (u64, Instant) {
        let last = self.terminals[terminal].last_opportunity;
        let least = last.map_or(0, |last| last + self.period);
        let from = self.frames.first_from(self.origin, now);
        let frame = match self.transport {
            // Terminals take turns: theirs are the frames whose number plus the terminal's is a
            // multiple of the period.
            RequestTransport::Assigned => {
                let since = (from + terminal as u64) % self.period;
                from + (self.period - since) % self.period
            }
            RequestTransport::Piggyback(_) => from.max(least),
            RequestTransport::Contention(_) => {
                let frame = self.first_block(ChannelKind::Requests, now).max(least);
                return (frame, self.block_begin(ChannelKind::Requests, frame));
            }
        };
        (frame, self.frames.begin(self.origin, frame))
    }

    /// Handles a terminal's opportunity to send a request.
    fn handle_opportunity(&mut self, at: Instant, terminal: usize, frame: u64) {
        // First, because packets that go by contention need no request.
        self.contend(at, ChannelKind::Packets, terminal, frame);
        self.advance_and_watch(at, terminal);
        let known = self.known(frame);
        let asking = &mut self.terminals[terminal];
        (asking.opportunity, asking.last_opportunity) = (None, Some(frame));
        let sends = asking.buffers().until_departure() > 0;
        match (self.transport, asking.first_slot(known)) {
            (RequestTransport::Assigned, _) => self.send_request(at, terminal, frame),
            (RequestTransport::Piggyback(_), Some(slot)) if sends => {
                asking.piggyback_slot = Some(slot);
                self.agenda.insert(slot, DamaTask::PiggybackSlot(terminal as u32));
            }
            _ => self.offer_request(terminal, frame),
        }
        // A nanosecond later, or the opportunity of this frame would be found again.
        self.await_opportunity(at + Duration::from_nanos(1), terminal);
    }

    /// Sends a request, unless it is empty, in a slot without contention that begins at `at`: the
    /// terminal's own, or one that was granted.
    fn send_request(&mut self, at: Instant, terminal: usize, frame: u64) {
        let asking = &mut self.terminals[terminal];
        let request = asking.request(frame);
        if request.is_empty() {
            return;
        }
        let sent = at + self.frames.slot();
        let reception = ReceptionTime { from: at, until: sent };
        // Robust requests survive error bursts, but not outages.
        let lost = if self.robust { asking.is_silent(reception) } else { asking.is_hit(reception) };
        asking.slots.requests += 1;
        asking.slots.requests_lost += u64::from(lost);
        if !lost {
            let arrival = sent + self.request_delay;
            self.agenda.insert(arrival, DamaTask::Request(terminal as u32, request));
        }
        if let Some(events) = &mut self.events {
            events.push_back(DamaEvent::Requested { at, terminal: terminal as u32, request, lost });
        }
    }
}

impl<P: CarriedPacket> Machine for Dama<P> {
    type Wake = Wake;

    #[inline]
    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let arrival = self.flying.first().map(|at| (at, Wake::Arrival));
        earliest(arrival, self.agenda.first().map(|at| (at, Wake::Slot)))
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, due)) = self.agenda.pop_due(now) {
            self.handle_due(at, due);
        }
    }
}
