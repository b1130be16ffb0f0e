//! A hub with an honest terminal and an adversary, or a terminal with a hub gone
//! bad, in virtual time.

#![allow(dead_code, unreachable_pub, missing_docs)]

mod flows;

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;

use link::testkit::{Mangle, Net, Peer, UDP_IPV4_OVERHEAD};
use link::{LinkConfig, LossModel, QueueLimit};
use slacp::fuzzing::{
    Adversary, CheckedEndpoint, Choices, FigureLimits, MemoryBound, Owner, is_own, own_address,
};
use slacp::{
    ChannelConfig, ChannelId, Config, Endpoint, ErrorControl, Event, KeyPair, MAX_LINKS, PublicKey,
    Rate, SessionId,
};
use units::{BitRate, ByteCount, Instant, Machine, Probability};

use crate::counting::live_bytes;
use flows::{DOWN, EXCHANGE, Flows, STALLED, UP};

/// The forward link, and that of a crowd.
pub const FORWARD: BitRate = BitRate::from_bits_per_second(4_000_000);
const CROWD_FORWARD: BitRate = BitRate::from_bits_per_second(20_000_000);
/// What the honest terminal may send.
const RETURN: BitRate = BitRate::from_bits_per_second(500_000);
const DELAY: Duration = Duration::from_millis(40);
/// What each session may hold in each direction.
pub const MEMORY: u64 = 512_000;
/// The most streams that the other side may have open.
pub const STREAMS: u32 = 16;
/// How often an owner looks after its streams.
const LOOK: Duration = Duration::from_millis(10);

/// Source and destination travel behind a datagram.
const TRAILER: usize = 12;

/// The peer's streams, in its own count and in ours, those that were reset and have
/// bytes to read, and those opened here.
const LIMITS: FigureLimits = FigureLimits { memory: MEMORY, streams: 4 * STREAMS as usize };

/// Per session what `docs/slacp.md` (Memory) adds up to.
pub const BOUND: MemoryBound = MemoryBound {
    base: 400_000,
    session: (MEMORY * 77 / 16) as usize + 2 * 16_384 * 64 + 2 * STREAMS as usize * 1_000,
    honest: 1_000_000,
};

fn key(number: usize) -> KeyPair {
    static KEYS: OnceLock<Vec<KeyPair>> = OnceLock::new();
    let make = |n: usize| {
        let mut private = [7; 32];
        // The lowest bits of the first byte do not count.
        private[8..16].copy_from_slice(&n.to_le_bytes());
        KeyPair::from_private(private)
    };
    KEYS.get_or_init(|| (0..HOSTILE_KEY + CROWD).map(make).collect())[number].clone()
}

/// As many hostile sessions are a crowd.
const CROWD: usize = 1_024;
const HUB_KEY: usize = 1;
const HONEST_KEY: usize = 2;
/// The adversary's first key; others follow.
const HOSTILE_KEY: usize = 3;

fn hub_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 5900))
}

fn honest_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 3, 1], 5900))
}

pub fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

pub fn config(rate: Rate) -> Config {
    let mut config = Config::new(rate);
    config.memory = ByteCount::new(MEMORY);
    config.stream_window = ByteCount::new(MEMORY / 8);
    config.max_streams = STREAMS;
    config.aes = true;
    config.names = true;
    let kinds = [ErrorControl::None, ErrorControl::Fec, ErrorControl::Arq, ErrorControl::FecArq];
    for (channel, kind) in (0..).filter_map(ChannelId::new).zip(kinds) {
        let channel_config =
            ChannelConfig { queue: ByteCount::new(50_000), ..ChannelConfig::new(kind) };
        config.add_channel(channel, channel_config).expect("the defaults are right");
    }
    config
}

/// A peer that keeps to the protocol, and what is carried for it.
pub struct Honest {
    key: PublicKey,
    session: Option<SessionId>,
    pub flows: Flows,
}

impl Honest {
    fn new(key: PublicKey, side: usize) -> Self {
        Self { key, session: None, flows: Flows::new(side) }
    }
}

