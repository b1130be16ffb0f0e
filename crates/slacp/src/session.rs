//! One session between a terminal and a hub (`docs/slacp.md`).

mod close;
mod migrate;
mod payload;
mod receive;
mod rekey;
mod send;
mod time;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use units::{BitRate, ByteCount, Instant};

use crate::channels::{ChannelError, ChannelId, Inbound, Outbound};
use crate::event_log::{EventLog, LogEvent};
use crate::fade::{Fade, Faded};
use crate::fec::Decoder;
use crate::flow::{Limits, Pace};
use crate::handshake::Keys;
use crate::jitter::Backoff;
use crate::loss::LossMeter;
use crate::open::Openings;
use crate::packet::{Header, Index};
use crate::path::Path;
use crate::phases::Phases;
use crate::planner::Planner;
use crate::pmtu::Pmtu;
use crate::rate::{Auto, Control, RateState};
use crate::received::Received;
use crate::rtt::{FirstRtt, Rtt};
use crate::scheduler::{ClassId, Scheduler};
use crate::secret::{Secret, draw};
use crate::sent::{Cargo, SentPackets};
use crate::session::close::Closing;
use crate::session::rekey::Rekey;
use crate::stats::{ChannelStats, ClassStats, ENTRY, Stats};
use crate::streams::Streams;
use crate::{Config, DownReason, Event, PathKey, PathMemory, PublicKey, Rate, RateError};

/// How many recent packet numbers a peer may still refer to.
const RECENT: u64 = 1 << 16;

/// Why a session asked to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// A handshake message needs to be retransmitted.
    Handshake,
    /// The link is free for the next packet.
    Pacing,
    /// An acknowledgement is due.
    Acknowledgement,
    /// A packet is overdue and counts as lost.
    Loss,
    /// No acknowledgement has come for too long: send a probe.
    Probe,
    /// Repairs or a second copy of a retransmission are due.
    Repair,
    /// A missing packet of a channel is given up.
    Delivery,
    /// A keepalive is due.
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
}

/// What this side knows of its peer.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) address: SocketAddr,
    /// The peer's index for this session.
    pub(crate) index: Index,
    pub(crate) limits: Limits,
    /// The peer's announced sending rate; 0 if the peer does not know it.
    pub(crate) rate: BitRate,
    /// Whether the peer wants arrival times; `None` if it does not support them.
    pub(crate) times: Option<bool>,
}

/// An established session.
pub(crate) struct Session {
    pub(crate) peer: Peer,
    /// The session's name, the same on both sides.
    pub(crate) name: u64,
    keys: Phases,
    rekey: Rekey,
    path: Path,
    /// The address the session has just left, and what it learnt about that path.
    left: Option<(SocketAddr, Option<PathMemory>)>,
    pmtu: Pmtu,
    /// On a slow link, the number of bytes sent before the next MTU probe.
    mtu_probe_from: u64,
    rng: ChaCha20Rng,
    /// The source address of the packet being processed.
    heard_from: SocketAddr,
    keepalive: Duration,
    /// How long the session may be idle before it sends a keepalive: [`Self::keepalive`] plus
    /// jitter.
    idle_for: Duration,
    give_up: Duration,
    sent: SentPackets,
    /// The next packet number to skip.
    leave_out_at: u64,
    /// Soft limit of the sent-packet records, in bytes: beyond it no more payload is sent.
    most_in_flight: usize,
    /// Hard limit: a peer that leaves more unacknowledged breaks the protocol.
    most_unacknowledged: usize,
    received: Received,
    rtt: Rtt,
    loss: LossMeter,
    pub(crate) streams: Streams,
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
    scheduler: Scheduler,
    pub(crate) log: EventLog,
    decoder: Decoder,
    planner: Planner,
    rate: Control,
    /// Second copies of retransmissions, with the time each is due.
    copies: VecDeque<(Instant, Cargo)>,
    last_heard: Instant,
    /// When an acknowledgement last reported new packets.
    last_progress: Instant,
    /// When a packet with more than a PING last came.
    last_carried: Instant,
    /// When the peer was last asked whether it is alive.
    asked: Instant,
    last_sent: Instant,
    /// When the last ack-eliciting packet left.
    last_eliciting: Instant,
    next_probe: Instant,
    /// When the peer was last asked whether packets still arrive.
    doubted_at: Instant,
    probe_pending: bool,
    /// Send the next probe small, and with an acknowledgement: a path that drops large packets also
    /// drops the acknowledgements in them.
    careful: bool,
    /// Set while one or both directions of the link are silent.
    fade: Option<Fade>,
    /// When the last fade ended.
    thawed_at: Instant,
    faded: Faded,
    backoff: Backoff,
    /// Why the session ended, once it is over for its owner.
    ended: Option<DownReason>,
    /// Whether the owner knows that the session ended.
    told: bool,
    closing: Option<Closing>,
    /// Whether the session can be forgotten.
    over: bool,
    settled_told: u64,
    settled_told_at: Instant,
    stats: Stats,
    events: VecDeque<Event>,
}

