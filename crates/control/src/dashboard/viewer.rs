//! Messages for one viewer: first everything, then the changes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::history::{
    COARSE_S, EventTimeline, FigureSeries, GATEWAY_FIGURES, SESSION_FIGURES, SampleRing,
    SessionTrack, TimelineEvent,
};
use super::state::{ConnectionInterest, DashboardState, ShownConnections};
use crate::Role;
use crate::status::SessionStatus;

/// Sessions per page of the list.
const PAGE_ROWS: usize = 50;

/// A viewer's query: the data that it wants to see.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViewerQuery {
    /// Public key of the session whose details are sent.
    session: Option<String>,
    sort: SortColumn,
    /// Sorts the list in descending order.
    descending: bool,
    /// Restricts the list to sessions whose name or address contains this, in any case.
    filter: String,
    /// Page of the list, from 0.
    page: usize,
}

/// A column to sort the list by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SortColumn {
    #[default]
    Peer,
    Up,
    Rate,
    Sent,
    Received,
    Rtt,
    Queue,
    Loss,
    Streams,
}

impl ViewerQuery {
    /// The connections to show: those of the wanted session, or all of a solo gateway.
    fn interest(&self, state: &DashboardState) -> Option<ConnectionInterest> {
        let of = |key: &String| {
            let found = state.status.sessions.iter().find(|session| session.key == *key);
            found.map(|session| Some(session.peer.clone()))
        };
        match &self.session {
            Some(key) => of(key),
            None => (state.status.role == Role::Solo).then_some(None),
        }
    }
}

/// The messages for one viewer, which has all that was in the earlier ones.
#[derive(Debug)]
pub struct ViewerMessages {
    query: ViewerQuery,
    interest: Option<ConnectionInterest>,
    started: bool,
    rows: SentRows,
    connections: SentRows,
    events: SentEvents,
}

/// Numbers of the last events sent; 0 before the first.
#[derive(Debug, Default)]
struct SentEvents {
    gateway: u64,
    /// Of the session whose details are sent.
    session: u64,
}

impl ViewerMessages {
    /// Begins the messages for a viewer with this query.
    pub fn new(query: ViewerQuery, state: &DashboardState) -> Self {
        Self {
            interest: query.interest(state),
            query,
            started: false,
            rows: SentRows::default(),
            connections: SentRows::default(),
            events: SentEvents::default(),
        }
    }

    /// The connections that the viewer wants to see, if any.
    pub fn interest(&self) -> Option<&ConnectionInterest> {
        self.interest.as_ref()
    }

    /// The next message: JSON, as `page.js` reads it.
    pub fn next(&mut self, state: &DashboardState) -> String {
        let Self { query, interest, started, rows, connections, events } = self;
        let mut message = Map::new();
        message.insert("t".to_owned(), state.second.into());
        message.insert("gateway".to_owned(), gateway(state));
        message.insert("list".to_owned(), list(state, query, rows));
        let series = state.history.gateway();
        message.insert("now".to_owned(), sample(series, &GATEWAY_FIGURES));
        message.insert("events".to_owned(), new_events(state.history.log(), &mut events.gateway));
        if !*started {
            message.insert("history".to_owned(), full_series(series, &GATEWAY_FIGURES));
        }
        let track = query.session.as_deref().and_then(|key| state.history.track(key));
        if let Some(track) = track {
            message.insert("session".to_owned(), session(state, track, query, !*started, events));
        }
        if let Some(found) = interest.as_ref().and_then(|wanted| state.connections.get(wanted)) {
            let second = state.second;
            message.insert("connections".to_owned(), connection_rows(found, second, connections));
        }
        *started = true;
        Value::from(message).to_string()
    }
}

/// The status without its sessions and connections.
fn gateway(state: &DashboardState) -> Value {
    let status = &state.status;
    json!({
        "host": status.host, "role": status.role, "version": status.version,
        "uptime_s": status.uptime_s.floor(), "hubs": status.hubs, "strangers": status.strangers,
        "absent": status.absent.iter().take(PAGE_ROWS).collect::<Vec<_>>(),
        "absent_total": status.absent.len(),
        "draining_s": status.draining_s, "interception": status.interception,
        "tunnel": status.tunnel, "dlep": status.dlep, "demand": status.demand,
        "policies": status.policies, "traffic": status.traffic, "memory": status.memory,
    })
}

