//! A history is fed with statuses at given times.

use std::time::Duration;

use pep::admission::BypassReason;

use super::*;
use crate::status::{ClassStatus, InterceptionStatus};

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

/// A session that has been up for `since_s`.
fn session(key: &str, since_s: f64) -> SessionStatus {
    SessionStatus {
        key: key.to_owned(),
        peer: format!("ship {key}"),
        address: "192.0.2.1:5900".to_owned(),
        since_s,
        reachable: true,
        ..SessionStatus::default()
    }
}

fn status(sessions: Vec<SessionStatus>) -> GatewayStatus {
    GatewayStatus { sessions, ..GatewayStatus::default() }
}

fn kinds(log: &EventTimeline) -> Vec<TimelineKind> {
    log.after(0).map(|event| event.kind).collect()
}

/// The figure of the last second.
fn figure(history: &GatewayHistory, key: &str, name: &str) -> f32 {
    let place = SESSION_FIGURES.iter().position(|figure| *figure == name).unwrap();
    history.track(key).unwrap().series.latest()[place]
}

#[test]
fn rates_are_differences_of_counters() {
    let mut history = GatewayHistory::new(at(100.0));
    let mut one = session("a", 50.0);
    history.record(at(100.0), &status(vec![one.clone()]));
    assert_eq!(figure(&history, "a", "sent"), 0.0, "what came before is not counted");
    one.bytes_sent += 1000;
    one.packets_lost += 4;
    one.since_s += 2.0;
    history.record(at(102.0), &status(vec![one.clone()]));
    assert_eq!(history.second(at(102.0)), 2);
    let figures = ["sent", "received", "lost", "up"].map(|name| figure(&history, "a", name));
    assert_eq!(figures, [4000.0, 0.0, 2.0, 1.0]);
    assert!(figure(&history, "a", "told").is_nan(), "no modem has told a rate");
}

#[test]
fn nothing_is_measured_while_the_peer_does_not_answer() {
    let mut history = GatewayHistory::new(at(0.0));
    let faded = SessionStatus { rtt_ms: 600.0, reachable: false, ..session("a", 50.0) };
    history.record(at(0.0), &status(vec![faded]));
    let unknown = ["rtt", "queue"].map(|name| figure(&history, "a", name).is_nan());
    assert_eq!((unknown, figure(&history, "a", "up")), ([true; 2], 0.0));
}

#[test]
fn a_session_that_came_up_again_begins_at_zero() {
    let mut history = GatewayHistory::new(at(0.0));
    let mut one = session("a", 50.0);
    one.bytes_sent = 1_000_000;
    history.record(at(0.0), &status(vec![one]));
    let mut new = session("a", 0.3);
    new.bytes_sent = 2_000_000;
    history.record(at(1.0), &status(vec![new]));
    assert_eq!(figure(&history, "a", "sent"), 0.0);
    assert_eq!(kinds(history.log()), [TimelineKind::Up, TimelineKind::Up]);
}

#[test]
fn while_two_sessions_with_a_peer_overlap_the_new_one_counts() {
    let mut history = GatewayHistory::new(at(0.0));
    let (mut old, mut new) = (session("a", 50.0), session("a", 0.5));
    (old.rtt_ms, new.rtt_ms) = (1.0, 2.0);
    history.record(at(0.0), &status(vec![old.clone(), new.clone()]));
    assert_eq!(figure(&history, "a", "rtt"), 2.0);
    history.record(at(1.0), &status(vec![new, old]));
    assert_eq!(figure(&history, "a", "rtt"), 2.0);
}

#[test]
fn changes_of_a_session_are_events_of_it_and_of_the_gateway() {
    let mut history = GatewayHistory::new(at(0.0));
    let mut one = session("a", 50.0);
    let mut second = 0.0;
    let mut step = |history: &mut GatewayHistory,
                    one: &mut SessionStatus,
                    change: &dyn Fn(&mut SessionStatus)| {
        change(one);
        second += 1.0;
        one.since_s += 1.0;
        history.record(at(second), &status(vec![one.clone()]));
    };
    step(&mut history, &mut one, &|_| ());
    step(&mut history, &mut one, &|session| (session.reachable, session.outages) = (false, 1));
    step(&mut history, &mut one, &|_| ());
    step(&mut history, &mut one, &|session| session.reachable = true);
    step(&mut history, &mut one, &|session| session.address = "198.51.100.9:1".to_owned());
    step(&mut history, &mut one, &|session| session.key_changes = 1);
    step(&mut history, &mut one, &|session| session.rate_state = Some("tripped".to_owned()));
    step(&mut history, &mut one, &|session| session.rate_state = None);
    step(&mut history, &mut one, &|session| session.told_bit_s = Some(20_000_000));
    // It begins and ends between two statuses.
    step(&mut history, &mut one, &|session| session.outages = 2);
    history.record(at(20.0), &status(vec![]));
    use TimelineKind::*;
    let all = [Up, Fade, FadeEnd, Moved, Rekey, Tripped, Restored, Told, Fade, Down];
    let track = history.track("a").unwrap();
    assert_eq!(kinds(&track.log), all);
    assert_eq!(
        kinds(history.log()),
        all.into_iter().filter(|kind| *kind != Rekey).collect::<Vec<_>>()
    );
    let moved = track.log.after(0).find(|event| event.kind == Moved).unwrap();
    assert_eq!((moved.t, moved.peer.as_deref()), (5, Some("ship a")));
    assert_eq!(moved.detail, "192.0.2.1:5900 to 198.51.100.9:1");
    assert_eq!(track.log.after(moved.id).count(), 6);
}

