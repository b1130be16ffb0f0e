//! A terminal and a hub with several links between them, in virtual time. The terminal has an
//! address on each link; the hub has one.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;

use link::testkit::Peer as _;
use link::{CarriedPacket, Link, LinkConfig, LossModel, Outage, QueueLimit};
use slacp::{Config, LinkStats, Rate};
use units::{BitRate, ByteCount, Instant, Machine, Probability};

use crate::hop::{Flow, HUB, Hop, Host, Plan, TERMINAL};

/// What IPv4 and UDP add to a datagram, less the four bytes that belong to the test.
const OVERHEAD: usize = 24;
/// Number of bytes of the two ports at the end of a datagram.
const PORTS: usize = 4;

#[derive(Debug, Clone)]
struct Packet(Vec<u8>);

impl CarriedPacket for Packet {
    fn wire_len(&self) -> usize {
        self.0.len() + OVERHEAD
    }
}

/// One link: rates from the hub and from the terminal, one-way delay, and loss.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub rates: [BitRate; 2],
    pub delay: Duration,
    pub per: f64,
    /// Whether the two sides know its rate, or measure it.
    pub known: bool,
}

impl Kind {
    pub fn new(down: u64, up: u64, delay_ms: u64) -> Self {
        let rates = [BitRate::from_mbit(down), BitRate::from_mbit(up)];
        Self { rates, delay: Duration::from_millis(delay_ms), per: 0.0, known: true }
    }

    /// 50/10 Mbit/s, 600 ms of round-trip time.
    pub fn geo() -> Self {
        Self::new(50, 10, 300)
    }

    /// 20/10 Mbit/s, 40 ms of round-trip time.
    pub fn leo() -> Self {
        Self::new(20, 10, 20)
    }

    fn rate(&self, side: usize) -> Rate {
        if self.known { Rate::Fixed(self.rates[side]) } else { Rate::auto() }
    }

    fn link(&self, rate: BitRate, seed: u64) -> Link<Packet> {
        let queue = rate.bytes_in(self.delay * 2).get().max(60_000);
        let loss = LossModel::Per(Probability::new(self.per).unwrap());
        let queue = QueueLimit::Bytes(ByteCount::new(queue));
        Link::new(LinkConfig::new(rate, self.delay, loss, queue), seed)
    }
}

/// A terminal and a hub, and what is on its way between them.
pub struct Net {
    pub hosts: Vec<Host>,
    pub now: Instant,
    /// For each link: from the hub, and from the terminal.
    links: Vec<[Link<Packet>; 2]>,
    /// Datagrams that have arrived at the hub over each link, newest last, if they are recorded.
    pub heard: Option<Vec<Vec<u8>>>,
    /// The longest time in which the terminal received nothing although it waited.
    pub stall: Duration,
    progress: (Instant, u64),
}

impl Net {
    /// A pair that uses all links; `configure` may change the configuration of each side.
    pub fn new(
        kinds: &[Kind],
        plans: &[Plan],
        seed: u64,
        configure: impl Fn(usize, &mut Config),
    ) -> Self {
        let hop = Hop::geo(0.0, seed);
        let host = |me: usize| {
            let side = usize::from(me == TERMINAL);
            let mut config = Config::new(kinds[0].rate(side));
            config.links = kinds.iter().map(|kind| kind.rate(side)).collect();
            configure(me, &mut config);
            hop.host_with(config, me, plans, 0)
        };
        let links = kinds.iter().zip(seed * 100..).map(|(kind, seed)| {
            [kind.link(kind.rates[0], 2 * seed), kind.link(kind.rates[1], 2 * seed + 1)]
        });
        Self {
            hosts: vec![host(TERMINAL), host(HUB)],
            now: Instant::ZERO,
            links: links.collect(),
            heard: None,
            stall: Duration::ZERO,
            progress: (Instant::ZERO, 0),
        }
    }

    /// The same, once all links of the session are in use.
    pub fn connected(kinds: &[Kind], plans: &[Plan], seed: u64) -> Self {
        let mut net = Self::new(kinds, plans, seed, |_, _| {});
        net.run_until(60.0, |net| {
            (0..2).all(|side| {
                let links = net.link_stats(side);
                links.len() == kinds.len() && links.iter().all(|link| link.works)
            })
        });
        net
    }

    pub fn link_stats(&self, side: usize) -> Vec<LinkStats> {
        let host = &self.hosts[side];
        let stats = host.session.and_then(|id| host.endpoint.link_stats(id));
        let mut stats = stats.unwrap_or_default();
        stats.sort_by_key(|link| link.link);
        stats
    }

