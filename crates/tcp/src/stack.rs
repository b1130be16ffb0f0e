//! The TCP connections of a host: finds the connection of each segment, lets connections send in
//! turn, and bounds their number.

mod flow;
mod repeats;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use thiserror::Error;
use units::{Instant, Machine};

use crate::config::Config;
use crate::connection::{AbortReason, Connection, refusal};
use crate::segment::Segment;
use crate::stats::ConnectionStats;
use crate::wake::TimerKind;
use crate::wire::SegmentPath;
use crate::{SegmentPayload, SeqNr};
use flow::{FlowEntry, FlowPhase};

pub use flow::{FlowFailure, FlowRead};

/// Maximum number of queued resets for segments without a connection. They answer strangers, so
/// more are not worth keeping.
const MAX_QUEUED_RESETS: usize = 64;

/// The number of a flow: of a connection, or of a SYN that is not answered yet. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u64);

/// Maximum numbers of flows in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackLimits {
    /// Flows of the owner. As many more may linger after the owner has released them: in TIME-WAIT,
    /// or to repeat their reset.
    pub flows: usize,
    /// SYNs that are not answered yet.
    pub incoming: usize,
}

/// An event of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackEvent {
    /// A SYN has arrived: answer it with [`Stack::accept`], [`Stack::refuse`] or [`Stack::abort`].
    Incoming(FlowId),
    /// The state has changed: the flow may be connected, have data, have room, or have failed.
    Changed(FlowId),
}

/// The reason why no flow can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StackError {
    /// The limit of flows is reached.
    #[error("there are {flows} connections, as many as allowed")]
    Full {
        /// The limit that was set for the stack.
        flows: usize,
    },
    /// A flow has these addresses and ports.
    #[error("port {port} is in use for this destination")]
    InUse {
        /// The requested source port of the new connection.
        port: u16,
    },
}

/// Counters of a stack's flows since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackCounts {
    /// Connections established, opened here.
    pub opened: u64,
    /// Connections established, opened by others.
    pub accepted: u64,
    /// Connections of both kinds whose ends have agreed on SNACK.
    pub snack: u64,
    /// Connections of both kinds whose ends have agreed on SACK.
    pub sack: u64,
    /// SYNs ignored because of [`StackLimits`].
    pub ignored: u64,
    /// Segments retransmitted by connections that are gone.
    pub retransmissions: u64,
}

/// The TCP connections of a host. A state machine without a clock or a device
/// (`docs/state-machines.md`).
///
/// Inputs: [`Stack::handle_segment`], [`Stack::handle_unreachable`], the commands,
/// [`Machine::handle_timeout`]. After each of them, drain [`Stack::poll_event`] and then
/// [`Stack::poll_transmit`]. Every flow has one owner, who ends it with [`Stack::release`] or
/// [`Stack::abort`].
///
/// A SYN is not answered before the owner decides. A reset is sent several times, since the loss of
/// a single one would go unnoticed. Not modelled: SYN cookies; hosts with more than one path.
#[derive(Debug)]
pub struct Stack<P> {
    limits: StackLimits,
    flows: BTreeMap<FlowId, FlowEntry<P>>,
    /// Flows by their paths, as seen from this host.
    paths: BTreeMap<SegmentPath, FlowId>,
    /// Times at which flows have to be woken.
    alarms: BTreeSet<(Instant, FlowId)>,
    /// Flows that may have something to send, each once.
    ready: VecDeque<FlowId>,
    /// Released flows, the oldest first.
    lingering: VecDeque<FlowId>,
    answers: VecDeque<(SegmentPath, Segment<P>)>,
    events: VecDeque<StackEvent>,
    incoming: usize,
    next: u64,
    counts: StackCounts,
}

impl<P: SegmentPayload> Stack<P> {
    /// A stack without connections.
    pub fn new(limits: StackLimits) -> Self {
        Self {
            limits,
            flows: BTreeMap::new(),
            paths: BTreeMap::new(),
            alarms: BTreeSet::new(),
            ready: VecDeque::new(),
            lingering: VecDeque::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            incoming: 0,
            next: 0,
            counts: StackCounts::default(),
        }
    }

