//! Contention: terminals send requests and packets without a grant, and the hub answers with its
//! next plan.
//!
//! | event | when | what happens |
//! |---|---|---|
//! | `Contend` | a block begins in which a terminal may send | draws slots, sends |
//! | `Blocks` | the end of a frame reaches the hub | decodes; requests and packets are there |
//! | `Answer` | the next plan is in force | the terminal knows, pauses or gives up |

use units::Instant;

use super::channel::{BurstSender, ChannelKind, RandomAccessChannel, ReceivedBlocks, SentBurst};
use super::{ArrivingPacket, Dama, DamaEvent, DamaTask, ReceivedBursts};
use crate::CarriedPacket;
use crate::dama::config::{DamaConfig, DamaError};
use crate::dama::random_access::{
    BlockAction, BurstOutcome, BurstSlots, ContentionEnd, ContentionState,
};
use crate::dama::terminal::{Contender, SatelliteTerminal, TerminalDeparture};

/// The hub's answer to the bursts of a terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct BurstAnswer {
    kind: ChannelKind,
    terminal: u32,
    /// The frame in which they were sent.
    sent: u64,
    /// True if the hub has decoded all of them.
    decoded: bool,
}

/// Creates both channels, indexed by [`ChannelKind`].
pub(super) fn channels(config: &DamaConfig) -> Result<[Option<RandomAccessChannel>; 2], DamaError> {
    let requests = RandomAccessChannel::for_requests(config).map_err(DamaError::RequestSlots)?;
    let packets = RandomAccessChannel::for_packets(config).map_err(DamaError::RandomAccess)?;
    Ok([requests, packets])
}

/// Creates a terminal's contenders for both channels, with a seed for each.
pub(super) fn contenders(
    channels: &[Option<RandomAccessChannel>; 2],
    seeds: [u64; 2],
) -> [Option<Box<Contender>>; 2] {
    let new = |channel: &RandomAccessChannel, seed| {
        Box::new(Contender::new(channel.block, channel.answer, channel.backoff, seed))
    };
    let one = |kind: ChannelKind| {
        channels[kind as usize].as_ref().map(|channel| new(channel, seeds[kind as usize]))
    };
    [one(ChannelKind::Requests), one(ChannelKind::Packets)]
}

impl<P: CarriedPacket> Dama<P> {
    /// Returns the first frame after those whose plans are known in frame number `frame`.
    pub(super) fn known(&self, frame: u64) -> u64 {
        let count = u64::from(self.frames.per_superframe);
        (frame / count + 1) * count
    }

    /// Returns the frame of the first block of a channel at or after `now`.
    pub(super) fn first_block(&self, kind: ChannelKind, now: Instant) -> u64 {
        let channel = self.channels[kind as usize].as_ref();
        channel.map_or(u64::MAX, |channel| channel.first_from(self.origin, now))
    }

    /// Returns the time at which the block of a frame begins.
    pub(super) fn block_begin(&self, kind: ChannelKind, frame: u64) -> Instant {
        let channel = self.channels[kind as usize].as_ref();
        channel.map_or(Instant::MAX, |channel| channel.begin(self.origin, frame))
    }

    /// Announces persistence and load of a superframe, from the blocks that the hub has received by
    /// the time of the decision.
    pub(super) fn announce(&mut self, superframe: u64) {
        let decision = self.decision(superframe);
        let frame = self.frames.at(self.origin + self.request_delay, decision);
        for channel in self.channels.iter_mut().flatten() {
            channel.receive_idle(frame);
            channel.announce();
        }
    }

    /// Puts a packet on its way, even if it will be lost. It arrives at `now` or later, not before
    /// the one ahead.
    fn schedule_arrival(&mut self, now: Instant, terminal: usize, departed: TerminalDeparture<P>) {
        let TerminalDeparture { at, frame, lost } = departed;
        let latest = self.latest[terminal].max(now).max(self.path.arrival(at, || 0));
        self.latest[terminal] = latest;
        self.flying.insert(latest, ArrivingPacket { terminal: terminal as u32, frame, lost });
    }

    /// Schedules a terminal's look at the block of a frame, unless it already awaits one.
    fn await_block(&mut self, kind: ChannelKind, terminal: usize, frame: u64) {
        let contender = self.terminals[terminal].contenders[kind as usize].as_mut();
        let Some(contender) = contender else { return };
        let Some(channel) = &self.channels[kind as usize] else { return };
        if contender.alarm.is_none() {
            contender.alarm = Some(frame);
            let at = channel.begin(self.origin, frame);
            self.agenda.insert(at, DamaTask::Contend(kind, terminal as u32, frame));
        }
    }

