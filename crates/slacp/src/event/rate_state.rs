//! A session's knowledge of its rate and its path, as reported to the owner.

use core::time::Duration;

use units::BitRate;

/// Source and certainty of a session's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RateState {
    /// The rate is configured or reported by the modem.
    #[default]
    Configured,
    /// The rate is measured, and nothing is known yet.
    Blind,
    /// A rate was observed and is being confirmed.
    Confirming,
    /// A remembered rate is being confirmed.
    Resuming,
    /// The rate is known and tracked.
    Cruising,
    /// The rate is lowered to empty a queue.
    Draining,
    /// The configured or reported rate has lost more than three quarters of the packets for half a
    /// minute. The rate is lowered to what was delivered; the higher one is tried now and then.
    Tripped,
}

/// A configured or reported rate that exceeds the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overload {
    /// The configured or reported rate.
    pub rate: BitRate,
    /// The rate that the link carries of it.
    pub carries: BitRate,
    /// Share of the bytes that are lost, 0 to 1.
    pub loss: f64,
    /// Smoothed round-trip time of the session at the last verdict.
    pub rtt: Duration,
    /// The shortest smoothed round-trip time so far.
    pub base_rtt: Duration,
}

/// State of ECN on the path from this side to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EcnState {
    /// Not used: the rate is not measured, or one of the sides does not know ECN.
    #[default]
    Off,
    /// A few packets have ECT(0), to test the path.
    Testing,
    /// The path carries ECT(0), and all packets with data have it.
    Capable,
    /// The path clears the codepoint or loses such packets, or the peer's counts are wrong. No
    /// packet of this session has ECT(0) any more.
    Failed,
}