    /// Opens a connection along `path`. `iss` must be unpredictable (RFC 6528).
    ///
    /// # Errors
    /// If there are too many flows, or one has this path.
    pub fn connect(
        &mut self,
        path: SegmentPath,
        config: Arc<Config>,
        iss: SeqNr,
    ) -> Result<FlowId, StackError> {
        if self.owned() >= self.limits.flows {
            return Err(StackError::Full { flows: self.limits.flows });
        }
        if self.paths.contains_key(&path) {
            return Err(StackError::InUse { port: path.from_port });
        }
        let tcp = Connection::connect(config, iss);
        let id = self.insert(path, FlowPhase::Open(Box::new(tcp)));
        self.process_events(id);
        Ok(id)
    }

    /// Handles a segment that came along `path`.
    pub fn handle_segment(&mut self, now: Instant, path: &SegmentPath, segment: &Segment<P>) {
        let back = path.reversed();
        // A new SYN replaces a connection in TIME-WAIT (RFC 9293 §3.6.1), or one whose reset is
        // repeated.
        if let Some(id) = self.paths.get(&back).copied()
            && self.flows.get(&id).is_some_and(|flow| flow.is_replaced_by(segment))
        {
            self.remove(id);
        }
        match self.paths.get(&back).copied() {
            Some(id) => {
                let flow = self.flows.get_mut(&id).expect("every path leads to a flow");
                if flow.handle_segment(now, segment) {
                    self.process_events(id);
                }
            }
            None if segment.flags.syn && segment.ack.is_none() && !segment.flags.rst => {
                self.queue_syn(back, segment);
            }
            None => self.answer(back, segment),
        }
    }

    /// Handles an ICMP error about the segment with the number `seq`, which was sent along `path`:
    /// the destination is unreachable. It only ends a connection whose SYN was not answered; later
    /// the path may recover (RFC 1122 §4.2.3.9, RFC 5927 §5).
    pub fn handle_unreachable(&mut self, path: &SegmentPath, seq: SeqNr) {
        let Some(id) = self.paths.get(path).copied() else { return };
        if let Some(FlowEntry { phase: FlowPhase::Open(tcp), .. }) = self.flows.get_mut(&id) {
            tcp.handle_unreachable(seq);
            self.process_events(id);
        }
    }

