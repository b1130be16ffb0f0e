//! Worlds with a few nodes.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use link::{LinkConfig, LossModel, QueueLimit};
use scenario::CompressionSpec;
use units::{BitRate, ByteCount, Instant, Probability};

use crate::testkit::{at, at_ms, bytes, gateways, geo, link, row, run_app, tcp, tcp_leg};
use crate::{
    BulkAmount, BulkTransfer, CbrSource, ConnectionPath, Direction, ExchangeSizes, FetchMethod,
    HostScript, IpVersion, NodeId, PacketTap, PageLoads, ReplySizes, RequestReply, RouteHop,
    ScriptStep, ServerBehaviour, SimulatedPacket, SlabKey, WebUsers, World,
};

/// Duration of a 5 MB download with this split, and a counter.
fn download(split: &str, per: f64, seed: u64) -> (f64, u64) {
    let mut world = World::new(seed);
    let ([client, terminal, hub, server], slacp) = gateways(&mut world, per);
    let leg = tcp_leg;
    let path = match split {
        "none" => Arc::new(ConnectionPath::direct(client, server, tcp())),
        "two" => Arc::new(ConnectionPath::split(client, &[hub], server, vec![leg(), leg()])),
        "three" => Arc::new(ConnectionPath::split(
            client,
            &[terminal, hub],
            server,
            vec![leg(), leg(), leg()],
        )),
        _ => slacp,
    };
    let app = BulkTransfer::new(path, Direction::Down, bytes(5_000_000), at(2));
    let app = world.add_app(Box::new(app));
    assert!(world.run_until_done(at(600)), "{split} {per}");
    world.run_until(world.now() + Duration::from_secs(130));
    let tally = world.app_stats(app);
    assert_eq!((tally.bytes, tally.failures, tally.work_units.len()), (5_000_000, 0, 1), "{split}");
    assert_eq!(world.strays(), 0);
    (tally.work_units[0].time().as_secs_f64(), world.arrivals())
}

#[test]
fn a_download_goes_through_every_kind_of_split() {
    for split in ["none", "two", "three", "slacp"] {
        for per in [0.0, 0.01] {
            let (time, _) = download(split, per, 1);
            assert!(time > 2.5, "{split} {per}: {time} s for what takes 2 s at the full rate");
        }
    }
}

#[test]
fn slacp_is_at_the_limit_and_plain_tcp_is_not() {
    // 5 MB at 20 Mbit/s take 2.0 s, after at most two RTTs of 520 ms.
    let (slacp, _) = download("slacp", 0.01, 1);
    let (none, _) = download("none", 0.01, 1);
    assert!(slacp < 4.5, "{slacp} s");
    assert!(none > 5.0 * slacp, "{none} s against {slacp} s");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for split in ["none", "two", "slacp"] {
        assert_eq!(download(split, 0.02, 5), download(split, 0.02, 5), "{split}");
        assert_ne!(download(split, 0.02, 5), download(split, 0.02, 6), "{split}");
    }
}

#[test]
fn a_reply_takes_a_round_trip_and_the_first_the_handshake_too() {
    let turn = ExchangeSizes { request: 100, reply: 100 };
    let think = Duration::from_millis(700);
    let (world, app) = run_app(|path| Box::new(RequestReply::new(path, turn, think, 3, at(1))));
    let times: Vec<_> =
        world.app_stats(app).work_units.iter().map(|deed| deed.time().as_millis()).collect();
    assert_eq!(times, [1000, 500, 500]);
}

#[test]
fn each_method_takes_the_round_trips_that_it_must() {
    // A document and six objects of 1000 bytes; a handshake is one RTT.
    let time = |method| {
        let objects: Arc<[u64]> = vec![1000; 7].into();
        let (world, app) = run_app(|path| {
            Box::new(PageLoads::new(path, method, 300, objects, at(0), 1, Duration::ZERO))
        });
        world.app_stats(app).work_units[0].time().as_millis() / 500
    };
    assert_eq!(time(FetchMethod::Http10(1)), 14);
    assert_eq!(time(FetchMethod::Http10(6)), 4);
    assert_eq!(time(FetchMethod::KeepAlive(1)), 8);
    assert_eq!(time(FetchMethod::Pipelining(1)), 3);
    // The second connection's handshake starts with the objects.
    assert_eq!(time(FetchMethod::KeepAlive(2)), 6);
}

