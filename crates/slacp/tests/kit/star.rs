//! A hub and any number of terminals, joined by a network with delay only, in virtual time. The
//! cost of an event does not depend on their number.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use slacp::{Config, Endpoint, Event, KeyPair, LinkUse, PublicKey, SessionId, part_of, use_link};
use units::{BitRate, Instant, Machine};

/// The address of the hub.
pub fn hub_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5900))
}

/// The key number `n`. The hub has number 0.
pub fn key(n: u32) -> KeyPair {
    let mut private = [7; 32];
    private[..4].copy_from_slice(&n.to_be_bytes());
    KeyPair::from_private(private)
}

pub fn public(n: u32) -> PublicKey {
    key(n).public()
}

pub fn config() -> Config {
    Config::new(BitRate::from_mbit(100))
}

/// A terminal with key number `n`; `life` seeds its ephemeral keys.
pub fn terminal(config: Config, n: u32, life: u32) -> Endpoint {
    let mut seed = [3; 32];
    seed[..4].copy_from_slice(&n.to_be_bytes());
    seed[4..8].copy_from_slice(&life.to_be_bytes());
    Endpoint::terminal(config, key(n), public(0), vec![hub_address()], seed)
}

/// An endpoint on the network.
pub struct Node {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    /// Its events with their times.
    pub events: Vec<(Instant, SessionId, Event)>,
    alarm: Option<Instant>,
}

impl Node {
    fn new(endpoint: Endpoint, address: SocketAddr) -> Self {
        Self { endpoint, address, events: Vec::new(), alarm: None }
    }

    /// When it first had a session.
    pub fn up(&self) -> Option<Instant> {
        let up = self.events.iter().find(|(.., event)| matches!(event, Event::Up { .. }));
        up.map(|(time, ..)| *time)
    }

    /// Its present session.
    pub fn session(&self) -> Option<SessionId> {
        let last = self.events.iter().rev().find_map(|(_, id, event)| match event {
            Event::Up { .. } => Some(Some(*id)),
            Event::Down(_) => Some(None),
            _ => None,
        });
        last.flatten()
    }

    /// How many sessions it has had.
    pub fn sessions(&self) -> usize {
        self.events.iter().filter(|(.., event)| matches!(event, Event::Up { .. })).count()
    }
}

/// A datagram on its way.
struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    datagram: Vec<u8>,
}

pub struct Star {
    pub now: Instant,
    delay: Duration,
    /// The parts of the hub come first.
    pub nodes: Vec<Node>,
    /// How each part of a divided hub has used the link, and until when all together have.
    uses: Vec<LinkUse>,
    free_at: Instant,
    places: BTreeMap<SocketAddr, usize>,
    alarms: BTreeSet<(Instant, usize)>,
    /// The nodes whose link is down.
    faded: BTreeSet<usize>,
    wire: BTreeMap<(Instant, u64), Flight>,
    sent: u64,
}

impl Star {
    /// A hub for the keys 1 to `terminals`, at 1 s; datagrams take `delay`.
    pub fn new(config: &Config, terminals: u32, delay: Duration) -> Self {
        Self::divided(config, terminals, delay, 1)
    }

    /// The same, with a hub in `parts`.
    pub fn divided(config: &Config, terminals: u32, delay: Duration, parts: u8) -> Self {
        let allow: Vec<PublicKey> = (1..=terminals).map(public).collect();
        let hub = Endpoint::hub_in_parts(config, &key(0), &allow, [9; 32], parts);
        let mut star = Self {
            now: Instant::from_nanos(1_000_000_000),
            delay,
            nodes: Vec::new(),
            uses: vec![LinkUse::default(); hub.len()],
            free_at: Instant::ZERO,
            places: BTreeMap::new(),
            alarms: BTreeSet::new(),
            faded: BTreeSet::new(),
            wire: BTreeMap::new(),
            sent: 0,
        };
        hub.into_iter().for_each(|part| _ = star.add(part, hub_address()));
        star
    }

    /// The number of parts of the hub.
    pub fn parts(&self) -> u8 {
        self.uses.len() as u8
    }

    /// The part of the hub that has a session.
    pub fn part(&mut self, session: SessionId) -> &mut Endpoint {
        let part = session.part(self.parts());
        &mut self.nodes[usize::from(part)].endpoint
    }

    pub fn hub(&mut self) -> &mut Endpoint {
        &mut self.nodes[0].endpoint
    }

