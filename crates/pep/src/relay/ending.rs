//! The end of a broken connection: what was sent before a reset is delivered before it.
//!
//! A kernel keeps what it has received when a RST arrives, and its process still reads that. So a
//! host that answers, and closes its socket while there is data for it that it has not read, has
//! answered. A relay that passed the RST on at once would destroy the answer.

use core::time::Duration;

use slacp::ResetReason;
use units::Instant;

use super::legs::{Legs, Side, Step};
use super::{FIRST_POLL, HALF_CLOSED_TIMEOUT, LAST_POLL};

/// A leg that is to be reset once its peer has everything that was sent to it before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub(super) reason: ResetReason,
    /// The leg to reset.
    sink: Side,
    /// Whether the failed leg, the other one, may still hold data for it.
    is_passing: bool,
    /// Bytes that the sink's peer had not acknowledged at the last look.
    left: u64,
    /// When the reader is given up, unless it takes something.
    until: Instant,
    /// When to look for acknowledgements again, and the pause after that.
    look: Instant,
    pause: Duration,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// More may be possible at once.
    Busy,
    /// A leg is blocked, or it is not time to look for acknowledgements yet.
    Waiting,
    /// Whatever is left of the legs is reset.
    Over,
}

impl Ending {
    /// The end of a connection of which `leg` has failed.
    pub(super) fn after_failure(now: Instant, leg: Side, reason: ResetReason) -> Self {
        Self { is_passing: true, ..Self::of(now, leg.other(), reason) }
    }

    /// The end of a leg to which everything was passed on.
    pub(super) fn of(now: Instant, sink: Side, reason: ResetReason) -> Self {
        let until = now + HALF_CLOSED_TIMEOUT;
        Self { reason, sink, is_passing: false, left: 0, until, look: now, pause: FIRST_POLL }
    }

    /// When to call [`Self::handle`] at the latest.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.until.min(self.look)
    }

    pub(super) fn handle(&mut self, now: Instant, legs: &mut impl Legs) -> Next {
        if self.is_passing
            && let Some(next) = self.pass(now, legs)
        {
            return next;
        }
        if self.look <= now {
            self.look(now, legs);
            if !self.is_passing && legs.reset_after_data(self.sink, self.reason) {
                return Next::Over;
            }
        }
        if now < self.until {
            return self.discard(legs);
        }
        // A stream keeps what it has taken: it may be held up by a fade.
        legs.reset_after_data(self.sink, self.reason);
        Next::Over
    }

    /// Passes on what the failed leg holds. Returns `None` if the sink is blocked or nothing is left.
    fn pass(&mut self, now: Instant, legs: &mut impl Legs) -> Option<Next> {
        let source = self.sink.other();
        let step = legs.pass(source);
        if let Step::Moved(_) | Step::Drained(_) = step {
            self.until = now + HALF_CLOSED_TIMEOUT;
        }
        match step {
            Step::Moved(_) => Some(Next::Busy),
            Step::Drained(_) | Step::Blocked(_) => None,
            // A kernel reports its error once; from then on, what it has left ends with an end.
            Step::End => self.end_passing(now, legs),
            Step::Failed(leg, _) if leg == source => self.end_passing(now, legs),
            Step::Failed(..) => Some(Next::Over),
        }
    }

    fn end_passing(&mut self, now: Instant, legs: &mut impl Legs) -> Option<Next> {
        self.is_passing = false;
        (self.look, self.pause) = (now, FIRST_POLL);
        legs.reset(self.sink.other(), self.reason);
        None
    }

    /// Looks whether the reader goes on, and sets the time of the next look. A leg is writable again
    /// only when much of its buffer is free, which may take a slow reader longer than it has.
    fn look(&mut self, now: Instant, legs: &mut impl Legs) {
        let left = legs.unacknowledged(self.sink);
        if left < self.left {
            self.until = now + HALF_CLOSED_TIMEOUT;
        }
        self.left = left;
        self.look = now + self.pause;
        self.pause = LAST_POLL.min(self.pause * 2);
    }

    /// Discards what the sink's peer sends: many programs read no answer before their request is
    /// written.
    fn discard(&self, legs: &mut impl Legs) -> Next {
        match legs.discard(self.sink) {
            Step::Moved(_) => Next::Busy,
            Step::Drained(_) | Step::Blocked(_) | Step::End => Next::Waiting,
            Step::Failed(..) => Next::Over,
        }
    }
}
