//! Compares the indices with a full scan of the sessions, under random events.

use core::time::Duration;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use units::{BitRate, Instant, Machine, earliest};

use crate::{
    ChannelConfig, ChannelId, ClassConfig, ClassId, CloseReason, Config, Ecn, Endpoint,
    ErrorControl, Event, KeyPair, Rate, ReadOutcome, ResetReason, SessionId, SessionShare,
    StreamId, StreamOpening,
};

fn key(n: u8) -> KeyPair {
    KeyPair::from_private([n + 1; 32])
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 1))
}

fn channel() -> ChannelId {
    ChannelId::new(0).unwrap()
}

/// On links of so many times 20 Mbit/s.
fn config(scale: usize) -> Config {
    let initial = BitRate::from_mbit(20 * scale as u64);
    let mut config = Config::new(Rate::Modem { initial });
    config.add_channel(channel(), ChannelConfig::new(ErrorControl::FecArq)).unwrap();
    let maximum = Some(BitRate::from_mbit(5 * scale as u64));
    for class in [ClassConfig { weight: 3, ..plain() }, ClassConfig { maximum, ..plain() }] {
        config.add_class(class).unwrap();
    }
    config
}

fn plain() -> ClassConfig {
    ClassConfig::default()
}

/// A hub, number 0, and its terminals.
struct Net {
    now: Instant,
    /// How fast the links are, and how much is written and how little lost.
    scale: usize,
    nodes: Vec<Endpoint>,
    sessions: Vec<Vec<SessionId>>,
    streams: Vec<Vec<(SessionId, StreamId)>>,
    /// Whether [`Self::check`] runs its full scan.
    checks: bool,
    /// Whether datagrams leave and come in runs.
    runs: bool,
    /// How many datagrams were asked for as more of the same.
    more: usize,
    /// All datagrams and events, if they are recorded.
    record: Option<Vec<Happened>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    to: SocketAddr,
    session: Option<SessionId>,
    label: (Ecn, u8, bool, u8),
    bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Happened {
    Sent(Sent),
    Event(SessionId, Event),
}

impl Net {
    fn new(terminals: u8) -> Self {
        Self::scaled(terminals, 1)
    }

    fn scaled(terminals: u8, scale: usize) -> Self {
        let config = || config(scale);
        let allow = (1..=terminals).map(|n| key(n).public()).collect();
        let hub = Endpoint::hub(config(), key(0), allow, [200; 32]);
        let terminal = |n: u8| {
            let hub = key(0).public();
            Endpoint::terminal(config(), key(n), hub, vec![address(0)], [n; 32])
        };
        let nodes: Vec<_> = [hub].into_iter().chain((1..=terminals).map(terminal)).collect();
        let count = nodes.len();
        let now = Instant::from_nanos(1_000_000_000);
        let (sessions, streams) = (vec![vec![]; count], vec![vec![]; count]);
        Self {
            now,
            scale,
            nodes,
            sessions,
            streams,
            checks: true,
            runs: false,
            more: 0,
            record: None,
        }
    }

    /// Advances time and delivers everything sent, unless `lost` drops it.
    fn step(&mut self, time: Duration, mut lost: impl FnMut() -> bool) {
        self.now += time;
        for from in 0..self.nodes.len() {
            self.nodes[from].handle_timeout(self.now);
            self.check(from);
            let mut sent = self.transmit(from);
            if let Some(record) = &mut self.record {
                record.extend(sent.iter().cloned().map(Happened::Sent));
            }
            sent.retain(|_| !lost());
            for run in sent.chunk_by_mut(|one, next| one.to == next.to) {
                self.deliver(from, run);
            }
            self.take_events(from);
        }
    }

    fn transmit(&mut self, from: usize) -> Vec<Sent> {
        let (mut sent, mut buf, now) = (Vec::new(), Vec::new(), self.now);
        if self.runs {
            let mut run = self.nodes[from].run(now);
            while let Some(to) = run.transmit(&mut buf) {
                let (len, most) = (buf.len(), sent.len() % 50);
                let count = 1 + run.transmit_more(&mut buf, most);
                assert!(count <= 1 + most && buf.len() == count * len, "{count} of {len} bytes");
                sent.extend(buf.chunks(len).map(|bytes| as_sent(run.endpoint(), to, bytes)));
                self.more += count - 1;
                buf.clear();
            }
            assert_eq!(run.transmit_more(&mut buf, 9), 0, "there is none to be like");
            drop(run);
            self.check(from);
            // To ask once more would change whose turn it is.
            return sent;
        }
        while let Some(to) = self.nodes[from].poll_transmit(now, &mut buf) {
            self.check(from);
            sent.push(as_sent(&self.nodes[from], to, &buf));
        }
        sent
    }

