//! The settings of an endpoint.

use core::time::Duration;
use std::collections::BTreeMap;

use units::ByteCount;

use crate::channels::ChannelConfig;
use crate::keys::phases::KeyLimits;
use crate::scheduler::{ClassConfig, MAX_CLASSES};
use crate::wire::frame::MAX_DEADLINE;
use crate::{ChannelId, ClassId, ConfigError, IndexShare, Law, Rate};

/// Maximum number of links of a session.
pub const MAX_LINKS: usize = 4;

/// The settings of an endpoint.
#[derive(Debug, Clone)]
pub struct Config {
    /// The source of this side's sending rate. Nothing is sent faster.
    pub rate: Rate,
    /// The law that a measured rate follows. The defaults suit every link; others are for studies.
    pub law: Law,
    /// With a measured rate: the share of the bytes sent to a peer that padding may take, 0 to 1,
    /// besides two measurements in advance: 800 kB, or twice what the first took if that is more.
    /// Counted over all sessions of the peer with this endpoint, as IP packets of whole trains. A
    /// larger share measures more of the paths that come and go; with a smaller one, their first
    /// data does it. Default 0.02.
    pub padding_share: f64,
    /// Maximum burst in bytes, for links whose policer drops longer ones; packets that measure a
    /// path are excepted. Default: the bytes that the rate sends in 4 ms.
    pub burst: Option<ByteCount>,
    /// The largest IP packet to send, in bytes. Path MTU discovery searches from 576 bytes up to
    /// this. Default 1500.
    pub mtu: u16,
    /// Memory of one session for stream data, per direction: sent but not acknowledged, or received
    /// but not read. All its buffers together take at most five times this
    /// ([`SessionStats::held`](crate::SessionStats::held)). Default 256 MB.
    pub memory: ByteCount,
    /// Maximum share of [`Self::memory`] for one stream. A window below rate × RTT cannot fill the
    /// link; with losses, which block the data behind them, a stream needs four times as much.
    /// Default 64 MB.
    pub stream_window: ByteCount,
    /// Maximum number of streams the peer may have open. Default 65,536.
    pub max_streams: u32,
    /// This side resolves names, so the peer may open streams to host names. Default false.
    pub names: bool,
    /// This side answers DNS questions, so the peer may open streams to its resolver. Default
    /// false.
    pub questions: bool,
    /// This side understands HTTP exchanges, so the peer may open streams to them. Default false.
    pub exchanges: bool,
    /// This side takes bundles, so the peer may open streams to its bundle agent. Default false.
    pub bundles: bool,
    /// This terminal can give all packets that it sends on channels a source address of the hub's choice
    /// ([`Endpoint::packet_address`](crate::Endpoint::packet_address)). Default false.
    pub takes_address: bool,
    /// Number of compressed streams of a peer that the owner decompresses at a time
    /// ([`Endpoint::is_compressed`](crate::Endpoint::is_compressed)). Default 0: the peer opens
    /// none.
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
    /// This machine computes AES-256-GCM fast. If both sides do, they use it; otherwise they use
    /// ChaCha20-Poly1305. Default false.
    pub aes: bool,
    /// The driver reads and sets the ECN codepoints of datagrams: it passes received ones to
    /// [`Endpoint::handle_datagram_with_ecn`] and sends each datagram with that of
    /// [`Endpoint::transmit_ecn`]. With a measured rate, the path can then signal congestion
    /// without losing packets. Default true; a driver that does neither costs ten test packets.
    ///
    /// [`Endpoint::handle_datagram_with_ecn`]: crate::Endpoint::handle_datagram_with_ecn
    /// [`Endpoint::transmit_ecn`]: crate::Endpoint::transmit_ecn
    pub ecn: bool,
    /// SLACP runs as a link layer: one link joins the two sides, carries packets of [`Self::mtu`],
    /// and keeps their order, except that control ([`Endpoint::transmit_is_control`]) may overtake
    /// new data. Both sides must set it. Then a gap is a loss, which is reported and repaired at
    /// once; only retransmissions and reports of losses are protected by FEC; and the receiver of a
    /// packet channel is told of each packet that is given up. On a path that reorders packets,
    /// this wastes its rate on false losses. Default false.
    ///
    /// [`Endpoint::transmit_is_control`]: crate::Endpoint::transmit_is_control
    pub link_layer: bool,
    /// The link has capacity on demand, which is requested for the data that waits
    /// ([`ClassStats::waiting`]). The streams then hold two seconds of the rate unsent, instead of
    /// 50 ms: requested capacity is granted more than a round trip later, and data written after
    /// the request is not covered by it. Default false.
    ///
    /// [`ClassStats::waiting`]: crate::ClassStats::waiting
    pub on_demand: bool,
    /// Capacity of each session's event log ([`Endpoint::poll_log`]); the oldest events are
    /// overwritten. Default 0: logging is off and free.
    ///
    /// [`Endpoint::poll_log`]: crate::Endpoint::poll_log
    pub event_log: usize,
    /// This side's rate on each link of a session, by the link number that both sides use; at most
    /// [`MAX_LINKS`]. If both sides have two or more, a session uses all links that both have, and
    /// [`Self::rate`] is not used. A terminal has a socket for each ([`Endpoint::transmit_link`]).
    /// A rate is that of the session alone: it is not shared with others. Each link takes memory of
    /// its own for data in flight. Default none.
    ///
    /// [`Endpoint::transmit_link`]: crate::Endpoint::transmit_link
    pub links: Vec<Rate>,
    pub(crate) key_limits: KeyLimits,
    /// The classes by identifier, never empty; see [`Config::add_class`].
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
            // With 32 MB, the slowest of nine downloads of 100 MB over 250/3 Mbit/s at a PER of 1 %
            // takes 6.23 instead of 4.74 s.
            stream_window: ByteCount::new(64_000_000),
            max_streams: 65_536,
            names: false,
            questions: false,
            exchanges: false,
            bundles: false,
            takes_address: false,
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

    /// Sets weight, rates and code point of [`ClassId::DEFAULT`].
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
        let class = config.class;
        let classes = self.classes.len();
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