    /// Puts an endpoint on the network, in place of the one at that address if
    /// there is one.
    pub fn add(&mut self, endpoint: Endpoint, address: SocketAddr) -> usize {
        let place = self.nodes.len();
        self.nodes.push(Node::new(endpoint, address));
        self.places.insert(address, place);
        self.serve(place);
        place
    }

    /// Replaces the endpoint of a node by another at the same address, as a restart does.
    pub fn replace(&mut self, place: usize, endpoint: Endpoint) {
        let node = &mut self.nodes[place];
        node.endpoint = endpoint;
        node.events.clear();
        self.serve(place);
    }

    /// Makes a node deaf: it receives nothing more and never wakes.
    pub fn kill(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        self.places.remove(&node.address);
        if let Some(alarm) = node.alarm.take() {
            self.alarms.remove(&(alarm, place));
        }
    }

    /// Takes a node's link down, or up again.
    pub fn cut(&mut self, place: usize, is_down: bool) {
        if is_down {
            self.faded.insert(place);
        } else {
            self.faded.remove(&place);
        }
    }

    /// Gives a node another address, as a NAT does that has forgotten the one before.
    pub fn move_to(&mut self, place: usize, address: SocketAddr) {
        let old = core::mem::replace(&mut self.nodes[place].address, address);
        self.places.remove(&old);
        self.places.insert(address, place);
    }

    /// Sends a datagram, possibly with a forged source.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        self.sent += 1;
        self.wire.insert((self.now + self.delay, self.sent), Flight { from, to, datagram });
    }

    /// Processes everything a node has to report and send, and records when it wants to be woken.
    /// Must be called after a command to its endpoint.
    pub fn serve(&mut self, place: usize) {
        let now = self.now;
        let node = &mut self.nodes[place];
        while let Some((id, event)) = node.endpoint.poll_event() {
            node.events.push((now, id, event));
        }
        let (mut buf, from) = (Vec::new(), node.address);
        self.share_link(place);
        while let Some(to) = self.nodes[place].endpoint.poll_transmit(now, &mut buf) {
            let datagram = core::mem::take(&mut buf);
            if !self.faded.contains(&place) {
                self.send(from, to, datagram);
            }
        }
        self.share_link(place);
        self.hand_over(place);
        let node = &mut self.nodes[place];
        if let Some(old) = node.alarm.take() {
            self.alarms.remove(&(old, place));
        }
        node.alarm = node.endpoint.poll_timeout().map(|(at, _)| at);
        self.alarms.extend(node.alarm.map(|at| (at, place)));
    }

    /// Tells a part of a divided hub how the others have used the link.
    fn share_link(&mut self, place: usize) {
        if self.uses.len() < 2 || place >= self.uses.len() {
            return;
        }
        let part = &mut self.nodes[place].endpoint;
        let spent = part.link_use().spent - self.uses[place].spent;
        self.free_at = use_link(self.now, self.free_at, spent);
        let others = (0..).zip(&self.uses).filter(|(part, _)| *part != place);
        let turn = others.filter_map(|(_, its)| its.turn).min();
        self.uses[place] = part.share_link(self.now, self.free_at, turn);
    }

    fn hand_over(&mut self, place: usize) {
        while let Some(handover) = self.nodes[place].endpoint.poll_handover() {
            let part = usize::from(handover.part);
            self.nodes[part].endpoint.handle_handover(self.now, &handover);
            self.serve(part);
        }
    }

    /// Runs all events until `end`.
    pub fn run_until(&mut self, end: Instant) {
        loop {
            let flight = self.wire.first_key_value().map(|((at, _), _)| *at);
            let alarm = self.alarms.first().map(|(at, _)| *at);
            let next = flight.into_iter().chain(alarm).min().filter(|next| *next <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            if flight == Some(next) {
                self.deliver();
            } else {
                self.wake();
            }
        }
        self.now = end;
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    fn deliver(&mut self) {
        let Some((_, mut flight)) = self.wire.pop_first() else { return };
        let Some(mut place) = self.places.get(&flight.to).copied() else { return };
        if self.faded.contains(&place) {
            return;
        }
        if flight.to == hub_address() && self.uses.len() > 1 {
            place = part_of(&flight.datagram, self.parts()).into();
        }
        let node = &mut self.nodes[place];
        node.endpoint.handle_datagram(self.now, flight.from, &mut flight.datagram);
        self.serve(place);
    }

    fn wake(&mut self) {
        let Some((_, place)) = self.alarms.pop_first() else { return };
        let node = &mut self.nodes[place];
        node.alarm = None;
        node.endpoint.handle_timeout(self.now);
        self.serve(place);
    }
}
