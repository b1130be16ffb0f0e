//! One session between a terminal and a hub (`docs/slacp.md`).

mod close;
pub(crate) mod group;
mod life_cycle;
mod links;
mod path;
mod rate;
mod shared;

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};

use units::{BitRate, ByteCount, Instant};

pub(crate) use self::links::IncumbentSession;
use self::links::SessionLinks;
use self::path::PacketBatch;
pub(crate) use self::path::SessionPath;
pub(crate) use self::shared::SharedState;
use crate::channels::CONTEXTS;
use crate::event::log::EventLog;
use crate::event::stats::{ChannelStats, ClassStats, SessionStats};
use crate::keys::handshake::HandshakeParams;
use crate::keys::phases::HandshakeKeys;
use crate::keys::secret::Secret;
use crate::recovery::path::fade::FadedSessions;
use crate::recovery::path::rtt::FirstRtt;
use crate::scheduler::ClassRates;
use crate::streams::flow::PeerLimits;
use crate::wire::ecn::Ecn;
use crate::wire::open::OpeningFeatures;
use crate::wire::packet::{Index, PacketHeader};
use crate::{ChannelError, ChannelId, ClassId, Config, Event, PublicKey};

/// The reason for a session's next timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// A handshake message needs to be retransmitted.
    Handshake,
    /// The link is free for the next packet.
    Pacing,
    /// The delayed acknowledgement of received packets is due.
    Acknowledgement,
    /// A packet is overdue and counts as lost.
    Loss,
    /// No acknowledgement has come for too long: send a probe.
    Probe,
    /// Repairs or a second copy of a retransmission are due.
    Repair,
    /// A missing packet of a channel is given up.
    Delivery,
    /// An idle session sends a PING.
    Keepalive,
    /// The peer has been silent for too long.
    Silence,
    /// The rate control has a timer.
    Rate,
    /// Keys are due for renewal, or old ones for deletion.
    Rekey,
    /// A closing message is due, or the closed session can be forgotten.
    Closing,
    /// A path challenge or an MTU probe is due.
    Path,
    /// The session has carried nothing for a while and frees memory.
    Rest,
}

/// The peer's identity and address, and the parameters of its handshake over one path.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) address: SocketAddr,
    /// The peer's index for this session.
    pub(crate) index: Index,
    pub(crate) limits: PeerLimits,
    /// The peer's announced sending rate; 0 if the peer does not know it.
    pub(crate) rate: BitRate,
    /// `Some(true)` if the peer wants arrival times in acknowledgements, `Some(false)` if it only
    /// provides them, `None` if it does not support them.
    pub(crate) times: Option<bool>,
    /// The peer reports the ECN codepoints it receives.
    pub(crate) ecn: bool,
    /// The peer runs SLACP as a link layer.
    pub(crate) link_layer: bool,
    /// The peer understands LEAVING.
    pub(crate) leaving: bool,
    /// The peer understands SUCCESSOR.
    pub(crate) successor: bool,
    /// See [`HandshakeParams::address`].
    pub(crate) address_parameter: Option<u64>,
}

impl Peer {
    /// Creates the peer that has sent these parameters from `address`.
    pub(crate) fn new(
        key: PublicKey,
        address: SocketAddr,
        index: Index,
        params: &HandshakeParams,
    ) -> Self {
        let HandshakeParams { limits, rate, times, ecn, link_layer, leaving, successor, .. } =
            *params;
        let address_parameter = params.address;
        Self {
            key,
            address,
            index,
            limits,
            rate,
            times,
            ecn,
            link_layer,
            leaving,
            successor,
            address_parameter,
        }
    }
}

/// Destination and IP header fields of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketEnvelope {
    pub(crate) to: SocketAddr,
    /// Size of the IP packet.
    pub(crate) size: ByteCount,
    pub(crate) ecn: Ecn,
    /// Code point, 0 to 63.
    pub(crate) dscp: u8,
    /// The packet belongs to the control channel: it carries no new data.
    pub(crate) is_control: bool,
    /// The link it takes, an index of [`Config::links`].
    pub(crate) link: u8,
}

/// The peer of a session on all its paths.
pub(crate) struct SessionPeer {
    pub(crate) key: PublicKey,
    /// The limits of the first handshake.
    pub(crate) limits: PeerLimits,
    /// The peer understands LEAVING.
    leaving: bool,
    /// The peer understands SUCCESSOR.
    pub(crate) successor: bool,
    /// See [`HandshakeParams::address`].
    address_parameter: Option<u64>,
}