#[test]
fn datagrams_keep_their_rate_and_delay() {
    let mut world = World::new(1);
    let (a, b, _) = geo(&mut world);
    let rate = BitRate::from_mbit(1);
    let cbr = CbrSource {
        from: a,
        to: b,
        rate,
        size: 1250,
        dscp: 0,
        ip: IpVersion::Ipv4,
        start: at(1),
        stop: at(11),
    };
    let app = world.add_app(Box::new(cbr));
    world.run_until(at(12));
    let tally = world.app_stats(app);
    assert_eq!(tally.datagrams, [1000, 1000]);
    // 1278 bytes at 10 Mbit/s, plus 250 ms.
    assert_eq!(tally.delays, [Duration::from_nanos(251_022_400); 1000]);
}

#[test]
fn an_endless_transfer_ends_when_its_time_has_come() {
    let (world, app) = run_app(|path| {
        Box::new(BulkTransfer::new(path, Direction::Up, BulkAmount::Until(at(60)), at(0)))
    });
    let goodput = world.app_stats(app).work_units[0].bytes as f64 * 8.0 / 60e6;
    assert!((8.5..9.6).contains(&goodput), "{goodput} Mbit/s");
}

#[test]
fn random_users_ask_as_often_as_they_should() {
    let sizes = ReplySizes::Pareto { least: 2000, most: 1_000_000, alpha: 1.2 };
    let every = Duration::from_millis(100);
    let mut world = World::new(1);
    let (_, _, path) = geo(&mut world);
    let seed = world.draw_seed();
    let users = WebUsers::new(vec![path], every, 300, sizes, [at(0), at(100)], seed);
    let app = world.add_app(Box::new(users));
    world.run_until(at(200));
    let tally = world.app_stats(app);
    assert_eq!(tally.failures, 0);
    // A Poisson process: 1000 ± 32.
    assert!((900..1100).contains(&tally.work_units.len()), "{}", tally.work_units.len());
    // The median of 1000 is 2000·2^(1/1.2) = 3564 bytes.
    let mut sizes: Vec<_> = tally.work_units.iter().map(|deed| deed.bytes).collect();
    sizes.sort_unstable();
    assert!((3300..3800).contains(&sizes[sizes.len() / 2]), "{}", sizes[sizes.len() / 2]);
}

#[test]
fn a_packet_without_a_route_is_counted() {
    let mut world = World::new(1);
    let (a, b) = (world.add_node(), world.add_node());
    let rate = BitRate::from_mbit(1);
    let cbr = CbrSource {
        from: a,
        to: b,
        rate,
        size: 1250,
        dscp: 0,
        ip: IpVersion::Ipv4,
        start: at(0),
        stop: at(1),
    };
    world.add_app(Box::new(cbr));
    world.run_until(at(2));
    assert_eq!(world.strays(), 100);
}

#[test]
fn routes_that_form_a_loop_without_links_cost_one_packet_each() {
    let mut world = World::new(1);
    let (a, b, c) = (world.add_node(), world.add_node(), world.add_node());
    world.set_default_route(a, RouteHop::Node(b));
    world.set_default_route(b, RouteHop::Node(a));
    let cbr = CbrSource {
        from: a,
        to: c,
        rate: BitRate::from_mbit(1),
        size: 1250,
        dscp: 0,
        ip: IpVersion::Ipv4,
        start: at(0),
        stop: at(1),
    };
    world.add_app(Box::new(cbr));
    world.run_until(at(2));
    assert_eq!((world.strays(), world.arrivals()), (100, 0));
}

#[test]
fn a_node_without_delay_delivers_at_once_and_a_specific_route_goes_first() {
    let mut world = World::new(1);
    let (a, sky, b) = (world.add_node(), world.add_node(), world.add_node());
    let away = world.connect(sky, link(10, 250, 0.0));
    world.set_default_route(a, RouteHop::Link(away));
    world.set_route(a, b, RouteHop::Node(b));
    let cbr = CbrSource {
        from: a,
        to: b,
        rate: BitRate::from_mbit(1),
        size: 1250,
        dscp: 0,
        ip: IpVersion::Ipv4,
        start: at(0),
        stop: at(1),
    };
    let app = world.add_app(Box::new(cbr));
    world.run_until(at(2));
    let tally = world.app_stats(app);
    assert_eq!((tally.datagrams, &tally.delays[..]), ([100, 100], &[Duration::ZERO; 100][..]));
    assert_eq!(world.counters(away).delivered.packets, 0);
}

