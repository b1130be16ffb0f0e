//! Assembles the status of a gateway from its parts.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use control::protocol::ControlAnswer;
use control::status::{
    AbsentStatus, CompressionStatus, ConnectionBottleneck, ConnectionStatus, DemandStatus,
    GatewayStatus, SessionStatus, StrangerStatus, TrafficStatus,
};
use pep::accounting::ExhaustedAction;
use pep::relay::bottleneck::DirectionEnd;
use pep::traffic::TrafficPolicy;
use slacp::Stranger;
use units::Instant;

use super::super::log;
use super::{GatewayOperations, GatewayView};
use crate::config::keys::{format_public_key, parse_public_key};
use crate::figures::connections::{ConnectionOrigin, LiveConnection};
use crate::hop::Hop;
use crate::intercept::intake::Intake;
use crate::network::nft::policy;
use crate::network::socket_options;
use crate::process::clock;

/// The status of an interception, with the counters of its policies. The role and its services add their
/// parts, and [`GatewayOperations`] the rest.
pub(crate) fn interception_status(
    now: Instant,
    intake: Option<&Intake>,
    policies: &[TrafficPolicy],
) -> GatewayStatus {
    let counts = intake.map(Intake::counts).unwrap_or_default();
    GatewayStatus {
        interception: intake.map(|intake| intake.status(now)),
        policies: policy::status(policies, &counts),
        ..GatewayStatus::default()
    }
}

impl GatewayOperations {
    pub(super) fn status(
        &self,
        now: Instant,
        view: GatewayView<'_>,
        role: GatewayStatus,
        connections: bool,
    ) -> GatewayStatus {
        GatewayStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: self.role,
            pid: std::process::id(),
            host: self.host.clone(),
            file: self.config.file.as_ref().map(|file| file.display().to_string()),
            key: self.key.as_ref().map(format_public_key),
            log_loss: log::loss(),
            uptime_s: now.saturating_since(self.started).as_secs_f64(),
            draining_s: self.draining.map(|drain| drain.left(now).as_secs_f64()),
            reloads: self.reloads,
            workers: view.hop.map_or_else(Vec::new, Hop::workers),
            demand: view.hop.map(|hop| demand(now, hop)),
            sessions: view.hop.map_or_else(Vec::new, |hop| self.sessions(now, hop)),
            absent: self.absent(),
            strangers: view.hop.map_or_else(Vec::new, |hop| strangers(now, hop)),
            traffic: traffic(view),
            memory: self.limits.status(view.live(), view.held()),
            connections: connections.then(|| {
                let live = view.counters.live.all();
                live.iter().map(|entry| self.connection(view.hop, now, entry)).collect()
            }),
            ..role
        }
    }

    /// A hub's terminals without a session.
    fn absent(&self) -> Vec<AbsentStatus> {
        let contacts = self.last_contacts.as_ref();
        contacts.map_or_else(Vec::new, |contacts| {
            contacts.absent(clock::unix_seconds(), &self.peers.connected(false))
        })
    }

    fn sessions(&self, now: Instant, hop: &Hop) -> Vec<SessionStatus> {
        let mut sessions = self.peers.status(now, hop);
        for session in &mut sessions {
            let key = parse_public_key(&session.key).ok();
            session.exhausted =
                key.and_then(|key| self.exhausted(&key)).map(ExhaustedAction::to_string);
            // Last, since the verdict is made of the other fields.
            session.judge();
        }
        sessions
    }

    /// The connections that have moved the most bytes, with the peer of this name or all.
    pub(super) fn connections(
        &self,
        now: Instant,
        view: GatewayView<'_>,
        peer: Option<&str>,
        most: usize,
    ) -> ControlAnswer {
        let sessions = peer.map(|name| self.peers.sessions_named(name));
        let is_wanted = |entry: &LiveConnection| match (&sessions, entry.session) {
            (None, _) => true,
            (Some(sessions), Some(session)) => sessions.contains(&session),
            (Some(_), None) => false,
        };
        // Each entry is locked once, not at every comparison: its counts go on growing.
        let moved = |entry: Arc<LiveConnection>| {
            let state = entry.lock();
            let bytes = state.to_hop.bytes + state.from_hop.bytes;
            drop(state);
            (bytes, entry)
        };
        let live = view.counters.live.all().into_iter().filter(|entry| is_wanted(entry));
        let mut found: Vec<(u64, Arc<LiveConnection>)> = live.map(moved).collect();
        let total = found.len() as u64;
        found.sort_by_key(|(bytes, entry)| (Reverse(*bytes), entry.id));
        let rows = found.iter().take(most);
        let most_moved = rows.map(|(_, entry)| self.connection(view.hop, now, entry)).collect();
        ControlAnswer::Connections { most_moved, total }
    }

    pub(super) fn connection(
        &self,
        hop: Option<&Hop>,
        now: Instant,
        entry: &LiveConnection,
    ) -> ConnectionStatus {
        let state = entry.lock().clone();
        let session = entry.session.and_then(|session| Some((hop?, session)));
        let stream = session.zip(state.stream);
        let stream = stream.and_then(|((hop, session), stream)| hop.stream_stats(session, stream));
        let stream = stream.unwrap_or_default();
        let BottleneckNames { near, far, beyond } = BottleneckNames::of(entry);
        let limit = |bottleneck, otherwise| match bottleneck {
            None => ConnectionBottleneck::Idle,
            Some(DirectionEnd::Socket) => near,
            Some(DirectionEnd::Stream) => otherwise,
        };
        // A stream that the peer's flow control stops waits for the host behind the peer, not for the hop.
        let onto = if session.is_none() || stream.blocked_by_peer {
            far
        } else {
            ConnectionBottleneck::Hop
        };
        ConnectionStatus {
            id: entry.id,
            peer: entry.session.and_then(|session| self.peers.name(session)).unwrap_or_default(),
            client: entry.open.source.to_string(),
            client_claimed: entry.origin == ConnectionOrigin::Peer { verified: false },
            destination: entry.open.destination.to_string(),
            age_s: now.saturating_since(entry.since).as_secs_f64(),
            to_hop_bytes: state.to_hop.bytes,
            from_hop_bytes: state.from_hop.bytes,
            to_hop_limit: limit(state.to_hop.bottleneck(now), onto),
            from_hop_limit: limit(state.from_hop.bottleneck(now), beyond),
            lan_rtt_ms: state.socket.and_then(socket_options::rtt).map(ms),
            wan_rtt_ms: state.far_rtt().map(ms),
            lan_window_segments: state.socket.and_then(socket_options::congestion_window),
            wan_window_segments: state.far_window(),
            hop_rtt_ms: session
                .and_then(|(hop, session)| hop.stats(session))
                .map_or(0.0, |stats| ms(stats.rtt)),
            held_to_send_bytes: stream.unsent + stream.unacknowledged,
            held_to_read_bytes: stream.held_to_read,
            resent_bytes: stream.resent,
            recovered_bytes: stream.recovered,
        }
    }
}

