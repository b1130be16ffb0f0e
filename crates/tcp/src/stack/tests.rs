use core::time::Duration;
use std::net::IpAddr;

use bytes::Bytes;
use units::ByteCount;

use super::*;
use crate::segment::{Ecn, HeaderFlags};
use crate::wire;

const LIMITS: StackLimits = StackLimits { flows: 3, incoming: 2 };
const ISS: SeqNr = SeqNr::new(7);
const LATENCY: Duration = Duration::from_millis(10);

fn config() -> Arc<Config> {
    Arc::new(Config { snack: true, nagle: false, ..Config::default() })
}

fn path(port: u16) -> SegmentPath {
    let address = |last: u8| IpAddr::from([10, 0, 0, last]);
    SegmentPath { from: address(1), from_port: port, to: address(2), to_port: 80 }
}

/// Two hosts and the wire between them, on which segments travel as bytes.
struct Net {
    now: Instant,
    hosts: [Stack<Bytes>; 2],
}

impl Net {
    fn new(limits: StackLimits) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self { now, hosts: [(); 2].map(|()| Stack::new(limits)) }
    }

    /// Takes what a host sends.
    fn sent(&mut self, host: usize) -> Vec<(SegmentPath, Segment<Bytes>)> {
        std::iter::from_fn(|| self.hosts[host].poll_transmit(self.now)).collect()
    }

    /// Carries segments until no host has any, and returns all events.
    fn run(&mut self) -> [Vec<StackEvent>; 2] {
        loop {
            let sent = [0, 1].map(|host| self.sent(host));
            if sent.iter().all(Vec::is_empty) {
                return [0, 1]
                    .map(|host| std::iter::from_fn(|| self.hosts[host].poll_event()).collect());
            }
            self.now += LATENCY;
            for (host, segments) in sent.into_iter().enumerate() {
                for (path, segment) in segments {
                    let mut bytes = Vec::new();
                    wire::encode(&path, &segment, &mut bytes);
                    let decoded = wire::decode(path.from, path.to, Ecn::NotEct, &bytes.into());
                    let (path, segment) = decoded.unwrap();
                    self.hosts[1 - host].handle_segment(self.now, &path, &segment);
                }
            }
        }
    }

    /// Lets time pass until the next timer of each host.
    fn wake(&mut self) {
        let next = self.hosts.iter().filter_map(|host| Some(host.poll_timeout()?.0)).min();
        self.now = next.expect("a timer runs");
        let now = self.now;
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(now));
    }

    /// Lets time pass until nothing is left of any connection.
    fn run_out(&mut self) {
        while self.hosts.iter().any(|host| !host.flows.is_empty()) {
            self.wake();
            self.run();
        }
        assert!(self.hosts.iter().all(|host| host.paths.is_empty() && host.alarms.is_empty()));
        assert!(self.hosts.iter().all(|host| host.lingering.is_empty()));
    }

    /// A connection between the hosts, with its ids.
    fn open(&mut self, port: u16) -> [FlowId; 2] {
        let here = self.hosts[0].connect(path(port), config(), ISS).unwrap();
        let [_, theirs] = self.run();
        let [StackEvent::Incoming(there)] = theirs[..] else { panic!("{theirs:?}") };
        self.hosts[1].accept(self.now, there, config(), ISS);
        self.run();
        assert_eq!(self.hosts[0].is_connected(here), Ok(true));
        assert_eq!(self.hosts[1].is_connected(there), Ok(true));
        [here, there]
    }

    fn end(&mut self, flows: [FlowId; 2]) {
        for host in [0, 1] {
            self.hosts[host].finish(flows[host]).unwrap();
            self.run();
        }
        for host in [0, 1] {
            assert_eq!(self.hosts[host].read(flows[host], 9), FlowRead::End);
            assert!(self.hosts[host].is_delivered(flows[host]));
            self.hosts[host].release(flows[host]);
        }
        self.run();
    }
}

