//! One session: packets in, packets out, between a terminal and a hub
//! (`docs/slacp.md`).

mod receive;
mod send;
mod time;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use units::{ByteCount, Instant};

use crate::fec::Decoder;
use crate::flow::Limits;
use crate::handshake::Keys;
use crate::loss::LossMeter;
use crate::packet::Index;
use crate::planner::Planner;
use crate::received::Received;
use crate::rtt::Rtt;
use crate::sent::SentPackets;
use crate::stats::Stats;
use crate::streams::Streams;
use crate::{Config, Event, PublicKey};

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
    /// The tail of what was sent is to be protected.
    Repair,
    /// The peer is to be told that we are still there.
    Keepalive,
    /// The peer has been silent for too long.
    Silence,
}

/// How a session's peer is reached.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) address: SocketAddr,
    /// What the peer calls this session.
    pub(crate) index: Index,
    pub(crate) limits: Limits,
}

/// A session that is set up.
pub(crate) struct Session {
    pub(crate) peer: Peer,
    /// The same on both sides.
    pub(crate) name: u64,
    keys: Keys,
    mtu: usize,
    keepalive: Duration,
    give_up: Duration,
    sent: SentPackets,
    received: Received,
    rtt: Rtt,
    loss: LossMeter,
    pub(crate) streams: Streams,
    decoder: Decoder,
    planner: Planner,
    last_heard: Instant,
    last_sent: Instant,
    /// When the last packet left that the peer should acknowledge.
    last_eliciting: Instant,
    next_probe: Instant,
    probe_pending: bool,
    reachable: bool,
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
        rtt: Option<Duration>,
    ) -> Self {
        let limits = limits(config);
        let unsent = config.rate.bytes_in(Duration::from_millis(50)).get().max(65_536);
        let mut estimate = Rtt::new();
        if let Some(rtt) = rtt {
            estimate.update(rtt, Duration::ZERO);
        }
        Self {
            name: keys.name,
            keys,
            mtu: usize::from(config.mtu),
            keepalive: config.keepalive,
            give_up: config.give_up,
            sent: SentPackets::default(),
            received: Received::new(),
            rtt: estimate,
            loss: LossMeter::default(),
            streams: Streams::new(u64::from(opens_odd), limits, peer.limits, unsent),
            peer,
            decoder: Decoder::new(usize::try_from(limits.memory / 2).unwrap_or(usize::MAX)),
            planner: Planner::new(config.rate),
            last_heard: now,
            last_sent: now,
            last_eliciting: now,
            next_probe: now,
            probe_pending: false,
            reachable: true,
            over: false,
            settled_told: 0,
            settled_told_at: now,
            stats: Stats::default(),
            events: VecDeque::new(),
        }
    }

    /// The owner's events, then those of the streams; in the order they came.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.streams.poll_event())
    }

    /// Whether the peer has been given up or broke the protocol.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn is_reachable(&self) -> bool {
        self.reachable
    }

    pub(crate) fn stats(&self) -> Stats {
        let (to_send, to_read) = self.streams.held();
        Stats {
            rtt: self.rtt.smoothed(),
            loss: self.loss.rate(),
            streams: self.streams.len(),
            held_to_send: ByteCount::new(to_send),
            held_to_read: ByteCount::new(to_read),
            ..self.stats.clone()
        }
    }

    /// Takes the time that the handshake took as the first estimate.
    pub(crate) fn assume_rtt(&mut self, rtt: Duration) {
        self.rtt.update(rtt, Duration::ZERO);
    }

    /// Has the peer acknowledge something soon.
    pub(crate) fn ping(&mut self) {
        self.probe_pending = true;
    }
}

/// The limits that a configuration sets for the peer.
pub(crate) fn limits(config: &Config) -> Limits {
    Limits::new(config.memory.get(), config.stream_window.get(), config.max_streams)
}

/// The bytes of IP and UDP headers in front of a datagram to `peer`.
pub(crate) fn ip_udp_overhead(peer: SocketAddr) -> usize {
    match peer {
        SocketAddr::V4(_) => 20 + 8,
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}
