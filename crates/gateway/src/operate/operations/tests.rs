use control::protocol::CarriedUsage;
use control::status::{ConnectionBottleneck, UsageStatus};
use pep::accounting::{ExhaustedAction, RenewalPeriod, VolumeQuota};
use pep::relay::LegSide;
use slacp::StreamOpening;
use units::ByteCount;

use super::*;
use crate::config::keys::format_public_key;
use crate::figures::connections::{ConnectionOrigin, DirectLeg, Registered};
use crate::testkit::{Hops, operations, operations_of, permitted};

/// Answers a request to a gateway without a hop.
async fn ask(
    ops: &mut GatewayOperations,
    counters: &GatewayCounters,
    request: ControlRequest,
) -> ControlAnswer {
    let (call, answer) = ControlCall::new(request);
    let view = GatewayView { hop: None, counters };
    let left = ops.answer(Instant::ZERO, view, GatewayStatus::default(), call);
    assert!(left.is_none());
    answer.await.unwrap()
}

fn open() -> StreamOpening {
    let address = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
    StreamOpening { destination: address, source: address, dscp: None }
}

fn rate(for_s: f64) -> ControlRequest {
    ControlRequest::Rate { bit_s: 1_000_000, for_s, peer: None }
}

#[tokio::test]
async fn what_needs_a_hop_is_refused_without_one() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    for request in [rate(30.0), ControlRequest::Events { reader: 1, peer: None }] {
        let answer = ask(&mut ops, &counters, request).await;
        let ControlAnswer::Error(why) = answer else { panic!("{answer:?}") };
        assert!(why.contains("hop"), "{why}");
    }
}

#[tokio::test]
async fn a_time_that_is_none_is_an_error_and_changes_nothing() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    for time in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        for (request, key) in
            [(rate(time), "for_s"), (ControlRequest::Drain { within_s: Some(time) }, "within_s")]
        {
            let answer = ask(&mut ops, &counters, request).await;
            let ControlAnswer::Error(why) = answer else { panic!("{time}: {answer:?}") };
            assert!(why.starts_with(key), "{why}");
        }
    }
    let view = GatewayView { hop: None, counters: &counters };
    assert_eq!(ops.bypass_reason(view), None, "it does not drain");
}

#[tokio::test]
async fn only_the_role_can_reload() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    let view = GatewayView { hop: None, counters: &counters };
    let (call, answer) = ControlCall::new(ControlRequest::Reload);
    let call = ops.answer(Instant::ZERO, view, GatewayStatus::default(), call).unwrap();
    assert!(ops.file().is_err(), "this one has no file");
    ops.reloaded(call, Err("line 7".to_owned()));
    assert_eq!(answer.await.unwrap(), ControlAnswer::Error("line 7".to_owned()));
}

#[tokio::test]
async fn a_drain_takes_no_connections_and_ends_with_the_last_or_its_time() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    let view = GatewayView { hop: None, counters: &counters };
    let live = Registered::direct(Instant::ZERO, &counters, open());
    assert!(!ops.is_drained(Instant::MAX, view));
    let ControlAnswer::Done(told) =
        ask(&mut ops, &counters, ControlRequest::Drain { within_s: Some(60.0) }).await
    else {
        panic!("a drain can always begin")
    };
    assert!(told[0].contains("1 left"), "{told:?}");
    assert_eq!(ops.bypass_reason(view), Some(BypassReason::Draining));
    let at = |s| Instant::ZERO + Duration::from_secs(s);
    assert!(!ops.is_drained(at(59), view) && ops.is_drained(at(60), view));
    let ControlAnswer::Status(status) =
        ask(&mut ops, &counters, ControlRequest::Status { connections: false }).await
    else {
        panic!("a status is always there")
    };
    assert_eq!((status.draining_s, status.connections), (Some(60.0), None));
    drop(live);
    assert!(ops.is_drained(at(1), view));
}