impl Session {
    pub(crate) fn new(
        now: Instant,
        config: &Config,
        keys: Keys,
        peer: Peer,
        opens_odd: bool,
        rtt: Option<FirstRtt>,
        seed: &Secret,
    ) -> Self {
        let limits = limits(config);
        let mut rng = ChaCha20Rng::from_seed(**seed);
        let idle_for = time::idle_for(config.keepalive, &mut rng);
        let rate = Control::new(&config.rate);
        let mut estimate = Rtt::new();
        if let Some(rtt) = rtt {
            estimate.begin(rtt);
        }
        let mut session = Self {
            name: keys.name,
            keys: Phases::new(keys, !opens_odd, &draw(&mut rng)).limited(config.key_limits),
            rekey: Rekey::new(now, config),
            path: Path::default(),
            left: None,
            pmtu: Pmtu::new(usize::from(config.mtu)),
            mtu_probe_from: migrate::PROBE_EVERY * u64::from(config.mtu),
            leave_out_at: send::left_out_after(0, &mut rng),
            rng,
            heard_from: peer.address,
            keepalive: config.keepalive,
            idle_for,
            give_up: config.give_up,
            sent: SentPackets::default(),
            most_in_flight: most_in_flight(limits.memory),
            most_unacknowledged: most_unacknowledged(limits.memory),
            received: Received::new(),
            rtt: estimate,
            loss: LossMeter::default(),
            streams: Streams::new(
                u64::from(opens_odd),
                limits,
                peer.limits,
                unsent(rate.rate()),
                config.classes.len(),
                usize::from(config.mtu),
            ),
            outbound: Outbound::new(
                &config.channels,
                config.classes.len(),
                usize::from(config.mtu),
            ),
            inbound: Inbound::new(
                &config.channels,
                usize::try_from(limits.memory / 4).unwrap_or(usize::MAX),
            ),
            scheduler: Scheduler::new(&config.classes),
            log: EventLog::new(config.event_log),
            peer,
            decoder: Decoder::new(usize::try_from(limits.memory / 2).unwrap_or(usize::MAX)),
            planner: Planner::new(rate.rate()),
            rate,
            copies: VecDeque::new(),
            last_heard: now,
            last_progress: now,
            last_carried: now,
            asked: now,
            last_sent: now,
            last_eliciting: now,
            next_probe: now,
            doubted_at: now,
            probe_pending: false,
            careful: false,
            fade: None,
            thawed_at: now,
            faded: Faded::default(),
            backoff: Backoff::default(),
            ended: None,
            told: false,
            closing: None,
            over: false,
            settled_told: 0,
            settled_told_at: now,
            stats: Stats::default(),
            events: VecDeque::new(),
        };
        session.follow_pace();
        session
    }

