//! Many web users, modelled by their requests.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use link::Dice;
use scenario::ReplySizes;
use units::Instant;

use super::chance::{exponential, pareto};
use super::lookups::{LookupOutcome, NameLookups};
use super::{App, AppId, AppNotice, ResolutionSetup, WorkUnit};
use crate::connection::path::ConnectionPath;
use crate::connection::talk::FirstCloser;
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;
use crate::world::World;

/// Sends requests at random times (a Poisson process), each over its own connection.
#[derive(Debug)]
pub struct WebUsers {
    /// The paths; each request takes a random one.
    pub paths: Vec<Arc<ConnectionPath>>,
    /// Mean time between requests, over all users.
    pub every: Duration,
    /// Size of a request in bytes.
    pub request: u64,
    /// Size of a reply in bytes.
    pub sizes: ReplySizes,
    /// When the first request may start.
    pub start: Instant,
    /// The time from which no more requests start.
    pub stop: Instant,
    dice: Dice,
    waiting: BTreeMap<SlabKey, (Instant, u64)>,
    names: Option<NameLookups>,
    /// Requests that wait for a name, by the number of the look-up.
    awaiting_name: BTreeMap<u64, UserRequest>,
    /// Number of names asked for so far.
    asked: u64,
    /// True once no further requests start.
    over: bool,
}

/// A request of a user, before it has a connection.
#[derive(Debug, Clone, Copy)]
struct UserRequest {
    /// Index of its path.
    path: usize,
    /// When it began; its name is resolved after that.
    begin: Instant,
    /// Size of the reply in bytes.
    reply: u64,
}

impl WebUsers {
    /// Creates users whose random numbers are seeded from `seed`.
    pub fn new(
        paths: Vec<Arc<ConnectionPath>>,
        every: Duration,
        request: u64,
        sizes: ReplySizes,
        [start, stop]: [Instant; 2],
        seed: u64,
    ) -> Self {
        Self {
            paths,
            every,
            request,
            sizes,
            start,
            stop,
            dice: Dice::new(seed),
            waiting: BTreeMap::new(),
            names: None,
            awaiting_name: BTreeMap::new(),
            asked: 0,
            over: false,
        }
    }

    /// Lets a name be resolved before each request. The clients are in the order of the paths.
    #[must_use]
    pub fn by_name(self, resolution: Option<ResolutionSetup>) -> Self {
        Self { names: resolution.map(NameLookups::new), ..self }
    }

    fn size(&mut self) -> u64 {
        match self.sizes {
            ReplySizes::Fixed(bytes) => bytes,
            ReplySizes::Pareto { least, most, alpha } => {
                (pareto(self.dice.chance(), least as f64, alpha) as u64).min(most)
            }
        }
    }

    fn schedule_next(&mut self, world: &mut World, me: AppId) {
        let pause = exponential(self.dice.chance(), self.every);
        world.wake_at(me, world.now() + pause, 1);
    }

    fn ask(&mut self, world: &mut World, me: AppId) {
        let path = self.dice.below(self.paths.len() as u64) as usize;
        let request = UserRequest { path, begin: world.now(), reply: self.size() };
        let Some(names) = &mut self.names else { return self.connect(world, me, request) };
        self.awaiting_name.insert(self.asked, request);
        names.ask(world, me, self.asked, path);
        self.asked += 1;
    }

    fn connect(&mut self, world: &mut World, me: AppId, request: UserRequest) {
        let UserRequest { path, begin, reply } = request;
        // One request per connection, which the server closes after its reply, as in HTTP/1.0.
        let talk = world.open(me, &self.paths[path], FirstCloser::Server, None);
        world.send_request(talk, ExchangeSizes { request: self.request, reply });
        self.waiting.insert(talk, (begin, reply));
    }

