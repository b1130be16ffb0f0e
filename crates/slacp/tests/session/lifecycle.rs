//! Sessions are set up, frozen, lost, moved and refused; and the memory they hold.

use core::time::Duration;
use std::net::SocketAddr;

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, at, open_all, run_to_end};
use link::testkit::{Mangle, Net};
use slacp::{
    CloseReason, Config, DownReason, Endpoint, EndpointFootprint, EndpointNotice, Event, KeyPair,
};
use units::{BitRate, ByteCount, Instant, Machine};

fn outage(net: &mut Net<Host>, from: Instant, to: Instant) {
    for (a, b) in [(HUB, TERMINAL), (TERMINAL, HUB)] {
        net.mangle(a, b, Mangle { outages: vec![from..to], ..Mangle::default() });
    }
}

fn kinds(host: &Host) -> Vec<&Event> {
    host.log.iter().map(|(_, event)| event).collect()
}

#[test]
fn an_outage_freezes_the_session_and_loses_nothing() {
    for seconds in [1.0, 60.0, 600.0] {
        let mut net = Hop::geo(0.01, 5).connected(&[Plan::new(100, 30_000_000)]);
        open_all(&mut net, TERMINAL);
        net.run_for(Duration::from_secs(2)).unwrap();
        let (start, end) = (net.now(), net.now() + Duration::from_secs_f64(seconds));
        outage(&mut net, start, end);
        run_to_end(&mut net, seconds + 30.0);
        let (terminal, hub) = (&net.peers()[TERMINAL], &net.peers()[HUB]);
        let flow = terminal.flows.values().next().unwrap();
        assert!(flow.closed);
        if seconds > 3.0 {
            for host in [terminal, hub] {
                assert!(
                    matches!(
                        kinds(host)[..],
                        [Event::Up { .. }, Event::Unreachable, Event::Reachable]
                    ),
                    "{:?}",
                    host.log
                );
            }
        }
        // What is missing then takes about 3 s at the link rate. Probes are sent at intervals of an
        // eighth of the outage, at most 2 s.
        let tail = flow.last_byte.unwrap().saturating_since(end);
        let probe = Duration::from_secs_f64((seconds / 8.0).clamp(0.15, 2.0));
        assert!(tail < Duration::from_millis(4800) + probe, "{tail:?} after {seconds} s");
    }
}

/// From then on a gateway no longer intercepts new connections.
#[test]
fn a_hub_that_does_not_answer_an_opening_is_known_within_two_seconds() {
    for seed in 0..20 {
        let mut net = Hop::geo(0.01, seed).connected(&[Plan::new(100, 1000)]);
        net.run_for(Duration::from_millis(2000 + 50 * seed)).unwrap();
        let start = net.now();
        outage(&mut net, start, at(60.0));
        open_all(&mut net, TERMINAL);
        let known = |hosts: &mut [Host]| kinds(&hosts[TERMINAL]).contains(&&Event::Unreachable);
        let silence = net.run_until(known, at(60.0)).unwrap().saturating_since(start);
        assert!(silence < Duration::from_secs(2), "seed {seed}: {silence:?}");
    }
}

#[test]
fn traffic_resumes_within_a_round_trip_and_a_probe_of_the_links_return() {
    for (seed, seconds) in [(1, 4), (2, 8), (3, 20), (4, 100), (5, 100), (6, 600)] {
        let mut net = Hop::geo(0.0, seed).connected(&[Plan::new(100, 100_000_000)]);
        open_all(&mut net, TERMINAL);
        net.run_for(Duration::from_secs(2)).unwrap();
        let (start, end) = (net.now(), net.now() + Duration::from_secs(seconds));
        outage(&mut net, start, end);
        net.run_for(Duration::from_secs(seconds)).unwrap();
        let before = net.peers()[TERMINAL].flows.values().next().unwrap().received;
        let more = |hosts: &mut [Host]| hosts[TERMINAL].flows.values().any(|f| f.received > before);
        let resumed = net.run_until(more, end + Duration::from_secs(60)).unwrap();
        // Probes are sent at intervals of an eighth of the fade, at most 2 s.
        let probe = Duration::from_millis((seconds * 125).clamp(150, 2000));
        let most = Duration::from_millis(600 + 30) + probe;
        let time = resumed.saturating_since(end);
        assert!(time < most, "{time:?} after {seconds} s");
    }
}

