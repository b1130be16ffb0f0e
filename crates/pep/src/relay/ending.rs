//! The end of a broken connection: data sent before a reset is delivered before it.
//!
//! A kernel keeps received data when a RST arrives, and its process can still read it. A host that answers
//! and closes its socket with unread data in it (which sends a RST) has answered. A relay that passed the
//! RST on at once would destroy that answer.

use core::time::Duration;

use slacp::ResetReason;
use units::Instant;

use super::legs::{LegSide, LegStep, Legs};
use super::{FIRST_POLL, HALF_CLOSED_TIMEOUT, LAST_POLL};

/// Reset of a leg once its peer has all data sent to it before.
#[derive(Debug, Clone, Copy)]
pub(super) struct LegEnding {
    pub(super) reason: ResetReason,
    /// The leg to reset, whose peer is to get the data first.
    sink: LegSide,
    /// `true` while the failed leg, the other one, may still hold data for it.
    is_passing: bool,
    /// Bytes not acknowledged by the sink's peer at the last check.
    left: u64,
    /// Time at which the reader is given up; it is extended when the reader takes something.
    until: Instant,
    /// Time of the next check for acknowledgements, and the pause after it.
    look: Instant,
    pause: Duration,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndingStep {
    /// More may be possible at once.
    Busy,
    /// A leg is blocked, or the next check is not due.
    Waiting,
    /// Both legs are to be reset now.
    Over,
}

impl LegEnding {
    /// The ending of a connection of which `leg` has failed.
    pub(super) fn after_failure(now: Instant, leg: LegSide, reason: ResetReason) -> Self {
        Self { is_passing: true, ..Self::of(now, leg.other(), reason) }
    }

    /// The ending of a leg to which all data was passed on.
    pub(super) fn of(now: Instant, sink: LegSide, reason: ResetReason) -> Self {
        let until = now + HALF_CLOSED_TIMEOUT;
        Self { reason, sink, is_passing: false, left: 0, until, look: now, pause: FIRST_POLL }
    }

    /// Latest time for the next call of [`Self::handle`].
    pub(super) fn poll_timeout(&self) -> Instant {
        self.until.min(self.look)
    }

    pub(super) fn handle(&mut self, now: Instant, legs: &mut impl Legs) -> EndingStep {
        if self.is_passing
            && let Some(next) = self.pass(now, legs)
        {
            return next;
        }
        // Checked at intervals only: nothing reports that a peer has acknowledged.
        if self.look <= now {
            self.look(now, legs);
            if !self.is_passing && legs.reset_after_data(self.sink, self.reason) {
                return EndingStep::Over;
            }
        }
        if now < self.until {
            return self.discard(legs);
        }
        // A stream keeps the data that it has taken: it may be held up by a fade.
        legs.reset_after_data(self.sink, self.reason);
        EndingStep::Over
    }

    /// Passes on data of the failed leg. Returns `None` if the sink is blocked or nothing is left.
    fn pass(&mut self, now: Instant, legs: &mut impl Legs) -> Option<EndingStep> {
        let source = self.sink.other();
        let step = legs.pass(source);
        if let LegStep::Moved(_) | LegStep::Drained(_) = step {
            self.until = now + HALF_CLOSED_TIMEOUT;
        }
        match step {
            LegStep::Moved(_) => Some(EndingStep::Busy),
            LegStep::Drained(_) | LegStep::Blocked(_) => None,
            // A kernel reports the error once; then its remaining data ends with an ordinary end.
            LegStep::End => self.end_passing(now, legs),
            LegStep::Failed(leg, _) if leg == source => self.end_passing(now, legs),
            // The reader itself has failed, so the data cannot be delivered.
            LegStep::Failed(..) => Some(EndingStep::Over),
        }
    }

    fn end_passing(&mut self, now: Instant, legs: &mut impl Legs) -> Option<EndingStep> {
        self.is_passing = false;
        (self.look, self.pause) = (now, FIRST_POLL);
        legs.reset(self.sink.other(), self.reason);
        None
    }

    /// Checks whether the reader makes progress. Room on the leg would not show it: a leg becomes writable
    /// only when much of its buffer is free, which may take a slow reader longer than the time limit.
    fn look(&mut self, now: Instant, legs: &mut impl Legs) {
        let left = legs.unacknowledged(self.sink);
        if left < self.left {
            self.until = now + HALF_CLOSED_TIMEOUT;
        }
        self.left = left;
        self.look = now + self.pause;
        self.pause = LAST_POLL.min(self.pause * 2);
    }

    /// Discards data of the sink's peer: many programs read no answer before their request is written.
    fn discard(&self, legs: &mut impl Legs) -> EndingStep {
        match legs.discard(self.sink) {
            LegStep::Moved(_) => EndingStep::Busy,
            LegStep::Drained(_) | LegStep::Blocked(_) | LegStep::End => EndingStep::Waiting,
            LegStep::Failed(..) => EndingStep::Over,
        }
    }
}
