//! One flow of a stack: a connection as its owner uses it, or a SYN that is not answered yet.

use std::sync::Arc;

use units::{ByteCount, Instant, Machine, earliest};

use crate::config::Config;
use crate::connection::{AbortReason, Connection, ConnectionEvent, TcpState};
use crate::segment::Segment;
use crate::wake::TimerKind;
use crate::wire::SegmentPath;
use crate::{SegmentPayload, SeqNr};

use super::repeats::ResetRepeats;

/// Room worth reporting: the amount that a relay reads at once.
const WORTHWHILE_ROOM: ByteCount = ByteCount::new(64 << 10);

/// The failure of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFailure {
    /// The reason of the failure.
    pub why: AbortReason,
    /// True if the peer's stream had ended before: its data may still be unread.
    pub after_end: bool,
}

/// The result of reading a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowRead<P> {
    /// The next data.
    Data(P),
    /// No data has arrived yet.
    Blocked,
    /// The peer's stream has ended. Returned by every further read.
    End,
    /// The flow has failed before that.
    Failed(FlowFailure),
}

#[derive(Debug)]
pub(super) enum FlowPhase<P> {
    /// A SYN waits for the owner's answer.
    Incoming(Segment<P>),
    Open(Box<Connection<P>>),
}

#[derive(Debug)]
pub(super) struct FlowEntry<P> {
    /// The path as seen from this host.
    pub(super) path: SegmentPath,
    pub(super) phase: FlowPhase<P>,
    pub(super) failure: Option<FlowFailure>,
    /// True if this host opened it.
    pub(super) is_ours: bool,
    /// True once its handshake was completed.
    pub(super) is_connected: bool,
    /// True once the peer's FIN has arrived.
    is_ended: bool,
    /// True once the owner has released it.
    pub(super) is_released: bool,
    /// Schedule of the repetitions of the owner's reset.
    repeats: Option<ResetRepeats>,
    /// True while it is in the queue of flows that may send.
    pub(super) is_ready: bool,
    /// Time at which the stack wakes it, as entered in the stack's alarms.
    pub(super) alarm: Option<Instant>,
    pub(super) dscp: u8,
}

impl<P: SegmentPayload> FlowEntry<P> {
    pub(super) fn new(path: SegmentPath, phase: FlowPhase<P>) -> Self {
        Self {
            path,
            is_ours: matches!(phase, FlowPhase::Open(_)),
            phase,
            failure: None,
            is_connected: false,
            is_ended: false,
            is_released: false,
            repeats: None,
            is_ready: false,
            alarm: None,
            dscp: 0,
        }
    }

    /// Handles a segment of this flow. Returns false if it was a repeated SYN, which is ignored.
    pub(super) fn handle_segment(&mut self, now: Instant, segment: &Segment<P>) -> bool {
        // A reset from the peer shows that it has no connection either.
        self.repeats = self.repeats.filter(|_| !segment.flags.rst);
        match &mut self.phase {
            FlowPhase::Open(tcp) => tcp.handle_segment(now, segment),
            // The peer has given up. Its other segments are repetitions of the SYN.
            FlowPhase::Incoming(syn) if segment.flags.rst && segment.seq == syn.seq.advance(1) => {
                self.failure = Some(FlowFailure { why: AbortReason::Reset, after_end: false });
            }
            FlowPhase::Incoming(_) => return false,
        }
        true
    }

    /// Answers the SYN; returns false if there is none.
    pub(super) fn accept(&mut self, now: Instant, config: Arc<Config>, iss: SeqNr) -> bool {
        let FlowPhase::Incoming(syn) = &self.phase else { return false };
        let mut tcp = Connection::listen(config, iss);
        tcp.handle_segment(now, syn);
        self.phase = FlowPhase::Open(Box::new(tcp));
        true
    }

    /// Takes the events of the connection. Returns true if there were any.
    pub(super) fn take_events(&mut self) -> bool {
        let FlowPhase::Open(tcp) = &mut self.phase else { return self.failure.is_some() };
        let mut changed = false;
        while let Some(event) = tcp.poll_event() {
            changed = true;
            match event {
                ConnectionEvent::Connected => self.is_connected = true,
                ConnectionEvent::Finished => self.is_ended = true,
                ConnectionEvent::Aborted(why) => {
                    let cut = FlowFailure { why, after_end: self.is_ended };
                    self.failure.get_or_insert(cut);
                }
                _ => {}
            }
        }
        // A passive open that failed returns to LISTEN. The stack creates a listener per SYN, so it
        // is over.
        if tcp.state() == TcpState::Listen && self.failure.is_none() {
            self.failure = Some(FlowFailure { why: AbortReason::Reset, after_end: false });
            changed = true;
        }
        changed
    }

    /// Returns true if the segment is a SYN that may replace this connection: in TIME-WAIT, or
    /// while its reset is repeated.
    pub(super) fn is_replaced_by(&self, segment: &Segment<P>) -> bool {
        let is_open = segment.flags.syn && !segment.flags.rst && segment.ack.is_none();
        self.repeats.is_some() && is_open
            || self.is_released
                && matches!(&self.phase, FlowPhase::Open(tcp) if tcp.is_succeeded_by(segment))
    }