#[test]
fn changes_of_the_gateway_are_events() {
    let mut history = GatewayHistory::new(at(0.0));
    let mut status = GatewayStatus::default();
    let mut second = 0.0;
    let mut step = |status: &GatewayStatus| {
        second += 1.0;
        history.record(at(second), status);
    };
    step(&status);
    let interception = |on: bool| {
        let why = (!on).then_some(BypassReason::PeerUnreachable);
        Some(InterceptionStatus { on, why, ..InterceptionStatus::default() })
    };
    status.interception = interception(false);
    step(&status);
    step(&status);
    status.interception = interception(true);
    step(&status);
    status.reloads = 1;
    step(&status);
    status.draining_s = Some(0.0);
    step(&status);
    assert_eq!(
        kinds(history.log()),
        [TimelineKind::Bypass, TimelineKind::BypassEnd, TimelineKind::Reload, TimelineKind::Drain]
    );
    assert_eq!(history.log().after(0).next().unwrap().detail, "peer-unreachable");
}

#[test]
fn memory_is_bounded_for_any_number_of_sessions_and_events() {
    let mut history = GatewayHistory::new(at(0.0));
    let crowd = |from: usize| -> Vec<_> {
        (from..from + MAX_SESSIONS).map(|number| session(&number.to_string(), 1.0)).collect()
    };
    history.record(at(0.0), &status(crowd(0)));
    // No more are followed while these live, then they make room.
    let more = [crowd(0), crowd(MAX_SESSIONS)].concat();
    history.record(at(1.0), &status(more));
    assert_eq!(history.tracks.len(), MAX_SESSIONS);
    history.record(at(2.0), &status(vec![]));
    history.record(at(3.0), &status(crowd(MAX_SESSIONS)));
    assert_eq!(history.tracks.len(), MAX_SESSIONS);
    assert!(history.track("0").is_none() && history.track("2047").is_some());
    assert_eq!(history.log().after(0).count(), GATEWAY_EVENTS);
    let mut flaps = session("2047", 9.0);
    for second in 4..300 {
        flaps.key_changes += 1;
        flaps.since_s += 1.0;
        history.record(at(f64::from(second)), &status(vec![flaps.clone()]));
    }
    assert_eq!(history.track("2047").unwrap().log.after(0).count(), EVENTS_PER_SESSION);
    // An hour after their end the others are forgotten.
    history.record(at(3700.0), &status(vec![flaps]));
    assert_eq!(history.tracks.len(), 1);
}

/// The sizes that the documentation states.
#[test]
fn the_figures_of_a_session_take_23_kb_and_those_of_a_class_2() {
    let bytes = |figures| (ring::FINE + ring::COARSE) * figures * size_of::<u16>();
    assert_eq!((bytes(SESSION_FIGURES.len()), bytes(1)), (23_040, 1_920));
}

#[test]
fn classes_have_a_history_once_they_have_sent_something() {
    let of = |name: &str, sent_bytes| ClassStatus {
        name: name.to_owned(),
        sent_bytes,
        ..ClassStatus::default()
    };
    let with = |since_s, classes| SessionStatus { classes, ..session("a", since_s) };
    let mut history = GatewayHistory::new(at(0.0));
    let mut record = |second: u32, classes| {
        history.record(at(second.into()), &status(vec![with(f64::from(second) + 9.0, classes)]));
        let latest =
            |(name, series): (&String, &FigureSeries<1>)| (name.clone(), series.latest()[0]);
        history.track("a").unwrap().classes.iter().map(latest).collect::<Vec<_>>()
    };
    let is = |found: Vec<(String, f32)>, expected: &[(&str, f32)]| {
        let found: Vec<_> = found.iter().map(|(name, rate)| (name.as_str(), *rate)).collect();
        assert_eq!(found, expected);
    };
    is(record(0, vec![of("bulk", 500), of("voice", 0)]), &[("bulk", 0.0)]);
    let both = vec![of("bulk", 600), of("voice", 250)];
    is(record(1, both), &[("bulk", 800.0), ("voice", 2000.0)]);
    // A class that is configured no longer is forgotten.
    is(record(2, vec![of("voice", 250)]), &[("voice", 0.0)]);
    let many = (0..20).map(|number| of(&number.to_string(), 1)).collect();
    assert_eq!(record(3, many).len(), MAX_CLASSES);
}
