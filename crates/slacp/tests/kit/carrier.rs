//! A hub whose sessions share one forward link, in virtual time: every terminal downloads over its
//! own session when it has to. The fate of every packet of the link is recorded.

#![allow(dead_code, unreachable_pub, missing_docs)]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use link::{CarriedPacket, Link, LinkConfig, LossModel, QueueLimit};
use slacp::{
    AggregateId, ClassId, ClassRates, Config, Endpoint, Event, KeyPair, PublicKey, Rate,
    ReadOutcome, SessionId, SessionShare, SessionStats, StreamId, StreamOpening,
};
use units::{BitRate, ByteCount, Instant, Machine};

/// What IPv4 and UDP add to a datagram.
const OVERHEAD: usize = 28;

pub fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

pub fn mbit(mbit: f64) -> BitRate {
    BitRate::from_bits_per_second((mbit * 1e6) as u64)
}

fn key(n: usize) -> KeyPair {
    let mut private = [7; 32];
    private[..8].copy_from_slice(&(n as u64).to_be_bytes());
    KeyPair::from_private(private)
}

fn public(n: usize) -> PublicKey {
    key(n).public()
}

fn hub_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 5900))
}

fn address(n: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 + n as u32), 5900))
}

/// The key of the hub; terminals have the numbers before it.
const HUB: usize = 1 << 20;

#[derive(Debug, Clone)]
struct Packet {
    to: usize,
    size: usize,
    sent: Instant,
    datagram: Vec<u8>,
}

impl CarriedPacket for Packet {
    fn wire_len(&self) -> usize {
        self.size
    }
}

/// A packet that has left the shared link.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    pub terminal: usize,
    pub size: usize,
    pub arrived: Instant,
    /// How long it waited and was sent.
    pub queued: Duration,
}

/// A terminal and its user.
pub struct Terminal {
    pub endpoint: Endpoint,
    /// How far it is from the hub, beyond the shared link.
    farther: Duration,
    /// A slower link behind the shared one.
    behind: Option<Link<Packet>>,
    /// It acknowledges what has not arrived yet: it is handed each packet this long after it was sent,
    /// even if the link drops it.
    foresees: Option<Duration>,
    /// Its clock stands still while the queue grows, so that it reports none.
    hides_queue: bool,
    /// What its clock said last.
    handed: Instant,
    /// What it does after each packet it is handed.
    pub lies: Option<fn(&mut Endpoint, Instant, SessionId)>,
    /// When its user downloads.
    pub busy: Vec<(Instant, Instant)>,
    /// Its clock: how much it has been ahead since when, and its pace since then.
    clock: (Instant, Duration, f64),
    session: Option<SessionId>,
    stream: Option<StreamId>,
    hub: Option<(SessionId, Option<StreamId>)>,
}

impl Terminal {
    fn time(&self, now: Instant) -> Instant {
        let (since, ahead, pace) = self.clock;
        since + ahead + now.saturating_since(since).mul_f64(pace)
    }

    /// When its clock reaches a time; a little late rather than early.
    fn true_time(&self, theirs: Instant) -> Instant {
        let (since, ahead, pace) = self.clock;
        let passed = theirs.saturating_since(since + ahead);
        since + passed.div_f64(pace) + Duration::from_nanos(2)
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.busy.iter().any(|(from, until)| (*from..*until).contains(&now))
    }
}

pub struct Carrier {
    pub hub: Endpoint,
    pub now: Instant,
    pub terminals: Vec<Terminal>,
    forward: Link<Packet>,
    delay: Duration,
    /// What terminals are handed before it arrives.
    foreseen: BTreeMap<(Instant, u64), Packet>,
    /// On the way to the hub.
    returning: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    sent: u64,
    alarms: BTreeSet<(Instant, usize)>,
    alarm_of: Vec<Option<Instant>>,
    of_session: BTreeMap<SessionId, usize>,
    /// How often the hub has ended each terminal's session.
    pub closed: BTreeMap<usize, u32>,
    pub records: Vec<Record>,
}

