//! Events of a gateway and its sessions, for the dashboard's time line.

use std::collections::VecDeque;

use pep::admission::BypassReason;
use serde::Serialize;
use units::BitRate;

use crate::status::{GatewayStatus, SessionStatus};

/// An event on the time line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TimelineEvent {
    /// Number in its log, strictly increasing.
    pub(crate) id: u64,
    /// Second on the history's clock.
    pub(crate) t: u64,
    /// Name of the session's peer; `None` for the gateway itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    /// Public key of the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    pub(crate) kind: TimelineKind,
    /// Details for human readers; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TimelineKind {
    Up,
    Down,
    /// The peer has ceased to answer: the link fades.
    Fade,
    /// The peer answers again: the fade is over.
    FadeEnd,
    /// The peer has a new address: a hand-over.
    Moved,
    /// The session has new keys.
    Rekey,
    /// Losses lower a configured or reported rate.
    Tripped,
    /// The configured or reported rate holds again.
    Restored,
    /// The modem reports another rate, or has stopped reporting one.
    Told,
    /// A configured or reported rate exceeds the link.
    Overload,
    /// The rate no longer exceeds the link.
    OverloadEnd,
    /// The measured capacity of the link has fallen.
    CapacityFall,
    /// New connections pass unaccelerated from now on.
    Bypass,
    /// New connections are intercepted again.
    BypassEnd,
    Reload,
    /// The gateway is draining: no new connections.
    Drain,
}

/// The last events, in bounded memory.
#[derive(Debug)]
pub(crate) struct EventTimeline {
    events: VecDeque<TimelineEvent>,
    next: u64,
    most: usize,
}

impl EventTimeline {
    pub(crate) fn new(most: usize) -> Self {
        Self { events: VecDeque::new(), next: 1, most }
    }

    pub(crate) fn add(
        &mut self,
        t: u64,
        session: Option<&SessionStatus>,
        kind: TimelineKind,
        detail: String,
    ) {
        if self.events.len() == self.most {
            self.events.pop_front();
        }
        let peer = session.map(|session| session.peer.clone());
        let key = session.map(|session| session.key.clone());
        self.events.push_back(TimelineEvent { id: self.next, t, peer, key, kind, detail });
        self.next += 1;
    }

    /// The events after number `id`, the oldest first.
    pub(crate) fn after(&self, id: u64) -> impl Iterator<Item = &TimelineEvent> {
        self.events.iter().skip_while(move |event| event.id <= id)
    }

    /// Number of the last event; 0 without one.
    pub(crate) fn last_id(&self) -> u64 {
        self.next - 1
    }
}

/// Finds the events of a session between two statuses.
pub(super) fn of_session(
    before: &SessionStatus,
    after: &SessionStatus,
) -> Vec<(TimelineKind, String)> {
    let mut found = Vec::new();
    let mut tell = |kind, detail: String| found.push((kind, detail));
    tell_fades(before, after, &mut tell);
    if before.address != after.address {
        tell(TimelineKind::Moved, format!("{} to {}", before.address, after.address));
    }
    if before.key_changes != after.key_changes {
        tell(TimelineKind::Rekey, String::new());
    }
    tell_rates(before, after, &mut tell);
    found
}

/// Tells when the peer ceased to answer, and when it answered again.
fn tell_fades(
    before: &SessionStatus,
    after: &SessionStatus,
    tell: &mut impl FnMut(TimelineKind, String),
) {
    let outages = after.outages.saturating_sub(before.outages);
    // The end of an earlier fade goes first: another one may have come since.
    if !before.reachable && after.reachable {
        tell(TimelineKind::FadeEnd, String::new());
    }
    // A fade shorter than the interval of statuses shows only in the counter.
    if outages > 0 {
        tell(
            TimelineKind::Fade,
            if after.reachable { "under a second".to_owned() } else { String::new() },
        );
    }
}

/// Tells the changes of the rate and of the capacity that it meets.
fn tell_rates(
    before: &SessionStatus,
    after: &SessionStatus,
    tell: &mut impl FnMut(TimelineKind, String),
) {
    match (&before.overload, &after.overload) {
        (None, Some(_)) => tell(TimelineKind::Overload, after.verdict.clone()),
        (Some(_), None) => tell(TimelineKind::OverloadEnd, String::new()),
        _ => {}
    }
    if after.capacity_falls > before.capacity_falls {
        let now =
            after.capacity_bit_s.map(|rate| format!("now {}", BitRate::from_bits_per_second(rate)));
        tell(TimelineKind::CapacityFall, now.unwrap_or_default());
    }
    let tripped = |session: &SessionStatus| session.rate_state.as_deref() == Some("tripped");
    match (tripped(before), tripped(after)) {
        (false, true) => {
            tell(TimelineKind::Tripped, format!("sends at {} bit/s", after.rate_bit_s));
        }
        (true, false) => {
            tell(TimelineKind::Restored, format!("sends at {} bit/s", after.rate_bit_s));
        }
        _ => {}
    }
    if before.told_bit_s != after.told_bit_s {
        let rate = match after.told_bit_s {
            Some(rate) => format!("{rate} bit/s"),
            None => "no rate".to_owned(),
        };
        tell(TimelineKind::Told, rate);
    }
}

/// States of a gateway whose changes are events.
#[derive(Debug, Clone, Default)]
pub(super) struct GatewayState {
    bypass: Option<BypassReason>,
    reloads: u64,
    drains: bool,
}

impl GatewayState {
    pub(super) fn of(status: &GatewayStatus) -> Self {
        Self {
            bypass: status.interception.as_ref().and_then(|interception| interception.why),
            reloads: status.reloads,
            drains: status.draining_s.is_some(),
        }
    }

    pub(super) fn changes(&self, before: &Self, mut tell: impl FnMut(TimelineKind, String)) {
        match (before.bypass, self.bypass) {
            (was, is) if was == is => {}
            (_, Some(why)) => tell(TimelineKind::Bypass, why.as_str().to_owned()),
            (_, None) => tell(TimelineKind::BypassEnd, String::new()),
        }
        if before.reloads != self.reloads {
            tell(TimelineKind::Reload, String::new());
        }
        if !before.drains && self.drains {
            tell(TimelineKind::Drain, String::new());
        }
    }
}
