//! What the owner of an endpoint says to it and hears from it.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use thiserror::Error;
use units::ByteCount;

use crate::channels::{ChannelConfig, ChannelId, ConfigError, MAX_DEADLINE};
use crate::phases::KeyLimits;
use crate::scheduler::{ClassConfig, ClassId, MAX_CLASSES};
use crate::{Destination, Open, Rate};

/// The settings of one side of the hop.
#[derive(Debug, Clone)]
pub struct Config {
    /// The rate of this side's link, or who knows it; what this side sends never
    /// exceeds it.
    pub rate: Rate,
    /// The size of the largest IP packet to be sent. What the path really
    /// carries is found out, from 576 bytes up to this. Default 1500 bytes.
    pub mtu: u16,
    /// The most bytes one session holds for its streams in each direction:
    /// sent and not acknowledged, or received and not read. At most five times that are
    /// held in all ([`Stats::held`](crate::Stats::held)). Default 256 MB.
    pub memory: ByteCount,
    /// The most of them that one stream holds. Below rate × RTT the stream
    /// cannot fill the link; with losses, which hold up what came after them,
    /// it takes four times as much. Default 64 MB.
    pub stream_window: ByteCount,
    /// The most streams that the peer may have open. Default 65,536.
    pub max_streams: u32,
    /// Whether this side resolves names, so that the peer may open streams to them.
    /// Default false.
    pub names: bool,
    /// A session that has been idle this long, or up to an eighth longer, sends a packet
    /// to keep address translators and the peer informed. Default 15 s, the shortest
    /// that RFC 8085 §3.5 allows by default.
    pub keepalive: Duration,
    /// A peer that has been unreachable for this long is given up, and its
    /// streams with it. Default 15 min: a fade is not an end.
    pub give_up: Duration,
    /// A hub that gets more handshakes in a second has further terminals prove
    /// their addresses first, which costs them a round trip and strangers a
    /// true address. A handshake costs the hub two Diffie–Hellman operations.
    /// Default 100; 0 asks for the proof always.
    pub handshakes_per_second: u32,
    /// A terminal has the keys of its session renewed after this time.
    /// Shorter means that less can be read by who takes a gateway's memory, and
    /// two more packets each way. Default 2 min.
    pub rekey_after: Duration,
    /// The same after so many packets in both directions. Default 2²². Whatever is set
    /// here, either side ends a session of which one key has sealed 2²³.
    pub rekey_packets: u64,
    /// Whether this machine computes AES-256-GCM fast; if both sides do, it seals
    /// their packets, ChaCha20-Poly1305 otherwise. Default false.
    pub aes: bool,
    /// How many events each session notes for [`Endpoint::poll_log`], at most;
    /// the oldest give way. Default 0: none, at no cost.
    ///
    /// [`Endpoint::poll_log`]: crate::Endpoint::poll_log
    pub event_log: usize,
    pub(crate) key_limits: KeyLimits,
    /// At least one; see [`Config::add_class`].
    pub(crate) classes: Vec<ClassConfig>,
    pub(crate) channels: BTreeMap<ChannelId, ChannelConfig>,
}

impl Config {
    /// The defaults for a link of `rate`.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Self {
            rate: rate.into(),
            mtu: 1500,
            memory: ByteCount::new(256_000_000),
            stream_window: ByteCount::new(64_000_000),
            max_streams: 65_536,
            names: false,
            keepalive: Duration::from_secs(15),
            give_up: Duration::from_secs(900),
            handshakes_per_second: 100,
            rekey_after: Duration::from_secs(120),
            rekey_packets: 1 << 22,
            aes: false,
            event_log: 0,
            key_limits: KeyLimits::default(),
            classes: vec![ClassConfig::default()],
            channels: BTreeMap::new(),
        }
    }

    /// Sets what [`ClassId::DEFAULT`] gets.
    ///
    /// # Errors
    /// [`ConfigError::Weight`], [`ConfigError::NoRate`].
    pub fn set_default_class(&mut self, class: ClassConfig) -> Result<(), ConfigError> {
        self.classes[0] = class.checked()?;
        Ok(())
    }

    /// Adds a class of traffic to those that share a session's rate.
    ///
    /// # Errors
    /// [`ConfigError::Weight`], [`ConfigError::NoRate`],
    /// [`ConfigError::TooManyClasses`].
    pub fn add_class(&mut self, class: ClassConfig) -> Result<ClassId, ConfigError> {
        let id = self.classes.len();
        if id >= MAX_CLASSES {
            return Err(ConfigError::TooManyClasses { most: MAX_CLASSES });
        }
        self.classes.push(class.checked()?);
        Ok(ClassId(id as u8))
    }

    /// Adds a packet channel, or replaces the one with this number. What comes
    /// on channels that this side does not have is dropped.
    ///
    /// # Errors
    /// [`ConfigError::NoClass`], [`ConfigError::Deadline`].
    pub fn add_channel(
        &mut self,
        channel: ChannelId,
        config: ChannelConfig,
    ) -> Result<(), ConfigError> {
        let (class, classes) = (config.class, self.classes.len());
        if usize::from(class.0) >= classes {
            return Err(ConfigError::NoClass { channel, class, classes });
        }
        if config.deadline > MAX_DEADLINE {
            return Err(ConfigError::Deadline { channel, deadline: config.deadline });
        }
        self.channels.insert(channel, config);
        Ok(())
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

/// Why a side ends a session. Carried to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CloseReason {
    /// The gateway stops, perhaps to start again.
    Shutdown,
    /// The other side broke the protocol.
    Violation,
    /// The other side is not to be served any more.
    Prohibited,
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// This side closed it.
    Closed(CloseReason),
    /// The peer closed it.
    ClosedByPeer(CloseReason),
    /// The peer has been unreachable for too long.
    GivenUp,
    /// The peer has set up another: it had lost this one.
    Replaced,
    /// The peer broke the protocol.
    Violation,
}

