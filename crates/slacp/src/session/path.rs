//! One path of a session: a link with an address at each end, and all that belongs to it alone.
//!
//! Keys, packet numbers, recovery, rate, packet size and timers are a path's, as if it were a
//! session. What the paths carry is in [`SharedState`]; a path borrows it to handle an input or to
//! build a packet.

mod acks;
mod discovery;
mod doubt;
mod keys;
mod liveness;
mod membership;
mod outage;
mod payload;
mod rate;
mod receive;
mod receiver;
mod send;
mod sender;
mod stretch;
mod timers;

use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use units::{BitRate, ByteCount, Instant};

use self::discovery::PathDiscovery;
use self::keys::KeySchedule;
use self::liveness::{ActivityTimes, KeepaliveTimer, ProbeTimer};
use self::membership::LinkMembership;
use self::outage::OutageState;
use self::rate::LinkWatch;
use self::receiver::ReceiveSide;
use self::sender::SendSide;
pub(crate) use self::stretch::PacketBatch;
use super::{Peer, SharedState, ip_udp_overhead, limits};
use crate::event::log::EventLog;
use crate::event::stats::{LinkCounters, SessionStats};
use crate::keys::phases::{HandshakeKeys, KeyPhases};
use crate::keys::secret::{Secret, draw};
use crate::rate::ecn::Marking;
use crate::rate::{Auto, Control};
use crate::recovery::LossDetection;
use crate::recovery::fec::{REPAIR_HEAD, SHARD_OVERHEAD};
use crate::recovery::path::loss::LossMeter;
use crate::recovery::path::rtt::{FirstRtt, RttEstimator};
use crate::wire::frame::{self, CHANNEL_SIZE};
use crate::wire::packet::{Index, PacketHeader, TAG};
use crate::{Config, Event, LinkStats};

/// The far end of a path, and what the handshake over it told about the peer.
pub(super) struct RemoteEnd {
    pub(super) address: SocketAddr,
    /// The peer's index for packets on this path.
    pub(super) index: Index,
    /// The peer's announced sending rate; 0 if the peer does not know it.
    pub(super) rate: BitRate,
    /// See [`Peer::times`].
    pub(super) times: Option<bool>,
    /// The peer reports the ECN codepoints it receives.
    pub(super) ecn: bool,
}

/// A path of a session.
pub(crate) struct SessionPath {
    pub(super) remote: RemoteEnd,
    pub(super) keys: KeySchedule,
    pub(super) discovery: PathDiscovery,
    pub(super) rtt: RttEstimator,
    pub(super) loss: LossMeter,
    pub(super) rate: Control,
    /// Maximum burst, if it is limited ([`Config::burst`]).
    pub(super) burst: Option<ByteCount>,
    pub(super) marking: Marking,
    pub(super) sender: SendSide,
    pub(super) receiver: ReceiveSide,
    pub(super) activity: ActivityTimes,
    pub(super) keepalive: KeepaliveTimer,
    pub(super) probes: ProbeTimer,
    pub(super) outage: OutageState,
    /// The link below has no room for new data.
    pub(super) held_back: bool,
    /// Its state as one link among several; `None` if the session cannot get further links.
    pub(super) membership: Option<Box<LinkMembership>>,
    pub(super) rng: ChaCha20Rng,
    pub(super) counters: LinkCounters,
    pub(super) watch: LinkWatch,
    /// Only the first path of a session has a log: packet numbers of paths cannot be compared.
    pub(super) log: EventLog,
}

impl SessionPath {
    /// Creates the path over which a handshake with `peer` has led to these keys. The terminal
    /// `renews_keys`.
    pub(crate) fn new(
        now: Instant,
        config: &Config,
        keys: HandshakeKeys,
        peer: &Peer,
        renews_keys: bool,
        first_rtt: Option<FirstRtt>,
        seed: &Secret,
    ) -> Self {
        let link_layer = config.link_layer && peer.link_layer;
        let mut rate = Control::new(&config.rate, config.law);
        rate.limit_bursts(config.burst);
        let mut rtt = RttEstimator::new();
        if let Some(first) = first_rtt {
            rtt.init_from_handshake(first);
        }
        // The order of these draws decides what a seed does: a failing test is replayed by its
        // seed.
        let mut rng = ChaCha20Rng::from_seed(**seed);
        let keepalive = KeepaliveTimer::new(now, config.keepalive, &mut rng);
        let phases = KeyPhases::new(keys, renews_keys, &draw(&mut rng));
        let recovery = if link_layer { LossDetection::Ordered } else { LossDetection::Reordering };
        let sender = SendSide::new(now, config, &peer.limits, (rate.rate(), recovery), &mut rng);
        let Peer { address, index, rate: announced, times, ecn, .. } = *peer;
        Self {
            remote: RemoteEnd { address, index, rate: announced, times, ecn },
            keys: KeySchedule::new(now, config, phases),
            discovery: PathDiscovery::new(address, config.mtu, link_layer),
            rtt,
            loss: LossMeter::default(),
            // A configured rate does not yield to congestion, so ECN needs a measured one.
            marking: Marking::new(config.ecn && ecn && rate.auto().is_some()),
            rate,
            burst: config.burst,
            sender,
            receiver: ReceiveSide::new(limits(config).memory, recovery),
            activity: ActivityTimes::new(now),
            keepalive,
            probes: ProbeTimer::new(now),
            outage: OutageState::new(now, config.give_up),
            held_back: false,
            membership: None,
            rng,
            counters: LinkCounters::default(),
            watch: LinkWatch::default(),
            log: EventLog::new(config.event_log),
        }
    }

