//! A terminal and a hub connected without delay.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;
use std::net::SocketAddr;

use slacp::{Config, Endpoint, Event, KeyPair, SessionId, StreamId, StreamOpening};
use units::{BitRate, Instant, Machine};

pub struct Pair {
    pub now: Instant,
    pub terminal: Endpoint,
    pub hub: Endpoint,
    /// The session's identifier on each side.
    pub ids: [SessionId; 2],
}

pub fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1))
}

impl Pair {
    /// A pair with a session.
    pub fn new(rate: BitRate) -> Self {
        Self::with(Config::new(rate))
    }

    /// A pair with a session, both sides with this configuration.
    pub fn with(config: Config) -> Self {
        Self::prepared(config, |_| {})
    }

    /// The same, with owner commands to the hub before there is a session.
    pub fn prepared(mut config: Config, prepare: impl FnOnce(&mut Endpoint)) -> Self {
        config.aes = true;
        let to = vec![address()];
        let mut hub = Endpoint::hub(config.clone(), key(1), vec![key(2).public()], [9; 32]);
        prepare(&mut hub);
        let mut terminal = Endpoint::terminal(config, key(2), key(1).public(), to, [8; 32]);
        let mut now = Instant::from_nanos(1_000_000_000);
        exchange(&mut now, &mut terminal, &mut hub);
        let ids = [up(&mut terminal), up(&mut hub)];
        Self { now, terminal, hub, ids }
    }

    /// Advances time by half a second.
    pub fn exchange(&mut self) {
        exchange(&mut self.now, &mut self.terminal, &mut self.hub);
    }

    /// A stream that the terminal opens.
    pub fn open_only(&mut self) -> StreamId {
        let open = StreamOpening { destination: address(), source: address(), dscp: None };
        self.terminal.open(self.now, self.ids[0], open).unwrap()
    }

    /// A stream that the hub knows of.
    pub fn open(&mut self) -> StreamId {
        let id = self.open_only();
        self.exchange();
        id
    }
}

/// The hub's key is derived from seed 1, the terminal's from 2.
pub fn key(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

fn exchange(now: &mut Instant, terminal: &mut Endpoint, hub: &mut Endpoint) {
    for _ in 0..20 {
        *now += Duration::from_millis(30);
        pass(*now, terminal, hub);
        pass(*now, hub, terminal);
    }
}

/// Delivers everything one side has to send to the other; returns the number of datagrams.
pub fn pass(now: Instant, from: &mut Endpoint, to: &mut Endpoint) -> usize {
    let (mut datagram, mut count) = (Vec::new(), 0);
    from.handle_timeout(now);
    while from.poll_transmit(now, &mut datagram).is_some() {
        to.handle_datagram(now, address(), &mut datagram);
        count += 1;
    }
    count
}

fn up(endpoint: &mut Endpoint) -> SessionId {
    let events = core::iter::from_fn(|| endpoint.poll_event());
    let mut ups = events.filter(|(_, event)| matches!(event, Event::Up { .. }));
    ups.next().expect("a session").0
}