impl core::fmt::Display for DownReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "closed here",
            Self::ClosedByPeer(CloseReason::Shutdown) => "the other side stops",
            Self::ClosedByPeer(CloseReason::Violation) => {
                "the other side says we broke the protocol"
            }
            Self::ClosedByPeer(CloseReason::Prohibited) => "the other side serves us no more",
            Self::GivenUp => "the other side has been silent for too long",
            Self::Replaced => "the other side had lost it",
            Self::Violation => "the other side broke the protocol",
        })
    }
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
    /// The peer is reached at another address from now on.
    Moved {
        /// The new address.
        address: SocketAddr,
    },
    /// The session is over, and all its streams with it.
    Down(DownReason),
    /// The peer opened a stream.
    Opened {
        /// The new stream.
        stream: StreamId,
        /// What it is for. The destination is a name only with [`Config::names`].
        open: Open<Destination>,
    },
    /// The peer has connected the stream to its destination.
    Accepted(StreamId),
    /// The stream has bytes, or its end, to read.
    Readable(StreamId),
    /// The stream takes bytes again.
    Writable(StreamId),
    /// The peer reset the stream; it is forgotten. What had come of it in order
    /// was read before, or was not read within 30 s.
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

/// What an endpoint tells its owner that belongs to no session.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Notice {
    /// The hub speaks other versions of the protocol. The terminal keeps
    /// asking: the hub may be given another version.
    #[error("the hub speaks SLACP version {}; this terminal speaks {ours}", list(theirs))]
    OtherVersion {
        /// Ours.
        ours: u8,
        /// The hub's.
        theirs: Vec<u8>,
    },
    /// A terminal speaks another version of the protocol and was refused. An
    /// address and version is reported once an hour, and no more than 64 an hour:
    /// whoever knows the hub's key may invent them.
    #[error("a terminal at {address} speaks SLACP version {theirs}; this hub speaks {ours}")]
    ForeignTerminal {
        /// Where its message came from.
        address: SocketAddr,
        /// Ours.
        ours: u8,
        /// The terminal's.
        theirs: u8,
    },
    /// Two machines use one key. The hub goes on serving one of them, and holds the
    /// other off for longer each time this is told, up to 5 minutes.
    #[error(
        "two machines use the key {key:?}: the one at {served} is served, the one at {refused} \
         is refused"
    )]
    SharedKey {
        /// Their key.
        key: PublicKey,
        /// Where the one is whose session stays.
        served: SocketAddr,
        /// Where the other one is.
        refused: SocketAddr,
    },
    /// The hub does not know a parameter that this terminal insists on.
    #[error("the hub does not know parameter {parameter}, on which this terminal insists")]
    Refused {
        /// Its name.
        parameter: u64,
    },
    /// The hub insists on a parameter that this terminal does not know.
    #[error("the hub insists on parameter {parameter}, which this terminal does not know")]
    Unsupported {
        /// Its name.
        parameter: u64,
    },
}

/// Numbers as in a sentence.
fn list(versions: &[u8]) -> String {
    versions.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

/// What an endpoint remembers: what it costs in memory besides what each session
/// holds ([`Stats::held`](crate::Stats::held)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Sessions.
    pub sessions: usize,
    /// Handshakes under way: at most one for each terminal that is allowed.
    pub handshakes: usize,
    /// Handshake datagrams that wait for the link: at most 2,048.
    pub waiting: usize,
}

/// What datagrams from before any session have cost a hub, whoever sent them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// HMACs: knocks and cookies that were checked, answers that were sealed.
    pub hashes: u64,
    /// Initiations that were read, each for two Diffie–Hellman operations, which cost
    /// far more than a hash.
    pub handshakes: u64,
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
    /// The streams there are leave less memory than a new one needs: 64 kB of the
    /// default memory, here or at the peer.
    #[error("the streams of the session leave no memory for another")]
    NoRoom,
    /// The peer resolves no names.
    #[error("the peer resolves no names")]
    NoNames,
    /// The configuration has no such class.
    #[error("no such class")]
    NoClass,
}