/// On a short hop there is time for dozens of probes until the peer is unreachable.
#[test]
fn questions_without_an_answer_become_rare() {
    for seed in 0..5 {
        let hop = Hop { delay: Duration::from_millis(5), ..Hop::geo(0.0, seed) };
        let mut net = hop.connected(&[Plan::new(100, 1000)]);
        net.run_for(Duration::from_secs(2)).unwrap();
        let probes = |net: &Net<Host>| {
            let host = &net.peers()[TERMINAL];
            host.endpoint.stats(host.session.unwrap()).unwrap().probes
        };
        let (start, before) = (net.now(), probes(&net));
        outage(&mut net, start, start + Duration::from_secs(2));
        open_all(&mut net, TERMINAL);
        let known = |hosts: &mut [Host]| kinds(&hosts[TERMINAL]).contains(&&Event::Unreachable);
        let noticed = net.run_until(known, at(60.0)).unwrap().saturating_since(start);
        assert!(noticed < Duration::from_millis(1100), "seed {seed}: {noticed:?}");
        let asked = probes(&net) - before;
        assert!((3..=8).contains(&asked), "seed {seed}: {asked} probes");
        run_to_end(&mut net, 30.0);
    }
}

#[test]
fn a_restarted_hub_gets_a_new_session_and_the_old_streams_end() {
    let plans = [Plan::new(100, 20_000_000)];
    let hop = Hop::geo(0.0, 5);
    let mut net = hop.connected(&plans);
    open_all(&mut net, TERMINAL);
    net.run_for(Duration::from_secs(1)).unwrap();
    net.peers_mut()[HUB] = hop.restarted(HUB, &plans);
    let up_again = |hosts: &mut [Host]| hosts.iter().all(|host| host.session.is_some());
    net.run_for(Duration::from_secs(1)).unwrap();
    net.run_until(|hosts| hosts[TERMINAL].lost_flows == 1 && up_again(hosts), at(20.0)).unwrap();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 20.0);
}

#[test]
fn a_restarted_hub_is_used_again_within_two_round_trips() {
    for idle in [false, true] {
        let plans = [Plan::new(100, 50_000_000)];
        let hop = Hop::geo(0.0, 5);
        let mut net = hop.connected(&plans);
        if !idle {
            open_all(&mut net, TERMINAL);
        }
        net.run_for(Duration::from_secs(3)).unwrap();
        net.peers_mut()[HUB] = hop.restarted(HUB, &plans);
        if idle {
            // The first packet of the next connection detects it.
            open_all(&mut net, TERMINAL);
        }
        let start = net.now();
        let up = |hosts: &mut [Host]| hosts[HUB].session.is_some();
        let end = net.run_until(up, at(20.0)).unwrap();
        let time = end.saturating_since(start);
        // Counted from the next acknowledgement, one every 25 ms: hint, initiation, response, first
        // packet. An idle terminal first has to send something.
        let ways = if idle { 5 } else { 4 };
        assert!(time < Duration::from_millis(300 * ways + 30), "{time:?}");
    }
}

#[test]
fn a_hub_that_stops_is_known_at_once_and_used_again_when_it_is_back() {
    for seed in 0..20 {
        let plans = [Plan::new(100, 50_000_000)];
        let hop = Hop::geo(0.1, seed);
        let mut net = hop.connected(&plans);
        open_all(&mut net, TERMINAL);
        net.run_for(Duration::from_secs(3)).unwrap();
        let start = net.now();
        net.peers_mut()[HUB].endpoint.shut_down(start);
        let told = |hosts: &mut [Host]| hosts[TERMINAL].session.is_none();
        let end = net.run_until(told, start + Duration::from_secs(5)).unwrap();
        // The queue ahead of it, and two copies that may be lost.
        let time = end.saturating_since(start);
        assert!(time < Duration::from_millis(300 + 150 + 10), "seed {seed}: {time:?}");
        let closed = Event::Down(DownReason::ClosedByPeer(CloseReason::Shutdown));
        assert_eq!(net.peers()[TERMINAL].log.last().unwrap().1, closed);
        net.run_for(Duration::from_secs(20)).unwrap();
        assert_eq!(net.peers()[HUB].endpoint.footprint(), EndpointFootprint::default());
        net.peers_mut()[HUB] = hop.restarted(HUB, &plans);
        let up = |hosts: &mut [Host]| hosts.iter().all(|host| host.session.is_some());
        net.run_until(up, net.now() + Duration::from_secs(12)).unwrap();
    }
}