    /// Initialises the RTT from the handshake.
    pub(crate) fn begin_rtt(&mut self, rtt: FirstRtt) {
        self.rtt.init_from_handshake(rtt);
    }

    /// Bytes held for this path alone.
    pub(super) fn held(&self) -> u64 {
        (self.sender.held() + self.receiver.held()) as u64
    }

    /// Returns whether a packet with this header may recently have been sent on this path.
    pub(super) fn may_have_sent(&self, header: &PacketHeader) -> bool {
        let number = header.number(self.sender.sent.next_number());
        header.receiver == self.remote.index && self.sender.may_have_sent(number)
    }

    /// The size of the longest channel packet that fits into one packet of the hop, together with
    /// the announcement of the channel, whatever the lengths of header and frame.
    pub(super) fn longest_whole_packet(&self, shared: &SharedState) -> usize {
        let around = ip_udp_overhead(self.remote.address) + TAG + PacketHeader::MAX_LEN;
        // A repair of the packet must fit into a packet of the same size; a link layer does not
        // protect new data.
        let repair = if shared.link_layer { 0 } else { REPAIR_HEAD + SHARD_OVERHEAD };
        let frame = CHANNEL_SIZE + frame::ChannelPacket::MAX_HEAD;
        // Until a probe fails, the configured MTU is assumed, which usually passes.
        self.discovery.pmtu.likely().saturating_sub(around + repair + frame)
    }

    /// The current values of the path, without the counters that are sums over all paths.
    pub(super) fn stats(&self) -> SessionStats {
        let auto = self.rate.auto();
        let measuring = self.rate.measuring();
        let received = self.receiver.ecn.counts();
        SessionStats {
            rtt: self.rtt.smoothed(),
            rate: self.rate.rate(),
            rate_state: self.rate.state(),
            overload: self.rate.overload().copied(),
            capacity: auto.and_then(Auto::capacity),
            queue: auto.map(Auto::queue).unwrap_or_default(),
            min_rtt: auto.and_then(Auto::min_rtt),
            padding_left: measuring.map_or(0, Auto::padding_left),
            impossible_times: measuring.map_or(0, Auto::impossible_times),
            ecn: self.marking.state(),
            ect_sent: self.marking.sent(),
            ce_reported: measuring.map_or(0, Auto::marked),
            ect_received: received.ect0,
            ce_received: received.ce,
            loss: self.loss.rate(),
            key_changes: self.keys.generation(),
            packet_size: ByteCount::new(self.discovery.pmtu.size() as u64),
            log_overwritten: self.log.overwritten(),
            capacity_falls: self.counters.capacity_falls,
            ..SessionStats::default()
        }
    }

    pub(super) fn link_stats(&self) -> LinkStats {
        LinkStats {
            link: self.link().unwrap_or(0),
            address: self.remote.address,
            works: self.is_working(),
            rtt: self.rtt.smoothed(),
            rate: self.rate.rate(),
            loss: self.loss.rate(),
            bytes_sent: self.counters.bytes_sent,
            bytes_received: self.counters.bytes_received,
            packets_lost: self.counters.packets_lost,
        }
    }

    /// Reports an event about the path to the owner, who only hears of the first one.
    pub(super) fn report(&self, shared: &mut SharedState, event: Event) {
        if self.is_first() {
            shared.events.push_back(event);
        }
    }

    /// Reports that the path has failed, works again or has moved. With several links the session
    /// tells the owner instead, for all of them together.
    pub(super) fn report_reachability(&self, shared: &mut SharedState, event: Event) {
        if !self.has_siblings() {
            shared.events.push_back(event);
        }
    }
}
