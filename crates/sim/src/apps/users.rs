//! Many web users, modelled by their requests.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use link::Dice;
use scenario::Sizes;
use units::Instant;

use super::lookups::{Heard, Lookups};
use super::{App, AppId, Deed, Notice, Resolution};
use crate::chance::{exponential, pareto};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::Closer;
use crate::turn::Turn;
use crate::world::World;

/// Sends requests at random times (a Poisson process), each over its own connection.
#[derive(Debug)]
pub struct Users {
    /// The paths; each request takes a random one.
    pub paths: Vec<Arc<Path>>,
    /// Mean time between requests, over all users.
    pub every: Duration,
    /// Size of a request in bytes.
    pub request: u64,
    /// Size of a reply in bytes.
    pub sizes: Sizes,
    /// When the first request may start.
    pub start: Instant,
    /// The time from which no more requests start.
    pub stop: Instant,
    dice: Dice,
    waiting: BTreeMap<Key, (Instant, u64)>,
    names: Option<Lookups>,
    /// Requests that wait for a name: the path, the time and the size of the reply.
    nameless: BTreeMap<u64, (usize, Instant, u64)>,
    /// Number of names asked for so far.
    asked: u64,
    /// True once no further requests start.
    over: bool,
}

impl Users {
    /// Creates users whose random numbers are seeded from `seed`.
    pub fn new(
        paths: Vec<Arc<Path>>,
        every: Duration,
        (request, sizes): (u64, Sizes),
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
            nameless: BTreeMap::new(),
            asked: 0,
            over: false,
        }
    }

    /// Lets a name be resolved before each request. The clients are in the order of the paths.
    #[must_use]
    pub fn by_name(self, resolution: Option<Resolution>) -> Self {
        Self { names: resolution.map(Lookups::new), ..self }
    }

    fn size(&mut self) -> u64 {
        match self.sizes {
            Sizes::Fixed(bytes) => bytes,
            Sizes::Pareto { least, most, alpha } => {
                (pareto(self.dice.chance(), least as f64, alpha) as u64).min(most)
            }
        }
    }

    fn come(&mut self, world: &mut World, me: AppId) {
        let pause = exponential(self.dice.chance(), self.every);
        world.wake_at(me, world.now() + pause, 1);
    }

    fn ask(&mut self, world: &mut World, me: AppId) {
        let path = self.dice.below(self.paths.len() as u64) as usize;
        let bytes = self.size();
        let Some(names) = &mut self.names else {
            return self.connect(world, me, (path, world.now(), bytes));
        };
        self.nameless.insert(self.asked, (path, world.now(), bytes));
        names.ask(world, me, self.asked, path);
        self.asked += 1;
    }

    fn connect(
        &mut self,
        world: &mut World,
        me: AppId,
        (path, begin, bytes): (usize, Instant, u64),
    ) {
        let talk = world.open(me, &self.paths[path], Closer::Server, None);
        world.ask(talk, Turn { request: self.request, reply: bytes });
        self.waiting.insert(talk, (begin, bytes));
    }

    /// Handles a notification that concerns a look-up; returns false if it concerns none.
    fn hear(&mut self, world: &mut World, me: AppId, notice: &Notice) -> bool {
        let Some(names) = &mut self.names else { return false };
        match names.hear(world, me, notice) {
            Heard::Other => return false,
            Heard::Nothing => {}
            Heard::Known(name) => {
                if let Some(request) = self.nameless.remove(&name) {
                    self.connect(world, me, request);
                }
            }
            Heard::Unknown(name) => {
                self.nameless.remove(&name);
                world.note_broken(me);
            }
        }
        true
    }
}

impl App for Users {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match notice {
            notice if self.hear(world, me, &notice) => {}
            Notice::Start => {
                if self.paths.is_empty() {
                    world.set_done(me);
                } else {
                    world.wake_at(me, self.start, 0);
                }
            }
            Notice::Wake(0) => {
                world.begin(me);
                self.come(world, me);
            }
            Notice::Wake(_) if world.now() < self.stop => {
                self.ask(world, me);
                self.come(world, me);
            }
            Notice::Turn(talk) => {
                if let Some((begin, bytes)) = self.waiting.remove(&talk) {
                    world.note_deed(me, Deed { begin, end: world.now(), bytes });
                }
                world.finish(talk);
            }
            Notice::Over { talk, whole } => {
                self.waiting.remove(&talk);
                if !whole {
                    world.note_broken(me);
                }
            }
            Notice::Wake(_) => self.over = true,
            Notice::Connected(_) | Notice::Asked(_) | Notice::Datagram(_) => {}
        }
        if self.over && self.waiting.is_empty() && self.nameless.is_empty() {
            world.set_done(me);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, geo};

    fn users(sizes: Sizes, [start, stop]: [u64; 2], seed: u64) -> (World, AppId) {
        let mut world = World::new(1);
        let (_, _, path) = geo(&mut world);
        let every = Duration::from_millis(200);
        let span = [at(start), at(stop)];
        let app = Users::new(vec![path], every, (300, sizes), span, seed);
        let app = world.add_app(Box::new(app));
        world.run_until(at(200));
        (world, app)
    }

    #[test]
    fn users_come_between_start_and_stop_and_each_gets_its_reply() {
        let (world, app) = users(Sizes::Fixed(1000), [10, 50], 7);
        let tally = world.tally(app);
        assert!(tally.done && tally.broken == 0);
        let count = tally.deeds.len() as u64;
        assert!((150..250).contains(&count), "{count}: 200 ± 14");
        assert!(tally.deeds.iter().all(|deed| at(10) <= deed.begin && deed.begin < at(50)));
        assert_eq!(tally.bytes, count * 1300);
    }

    #[test]
    fn sizes_are_cut_at_the_most() {
        // A tail so heavy that most would be larger.
        let sizes = Sizes::Pareto { least: 1000, most: 2000, alpha: 0.1 };
        let (world, app) = users(sizes, [0, 20], 7);
        let deeds = &world.tally(app).deeds;
        assert!(deeds.iter().all(|deed| (1000..=2000).contains(&deed.bytes)));
        assert!(deeds.iter().filter(|deed| deed.bytes == 2000).count() * 2 > deeds.len());
    }

    #[test]
    fn the_seed_decides_who_comes() {
        let begins = |seed| {
            let (world, app) = users(Sizes::Fixed(1000), [0, 20], seed);
            world.tally(app).deeds.iter().map(|deed| deed.begin).collect::<Vec<_>>()
        };
        assert_eq!(begins(1), begins(1));
        assert_ne!(begins(1), begins(2));
    }

    #[test]
    fn without_a_path_nobody_comes() {
        let mut world = World::new(1);
        let every = Duration::from_secs(1);
        let app = Users::new(vec![], every, (1, Sizes::Fixed(1)), [at(0), at(9)], 1);
        world.add_app(Box::new(app));
        assert!(world.is_done());
    }
}
