//! The types an owner of an endpoint configures it with and receives from it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use thiserror::Error;
use units::{BitRate, ByteCount};

use crate::channels::{ChannelConfig, ChannelId, ConfigError, MAX_DEADLINE};
use crate::keys::phases::KeyLimits;
use crate::scheduler::{ClassConfig, ClassId, MAX_CLASSES};
use crate::{Destination, IndexShare, Law, Open, Rate};

/// The settings of this side of the hop.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the sending rate of this side comes from. Nothing is sent faster.
    pub rate: Rate,
    /// How a measured rate is held. The defaults suit every link; others are for studies.
    pub law: Law,
    /// With a measured rate: the share of the bytes sent to a peer that padding may take, 0 to 1,
    /// besides two measurements in advance: 800 kB, or twice what the first took if that is more.
    /// Counted over all sessions of the peer with this endpoint, as IP packets of whole trains. A
    /// larger share measures more of the paths that come and go; with a smaller one, their first
    /// data does it. Default 0.02.
    pub padding_share: f64,
    /// What may leave at once at most, for links whose policer drops longer bursts; the packets that
    /// measure a path are excepted. Default: whatever the rate sends in 4 ms.
    pub burst: Option<ByteCount>,
    /// The largest IP packet to send, in bytes. Path MTU discovery searches from 576 bytes up to
    /// this. Default 1500.
    pub mtu: u16,
    /// Memory of one session for stream data, per direction: sent but not acknowledged, or received
    /// but not read. All its buffers together take at most five times this
    /// ([`Stats::held`](crate::Stats::held)). Default 256 MB.
    pub memory: ByteCount,
    /// Maximum share of [`Self::memory`] for one stream. A window below rate × RTT cannot fill the
    /// link; with losses, which block the data behind them, a stream needs four times as much.
    /// Default 64 MB.
    pub stream_window: ByteCount,
    /// Maximum number of streams the peer may have open. Default 65,536.
    pub max_streams: u32,
    /// Whether this side resolves names, so that the peer may open streams to host names. Default
    /// false.
    pub names: bool,
    /// Whether this side answers DNS questions, so that the peer may open streams to its resolver.
    /// Default false.
    pub questions: bool,
    /// Whether this side understands HTTP exchanges, so that the peer may open streams to them. Default
    /// false.
    pub exchanges: bool,
    /// Whether this side takes bundles, so that the peer may open streams to its bundle agent. Default
    /// false.
    pub bundles: bool,
    /// How many compressed streams of a peer the owner decompresses at a time
    /// ([`Endpoint::is_compressed`](crate::Endpoint::is_compressed)). Default 0: the peer opens none.
    pub decompressors: u16,
    /// A session idle for this long, or up to an eighth longer, sends a packet to keep address
    /// translators and the peer informed. Default 15 s, the shortest default that RFC 8085 §3.5
    /// allows.
    pub keepalive: Duration,
    /// A peer unreachable for this long is given up, along with its streams. Default 15 min,
    /// because a fade must not end a session.
    pub give_up: Duration,
    /// Above this many handshakes per second, a hub makes further terminals prove their addresses
    /// with a cookie. The cookie costs a terminal one round trip and keeps out forged addresses;
    /// each handshake costs the hub two Diffie–Hellman operations. Default 100; 0 always asks for
    /// the cookie.
    pub handshakes_per_second: u32,
    /// The hub's share of the indices by which packets find their sessions, if several hubs with one
    /// key are behind one address. Default [`IndexShare::WHOLE`].
    pub index_share: IndexShare,
    /// A terminal renews its session keys after this time. A shorter time limits how much traffic a
    /// stolen key reveals; each renewal costs two packets each way. Default 2 min.
    pub rekey_after: Duration,
    /// A terminal also renews its session keys after this many packets, both directions together.
    /// Default 2²². Regardless of this setting, either side ends a session in which one key has
    /// sealed 2²³ packets.
    pub rekey_packets: u64,
    /// Whether this machine computes AES-256-GCM fast. If both sides do, they use it; otherwise
    /// they use ChaCha20-Poly1305. Default false.
    pub aes: bool,
    /// Whether the ECN codepoints of datagrams are read and set: the driver passes received ones to
    /// [`Endpoint::handle_datagram_with_ecn`] and sends each datagram with that of
    /// [`Endpoint::transmit_ecn`]. With a measured rate, the path can then signal congestion without
    /// losing packets. Default true; a driver that does neither costs ten test packets.
    ///
    /// [`Endpoint::handle_datagram_with_ecn`]: crate::Endpoint::handle_datagram_with_ecn
    /// [`Endpoint::transmit_ecn`]: crate::Endpoint::transmit_ecn
    pub ecn: bool,
    /// Whether SLACP runs as a link layer: one link joins the two sides, carries packets of
    /// [`Self::mtu`], and keeps their order, except that control ([`Endpoint::transmit_is_control`])
    /// may overtake new data. Both sides must set it. Then a gap is a loss: it is reported at once
    /// and repaired at once; only retransmissions and reports of losses are protected by FEC; and
    /// the receiver of a packet channel hears of each packet that is given up. On a path that
    /// reorders packets, this wastes its rate on false losses. Default false.
    ///
    /// [`Endpoint::transmit_is_control`]: crate::Endpoint::transmit_is_control
    pub link_layer: bool,
    /// Whether a link with capacity on demand is asked for what waits ([`ClassStats::waiting`]). Then the
    /// streams hold two seconds of the rate unsent, instead of 50 ms: capacity that is asked for comes
    /// more than a round trip later, and what has not been written by then is not asked for. Default
    /// false.
    ///
    /// [`ClassStats::waiting`]: crate::ClassStats::waiting
    pub on_demand: bool,
    /// Capacity of each session's event log ([`Endpoint::poll_log`]); the oldest events are
    /// overwritten. Default 0: logging is off and free.
    ///
    /// [`Endpoint::poll_log`]: crate::Endpoint::poll_log
    pub event_log: usize,
    /// This side's rate on each link of a session, by the number that both sides give the link; at
    /// most [`MOST_LINKS`]. If both sides have two or more, a session uses all links that both have,
    /// and [`Self::rate`] is not used. A terminal has a socket for each
    /// ([`Endpoint::transmit_link`]). A rate is that of the session alone: it is not shared with
    /// others. Each link takes memory of its own for what is in flight. Default none.
    ///
    /// [`Endpoint::transmit_link`]: crate::Endpoint::transmit_link
    pub links: Vec<Rate>,
    pub(crate) key_limits: KeyLimits,
    /// Never empty; see [`Config::add_class`].
    pub(crate) classes: Vec<ClassConfig>,
    pub(crate) channels: BTreeMap<ChannelId, ChannelConfig>,
}