#[test]
fn the_peak_of_a_queue_is_what_a_burst_leaves_waiting() {
    // 1278 bytes at 1 Mbit/s take 10.2 ms; ten times as much comes for 1 s.
    let mut world = World::new(1);
    let (nodes, lanes) = row(&mut world, &[link(1, 10, 0.0)]);
    let [from, to] = nodes[..] else { unreachable!() };
    let cbr = CbrSource {
        from,
        to,
        rate: BitRate::from_mbit(10),
        size: 1250,
        dscp: 0,
        ip: IpVersion::Ipv4,
        start: at(0),
        stop: at(1),
    };
    world.add_app(Box::new(cbr));
    world.run_until(at(1));
    let [there, back] = lanes[0];
    // One more is being sent.
    assert_eq!(world.peak_queue(there), 1000 - 1_000_000_000 / 10_224_000 - 1);
    assert_eq!((world.peak_queue(back), world.queued(back).packets), (0, 0));
    world.run_until(at(20));
    assert_eq!((world.queued(there).packets, world.counters(there).delivered.packets), (0, 1000));
}

#[test]
fn a_tap_sees_each_packet_leave_its_sender_and_reach_its_destination() {
    #[derive(Debug, Default)]
    struct Log(Rc<RefCell<Vec<(u64, NodeId, bool)>>>);
    impl PacketTap for Log {
        fn packet(&mut self, now: Instant, node: NodeId, outgoing: bool, _: &SimulatedPacket) {
            self.0.borrow_mut().push((now.as_nanos() / 1_000_000, node, outgoing));
        }
    }
    let mut world = World::new(1);
    let (nodes, _) = row(&mut world, &[link(100, 10, 0.0), link(100, 20, 0.0)]);
    let seen = Rc::default();
    world.set_tap(Box::new(Log(Rc::clone(&seen))));
    let (from, to, rate) = (nodes[0], nodes[2], BitRate::from_mbit(1));
    let stop = at_ms(1);
    world.add_app(Box::new(CbrSource {
        from,
        to,
        rate,
        size: 1250,
        dscp: 0,
        ip: IpVersion::Ipv4,
        start: at(0),
        stop,
    }));
    world.run_until(at(1));
    // The router in between neither creates nor consumes it.
    assert_eq!(*seen.borrow(), [(0, from, true), (30, to, false)]);
    assert!(world.take_tap().is_some());
    assert!(world.take_tap().is_none());
}

#[test]
fn samples_are_taken_at_their_interval_and_end_with_the_connection() {
    let mut world = World::new(1);
    let (client, server, path) = geo(&mut world);
    world.sample_every(Duration::from_millis(100));
    let lane = world.connect(server, link(1, 1, 0.0));
    world.watch_lane("idle".into(), lane);
    let mut bulk = BulkTransfer::new(path, Direction::Up, bytes(100_000), at(1));
    bulk.watch = Some("ftp".into());
    let app = world.add_app(Box::new(bulk));
    world.run_until(at(100));
    let probe = world.probe();
    assert_eq!(probe.links[0].loads.len(), 1001);
    assert!(probe.links[0].loads.iter().all(|load| load.queued == 0 && load.delivered == 0));
    let labels: Vec<_> = probe.senders.iter().map(|sender| sender.label.as_str()).collect();
    assert_eq!(labels, ["ftp.1client", "ftp.1server"]);
    let states = &probe.senders[0].states;
    assert_eq!(states[0].at, at(1));
    // TIME-WAIT takes a minute; then the socket is gone, and so are its samples.
    let end = world.app_stats(app).work_units[0].end + Duration::from_secs(62);
    let last = states.last().unwrap().at;
    assert!(world.sockets() == 0 && last < end && last > end - Duration::from_secs(2), "{last}");
    assert!(probe.senders[0].has_sent() && !probe.senders[1].has_sent());
    assert_eq!(world.strays(), 0, "{client:?}");
}

/// Gateways whose session comes up after `client` has written its request.
fn scripted(world: &mut World, path: &Arc<ConnectionPath>) -> SlabKey {
    let client = HostScript { acts: vec![ScriptStep::Write(5000), ScriptStep::Finish], slow: None };
    let server = HostScript {
        acts: vec![ScriptStep::AwaitEnd, ScriptStep::Write(7000), ScriptStep::Finish],
        slow: None,
    };
    world.open_scripted(path, client, ServerBehaviour::Accept(server))
}