#[tokio::test]
async fn limits_are_those_of_the_last_configuration_and_bytes_held_as_last_counted() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    let view = GatewayView { hop: None, counters: &counters };
    let config = |memory, connections| OperationConfig {
        total_memory: Some(ByteCount::new(memory)),
        max_connections: Some(connections),
        ..OperationConfig::default()
    };
    ops.configure(config(1000, 1));
    assert_eq!((ops.most_connections(), ops.bypass_reason(view)), (1, None));
    let live = Registered::direct(Instant::ZERO, &counters, open());
    assert_eq!(ops.bypass_reason(view), Some(BypassReason::Connections));
    drop(live);
    let held = counters.in_pipes.hold(1000);
    assert_eq!(ops.bypass_reason(view), None);
    ops.housekeep(Instant::ZERO, view);
    assert_eq!(ops.bypass_reason(view), Some(BypassReason::Memory));
    drop(held);
    ops.housekeep(Instant::ZERO, view);
    assert_eq!(ops.bypass_reason(view), None);
    assert_eq!(ops.configure(config(1, 5)), ["configuration reloaded: no key has changed"]);
    assert_eq!(ops.most_connections(), 5);
}

#[tokio::test]
async fn idle_connections_give_way_near_a_limit_and_when_a_session_is_short_of_memory() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    let view = GatewayView { hop: None, counters: &counters };
    let idle = [(); 4].map(|()| {
        let entry = Registered::direct(Instant::ZERO, &counters, open());
        entry.attach_ends([5, 6].map(|socket| Some(DirectLeg::Socket(socket))));
        entry
    });
    let evicted = || idle.iter().filter(|entry| entry.was_evicted()).count();
    let later = Instant::ZERO + Duration::from_secs(61);
    ops.evict_idle(later, view, false);
    assert_eq!(evicted(), 0);
    ops.evict_idle(later, view, true);
    assert_eq!(evicted(), 1);
    ops.configure(OperationConfig { max_connections: Some(4), ..OperationConfig::default() });
    ops.evict_idle(later, view, false);
    assert_eq!(evicted(), 1);
}

/// Who holds a connection up, as the gateway on this side can tell.
#[tokio::test]
async fn a_bottleneck_is_named_from_the_clients_point_of_view() {
    let (ops, counters) = (operations(), GatewayCounters::default());
    let hops = Hops::new();
    let hub = &hops.hops[0];
    let at = |s| Instant::ZERO + Duration::from_secs(s);
    let limits = |entry: &Registered<'_>, here: LegSide, session: Option<()>| {
        // Both directions have long waited for the far end, then moved.
        for (from, on) in [(here, here.other()), (here.other(), here.other())] {
            entry.blocked(at(1), from, on);
            entry.moved(at(100), from, 1);
        }
        let row = ops.connection(session.map(|()| hub), at(101), entry);
        (row.to_hop_limit, row.from_hop_limit, row.client_claimed)
    };
    let here = Registered::new(at(0), &counters, hops.sessions[0], open(), ConnectionOrigin::Here);
    let expected = (ConnectionBottleneck::Hop, ConnectionBottleneck::HopOrServer, false);
    assert_eq!(limits(&here, LegSide::Client, Some(())), expected);
    for verified in [true, false] {
        let origin = ConnectionOrigin::Peer { verified };
        let peer = Registered::new(at(0), &counters, hops.sessions[0], open(), origin);
        let expected = (ConnectionBottleneck::Hop, ConnectionBottleneck::HopOrClient, !verified);
        assert_eq!(limits(&peer, LegSide::Server, Some(())), expected);
    }
    let straight = Registered::direct(at(0), &counters, open());
    let expected = (ConnectionBottleneck::Server, ConnectionBottleneck::Server, false);
    assert_eq!(limits(&straight, LegSide::Client, None), expected);
    // After a while in which nothing moves, nobody holds it up.
    let row = ops.connection(None, at(200), &straight);
    assert_eq!(
        (row.to_hop_limit, row.from_hop_limit),
        (ConnectionBottleneck::Idle, ConnectionBottleneck::Idle)
    );
}