/// An endpoint with honest and other sessions, and its owner.
pub struct Host {
    pub endpoint: CheckedEndpoint,
    me: SocketAddr,
    pub honest: Vec<Honest>,
    /// What this side opens when its session is up.
    opens: Vec<u16>,
    owner: Owner,
    choices: Choices,
    rates: Vec<BitRate>,
    /// By how much its clock is ahead of the world's, and when that changes.
    ahead: Duration,
    step: Option<(Instant, Duration)>,
    next_look: Instant,
    hostile: BTreeSet<SessionId>,
    /// As many at a time, at most.
    most_hostile: usize,
    /// What ended the honest session, or interrupted it.
    pub trouble: Vec<Event>,
    /// IP bytes sent to anybody but the friend.
    pub elsewhere: u64,
    buf: Vec<u8>,
}

impl Host {
    fn new(
        endpoint: CheckedEndpoint,
        me: SocketAddr,
        honest: Vec<Honest>,
        mut choices: Choices,
    ) -> Self {
        Self {
            endpoint,
            me,
            honest,
            opens: Vec::new(),
            owner: Owner::new(&mut choices),
            choices,
            rates: Vec::new(),
            ahead: Duration::ZERO,
            step: None,
            next_look: Instant::ZERO,
            hostile: BTreeSet::new(),
            most_hostile: 0,

            trouble: Vec::new(),
            elsewhere: 0,
            buf: Vec::with_capacity(2_000),
        }
    }

    fn local(&mut self, now: Instant) -> Instant {
        if let Some((_, by)) = self.step.take_if(|(when, _)| *when <= now) {
            self.ahead += by;
        }
        now + self.ahead
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some((session, event)) = self.endpoint.poll_event() {
            if !self.is_for_honest(now, session, &event) {
                match event {
                    Event::Up { .. } => _ = self.hostile.insert(session),
                    Event::Down(_) => _ = self.hostile.remove(&session),
                    _ => {}
                }
                self.most_hostile = self.most_hostile.max(self.hostile.len());
                self.owner.handle_event(&mut self.endpoint, session, &event, &mut self.choices);
            }
        }
        self.endpoint.with(|endpoint| while endpoint.poll_packet().is_some() {});
    }

    /// Takes the event if it is of an honest session.
    fn is_for_honest(&mut self, now: Instant, session: SessionId, event: &Event) -> bool {
        let Self { honest, endpoint, opens, trouble, .. } = self;
        if let Event::Up { peer, .. } = event {
            let Some(honest) = honest.iter_mut().find(|it| it.key == *peer) else { return false };
            endpoint.honest += usize::from(honest.session.is_none());
            honest.session = Some(session);
            opens.drain(..).for_each(|port| honest.flows.open(now, endpoint, session, port));
            return true;
        }
        let Some(honest) = honest.iter_mut().find(|it| it.session == Some(session)) else {
            return false;
        };
        if matches!(event, Event::Down(_) | Event::Unreachable) {
            trouble.push(event.clone());
        }
        honest.flows.handle_event(endpoint, session, event);
        true
    }

    fn look_after(&mut self, now: Instant) {
        self.handle_events(now);
        for honest in &mut self.honest {
            if let Some(session) = honest.session {
                honest.flows.pump(now, &mut self.endpoint, session);
            }
        }
        if self.next_look <= now {
            self.next_look = now + LOOK;
            self.owner.act(now, &mut self.endpoint, &self.rates, &mut self.choices);
            let honest = self.honest.iter().filter_map(|honest| honest.session);
            self.endpoint.check_figures(self.hostile.iter().copied().chain(honest), &LIMITS);
        }
        self.handle_events(now);
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        let now = self.local(now);
        self.endpoint.receive(now, from, datagram);
        self.look_after(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let now = self.local(now);
        let to = self.endpoint.transmit(now, &mut self.buf)?;
        if is_own(to) {
            self.elsewhere += (self.buf.len() + UDP_IPV4_OVERHEAD) as u64;
        }
        Some(with_addresses(&self.buf, self.me, to))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = self.endpoint.poll_timeout().map(|(at, _)| at).into_iter();
        let local = next.chain([self.next_look]).min()?;
        let world = Instant::from_nanos(local.as_nanos()) - self.ahead;
        Some(self.step.map_or(world, |(when, _)| world.min(when)))
    }

    fn wake(&mut self, now: Instant) {
        let now = self.local(now);
        if self.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.endpoint.wake(now);
        }
        self.look_after(now);
    }
}