#[test]
fn a_syn_is_answered_when_the_owner_says_so_and_data_flows_both_ways() {
    let mut net = Net::new(LIMITS);
    let here = net.hosts[0].connect(path(1000), config(), ISS).unwrap();
    let [_, theirs] = net.run();
    let [StackEvent::Incoming(there)] = theirs[..] else { panic!("{theirs:?}") };
    assert_eq!(net.hosts[0].is_connected(here), Ok(false), "nobody has answered");
    assert_eq!((net.hosts[1].syn(there), net.hosts[0].syn(here)), (Some(ISS), None));
    // The SYN is sent again meanwhile, which is no second flow.
    net.wake();
    assert_eq!(net.run(), [vec![], vec![]]);
    net.hosts[1].accept(net.now, there, config(), ISS);
    let events = net.run();
    assert_eq!(events, [[StackEvent::Changed(here)], [StackEvent::Changed(there)]]);
    for (host, flow, text) in [(0, here, "question"), (1, there, "answer")] {
        let data = Bytes::from_static(text.as_bytes());
        assert_eq!(net.hosts[host].write(flow, &data), Ok(text.len()));
        net.run();
        let other = [there, here][host];
        assert_eq!(net.hosts[1 - host].read(other, 100), FlowRead::Data(data));
        assert_eq!(net.hosts[1 - host].read(other, 100), FlowRead::Blocked);
    }
    net.end([here, there]);
    assert_eq!(
        net.hosts[1].read(there, 9),
        FlowRead::Failed(FlowFailure::GONE),
        "nothing is left of it"
    );
    let [ours, theirs] = net.hosts.each_ref().map(Stack::counts);
    assert_eq!((ours.opened, ours.accepted, ours.snack, ours.sack), (1, 0, 1, 1));
    assert_eq!((theirs.opened, theirs.accepted, theirs.snack, theirs.sack), (0, 1, 1, 1));
}

#[test]
fn a_refused_syn_is_a_refused_connection_and_an_ignored_one_is_nothing() {
    let mut net = Net::new(LIMITS);
    let here = net.hosts[0].connect(path(1000), config(), ISS).unwrap();
    let [_, theirs] = net.run();
    let [StackEvent::Incoming(there)] = theirs[..] else { panic!("{theirs:?}") };
    net.hosts[1].refuse(there);
    net.run();
    let refused = FlowFailure { why: AbortReason::Refused, after_end: false };
    assert_eq!(net.hosts[0].is_connected(here), Err(refused));
    net.hosts[0].release(here);
    net.run();

    let here = net.hosts[0].connect(path(1001), config(), ISS).unwrap();
    let [_, theirs] = net.run();
    let [StackEvent::Incoming(there)] = theirs[..] else { panic!("{theirs:?}") };
    net.hosts[1].abort(net.now, there);
    assert_eq!(net.run(), [vec![], vec![]]);
    assert_eq!(net.hosts[0].is_connected(here), Ok(false));
}

#[test]
fn a_host_that_gives_up_before_it_is_answered_is_forgotten() {
    let mut net = Net::new(LIMITS);
    net.hosts[0].connect(path(1000), config(), ISS).unwrap();
    let [_, theirs] = net.run();
    let [StackEvent::Incoming(there)] = theirs[..] else { panic!("{theirs:?}") };
    let rst = HeaderFlags { rst: true, ..HeaderFlags::default() };
    for (seq, failed) in [(ISS.advance(9), false), (ISS.advance(1), true)] {
        let reset = Segment { seq, flags: rst, ..Segment::default() };
        net.hosts[1].handle_segment(net.now, &path(1000), &reset);
        assert_eq!(net.hosts[1].failure(there).is_some(), failed);
    }
    assert_eq!(net.hosts[1].poll_event(), Some(StackEvent::Changed(there)));
    net.hosts[1].abort(net.now, there);
    assert_eq!(net.hosts[1].owned(), 0);
}

#[test]
fn only_what_is_addressed_to_a_connection_reaches_it() {
    let mut net = Net::new(LIMITS);
    let [here, there] = net.open(1000);
    let ack = Segment { seq: ISS, ack: Some(ISS), ..Segment::default() };
    net.hosts[1].handle_segment(net.now, &path(999), &ack);
    let answers = net.sent(1);
    let [(to, reset)] = &answers[..] else { panic!("{answers:?}") };
    assert!(*to == path(999).reversed() && reset.flags.rst && reset.seq == ISS);
    net.hosts[1].handle_segment(net.now, &path(999), reset);
    assert!(net.sent(1).is_empty(), "a reset is not answered");
    (0..10 * MAX_QUEUED_RESETS)
        .for_each(|_| net.hosts[1].handle_segment(net.now, &path(999), &ack));
    assert_eq!(net.sent(1).len(), MAX_QUEUED_RESETS);
    net.end([here, there]);
}