/// A session with a peer, from the end of its handshake on: the state that all its paths share, and
/// the paths, one for each link. Its life cycle is in `session/life_cycle.rs`.
pub(crate) struct Session {
    pub(crate) peer: SessionPeer,
    /// The session's name, the same on both sides.
    pub(crate) name: u64,
    /// Proves to the process that takes the hub's place whose session this is.
    pub(crate) token: u64,
    pub(crate) shared: SharedState,
    /// Never empty. The first path is that of the session's handshake.
    paths: Vec<SessionPath>,
    /// The state of all links together, once there are several.
    links: Option<Box<SessionLinks>>,
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        config: &Config,
        keys: HandshakeKeys,
        peer: &Peer,
        opens_odd: bool,
        first_rtt: Option<FirstRtt>,
        seed: &Secret,
    ) -> Self {
        let (name, token) = (keys.name, keys.token);
        // Odd streams are the hub's, so the other side is the terminal, which offers new keys.
        let path = SessionPath::new(now, config, keys, peer, !opens_odd, first_rtt, seed);
        let link_layer = config.link_layer && peer.link_layer;
        let rate = path.rate.rate();
        let mut shared = SharedState::new(config, peer.limits, rate, opens_odd, link_layer);
        path.update_pace(&mut shared);
        let Peer { key, limits, leaving, successor, address_parameter, .. } = *peer;
        let peer = SessionPeer { key, limits, leaving, successor, address_parameter };
        Self { peer, name, token, shared, paths: vec![path], links: None }
    }

    fn first(&self) -> &SessionPath {
        &self.paths[0]
    }

    fn first_mut(&mut self) -> &mut SessionPath {
        &mut self.paths[0]
    }

    fn first_and_shared(&mut self) -> (&mut SessionPath, &mut SharedState) {
        (&mut self.paths[0], &mut self.shared)
    }

    /// The peer's address on the first path.
    pub(crate) fn address(&self) -> SocketAddr {
        self.first().remote.address
    }

    pub(crate) fn log(&self) -> &EventLog {
        &self.first().log
    }

    pub(crate) fn log_mut(&mut self) -> &mut EventLog {
        &mut self.first_mut().log
    }

    /// Processes a data packet that arrived on the first path ([`SessionPath::handle_packet`]).
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ecn: Ecn,
        header: &PacketHeader,
        datagram: &mut [u8],
    ) -> bool {
        let (path, shared) = self.first_and_shared();
        path.handle_packet(shared, now, (from, ecn), header, datagram)
    }

    /// The part of [`Self::handle_packet`] that follows decryption, for tests.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn take_authentic(&mut self, now: Instant, number: u64, frames: &[u8]) {
        let (path, shared) = self.first_and_shared();
        path.take_authentic(shared, now, number, frames);
    }

    /// Returns the owner's events first, then those of the streams, each in order.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.shared.poll_event()
    }

    /// Returns whether [`Self::poll_event`] would return an event.
    pub(crate) fn has_event(&self) -> bool {
        self.shared.has_event()
    }

    pub(crate) fn stats(&self) -> SessionStats {
        let (to_send, to_read) = self.shared.streams.held();
        self.add_links(SessionStats {
            streams: self.shared.streams.len(),
            held_to_send: ByteCount::new(to_send),
            held_to_read: ByteCount::new(to_read),
            held: ByteCount::new(self.held()),
            unknown_channels: self.shared.inbound.unknown_channels(),
            without_context: self.shared.inbound.without_context(),
            failure: self.shared.failure.clone(),
            ..self.first().stats()
        })
    }

    /// Total bytes held, in O(1): every part keeps its own count.
    pub(crate) fn held(&self) -> u64 {
        self.shared.held() + self.paths.iter().map(SessionPath::held).sum::<u64>()
    }

    /// The largest packet number received or restored; 0 before the first.
    pub(crate) fn last_number(&self) -> u64 {
        self.first().receiver.received.expected().saturating_sub(1)
    }

    pub(crate) fn channel_stats(&self, channel: ChannelId) -> Option<ChannelStats> {
        let sent = self.shared.outbound.stats(channel)?;
        Some(self.shared.inbound.stats(channel, sent))
    }

    pub(crate) fn class_stats(&self, class: ClassId) -> Option<ClassStats> {
        self.shared.class_stats(class)
    }

    /// Bytes of all classes that wait to be sent for the first time.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.shared.waiting_bytes()
    }

    /// Returns whether the peer receives packets on the channel (parameter 8).
    pub(crate) fn peer_receives(&self, channel: ChannelId) -> bool {
        self.peer.limits.channels & channel.bit() != 0
    }

    /// Returns the address that the hub expects as the source of this terminal's packets (parameter 24).
    pub(crate) fn packet_address(&self) -> Option<Ipv4Addr> {
        let number = u32::try_from(self.peer.address_parameter?).ok()?;
        Some(Ipv4Addr::from_bits(number))
    }

    /// See [`SessionPath::longest_whole_packet`].
    pub(crate) fn longest_whole_packet(&self) -> usize {
        self.first().longest_whole_packet(&self.shared)
    }

    /// Queues a packet of a channel. Fails if the peer does not receive the channel.
    pub(crate) fn send_packet(
        &mut self,
        now: Instant,
        channel: ChannelId,
        packet: &[u8],
    ) -> Result<(), ChannelError> {
        if !self.peer_receives(channel) {
            return Err(ChannelError::PeerHasNone);
        }
        let (path, shared) = self.first_and_shared();
        shared.outbound.send(now, channel, packet, &mut path.log)
    }

    /// Acknowledges `ahead` packets that have not arrived, as an optimistic receiver does.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn acknowledge_ahead(&mut self, now: Instant, ahead: u64) {
        self.first_mut().receiver.received.acknowledge_ahead(now, ahead);
    }

    /// Returns whether [`Self::poll_packet`] would return a packet.
    pub(crate) fn has_packet(&self) -> bool {
        self.shared.inbound.has_packet()
    }

    /// Returns the next received packet of a channel.
    pub(crate) fn poll_packet(&mut self) -> Option<(ChannelId, Vec<u8>)> {
        self.shared.inbound.poll()
    }

    /// Initialises the RTT from the handshake.
    pub(crate) fn begin_rtt(&mut self, rtt: FirstRtt) {
        let (path, shared) = self.first_and_shared();
        path.begin_rtt(rtt);
        path.update_pace(shared);
    }

    /// Makes the next packet on the first path a PING, which the peer must acknowledge.
    pub(crate) fn ping(&mut self) {
        self.first_mut().ping();
    }

    /// Adds the session to the endpoint's shared probe budget.
    pub(crate) fn share_probes(&mut self, faded: &FadedSessions) {
        self.first_mut().share_probes(faded);
    }

    /// See [`SharedState::configure_classes`].
    pub(crate) fn configure_classes(
        &mut self,
        config: &Config,
        successor: &dyn Fn(ClassId) -> Option<ClassId>,
    ) {
        self.shared.configure_classes(config, successor);
    }

    /// Overrides the configured rates of classes. Unknown classes are ignored.
    pub(crate) fn set_class_rates(&mut self, rates: &[(ClassId, ClassRates)]) {
        for (class, rates) in rates {
            let _known = self.shared.scheduler.set_rates(*class, *rates);
        }
    }

    /// The rates of a class; `None` if there is no such class.
    pub(crate) fn class_rates(&self, class: ClassId) -> Option<ClassRates> {
        self.shared.scheduler.rates(class)
    }

    /// The time from which the guarantee of one of its classes with data puts the session before
    /// others.
    pub(crate) fn class_claim(&self) -> Option<Instant> {
        self.first().class_claim(&self.shared)
    }

    /// Sum of the guarantees of all its classes, in bit/s.
    pub(crate) fn class_guarantees(&self) -> u64 {
        self.shared.scheduler.guaranteed()
    }

    /// Sum of the guarantees of those classes that have data, or had some lately, in bit/s.
    pub(crate) fn class_guarantees_in_use(&self, now: Instant) -> u64 {
        self.first().class_guarantees_in_use(&self.shared, now)
    }
}

