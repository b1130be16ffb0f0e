//! Joins the two legs of a split connection, and ends each leg in the way the other has ended.
//!
//! The end of the data is passed on as an end, a reset as a reset, and a slow reader slows the sender down.
//! No byte is lost, repeated or cut off by the way in which a connection ends:
//!
//! | event | action |
//! |---|---|
//! | a leg's data ends | finishes the other leg; the opposite direction goes on (half-close) |
//! | both directions have ended | keeps each leg until its peer has acknowledged everything |
//! | a leg fails before its data has ended | passes on the data sent before, waits until the other leg's peer has acknowledged it, and then resets that leg with the reason; data from that peer in the meantime is discarded |
//! | a leg fails after its end was passed on | nothing, until there is data for it; then as below |
//! | a leg accepts no more data, but what it sent has not all been passed on | continues to pass it on, and discards the other side's data: otherwise two hosts that have both closed would wait for each other, each gateway for room that the other does not make |
//! | a leg accepts no more data, after its end was passed on | discards the other side's data until that side ends too, for at most [`HALF_CLOSED_TIMEOUT`]: a reset would destroy data still in flight to it |
//! | a stream is reset | resets the other leg as after a failure, whatever has ended before |
//!
//! A reader that takes nothing for [`HALF_CLOSED_TIMEOUT`] loses the data that precedes a reset.
//!
//! The driver moves the bytes ([`Legs`]); the same relay runs over sockets in the gateway and over
//! simulated connections in virtual time.

pub mod bottleneck;
mod deferral;
mod dial;
mod ending;
mod legs;

use core::time::Duration;

use slacp::ResetReason;
use units::Instant;

pub use self::deferral::{PendingSyn, PendingSyns, SynAction};
pub use self::dial::{DialAttempts, alternating};
use self::ending::{EndingStep, LegEnding};
pub use self::legs::{LegFailure, LegSide, LegStep, Legs};

/// Time that the far side may keep sending to a peer that has closed, without taking any of the data left
/// for it, before it is reset; also the time that a reader of data before a reset may take none of it.
/// Several round trips of the slowest hop.
pub const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(30);
/// First and longest interval between checks for the last acknowledgement of a finished connection.
const FIRST_POLL: Duration = Duration::from_millis(2);
const LAST_POLL: Duration = Duration::from_secs(1);

/// State of the data from one leg to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectionState {
    Open,
    /// The source has ended; the sink is not finished yet.
    Ended,
    /// The end was passed on to the sink.
    Passed,
    /// The sink accepts no more data, so the source's data is discarded; with the reason for the counters.
    Refused(ResetReason),
}

#[derive(Debug, Clone, Copy)]
enum RelayPhase {
    /// Data may move.
    Carrying,
    /// One leg is gone; data of the other is discarded.
    Discarding {
        leg: LegSide,
        until: Instant,
    },
    /// All data has moved; `legs` await their last acknowledgement.
    Delivering {
        legs: [bool; 2],
        look: Instant,
        pause: Duration,
    },
    /// The connection is broken: a leg is reset once its peer has the data sent before.
    Ending(LegEnding),
    /// The destination was not reached; the client has not been told yet.
    Refused(ResetReason),
    Over,
}

/// Way in which a connection has ended, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayOutcome {
    /// Both sides ended their data, and all of it was passed on.
    Closed,
    /// It was reset by one side, or by a gateway.
    Reset(ResetReason),
}

/// Instruction for the driver after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayProgress {
    /// Call again, after serving others.
    Busy,
    /// Call again when a leg that was blocked can move, or at [`Relay::poll_timeout`].
    Waiting,
    /// The client was answered early and is about to be reset for this reason, because its destination was
    /// not reached. Call [`Relay::abort`] once further connections to that destination pass unaccelerated,
    /// so that a client that retries gets the destination's own answer.
    Refused(ResetReason),
    /// Both legs are released; the relay is done.
    Over,
}

/// Why a relay asks to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayWake {
    /// To check for the last acknowledgement.
    Delivery,
    /// To end a side that keeps sending although its data is discarded.
    HalfClosed,
    /// To check whether the data before a reset is acknowledged, or to give up its reader.
    Reset,
}

/// The relay of one connection.
///
/// Call [`Self::handle`] whenever a leg may have data or room and at [`Self::poll_timeout`], and
/// [`Self::handle_failure`] when a leg fails that is not being read or written.
#[derive(Debug)]
pub struct Relay {
    /// The directions, indexed by the side of their source.
    from: [DirectionState; 2],
    phase: RelayPhase,
    outcome: Option<RelayOutcome>,
    /// `true` if the client was answered and the far gateway has not connected to the destination yet.
    is_early: bool,
    /// While one direction is refused: deadline for the other one, set by the first discarded data since it
    /// last moved.
    discarding_until: Option<Instant>,
}

impl Default for Relay {
    /// A relay of a connection that both hosts have accepted.
    fn default() -> Self {
        let from = [DirectionState::Open; 2];
        Self {
            from,
            phase: RelayPhase::Carrying,
            outcome: None,
            is_early: false,
            discarding_until: None,
        }
    }
}