#[test]
fn an_abort_is_a_reset_at_the_other_end() {
    let mut net = Net::new(LIMITS);
    let [here, there] = net.open(1000);
    net.hosts[0].abort(net.now, here);
    net.run();
    let reset = FlowFailure { why: AbortReason::Reset, after_end: false };
    assert_eq!(net.hosts[1].failure(there), Some(reset));
    assert_eq!(net.hosts[1].read(there, 9), FlowRead::Failed(reset));
    assert_eq!(net.hosts[1].write(there, &Bytes::from_static(b"x")), Err(reset));
    assert_eq!(net.hosts[1].finish(there), Err(reset));
    net.hosts[1].abort(net.now, there);
    net.run();
    assert!(net.hosts[1].flows.is_empty(), "it has nothing to say");
    net.run_out();
}

#[test]
fn a_lost_reset_is_sent_again() {
    let mut net = Net::new(LIMITS);
    let [here, there] = net.open(1000);
    let began = net.now;
    net.hosts[0].abort(net.now, here);
    assert_eq!(net.sent(0).len(), 1, "which the wire loses");
    net.wake();
    net.run();
    let reset = FlowFailure { why: AbortReason::Reset, after_end: false };
    assert_eq!(net.hosts[1].failure(there), Some(reset));
    let took = net.now.saturating_since(began);
    assert!(took <= Duration::from_secs(1) + LATENCY, "{took:?}");
}

#[test]
fn a_reset_is_not_sent_for_ever_and_never_after_a_long_pause() {
    let mut net = Net::new(LIMITS);
    let [here, _] = net.open(1000);
    net.hosts[0].abort(net.now, here);
    let mut sent = net.sent(0).len();
    let mut last = net.now;
    while !net.hosts[0].flows.is_empty() {
        net.wake();
        assert!(net.now.saturating_since(last) < Duration::from_secs(10), "firewalls forget it");
        last = net.now;
        sent += net.sent(0).len();
    }
    assert_eq!(sent, 5);
    assert!(net.hosts[0].alarms.is_empty() && net.hosts[0].lingering.is_empty());
}

#[test]
fn a_reset_is_sent_once_to_a_peer_that_has_reset_too_and_before_the_handshake_is_complete() {
    let mut net = Net::new(LIMITS);
    let flows = net.open(1000);
    (0..2).for_each(|host| net.hosts[host].abort(net.now, flows[host]));
    net.run();
    assert!(net.hosts.iter().all(|host| host.flows.is_empty()));

    net.hosts[0].connect(path(1001), config(), ISS).unwrap();
    let [_, theirs] = net.run();
    let [StackEvent::Incoming(there)] = theirs[..] else { panic!("{theirs:?}") };
    net.hosts[1].accept(net.now, there, config(), ISS);
    net.hosts[1].abort(net.now, there);
    assert_eq!(net.sent(1).len(), 1);
    assert!(net.hosts[1].flows.is_empty());
}

#[test]
fn a_new_syn_takes_the_place_of_a_connection_whose_reset_is_sent_again() {
    let mut net = Net::new(LIMITS);
    let [here, there] = net.open(1000);
    net.hosts[1].abort(net.now, there);
    net.run();
    net.hosts[0].release(here);
    net.run();
    assert_eq!((net.hosts[0].flows.len(), net.hosts[1].flows.len()), (0, 1));
    net.open(1000);
    assert_eq!(net.hosts[1].flows.len(), 1, "nothing is left of the earlier one");
}

#[test]
fn there_are_no_more_flows_than_allowed() {
    let mut net = Net::new(LIMITS);
    let mut clients = Net::new(StackLimits { flows: 10, incoming: 0 });
    // Two SYNs may wait for an answer.
    for port in 0..3 {
        clients.hosts[0].connect(path(port), config(), ISS).unwrap();
    }
    for (path, syn) in clients.sent(0) {
        net.hosts[1].handle_segment(net.now, &path, &syn);
    }
    assert_eq!((net.hosts[1].owned(), net.hosts[1].counts().ignored), (2, 1));
    assert!(net.sent(1).is_empty());

    let mut net = Net::new(LIMITS);
    for port in 0..3 {
        net.open(port);
    }
    let again = net.hosts[0].connect(path(0), config(), ISS);
    assert_eq!(again, Err(StackError::Full { flows: 3 }));
    let error = again.unwrap_err().to_string();
    assert_eq!(error, "there are 3 connections, as many as allowed");

    let mut net = Net::new(LIMITS);
    net.open(5);
    let again = net.hosts[0].connect(path(5), config(), ISS);
    assert_eq!(again, Err(StackError::InUse { port: 5 }));
}

