use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::*;

fn at(seconds: f64) -> Instant {
    Instant::from_nanos((seconds * 1e9) as u64)
}

const RTT: f64 = 0.6;
/// How long a session takes to notice that nothing is acknowledged.
const NOTICE: f64 = 1.0;
/// The longest pause between probes of a silent session.
const RETRY: f64 = 2.0;

/// What a terminal sees: hubs behind a link, as far as sessions can tell.
struct World {
    now: f64,
    hubs: HubSelection,
    /// Since when each hub has been running; `None` while it does not.
    running: Vec<Option<f64>>,
    leaving: Vec<bool>,
    link: bool,
    /// The link's state or a hub's changed last.
    changed: f64,
    wanted: Vec<Option<f64>>,
    /// When the answer to a silent session comes, if its hub is there.
    heard: Vec<f64>,
    sessions: Vec<Option<Session>>,
    used: Option<usize>,
    /// What happened, in words.
    log: Vec<String>,
}

struct Session {
    since: f64,
    silent: bool,
    /// Since when it has not been answered.
    unanswered: Option<f64>,
    told: bool,
}

impl World {
    fn new(hubs: usize) -> Self {
        Self {
            now: 0.0,
            hubs: HubSelection::new(at(0.0), (0..hubs).map(HubId).collect()),
            running: vec![Some(0.0); hubs],
            leaving: vec![false; hubs],
            link: true,
            changed: 0.0,
            wanted: vec![None; hubs],
            heard: vec![0.0; hubs],
            sessions: (0..hubs).map(|_| None).collect(),
            used: None,
            log: Vec::new(),
        }
    }

    fn note(&mut self, what: &str, hub: usize) {
        self.log.push(format!("{:.1} {what} {hub}", self.now));
    }

    fn answers(&self, hub: usize) -> bool {
        self.link && self.running[hub].is_some()
    }

    fn kill(&mut self, hub: usize) {
        (self.running[hub], self.changed) = (None, self.now);
    }

    /// Starts a hub, which knows no session.
    fn start(&mut self, hub: usize) {
        (self.running[hub], self.leaving[hub], self.changed) = (Some(self.now), false, self.now);
    }

    /// A silent session hears of the link's return with its next probe, which may have to wait.
    fn set_link(&mut self, up: bool) {
        (self.link, self.changed) = (up, self.now);
        self.heard.fill(self.now + RETRY + RTT);
    }

    /// Stops a hub that has said so: its session is closed.
    fn stop(&mut self, hub: usize) {
        self.kill(hub);
        self.end(hub);
    }

    fn end(&mut self, hub: usize) {
        if self.sessions[hub].take().is_some() {
            self.note("lost", hub);
            self.hubs.handle_down(at(self.now), HubId(hub));
            self.steps();
        }
    }

    fn steps(&mut self) {
        while let Some(step) = self.hubs.poll_step(at(self.now)) {
            match step {
                HubStep::Want(HubId(hub), true) => {
                    self.wanted[hub].get_or_insert(self.now);
                }
                HubStep::Want(HubId(hub), false) => self.wanted[hub] = None,
                HubStep::Ask(HubId(hub)) => self.heard[hub] = self.heard[hub].min(self.now + RTT),
                HubStep::Use(HubId(hub)) => {
                    assert!(self.sessions[hub].as_ref().is_some_and(|it| !it.silent));
                    self.used = Some(hub);
                    self.note("use", hub);
                }
                HubStep::Close(HubId(hub)) => self.close(hub),
                HubStep::CloseFormer(HubId(hub)) => self.note("close former", hub),
            }
        }
        assert!(self.hubs.poll_timeout().is_none_or(|due| due > at(self.now)));
    }

    /// The terminal closes a session. One that is silent may only go if another hub answers.
    fn close(&mut self, hub: usize) {
        self.note("close", hub);
        let silent = self.sessions[hub].take().is_some_and(|session| session.silent);
        let other = |it: &Session| !it.silent;
        assert!(!silent || self.sessions.iter().flatten().any(other), "{:#?}", self.log);
    }

    fn tick(&mut self) {
        self.now += 0.05;
        for hub in 0..self.running.len() {
            self.follow(hub);
        }
        self.steps();
    }