#[test]
fn a_restarted_terminal_replaces_its_session() {
    let plans = [Plan::new(100, 20_000_000)];
    let hop = Hop::geo(0.0, 5);
    let mut net = hop.connected(&plans);
    open_all(&mut net, TERMINAL);
    net.run_for(Duration::from_secs(1)).unwrap();
    net.peers_mut()[TERMINAL] = hop.restarted(TERMINAL, &plans);
    net.run_until(|hosts| hosts[HUB].lost_flows == 1, at(20.0)).unwrap();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 20.0);
    assert_eq!(net.peers()[TERMINAL].flows.len(), 1);
}

#[test]
fn a_terminal_that_moves_keeps_its_streams() {
    let mut net = Hop::geo(0.01, 5).connected(&[Plan::new(5_000_000, 20_000_000)]);
    open_all(&mut net, TERMINAL);
    for port in [2, 3, 4] {
        net.run_for(Duration::from_secs(1)).unwrap();
        net.peers_mut()[TERMINAL].port = port;
    }
    run_to_end(&mut net, 30.0);
    assert_eq!(kinds(&net.peers()[HUB]).len(), 1);
}

#[test]
fn a_peer_given_up_takes_its_streams_with_it() {
    let mut hop = Hop::geo(0.0, 5);
    hop.configure = |config| config.give_up = Duration::from_secs(30);
    let mut net = hop.connected(&[Plan::new(100, 20_000_000)]);
    open_all(&mut net, TERMINAL);
    net.run_for(Duration::from_secs(1)).unwrap();
    let start = net.now();
    outage(&mut net, start, Instant::MAX);
    net.run_for(Duration::from_secs(40)).unwrap();
    for host in net.peers() {
        assert_eq!((host.lost_flows, host.session), (1, None));
    }
}

#[test]
fn stalled_readers_stop_no_other_stream_and_memory_is_bounded() {
    let mut hop = Hop::geo(0.0, 5);
    hop.configure = |config| {
        config.memory = ByteCount::new(4_000_000);
        config.stream_window = ByteCount::new(2_000_000);
    };
    let mut plans = vec![Plan::new(3_000_000, 100); 10];
    plans.iter_mut().for_each(|plan| plan.stalled = true);
    plans.extend(vec![Plan::new(300_000, 1000); 40]);
    let mut net = hop.connected(&plans);
    open_all(&mut net, TERMINAL);
    let free = |host: &Host| host.flows.values().filter(|flow| flow.closed).count() == 40;
    let check = |hosts: &mut [Host]| {
        for host in hosts.iter() {
            let stats = host.endpoint.stats(host.session.unwrap()).unwrap();
            assert!(stats.held_to_send.get() <= 4_000_000 && stats.held_to_read.get() <= 4_000_000);
        }
        hosts.iter().all(free)
    };
    net.run_until(check, at(120.0)).unwrap();
}

#[test]
fn an_idle_session_only_keeps_itself_alive() {
    let mut net = Hop::geo(0.0, 5).connected(&[]);
    net.run_for(Duration::from_secs(5)).unwrap();
    let sent = |net: &Net<Host>| {
        let host = &net.peers()[TERMINAL];
        host.endpoint.stats(host.session.unwrap()).unwrap().packets_sent
    };
    let before = sent(&net);
    net.run_for(Duration::from_secs(100)).unwrap();
    let packets = sent(&net) - before;
    // One in 15 to 16.9 s from one side, and the other's acknowledgement.
    assert!((5..=8).contains(&packets), "{packets} packets in 100 s");
    assert_eq!(kinds(&net.peers()[TERMINAL]).len(), 1);
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = || {
        let mut net = Hop::geo(0.02, 77).connected(&[Plan::new(400_000, 900_000), Plan::new(9, 9)]);
        open_all(&mut net, TERMINAL);
        let end = run_to_end(&mut net, 30.0);
        let stats: Vec<String> = net
            .peers()
            .iter()
            .map(|host| format!("{:?}", host.endpoint.stats(host.session.unwrap())))
            .collect();
        (end, stats)
    };
    assert_eq!(run(), run());
}

/// Every datagram that an endpoint sends at one instant.
fn drain(endpoint: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    let mut buf = Vec::new();
    endpoint.handle_timeout(now);
    while endpoint.poll_transmit(now, &mut buf).is_some() {
        datagrams.push(buf.clone());
    }
    datagrams
}