fn hub(from: Rate, terminals: usize, aggregate: bool, seed: u64) -> Endpoint {
    let mut bits = [9; 32];
    bits[..8].copy_from_slice(&seed.to_be_bytes());
    let allow = (0..terminals).map(public).collect();
    let mut hub = Endpoint::hub(Config::new(from), key(HUB), allow, bits);
    if aggregate {
        let all = (0..terminals).map(|n| (public(n), AggregateId::from("carrier"))).collect();
        hub.set_aggregates(Instant::ZERO, all);
    }
    hub
}

impl Carrier {
    /// A hub for so many terminals over a link of that rate, delay and queue (in time), which may
    /// know that they share it.
    pub fn new(
        rate: f64,
        delay: Duration,
        queue: Duration,
        terminals: usize,
        aggregate: bool,
        seed: u64,
    ) -> Self {
        Self::with(Rate::auto(), rate, delay, queue, terminals, aggregate, seed)
    }

    /// [`Self::new`] with a hub that has its rate from there.
    pub fn with(
        from: Rate,
        rate: f64,
        delay: Duration,
        queue: Duration,
        terminals: usize,
        aggregate: bool,
        seed: u64,
    ) -> Self {
        let queue = QueueLimit::Bytes(mbit(rate).bytes_in(queue).max(ByteCount::new(30_000)));
        let link = LinkConfig::new(mbit(rate), delay, LossModel::None, queue);
        Self {
            hub: hub(from, terminals, aggregate, seed),
            now: Instant::ZERO,
            terminals: Vec::new(),
            forward: Link::new(link, seed),
            delay,
            foreseen: BTreeMap::new(),
            returning: BTreeMap::new(),
            sent: 0,
            alarms: BTreeSet::new(),
            alarm_of: Vec::new(),
            of_session: BTreeMap::new(),
            closed: BTreeMap::new(),
            records: Vec::new(),
        }
    }

    /// Replaces the hub by one that shares the link among the same terminals and knows nothing else.
    pub fn restart_hub(&mut self, seed: u64) {
        self.hub = hub(Rate::auto(), self.terminals.len(), true, seed + 1000);
        self.of_session.clear();
        self.terminals.iter_mut().for_each(|terminal| terminal.hub = None);
    }

    /// Adds a terminal at that time, whose user downloads at these times.
    pub fn add(&mut self, farther: Duration, busy: &[(f64, f64)], seed: u64) -> usize {
        let n = self.terminals.len();
        let mut bits = [3; 32];
        bits[..8].copy_from_slice(&(seed * 4096 + n as u64).to_be_bytes());
        let config = Config::new(BitRate::from_mbit(10));
        let endpoint = Endpoint::terminal(config, key(n), public(HUB), vec![hub_address()], bits);
        self.terminals.push(Terminal {
            endpoint,
            farther,
            behind: None,
            foresees: None,
            hides_queue: false,
            handed: Instant::ZERO,
            lies: None,
            busy: busy.iter().map(|(from, until)| (at(*from), at(*until))).collect(),
            clock: (Instant::ZERO, Duration::from_secs(70), 1.0),
            session: None,
            stream: None,
            hub: None,
        });
        self.alarm_of.push(None);
        self.serve(n);
        n
    }

    /// Puts a slower link behind the shared one, for one terminal.
    pub fn set_behind(&mut self, n: usize, rate: f64) {
        let queue = QueueLimit::Bytes(mbit(rate).bytes_in(Duration::from_millis(600)));
        let link = LinkConfig::new(mbit(rate), Duration::ZERO, LossModel::None, queue);
        self.terminals[n].behind = Some(Link::starting_at(self.now, link, 1));
    }

    /// Lets a terminal acknowledge packets this long after they were sent from now on, whatever
    /// becomes of them.
    pub fn set_foresight(&mut self, n: usize, after: Duration) {
        self.terminals[n].foresees = Some(after);
    }

    /// Lets a terminal report from now on that its packets met no queue.
    pub fn hide_queue(&mut self, n: usize) {
        self.terminals[n].hides_queue = true;
    }