    /// Schedules a terminal's choice between contention and assignment, if it has packets, for the
    /// next block after `now`.
    pub(super) fn await_packets(&mut self, now: Instant, terminal: usize) {
        let asks = &mut self.terminals[terminal];
        let Some(contender) = &asks.contenders[ChannelKind::Packets as usize] else { return };
        let is_free =
            contender.contention.state() == ContentionState::Idle && contender.alarm.is_none();
        if is_free && !asks.buffers().is_empty() {
            let after = now + core::time::Duration::from_nanos(1);
            self.await_block(
                ChannelKind::Packets,
                terminal,
                self.first_block(ChannelKind::Packets, after),
            );
        }
    }

    /// Requests capacity by contention, in the block of this frame or later.
    pub(super) fn offer_request(&mut self, terminal: usize, frame: u64) {
        let asks = &mut self.terminals[terminal];
        let request = asks.request(frame);
        let contender = &mut asks.contenders[ChannelKind::Requests as usize];
        let Some(contender) = contender.as_mut().filter(|_| !request.is_empty()) else { return };
        if contender.contention.offer(frame) {
            asks.pending = Some(request);
            asks.slots.requests += 1;
            self.await_block(ChannelKind::Requests, terminal, frame);
        }
    }

    /// Handles the begin of a block in which a terminal may send.
    pub(super) fn contend(&mut self, at: Instant, kind: ChannelKind, terminal: usize, frame: u64) {
        let Some(contender) = &mut self.terminals[terminal].contenders[kind as usize] else {
            return;
        };
        if contender.alarm != Some(frame) {
            // An outdated event: a later block has been awaited since.
            return;
        }
        contender.alarm = None;
        self.advance(at, terminal);
        let cells = match kind {
            // A request takes one cell.
            ChannelKind::Requests => vec![1],
            ChannelKind::Packets => self.packets_to_send(at, terminal, frame),
        };
        if !cells.is_empty() {
            self.try_block(at, kind, terminal, frame, &cells);
        }
        self.schedule_departure(terminal);
    }

    /// Returns the cells of each packet that a terminal is to send by contention in a frame.
    fn packets_to_send(&mut self, at: Instant, terminal: usize, frame: u64) -> Vec<u32> {
        let known = self.known(frame);
        let asks = &mut self.terminals[terminal];
        let Some(contender) = &mut asks.contenders[ChannelKind::Packets as usize] else {
            return Vec::new();
        };
        let mut state = contender.contention.state();
        if matches!(state, ContentionState::InAir { .. }) {
            return Vec::new();
        }
        if state != ContentionState::Idle && !asks.buffers().has_contended() {
            // All of its packets for contention have left in granted slots meanwhile.
            self.terminals[terminal].cancel(ChannelKind::Packets as usize);
            state = ContentionState::Idle;
        }
        let asks = &mut self.terminals[terminal];
        if asks.has_slots(at, known) {
            // Granted slots come first; what they leave may contend once no plan grants more.
            if !asks.buffers().is_empty() {
                self.await_block(ChannelKind::Packets, terminal, known);
            }
            return Vec::new();
        }
        if state == ContentionState::Idle && !self.gather(terminal, frame) {
            return Vec::new();
        }
        self.terminals[terminal].buffers().contended_cells()
    }

    /// Takes packets for contention, within the limits and the slots of a block; returns true if
    /// there are any.
    fn gather(&mut self, terminal: usize, frame: u64) -> bool {
        let Some(channel) = &self.channels[ChannelKind::Packets as usize] else { return false };
        let Some(limits) = &self.limits else { return false };
        let replicas = u32::from(channel.block.scheme().replicas());
        // Each burst takes a slot for each of its replicas.
        let most = u32::from(channel.block.slots()) / replicas;
        let load = channel.terms(frame).load;
        let asks = &mut self.terminals[terminal];
        asks.gather(most, load, limits) && asks.offer(ChannelKind::Packets as usize, frame)
    }

