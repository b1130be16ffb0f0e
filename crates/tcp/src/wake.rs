//! The reasons for which a connection is woken.

/// The timer that expires at [`units::Machine::poll_timeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerKind {
    /// A retransmission time-out (RFC 6298).
    Retransmission,
    /// A tail loss probe (RFC 8985 §7).
    TailProbe,
    /// A segment is late enough to be lost (RFC 8985 §6).
    Reordering,
    /// A probe of a window that is closed or too small (RFC 9293 §3.8.6.1).
    WindowProbe,
    /// The pacer allows the next segment.
    Pacing,
    /// A delayed acknowledgement must leave.
    DelayedAck,
    /// A probe of an idle connection.
    Keepalive,
    /// TIME-WAIT ends (RFC 9293 §3.6.1).
    TimeWait,
    /// A reset is sent again.
    Reset,
    /// The peer has been silent for too long.
    UserTimeout,
}
