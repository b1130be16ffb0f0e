//! Why a connection wants to be woken.

/// What is due when a connection's time comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// A retransmission time-out (RFC 6298).
    Retransmission,
    /// A tail loss probe (RFC 8985 §7).
    TailProbe,
    /// A segment is late enough to be lost (RFC 8985 §6).
    Reordering,
    /// A probe of a window that is closed or too small (RFC 9293 §3.8.6.1).
    WindowProbe,
    /// The next segment may leave.
    Pacing,
    /// A delayed acknowledgement.
    DelayedAck,
    /// A probe of an idle connection.
    Keepalive,
    /// The end of TIME-WAIT.
    TimeWait,
    /// A reset is sent again.
    Reset,
    /// The peer has been silent for too long.
    UserTimeout,
}