    /// Sends in the block of a frame, if the terminal is allowed to and has enough free slots.
    fn try_block(
        &mut self,
        at: Instant,
        kind: ChannelKind,
        terminal: usize,
        frame: u64,
        cells: &[u32],
    ) {
        let Some(channel) = &self.channels[kind as usize] else { return };
        let block = channel.block;
        let first = channel.first_slot;
        let asks = &mut self.terminals[terminal];
        let free = asks.silent_slots(frame, first, block);
        let bursts = cells.iter().sum::<u32>() as usize;
        let Some(contender) = &mut asks.contenders[kind as usize] else { return };
        if free.len() < bursts * usize::from(block.scheme().replicas()) {
            return self.await_block(kind, terminal, frame + 1);
        }
        match contender.contention.handle_block(frame, channel.terms(frame).persistence) {
            // The slots drawn there ignore other bursts and granted slots, so these are drawn anew.
            BlockAction::Send(_) => {
                let drawn = contender.draw(block, free, bursts);
                self.send(at, kind, terminal, frame, cells, &drawn);
            }
            BlockAction::Quiet => {
                if let Some(next) = contender.contention.poll_block() {
                    self.await_block(kind, terminal, next.max(frame + 1));
                }
            }
            BlockAction::GaveUp { .. } => self.give_up(at, kind, terminal),
        }
    }

    /// Sends bursts, one for each cell of each packet.
    fn send(
        &mut self,
        at: Instant,
        kind: ChannelKind,
        terminal: usize,
        frame: u64,
        cells: &[u32],
        bursts: &[BurstSlots],
    ) {
        let Some(channel) = &mut self.channels[kind as usize] else { return };
        let asks = &mut self.terminals[terminal];
        let Some(contender) = &mut asks.contenders[kind as usize] else { return };
        let carrier = contender.carrier(channel.carriers);
        let attempt = contender.contention.collisions() + 1;
        let arriving = asks.transmit(kind as usize, frame, channel.first_slot, bursts);
        if kind == ChannelKind::Packets {
            asks.buffers().launch();
        }
        let places = (0..).zip(cells).flat_map(|(place, cells)| (0..*cells).map(move |_| place));
        let sent = places.zip(arriving).map(|(place, arriving)| SentBurst { place, arriving });
        let terminal = terminal as u32;
        let count = bursts.len() as u32;
        let sender = BurstSender { terminal, bursts: count, decoded: 0, carrier };
        // The hub receives all bursts of a frame together: the first one schedules that.
        if channel.send(frame, sender, sent) {
            let end = self.frames.begin(self.origin, frame + 1);
            self.agenda.insert(end + self.request_delay, DamaTask::Blocks(kind));
        }
        self.note_sent(at, kind, frame, sender, attempt, bursts);
    }

    fn note_sent(
        &mut self,
        at: Instant,
        kind: ChannelKind,
        frame: u64,
        sender: BurstSender,
        attempt: u32,
        bursts: &[BurstSlots],
    ) {
        let Some(events) = &mut self.events else { return };
        let Some(channel) = &self.channels[kind as usize] else { return };
        let terminal = sender.terminal;
        let pending = self.terminals[terminal as usize].pending;
        let number = |slot: &u16| channel.first_slot + u32::from(*slot);
        let slots = |burst: &BurstSlots| burst.as_slice().iter().map(number).collect();
        events.push_back(DamaEvent::Contended {
            at,
            terminal,
            channel: kind,
            request: pending.filter(|_| kind == ChannelKind::Requests),
            attempt,
            frame,
            carrier: channel.carrier(sender.carrier),
            slots: bursts.iter().map(slots).collect(),
        });
    }

    /// Handles blocks that have reached the hub: passes on what was decoded, and schedules the
    /// answers with the next plan.
    pub(super) fn receive(&mut self, at: Instant, kind: ChannelKind) {
        let Some(channel) = &mut self.channels[kind as usize] else { return };
        let heard = channel.receive();
        for &(sender, place) in &heard.decoded {
            let terminal = heard.senders[sender as usize].terminal;
            let sender = &mut self.terminals[terminal as usize];
            match (kind, sender.pending) {
                (ChannelKind::Packets, _) => sender.buffers().handle_cell(place as usize),
                (ChannelKind::Requests, Some(request)) => {
                    self.ncc.handle_request(self.superframe, terminal, request);
                }
                (ChannelKind::Requests, None) => debug_assert!(false, "nothing was asked for"),
            }
        }
        let end = self.frames.begin(self.origin, heard.frame + 1);
        // The next plan to be decided carries the answers; it is known when its superframe begins.
        let answered = self.superframe * u64::from(self.frames.per_superframe);
        let answered = self.frames.begin(self.origin, answered);
        for sender in &heard.senders {
            let terminal = sender.terminal as usize;
            let missed = sender.bursts - sender.decoded;
            self.terminals[terminal].slots.collisions += u64::from(missed);
            while kind == ChannelKind::Packets
                && let Some(departed) = self.terminals[terminal].release(end)
            {
                self.schedule_arrival(at, terminal, departed);
            }
            let terminal = sender.terminal;
            let sent = heard.frame;
            let decoded = missed == 0;
            self.agenda
                .insert(answered, DamaTask::Answer(BurstAnswer { kind, terminal, sent, decoded }));
        }
        self.note_received(at, kind, &heard);
    }