/// Details of a session; with its history in the first message.
fn session(
    state: &DashboardState,
    track: &SessionTrack,
    query: &ViewerQuery,
    first: bool,
    events: &mut SentEvents,
) -> Value {
    let key = query.session.as_ref();
    let status = state.status.sessions.iter().find(|session| Some(&session.key) == key);
    let mut value = json!({
        "status": status,
        "now": sample(&track.series, &SESSION_FIGURES),
        "events": new_events(&track.log, &mut events.session),
    });
    if first {
        value["history"] = full_series(&track.series, &SESSION_FIGURES);
    }
    for (name, series) in &track.classes {
        add_class(&mut value, &format!("class {name}"), series);
    }
    value
}

/// Adds a class's figure to those of its session.
fn add_class(session: &mut Value, figure: &str, series: &FigureSeries<1>) {
    session["now"][figure] = sample(series, &[figure])[figure].take();
    if let Some(history) = session.get_mut("history") {
        let mut own = full_series(series, &[figure]);
        for range in ["fine", "coarse"] {
            history[range]["figures"][figure] = own[range]["figures"][figure].take();
        }
    }
}

/// The events that were not sent yet.
fn new_events(log: &EventTimeline, sent: &mut u64) -> Value {
    let events: Vec<&TimelineEvent> = log.after(*sent).collect();
    *sent = log.last_id();
    json!(events)
}

/// A whole series, for the first message: the last ten minutes by the second, and the last hour.
fn full_series<const N: usize>(series: &FigureSeries<N>, names: &[&str; N]) -> Value {
    json!({ "fine": ring(series.fine(), names, 1), "coarse": ring(series.coarse(), names, COARSE_S) })
}

fn ring<const N: usize>(ring: &SampleRing<N>, names: &[&str; N], step_s: u64) -> Value {
    let figure = |(number, name): (usize, &&str)| {
        let values: Vec<Value> = ring.figure(number).map(|value| rounded(value.into())).collect();
        ((*name).to_owned(), Value::from(values))
    };
    let figures: Map<String, Value> = names.iter().enumerate().map(figure).collect();
    json!({ "last": ring.last_slot(), "step_s": step_s, "figures": figures })
}

/// The last sample of a series.
fn sample<const N: usize>(series: &FigureSeries<N>, names: &[&str; N]) -> Value {
    let figures = series.latest().map(|figure| rounded(f64::from(figure)));
    let pairs = names.iter().zip(figures);
    pairs.map(|(name, value)| ((*name).to_owned(), value)).collect::<Map<_, _>>().into()
}

/// Rounds to three significant digits, which are what the page shows; null without a value.
fn rounded(value: f64) -> Value {
    if value == 0.0 {
        return 0.into();
    }
    if !value.is_finite() {
        return Value::Null;
    }
    let digits = value.abs().log10().floor() as i32 - 2;
    if digits >= 0 {
        let unit = 10f64.powi(digits);
        return ((value / unit).round() as i64).saturating_mul(unit as i64).into();
    }
    let unit = 10f64.powi(-digits);
    ((value * unit).round() / unit).into()
}