    fn follow(&mut self, hub: usize) {
        let (now, answers, id) = (at(self.now), self.answers(hub), HubId(hub));
        let began = self.running[hub];
        match &mut self.sessions[hub] {
            // A hub that was started again does not know the session.
            Some(session) if answers && began.is_some_and(|began| began > session.since) => {
                if self.now >= self.changed + RTT {
                    self.end(hub);
                }
            }
            Some(session) if answers => {
                session.unanswered = None;
                if session.silent && self.now >= self.heard[hub] {
                    session.silent = false;
                    self.hubs.handle_answer(now, id);
                }
                if self.leaving[hub] && !session.told {
                    session.told = true;
                    self.hubs.handle_leaving(now, id);
                }
            }
            Some(session) => {
                let since = *session.unanswered.get_or_insert(self.now);
                if self.now >= since + NOTICE + RTT && !session.silent {
                    session.silent = true;
                    self.hubs.handle_silence(now, id, Duration::from_secs_f64(RTT));
                }
            }
            None => {
                let wanted = self.wanted[hub].is_some_and(|since| self.now >= since + RTT);
                if wanted && answers && self.now >= self.changed + RTT {
                    let (since, told) = (self.now, false);
                    self.sessions[hub] =
                        Some(Session { since, silent: false, unanswered: None, told });
                    self.hubs.handle_up(now, id);
                }
            }
        }
        self.steps();
    }

    fn run(&mut self, seconds: f64) {
        let until = self.now + seconds;
        while self.now < until {
            self.tick();
        }
    }

    fn up(&self) -> Vec<usize> {
        let up = self.sessions.iter().enumerate().filter(|(_, session)| session.is_some());
        up.map(|(hub, _)| hub).collect()
    }
}

#[test]
fn the_best_hub_is_used_alone() {
    let mut world = World::new(3);
    world.run(600.0);
    assert_eq!(world.log, ["0.7 use 0"]);
    assert_eq!((world.up(), world.hubs.is_good()), (vec![0], true));
}

#[test]
fn at_the_start_the_next_is_asked_when_the_best_does_not_answer() {
    let mut world = World::new(3);
    world.kill(0);
    world.kill(1);
    world.run(100.0);
    // The second is asked after 2 s, the third after 4 s.
    assert_eq!(world.log, ["4.7 use 2"]);
    // The first comes back: it is found, and used once it has been up for half a minute.
    world.start(0);
    world.run(200.0);
    let found: f64 = world.log[1].split(' ').next().unwrap().parse().unwrap();
    assert!(world.log[1].ends_with("use 0") && (130.0..220.0).contains(&found), "{:?}", world.log);
    assert_eq!(world.up(), [0, 2], "what the other carries may end there");
    world.hubs.handle_idle(at(world.now), HubId(2));
    world.steps();
    assert_eq!(world.up(), [0]);
}

#[test]
fn a_dead_hub_is_left_when_another_answers() {
    let mut world = World::new(3);
    world.run(100.0);
    world.kill(0);
    world.run(20.0);
    // 1.6 s until the silence is noticed, a round trip to the other, and the dead one's last chance.
    assert_eq!(world.log, ["0.7 use 0", "103.3 close 0", "103.3 use 1"]);
    assert_eq!(world.up(), [1]);
}

#[test]
fn a_fade_moves_nothing() {
    for seconds in [3.0, 60.0, 600.0] {
        let mut world = World::new(3);
        world.run(100.0);
        world.set_link(false);
        world.run(seconds);
        assert!(!world.hubs.is_good());
        world.set_link(true);
        world.run(60.0);
        // Another hub may be heard first, but the first is given the time to be.
        let log = world.log.iter().map(|line| line.split_once(' ').unwrap().1);
        assert!(log.skip(1).all(|line| line == "close 1" || line == "close 2"), "{:?}", world.log);
        assert_eq!((world.used, world.up()), (Some(0), vec![0]), "{seconds} s");
    }
}

#[test]
fn a_hub_that_leaves_keeps_what_it_carries_until_it_stops() {
    let mut world = World::new(2);
    world.run(10.0);
    world.leaving[0] = true;
    world.run(10.0);
    assert_eq!(world.log, ["0.7 use 0", "10.7 use 1"]);
    assert_eq!(world.hubs.retiring().collect::<Vec<_>>(), [HubId(0)]);
    world.stop(0);
    world.run(60.0);
    assert_eq!(world.up(), [1]);
    world.start(0);
    world.run(200.0);
    assert_eq!(world.used, Some(0));
}

#[test]
fn without_another_hub_the_only_one_is_kept_and_asked_again_at_once() {
    let mut world = World::new(1);
    world.run(10.0);
    world.leaving[0] = true;
    world.run(10.0);
    assert!(world.hubs.is_leaving() && !world.hubs.is_good());
    world.stop(0);
    world.start(0);
    world.run(3.0);
    assert_eq!(world.log, ["0.7 use 0", "20.0 lost 0", "20.6 use 0"]);
}