fn with_addresses(datagram: &[u8], from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(datagram.len() + TRAILER);
    out.extend_from_slice(datagram);
    for address in [from, to] {
        let SocketAddr::V4(address) = address else { panic!("the test speaks IPv4") };
        out.extend_from_slice(&address.ip().octets());
        out.extend_from_slice(&address.port().to_be_bytes());
    }
    out
}

fn split_addresses(datagram: &mut Vec<u8>) -> [SocketAddr; 2] {
    let trailer = datagram.split_off(datagram.len() - TRAILER);
    [0, 6].map(|i| {
        let port = u16::from_be_bytes([trailer[i + 4], trailer[i + 5]]);
        SocketAddr::from(([trailer[i], trailer[i + 1], trailer[i + 2], trailer[i + 3]], port))
    })
}

/// One end of the hop. All terminals are at the far end of one forward link.
pub enum Party {
    Near(Box<Host>),
    Far { honest: Vec<Host>, adversary: Option<Box<Adversary>> },
}

impl Machine for Party {
    type Wake = &'static str;

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let at = match self {
            Self::Near(host) => host.poll_timeout(),
            Self::Far { honest, adversary } => {
                let hosts = honest.iter().filter_map(Host::poll_timeout);
                hosts.chain(adversary.iter().filter_map(|it| Some(it.poll_timeout()?.0))).min()
            }
        };
        Some((at?, "a party"))
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Near(host) => host.wake(now),
            Self::Far { honest, adversary } => {
                let due = |host: &&mut Host| host.poll_timeout().is_some_and(|at| at <= now);
                honest.iter_mut().filter(due).for_each(|host| host.wake(now));
                adversary.iter_mut().for_each(|it| it.handle_timeout(now));
            }
        }
    }
}

impl Peer for Party {
    fn receive(&mut self, now: Instant, _from: usize, mut datagram: Vec<u8>) {
        let [from, to] = split_addresses(&mut datagram);
        match self {
            Self::Near(host) => host.receive(now, from, &mut datagram),
            Self::Far { honest, adversary } => {
                if let Some(host) = honest.iter_mut().find(|host| host.me == to) {
                    host.receive(now, from, &mut datagram);
                } else if is_own(to)
                    && let Some(adversary) = adversary
                {
                    adversary.receive(now, to, &mut datagram);
                }
            }
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        match self {
            Self::Near(host) => Some((1, host.transmit(now)?)),
            Self::Far { honest, adversary } => {
                if let Some(datagram) = honest.iter_mut().find_map(|host| host.transmit(now)) {
                    return Some((0, datagram));
                }
                let (from, datagram) = adversary.as_mut()?.transmit()?;
                Some((0, with_addresses(&datagram, from, hub_address())))
            }
        }
    }
}

/// What a run is about, beside its seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub lossy: bool,
    /// The forward link.
    pub forward: BitRate,
    pub rate: Rate,
    /// What the modem may say of the adversary's sessions.
    pub told: Vec<BitRate>,
    /// When the hub's clock jumps, and by how much.
    pub step: Option<(Instant, Duration)>,
    /// Keys of the adversary.
    pub keys: usize,
    /// Whether each of them is to have a session at any time.
    pub crowd: bool,
    /// Downloads of the honest terminal whose client does not read.
    pub stalled: usize,
}

impl Case {
    pub fn plain(lossy: bool, crowd: bool) -> Self {
        let forward = if crowd { CROWD_FORWARD } else { FORWARD };
        Self {
            lossy,
            forward,
            rate: forward.into(),
            told: Vec::new(),
            step: None,
            keys: 4,
            crowd,
            stalled: 0,
        }
    }

    pub fn of(seed: u64) -> Self {
        Self::chosen(seed, false)
    }

    /// A case with a thousand hostile sessions.
    pub fn crowd(seed: u64) -> Self {
        Self { keys: CROWD, ..Self::chosen(seed, true) }
    }

