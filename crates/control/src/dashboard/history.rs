//! The last hour of a gateway and of its sessions, for the dashboard: figures and events.
//!
//! It is fed with a [`GatewayStatus`] each second, whose differences are the events. It has no clock of
//! its own. Memory is bounded: [`MAX_SESSIONS`] sessions of 23 kB of figures ([`FigureSeries`]), 2 kB
//! for each of at most [`MAX_CLASSES`] classes, and at most [`EVENTS_PER_SESSION`] events. Further
//! sessions have no history.
//!
//! An event that begins and ends between two statuses is not seen, except outages and key renewals,
//! which are counted.

mod events;
mod ring;

use std::collections::BTreeMap;

use units::Instant;

pub(crate) use self::events::{EventTimeline, TimelineEvent, TimelineKind};
pub(crate) use self::ring::{COARSE_S, FigureSeries, SampleRing};
use crate::status::{GatewayStatus, SessionStatus};

/// Maximum number of sessions with a history. Those that ended the longest ago are forgotten first.
pub(crate) const MAX_SESSIONS: usize = 1024;
/// Maximum number of classes of a session with a history: the first that send anything.
pub(crate) const MAX_CLASSES: usize = 8;
/// Maximum events kept of each session.
pub(crate) const EVENTS_PER_SESSION: usize = 100;
/// Maximum events kept of the gateway and all its sessions together, without key renewals.
pub(crate) const GATEWAY_EVENTS: usize = 300;
/// Time after which an ended session is forgotten.
const FORGOTTEN_AFTER_S: u64 = 3600;

/// Figures of a session, in the order of its samples.
pub(crate) const SESSION_FIGURES: [&str; 12] = [
    "told", "rate", "found", "sent", "received", "rtt", "queue", "loss", "lost", "restored",
    "repairs", "up",
];
/// Figures of the gateway: bit/s of connections to the hop and from it (without a hop: up and
/// down), live connections, and bytes held.
pub(crate) const GATEWAY_FIGURES: [&str; 4] = ["to_hop", "from_hop", "connections", "held"];

/// The last hour of a gateway.
#[derive(Debug)]
pub(crate) struct GatewayHistory {
    origin: Instant,
    gateway: FigureSeries<{ GATEWAY_FIGURES.len() }>,
    tracks: BTreeMap<String, SessionTrack>,
    log: EventTimeline,
    last: Option<(Instant, GatewayTotals)>,
}

/// The last hour of the sessions with one peer, which its public key identifies.
#[derive(Debug)]
pub(crate) struct SessionTrack {
    pub(crate) series: FigureSeries<{ SESSION_FIGURES.len() }>,
    /// Bit/s sent of each class that has sent anything, by its name.
    pub(crate) classes: BTreeMap<String, FigureSeries<1>>,
    pub(crate) log: EventTimeline,
    /// Figures of the last second, not rounded.
    pub(crate) now: SessionRates,
    last: SessionStatus,
    at: Instant,
    /// Second of the last status with this session.
    second: u64,
    up: bool,
}

/// Rates of a session over one second, beyond its status.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SessionRates {
    pub(crate) sent_bit_s: f64,
    pub(crate) received_bit_s: f64,
    pub(crate) lost_per_s: f64,
    pub(crate) restored_per_s: f64,
    pub(crate) repair_bit_s: f64,
}

/// Counters and states of the gateway whose differences matter.
#[derive(Debug, Clone, Default)]
struct GatewayTotals {
    to_hop: u64,
    from_hop: u64,
    status: events::GatewayState,
}

impl GatewayHistory {
    /// An empty history, whose seconds count from `origin`.
    pub(crate) fn new(origin: Instant) -> Self {
        Self {
            origin,
            gateway: FigureSeries::new(),
            tracks: BTreeMap::new(),
            log: EventTimeline::new(GATEWAY_EVENTS),
            last: None,
        }
    }