#[test]
fn the_next_process_is_used_at_once_and_the_former_is_left_when_it_is_idle() {
    let mut world = World::new(2);
    world.run(10.0);
    world.hubs.handle_next_process(at(world.now), HubId(0));
    world.steps();
    assert_eq!(world.log, ["0.7 use 0", "10.0 use 0"]);
    assert_eq!((world.hubs.is_good(), world.up()), (true, vec![0]));
    // What it opens may still be under way.
    world.hubs.handle_former_idle(at(world.now), HubId(0));
    world.run(3.0);
    world.hubs.handle_former_idle(at(world.now), HubId(0));
    world.hubs.handle_former_idle(at(world.now), HubId(0));
    world.run(100.0);
    assert_eq!(world.log[2..], ["13.1 close former 0"]);
}

#[test]
fn a_former_process_is_given_up_when_only_the_next_one_answers() {
    let mut world = World::new(1);
    world.run(10.0);
    world.hubs.handle_next_process(at(world.now), HubId(0));
    // A fade: neither answers, and the former is heard last.
    world.set_link(false);
    world.hubs.handle_former(at(world.now), HubId(0), false);
    world.run(600.0);
    world.set_link(true);
    world.run(9.0);
    world.hubs.handle_former(at(world.now), HubId(0), true);
    world.run(100.0);
    assert_eq!(world.log, ["0.7 use 0", "10.1 use 0"]);
    // It dies.
    world.hubs.handle_former(at(world.now), HubId(0), false);
    world.run(100.0);
    assert_eq!(world.log[2..], ["729.1 close former 0"]);
}

#[test]
fn a_hub_that_comes_and_goes_is_returned_to_ever_later() {
    let mut world = World::new(2);
    let mut uses = 0;
    for _ in 0..40 {
        world.start(0);
        world.run(90.0);
        world.kill(0);
        world.run(10.0);
        uses = world.log.iter().filter(|line| line.ends_with("use 0")).count();
    }
    // Up for 90 s of each 100: it qualifies for 30 s and 60 s, not for 120 s.
    assert!((2..=4).contains(&uses), "{uses}: {:#?}", world.log);
    assert_eq!(world.used, Some(1));
}

/// Random failures of hubs and link: a session that is silent is given up only while another hub
/// answers ([`World::close`]), no more sessions are held than needed once all is quiet, and the best
/// hub is used in the end.
#[test]
fn whatever_fails_the_terminal_ends_at_its_best_hub() {
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut world = World::new(1 + seed as usize % 4);
        for _ in 0..60 {
            let hub = rng.next_u32() as usize % world.running.len();
            match rng.next_u32() % 7 {
                0 => world.kill(hub),
                1 | 2 => world.start(hub),
                3 => world.set_link(false),
                4 => world.set_link(true),
                5 if world.running[hub].is_some() => world.leaving[hub] = true,
                5 => {}
                _ => world.stop(hub),
            }
            world.run(f64::from(rng.next_u32() % 400) / 10.0);
        }
        world.set_link(true);
        (0..world.running.len()).for_each(|hub| world.start(hub));
        for _ in 0..100 {
            world.run(20.0);
            for id in world.hubs.retiring().collect::<Vec<_>>() {
                world.hubs.handle_idle(at(world.now), id);
            }
        }
        world.run(1.0);
        assert_eq!((world.used, world.up()), (Some(0), vec![0]), "seed {seed}: {:#?}", world.log);
    }
}

#[test]
fn terminals_spread_and_a_hub_that_fails_moves_only_its_own() {
    let key = |seed: u64| {
        let mut key = [0; 32];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut key);
        PublicKey(key)
    };
    let hubs: Vec<PublicKey> = (1000..1003).map(key).collect();
    let mut first = [0; 3];
    let mut second_of_0 = [0; 3];
    for terminal in (0..3000).map(key) {
        let order = ranking(HubOrder::Spread, &terminal, &hubs);
        first[order[0].0] += 1;
        if order[0].0 == 0 {
            second_of_0[order[1].0] += 1;
        }
        let without: Vec<_> = ranking(HubOrder::Spread, &terminal, &hubs[..2]);
        let rest: Vec<_> = order.iter().filter(|id| id.0 != 2).copied().collect();
        assert_eq!(without, rest);
    }
    assert!(first.iter().all(|count| (900..1100).contains(count)), "{first:?}");
    assert!(second_of_0[1..].iter().all(|count| (400..600).contains(count)), "{second_of_0:?}");
    assert_eq!(ranking(HubOrder::Listed, &key(1), &hubs), [HubId(0), HubId(1), HubId(2)]);
}