    /// Handles a notification that concerns a look-up; returns false if it concerns none.
    fn handle_lookup(&mut self, world: &mut World, me: AppId, notice: &AppNotice) -> bool {
        let Some(names) = &mut self.names else { return false };
        match names.handle_notice(world, me, notice) {
            LookupOutcome::Unrelated => return false,
            LookupOutcome::Handled => {}
            LookupOutcome::Resolved(name) => {
                if let Some(request) = self.awaiting_name.remove(&name) {
                    self.connect(world, me, request);
                }
            }
            LookupOutcome::Unresolved(name) => {
                self.awaiting_name.remove(&name);
                world.record_failure(me);
            }
        }
        true
    }
}

impl App for WebUsers {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match notice {
            notice if self.handle_lookup(world, me, &notice) => {}
            AppNotice::Start => {
                if self.paths.is_empty() {
                    world.set_done(me);
                } else {
                    world.wake_at(me, self.start, 0);
                }
            }
            // A pause precedes the first request, too: a Poisson process has no event at its start.
            AppNotice::Wake(0) => {
                world.begin(me);
                self.schedule_next(world, me);
            }
            AppNotice::Wake(_) if world.now() < self.stop => {
                self.ask(world, me);
                self.schedule_next(world, me);
            }
            AppNotice::ExchangeDone(talk) => {
                if let Some((begin, bytes)) = self.waiting.remove(&talk) {
                    world.record_work_unit(me, WorkUnit { begin, end: world.now(), bytes });
                }
                world.finish(talk);
            }
            AppNotice::Ended { talk, whole } => {
                self.waiting.remove(&talk);
                if !whole {
                    world.record_failure(me);
                }
            }
            AppNotice::Wake(_) => self.over = true,
            AppNotice::Connected(_) | AppNotice::RequestArrived(_) | AppNotice::Datagram(_) => {}
        }
        // Waits for requests that began in time.
        if self.over && self.waiting.is_empty() && self.awaiting_name.is_empty() {
            world.set_done(me);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, geo};

    fn users(sizes: ReplySizes, [start, stop]: [u64; 2], seed: u64) -> (World, AppId) {
        let mut world = World::new(1);
        let (_, _, path) = geo(&mut world);
        let every = Duration::from_millis(200);
        let span = [at(start), at(stop)];
        let app = WebUsers::new(vec![path], every, 300, sizes, span, seed);
        let app = world.add_app(Box::new(app));
        world.run_until(at(200));
        (world, app)
    }

    #[test]
    fn users_come_between_start_and_stop_and_each_gets_its_reply() {
        let (world, app) = users(ReplySizes::Fixed(1000), [10, 50], 7);
        let tally = world.app_stats(app);
        assert!(tally.done && tally.failures == 0);
        let count = tally.work_units.len() as u64;
        assert!((150..250).contains(&count), "{count}: 200 ± 14");
        assert!(tally.work_units.iter().all(|deed| at(10) <= deed.begin && deed.begin < at(50)));
        assert_eq!(tally.bytes, count * 1300);
    }

    #[test]
    fn sizes_are_cut_at_the_most() {
        // A tail so heavy that most would be larger.
        let sizes = ReplySizes::Pareto { least: 1000, most: 2000, alpha: 0.1 };
        let (world, app) = users(sizes, [0, 20], 7);
        let deeds = &world.app_stats(app).work_units;
        assert!(deeds.iter().all(|deed| (1000..=2000).contains(&deed.bytes)));
        assert!(deeds.iter().filter(|deed| deed.bytes == 2000).count() * 2 > deeds.len());
    }

    #[test]
    fn the_seed_decides_who_comes() {
        let begins = |seed| {
            let (world, app) = users(ReplySizes::Fixed(1000), [0, 20], seed);
            world.app_stats(app).work_units.iter().map(|deed| deed.begin).collect::<Vec<_>>()
        };
        assert_eq!(begins(1), begins(1));
        assert_ne!(begins(1), begins(2));
    }

    #[test]
    fn without_a_path_nobody_comes() {
        let mut world = World::new(1);
        let every = Duration::from_secs(1);
        let app = WebUsers::new(vec![], every, 1, ReplySizes::Fixed(1), [at(0), at(9)], 1);
        world.add_app(Box::new(app));
        assert!(world.is_done());
    }
}