fn strangers() -> (Endpoint, Endpoint, SocketAddr) {
    let key = |seed: u8| KeyPair::from_private([seed; 32]);
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    let config = Config::new(BitRate::from_mbit(10));
    let hub = Endpoint::hub(config.clone(), key(1), vec![key(2).public()], [9; 32]);
    let terminal = Endpoint::terminal(config, key(3), key(1).public(), vec![address], [8; 32]);
    (hub, terminal, address)
}

#[test]
fn a_hub_does_not_answer_strangers() {
    let (mut hub, mut stranger, address) = strangers();
    let mut first = drain(&mut stranger, at(1.0));
    assert_eq!(first.len(), 1);
    hub.handle_datagram(at(1.0), address, &mut first[0]);
    assert_eq!((hub.ignored(), hub.poll_timeout()), (1, None));
    assert!(drain(&mut hub, at(1.0)).is_empty());
    let key = Some(KeyPair::from_private([3; 32]).public());
    assert_eq!(hub.poll_notice(), Some(EndpointNotice::Stranger { address, key }));
    let [stranger] = &hub.strangers(at(1.0))[..] else { panic!("one") };
    assert_eq!((stranger.address, stranger.key, stranger.attempts), (address, key, 1));
    // Once it is permitted, it is none.
    hub.set_allowed(at(1.0), key.into_iter().collect());
    assert_eq!(hub.strangers(at(1.0)), []);
}

#[test]
fn a_terminal_that_asks_for_another_hub_is_reported_without_its_key() {
    let (mut hub, _, address) = strangers();
    let key = |seed: u8| KeyPair::from_private([seed; 32]);
    let config = Config::new(BitRate::from_mbit(10));
    let wrong = key(7).public();
    let mut lost = Endpoint::terminal(config, key(2), wrong, vec![address], [8; 32]);
    for second in 1..4 {
        lost.handle_timeout(at(f64::from(second)));
        for mut datagram in drain(&mut lost, at(f64::from(second))) {
            hub.handle_datagram(at(f64::from(second)), address, &mut datagram);
        }
    }
    assert_eq!(hub.poll_notice(), Some(EndpointNotice::Stranger { address, key: None }));
    assert_eq!(hub.poll_notice(), None);
    let [stranger] = &hub.strangers(at(3.0))[..] else { panic!("one") };
    assert!(stranger.attempts > 1, "{stranger:?}");
    assert!(drain(&mut hub, at(3.0)).is_empty());
}

#[test]
fn noise_from_the_network_is_ignored() {
    let (mut hub, ..) = strangers();
    let address = SocketAddr::from(([10, 0, 0, 7], 7));
    let mut state = 1u64;
    for length in 0..1500 {
        let mut datagram: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        if let Some(first) = datagram.first_mut() {
            *first = [0x01, 0x02, 0x40, 0x63, *first][length % 5];
        }
        hub.handle_datagram(at(1.0), address, &mut datagram);
    }
    assert_eq!(hub.ignored(), 1500);
    drain(&mut hub, at(2.0));
    assert_eq!((hub.footprint(), hub.poll_timeout()), (EndpointFootprint::default(), None));
}

#[test]
fn a_replayed_first_message_does_not_disturb_the_session() {
    let key = |seed: u8| KeyPair::from_private([seed; 32]);
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    let config = Config::new(BitRate::from_mbit(10));
    let mut hub = Endpoint::hub(config.clone(), key(1), vec![key(2).public()], [9; 32]);
    let mut terminal = Endpoint::terminal(config, key(2), key(1).public(), vec![address], [8; 32]);
    let first = drain(&mut terminal, at(1.0)).remove(0);
    hub.handle_datagram(at(1.0), address, &mut first.clone());
    for mut answer in drain(&mut hub, at(1.0)) {
        terminal.handle_datagram(at(1.0), address, &mut answer);
    }
    for mut packet in drain(&mut terminal, at(1.1)) {
        hub.handle_datagram(at(1.1), address, &mut packet);
    }
    assert!(matches!(hub.poll_event(), Some((_, Event::Up { .. }))));
    for i in 0..50 {
        let now = at(2.0 + f64::from(i));
        hub.handle_datagram(now, SocketAddr::from(([6, 6, 6, 6], 6)), &mut first.clone());
        drain(&mut hub, now);
    }
    // The terminal has been silent meanwhile, but its session survives.
    while let Some((_, event)) = hub.poll_event() {
        assert_eq!(event, Event::Unreachable);
    }
}