    /// Delivers datagrams for one node.
    fn deliver(&mut self, from: usize, datagrams: &mut [Sent]) {
        let (to, came) = (datagrams[0].to, address(from as u8));
        let to = (0..self.nodes.len()).find(|n| address(*n as u8) == to).unwrap();
        if self.runs {
            let mut run = self.nodes[to].run(self.now);
            for datagram in datagrams {
                run.handle_datagram(came, Ecn::NotEct, &mut datagram.bytes);
            }
            drop(run);
            return self.check(to);
        }
        for datagram in datagrams {
            self.nodes[to].handle_datagram(self.now, came, &mut datagram.bytes);
            self.check(to);
        }
    }

    fn take_events(&mut self, n: usize) {
        while let Some((session, event)) = self.nodes[n].poll_event() {
            if let Some(record) = &mut self.record {
                record.push(Happened::Event(session, event.clone()));
            }
            match event {
                Event::Up { .. } => self.sessions[n].push(session),
                Event::Opened { stream, .. } => self.streams[n].push((session, stream)),
                _ => {}
            }
            self.check(n);
        }
    }

    /// Checks that the indices of a node agree with a full scan.
    fn check(&self, n: usize) {
        if !self.checks {
            return;
        }
        let core = &self.nodes[n].core;
        for (id, schedule, truth) in core.sessions.audit() {
            assert_eq!(schedule, truth, "{id:?} of node {n}");
        }
        let link_free = core.link.ready_at();
        let scan = core.sessions.iter().fold(None, |soonest, (id, session)| {
            let free = link_free.max(core.sessions.open_at(id));
            let send = session.send_time().map(|(time, wake)| (time.max(free), wake));
            earliest(soonest, earliest(send, session.poll_timeout()))
        });
        // What is overdue is due now, whichever session's turn it is.
        let time = |wish: Option<(Instant, _)>| wish.map(|(time, _)| time.max(self.now));
        assert_eq!(time(core.sessions.poll_timeout(link_free)), time(scan), "node {n}");
    }
}

fn as_sent(endpoint: &Endpoint, to: SocketAddr, bytes: &[u8]) -> Sent {
    let (ecn, dscp) = (endpoint.transmit_ecn(), endpoint.transmit_dscp());
    let label = (ecn, dscp, endpoint.transmit_is_control(), endpoint.transmit_link());
    Sent { to, session: endpoint.transmit_session(), label, bytes: bytes.to_vec() }
}

fn share(scale: usize, dice: &mut impl FnMut(usize) -> usize) -> SessionShare {
    let mut rate = || Some(BitRate::from_mbit((scale * dice(20)) as u64)).filter(|_| dice(2) > 0);
    SessionShare { guaranteed: rate(), maximum: rate(), weight: dice(4) as u32 }
}

/// Runs a random owner command.
fn command(net: &mut Net, n: usize, dice: &mut impl FnMut(usize) -> usize) {
    let (now, scale) = (net.now, net.scale);
    let sessions = &net.sessions[n];
    if sessions.is_empty() {
        return;
    }
    let id = sessions[dice(sessions.len())];
    let streams = &net.streams[n];
    let stream = (!streams.is_empty()).then(|| streams[dice(streams.len())]);
    let node = &mut net.nodes[n];
    match (dice(24), stream) {
        (0..4, _) => {
            let open = StreamOpening { destination: address(9), source: address(8), dscp: None };
            if let Ok(stream) = node.open(now, id, open) {
                net.streams[n].push((id, stream));
            }
        }
        (4..10, Some((id, stream))) => _ = node.write(id, stream, &vec![1; scale * dice(30_000)]),
        (10..16, Some((id, stream))) => {
            _ = node.read(id, stream, &mut vec![0; scale * dice(40_000) + 1]);
        }
        (16, Some((id, stream))) => _ = node.finish(id, stream),
        (17, Some((id, stream))) => _ = node.reset(id, stream, ResetReason::Reset),
        (18, Some((id, stream))) if dice(2) == 0 => _ = node.accept(id, stream),
        (18, Some((id, stream))) => _ = node.classify(id, stream, ClassId(dice(3) as u8)),
        (19, _) => _ = node.send_packet(now, id, channel(), &vec![0x45; 20 + dice(1300)]),
        (20, _) => {
            let rate = BitRate::from_mbit((dice(3) * 10 * scale) as u64);
            _ = node.set_rate(now, id, rate, Duration::from_millis(dice(3000) as u64));
        }
        (21, _) => _ = node.set_event_log(id, dice(2) * 50),
        (22, _) => {
            _ = (node.poll_log(), node.poll_packet(), node.set_share(now, id, share(scale, dice)));
        }
        (23, _) if dice(20) == 0 => _ = node.close(now, id, CloseReason::Prohibited),
        _ => node.configure_classes(now, &config(scale), Some),
    }
}

/// Lets a hub and four terminals do at random what a seed says.
fn play(net: &mut Net, seed: u64) {
    println!("seed {seed}");
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut dice = move |sides: usize| rng.next_u32() as usize % sides.max(1);
    (0..3).for_each(|_| net.step(Duration::from_millis(1), || false));
    for _ in 0..400 {
        let n = dice(net.nodes.len());
        command(net, n, &mut dice);
        net.check(n);
        let time = Duration::from_micros([0, 100, 5_000, 700_000][dice(4)]);
        let loss = [0, 0, 1, 10][dice(4)];
        let most = 10 * net.scale * net.scale;
        net.step(time, || dice(most) < loss);
    }
}

#[test]
fn the_books_say_what_every_session_wants() {
    (0..40).for_each(|seed| play(&mut Net::new(4), seed));
}

#[test]
fn runs_change_neither_datagrams_nor_events() {
    let mut more = 0;
    let slow_and_fast = (0..40).map(|seed| (1, seed)).chain((0..15).map(|seed| (100, seed)));
    for (scale, seed) in slow_and_fast {
        let [one_by_one, in_runs] = [false, true].map(|runs| {
            let mut net = Net { runs, record: Some(Vec::new()), ..Net::scaled(4, scale) };
            play(&mut net, seed);
            more += net.more;
            net.record.unwrap_or_default()
        });
        assert!(one_by_one.len() > 500, "{}", one_by_one.len());
        let different = one_by_one.iter().zip(&in_runs).position(|(one, other)| one != other);
        assert_eq!((different, in_runs.len()), (None, one_by_one.len()), "seed {seed}, {scale}");
    }
    assert!(more > 100_000, "{more} as more of the same");
}

/// A hub with this many idle sessions.
fn idle(terminals: u8) -> Net {
    let mut net = Net::new(terminals);
    net.checks = false;
    // Until the path MTU search is over.
    (0..3000).for_each(|_| net.step(Duration::from_millis(1), || false));
    net
}

/// How often a hub visits a session while one of them carries a megabyte.
fn looks(terminals: u8) -> u64 {
    let mut net = idle(terminals);
    let before = net.nodes[0].core.sessions.looks();
    let id = net.sessions[0][0];
    let open = StreamOpening { destination: address(9), source: address(8), dscp: None };
    let stream = net.nodes[0].open(net.now, id, open).unwrap();
    let mut written = 0;
    while written < 1_000_000 {
        written += net.nodes[0].write(id, stream, &[7; 10_000]).unwrap();
        net.step(Duration::from_millis(1), || false);
        for (node, streams) in net.nodes.iter_mut().zip(&net.streams).skip(1) {
            for (session, stream) in streams {
                while let Ok(ReadOutcome::Data(_)) = node.read(*session, *stream, &mut [0; 10_000])
                {
                }
            }
        }
    }
    net.nodes[0].core.sessions.looks() - before
}

#[test]
fn idle_sessions_beside_a_busy_one_are_not_looked_at() {
    let alone = looks(1);
    assert!(alone > 500, "{alone}");
    let beside = looks(40);
    assert!(beside < alone + 39, "{beside}, alone {alone}");
}

#[test]
fn packets_of_unknown_sessions_have_no_session_looked_at() {
    let Net { now, mut nodes, .. } = idle(40);
    let hub = &mut nodes[0];
    let before = hub.core.sessions.looks();
    for n in 0..1000u32 {
        let mut packet = vec![0x40];
        packet.extend(n.to_be_bytes());
        packet.resize(60, 7);
        hub.handle_datagram(now, address(n as u8), &mut packet);
        hub.poll_timeout();
    }
    assert_eq!(hub.core.sessions.looks() - before, 0);
}
