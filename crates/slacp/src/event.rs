//! Events, notices and results that an endpoint returns to its owner; errors of commands, statistics,
//! and the log of a session's events.

pub(crate) mod errors;
pub(crate) mod log;
pub(crate) mod rate_state;
pub(crate) mod stats;

use std::net::SocketAddr;

use thiserror::Error;
use units::BitRate;

use crate::{Destination, DownReason, PublicKey, ResetReason, StreamId, StreamOpening};

/// An event of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session with the peer is established.
    Up {
        /// The peer's static key, which identifies it.
        peer: PublicKey,
        /// The peer's address at that time.
        address: SocketAddr,
    },
    /// The peer has stopped answering. Its streams are frozen but survive.
    Unreachable,
    /// The peer answers again, and its streams go on.
    Reachable,
    /// The peer has moved to another address.
    Moved {
        /// The validated address, in use from now on.
        address: SocketAddr,
    },
    /// More than three quarters of the bytes sent at the configured or reported rate have been lost
    /// for half a minute. The rate is lowered; see
    /// [`RateState::Tripped`](crate::RateState::Tripped).
    Tripped {
        /// The rate from now on.
        rate: BitRate,
        /// The configured or reported rate.
        instead_of: BitRate,
    },
    /// The configured or reported rate applies again.
    Restored {
        /// The configured or reported rate, now in use.
        rate: BitRate,
    },
    /// The configured or reported rate exceeds the link: a queue stands before it, and the excess
    /// is lost. [`SessionStats::overload`](crate::SessionStats::overload) has the figures while it lasts. The
    /// rate stays.
    RateExceedsLink {
        /// The configured or reported rate.
        rate: BitRate,
        /// The part of it that the link carries.
        carries: BitRate,
    },
    /// The configured or reported rate no longer exceeds the link.
    RateFitsLink,
    /// The measured capacity of the link has fallen, and stays low.
    CapacityFell {
        /// The usual capacity before the fall.
        from: BitRate,
        /// The capacity from now on.
        to: BitRate,
    },
    /// The peer takes no new streams and is about to stop: open those elsewhere. Existing streams
    /// go on for now. Reported once.
    Leaving,
    /// The peer is about to stop, and another process at its address takes new sessions. A terminal
    /// sets one up by itself ([`Event::Up`]), and may open streams on this session until then.
    /// Existing streams go on, and the owner closes this session after the last one. Reported once.
    Succeeded,
    /// The session is over, and so are its streams.
    Down(DownReason),
    /// The peer opened a stream.
    Opened {
        /// Identifier of the new stream.
        stream: StreamId,
        /// The destination of the stream. It is a host name only with [`Config::names`], a resolver
        /// only with [`Config::questions`], an exchange only with [`Config::exchanges`], and a
        /// bundle agent only with [`Config::bundles`].
        ///
        /// [`Config::names`]: crate::Config::names
        /// [`Config::questions`]: crate::Config::questions
        /// [`Config::exchanges`]: crate::Config::exchanges
        /// [`Config::bundles`]: crate::Config::bundles
        open: StreamOpening<Destination>,
    },
    /// The peer has connected the stream to its destination.
    Accepted(StreamId),
    /// The stream has data, or its end, to read.
    Readable(StreamId),
    /// The stream accepts data again.
    Writable(StreamId),
    /// The peer reset the stream, which no longer exists. In-order data received before the reset
    /// has been read, or was left unread for 30 s.
    Reset {
        /// Identifier of the former stream.
        stream: StreamId,
        /// The reason that the peer gave.
        reason: ResetReason,
    },
    /// The stream is complete and no longer exists: both directions have ended, all data is
    /// acknowledged, and [`ReadOutcome::End`] was read.
    Closed(StreamId),
}

/// An event that belongs to no session.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndpointNotice {
    /// The hub speaks other versions of the protocol. The terminal keeps trying in case the hub is
    /// upgraded.
    #[error("the hub speaks SLACP version {}; this terminal speaks {ours}", list(theirs))]
    OtherVersion {
        /// The version of this terminal.
        ours: u8,
        /// The versions of the hub.
        theirs: Vec<u8>,
    },
    /// A terminal that speaks another version of the protocol was refused. Each pair of address and
    /// version is reported at most once an hour, and at most 64 pairs an hour, because anyone who
    /// knows the hub's key can forge these messages.
    #[error("a terminal at {address} speaks SLACP version {theirs}; this hub speaks {ours}")]
    ForeignTerminal {
        /// Source of its message, which may be forged.
        address: SocketAddr,
        /// The version of this hub.
        ours: u8,
        /// The version of the terminal.
        theirs: u8,
    },
    /// A machine asks the hub for sessions and gets no answer. Each is reported at most once an
    /// hour, and at most 64 an hour, because anyone can forge these messages.
    #[error("{}", turned_away(address, key.as_ref()))]
    Stranger {
        /// Source of its message, which may be forged.
        address: SocketAddr,
        /// Its key, which is not permitted; `None` if its message is for another hub's key.
        key: Option<PublicKey>,
    },
    /// Two terminals use the same key, on two machines or as two processes of one. The hub keeps serving
    /// one and ignores the other, for twice as long with each notice, up to 5 minutes.
    #[error(
        "two terminals use the key {key:?}: the one at {served} is served, the one at {refused} \
         is refused"
    )]
    SharedKey {
        /// The key that both of them use.
        key: PublicKey,
        /// The address of the terminal that keeps its session.
        served: SocketAddr,
        /// The address of the terminal that is ignored.
        refused: SocketAddr,
    },
    /// The terminal requires a parameter that the hub does not know.
    #[error("the hub does not know parameter {parameter}, which this terminal requires")]
    Refused {
        /// Number of the parameter (`docs/slacp.md`, Parameters).
        parameter: u64,
    },
    /// The hub requires a parameter that this terminal does not know.
    #[error("the hub requires parameter {parameter}, which this terminal does not know")]
    Unsupported {
        /// Number of the parameter (`docs/slacp.md`, Parameters).
        parameter: u64,
    },
}

fn turned_away(address: &SocketAddr, key: Option<&PublicKey>) -> String {
    match key {
        Some(key) => format!("a terminal at {address} has the key {key:?}, which is not permitted"),
        None => format!("a terminal at {address} asks for a hub with another key"),
    }
}

/// The versions as text, separated by commas.
fn list(versions: &[u8]) -> String {
    versions.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

/// The result of reading from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The number of bytes read, at least one.
    Data(usize),
    /// No data yet; [`Event::Readable`] follows.
    Blocked,
    /// The peer has finished the stream.
    End,
}