#[test]
fn a_connection_made_before_the_session_waits_for_it() {
    let mut world = World::new(1);
    let ([_, terminal, hub, _], path) = gateways(&mut world, 0.0);
    let connection = scripted(&mut world, &path);
    world.run_until(at_ms(100));
    assert!(world.session_stats(terminal, hub).is_none());
    assert_eq!((world.connections(terminal), world.connections(hub)), (1, 0));
    world.run_until(at(10));
    let endings = world.endings(connection).unwrap();
    assert_eq!(endings.map(|end| (end.written, end.read)), [(5000, 7000), (7000, 5000)]);
    assert!(endings.iter().all(|end| end.has_ended && end.failure.is_none()));
    assert_eq!((world.connections(terminal), world.connections(hub)), (0, 0));
    assert_eq!((world.streams(terminal), world.streams(hub)), (0, 0));
}

#[test]
fn a_full_hub_refuses_a_further_connection_until_it_has_room() {
    let mut world = World::new(1);
    let ([_, _, hub, _], path) = gateways(&mut world, 0.0);
    world.set_most_connections(hub, Some(0));
    world.run_until(at(3));
    let refused = scripted(&mut world, &path);
    world.run_until(at(6));
    let failures = world.endings(refused).unwrap().map(|end| end.failure);
    assert_eq!(failures, [Some(tcp::AbortReason::Reset), None]);
    world.set_most_connections(hub, Some(1));
    let served = scripted(&mut world, &path);
    world.run_until(at(10));
    assert_eq!(world.endings(served).unwrap()[0].read, 7000);
}

#[test]
fn a_gateway_keeps_its_limit_when_it_restarts() {
    let mut world = World::new(1);
    let ([_, terminal, hub, _], path) = gateways(&mut world, 0.0);
    world.set_most_connections(hub, Some(0));
    world.run_until(at(3));
    world.restart_gateway(hub);
    world.run_until(at(30));
    assert!(world.session_stats(terminal, hub).is_some());
    let refused = scripted(&mut world, &path);
    world.run_until(at(40));
    assert_eq!(world.endings(refused).unwrap()[0].failure, Some(tcp::AbortReason::Reset));
}

#[test]
fn without_descriptors_a_hub_resets_the_client_and_the_server_hears_nothing() {
    let mut world = World::new(1);
    let ([_, _, hub, _], path) = gateways(&mut world, 0.0);
    world.run_until(at(3));
    world.set_descriptors(hub, false);
    let refused = scripted(&mut world, &path);
    world.run_until(at(6));
    let [client, server] = world.endings(refused).unwrap();
    assert_eq!(client.failure, Some(tcp::AbortReason::Reset));
    assert_eq!((server.is_connected, server.failure), (false, None));
    world.set_descriptors(hub, true);
    let served = scripted(&mut world, &path);
    world.run_until(at(10));
    assert_eq!(world.endings(served).unwrap()[0].read, 7000);
}

#[test]
fn a_restarted_gateway_resets_its_connections_on_both_sides() {
    let mut world = World::new(1);
    let ([_, terminal, hub, _], path) = gateways(&mut world, 0.0);
    world.run_until(at(3));
    let act = ScriptStep::AwaitEnd;
    let wait = HostScript { acts: vec![act], slow: None };
    let idle = world.open_scripted(&path, wait.clone(), ServerBehaviour::Accept(wait));
    world.run_until(at(5));
    assert!(world.endings(idle).unwrap().iter().all(|end| end.is_connected));
    world.restart_gateway(hub);
    // Its kernel resets the server's side; the terminal hears of it when the session is set up anew.
    world.run_until(at(40));
    let failures = world.endings(idle).unwrap().map(|end| end.failure);
    assert_eq!(failures, [Some(tcp::AbortReason::Reset); 2]);
    assert_eq!((world.streams(terminal), world.streams(hub), world.sockets()), (0, 0, 0));
}

#[test]
fn an_orderly_end_of_the_session_resets_what_it_carried_after_one_way() {
    let mut world = World::new(1);
    let ([_, terminal, hub, _], path) = gateways(&mut world, 0.0);
    world.run_until(at(3));
    let wait = HostScript { acts: vec![ScriptStep::AwaitEnd], slow: None };
    let idle = world.open_scripted(&path, wait.clone(), ServerBehaviour::Accept(wait));
    world.run_until(at(5));
    world.close_session(hub, terminal);
    world.run_until(at_ms(5_270));
    assert_eq!(world.endings(idle).unwrap()[0].failure, Some(tcp::AbortReason::Reset));
    assert_eq!(world.connections(terminal), 0);
}