impl Config {
    /// The defaults for a link of `rate`.
    pub fn new(rate: impl Into<Rate>) -> Self {
        Self {
            rate: rate.into(),
            law: Law::default(),
            padding_share: 0.02,
            burst: None,
            mtu: 1500,
            memory: ByteCount::new(256_000_000),
            stream_window: ByteCount::new(64_000_000),
            max_streams: 65_536,
            names: false,
            questions: false,
            exchanges: false,
            bundles: false,
            decompressors: 0,
            keepalive: Duration::from_secs(15),
            give_up: Duration::from_secs(900),
            handshakes_per_second: 100,
            index_share: IndexShare::WHOLE,
            rekey_after: Duration::from_secs(120),
            rekey_packets: 1 << 22,
            aes: false,
            ecn: true,
            link_layer: false,
            on_demand: false,
            event_log: 0,
            links: Vec::new(),
            key_limits: KeyLimits::default(),
            classes: vec![ClassConfig::default()],
            channels: BTreeMap::new(),
        }
    }

    /// Sets the share of [`ClassId::DEFAULT`].
    ///
    /// # Errors
    /// [`ConfigError::Weight`], [`ConfigError::NoRate`].
    pub fn set_default_class(&mut self, class: ClassConfig) -> Result<(), ConfigError> {
        self.classes[0] = class.checked()?;
        Ok(())
    }