impl Relay {
    /// A relay whose client was answered before its destination was reached.
    pub fn early() -> Self {
        Self { is_early: true, ..Self::default() }
    }

    /// Handles the far gateway's success in connecting to the destination.
    pub fn handle_accepted(&mut self) {
        self.is_early = false;
    }

    /// The way in which the connection ended; known as soon as it is certain, usually before the legs are released.
    pub fn outcome(&self) -> Option<RelayOutcome> {
        self.outcome
    }

    /// Returns `true` while data may move.
    pub fn is_carrying(&self) -> bool {
        matches!(self.phase, RelayPhase::Carrying)
    }

    /// Returns `true` if this leg's data has ended and the end was passed on.
    pub fn is_passed(&self, leg: LegSide) -> bool {
        self.from[leg as usize] == DirectionState::Passed
    }

    /// Latest time for the next call of [`Self::handle`], and the reason.
    pub fn poll_timeout(&self) -> Option<(Instant, RelayWake)> {
        match self.phase {
            RelayPhase::Delivering { look, .. } => Some((look, RelayWake::Delivery)),
            RelayPhase::Discarding { until, .. } => Some((until, RelayWake::HalfClosed)),
            RelayPhase::Ending(ending) => Some((ending.poll_timeout(), RelayWake::Reset)),
            RelayPhase::Carrying | RelayPhase::Refused(_) | RelayPhase::Over => None,
        }
    }

    /// Does everything that is possible now: moves data, passes ends on, releases legs.
    pub fn handle(&mut self, now: Instant, legs: &mut impl Legs) -> RelayProgress {
        loop {
            let progress = match self.phase {
                RelayPhase::Carrying => self.carry(now, legs),
                RelayPhase::Discarding { leg, until } => self.discard(now, legs, leg, until),
                RelayPhase::Delivering { .. } => self.deliver(now, legs),
                RelayPhase::Ending(_) => self.end(now, legs),
                RelayPhase::Refused(reason) => Some(RelayProgress::Refused(reason)),
                RelayPhase::Over => Some(RelayProgress::Over),
            };
            // Without progress to report, the phase has changed.
            if let Some(progress) = progress {
                return progress;
            }
        }
    }

    /// Handles the failure of a leg that was neither being read nor written.
    ///
    /// An error after the leg's end was passed on is ignored. A server that has sent its reply and closed
    /// is soon forgotten by its kernel, which answers the next probe with a RST while a slow client is
    /// still reading. The error matters only if there is data for the server, and then writing fails.
    pub fn handle_failure(&mut self, now: Instant, leg: LegSide, failure: LegFailure) {
        let counts = match failure {
            LegFailure::Closed => false,
            LegFailure::Broken(_) => !self.is_passed(leg),
            LegFailure::Reset(_) => true,
        };
        if self.is_carrying() && counts {
            self.fail(now, leg, failure);
        }
    }

    /// Aborts the connection at once, with a reason for both sides.
    pub fn abort(&mut self, reason: ResetReason, legs: &mut impl Legs) {
        for leg in LegSide::BOTH {
            legs.reset(leg, reason);
        }
        self.outcome.get_or_insert(RelayOutcome::Reset(reason));
        self.phase = RelayPhase::Over;
    }

    fn carry(&mut self, now: Instant, legs: &mut impl Legs) -> Option<RelayProgress> {
        let mut moved = false;
        for from in LegSide::BOTH {
            moved |= match self.from[from as usize] {
                DirectionState::Refused(_) => self.drop_refused(now, from, legs),
                _ => self.pass(now, from, legs),
            };
            if !self.is_carrying() {
                return None;
            }
        }
        self.conclude(now, legs);
        let progress = if moved { RelayProgress::Busy } else { RelayProgress::Waiting };
        self.is_carrying().then_some(progress)
    }

    /// Lets one direction proceed; returns `true` if more may be possible at once.
    fn pass(&mut self, now: Instant, from: LegSide, legs: &mut impl Legs) -> bool {
        if self.from[from as usize] == DirectionState::Open {
            let step = legs.pass(from);
            match step {
                LegStep::Moved(bytes) | LegStep::Drained(bytes) => {
                    debug_assert!(bytes > 0, "a step without progress must block");
                    // The reader makes progress, so the other direction is not given up.
                    self.discarding_until = None;
                    return matches!(step, LegStep::Moved(_));
                }
                LegStep::Blocked(_) => return false,
                LegStep::End => self.from[from as usize] = DirectionState::Ended,
                LegStep::Failed(leg, failure) => {
                    // A leg that can no longer be read has lost data, whatever the error.
                    let failure = match failure {
                        LegFailure::Closed if leg == from => LegFailure::Broken(ResetReason::Reset),
                        failure => failure,
                    };
                    self.fail(now, leg, failure);
                    return true;
                }
            }
        }
        if self.from[from as usize] == DirectionState::Ended {
            match legs.finish(from.other()) {
                Ok(true) => self.from[from as usize] = DirectionState::Passed,
                Ok(false) => {}
                Err(failure) => self.fail(now, from.other(), failure),
            }
        }
        false
    }

