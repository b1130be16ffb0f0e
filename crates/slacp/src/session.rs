//! One session between a terminal and a hub (`docs/slacp.md`).

mod acks;
mod close;
mod keys;
mod life_cycle;
mod link_watch;
mod links;
mod liveness;
mod outage;
mod path;
mod payload;
mod receive;
mod receiver;
mod rest;
mod send;
mod sender;
mod stretch;
mod time;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use units::{BitRate, ByteCount, Instant};

use self::keys::SessionKeys;
use self::life_cycle::LifeCycle;
use self::link_watch::LinkWatch;
pub(crate) use self::links::IncumbentSession;
use self::links::{LinkMembership, SessionLinks};
use self::liveness::{ActivityTimes, KeepaliveTimer, ProbeTimer};
use self::outage::OutageState;
use self::path::SessionPath;
use self::receiver::ReceiveSide;
use self::sender::SendSide;
use crate::channels::CONTEXTS;
use crate::event_log::{EventLog, LogEvent};
use crate::handshake::HandshakeParams;
use crate::keys::phases::{HandshakeKeys, KeyPhases};
use crate::keys::secret::{Secret, draw};
use crate::path::loss::LossMeter;
use crate::path::rtt::{FirstRtt, RttEstimator};
use crate::rate::ecn::Marking;
use crate::rate::{Allowance, Auto, Change, Control, Grant, Spent, Switch};
use crate::recovery::LossDetection;
use crate::recovery::fec::{REPAIR_HEAD, SHARD_OVERHEAD};
use crate::scheduler::ClassRates;
use crate::stats::{ChannelStats, ClassStats, SessionStats};
use crate::streams::StreamSet;
use crate::streams::flow::{PeerLimits, SessionPace};
use crate::wire::ecn::Ecn;
use crate::wire::frame::{self, CHANNEL_SIZE};
use crate::wire::open::OpeningFeatures;
use crate::wire::packet::{Index, PacketHeader, TAG};
use crate::{
    ChannelError, ChannelId, ClassId, Config, Event, PathKey, PathMemory, PublicKey, Rate,
    RateError, StopAnnouncement,
};

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

/// The peer's identity and address, and the parameters of its handshake.
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
        Self { key, address, index, limits, rate, times, ecn, link_layer, leaving, successor }
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