    /// Returns the owner's events first, then those of the streams, each in order.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if !self.is_usable() {
            return None;
        }
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// Whether [`Self::poll_event`] would return an event.
    pub(crate) fn has_event(&self) -> bool {
        self.is_usable() && (!self.events.is_empty() || self.streams.has_event())
    }

    /// Whether the session can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the owner can still use the session.
    pub(crate) fn is_usable(&self) -> bool {
        self.ended.is_none()
    }

    /// Why the session ended; returned only once.
    pub(crate) fn take_end(&mut self) -> Option<DownReason> {
        let news = self.ended.filter(|_| !self.told);
        self.told |= news.is_some();
        news
    }

    /// Whether packets of this side arrive and their acknowledgements return.
    pub(crate) fn is_reachable(&self) -> bool {
        self.fade.is_none()
    }

    pub(crate) fn stats(&self) -> Stats {
        let (to_send, to_read) = self.streams.held();
        let auto = self.rate.auto();
        Stats {
            rtt: self.rtt.smoothed(),
            rate: self.rate.rate(),
            rate_state: auto.map_or(RateState::Told, Auto::state),
            capacity: auto.and_then(Auto::capacity),
            queue: auto.map_or(Duration::ZERO, Auto::queue),
            min_rtt: auto.and_then(Auto::min_rtt),
            loss: self.loss.rate(),
            key_changes: self.keys.generation(),
            packet_size: ByteCount::new(self.pmtu.size() as u64),
            streams: self.streams.len(),
            held_to_send: ByteCount::new(to_send),
            held_to_read: ByteCount::new(to_read),
            held: ByteCount::new(self.held()),
            unknown_channels: self.inbound.unknown(),
            log_overwritten: self.log.overwritten(),
            ..self.stats.clone()
        }
    }

    /// Total bytes held, in O(1): every part keeps its own count.
    fn held(&self) -> u64 {
        let (to_send, to_read) = self.streams.held();
        let channels = self.inbound.held() + self.outbound.held();
        let packets = self.sent.held() + self.received.held() + self.copies.len() * ENTRY;
        let fec = self.decoder.held() + self.planner.held();
        to_send + to_read + (self.streams.overhead() + channels + packets + fec) as u64
    }

    /// Whether this session may recently have sent a packet with this header.
    pub(crate) fn may_have_sent(&self, header: &Header) -> bool {
        let next = self.sent.next_number();
        let number = header.number(next);
        header.receiver == self.peer.index && number < next && number + RECENT >= next
    }

    pub(crate) fn channel_stats(&self, channel: ChannelId) -> Option<ChannelStats> {
        Some(self.inbound.stats(channel, self.outbound.stats(channel)?))
    }

    pub(crate) fn class_stats(&self, class: ClassId) -> Option<ClassStats> {
        let stats = self.scheduler.stats(class)?;
        let index = usize::from(class.0);
        let waiting = self.streams.waiting(index) + self.outbound.waiting(index);
        Some(ClassStats { waiting: ByteCount::new(waiting), ..stats })
    }

    /// Whether the peer has the channel.
    pub(crate) fn peer_receives(&self, channel: ChannelId) -> bool {
        self.peer.limits.channels & channel.bit() != 0
    }

    /// Queues a packet of a channel.
    pub(crate) fn send_packet(
        &mut self,
        now: Instant,
        channel: ChannelId,
        packet: &[u8],
    ) -> Result<(), ChannelError> {
        if !self.peer_receives(channel) {
            return Err(ChannelError::PeerHasNone);
        }
        self.outbound.send(now, channel, packet, &mut self.log)
    }

    /// Initialises the RTT from the handshake.
    pub(crate) fn begin_rtt(&mut self, rtt: FirstRtt) {
        self.rtt.begin(rtt);
        self.follow_pace();
    }

    /// The rate at which the endpoint's shared pacer sends for this session; `None` if the session
    /// paces itself.
    pub(crate) fn shared_rate(&self) -> Option<BitRate> {
        self.rate.shared()
    }

    /// What is worth remembering about the path.
    pub(crate) fn path_memory(&self, now: Instant) -> Option<PathMemory> {
        self.rate.auto()?.memory(now)
    }

    /// The current path.
    pub(crate) fn path_key(&self) -> PathKey {
        PathKey::new(self.peer.key, self.peer.address.ip())
    }

    /// Restores what is remembered about the path, before anything is sent on it.
    pub(crate) fn remember(&mut self, memory: PathMemory) {
        if let Some(auto) = self.rate.auto_mut() {
            auto.remember(memory);
        }
    }

    /// Makes the session share the probe budget of a fade with other sessions.
    pub(crate) fn share_probes(&mut self, faded: &Faded) {
        self.faded = faded.clone();
    }

    /// Applies a new configured rate; `false` if it needs a new session.
    pub(crate) fn configure_rate(&mut self, now: Instant, rate: &Rate) -> bool {
        let taken = self.rate.configure(rate);
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
        let heir = |class| successor(class).filter(there).unwrap_or(ClassId::DEFAULT);
        self.streams.configure_classes(classes, mtu, heir);
        self.outbound.configure(&config.channels, classes, mtu);
        self.scheduler.configure(&config.classes, successor);
    }

    /// Applies a rate reported by the modem.
    pub(crate) fn set_rate(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        let was_off = self.rate.rate().bits_per_second() == 0;
        self.rate.tell(now, rate, valid_for)?;
        if was_off && rate.bits_per_second() > 0 {
            // The modem reports that the link is back: probe at once.
            self.next_probe = self.next_probe.min(now);
        }
        self.rate_changed(now);
        Ok(())
    }

    /// Updates everything that depends on the rate.
    fn rate_changed(&mut self, now: Instant) {
        let rate = self.rate.rate();
        self.log.record(now, || LogEvent::Rate { rate });
        self.planner.set_rate(now, rate);
        self.streams.set_unsent_limit(unsent(rate));
        self.follow_pace();
    }

    /// Updates the streams' view of the rate.
    fn follow_pace(&mut self) {
        let (rtt, rates) = (self.rtt.smoothed().max(LEAST_RTT), [self.rate.rate(), self.peer.rate]);
        self.streams.set_pace(Pace { rtt, rates });
    }

    /// When the last authentic packet came.
    pub(crate) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// Maximum time for an answer to a question, if one of two copies arrives.
    pub(crate) fn patience(&self) -> Duration {
        self.challenge_delay() * 2
    }

    /// Makes the peer acknowledge something soon.
    pub(crate) fn ping(&mut self) {
        self.probe_pending = true;
    }
}

