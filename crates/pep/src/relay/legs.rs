//! Interface between a relay and its driver: two legs that can be read, written and ended without blocking.

use slacp::ResetReason;
use tcp::AbortReason;

/// A leg of a split connection, named after the host that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LegSide {
    /// Towards the host that opened the connection.
    Client,
    /// Towards the host to which the client connects.
    Server,
}

impl LegSide {
    /// Both sides, the client's first.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The opposite side.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Result of moving data from one leg (the source) to the other (the sink).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegStep {
    /// This many bytes have moved, at least one; more may be possible at once.
    Moved(usize),
    /// This many bytes have moved, at least one, and now a leg is blocked as in [`Self::Blocked`].
    Drained(usize),
    /// This leg has no more data if it is the source, or no more room if it is the sink. The driver calls
    /// [`super::Relay::handle`] again when that changes.
    Blocked(LegSide),
    /// The source has ended, and everything before its end has moved.
    End,
    /// A leg has failed, the source or the sink.
    Failed(LegSide, LegFailure),
}

/// Reason why a leg can no longer be read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegFailure {
    /// The TCP peer has sent its FIN and then answered with a RST: it accepts no more data. What it
    /// sent before may still be unread (`EPIPE`).
    Closed,
    /// The TCP connection has failed, for the reason to give to the other side.
    Broken(ResetReason),
    /// The other gateway has reset the stream, or the session is lost.
    Reset(ResetReason),
}

impl LegFailure {
    /// The failure that corresponds to the end of a connection of `tcp`. `after_end` is `true` if the
    /// peer's data had ended before: Linux reports a RST after a FIN as `EPIPE`.
    pub const fn of_connection(abort: AbortReason, after_end: bool) -> Self {
        match abort {
            AbortReason::Refused => Self::Broken(ResetReason::Refused),
            AbortReason::TimedOut => Self::Broken(ResetReason::TimedOut),
            AbortReason::Unreachable => Self::Broken(ResetReason::Unreachable),
            _ if after_end => Self::Closed,
            _ => Self::Broken(ResetReason::Reset),
        }
    }
}

/// The two legs of a split connection: TCP connections, or streams of the hop. No call blocks.
pub trait Legs {
    /// Moves data from the leg `from` to the other one, as much as one connection may move before others
    /// are served.
    ///
    /// A driver may hold data that it has read and could not write, but must not read more before that is
    /// written: this is how back-pressure passes from leg to leg.
    fn pass(&mut self, from: LegSide) -> LegStep;

    /// Reads data from the leg `from` and drops it. After the end it returns [`LegStep::End`] every time.
    fn discard(&mut self, from: LegSide) -> LegStep;

    /// Ends the data sent on the leg `to`: a FIN, or the end of a stream. Returns `false` if that is not
    /// possible yet; the relay then tries again.
    ///
    /// # Errors
    /// The failure of the leg.
    fn finish(&mut self, to: LegSide) -> Result<bool, LegFailure>;

    /// Returns `true` if the peer has acknowledged everything sent on a leg whose directions have both
    /// ended. After the first such call, dropping the leg must close it, not reset it.
    fn is_delivered(&mut self, leg: LegSide) -> bool;

    /// Releases a leg whose directions have both ended.
    fn close(&mut self, leg: LegSide);

    /// Resets a leg at once: a RST, or the reset of a stream with this reason. Does nothing if the leg is
    /// already gone.
    fn reset(&mut self, leg: LegSide, reason: ResetReason);

    /// Number of bytes sent on a leg that its peer has not acknowledged.
    fn unacknowledged(&mut self, leg: LegSide) -> u64;

    /// Resets a leg once its peer has acknowledged everything sent on it, since a RST destroys data that
    /// has not arrived. Returns `false` if it is too early; the relay then tries again. A stream, which
    /// delivers its data before a reset, is reset at once.
    fn reset_after_data(&mut self, leg: LegSide, reason: ResetReason) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_after_the_end_of_the_data_is_a_closed_socket() {
        let broken = LegFailure::Broken;
        for (abort, after_end, expected) in [
            (AbortReason::Refused, false, broken(ResetReason::Refused)),
            (AbortReason::TimedOut, false, broken(ResetReason::TimedOut)),
            (AbortReason::TimedOut, true, broken(ResetReason::TimedOut)),
            (AbortReason::Unreachable, false, broken(ResetReason::Unreachable)),
            (AbortReason::Reset, false, broken(ResetReason::Reset)),
            (AbortReason::Reset, true, LegFailure::Closed),
        ] {
            let failure = LegFailure::of_connection(abort, after_end);
            assert_eq!(failure, expected, "{abort:?} {after_end}");
        }
    }
}