#[test]
fn finished_connections_linger_but_not_too_many() {
    let mut net = Net::new(LIMITS);
    for port in 0..10 {
        let flows = net.open(port);
        net.end(flows);
        assert_eq!(net.hosts[0].owned(), 0);
        assert_eq!(net.hosts[0].flows.len(), LIMITS.flows.min(usize::from(port) + 1));
        assert_eq!(net.hosts[1].flows.len(), 0, "the other end closed last");
    }
    // 2 MSL later.
    while !net.hosts[0].flows.is_empty() {
        net.wake();
        net.run();
    }
    assert!(net.hosts[0].lingering.is_empty() && net.hosts[0].paths.is_empty());
}

#[test]
fn a_new_syn_takes_the_place_of_a_connection_in_time_wait() {
    let mut net = Net::new(LIMITS);
    let [here, there] = net.open(1000);
    // The host that was called ends first, and so waits.
    for (host, flow) in [(1, there), (0, here)] {
        net.hosts[host].finish(flow).unwrap();
        net.run();
    }
    net.hosts[0].release(here);
    net.hosts[1].release(there);
    net.run();
    assert_eq!((net.hosts[0].flows.len(), net.hosts[1].flows.len()), (0, 1));
    let syn = |seq| Segment {
        seq,
        flags: HeaderFlags { syn: true, ..HeaderFlags::default() },
        ..Segment::default()
    };
    net.hosts[1].handle_segment(net.now, &path(1000), &syn(ISS));
    assert_eq!(net.hosts[1].poll_event(), None, "an old duplicate");
    net.hosts[1].handle_segment(net.now, &path(1000), &syn(ISS.advance(100)));
    assert!(matches!(net.hosts[1].poll_event(), Some(StackEvent::Incoming(_))));
}

#[test]
fn an_unreachable_destination_fails_a_connection_that_is_not_open_yet() {
    let mut net = Net::new(LIMITS);
    let here = net.hosts[0].connect(path(1000), config(), ISS).unwrap();
    net.hosts[0].handle_unreachable(&path(1000), ISS.advance(1));
    net.hosts[0].handle_unreachable(&path(1001), ISS);
    assert_eq!(net.hosts[0].failure(here), None, "it is about another segment");
    net.hosts[0].handle_unreachable(&path(1000), ISS);
    let cut = FlowFailure { why: AbortReason::Unreachable, after_end: false };
    assert_eq!(net.hosts[0].is_connected(here), Err(cut));
    net.hosts[0].release(here);
    net.run();

    let [here, _] = net.open(1001);
    net.hosts[0].handle_unreachable(&path(1001), ISS);
    assert_eq!(net.hosts[0].failure(here), None, "an open connection may recover");
}

#[test]
fn connections_take_turns() {
    let mut net = Net::new(LIMITS);
    let flows = [0, 1].map(|port| net.open(port)[0]);
    let data = Bytes::from(vec![0; 4 * 1448]);
    for flow in flows {
        assert_eq!(net.hosts[0].write(flow, &data), Ok(data.len()));
    }
    let ports: Vec<u16> = net.sent(0).iter().map(|(path, _)| path.from_port).collect();
    assert_eq!(ports, [0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn a_writer_hears_of_room_once_there_is_more_than_a_little() {
    let mut net = Net::new(LIMITS);
    let [here, there] = net.open(1000);
    let buffer = config().send_buffer;
    let data = Bytes::from(vec![0; buffer.get() as usize]);
    assert_eq!(net.hosts[0].has_room(here), Ok(true));
    assert_eq!(net.hosts[0].write(here, &data), Ok(data.len()));
    assert_eq!(net.hosts[0].has_room(here), Ok(false));
    assert_eq!(net.hosts[0].held(), buffer.get());
    let [ours, _] = net.run();
    assert!(ours.contains(&StackEvent::Changed(here)));
    assert_eq!(net.hosts[0].has_room(here), Ok(true));
    // What the reader has not taken is held, and its reading opens the window again.
    let mut read = 0;
    let window = net.hosts[1].held();
    assert!(window > 0 && ByteCount::new(window) <= config().receive_buffer);
    while read < data.len() {
        match net.hosts[1].read(there, 1 << 20) {
            FlowRead::Data(data) => read += data.len(),
            FlowRead::Blocked => drop(net.run()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(net.hosts.each_ref().map(Stack::held), [0, 0]);
}