    /// Adds a traffic class that competes for the session's rate.
    ///
    /// # Errors
    /// [`ConfigError::Weight`], [`ConfigError::NoRate`], [`ConfigError::TooManyClasses`].
    pub fn add_class(&mut self, class: ClassConfig) -> Result<ClassId, ConfigError> {
        let id = self.classes.len();
        if id >= MAX_CLASSES {
            return Err(ConfigError::TooManyClasses { most: MAX_CLASSES });
        }
        self.classes.push(class.checked()?);
        Ok(ClassId(id as u8))
    }

    /// Adds or replaces a packet channel. Packets for channels that this side has not added are
    /// dropped.
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

/// Another process at a hub's address, which carries the sessions that it has until they end. What
/// belongs to them does not come here, or not for long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sibling {
    /// From which its indices are.
    pub indices: IndexShare,
    /// The names of its sessions ([`Endpoint::names`](crate::Endpoint::names)).
    pub sessions: BTreeSet<u64>,
}

/// How a side announces that it is about to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Farewell {
    /// It takes no new streams.
    Leaving,
    /// Another process at its address takes new sessions, and new streams with them. A peer that does
    /// not understand this hears [`Self::Leaving`].
    Successor,
}

/// How a terminal was last heard, so that another process can call it in the hub's place
/// ([`Endpoint::call`](crate::Endpoint::call)). Not secret, but whoever has it and the hub's public key
/// can make the terminal ask the hub, once every 5 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// The terminal's address.
    pub address: SocketAddr,
    /// The index that its packets carry.
    pub index: u32,
    /// The number of its last packet.
    pub number: u64,
}

/// Maximum number of links of a session.
pub const MOST_LINKS: usize = 4;

/// Identifies a session of an endpoint. The endpoint never reuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) u64);

/// Identifies a stream of a session. The session never reuses it. The terminal opens even
/// identifiers, the hub odd ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// A Curve25519 public key, which identifies a gateway.
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

/// Why a stream was reset. Sent to the peer.
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

/// Why a side closes a session. Sent to the peer.
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

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DownReason {
    /// This side closed it.
    Closed(CloseReason),
    /// The peer closed it.
    ClosedByPeer(CloseReason),
    /// The peer was unreachable for longer than [`Config::give_up`].
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
                "the other side no longer serves this \
                                                            one"
            }
            Self::GivenUp => "the other side has been silent for too long",
            Self::Replaced => "the other side had lost the session",
            Self::Violation => "the other side violated the protocol",
        })
    }
}

/// An event of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A session with the peer is established.
    Up {
        /// The peer's static key.
        peer: PublicKey,
        /// The peer's current address.
        address: SocketAddr,
    },
    /// The peer has stopped answering. Its streams are frozen but survive.
    Unreachable,
    /// The peer answers again.
    Reachable,
    /// The peer has moved to another address.
    Moved {
        /// The new address.
        address: SocketAddr,
    },
    /// Most of what was sent at the configured or reported rate has been lost for half a minute. The
    /// rate is lowered; see [`RateState::Tripped`](crate::RateState::Tripped).
    Tripped {
        /// The rate from now on.
        rate: BitRate,
        /// The configured or reported rate.
        instead_of: BitRate,
    },
    /// The configured or reported rate applies again.
    Restored {
        /// This rate.
        rate: BitRate,
    },
    /// The configured or reported rate exceeds the link: a queue stands before it, and what does not fit
    /// is lost. [`Stats::overload`](crate::Stats::overload) has the figures while it lasts. The rate
    /// stays.
    RateExceedsLink {
        /// The configured or reported rate.
        rate: BitRate,
        /// What the link carries of it.
        carries: BitRate,
    },
    /// The configured or reported rate no longer exceeds the link.
    RateFitsLink,
    /// The measured capacity of the link has fallen, and stays low.
    CapacityFell {
        /// What was usual before.
        from: BitRate,
        /// The capacity now.
        to: BitRate,
    },
    /// The peer takes no new streams, and is about to stop: open those elsewhere. Existing streams go
    /// on for now. Reported once.
    Leaving,
    /// The peer is about to stop, and another process at its address takes new sessions. A terminal sets
    /// one up by itself ([`Event::Up`]), and may open streams here until it has it. Existing streams go
    /// on, and the owner closes this session after the last one. Reported once.
    Succeeded,
    /// The session is over, and so are its streams.
    Down(DownReason),
    /// The peer opened a stream.
    Opened {
        /// The new stream.
        stream: StreamId,
        /// Where the stream leads. The destination is a host name only with [`Config::names`], a
        /// resolver only with [`Config::questions`], an exchange only with [`Config::exchanges`], and a
        /// bundle agent only with [`Config::bundles`].
        open: Open<Destination>,
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
        /// The stream.
        stream: StreamId,
        /// Why.
        reason: ResetReason,
    },
    /// The stream is complete and no longer exists: both directions have ended, all data is
    /// acknowledged, and [`Read::End`] was read.
    Closed(StreamId),
}

