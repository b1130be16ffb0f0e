//! What the owner of an endpoint says to it and hears from it.

use core::time::Duration;
use std::net::SocketAddr;

use thiserror::Error;
use units::{BitRate, ByteCount};

/// The settings of one side of the hop.
#[derive(Debug, Clone)]
pub struct Config {
    /// The rate of this side's link, in bits of IP packets per second; what
    /// this side sends never exceeds it.
    pub rate: BitRate,
    /// The size of the largest IP packet that crosses the hop whole. Default
    /// 1500 bytes.
    pub mtu: u16,
    /// The most bytes one session holds for its streams in each direction:
    /// sent and not acknowledged, or received and not read. Default 64 MB.
    pub memory: ByteCount,
    /// The most of them that one stream holds. Below rate × RTT the stream
    /// cannot fill the link. Default 16 MB.
    pub stream_window: ByteCount,
    /// The most streams that the peer may have open. Default 65,536.
    pub max_streams: u32,
    /// A session that has been idle this long sends a packet to keep address
    /// translators and the peer informed. Default 10 s.
    pub keepalive: Duration,
    /// A peer that has not been heard for this long is given up, and its
    /// streams with it. Default 15 min: a fade is not an end.
    pub give_up: Duration,
}

impl Config {
    /// The defaults for a link of `rate`.
    pub fn new(rate: BitRate) -> Self {
        Self {
            rate,
            mtu: 1500,
            memory: ByteCount::new(64_000_000),
            stream_window: ByteCount::new(16_000_000),
            max_streams: 65_536,
            keepalive: Duration::from_secs(10),
            give_up: Duration::from_secs(900),
        }
    }
}

/// Names a session of an endpoint; never reused by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) u64);

/// Names a stream of a session; never reused by it. Even identifiers are opened
/// by the terminal, odd ones by the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// A Curve25519 public key: the name of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl core::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…")
    }
}

/// What a new stream is for: the TCP connection it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Where the accepting side is to connect to.
    pub destination: SocketAddr,
    /// Who connected to the opening side.
    pub source: SocketAddr,
}

/// Why a stream ended before its time. Carried to the other side.
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
    /// A gateway has no room for another connection.
    Limit,
    /// A gateway's policy forbids the connection.
    Prohibited,
    /// The session was lost, and the stream with it.
    SessionLost,
}

/// What an endpoint tells its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session with this peer is established.
    Up {
        /// The peer's static key.
        peer: PublicKey,
        /// Its present address.
        address: SocketAddr,
    },
    /// The peer has stopped answering. Streams are frozen, none is lost.
    Unreachable,
    /// The peer answers again.
    Reachable,
    /// The session is over, and all its streams with it.
    Down,
    /// The peer opened a stream.
    Opened {
        /// The new stream.
        stream: StreamId,
        /// What it is for.
        open: Open,
    },
    /// The peer has connected the stream to its destination.
    Accepted(StreamId),
    /// The stream has bytes, or its end, to read.
    Readable(StreamId),
    /// The stream takes bytes again.
    Writable(StreamId),
    /// The peer reset the stream; it is forgotten.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why.
        reason: ResetReason,
    },
    /// Both directions have ended, all is acknowledged, and [`Read::End`] was
    /// read; the stream is forgotten.
    Closed(StreamId),
}

/// What reading from a stream gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes, at least one.
    Data(usize),
    /// Nothing yet; [`Event::Readable`] follows.
    Blocked,
    /// The peer has finished; nothing more comes.
    End,
}

/// Why a stream cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no such session, or it is over.
    #[error("no such session")]
    NoSession,
    /// There is no such stream: it never was, or it was reset or closed.
    #[error("no such stream")]
    NoStream,
    /// This side has finished the stream already.
    #[error("the stream is already finished")]
    Finished,
    /// The peer allows no further stream.
    #[error("the peer allows no more than {limit} streams")]
    TooMany {
        /// The peer's limit.
        limit: u32,
    },
}