    fn note_received(&mut self, at: Instant, kind: ChannelKind, heard: &ReceivedBlocks) {
        let Some(events) = &mut self.events else { return };
        let Some(channel) = &self.channels[kind as usize] else { return };
        let of = |sender: &BurstSender| ReceivedBursts {
            terminal: sender.terminal,
            carrier: channel.carrier(sender.carrier),
            decoded: sender.decoded,
            collided: sender.bursts - sender.decoded,
        };
        let channel = kind;
        let frame = heard.frame;
        let senders = heard.senders.iter().map(of).collect();
        events.push_back(DamaEvent::Received { at, channel, frame, senders });
    }

    /// Handles the answer to a terminal's bursts in the plan that is now in force.
    pub(super) fn handle_answer(&mut self, at: Instant, answer: BurstAnswer) {
        let BurstAnswer { kind, terminal, sent, decoded } = answer;
        let terminal = terminal as usize;
        let frame = self.frames.first_from(self.origin, at);
        self.advance(at, terminal);
        if kind == ChannelKind::Packets {
            self.terminals[terminal].buffers().handle_answer(at);
        }
        let Some(contender) = &mut self.terminals[terminal].contenders[kind as usize] else {
            return;
        };
        let outcome = if decoded { BurstOutcome::Succeeded } else { BurstOutcome::Collided };
        // The plan is known before the first block of its superframe begins.
        let number = frame.saturating_sub(1);
        match contender.contention.handle_answer(number, sent, outcome) {
            Some(ContentionEnd::Delivered { .. }) => self.delivered(kind, terminal, frame),
            Some(ContentionEnd::GaveUp { .. }) => self.give_up(at, kind, terminal),
            None => {
                if let Some(next) = contender.contention.poll_block() {
                    self.await_block(kind, terminal, next.max(frame));
                }
            }
        }
        self.schedule_departure(terminal);
        self.await_opportunity(at, terminal);
    }

    /// Handles an answer according to which the hub has decoded all bursts.
    fn delivered(&mut self, kind: ChannelKind, terminal: usize, frame: u64) {
        let asks = &mut self.terminals[terminal];
        match kind {
            ChannelKind::Requests => {
                asks.pending = None;
                asks.agent().handle_received(frame);
            }
            ChannelKind::Packets => {
                debug_assert!(!asks.buffers().has_contended(), "answered, but not all there");
                // Packets that have come in the meantime get a choice of their own.
                if !asks.buffers().is_empty() {
                    self.await_block(kind, terminal, frame);
                }
            }
        }
    }

    /// Handles the failure of the last attempt.
    fn give_up(&mut self, at: Instant, kind: ChannelKind, terminal: usize) {
        let asks = &mut self.terminals[terminal];
        match kind {
            ChannelKind::Requests => {
                if let Some(request) = asks.pending.take() {
                    asks.agent().handle_given_up(request);
                    asks.slots.requests_given_up += 1;
                    let pause = asks.contenders[kind as usize].as_mut().map(|each| each.pause());
                    // Terminals that gave up together must not begin again together.
                    let frame = self.frames.at(self.origin, at);
                    asks.last_opportunity = Some(frame + pause.unwrap_or(0));
                }
            }
            ChannelKind::Packets => {
                while let Some(departed) = self.terminals[terminal].give_up(at) {
                    self.schedule_arrival(at, terminal, departed);
                }
                self.await_packets(at, terminal);
            }
        }
        if let Some(events) = &mut self.events {
            events.push_back(DamaEvent::GaveUp { at, terminal: terminal as u32, channel: kind });
        }
    }
}

impl<P: CarriedPacket> SatelliteTerminal<P> {
    /// Offers a burst for contention; returns true if it was accepted.
    fn offer(&mut self, channel: usize, frame: u64) -> bool {
        self.contenders[channel].as_mut().is_some_and(|each| each.contention.offer(frame))
    }

    fn cancel(&mut self, channel: usize) {
        if let Some(contender) = &mut self.contenders[channel] {
            contender.contention.cancel();
        }
    }
}