/// The wanted page of the list of sessions.
fn list(state: &DashboardState, query: &ViewerQuery, sent: &mut SentRows) -> Value {
    // Filtered, sorted and paged here: a hub may have thousands of sessions, and a viewer gets one page a
    // second at most.
    let needle = query.filter.to_lowercase();
    let matches = |session: &&SessionStatus| {
        needle.is_empty()
            || session.peer.to_lowercase().contains(&needle)
            || session.address.contains(&needle)
    };
    let keyed = |session| (figure(state, query.sort, session), session);
    let matching = state.status.sessions.iter().filter(matches);
    let mut found: Vec<(f64, &SessionStatus)> = matching.map(keyed).collect();
    found.sort_by(|(one, first), (other, second)| {
        let order = one.total_cmp(other);
        let order = order.then_with(|| first.peer.cmp(&second.peer));
        let order = if query.descending { order.reverse() } else { order };
        // Several sessions may have one name, but not one key: the order is total, so pages do not overlap.
        order.then_with(|| first.key.cmp(&second.key))
    });
    let page = found.iter().skip(query.page.saturating_mul(PAGE_ROWS)).take(PAGE_ROWS);
    let rows = page.map(|(_, session)| (session.key.clone(), row(state, session)));
    json!({
        "total": state.status.sessions.len(), "found": found.len(), "page": PAGE_ROWS,
        "rows": sent.changes(rows.collect()),
    })
}

/// The value to sort the list by. Equal ones are sorted by name.
fn figure(state: &DashboardState, sort: SortColumn, session: &SessionStatus) -> f64 {
    let now = || state.history.track(&session.key).map(|track| track.now).unwrap_or_default();
    match sort {
        SortColumn::Peer => 0.0,
        SortColumn::Up => f64::from(u8::from(session.reachable)),
        SortColumn::Rate => session.rate_bit_s as f64,
        SortColumn::Sent => now().sent_bit_s,
        SortColumn::Received => now().received_bit_s,
        SortColumn::Rtt => session.rtt_ms,
        SortColumn::Queue => session.queue_ms,
        SortColumn::Loss => session.loss,
        SortColumn::Streams => session.streams as f64,
    }
}

/// A session's row in the list, without its key.
fn row(state: &DashboardState, session: &SessionStatus) -> Value {
    let now = state.history.track(&session.key).map(|track| track.now).unwrap_or_default();
    json!({
        "peer": session.peer, "up": session.reachable, "rate": rounded(session.rate_bit_s as f64),
        "verdict": session.verdict,
        "sent": rounded(now.sent_bit_s), "received": rounded(now.received_bit_s),
        "rtt": rounded(session.rtt_ms), "queue": rounded(session.queue_ms),
        "loss": rounded(session.loss), "streams": session.streams,
    })
}

/// The connections of a session, as rows.
fn connection_rows(found: &ShownConnections, second: u64, sent: &mut SentRows) -> Value {
    let rows = found.most_moved.iter().map(|connection| {
        let mut row = json!(connection);
        // The age would change each second; the start does not.
        if let Some(fields) = row.as_object_mut() {
            let age = fields.remove("age_s").and_then(|age| age.as_f64()).unwrap_or_default();
            fields.insert("since".to_owned(), (second as i64 - age.round() as i64).into());
            fields.retain(|name, _| !["peer", "hop_rtt_ms"].contains(&&**name));
            for name in ["lan_rtt_ms", "wan_rtt_ms"] {
                if let Some(time) = fields.get(name).and_then(Value::as_f64) {
                    fields.insert(name.to_owned(), rounded(time));
                }
            }
        }
        (connection.id.to_string(), row)
    });
    json!({ "total": found.total, "rows": sent.changes(rows.collect()) })
}

/// The rows of a table that a viewer has.
#[derive(Debug, Default)]
struct SentRows {
    order: Vec<String>,
    rows: BTreeMap<String, Value>,
}

impl SentRows {
    /// Replaces the rows. Returns those that are new or changed, by name, and the order of all if
    /// it has changed. Rows that are not in the order are gone.
    fn changes(&mut self, rows: Vec<(String, Value)>) -> Value {
        let order: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
        let mut changed = Map::new();
        let mut kept = BTreeMap::new();
        for (name, row) in rows {
            if self.rows.get(&name) != Some(&row) {
                changed.insert(name.clone(), row.clone());
            }
            kept.insert(name, row);
        }
        self.rows = kept;
        let mut value = json!({ "changed": changed });
        if self.order != order {
            value["order"] = json!(order);
            self.order = order;
        }
        value
    }
}

#[cfg(test)]
mod tests;