#[test]
fn a_segment_to_a_socket_that_is_gone_is_refused_and_counted() {
    let mut world = World::new(1);
    let (_, _, path) = geo(&mut world);
    // The client resets while the server's data is under way.
    let acts = vec![ScriptStep::AwaitBytes(10_000), ScriptStep::Reset];
    let server =
        HostScript { acts: vec![ScriptStep::Write(200_000), ScriptStep::Finish], slow: None };
    let client = HostScript { acts, slow: None };
    let connection = world.open_scripted(&path, client, ServerBehaviour::Accept(server));
    world.run_until(at(30));
    let [client, server] = world.endings(connection).unwrap();
    assert!(
        client.has_reset && server.failure == Some(tcp::AbortReason::Reset),
        "{client:?} {server:?}"
    );
    assert!(world.strays() > 0);
    assert_eq!(world.sockets(), 0);
}

#[test]
fn a_server_that_refuses_answers_in_a_round_trip_and_a_silent_one_never() {
    let mut world = World::new(1);
    let (_, _, path) = geo(&mut world);
    let client = HostScript { acts: vec![ScriptStep::Write(10), ScriptStep::AwaitEnd], slow: None };
    let refused = world.open_scripted(&path, client.clone(), ServerBehaviour::Refuse);
    let silent = world.open_scripted(&path, client, ServerBehaviour::Silence);
    world.run_until(at_ms(499));
    assert_eq!(world.endings(refused).unwrap()[0].failure, None);
    world.run_until(at_ms(501));
    assert_eq!(world.endings(refused).unwrap()[0].failure, Some(tcp::AbortReason::Refused));
    world.run_until(at(30));
    assert_eq!(world.endings(silent).unwrap()[0].failure, None);
    world.run_until(at(600));
    assert_eq!(world.endings(silent).unwrap()[0].failure, Some(tcp::AbortReason::TimedOut));
}

#[test]
fn a_tunnel_carries_packets_whole_and_loses_them_without_a_session() {
    let mut world = World::new(1);
    let (nodes, _) = row(&mut world, &[link(100, 5, 0.0), link(20, 250, 0.0), link(100, 5, 0.0)]);
    let [client, terminal, hub, server] = nodes[..] else { unreachable!() };
    let mut config = slacp::Config::new(slacp::Rate::Fixed(BitRate::from_mbit(20)));
    World::add_tunnel(&mut config, ByteCount::new(40_000), CompressionSpec::default()).unwrap();
    world.add_hub(hub, config.clone(), &[terminal]);
    world.add_terminal(terminal, config, hub);
    world.set_route(terminal, server, RouteHop::Tunnel(hub));
    let cbr = |start, stop| CbrSource {
        from: client,
        to: server,
        rate: BitRate::from_mbit(1),
        size: 1250,
        dscp: 0,
        ip: IpVersion::Ipv4,
        start,
        stop,
    };
    let early = world.add_app(Box::new(cbr(at(0), at_ms(100))));
    let late = world.add_app(Box::new(cbr(at(5), at(6))));
    world.run_until(at(20));
    assert_eq!(world.app_stats(early).datagrams, [10, 0]);
    let tally = world.app_stats(late);
    assert_eq!(tally.datagrams, [100, 100]);
    let delay = tally.delays.iter().sum::<Duration>() / 100;
    assert!(delay > Duration::from_millis(260) && delay < Duration::from_millis(263), "{delay:?}");
}

#[test]
fn links_of_a_world_have_random_numbers_of_their_own() {
    let lossy = || {
        let loss = LossModel::Per(Probability::new(0.5).unwrap());
        let (rate, delay) = (BitRate::from_mbit(10), Duration::from_millis(1));
        LinkConfig::new(rate, delay, loss, QueueLimit::Bytes(ByteCount::new(1_000_000)))
    };
    let mut world = World::new(1);
    let (nodes, _) = row(&mut world, &[lossy()]);
    let (other, _) = row(&mut world, &[lossy()]);
    let apps = [nodes, other].map(|nodes| {
        let (from, to, rate) = (nodes[0], nodes[1], BitRate::from_mbit(1));
        world.add_app(Box::new(CbrSource {
            from,
            to,
            rate,
            size: 1250,
            dscp: 0,
            ip: IpVersion::Ipv4,
            start: at(0),
            stop: at(10),
        }))
    });
    world.run_until(at(11));
    let [one, two] = apps.map(|app| world.app_stats(app).datagrams[1]);
    assert!(one != two && (400..600).contains(&one) && (400..600).contains(&two), "{one} {two}");
}