    /// Reads and drops data of a refused direction; returns `true` if there was any.
    fn drop_refused(&mut self, now: Instant, from: LegSide, legs: &mut impl Legs) -> bool {
        match legs.discard(from) {
            LegStep::Moved(_) | LegStep::Drained(_) => {
                let until = *self.discarding_until.get_or_insert(now + HALF_CLOSED_TIMEOUT);
                if now >= until {
                    self.abort(ResetReason::Reset, legs);
                }
                return true;
            }
            LegStep::Blocked(_) | LegStep::End => {}
            LegStep::Failed(leg, failure) => self.fail(now, leg, failure),
        }
        false
    }

    /// Decides how a failed leg affects the connection.
    fn fail(&mut self, now: Instant, leg: LegSide, failure: LegFailure) {
        let to_leg = leg.other() as usize;
        match failure {
            LegFailure::Closed => self.from[to_leg] = DirectionState::Refused(ResetReason::Reset),
            // Its own data has ended in order, so only data for it is lost.
            LegFailure::Broken(reason) if self.is_passed(leg) => {
                self.from[to_leg] = DirectionState::Refused(reason);
            }
            // No data has come from the destination, so there is none to deliver first.
            LegFailure::Reset(reason) if self.is_early => self.phase = RelayPhase::Refused(reason),
            LegFailure::Broken(reason) | LegFailure::Reset(reason) => {
                self.begin_ending(LegEnding::after_failure(now, leg, reason));
            }
        }
    }

    /// Ends the carrying phase once both directions have ended.
    fn conclude(&mut self, now: Instant, legs: &mut impl Legs) {
        use DirectionState::{Passed, Refused};
        let gone = match self.from {
            [Passed, Passed] => {
                self.outcome = Some(RelayOutcome::Closed);
                return self.begin_delivery(now, [true; 2]);
            }
            // Neither side accepts data any more.
            [Refused(reason), Refused(_)] => return self.abort(reason, legs),
            [Refused(reason), Passed] => (LegSide::Server, reason),
            [Passed, Refused(reason)] => (LegSide::Client, reason),
            _ => return,
        };
        let (gone, reason) = gone;
        self.outcome = Some(RelayOutcome::Reset(reason));
        legs.reset(gone, reason);
        self.phase = RelayPhase::Discarding { leg: gone.other(), until: now + HALF_CLOSED_TIMEOUT };
    }

    fn discard(
        &mut self,
        now: Instant,
        legs: &mut impl Legs,
        leg: LegSide,
        until: Instant,
    ) -> Option<RelayProgress> {
        match legs.discard(leg) {
            LegStep::End => {
                // The other leg is gone already.
                let mut left = [false; 2];
                left[leg as usize] = true;
                self.begin_delivery(now, left);
                None
            }
            LegStep::Moved(_) | LegStep::Drained(_) | LegStep::Blocked(_) if now >= until => {
                // Everything was passed on to this leg, but a slow reader may not have it yet.
                self.begin_ending(LegEnding::of(now, leg, ResetReason::Reset));
                None
            }
            LegStep::Moved(_) => Some(RelayProgress::Busy),
            LegStep::Drained(_) | LegStep::Blocked(_) => Some(RelayProgress::Waiting),
            LegStep::Failed(..) => {
                self.abort(ResetReason::Reset, legs);
                None
            }
        }
    }

    fn begin_ending(&mut self, ending: LegEnding) {
        self.outcome.get_or_insert(RelayOutcome::Reset(ending.reason));
        self.phase = RelayPhase::Ending(ending);
    }

    fn end(&mut self, now: Instant, legs: &mut impl Legs) -> Option<RelayProgress> {
        let RelayPhase::Ending(ending) = &mut self.phase else { return None };
        match ending.handle(now, legs) {
            EndingStep::Busy => Some(RelayProgress::Busy),
            EndingStep::Waiting => Some(RelayProgress::Waiting),
            EndingStep::Over => {
                let reason = ending.reason;
                self.abort(reason, legs);
                None
            }
        }
    }

    fn begin_delivery(&mut self, now: Instant, legs: [bool; 2]) {
        self.phase = RelayPhase::Delivering { legs, look: now, pause: FIRST_POLL };
    }

    /// Keeps a leg until its peer has acknowledged everything: a kernel gives up a connection without a
    /// process if its peer keeps the window closed, and a slow reader would lose the end.
    fn deliver(&mut self, now: Instant, legs: &mut impl Legs) -> Option<RelayProgress> {
        let RelayPhase::Delivering { legs: left, look, pause } = &mut self.phase else {
            return None;
        };
        if now < *look {
            return Some(RelayProgress::Waiting);
        }
        for leg in LegSide::BOTH {
            if left[leg as usize] && legs.is_delivered(leg) {
                left[leg as usize] = false;
                legs.close(leg);
            }
        }
        if *left == [false; 2] {
            self.phase = RelayPhase::Over;
            return None;
        }
        *look = now + *pause;
        *pause = LAST_POLL.min(*pause * 2);
        Some(RelayProgress::Waiting)
    }
}

#[cfg(test)]
mod tests;
