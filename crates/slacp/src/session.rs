//! One session: packets in, packets out, between a terminal and a hub
//! (`docs/slacp.md`).

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

/// Packets that the peer may still speak of.
const RECENT: u64 = 1 << 16;

/// Why a session wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// A handshake message is to be sent again.
    Handshake,
    /// The link is free for the next packet.
    Pacing,
    /// An acknowledgement is due.
    Acknowledgement,
    /// A packet is overdue and counts as lost.
    Loss,
    /// Nothing has been acknowledged for too long.
    Probe,
    /// What was sent is to be protected, or sent a second time.
    Repair,
    /// A packet of a channel is missing for too long.
    Delivery,
    /// The peer is to be told that we are still there.
    Keepalive,
    /// The peer has been silent for too long.
    Silence,
    /// The rate is to be set anew.
    Rate,
    /// The keys are to be renewed, or the old ones forgotten.
    Rekey,
    /// The peer is to be told that the session is over, or it may be forgotten.
    Closing,
    /// The peer's address is in question, or the size of the largest packet.
    Path,
}

/// How a session's peer is reached.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) address: SocketAddr,
    /// What the peer calls this session.
    pub(crate) index: Index,
    pub(crate) limits: Limits,
    /// At which it sends, as it said; 0 if it does not know.
    pub(crate) rate: BitRate,
    /// Whether it wants to hear when its packets arrived; `None` if it does not
    /// know of such things.
    pub(crate) times: Option<bool>,
}

/// A session that is set up.
pub(crate) struct Session {
    pub(crate) peer: Peer,
    /// The same on both sides.
    pub(crate) name: u64,
    keys: Phases,
    rekey: Rekey,
    path: Path,
    /// The path that the session has left, and what was learnt of it.
    left: Option<(SocketAddr, Option<PathMemory>)>,
    pmtu: Pmtu,
    /// On a slow link, how many bytes are sent before the next probe for it.
    mtu_probe_from: u64,
    rng: ChaCha20Rng,
    /// Where the packet came from that is being taken.
    heard_from: SocketAddr,
    keepalive: Duration,
    /// How long the session is idle before it says that it is there: [`Self::keepalive`],
    /// and a random part more.
    idle_for: Duration,
    give_up: Duration,
    sent: SentPackets,
    /// The next number that no packet gets.
    leave_out_at: u64,
    /// Beyond so many bytes in the book of packets sent nothing is sent for the owner …
    most_in_flight: usize,
    /// … and beyond so many the peer breaks the protocol.
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
    /// Second copies of retransmissions, and when they are to be sent.
    copies: VecDeque<(Instant, Cargo)>,
    last_heard: Instant,
    /// When an acknowledgement last said that something more has arrived.
    last_progress: Instant,
    /// When the last packet came that carried more than a question.
    last_carried: Instant,
    /// When the peer was asked whether it is still there.
    asked: Instant,
    last_sent: Instant,
    /// When the last packet left that the peer should acknowledge.
    last_eliciting: Instant,
    next_probe: Instant,
    /// When it was last asked whether anything still arrives.
    doubted_at: Instant,
    probe_pending: bool,
    /// The next question is to arrive even on a path that drops large packets, with what
    /// has come: acknowledgements go with large packets, too.
    careful: bool,
    /// A direction of the link is silent, or both.
    fade: Option<Fade>,
    /// When the last fade ended.
    thawed_at: Instant,
    faded: Faded,
    backoff: Backoff,
    /// Why the session is over for its owner, if it is.
    ended: Option<DownReason>,
    /// The owner knows.
    told: bool,
    closing: Option<Closing>,
    /// The session is to be forgotten.
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