    /// Records a status: its figures, and as events its differences to the last one.
    pub(crate) fn record(&mut self, now: Instant, status: &GatewayStatus) {
        let second = self.second(now);
        self.record_gateway(now, second, status);
        let mut sessions: Vec<&SessionStatus> = status.sessions.iter().collect();
        // While a new session replaces one with the same peer, the new one counts.
        sessions.sort_by(|one, other| {
            one.key.cmp(&other.key).then(one.since_s.total_cmp(&other.since_s))
        });
        sessions.dedup_by(|later, first| later.key == first.key);
        for session in &sessions {
            self.record_session(now, second, session);
        }
        self.end_others(second, &sessions);
    }

    /// Seconds since the origin of this history.
    pub(crate) fn second(&self, now: Instant) -> u64 {
        now.saturating_since(self.origin).as_secs()
    }

    pub(crate) fn gateway(&self) -> &FigureSeries<{ GATEWAY_FIGURES.len() }> {
        &self.gateway
    }

    /// The sessions with the peer of this public key.
    pub(crate) fn track(&self, key: &str) -> Option<&SessionTrack> {
        self.tracks.get(key)
    }

    /// Events of the gateway and all its sessions, without key renewals.
    pub(crate) fn log(&self) -> &EventTimeline {
        &self.log
    }

    fn record_gateway(&mut self, now: Instant, second: u64, status: &GatewayStatus) {
        let traffic = &status.traffic;
        let totals = GatewayTotals {
            to_hop: traffic.to_hop_bytes + traffic.up_bytes,
            from_hop: traffic.from_hop_bytes + traffic.down_bytes,
            status: events::GatewayState::of(status),
        };
        // The first status has no rates.
        let mut sample = [f32::NAN; GATEWAY_FIGURES.len()];
        if let Some((at, last)) = &self.last {
            let past = now.saturating_since(*at).as_secs_f64();
            sample[0] = per_second(8, totals.to_hop, last.to_hop, past) as f32;
            sample[1] = per_second(8, totals.from_hop, last.from_hop, past) as f32;
            totals.status.changes(&last.status, |kind, detail| {
                self.log.add(second, None, kind, detail);
            });
        }
        sample[2] = status.memory.connections as f32;
        sample[3] = status.memory.held_bytes as f32;
        self.gateway.record(second, sample);
        self.last = Some((now, totals));
    }

    fn record_session(&mut self, now: Instant, second: u64, session: &SessionStatus) {
        if !self.tracks.contains_key(&session.key) {
            if !self.make_room() {
                return;
            }
            let track = SessionTrack::new(now, second, session);
            self.tracks.insert(session.key.clone(), track);
        }
        let Self { tracks, log, .. } = self;
        let track = tracks.get_mut(&session.key).expect("it has been inserted");
        track.record(now, second, session, log);
    }

    /// Makes room for one more session. Returns `false` if all sessions are up.
    fn make_room(&mut self) -> bool {
        if self.tracks.len() < MAX_SESSIONS {
            return true;
        }
        let ended = self.tracks.iter().filter(|(_, track)| !track.up);
        let oldest = ended.min_by_key(|(_, track)| track.second).map(|(key, _)| key.clone());
        oldest.is_some_and(|key| self.tracks.remove(&key).is_some())
    }

    /// Ends the sessions that are not among `there`, which is sorted by key.
    fn end_others(&mut self, second: u64, there: &[&SessionStatus]) {
        let Self { tracks, log, .. } = self;
        for (key, track) in tracks.iter_mut() {
            let gone = there.binary_search_by(|session| session.key.cmp(key)).is_err();
            if gone && std::mem::take(&mut track.up) {
                track.add_event(second, log, TimelineKind::Down, String::new());
            }
        }
        tracks.retain(|_, track| track.up || second - track.second <= FORGOTTEN_AFTER_S);
    }
}

impl SessionTrack {
    fn new(at: Instant, second: u64, session: &SessionStatus) -> Self {
        Self {
            series: FigureSeries::new(),
            classes: BTreeMap::new(),
            log: EventTimeline::new(EVENTS_PER_SESSION),
            now: SessionRates::default(),
            last: session.clone(),
            at,
            second,
            // The first record brings it up, which is an event.
            up: false,
        }
    }