#[tokio::test]
async fn the_connections_that_moved_the_most_come_first() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    let live: Vec<_> = [10, 30, 20]
        .map(|bytes| {
            let entry = Registered::direct(Instant::ZERO, &counters, open());
            entry.moved(Instant::ZERO, LegSide::Client, bytes);
            entry
        })
        .into();
    let mut found = async |peer: Option<&str>, most| {
        let request = ControlRequest::Connections { peer: peer.map(str::to_owned), most };
        match ask(&mut ops, &counters, request).await {
            ControlAnswer::Connections { most_moved, total } => {
                (most_moved.iter().map(|row| row.to_hop_bytes).collect::<Vec<_>>(), total)
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(found(None, 2).await, (vec![30, 20], 3));
    assert_eq!(found(None, 9).await, (vec![30, 20, 10], 3));
    assert_eq!(found(Some("ship"), 9).await, (vec![], 0), "they have no session");
    drop(live);
}

#[tokio::test]
async fn a_status_has_every_counter_in_its_place() {
    let (mut ops, counters) = (operations(), GatewayCounters::default());
    counters.traffic.straight.add(3);
    counters.traffic.closed.add(2);
    counters.reasons.count(slacp::ResetReason::Refused);
    let first = Registered::direct(Instant::ZERO, &counters, open());
    first.moved(Instant::ZERO, LegSide::Client, 700);
    let request = ControlRequest::Status { connections: true };
    let ControlAnswer::Status(status) = ask(&mut ops, &counters, request).await else { panic!() };
    let traffic = &status.traffic;
    assert_eq!((traffic.straight, traffic.closed, traffic.up_bytes), (3, 2, 700));
    assert_eq!(traffic.resets, [("refused".to_owned(), 1)]);
    assert_eq!((status.role, status.pid), (Role::Solo, std::process::id()));
    let rows = status.connections.unwrap();
    assert_eq!((rows.len(), rows[0].to_hop_bytes, &*rows[0].client), (1, 700, "192.0.2.1:80"));
}

#[tokio::test]
async fn quotas_hold_while_another_process_is_awaited_and_accounts_go_on_if_it_does_not_come() {
    let (now, mut ops) = (Instant::ZERO, operations_of(Role::Hub));
    let (hops, counters, ship) = (Hops::new(), GatewayCounters::default(), Hops::key(1));
    let view = GatewayView { hop: Some(&hops.hops[0]), counters: &counters };
    ops.configure_accounts(&[terminal(ship)]);
    let usage = UsageStatus { bytes_to: 1001, ..UsageStatus::default() };
    let row = CarriedUsage { key: format_public_key(&ship), class: String::new(), usage };
    let carried = || ControlRequest::Carried(vec![row.clone()]);
    assert!(matches!(ask(&mut ops, &counters, carried()).await, ControlAnswer::Done(_)));
    assert_eq!(ops.settle_usage(now, &hops.hops[0]).len(), 1);
    let is_blocked =
        |ops: &GatewayOperations| ops.exhausted(&ship) == Some(&ExhaustedAction::Block);
    assert!(is_blocked(&ops));
    ops.release(now, view);
    assert!(is_blocked(&ops) && ops.account_name(&ship) == "ship");
    ops.resume();
    assert!(is_blocked(&ops));
    assert!(matches!(ask(&mut ops, &counters, carried()).await, ControlAnswer::Done(_)));
}

/// A terminal with 1 kB a month.
fn terminal(key: PublicKey) -> PermittedTerminal {
    let (volume, then) = (ByteCount::new(1000), ExhaustedAction::Block);
    let volume = Some(VolumeQuota { volume, period: RenewalPeriod::Month, then });
    PermittedTerminal { volume, ..permitted("ship", key) }
}