    /// The owner's events, then those of the streams; in the order they came.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if !self.is_usable() {
            return None;
        }
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// Whether [`Self::poll_event`] has something.
    pub(crate) fn has_event(&self) -> bool {
        self.is_usable() && (!self.events.is_empty() || self.streams.has_event())
    }

    /// Whether the session is to be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether its owner can still use it.
    pub(crate) fn is_usable(&self) -> bool {
        self.ended.is_none()
    }

    /// Why the session is over for its owner, when that is news.
    pub(crate) fn take_end(&mut self) -> Option<DownReason> {
        let news = self.ended.filter(|_| !self.told);
        self.told |= news.is_some();
        news
    }

    /// Whether what is sent arrives, and acknowledgements of it return.
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

    /// Bytes held in all, in O(1): every part counts as it goes.
    fn held(&self) -> u64 {
        let (to_send, to_read) = self.streams.held();
        let channels = self.inbound.held() + self.outbound.held();
        let packets = self.sent.held() + self.received.held() + self.copies.len() * ENTRY;
        let fec = self.decoder.held() + self.planner.held();
        to_send + to_read + (self.streams.overhead() + channels + packets + fec) as u64
    }

    /// Whether a packet with this header may be one that was sent on this
    /// session not long ago.
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

    /// Takes what the handshake says of the RTT.
    pub(crate) fn begin_rtt(&mut self, rtt: FirstRtt) {
        self.rtt.begin(rtt);
        self.follow_pace();
    }

    /// The rate at which the endpoint's pacer is to have the session send;
    /// `None` if the session paces itself.
    pub(crate) fn shared_rate(&self) -> Option<BitRate> {
        self.rate.shared()
    }

    /// What is worth remembering of the path.
    pub(crate) fn path_memory(&self, now: Instant) -> Option<PathMemory> {
        self.rate.auto()?.memory(now)
    }

    /// The path in use.
    pub(crate) fn path_key(&self) -> PathKey {
        PathKey::new(self.peer.key, self.peer.address.ip())
    }

    /// Takes what is remembered of the path, before anything is sent there.
    pub(crate) fn remember(&mut self, memory: PathMemory) {
        if let Some(auto) = self.rate.auto_mut() {
            auto.remember(memory);
        }
    }

    /// Has the session share the rate of its probes in a fade with others.
    pub(crate) fn share_probes(&mut self, faded: &Faded) {
        self.faded = faded.clone();
    }

    /// Takes another configured rate; `false` if that needs another session.
    pub(crate) fn configure_rate(&mut self, now: Instant, rate: &Rate) -> bool {
        let taken = self.rate.configure(rate);
        if taken {
            self.rate_changed(now);
        }
        taken
    }

    /// Takes the classes of a configuration, and its settings of the channels there
    /// are. Streams of a class without a `successor` go to the default class.
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

    /// Takes a rate told by the modem.
    pub(crate) fn set_rate(
        &mut self,
        now: Instant,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        let was_off = self.rate.rate().bits_per_second() == 0;
        self.rate.tell(now, rate, valid_for)?;
        if was_off && rate.bits_per_second() > 0 {
            // The link is back, says the modem.
            self.next_probe = self.next_probe.min(now);
        }
        self.rate_changed(now);
        Ok(())
    }

    /// Has everything that depends on the rate follow it.
    fn rate_changed(&mut self, now: Instant) {
        let rate = self.rate.rate();
        self.log.record(now, || LogEvent::Rate { rate });
        self.planner.set_rate(now, rate);
        self.streams.set_unsent_limit(unsent(rate));
        self.follow_pace();
    }

    /// Tells the streams how fast the session is.
    fn follow_pace(&mut self) {
        let (rtt, rates) = (self.rtt.smoothed().max(LEAST_RTT), [self.rate.rate(), self.peer.rate]);
        self.streams.set_pace(Pace { rtt, rates });
    }

    /// When the last authentic packet came.
    pub(crate) fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// How long the answer to a question takes at most, if one of two gets through.
    pub(crate) fn patience(&self) -> Duration {
        self.challenge_delay() * 2
    }

    /// Has the peer acknowledge something soon.
    pub(crate) fn ping(&mut self) {
        self.probe_pending = true;
    }
}

/// Beyond how many bytes of records nothing more is sent that needs one, but probes.
/// Streams have at most `memory` bytes under way; as FEC sources they are kept in the
/// record once more, and headers and record take less than half of a full packet.
/// Packets of channels have no other bound than this.
fn most_in_flight(memory: u64) -> usize {
    usize::try_from(memory + memory / 2).unwrap_or(usize::MAX)
}

/// Beyond how many the peer acknowledges nothing though it is there: half the memory is
/// filled by probes in no less than ten minutes, even if that is 1 MB.
fn most_unacknowledged(memory: u64) -> usize {
    usize::try_from(memory).unwrap_or(usize::MAX).saturating_mul(2)
}

/// The least round-trip time that windows are made for: where packets take less, what a busy
/// gateway takes to read and answer counts.
const LEAST_RTT: Duration = Duration::from_millis(20);

/// How many written bytes a stream may hold unsent at a rate: 50 ms of it.
fn unsent(rate: BitRate) -> u64 {
    rate.bytes_in(Duration::from_millis(50)).get().max(65_536)
}

/// The limits that a configuration sets for the peer.
pub(crate) fn limits(config: &Config) -> Limits {
    let limits = Limits::new(config.memory.get(), config.stream_window.get(), config.max_streams);
    let channels = config.channels.keys().fold(0, |mask, channel| mask | channel.bit());
    Limits { channels, openings: Openings::of_this_version(config.names), ..limits }
}

/// The bytes of IP and UDP headers in front of a datagram to `peer`.
pub(crate) fn ip_udp_overhead(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => 20 + 8,
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}

#[cfg(test)]
mod tests;