/// An event that belongs to no session.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Notice {
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
        /// Where its message came from.
        address: SocketAddr,
        /// The version of this hub.
        ours: u8,
        /// The version of the terminal.
        theirs: u8,
    },
    /// A machine asks the hub for sessions and is not answered. Each is reported at most once an hour,
    /// and at most 64 an hour, because anyone can forge these messages.
    #[error("{}", turned_away(address, key.as_ref()))]
    Stranger {
        /// Where its message came from.
        address: SocketAddr,
        /// Its key, which is not permitted; `None` if its message is for another hub's key.
        key: Option<PublicKey>,
    },
    /// Two machines use the same key. The hub keeps serving one and holds the other off, for twice
    /// as long with each notice, up to 5 minutes.
    #[error(
        "two machines use the key {key:?}: the one at {served} is served, the one at {refused} \
         is refused"
    )]
    SharedKey {
        /// Their key.
        key: PublicKey,
        /// The address of the machine that keeps its session.
        served: SocketAddr,
        /// The address of the machine that is held off.
        refused: SocketAddr,
    },
    /// The terminal requires a parameter that the hub does not know.
    #[error("the hub does not know parameter {parameter}, which this terminal requires")]
    Refused {
        /// The parameter's number.
        parameter: u64,
    },
    /// The hub requires a parameter that this terminal does not know.
    #[error("the hub requires parameter {parameter}, which this terminal does not know")]
    Unsupported {
        /// The parameter's number.
        parameter: u64,
    },
}

fn turned_away(address: &SocketAddr, key: Option<&PublicKey>) -> String {
    match key {
        Some(key) => format!("a terminal at {address} has the key {key:?}, which is not permitted"),
        None => format!("a terminal at {address} asks for a hub with another key"),
    }
}

/// Lists versions for a sentence.
fn list(versions: &[u8]) -> String {
    versions.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

/// The size of an endpoint's state, beyond the memory of its sessions
/// ([`Stats::held`](crate::Stats::held)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Number of sessions.
    pub sessions: usize,
    /// Handshakes in progress, at most one for each allowed terminal.
    pub handshakes: usize,
    /// Handshake datagrams queued for the link, at most 2,048.
    pub waiting: usize,
}

/// What a hub has spent on handshake datagrams, including forged ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// HMACs computed to check knocks and cookies and to seal answers.
    pub hashes: u64,
    /// Initiations decrypted. Each takes two Diffie–Hellman operations, which cost far more than a
    /// hash.
    pub handshakes: u64,
}

/// The result of reading from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The number of bytes read, at least one.
    Data(usize),
    /// No data yet; [`Event::Readable`] follows.
    Blocked,
    /// The peer has finished the stream.
    End,
}

/// Why an operation on a stream failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The session does not exist or is over.
    #[error("no such session")]
    NoSession,
    /// The stream does not exist, or was reset or closed.
    #[error("no such stream")]
    NoStream,
    /// This side has already finished the stream.
    #[error("the stream is already finished")]
    Finished,
    /// The peer's stream limit is reached.
    #[error("the peer allows at most {limit} streams")]
    TooMany {
        /// The peer's limit.
        limit: u32,
    },
    /// Existing streams leave too little memory for another one, here or at the peer. With default
    /// settings a new stream needs 64 kB.
    #[error("the session has no memory left for another stream")]
    NoRoom,
    /// The peer does not resolve names, answers no DNS questions, has no HTTP exchanges, or takes no
    /// bundles.
    #[error("the peer resolves no names")]
    NoNames,
    /// The configuration does not have this class.
    #[error("no such class")]
    NoClass,
}