    /// Lets a terminal's clock run at this pace from now on.
    pub fn set_pace(&mut self, n: usize, pace: f64) {
        let now = self.now;
        let ahead = self.terminals[n].time(now).saturating_since(now);
        self.terminals[n].clock = (now, ahead, pace);
        self.serve(n);
    }

    pub fn set_rate(&mut self, rate: f64) {
        self.forward.set_rate(self.now, mbit(rate));
    }

    pub fn set_weight(&mut self, n: usize, weight: u32) {
        self.set_share(n, SessionShare { weight, ..SessionShare::default() });
    }

    pub fn set_share(&mut self, n: usize, share: SessionShare) {
        self.hub.set_share(self.now, self.session(n), share).unwrap();
        self.serve_hub();
    }

    /// Guarantees a rate to the class of a terminal's stream.
    pub fn guarantee_class(&mut self, n: usize, guaranteed: BitRate) {
        let rates = ClassRates { guaranteed: Some(guaranteed), maximum: None };
        let session = self.session(n);
        self.hub.set_class_rates(self.now, session, &[(ClassId::DEFAULT, rates)]).unwrap();
        self.serve_hub();
    }

    fn session(&self, n: usize) -> SessionId {
        self.terminals[n].hub.expect("a session").0
    }

    /// Reports a rate for all sessions; `None` ends the report.
    pub fn report(&mut self, rate: Option<f64>) {
        let sessions: Vec<SessionId> =
            self.terminals.iter().filter_map(|it| Some(it.hub?.0)).collect();
        for session in sessions {
            match rate {
                Some(rate) => {
                    let hour = Duration::from_secs(3600);
                    self.hub.set_rate(self.now, session, mbit(rate), hour).unwrap();
                }
                None => self.hub.expire_rate(self.now, session).unwrap(),
            }
        }
        self.serve_hub();
    }

    pub fn stats(&self, n: usize) -> SessionStats {
        self.hub.stats(self.session(n)).expect("it is up")
    }