/// A session with a peer, from the end of its handshake on. Its life cycle is in
/// `session/life_cycle.rs`.
pub(crate) struct Session {
    pub(crate) peer: Peer,
    /// The session's name, the same on both sides.
    pub(crate) name: u64,
    /// Proves to the process that takes the hub's place whose session this is.
    pub(crate) token: u64,
    /// Both sides run SLACP as a link layer ([`Config::link_layer`]).
    link_layer: bool,
    /// The link allocates capacity by what waits ([`Config::on_demand`]).
    on_demand: bool,
    /// The link below has no room for new data.
    held_back: bool,
    life: LifeCycle,
    /// The peer's announcement that it is about to stop.
    peer_farewell: Option<StopAnnouncement>,
    keys: SessionKeys,
    path: SessionPath,
    rtt: RttEstimator,
    loss: LossMeter,
    rate: Control,
    /// Maximum burst, if it is limited ([`Config::burst`]).
    burst: Option<ByteCount>,
    marking: Marking,
    pub(crate) streams: StreamSet,
    sender: SendSide,
    receiver: ReceiveSide,
    activity: ActivityTimes,
    keepalive: KeepaliveTimer,
    probes: ProbeTimer,
    outage: OutageState,
    /// Its state as one link among several; `None` if the session cannot get further links.
    membership: Option<Box<LinkMembership>>,
    /// The other links of the session, if this is its first one.
    links: Option<Box<SessionLinks>>,
    rng: ChaCha20Rng,
    stats: SessionStats,
    watch: LinkWatch,
    events: VecDeque<Event>,
    pub(crate) log: EventLog,
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        config: &Config,
        keys: HandshakeKeys,
        peer: Peer,
        opens_odd: bool,
        first_rtt: Option<FirstRtt>,
        seed: &Secret,
    ) -> Self {
        let (limits, link_layer) = (limits(config), config.link_layer && peer.link_layer);
        let mut rate = Control::new(&config.rate, config.law);
        rate.limit_bursts(config.burst);
        let mut rtt = RttEstimator::new();
        if let Some(first) = first_rtt {
            rtt.init_from_handshake(first);
        }
        let (name, token) = (keys.name, keys.token);
        // The order of these draws decides what a seed does: a failing test is replayed by its
        // seed.
        let mut rng = ChaCha20Rng::from_seed(**seed);
        let keepalive = KeepaliveTimer::new(now, config.keepalive, &mut rng);
        // Odd streams are the hub's, so the other side is the terminal, which offers new keys.
        let phases = KeyPhases::new(keys, !opens_odd, &draw(&mut rng));
        let recovery = if link_layer { LossDetection::Ordered } else { LossDetection::Reordering };
        let sender = SendSide::new(now, config, &peer.limits, (rate.rate(), recovery), &mut rng);
        let mut session = Self {
            name,
            token,
            link_layer,
            on_demand: config.on_demand,
            held_back: false,
            life: LifeCycle::default(),
            peer_farewell: None,
            keys: SessionKeys::new(now, config, phases),
            path: SessionPath::new(peer.address, config.mtu, link_layer),
            rtt,
            loss: LossMeter::default(),
            streams: StreamSet::new(
                u64::from(opens_odd),
                limits,
                peer.limits,
                unsent_limit(rate.rate(), config.on_demand),
                config.classes.len(),
                usize::from(config.mtu),
            ),
            // A configured rate does not yield to congestion, so ECN needs a measured one.
            marking: Marking::new(config.ecn && peer.ecn && rate.auto().is_some()),
            rate,
            burst: config.burst,
            peer,
            sender,
            receiver: ReceiveSide::new(config, limits.memory, recovery),
            activity: ActivityTimes::new(now),
            keepalive,
            probes: ProbeTimer::new(now),
            outage: OutageState::new(now, config.give_up),
            membership: None,
            links: None,
            rng,
            stats: SessionStats::default(),
            watch: LinkWatch::default(),
            events: VecDeque::new(),
            log: EventLog::new(config.event_log),
        };
        session.update_pace();
        session
    }

    /// Returns the owner's events first, then those of the streams, each in order.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if !self.is_usable() {
            return None;
        }
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// Returns whether [`Self::poll_event`] would return an event.
    pub(crate) fn has_event(&self) -> bool {
        self.is_usable() && (!self.events.is_empty() || self.streams.has_event())
    }

    pub(crate) fn stats(&self) -> SessionStats {
        let (to_send, to_read) = self.streams.held();
        let auto = self.rate.auto();
        let received = self.receiver.ecn.counts();
        self.add_members(SessionStats {
            rtt: self.rtt.smoothed(),
            rate: self.rate.rate(),
            rate_state: self.rate.state(),
            overload: self.rate.overload().copied(),
            capacity: auto.and_then(Auto::capacity),
            queue: auto.map_or(Duration::ZERO, Auto::queue),
            min_rtt: auto.and_then(Auto::min_rtt),
            padding_left: self.rate.measuring().map_or(0, Auto::padding_left),
            impossible_times: self.rate.measuring().map_or(0, Auto::impossible_times),
            ecn: self.marking.state(),
            ect_sent: self.marking.sent(),
            ce_reported: self.rate.measuring().map_or(0, Auto::marked),
            ect_received: received.ect0,
            ce_received: received.ce,
            loss: self.loss.rate(),
            key_changes: self.keys.generation(),
            packet_size: ByteCount::new(self.path.pmtu.size() as u64),
            streams: self.streams.len(),
            held_to_send: ByteCount::new(to_send),
            held_to_read: ByteCount::new(to_read),
            held: ByteCount::new(self.held()),
            unknown_channels: self.receiver.inbound.unknown_channels(),
            without_context: self.receiver.inbound.without_context(),
            log_overwritten: self.log.overwritten(),
            ..self.stats.clone()
        })
    }

    /// Total bytes held, in O(1): every part keeps its own count.
    pub(crate) fn held(&self) -> u64 {
        let (to_send, to_read) = self.streams.held();
        let rest = self.streams.overhead() + self.sender.held() + self.receiver.held();
        to_send + to_read + rest as u64 + self.held_by_members()
    }

    /// Returns whether a packet with this header may recently have been sent on this link.
    fn may_have_sent_own(&self, header: &PacketHeader) -> bool {
        let number = header.number(self.sender.sent.next_number());
        header.receiver == self.peer.index && self.sender.may_have_sent(number)
    }

    /// The largest packet number received or restored; 0 before the first.
    pub(crate) fn last_number(&self) -> u64 {
        self.receiver.received.expected().saturating_sub(1)
    }

    pub(crate) fn channel_stats(&self, channel: ChannelId) -> Option<ChannelStats> {
        Some(self.receiver.inbound.stats(channel, self.sender.outbound.stats(channel)?))
    }

    pub(crate) fn class_stats(&self, class: ClassId) -> Option<ClassStats> {
        let stats = self.sender.scheduler.stats(class)?;
        let index = usize::from(class.0);
        let waiting = self.streams.waiting(index) + self.sender.outbound.waiting(index);
        Some(ClassStats { waiting: ByteCount::new(waiting), ..stats })
    }

    /// Bytes of all classes that wait to be sent for the first time.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let of_class = |index| self.streams.waiting(index) + self.sender.outbound.waiting(index);
        (0..self.sender.scheduler.classes()).map(of_class).sum()
    }

    /// Returns whether the peer receives packets on the channel (parameter 8).
    pub(crate) fn peer_receives(&self, channel: ChannelId) -> bool {
        self.peer.limits.channels & channel.bit() != 0
    }

    /// The size of the longest channel packet that fits into one packet of the hop, together with
    /// the announcement of the channel, whatever the lengths of header and frame.
    pub(crate) fn longest_whole_packet(&self) -> usize {
        let around = ip_udp_overhead(self.peer.address) + TAG + PacketHeader::MAX_LEN;
        // A repair of the packet must fit into a packet of the same size; a link layer does not
        // protect new data.
        let repair = if self.link_layer { 0 } else { REPAIR_HEAD + SHARD_OVERHEAD };
        let frame = CHANNEL_SIZE + frame::ChannelPacket::MAX_HEAD;
        // Until a probe fails, the configured MTU is assumed, which usually passes.
        self.path.pmtu.likely().saturating_sub(around + repair + frame)
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
        self.sender.outbound.send(now, channel, packet, &mut self.log)
    }

    /// Acknowledges `ahead` packets that have not arrived, as an optimistic receiver does.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn acknowledge_ahead(&mut self, now: Instant, ahead: u64) {
        self.receiver.received.acknowledge_ahead(now, ahead);
    }

    /// Returns whether [`Self::poll_packet`] would return a packet.
    pub(crate) fn has_packet(&self) -> bool {
        self.receiver.inbound.has_packet()
    }

    /// Returns the next received packet of a channel.
    pub(crate) fn poll_packet(&mut self) -> Option<(ChannelId, Vec<u8>)> {
        self.receiver.inbound.poll()
    }

    /// Initialises the RTT from the handshake.
    pub(crate) fn begin_rtt(&mut self, rtt: FirstRtt) {
        self.rtt.init_from_handshake(rtt);
        self.update_pace();
    }

    /// The rate at which the endpoint's shared pacer sends for this session; `None` if the session,
    /// or each of its links, paces itself.
    pub(crate) fn shared_rate(&self) -> Option<BitRate> {
        self.rate.shared().filter(|_| self.membership.is_none())
    }

    /// The current sending rate, configured, reported or measured.
    pub(crate) fn rate(&self) -> BitRate {
        self.rate.rate()
    }

    /// The measurements of the path that a later session can start from; `None` if there are none.
    pub(crate) fn path_memory(&self, now: Instant) -> Option<PathMemory> {
        self.rate.auto()?.memory(now)
    }

    /// The key under which measurements of the current path are remembered.
    pub(crate) fn path_key(&self) -> PathKey {
        PathKey::new(self.peer.key, self.peer.address.ip())
    }

    /// Starts from earlier measurements of the path. Called before anything is sent on it.
    pub(crate) fn remember(&mut self, memory: PathMemory) {
        if let Some(auto) = self.rate.auto_mut() {
            auto.remember(memory);
        }
    }

    /// Sets how much padding the session may send. Called before anything is sent.
    pub(crate) fn set_allowance(&mut self, allowance: Allowance) {
        if let Some(auto) = self.rate.measuring_mut() {
            auto.set_allowance(allowance);
        }
    }

    /// Bytes and padding sent so far, if the session can measure its rate.
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.rate.measuring().map(Auto::spent)
    }

    /// Allows the session to measure its path with padding now.
    pub(crate) fn grant_padding(&mut self) {
        if let Some(auto) = self.rate.auto_mut() {
            auto.grant_padding();
        }
    }

    /// The measuring rate control, if it is in use.
    pub(crate) fn auto(&mut self) -> Option<&mut Auto> {
        self.rate.auto_mut()
    }

    /// Applies the session's share of a link that an aggregate measures.
    pub(crate) fn take_share(&mut self, now: Instant, grant: Grant) {
        let Some(auto) = self.rate.auto_mut() else { return };
        let before = auto.rate();
        auto.take(now, grant);
        if auto.rate() != before {
            self.rate_changed(now);
        }
    }

    /// Returns whether the session is measuring its path with padding.
    pub(crate) fn is_probing(&self) -> bool {
        let able = self.is_usable() && self.is_reachable() && self.peer.times.is_some();
        able && self.rate.auto().is_some_and(Auto::is_probing)
    }

    /// Applies a new configured rate; `false` if only a new session can adopt it.
    pub(crate) fn configure_rate(&mut self, now: Instant, rate: &Rate) -> bool {
        let taken = self.rate.configure(now, rate);
        if taken {
            self.rate_changed(now);
        }
        taken
    }

    /// Applies the classes of a configuration and its settings for existing channels. Streams whose
    /// class has no `successor` move to the default class.
    pub(crate) fn configure_classes(
        &mut self,
        config: &Config,
        successor: &dyn Fn(ClassId) -> Option<ClassId>,
    ) {
        let (classes, mtu) = (config.classes.len(), usize::from(config.mtu));
        let there = |class: &ClassId| usize::from(class.0) < classes;
        let successor_class = |class| successor(class).filter(there).unwrap_or(ClassId::DEFAULT);
        self.streams.configure_classes(classes, mtu, successor_class);
        self.sender.outbound.configure(&config.channels, classes, mtu);
        self.sender.scheduler.configure(&config.classes, successor);
    }

    /// Overrides the configured rates of classes. Unknown classes are ignored.
    pub(crate) fn set_class_rates(&mut self, rates: &[(ClassId, ClassRates)]) {
        for (class, rates) in rates {
            let _known = self.sender.scheduler.set_rates(*class, *rates);
        }
    }

    /// The rates of a class; `None` if there is no such class.
    pub(crate) fn class_rates(&self, class: ClassId) -> Option<ClassRates> {
        self.sender.scheduler.rates(class)
    }

    /// Applies a rate reported by the modem.
    pub(crate) fn set_rate(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        let was_off = self.rate.rate().bits_per_second() == 0;
        self.rate.report(now, rate, valid_for)?;
        if was_off && rate.bits_per_second() > 0 {
            // The modem reports that the link is back: probe at once.
            self.probes.hasten(now);
        }
        self.update_ecn_use();
        self.rate_changed(now);
        Ok(())
    }

    /// Ends a rate reported by the modem, if there is one.
    pub(crate) fn expire_rate(&mut self, now: Instant) -> Result<(), RateError> {
        self.rate.expire(now, self.sender.sent.next_number(), self.rtt.smoothed())?;
        self.update_ecn_use();
        self.rate_changed(now);
        Ok(())
    }

    /// Returns which law of the rate, measured or reported, has come into use since the last call.
    pub(crate) fn take_switch(&mut self) -> Option<Switch> {
        self.rate.take_switch()
    }

    /// Turns ECN on while the rate is measured, and off otherwise.
    fn update_ecn_use(&mut self) {
        self.marking.follow(self.rate.auto().is_some(), self.sender.sent.next_number());
    }

    /// Holds new data back from this member's link, or releases it. Acknowledgements,
    /// retransmissions, repairs and control frames leave in any case.
    fn set_own_held_back(&mut self, held: bool) {
        self.held_back = held;
    }

    /// Time that a full packet takes on the link; zero while no rate is known.
    fn packet_time(&self) -> Duration {
        let (bits, rate) = (self.path.pmtu.size() as u64 * 8, self.rate.rate().bits_per_second());
        Duration::from_nanos((bits * 1_000_000_000).checked_div(rate).unwrap_or(0))
    }

    /// Reports the circuit breaker's state changes to the owner and the log.
    fn report_breaker(&mut self, now: Instant) {
        let Some(change) = self.rate.take_change() else { return };
        let (rate, told) = (self.rate.rate(), self.rate.shared().unwrap_or_default());
        match change {
            Change::Tripped => {
                self.stats.trips += 1;
                self.events.push_back(Event::Tripped { rate, instead_of: told });
                self.log.record(now, || LogEvent::BreakerTripped { rate });
            }
            Change::Again => self.log.record(now, || LogEvent::BreakerTripped { rate }),
            Change::Trial => self.log.record(now, || LogEvent::BreakerTries { rate }),
            Change::Closed => {
                self.events.push_back(Event::Restored { rate });
                self.log.record(now, || LogEvent::BreakerClosed { rate });
            }
        }
    }

    /// Passes the current rate on to the event log, the FEC budget and the streams.
    fn rate_changed(&mut self, now: Instant) {
        self.report_breaker(now);
        let rate = self.rate.rate();
        self.log.record(now, || LogEvent::Rate { rate });
        self.sender.planner.set_rate(now, rate);
        self.streams.set_unsent_limit(unsent_limit(rate, self.on_demand));
        self.update_pace();
    }

    /// Updates the RTT and the rates that the streams size their windows by.
    fn update_pace(&mut self) {
        // With several links, `update_shared_pace` sizes the windows for all of them together.
        if self.membership.as_ref().is_some_and(|seat| seat.shares_pace()) {
            return;
        }
        let (rtt, rates) = (self.rtt.smoothed().max(LEAST_RTT), [self.rate.rate(), self.peer.rate]);
        self.streams.set_pace(SessionPace { rtt, rates });
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