    /// Answers a SYN, with `iss` as our initial sequence number.
    pub fn accept(&mut self, now: Instant, id: FlowId, config: Arc<Config>, iss: SeqNr) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.accept(now, config, iss) {
            self.incoming -= 1;
            self.process_events(id);
        }
    }

    /// Refuses a SYN with a reset.
    pub fn refuse(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get(&id) else { return };
        if let FlowPhase::Incoming(syn) = &flow.phase {
            let path = flow.path;
            let syn = syn.clone();
            self.answer(path, &syn);
            self.remove(id);
        }
    }

    /// Returns true once the handshake is complete.
    ///
    /// # Errors
    /// The failure of the flow, also if it no longer exists.
    pub fn is_connected(&self, id: FlowId) -> Result<bool, FlowFailure> {
        let flow = self.flows.get(&id).ok_or(FlowFailure::GONE)?;
        flow.failure.map_or(Ok(flow.is_connected), Err)
    }

    /// Returns the failure of the flow; also that of a flow that no longer exists.
    pub fn failure(&self, id: FlowId) -> Option<FlowFailure> {
        self.flows.get(&id).map_or(Some(FlowFailure::GONE), |flow| flow.failure)
    }

    /// Reads the next data of a flow, at most `max` bytes.
    pub fn read(&mut self, id: FlowId, max: usize) -> FlowRead<P> {
        let Some(flow) = self.flows.get_mut(&id) else {
            return FlowRead::Failed(FlowFailure::GONE);
        };
        let read = flow.read(max);
        // What was read may open the window, which the peer must learn.
        if matches!(read, FlowRead::Data(_)) && flow.owes_ack() {
            self.mark_ready(id);
        }
        read
    }

    /// Writes as much as there is room for; returns the number of bytes, 0 without room.
    ///
    /// # Errors
    /// The failure of the flow, also if it no longer exists.
    pub fn write(&mut self, id: FlowId, data: &P) -> Result<usize, FlowFailure> {
        let flow = self.flows.get_mut(&id).ok_or(FlowFailure::GONE)?;
        let written = flow.write(data)?;
        if written > 0 {
            self.mark_ready(id);
        }
        Ok(written)
    }

    /// Returns the room to write, in bytes.
    ///
    /// # Errors
    /// The failure of the flow, also if it no longer exists.
    pub fn room(&self, id: FlowId) -> Result<u64, FlowFailure> {
        self.flows.get(&id).ok_or(FlowFailure::GONE)?.room()
    }

    /// Returns true if there is room for 64 KiB, or for a quarter of a smaller send buffer; if not,
    /// an event follows when there is more.
    ///
    /// # Errors
    /// The failure of the flow, also if it no longer exists.
    pub fn has_room(&mut self, id: FlowId) -> Result<bool, FlowFailure> {
        self.flows.get_mut(&id).ok_or(FlowFailure::GONE)?.has_room()
    }

    /// Ends our stream of a connection.
    ///
    /// # Errors
    /// The failure of the flow, also if it no longer exists.
    pub fn finish(&mut self, id: FlowId) -> Result<(), FlowFailure> {
        let flow = self.flows.get_mut(&id).ok_or(FlowFailure::GONE)?;
        flow.finish()?;
        self.process_events(id);
        Ok(())
    }

    /// Returns true if the peer has acknowledged everything, with the end of our stream; also if
    /// the connection is over.
    pub fn is_delivered(&self, id: FlowId) -> bool {
        self.flows.get(&id).is_none_or(FlowEntry::is_delivered)
    }

    /// Returns the number of bytes written that the peer has not acknowledged; 0 if the connection
    /// is over.
    pub fn unacknowledged(&self, id: FlowId) -> u64 {
        self.flows.get(&id).map_or(0, FlowEntry::unacknowledged)
    }

    /// Releases a flow whose streams have ended: the stack completes the rest, such as TIME-WAIT.
    pub fn release(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.is_released {
            return;
        }
        flow.is_released = true;
        self.lingering.push_back(id);
        self.process_events(id);
        while self.lingering.len() > self.limits.flows {
            // The flow that was released first is closest to its end.
            self.lingering.pop_front().into_iter().for_each(|oldest| self.remove(oldest));
        }
    }

    /// Ends a connection with a reset, or ignores a SYN.
    pub fn abort(&mut self, now: Instant, id: FlowId) {
        match self.flows.get_mut(&id).map(|flow| &mut flow.phase) {
            // Without an answer the SYN comes again, or the peer gives up.
            Some(FlowPhase::Incoming(_)) => self.remove(id),
            Some(FlowPhase::Open(_)) => {
                self.flows.get_mut(&id).into_iter().for_each(|flow| flow.abort(now));
                self.release(id);
            }
            None => {}
        }
    }

    /// Returns the path of a flow, as seen from this host.
    pub fn path(&self, id: FlowId) -> Option<SegmentPath> {
        self.flows.get(&id).map(|flow| flow.path)
    }

    /// Returns the sequence number of a SYN that is not answered yet.
    pub fn syn(&self, id: FlowId) -> Option<SeqNr> {
        match &self.flows.get(&id)?.phase {
            FlowPhase::Incoming(syn) => Some(syn.seq),
            FlowPhase::Open(_) => None,
        }
    }

    /// Returns true if a flow has this path, as seen from this host.
    pub fn has(&self, path: &SegmentPath) -> bool {
        self.paths.contains_key(path)
    }

    /// Returns the statistics of a connection; `None` for a SYN.
    pub fn stats(&self, id: FlowId) -> Option<ConnectionStats> {
        match &self.flows.get(&id)?.phase {
            FlowPhase::Open(tcp) => Some(tcp.stats()),
            FlowPhase::Incoming(_) => None,
        }
    }

    /// Returns the largest payload of a connection's segments, in bytes.
    pub fn segment_size(&self, id: FlowId) -> Option<u64> {
        match &self.flows.get(&id)?.phase {
            FlowPhase::Open(tcp) => Some(tcp.segment_size()),
            FlowPhase::Incoming(_) => None,
        }
    }

    /// Returns true if the ends of a connection have agreed on SNACK.
    pub fn has_snack(&self, id: FlowId) -> bool {
        self.flows.get(&id).is_some_and(FlowEntry::has_snack)
    }

    /// Sets the DSCP of a flow's packets (RFC 2474), which the owner writes into their headers.
    pub fn set_dscp(&mut self, id: FlowId, dscp: u8) {
        self.flows.get_mut(&id).into_iter().for_each(|flow| flow.dscp = dscp);
    }

    /// The DSCP of packets along `path`; 0 unless it was set.
    pub fn dscp(&self, path: &SegmentPath) -> u8 {
        let flow = self.paths.get(path).and_then(|id| self.flows.get(id));
        flow.map_or(0, |flow| flow.dscp)
    }

    /// Returns the counters since the creation of the stack.
    pub fn counts(&self) -> StackCounts {
        self.counts
    }

    /// Returns the number of flows that have an owner.
    pub fn owned(&self) -> usize {
        self.flows.len() - self.lingering.len()
    }

    /// Returns the number of bytes held for all connections: written and not acknowledged, received
    /// and not read.
    pub fn held(&self) -> u64 {
        self.flows.values().map(FlowEntry::held).sum()
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<StackEvent> {
        self.events.pop_front()
    }

    /// Returns the next segment to send now, and its path; call until `None`. The flows take turns.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(SegmentPath, Segment<P>)> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            if let Some(segment) = flow.poll_transmit(now) {
                let path = flow.path;
                // To the end of the queue: flows take turns, one segment each.
                self.ready.push_back(id);
                return Some((path, segment));
            }
            flow.is_ready = false;
            if flow.is_released && flow.is_over() {
                self.remove(id);
            } else {
                self.set_alarm(id);
            }
        }
        None
    }

    fn insert(&mut self, path: SegmentPath, phase: FlowPhase<P>) -> FlowId {
        let id = FlowId(self.next);
        self.next += 1;
        self.paths.insert(path, id);
        self.flows.insert(id, FlowEntry::new(path, phase));
        id
    }

    /// Keeps a SYN for the owner to answer.
    fn queue_syn(&mut self, path: SegmentPath, syn: &Segment<P>) {
        if self.incoming >= self.limits.incoming || self.owned() >= self.limits.flows {
            // The peer repeats its SYN, as with a full backlog of a kernel.
            self.counts.ignored += 1;
            return;
        }
        self.incoming += 1;
        let id = self.insert(path, FlowPhase::Incoming(syn.clone()));
        self.events.push_back(StackEvent::Incoming(id));
    }

    /// Answers a segment that belongs to no connection.
    fn answer(&mut self, path: SegmentPath, segment: &Segment<P>) {
        if self.answers.len() < MAX_QUEUED_RESETS {
            self.answers.extend(refusal(segment).map(|reset| (path, reset)));
        }
    }

    /// Takes the events of a flow's connection, counts it once it is established, and lets it send.
    fn process_events(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let was_connected = flow.is_connected;
        let changed = flow.take_events();
        if flow.is_connected && !was_connected {
            let FlowEntry { is_ours, .. } = *flow;
            let snack = flow.has_snack();
            let sack = flow.has_sack();
            let kind = if is_ours { &mut self.counts.opened } else { &mut self.counts.accepted };
            *kind += 1;
            self.counts.snack += u64::from(snack);
            self.counts.sack += u64::from(sack);
        }
        if changed && !flow.is_released {
            self.events.push_back(StackEvent::Changed(id));
        }
        self.mark_ready(id);
    }

    fn mark_ready(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if !std::mem::replace(&mut flow.is_ready, true) {
            self.ready.push_back(id);
        }
    }

    fn set_alarm(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let next = flow.poll_timeout().map(|(at, _)| at);
        if flow.alarm != next {
            flow.alarm.into_iter().for_each(|at| {
                self.alarms.remove(&(at, id));
            });
            next.into_iter().for_each(|at| {
                self.alarms.insert((at, id));
            });
            flow.alarm = next;
        }
    }

    fn remove(&mut self, id: FlowId) {
        let Some(flow) = self.flows.remove(&id) else { return };
        self.paths.remove(&flow.path);
        flow.alarm.into_iter().for_each(|at| {
            self.alarms.remove(&(at, id));
        });
        if flow.is_released {
            self.lingering.retain(|other| *other != id);
        }
        match &flow.phase {
            FlowPhase::Incoming(_) => self.incoming -= 1,
            FlowPhase::Open(tcp) => self.counts.retransmissions += tcp.stats().retransmissions,
        }
    }
}

impl<P: SegmentPayload> Machine for Stack<P> {
    type Wake = TimerKind;

    fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        let (at, id) = self.alarms.first()?;
        let (_, why) = self.flows.get(id)?.poll_timeout()?;
        Some((*at, why))
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.alarms.first()
            && at <= now
        {
            self.alarms.pop_first();
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.alarm = None;
                flow.handle_timeout(now);
                self.process_events(id);
            }
        }
    }
}

impl FlowFailure {
    /// The failure of a flow that no longer exists.
    const GONE: Self = Self { why: AbortReason::Reset, after_end: false };
}