    pub fn run(&mut self, end: f64) {
        let end = at(end);
        loop {
            let next = self.next().filter(|next| *next <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn next(&self) -> Option<Instant> {
        let hub = self.hub.poll_timeout().map(|(time, _)| time);
        let forward = self.forward.poll_timeout().map(|(time, _)| time);
        let behind = self.terminals.iter().filter_map(|it| it.behind.as_ref()?.poll_timeout());
        let returning = self.returning.first_key_value().map(|((time, _), _)| *time);
        let foreseen = self.foreseen.first_key_value().map(|((time, _), _)| *time);
        let alarm = self.alarms.first().map(|(time, _)| *time);
        let times = [hub, forward, returning, foreseen, alarm].into_iter().flatten();
        times.chain(behind.map(|(time, _)| time)).min()
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(packet) = self.forward.poll_delivery(now) {
            let queued = now.saturating_since(packet.sent).saturating_sub(self.delay);
            let (terminal, size) = (packet.to, packet.size);
            self.records.push(Record { terminal, size, arrived: now, queued });
            if self.terminals[terminal].foresees.is_some() {
                continue;
            }
            match &mut self.terminals[terminal].behind {
                Some(link) => link.handle_packet(now, packet),
                None => self.arrive(packet),
            }
        }
        for n in 0..self.terminals.len() {
            while let Some(link) = &mut self.terminals[n].behind
                && let Some(packet) = link.poll_delivery(now)
            {
                self.arrive(packet);
            }
        }
        while let Some(entry) = self.foreseen.first_entry()
            && entry.key().0 <= now
        {
            let packet = entry.remove();
            self.arrive(packet);
        }
        while let Some(entry) = self.returning.first_entry()
            && entry.key().0 <= now
        {
            let (from, mut datagram) = entry.remove();
            self.hub.handle_datagram(now, address(from), &mut datagram);
        }
        while let Some((_, n)) = self.alarms.first().filter(|(time, _)| *time <= now).copied() {
            self.alarms.pop_first();
            self.alarm_of[n] = None;
            let theirs = self.terminals[n].time(now);
            self.terminals[n].handed = theirs;
            self.terminals[n].endpoint.handle_timeout(theirs);
            self.serve(n);
        }
        if self.hub.poll_timeout().is_some_and(|(time, _)| time <= now) {
            self.hub.handle_timeout(now);
        }
        self.serve_hub();
    }

    fn arrive(&mut self, mut packet: Packet) {
        let (now, delay) = (self.now, self.delay);
        let terminal = &mut self.terminals[packet.to];
        if terminal.hides_queue {
            let unqueued = packet.sent + delay + Duration::from_secs(70);
            let theirs = unqueued.max(terminal.handed);
            terminal.clock = (now, theirs.saturating_since(now), 1.0);
        }
        let theirs = terminal.time(now);
        terminal.handed = theirs;
        terminal.endpoint.handle_datagram(theirs, hub_address(), &mut packet.datagram);
        if let (Some(lie), Some(session)) = (terminal.lies, terminal.session) {
            lie(&mut terminal.endpoint, theirs, session);
        }
        self.serve(packet.to);
    }

    fn serve_hub(&mut self) {
        let now = self.now;
        while let Some((id, event)) = self.hub.poll_event() {
            match event {
                Event::Up { peer, .. } => {
                    let n = (0..self.terminals.len()).find(|n| public(*n) == peer).unwrap();
                    self.of_session.insert(id, n);
                    self.terminals[n].hub = Some((id, None));
                }
                Event::Opened { stream, .. } => {
                    let n = self.of_session[&id];
                    self.terminals[n].hub = Some((id, Some(stream)));
                    self.hub.accept(id, stream).expect("it was just opened");
                    self.write(n);
                }
                Event::Down(_) => {
                    let n = self.of_session.remove(&id).expect("it was up");
                    *self.closed.entry(n).or_default() += 1;
                    self.terminals[n].hub.take_if(|(session, _)| *session == id);
                }
                Event::Writable(_) => self.write(self.of_session[&id]),
                _ => {}
            }
        }
        let mut datagram = Vec::new();
        while let Some(to) = self.hub.poll_transmit(now, &mut datagram) {
            let SocketAddr::V4(to) = to else { panic!("{to}") };
            let to = (to.ip().to_bits() - 0x0a00_0000) as usize;
            let size = datagram.len() + OVERHEAD;
            let packet = Packet { to, size, sent: now, datagram: core::mem::take(&mut datagram) };
            if let Some(after) = self.terminals[to].foresees {
                self.sent += 1;
                self.foreseen.insert((now + after, self.sent), packet.clone());
            }
            self.forward.handle_packet(now, packet);
        }
    }

    /// Writes what there is room for, if the terminal's user downloads.
    fn write(&mut self, n: usize) {
        let terminal = &self.terminals[n];
        let Some((session, Some(stream))) = terminal.hub else { return };
        while terminal.is_busy(self.now)
            && self.hub.write(session, stream, &[0; 16_384]) == Ok(16_384)
        {}
    }

    fn serve(&mut self, n: usize) {
        let now = self.now;
        let terminal = &mut self.terminals[n];
        let theirs = terminal.time(now);
        while let Some((id, event)) = terminal.endpoint.poll_event() {
            if let Event::Up { .. } = event {
                let open =
                    StreamOpening { destination: address(9), source: address(8), dscp: None };
                terminal.stream = terminal.endpoint.open(theirs, id, open).ok();
                terminal.session = Some(id);
            }
        }
        let mut buffer = [0; 16_384];
        if let (Some(session), Some(stream)) = (terminal.session, terminal.stream) {
            while let Ok(ReadOutcome::Data(_)) =
                terminal.endpoint.read(session, stream, &mut buffer)
            {}
        }
        let mut datagram = Vec::new();
        while terminal.endpoint.poll_transmit(theirs, &mut datagram).is_some() {
            self.sent += 1;
            let when = now + self.delay + terminal.farther;
            self.returning.insert((when, self.sent), (n, core::mem::take(&mut datagram)));
        }
        let begin = terminal.busy.iter().map(|(from, _)| *from).find(|from| *from > now);
        if terminal.is_busy(now) {
            self.write(n);
        }
        let terminal = &self.terminals[n];
        let timer = terminal.endpoint.poll_timeout();
        let next = timer.map(|(time, _)| terminal.true_time(time)).into_iter().chain(begin).min();
        if let Some(old) = core::mem::replace(&mut self.alarm_of[n], next) {
            self.alarms.remove(&(old, n));
        }
        self.alarms.extend(next.map(|time| (time, n)));
    }

    /// What left the shared link for a terminal in a time, in Mbit/s.
    pub fn rate(&self, n: usize, from: f64, until: f64) -> f64 {
        let times = at(from)..at(until);
        let of_it =
            self.records.iter().filter(|it| it.terminal == n && times.contains(&it.arrived));
        of_it.map(|record| record.size).sum::<usize>() as f64 * 8e-6 / (until - from)
    }

    pub fn rates(&self, from: f64, until: f64) -> Vec<f64> {
        (0..self.terminals.len()).map(|n| self.rate(n, from, until)).collect()
    }

    /// A percentile of queueing delays in a time, in ms.
    pub fn queue(&self, percent: f64, from: f64, until: f64) -> f64 {
        let times = at(from)..at(until);
        let of_all = self.records.iter().filter(|record| times.contains(&record.arrived));
        let queued: Vec<f64> = of_all.map(|record| record.queued.as_secs_f64() * 1e3).collect();
        stats::percentile(&queued, percent).unwrap_or(0.0)
    }

    /// Packets that the link has dropped.
    pub fn dropped(&self) -> u64 {
        self.forward.counters().dropped_queue.packets
    }
}

/// Sessions on 50 Mbit/s that all have data without end, begun within 20 s.
#[derive(Debug, Clone, Copy)]
pub struct Members {
    pub count: usize,
    /// Whether round trips are 600, 300 and 40 ms by turns; 600 ms for all if not.
    pub unequal: bool,
    /// Whether the hub knows that they share the link.
    pub aggregate: bool,
}

/// How they shared in the last 30 s.
#[derive(Debug, Clone, Copy)]
pub struct Shared {
    /// The share of the link that all used.
    pub used: f64,
    /// The least and the most that one got, of its equal share.
    pub least: f64,
    pub most: f64,
    /// The 95th percentile of queueing delays, in ms.
    pub queue: f64,
    /// The share of packets lost since the begin.
    pub lost: f64,
}

const MBIT: f64 = 50.0;

impl Members {
    pub fn carrier(&self, seed: u64) -> Carrier {
        let ms = Duration::from_millis;
        let delay = ms(if self.unequal { 20 } else { 300 });
        let mut carrier = Carrier::new(MBIT, delay, ms(600), self.count, self.aggregate, seed);
        for n in 0..self.count {
            // Spread evenly, and otherwise with each seed (by the golden ratio).
            let part = ((n as f64 + 0.1) * 0.618_034 + seed as f64 * 0.137).fract();
            let farther = ms(if self.unequal { [560, 260, 0][n % 3] } else { 0 });
            carrier.add(farther, &[(2.0 + 20.0 * part, 1e6)], seed);
        }
        carrier
    }

    pub fn run(&self, seed: u64) -> Shared {
        let mut carrier = self.carrier(seed);
        carrier.run(62.0);
        let rates = carrier.rates(32.0, 62.0);
        let equal = MBIT / self.count as f64;
        Shared {
            used: rates.iter().sum::<f64>() / MBIT,
            least: rates.iter().copied().fold(f64::INFINITY, f64::min) / equal,
            most: rates.iter().copied().fold(0.0, f64::max) / equal,
            queue: carrier.queue(95.0, 32.0, 62.0),
            lost: carrier.dropped() as f64 / carrier.records.len() as f64,
        }
    }
}
