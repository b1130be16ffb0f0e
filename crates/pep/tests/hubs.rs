//! Three hubs and 300 terminals in virtual time: one hub is killed, then all links fade, then one hub
//! drains. Prints how soon terminals have moved.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::OnceLock;

use pep::hubs::{HubId, HubOrder, HubSelection, HubStep, ranking};
use slacp::{
    CloseReason, Config, Destination, Endpoint, Event, KeyPair, PublicKey, ReadOutcome, SessionId,
    StopAnnouncement, StreamId, StreamOpening,
};
use units::{BitRate, Instant, Machine};

const HUBS: usize = 3;
const TERMINALS: usize = 300;
/// One way.
const DELAY: Duration = Duration::from_millis(300);
const RTT: Duration = Duration::from_millis(600);
/// How often a busy terminal says something.
const EVERY: Duration = Duration::from_millis(200);
const KEEPALIVE: Duration = Duration::from_secs(15);

fn key(number: usize) -> KeyPair {
    let mut private = [7; 32];
    private[..8].copy_from_slice(&number.to_be_bytes());
    KeyPair::from_private(private)
}

/// The hubs come first.
fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 5900))
}

/// A terminal, driven as the gateway drives it.
struct Terminal {
    choice: HubSelection,
    sessions: [Option<SessionId>; HUBS],
    /// Every second one has an open connection.
    busy: bool,
    stream: Option<(SessionId, StreamId)>,
    /// When it began to use which hub.
    uses: Vec<(Instant, usize)>,
    /// What it has noticed of its sessions since the last [`World::forget`].
    troubles: usize,
    resets: usize,
}

struct World {
    now: Instant,
    /// Hubs, then terminals.
    endpoints: Vec<Endpoint>,
    terminals: Vec<Terminal>,
    killed: BTreeSet<usize>,
    faded: bool,
    alarms: BTreeSet<(Instant, usize)>,
    alarm_of: Vec<Option<Instant>>,
    wire: BTreeMap<(Instant, u64), (usize, usize, Vec<u8>)>,
    sent: u64,
}

impl World {
    fn new() -> Self {
        let config = || Config::new(BitRate::from_mbit(100));
        let (now, keys) = (Instant::from_nanos(1_000_000_000), hub_keys());
        let allow: Vec<PublicKey> = (HUBS..HUBS + TERMINALS).map(|it| key(it).public()).collect();
        let hub = |it: usize| Endpoint::hub(config(), key(it), allow.clone(), [it as u8; 32]);
        let mut endpoints: Vec<Endpoint> = (0..HUBS).map(hub).collect();
        let mut terminals = Vec::new();
        for number in HUBS..HUBS + TERMINALS {
            let identity = key(number);
            let ranks = ranking(HubOrder::Spread, &identity.public(), &keys);
            let (first, mut seed) = (ranks[0].0, [3; 32]);
            seed[..8].copy_from_slice(&number.to_be_bytes());
            let (hub, at) = (keys[first], vec![address(first)]);
            let mut endpoint = Endpoint::terminal(config(), identity, hub, at, seed);
            (0..HUBS).for_each(|hub| endpoint.set_hub(keys[hub], vec![address(hub)]));
            endpoints.push(endpoint);
            terminals.push(Terminal {
                choice: HubSelection::new(now, ranks),
                sessions: [None; HUBS],
                busy: number % 2 == 0,
                stream: None,
                uses: Vec::new(),
                troubles: 0,
                resets: 0,
            });
        }
        let mut world = Self {
            now,
            alarm_of: vec![None; endpoints.len()],
            endpoints,
            terminals,
            killed: BTreeSet::new(),
            faded: false,
            alarms: BTreeSet::new(),
            wire: BTreeMap::new(),
            sent: 0,
        };
        (0..world.endpoints.len()).for_each(|place| world.serve(place));
        world
    }