/// The size of sent-packet records, in bytes, beyond which only probes are sent. Streams have at
/// most `memory` bytes in flight; as FEC sources these are stored again in the records, and headers
/// and records take less than half of a full packet. For packets of channels this is the only
/// limit.
fn most_in_flight(memory: u64) -> usize {
    usize::try_from(memory + memory / 2).unwrap_or(usize::MAX)
}

/// The size of sent-packet records beyond which a reachable peer is acknowledging nothing, in
/// violation of the protocol. Probes need at least ten minutes to fill half the memory, even if
/// that is only 1 MB.
fn most_unacknowledged(memory: u64) -> usize {
    usize::try_from(memory).unwrap_or(usize::MAX).saturating_mul(2)
}

/// Minimum RTT that windows are sized for. On shorter paths the time a busy gateway takes to read
/// and answer dominates.
const LEAST_RTT: Duration = Duration::from_millis(20);

/// How many written bytes a stream may hold unsent: 50 ms of the rate.
fn unsent(rate: BitRate) -> u64 {
    rate.bytes_in(Duration::from_millis(50)).get().max(65_536)
}

/// The limits that a configuration sets for the peer.
pub(crate) fn limits(config: &Config) -> Limits {
    let limits = Limits::new(config.memory.get(), config.stream_window.get(), config.max_streams);
    let channels = config.channels.keys().fold(0, |mask, channel| mask | channel.bit());
    Limits { channels, openings: Openings::of_this_version(config.names), ..limits }
}

/// Size of the IP and UDP headers of a datagram to `peer`, in bytes.
pub(crate) fn ip_udp_overhead(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => 20 + 8,
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}

#[cfg(test)]
mod tests;