/// Names of the places that can hold a connection up, as seen from this gateway.
struct BottleneckNames {
    /// The host of the TCP connection here.
    near: ConnectionBottleneck,
    /// The host on the other side.
    far: ConnectionBottleneck,
    /// The source of data that does not arrive: from here the hop and the host behind it look alike.
    beyond: ConnectionBottleneck,
}

impl BottleneckNames {
    fn of(entry: &LiveConnection) -> Self {
        match (entry.session, entry.origin) {
            (None, _) => Self {
                near: ConnectionBottleneck::Client,
                far: ConnectionBottleneck::Server,
                beyond: ConnectionBottleneck::Server,
            },
            (Some(_), ConnectionOrigin::Peer { .. }) => Self {
                near: ConnectionBottleneck::Server,
                far: ConnectionBottleneck::Client,
                beyond: ConnectionBottleneck::HopOrClient,
            },
            (Some(_), ConnectionOrigin::Here) => Self {
                near: ConnectionBottleneck::Client,
                far: ConnectionBottleneck::Server,
                beyond: ConnectionBottleneck::HopOrServer,
            },
        }
    }
}

fn strangers(now: Instant, hop: &Hop) -> Vec<StrangerStatus> {
    let mut strangers = hop.strangers(now);
    strangers.sort_by_key(|stranger| Reverse(stranger.last));
    strangers.iter().map(|stranger| stranger_status(now, stranger)).collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn stranger_status(now: Instant, stranger: &Stranger) -> StrangerStatus {
    StrangerStatus::new(now, stranger, stranger.key.as_ref().map(format_public_key))
}

fn demand(now: Instant, hop: &Hop) -> DemandStatus {
    let demand = hop.demand(now);
    let forecasts = hop.forecasts().unwrap_or_default();
    DemandStatus {
        waiting_bytes: demand.waiting.get(),
        foreseen_bytes: demand.foreseen.get(),
        forecasts_used: forecasts.used,
        forecasts_unused: forecasts.unused,
        unused_bytes: forecasts.unused_bytes.get(),
    }
}

fn traffic(view: GatewayView<'_>) -> TrafficStatus {
    let ignored = view.hop.map_or(0, Hop::ignored);
    let compression = view.hop.map(compression).unwrap_or_default();
    view.counters.traffic.status(ignored, view.counters.reasons.all(), compression)
}

fn compression(hop: &Hop) -> CompressionStatus {
    let totals = hop.compressed();
    CompressionStatus {
        streams: totals.streams,
        to_hop_bytes: totals.sent.plain,
        sent_bytes: totals.sent.coded,
        from_hop_bytes: totals.received.plain,
        received_bytes: totals.received.coded,
        malformed: totals.malformed,
    }
}
