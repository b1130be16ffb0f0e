//! Repetitions of a reset. Resets are not acknowledged: a peer that misses one finds out only by
//! its keepalive probes, by default hours later.

use core::time::Duration;

use units::Instant;

/// Number of repetitions. Their pauses double, so the last one comes 15 retransmission time-outs after
/// the first reset.
const REPETITIONS: u32 = 4;
/// Maximum pause: firewalls and NATs on the way forget a connection soon after its reset, and then drop
/// further packets (Linux after 10 s: `nf_conntrack_tcp_timeout_close`).
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The schedule of a reset's repetitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResetRepeats {
    at: Instant,
    pause: Duration,
    left: u32,
}

impl ResetRepeats {
    /// The repetitions of a reset sent `now`, with the first one after `rto`.
    pub(super) fn new(now: Instant, rto: Duration) -> Self {
        let pause = rto.min(LONGEST_PAUSE);
        Self { at: now + pause, pause, left: REPETITIONS }
    }

    /// Returns the time of the next repetition.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// Returns the repetitions after one at `now`; `None` after the last.
    pub(super) fn next(self, now: Instant) -> Option<Self> {
        let pause = LONGEST_PAUSE.min(self.pause * 2);
        let left = self.left.checked_sub(1).filter(|left| *left > 0)?;
        Some(Self { at: now + pause, pause, left })
    }
}