    /// Runs for a while; busy terminals talk.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let until = (self.now + EVERY).min(end);
            self.run_until(until);
            for number in 0..TERMINALS {
                self.talk(number);
                self.housekeep(number);
                self.serve(HUBS + number);
            }
        }
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            let flight = self.wire.first_key_value().map(|((at, _), _)| *at);
            let alarm = self.alarms.first().map(|(at, _)| *at);
            let Some(next) = flight.into_iter().chain(alarm).min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if flight == Some(next) {
                let Some((_, (from, to, mut datagram))) = self.wire.pop_first() else { return };
                if !self.faded && !self.killed.contains(&to) {
                    self.endpoints[to].handle_datagram(self.now, address(from), &mut datagram);
                    self.serve(to);
                }
            } else {
                let Some((_, place)) = self.alarms.pop_first() else { return };
                self.alarm_of[place] = None;
                self.endpoints[place].handle_timeout(self.now);
                self.serve(place);
            }
        }
        self.now = end;
    }

    /// Does what an endpoint has to say and to send.
    fn serve(&mut self, place: usize) {
        if self.killed.contains(&place) {
            return;
        }
        while let Some((session, event)) = self.endpoints[place].poll_event() {
            match place.checked_sub(HUBS) {
                Some(number) => self.follow(number, session, &event),
                None => self.swallow(place, session, &event),
            }
        }
        let mut datagram = Vec::new();
        while let Some(to) = self.endpoints[place].poll_transmit(self.now, &mut datagram) {
            let SocketAddr::V4(to) = to else { continue };
            let [_, _, high, low] = to.ip().octets();
            let to = usize::from(high) << 8 | usize::from(low);
            self.sent += 1;
            let flight = (place, to, core::mem::take(&mut datagram));
            self.wire.insert((self.now + DELAY, self.sent), flight);
        }
        let own = place.checked_sub(HUBS).and_then(|it| self.terminals[it].choice.poll_timeout());
        let next = self.endpoints[place].poll_timeout().map(|(at, _)| at);
        let next = next.into_iter().chain(own.filter(|at| *at > self.now)).min();
        if let Some(old) = core::mem::replace(&mut self.alarm_of[place], next) {
            self.alarms.remove(&(old, place));
        }
        self.alarms.extend(next.map(|at| (at, place)));
    }

    /// A hub reads what comes.
    fn swallow(&mut self, hub: usize, session: SessionId, event: &Event) {
        if let Event::Opened { stream, .. } | Event::Readable(stream) = event {
            let mut buffer = [0; 4096];
            while let Ok(ReadOutcome::Data(_)) =
                self.endpoints[hub].read(session, *stream, &mut buffer)
            {}
        }
    }

    fn follow(&mut self, number: usize, session: SessionId, event: &Event) {
        let (now, endpoint) = (self.now, &self.endpoints[HUBS + number]);
        let terminal = &mut self.terminals[number];
        if let Event::Up { peer, .. } = event {
            let hub = hub_keys().iter().position(|key| key == peer).expect("it is one of them");
            terminal.sessions[hub] = Some(session);
            terminal.choice.handle_up(now, HubId(hub));
        }
        let hub = terminal.sessions.iter().position(|its| *its == Some(session)).map(HubId);
        let Some(id) = hub else { return };
        match event {
            Event::Unreachable => {
                let rtt = endpoint.stats(session).map_or(Duration::ZERO, |stats| stats.rtt);
                terminal.choice.handle_silence(now, id, rtt);
                terminal.troubles += 1;
            }
            Event::Reachable => terminal.choice.handle_answer(now, id),
            Event::Leaving => terminal.choice.handle_leaving(now, id),
            Event::Down(_) => {
                terminal.sessions[id.0] = None;
                terminal.choice.handle_down(now, id);
                self.lose(number, session);
            }
            _ => {}
        }
        self.decide(number);
    }

    /// The connections of a session are over.
    fn lose(&mut self, number: usize, session: SessionId) {
        let terminal = &mut self.terminals[number];
        if terminal.stream.take_if(|(its, _)| *its == session).is_some() {
            terminal.resets += 1;
        }
    }

    /// Does what has been decided.
    fn decide(&mut self, number: usize) {
        let (now, keys) = (self.now, hub_keys());
        while let Some(step) = self.terminals[number].choice.poll_step(now) {
            let (endpoint, terminal) =
                (&mut self.endpoints[HUBS + number], &mut self.terminals[number]);
            match step {
                HubStep::Want(id, wanted) => endpoint.want_hub(keys[id.0], wanted),
                HubStep::Ask(id) => {
                    let session = terminal.sessions[id.0];
                    session.iter().for_each(|session| _ = endpoint.ask(now, *session));
                }
                HubStep::Use(id) => terminal.uses.push((now, id.0)),
                HubStep::CloseFormer(_) => unreachable!("no hub has a successor here"),
                HubStep::Close(id) => {
                    if let Some(session) = terminal.sessions[id.0].take() {
                        let _ = endpoint.close(now, session, CloseReason::Shutdown);
                        self.lose(number, session);
                    }
                }
            }
        }
    }

    fn housekeep(&mut self, number: usize) {
        let retiring: Vec<HubId> = self.terminals[number].choice.retiring().collect();
        for id in retiring {
            let session = self.terminals[number].sessions[id.0];
            let stats = session.and_then(|it| self.endpoints[HUBS + number].stats(it));
            if stats.is_none_or(|stats| stats.streams == 0) {
                self.terminals[number].choice.handle_idle(self.now, id);
            }
        }
        self.decide(number);
    }

    /// A busy terminal says something, on a connection that it opens anew when that was lost.
    fn talk(&mut self, number: usize) {
        let (endpoint, terminal) =
            (&mut self.endpoints[HUBS + number], &mut self.terminals[number]);
        let current = terminal.choice.current().filter(|_| terminal.busy);
        let Some(session) = current.and_then(|id| terminal.sessions[id.0]) else { return };
        if terminal.stream.is_none() && terminal.choice.is_good() {
            let at = SocketAddr::from(([192, 0, 2, 1], 80));
            let open: StreamOpening<Destination> =
                StreamOpening { destination: at, source: at, dscp: None }.into();
            let opened = endpoint.open(self.now, session, open);
            terminal.stream = opened.ok().map(|stream| (session, stream));
        }
        if let Some((session, stream)) = terminal.stream {
            // There may be no room in a fade.
            let _ = endpoint.write(session, stream, &[1; 200]);
        }
    }

    fn hub_of(&self, number: usize) -> Option<usize> {
        self.terminals[number].choice.current().map(|id| id.0)
    }

    /// The terminals that use a hub.
    fn users(&self, hub: usize) -> Vec<usize> {
        (0..TERMINALS).filter(|number| self.hub_of(*number) == Some(hub)).collect()
    }

    fn forget(&mut self) {
        for terminal in &mut self.terminals {
            (terminal.troubles, terminal.resets) = (0, 0);
        }
    }

    /// How long after `since` these terminals began to use another hub, in order.
    fn moved(&self, of: &[usize], busy: bool, since: Instant) -> Vec<Duration> {
        let of = of.iter().map(|number| &self.terminals[*number]).filter(|it| it.busy == busy);
        let first = of.map(|it| it.uses.iter().find(|(at, _)| *at >= since).expect("it moved").0);
        let mut times: Vec<Duration> = first.map(|at| at.saturating_since(since)).collect();
        times.sort();
        times
    }
}