/// Minimum RTT that windows are sized for. On shorter paths the time a busy gateway takes to read
/// and answer dominates.
const LEAST_RTT: Duration = Duration::from_millis(20);

/// Unsent data of a stream on a link with capacity on demand, as time at the current rate. From a
/// request to its grant a geostationary link takes about 1.3 s (two ways, the request period and
/// the superframe). Up to about twice the current rate can then be asked for, so that the rate can
/// double in each of these times.
const UNSENT_TIME_ON_DEMAND: Duration = Duration::from_secs(2);

/// Unsent data of a stream otherwise, so that the link does not wait for the writer.
const UNSENT_TIME: Duration = Duration::from_millis(50);
/// Bounds of the unsent data in bytes. A blocked writer is woken long before the maximum is sent.
/// Without a maximum, each of the sessions that share a fast link would hold 50 ms of all of it.
const MIN_UNSENT: u64 = 65_536;
const MAX_UNSENT: u64 = 2_000_000;

/// The number of written bytes that a stream may hold unsent at this rate.
fn unsent_limit(rate: BitRate, on_demand: bool) -> u64 {
    match on_demand {
        true => rate.bytes_in(UNSENT_TIME_ON_DEMAND).get().max(MIN_UNSENT),
        false => rate.bytes_in(UNSENT_TIME).get().clamp(MIN_UNSENT, MAX_UNSENT),
    }
}

/// The limits that a configuration sets for the peer.
pub(crate) fn limits(config: &Config) -> PeerLimits {
    let limits =
        PeerLimits::new(config.memory.get(), config.stream_window.get(), config.max_streams);
    let channels = config.channels.keys().fold(0, |mask, channel| mask | channel.bit());
    // Without channels there are no IP packets whose headers could be compressed.
    let contexts = if channels == 0 { 0 } else { CONTEXTS };
    let decompressors = config.decompressors;
    let openings = OpeningFeatures::of_this_version(
        config.names,
        (config.questions, config.exchanges),
        decompressors > 0,
    )
    .with_bundles(config.bundles);
    // An owner that decompresses at all has the dictionary.
    let dictionary = decompressors > 0;
    PeerLimits { channels, contexts, decompressors, dictionary, openings, ..limits }
}

/// Size of the IP and UDP headers of a datagram to `peer`, in bytes.
pub(crate) fn ip_udp_overhead(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => 20 + 8,
        // A dual-stack socket reports IPv4 peers as mapped addresses; IPv4 headers are what leaves.
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}

#[cfg(test)]
mod tests;
