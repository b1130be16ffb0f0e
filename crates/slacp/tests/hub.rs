//! A hub with several terminals shares its rate among them.

use core::time::Duration;
use std::net::SocketAddr;

use slacp::{ChannelConfig, ChannelId, Config, Endpoint, ErrorControl, Event, KeyPair, SessionId};
use units::{BitRate, Instant, Machine};

const TERMINALS: u8 = 3;

fn key(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

/// Terminal `n`, or the hub, which is number 0.
fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 5900))
}

fn channel() -> ChannelId {
    ChannelId::new(0).unwrap()
}

fn config() -> Config {
    let mut config = Config::new(BitRate::from_mbit(10));
    config.add_channel(channel(), ChannelConfig::new(ErrorControl::None)).unwrap();
    config
}

/// A hub and its terminals on links without delay or limit.
struct Star {
    now: Instant,
    hub: Endpoint,
    terminals: Vec<Endpoint>,
    /// The hub's sessions, by terminal.
    sessions: Vec<SessionId>,
}

impl Star {
    fn new() -> Self {
        let allow = (1..=TERMINALS).map(|n| key(n).public()).collect();
        let hub = Endpoint::hub(config(), key(100), allow, [1; 32]);
        let terminal = |n| {
            let hub = key(100).public();
            Endpoint::terminal(config(), key(n), hub, vec![address(0)], [n; 32])
        };
        let now = Instant::from_nanos(1_000_000_000);
        let terminals = (1..=TERMINALS).map(terminal).collect();
        let mut star = Self { now, hub, terminals, sessions: Vec::new() };
        (0..10).for_each(|_| star.step());
        let mut up = Vec::new();
        while let Some((session, event)) = star.hub.poll_event() {
            if let Event::Up { address, .. } = event {
                up.push((address, session));
            }
        }
        up.sort();
        star.sessions = up.into_iter().map(|(_, session)| session).collect();
        assert_eq!(star.sessions.len(), usize::from(TERMINALS));
        star
    }

    /// A millisecond passes.
    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        let mut buf = Vec::new();
        self.hub.handle_timeout(self.now);
        for (n, terminal) in (1..).zip(&mut self.terminals) {
            terminal.handle_timeout(self.now);
            while terminal.poll_transmit(self.now, &mut buf).is_some() {
                self.hub.handle_datagram(self.now, address(n), &mut buf);
            }
        }
        while let Some(to) = self.hub.poll_transmit(self.now, &mut buf) {
            let SocketAddr::V4(to) = to else { panic!() };
            let terminal = &mut self.terminals[usize::from(to.ip().octets()[3]) - 1];
            terminal.handle_datagram(self.now, address(0), &mut buf);
        }
    }

    /// The hub offers a terminal packets of `size` bytes.
    fn offer(&mut self, terminal: usize, size: usize, count: usize) {
        for _ in 0..count {
            let packet = vec![0x45; size];
            self.hub.send_packet(self.now, self.sessions[terminal], channel(), &packet).unwrap();
        }
    }

    fn bytes_sent(&self) -> Vec<f64> {
        let stats = self.sessions.iter().map(|session| self.hub.stats(*session).unwrap());
        stats.map(|stats| stats.bytes_sent as f64).collect()
    }
}

#[test]
fn terminals_share_the_rate_and_the_sparse_one_waits_its_turn() {
    let mut star = Star::new();
    let before = star.bytes_sent();
    for ms in 0..4000 {
        star.offer(0, 1400, 1);
        star.offer(1, 300, 4);
        if ms % 20 == 0 {
            star.offer(2, 200, 1);
        }
        star.step();
        let sparse = star.hub.channel_stats(star.sessions[2], channel()).unwrap();
        // One packet of each other terminal takes 2.4 ms; the steps are of 1 ms.
        assert!(sparse.queue_wait <= Duration::from_millis(3), "{sparse:?} at {ms} ms");
    }
    let sent: Vec<f64> =
        star.bytes_sent().iter().zip(before).map(|(after, before)| after - before).collect();
    println!("{sent:?}");
    let ratio = sent[0] / sent[1];
    assert!((0.8..1.25).contains(&ratio), "{sent:?}");
    let mbit = sent.iter().sum::<f64>() * 8.0 / 4e6;
    assert!((9.9..10.1).contains(&mbit), "{mbit}");
}