    /// Stops a link in both directions for that long.
    pub fn cut(&mut self, link: usize, lasting: Duration) {
        let outage = Outage { after: Duration::ZERO, lasting, every: None };
        let now = self.now;
        self.links[link].iter_mut().for_each(|direction| direction.add_outage(now, outage));
    }

    pub fn set_delay(&mut self, link: usize, delay: Duration) {
        let now = self.now;
        self.links[link].iter_mut().for_each(|direction| direction.set_delay(now, delay));
    }

    /// Opens a plan from the terminal.
    pub fn open(&mut self, plan: usize) {
        self.restart_clock();
        self.hosts[TERMINAL].open(self.now, plan).unwrap();
    }

    /// Opens all plans from the terminal at once.
    pub fn open_all(&mut self) {
        (0..self.hosts[TERMINAL].plans.len()).for_each(|plan| self.open(plan));
    }

    /// Measures stalls from now on.
    pub fn restart_clock(&mut self) {
        self.stall = Duration::ZERO;
        self.progress = (self.now, self.received());
    }

    pub fn received(&self) -> u64 {
        self.hosts[TERMINAL].flows.values().map(|flow| flow.received).sum()
    }

    pub fn flow(&self) -> &Flow {
        self.hosts[TERMINAL].flows.values().next().expect("a flow")
    }

    pub fn is_over(&self) -> bool {
        self.hosts.iter().all(|host| host.flows.values().all(Flow::is_over))
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Lets time pass in which neither side has the processor. Afterwards timers come first, then datagrams.
    pub fn freeze(&mut self, time: Duration) {
        self.now += time;
        for side in [TERMINAL, HUB] {
            self.hosts[side].handle_timeout(self.now);
            self.transmit(side);
        }
    }

    /// Runs until that holds, for at most so many seconds.
    pub fn run_until(&mut self, seconds: f64, holds: impl Fn(&Self) -> bool) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while !holds(self) {
            assert!(self.step(end), "not within {seconds} s: {:?}", self.link_stats(HUB));
        }
    }

    /// Handles what happens next, unless that is after `end`.
    fn step(&mut self, end: Instant) -> bool {
        let links = self.links.iter().flatten().filter_map(|link| Some(link.poll_timeout()?.0));
        let hosts = self.hosts.iter().filter_map(|host| Some(host.poll_timeout()?.0));
        let Some(next) = links.chain(hosts).min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        self.deliver();
        for side in [TERMINAL, HUB] {
            if self.hosts[side].poll_timeout().is_some_and(|(time, _)| time <= self.now) {
                self.hosts[side].handle_timeout(self.now);
            }
            self.transmit(side);
        }
        self.watch();
        true
    }

    fn deliver(&mut self) {
        let now = self.now;
        for number in 0..self.links.len() {
            while let Some(Packet(mut datagram)) = self.links[number][0].poll_delivery(now) {
                set_port(&mut datagram, 2, 1);
                self.hosts[TERMINAL].receive(now, HUB, datagram);
            }
            while let Some(Packet(datagram)) = self.links[number][1].poll_delivery(now) {
                self.heard.iter_mut().for_each(|heard| heard.push(datagram.clone()));
                self.hosts[HUB].receive(now, TERMINAL, datagram);
            }
        }
    }

    fn transmit(&mut self, side: usize) {
        let now = self.now;
        while let Some((_, mut datagram)) = self.hosts[side].transmit(now) {
            let number = if side == TERMINAL {
                let link = self.hosts[side].endpoint.transmit_link();
                // The hub sees an address for each link.
                set_port(&mut datagram, 0, 1 + u16::from(link));
                usize::from(link)
            } else {
                usize::from(port(&datagram, 2)) - 1
            };
            let direction = usize::from(side == TERMINAL);
            self.links[number][direction].handle_packet(now, Packet(datagram));
        }
    }

    fn watch(&mut self) {
        let received = self.received();
        let waited = self.now.saturating_since(self.progress.0);
        if received != self.progress.1 {
            self.stall = self.stall.max(waited);
            self.progress = (self.now, received);
        }
    }

    /// Hands the hub a datagram as if it came from the terminal over a link.
    pub fn inject(&mut self, datagram: Vec<u8>) {
        self.hosts[HUB].receive(self.now, TERMINAL, datagram);
    }
}

fn set_port(datagram: &mut [u8], at: usize, port: u16) {
    let at = datagram.len() - PORTS + at;
    datagram[at..at + 2].copy_from_slice(&port.to_be_bytes());
}

fn port(datagram: &[u8], at: usize) -> u16 {
    let at = datagram.len() - PORTS + at;
    u16::from_be_bytes([datagram[at], datagram[at + 1]])
}
