//! Viewers of a hub with many terminals.

use std::time::Duration;

use units::Instant;

use super::*;
use crate::status::{ClassStatus, ConnectionStatus, GatewayStatus};

fn at(second: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(second)
}

/// A hub with this many terminals after `second`, of which the first `busy` send about 1 Mbit/s; all
/// but one in 17 at a rate that changes each second.
fn crowd(terminals: u64, busy: u64, second: u64) -> GatewayStatus {
    let session = |number: u64| SessionStatus {
        peer: format!("ship-{number:04}"),
        key: format!("{number:043}="),
        address: format!("192.0.2.{}:5900", number % 250),
        since_s: 1000.0 + second as f64,
        reachable: true,
        rtt_ms: 600.0 + (number % 7) as f64,
        rate_bit_s: 1_000_000 * (1 + number % 20),
        bytes_sent: if number < busy {
            125_000 * second + 1000 * (second * (number % 17) % 29)
        } else {
            77
        },
        loss: (number % 13) as f64 / 1000.0,
        classes: vec![ClassStatus::default(); 3],
        ..SessionStatus::default()
    };
    let sessions = (0..terminals).map(session).collect();
    GatewayStatus { role: Role::Hub, version: "1".to_owned(), sessions, ..GatewayStatus::default() }
}

/// The state after this status.
fn state(status: GatewayStatus) -> DashboardState {
    let mut state = DashboardState::new(at(0));
    state.record(at(0), status, BTreeMap::new());
    state
}

fn next(viewer: &mut ViewerMessages, state: &DashboardState) -> Value {
    serde_json::from_str(&viewer.next(state)).unwrap()
}

fn viewer(state: &DashboardState, query: Value) -> ViewerMessages {
    ViewerMessages::new(serde_json::from_value(query).unwrap(), state)
}

fn names(message: &Value) -> Vec<String> {
    let rows = &message["list"]["rows"];
    let name =
        |key: &Value| rows["changed"][key.as_str().unwrap()]["peer"].as_str().unwrap().to_owned();
    rows["order"].as_array().into_iter().flatten().map(name).collect()
}

#[test]
fn a_viewer_gets_everything_once_then_what_changes() {
    let mut state = state(crowd(3, 1, 0));
    let mut viewer = viewer(&state, json!({ "session": format!("{:043}=", 0) }));
    let first = next(&mut viewer, &state);
    assert_eq!(names(&first), ["ship-0000", "ship-0001", "ship-0002"]);
    assert_eq!(first["session"]["status"]["peer"], "ship-0000");
    assert_eq!(first["session"]["history"]["fine"]["figures"]["rtt"], json!([600]));
    assert_eq!(first["events"].as_array().unwrap().len(), 3, "three came up");
    state.record(at(1), crowd(3, 1, 1), BTreeMap::new());
    let second = next(&mut viewer, &state);
    assert_eq!(second["t"], 1);
    assert_eq!(second["session"]["now"]["sent"], 1_000_000);
    assert!(second["history"].is_null() && second["session"]["history"].is_null());
    assert_eq!((&second["events"], &second["session"]["events"]), (&json!([]), &json!([])));
    let rows = &second["list"]["rows"];
    assert!(rows["order"].is_null(), "the order is the same");
    let changed: Vec<&String> = rows["changed"].as_object().unwrap().keys().collect();
    assert_eq!(changed, [&format!("{:043}=", 0)], "only the busy one");
    // One goes.
    state.record(at(2), crowd(2, 1, 2), BTreeMap::new());
    let third = next(&mut viewer, &state);
    assert_eq!(third["list"]["rows"]["order"].as_array().unwrap().len(), 2);
    assert_eq!(third["events"][0]["kind"], "down");
}

#[test]
fn the_list_is_sorted_filtered_and_paged() {
    let state = state(crowd(120, 0, 0));
    let shown = |query| next(&mut viewer(&state, query), &state);
    let last = shown(json!({ "page": 2 }));
    assert_eq!((names(&last).len(), &last["list"]["found"]), (20, &json!(120)));
    let lossy = shown(json!({ "sort": "loss", "descending": true }));
    assert_eq!(names(&lossy)[..2], ["ship-0116", "ship-0103"]);
    let backwards = shown(json!({ "descending": true }));
    assert_eq!(names(&backwards)[0], "ship-0119");
    let found = shown(json!({ "filter": "SHIP-010" }));
    assert_eq!((names(&found).len(), &found["list"]["total"]), (10, &json!(120)));
    assert_eq!(names(&shown(json!({ "page": usize::MAX }))), [""; 0]);
    for nonsense in [json!({ "sort": "colour" }), json!({ "page": -1 }), json!({ "more": 1 })] {
        assert!(serde_json::from_value::<ViewerQuery>(nonsense.clone()).is_err(), "{nonsense}");
    }
}

#[test]
fn connections_are_those_of_the_wanted_session() {
    let mut state = state(crowd(2, 0, 0));
    let mut viewer = viewer(&state, json!({ "session": format!("{:043}=", 1) }));
    let interest = Some("ship-0001".to_owned());
    let row = |second: u64| {
        let age_s = 5.0 + second as f64;
        let idle = ConnectionStatus { id: 7, age_s, ..ConnectionStatus::default() };
        let found = ShownConnections { most_moved: vec![idle], total: 9 };
        [(interest.clone(), found)].into()
    };
    state.record(at(10), crowd(2, 0, 10), row(10));
    let first = next(&mut viewer, &state);
    assert_eq!(first["connections"]["total"], 9);
    assert_eq!(first["connections"]["rows"]["changed"]["7"]["since"], -5);
    state.record(at(11), crowd(2, 0, 11), row(11));
    let second = next(&mut viewer, &state);
    assert_eq!(second["connections"]["rows"], json!({ "changed": {} }), "it has only grown older");
}

#[test]
fn figures_have_three_digits() {
    for (value, shown) in [
        (0.0, json!(0)),
        (12_345_678.0, json!(12_300_000)),
        (0.012_345, json!(0.0123)),
        (999.6, json!(1000)),
        (-4.0, json!(-4.0)),
        (1e300, json!(i64::MAX)),
        (f64::NAN, Value::Null),
        (f64::INFINITY, Value::Null),
    ] {
        assert_eq!(rounded(value), shown, "{value}");
    }
}

/// With 1,000 terminals, all of which send, a viewer of the list is sent no more than its page.
#[test]
fn a_viewer_of_a_thousand_terminals_gets_little() {
    let mut state = state(crowd(1000, 1000, 0));
    let mut viewer = viewer(&state, json!({}));
    viewer.next(&state);
    for second in 1..10 {
        state.record(at(second), crowd(1000, 1000, second), BTreeMap::new());
        let bytes = viewer.next(&state).len();
        assert!(bytes < 20_000, "{bytes} bytes");
    }
}