    fn chosen(seed: u64, crowd: bool) -> Self {
        let mut choices = Choices::seeded(seed);
        let mut case = Self::plain(choices.one_in(3), crowd);
        match choices.below(6) {
            0 => case.rate = Rate::auto(),
            1 => {
                case.rate = Rate::Modem { initial: case.forward };
                case.told = vec![BitRate::from_bits_per_second(0), case.forward];
            }
            _ => {}
        }
        if choices.one_in(8) {
            let by = choices.pick(&[1_000, 60_000, 800_000, 86_400_000]);
            case.step = Some((at(1_000 + choices.below(1_000)), Duration::from_millis(by)));
        }
        case.keys = choices.pick(&[1, 4, 20]);
        case.stalled = if choices.one_in(4) { 3 } else { 0 };
        case
    }

    /// Whether the honest terminal must get its share: nothing else has befallen
    /// it.
    pub fn is_fair(&self) -> bool {
        self.step.is_none() && self.rate != Rate::auto()
    }
}

/// Who else there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    Nobody,
    Honest,
    Adversary,
}

/// The hub under attack, and the honest terminal.
pub fn net(seed: u64, case: &Case, other: Other) -> Net<Party> {
    let hostile: Vec<KeyPair> = (0..case.keys).map(|n| key(HOSTILE_KEY + n)).collect();
    let hub_key = key(HUB_KEY).public();
    let allow = (HONEST_KEY..HOSTILE_KEY + case.keys).map(|n| key(n).public()).collect();
    let mut random = [0; 32];
    random[..8].copy_from_slice(&seed.to_le_bytes());
    let rate = case.rate.clone();
    // Each terminal has the rate of its links for itself, so nobody's share is certain.
    let links = if case.is_fair() { 0 } else { 1 + seed as usize % MAX_LINKS };
    let mut config = config(rate);
    config.links = vec![Rate::Fixed(case.forward); links];
    let make = || Endpoint::hub(config, key(HUB_KEY), allow, random);
    let mut served = vec![Honest::new(key(HONEST_KEY).public(), 1)];
    if other == Other::Honest {
        served.push(Honest::new(key(HOSTILE_KEY).public(), 1));
    }
    let endpoint = CheckedEndpoint::new(live_bytes, BOUND, make);
    let mut hub = Host::new(endpoint, hub_address(), served, Choices::seeded(seed ^ 1));
    hub.rates.clone_from(&case.told);
    hub.step = case.step;

    let terminal = |n: usize, place: SocketAddr| {
        let make = || {
            let config = self::config(RETURN.into());
            Endpoint::terminal(config, key(n), hub_key, vec![hub_address()], [n as u8; 32])
        };
        let endpoint = CheckedEndpoint::new(live_bytes, BOUND, make);
        let mut host =
            Host::new(endpoint, place, vec![Honest::new(hub_key, 0)], Choices::seeded(0));
        host.opens = vec![DOWN, UP, EXCHANGE];
        host
    };
    let mut honest = vec![terminal(HONEST_KEY, honest_address())];
    honest[0].opens.extend(vec![STALLED; case.stalled]);
    let mut adversary = None;
    match other {
        Other::Nobody => {}
        Other::Honest => honest.push(terminal(HOSTILE_KEY, own_address(0))),
        Other::Adversary => {
            let make = if case.crowd { Adversary::crowd } else { Adversary::terminals };
            adversary = Some(Box::new(make(hostile, hub_key, Choices::seeded(seed ^ 2))));
        }
    }
    join(seed, case, Party::Near(hub.into()), Party::Far { honest, adversary })
}

/// A terminal under attack of its hub.
pub fn mirror(seed: u64, case: &Case) -> Net<Party> {
    let public = key(HUB_KEY).public();
    let rate = case.rate.clone();
    let make =
        || Endpoint::terminal(config(rate), key(HONEST_KEY), public, vec![own_address(0)], [2; 32]);
    let endpoint = CheckedEndpoint::new(live_bytes, BOUND, make);
    let mut host = Host::new(endpoint, hub_address(), Vec::new(), Choices::seeded(seed ^ 1));
    host.rates.clone_from(&case.told);
    host.step = case.step;
    let adversary = Some(Box::new(Adversary::hub(key(HUB_KEY), Choices::seeded(seed ^ 2))));
    join(seed, case, Party::Near(host.into()), Party::Far { honest: Vec::new(), adversary })
}

