//! Reasons for the end of streams and sessions, and announcements of it.

/// The reason for which a stream was reset. Sent to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ResetReason {
    /// The TCP connection was reset.
    Reset,
    /// The destination refused the connection.
    Refused,
    /// No route to the destination.
    Unreachable,
    /// The destination did not answer in time.
    TimedOut,
    /// A gateway's connection limit was reached.
    Limit,
    /// A gateway's policy forbids the connection.
    Prohibited,
    /// The session ended, and its streams with it.
    SessionLost,
}

/// The reason for which a side closes a session. Sent to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseReason {
    /// The gateway is stopping, possibly to restart.
    Shutdown,
    /// The other side broke the protocol.
    Violation,
    /// The peer is no longer served.
    Prohibited,
}

/// The reason for which a session ended, as reported to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// This side closed the session.
    Closed(CloseReason),
    /// The peer closed the session.
    ClosedByPeer(CloseReason),
    /// The peer was unreachable for longer than [`Config::give_up`](crate::Config::give_up).
    GivenUp,
    /// The peer set up a new session because it had lost this one.
    Replaced,
    /// The peer broke the protocol.
    Violation,
}

impl core::fmt::Display for DownReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "closed here",
            Self::ClosedByPeer(CloseReason::Shutdown) => "the other side is stopping",
            Self::ClosedByPeer(CloseReason::Violation) => {
                "the other side reports a protocol violation"
            }
            Self::ClosedByPeer(CloseReason::Prohibited) => {
                "the other side no longer serves this gateway"
            }
            Self::GivenUp => "the other side has been silent for too long",
            Self::Replaced => "the other side had lost the session",
            Self::Violation => "the other side violated the protocol",
        })
    }
}

/// The announcement of a side that it is about to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopAnnouncement {
    /// The side takes no new streams.
    Leaving,
    /// Another process at its address takes new sessions, and new streams with them. Peers that do
    /// not understand this get [`Self::Leaving`].
    Successor,
}