fn hub_keys() -> [PublicKey; HUBS] {
    static KEYS: OnceLock<[PublicKey; HUBS]> = OnceLock::new();
    *KEYS.get_or_init(|| core::array::from_fn(|hub| key(hub).public()))
}

fn show(what: &str, times: &[Duration]) -> (Duration, Duration) {
    let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).max(1) - 1];
    let (middle, most, last) = (at(0.5), at(0.95), at(1.0));
    println!(
        "{what}: {} moved; median {middle:.2?}, 95 % {most:.2?}, last {last:.2?}",
        times.len()
    );
    (most, last)
}

#[test]
#[ignore = "takes some seconds: cargo test -p skyhop-pep --test hubs -- --ignored --nocapture"]
fn of_300_terminals_those_of_a_dead_hub_move_and_no_others() {
    let mut world = World::new();
    world.run(Duration::from_secs(60));
    let users: [Vec<usize>; HUBS] = core::array::from_fn(|hub| world.users(hub));
    println!("{TERMINALS} terminals: {:?} at each hub", users.each_ref().map(Vec::len));
    assert!(users.iter().all(|users| users.len() > TERMINALS / 5));

    // One hub is killed.
    world.forget();
    let since = world.now;
    world.killed.insert(0);
    world.run(Duration::from_secs(40));
    let soon = Duration::from_secs(3) + 3 * RTT;
    let (most, _) = show("with traffic", &world.moved(&users[0], true, since));
    assert!(most <= soon, "{most:?}");
    let (_, last) = show("idle", &world.moved(&users[0], false, since));
    assert!(last <= soon + KEEPALIVE, "{last:?}");
    for number in users[1].iter().chain(&users[2]) {
        let terminal = &world.terminals[*number];
        assert_eq!((terminal.troubles, terminal.resets, terminal.uses.len()), (0, 0, 1));
    }

    // All links fade for ten minutes.
    let before: Vec<_> = (0..TERMINALS).map(|number| world.hub_of(number)).collect();
    world.forget();
    world.faded = true;
    world.run(Duration::from_secs(600));
    world.faded = false;
    world.run(Duration::from_secs(30));
    let after: Vec<_> = (0..TERMINALS).map(|number| world.hub_of(number)).collect();
    assert_eq!(before, after);
    assert_eq!(world.terminals.iter().map(|it| it.resets).sum::<usize>(), 0);
    println!("a fade of 10 min: nobody moved, no connection was reset");

    // A hub drains.
    world.forget();
    let (leaving, since) = (world.users(1), world.now);
    world.endpoints[1].announce(since, StopAnnouncement::Leaving);
    world.serve(1);
    world.run(Duration::from_secs(30));
    show("from a draining hub, with traffic", &world.moved(&leaving, true, since));
    show("from a draining hub, idle", &world.moved(&leaving, false, since));
    assert_eq!(world.users(1), []);
    assert_eq!(world.terminals.iter().map(|it| it.resets).sum::<usize>(), 0);
}