fn join(seed: u64, case: &Case, near: Party, far: Party) -> Net<Party> {
    let mut net = Net::new(vec![near, far], seed);
    net.set_overhead(UDP_IPV4_OVERHEAD - TRAILER);
    let loss =
        if case.lossy { LossModel::Per(Probability::new(0.01).unwrap()) } else { LossModel::None };
    let link = |bits: u64| {
        let queue = QueueLimit::Bytes(ByteCount::new(60_000));
        LinkConfig::new(BitRate::from_bits_per_second(bits), DELAY, loss.clone(), queue)
    };
    // Everything that the hub sends goes over one link; the returns do not share.
    net.connect(0, 1, link(case.forward.bits_per_second() * 51 / 50));
    net.connect(1, 0, link(50_000_000));
    if case.lossy {
        let p = |share| Probability::new(share).unwrap();
        let (duplicate, reorder) = (p(0.01), p(0.01));
        let reorder_by = Duration::from_millis(30);
        for (from, to) in [(0, 1), (1, 0)] {
            net.mangle(from, to, Mangle { duplicate, reorder, reorder_by, ..Mangle::default() });
        }
    }
    net
}

/// What the honest terminal got from the first second to the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Bytes down, of all streams, and up.
    pub down: u64,
    pub up: u64,
    pub exchanges: usize,
    pub slowest: f64,
    /// The share of the forward link that others had.
    pub elsewhere: f64,
    /// Whether its session was up when the first second was over.
    pub in_time: bool,
    /// Sessions of others at a time, at most.
    pub others: usize,
    /// The most that the hub held, in shares of its bound.
    pub most: f64,
}

/// After the first second all is under way.
const BEGIN: u64 = 1_000;
const END: u64 = 4_000;
/// The time between.
pub const SECONDS: f64 = (END - BEGIN) as f64 / 1e3;

pub fn near(net: &Net<Party>) -> &Host {
    match &net.peers()[0] {
        Party::Near(host) => host,
        Party::Far { .. } => panic!("the hub is the first"),
    }
}

fn far(net: &Net<Party>) -> (&[Host], Option<&Adversary>) {
    match &net.peers()[1] {
        Party::Far { honest, adversary } => (honest, adversary.as_deref()),
        Party::Near(_) => panic!("the terminals are the second"),
    }
}

pub fn describe(net: &Net<Party>) -> String {
    far(net).1.map(Adversary::describe).unwrap_or_default()
}

fn counted(net: &Net<Party>) -> [u64; 4] {
    let (hub, honest) = (near(net), &far(net).0[0]);
    let (above, below) = (&hub.honest[0].flows, &honest.honest[0].flows);
    let received = |flows: &Flows, port| flows.received.get(&port).copied().unwrap_or(0);
    let down = below.received.values().sum();
    [down, received(above, UP), below.exchanges as u64, hub.elsewhere]
}

/// Runs to the end of the time.
pub fn run(net: &mut Net<Party>, case: &Case) -> Outcome {
    let to = |net: &mut Net<Party>, ms| {
        let left = at(ms).saturating_since(net.now());
        net.run_for(left).unwrap_or_else(|stalled| panic!("{stalled}"));
    };
    to(net, BEGIN);
    let before = counted(net);
    let in_time = before[0] > 0;
    to(net, END);
    let after = counted(net);
    let [down, up, exchanges, elsewhere] = [0, 1, 2, 3].map(|i| after[i] - before[i]);
    let forward = case.forward.bytes_in(Duration::from_millis(END - BEGIN)).get() as f64;
    let honest = &far(net).0[0];
    let trouble: Vec<&Event> = near(net).trouble.iter().chain(&honest.trouble).collect();
    let outcome = Outcome {
        down,
        up,
        exchanges: exchanges as usize,
        slowest: honest.honest[0].flows.slowest,
        elsewhere: elsewhere as f64 / forward,
        in_time,
        others: near(net).most_hostile,
        most: near(net).endpoint.most,
    };
    assert!(
        trouble.is_empty() || near(net).ahead > Duration::ZERO,
        "the honest session suffered: {trouble:?}"
    );
    outcome
}

/// Runs a world without an honest terminal.
pub fn run_alone(net: &mut Net<Party>) -> f64 {
    net.run_for(Duration::from_millis(END)).unwrap_or_else(|stalled| panic!("{stalled}"));
    near(net).endpoint.most
}