    fn add_event(
        &mut self,
        second: u64,
        all: &mut EventTimeline,
        kind: TimelineKind,
        detail: String,
    ) {
        // Each session renews its keys every two minutes, which would push out all other events.
        if kind != TimelineKind::Rekey {
            all.add(second, Some(&self.last), kind, detail.clone());
        }
        self.log.add(second, Some(&self.last), kind, detail);
    }

    fn record(
        &mut self,
        now: Instant,
        second: u64,
        session: &SessionStatus,
        all: &mut EventTimeline,
    ) {
        let past = now.saturating_since(self.at).as_secs_f64();
        // A new session's counters start at zero.
        let is_new = !self.up || session.since_s < past;
        let last = std::mem::replace(&mut self.last, session.clone());
        self.at = now;
        self.now = if is_new {
            SessionRates::default()
        } else {
            SessionRates::between(&last, session, past)
        };
        self.series.record(second, self.now.sample(session));
        self.record_classes(second, (!is_new).then_some(&last), session, past);
        (self.second, self.up) = (second, true);
        if is_new {
            let detail = format!("from {}", session.address);
            return self.add_event(second, all, TimelineKind::Up, detail);
        }
        for (kind, detail) in events::of_session(&last, session) {
            self.add_event(second, all, kind, detail);
        }
    }

    /// Records what the classes have sent since the status `before`, if that is of the same
    /// session.
    fn record_classes(
        &mut self,
        second: u64,
        before: Option<&SessionStatus>,
        session: &SessionStatus,
        past_s: f64,
    ) {
        let classes = &session.classes;
        self.classes.retain(|name, _| classes.iter().any(|class| class.name == *name));
        for class in classes.iter().filter(|class| class.sent_bytes > 0) {
            let is_full = self.classes.len() >= MAX_CLASSES;
            if is_full && !self.classes.contains_key(&class.name) {
                continue;
            }
            // A class that is new in the status started at zero.
            let earlier = before.map(|status| {
                let same = status.classes.iter().find(|earlier| earlier.name == class.name);
                same.map_or(0, |earlier| earlier.sent_bytes)
            });
            let rate = per_second(8, class.sent_bytes, earlier.unwrap_or(class.sent_bytes), past_s);
            let series = self.classes.entry(class.name.clone()).or_insert_with(FigureSeries::new);
            series.record(second, [rate as f32]);
        }
    }
}

impl SessionRates {
    fn between(before: &SessionStatus, after: &SessionStatus, past_s: f64) -> Self {
        let rate = |bits, count: fn(&SessionStatus) -> u64| {
            per_second(bits, count(after), count(before), past_s)
        };
        Self {
            sent_bit_s: rate(8, |status| status.bytes_sent),
            received_bit_s: rate(8, |status| status.bytes_received),
            lost_per_s: rate(1, |status| status.packets_lost),
            restored_per_s: rate(1, |status| status.recovered),
            repair_bit_s: rate(8, |status| status.repair_bytes),
        }
    }

    /// The sample, in the order of [`SESSION_FIGURES`].
    fn sample(&self, session: &SessionStatus) -> [f32; SESSION_FIGURES.len()] {
        let known = |rate: Option<u64>| rate.map_or(f64::NAN, |rate| rate as f64);
        // Nothing is measured in a fade.
        let measured = |delay: f64| if session.reachable { delay } else { f64::NAN };
        [
            known(session.told_bit_s),
            session.rate_bit_s as f64,
            known(session.capacity_bit_s),
            self.sent_bit_s,
            self.received_bit_s,
            measured(session.rtt_ms),
            measured(session.queue_ms),
            session.loss,
            self.lost_per_s,
            self.restored_per_s,
            self.repair_bit_s,
            f64::from(u8::from(session.reachable)),
        ]
        .map(|figure| figure as f32)
    }
}

/// Growth per second of a counter; 0 if no time has passed.
fn per_second(bits: u64, after: u64, before: u64, past_s: f64) -> f64 {
    let growth = after.saturating_sub(before) * bits;
    if past_s > 0.0 { growth as f64 / past_s } else { 0.0 }
}

#[cfg(test)]
mod tests;