    /// Ends the connection with a reset. It is not repeated to a peer that has not completed the
    /// handshake, whose address may be forged.
    pub(super) fn abort(&mut self, now: Instant) {
        let FlowPhase::Open(tcp) = &mut self.phase else { return };
        let rto = tcp.stats().rto;
        if tcp.abort(now) && self.is_connected {
            self.repeats = Some(ResetRepeats::new(now, rto));
        }
    }

    pub(super) fn read(&mut self, max: usize) -> FlowRead<P> {
        let FlowPhase::Open(tcp) = &mut self.phase else { return FlowRead::Blocked };
        match tcp.read(max) {
            Some(data) => FlowRead::Data(data),
            None if self.is_ended => FlowRead::End,
            None => self.failure.map_or(FlowRead::Blocked, FlowRead::Failed),
        }
    }

    /// Returns true if reading has opened the window enough to announce it.
    pub(super) fn owes_ack(&self) -> bool {
        matches!(&self.phase, FlowPhase::Open(tcp) if tcp.owes_ack())
    }

    pub(super) fn write(&mut self, data: &P) -> Result<usize, FlowFailure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let FlowPhase::Open(tcp) = &mut self.phase else { return Ok(0) };
        // Only a connection that is over refuses data, and its failure has already been reported.
        Ok(tcp.write(data).unwrap_or(0))
    }

    /// Returns true if there is room for [`WORTHWHILE_ROOM`], or for a quarter of a small buffer. A write
    /// after every acknowledgement would cost more than moving its bytes.
    pub(super) fn has_room(&mut self) -> Result<bool, FlowFailure> {
        match (&mut self.phase, self.failure) {
            (_, Some(failure)) => Err(failure),
            (FlowPhase::Open(tcp), None) => {
                let quarter = ByteCount::new((tcp.config().send_buffer.get() / 4).max(1));
                Ok(tcp.has_room(quarter.min(WORTHWHILE_ROOM)))
            }
            (FlowPhase::Incoming(_), None) => Ok(false),
        }
    }

    pub(super) fn room(&self) -> Result<u64, FlowFailure> {
        match (&self.phase, self.failure) {
            (_, Some(failure)) => Err(failure),
            (FlowPhase::Open(tcp), None) => Ok(tcp.room().get()),
            (FlowPhase::Incoming(_), None) => Ok(0),
        }
    }

    pub(super) fn finish(&mut self) -> Result<(), FlowFailure> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if let FlowPhase::Open(tcp) = &mut self.phase {
            tcp.close();
        }
        Ok(())
    }

    pub(super) fn is_delivered(&self) -> bool {
        match &self.phase {
            FlowPhase::Open(tcp) => {
                matches!(tcp.state(), TcpState::Closed | TcpState::TimeWait | TcpState::FinWait2)
            }
            FlowPhase::Incoming(_) => false,
        }
    }

    pub(super) fn unacknowledged(&self) -> u64 {
        match &self.phase {
            FlowPhase::Open(tcp) => tcp.unacknowledged().get(),
            FlowPhase::Incoming(_) => 0,
        }
    }

    /// Returns true if nothing is left to send or to wait for.
    pub(super) fn is_over(&self) -> bool {
        match &self.phase {
            FlowPhase::Open(tcp) => {
                // A reset that is still to be repeated keeps the flow.
                self.repeats.is_none() && matches!(tcp.state(), TcpState::Closed | TcpState::Listen)
            }
            FlowPhase::Incoming(_) => false,
        }
    }

    pub(super) fn has_snack(&self) -> bool {
        matches!(&self.phase, FlowPhase::Open(tcp) if tcp.has_snack())
    }

    pub(super) fn has_sack(&self) -> bool {
        matches!(&self.phase, FlowPhase::Open(tcp) if tcp.has_sack())
    }

    pub(super) fn held(&self) -> u64 {
        match &self.phase {
            FlowPhase::Open(tcp) => tcp.held().get(),
            FlowPhase::Incoming(_) => 0,
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Segment<P>> {
        match &mut self.phase {
            FlowPhase::Open(tcp) => tcp.poll_transmit(now),
            FlowPhase::Incoming(_) => None,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<(Instant, TimerKind)> {
        match &self.phase {
            FlowPhase::Open(tcp) => {
                let reset = self.repeats.map(|repeats| (repeats.at(), TimerKind::Reset));
                earliest(tcp.poll_timeout(), reset)
            }
            FlowPhase::Incoming(_) => None,
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let FlowPhase::Open(tcp) = &mut self.phase else { return };
        tcp.handle_timeout(now);
        // Nobody acknowledges a reset, so a lost one would leave the peer waiting.
        if let Some(repeats) = self.repeats.filter(|repeats| repeats.at() <= now) {
            tcp.reset(now);
            self.repeats = repeats.next(now);
        }
    }
}
