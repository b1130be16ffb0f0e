//! Many web users, modelled by their requests.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use link::Dice;
use scenario::Sizes;
use units::Instant;

use super::{App, AppId, Deed, Notice};
use crate::chance::{exponential, pareto};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::{Closer, Turn};
use crate::world::World;

/// Requests at random times (Poisson), each over its own connection.
#[derive(Debug)]
pub struct Users {
    /// The paths, of which each request takes a random one.
    pub paths: Vec<Arc<Path>>,
    /// Mean time between requests, over all users.
    pub every: Duration,
    /// Size of a request in bytes.
    pub request: u64,
    /// Size of a reply in bytes.
    pub sizes: Sizes,
    /// When the first request may come.
    pub start: Instant,
    /// The time from which no more requests come.
    pub stop: Instant,
    dice: Dice,
    waiting: BTreeMap<Key, (Instant, u64)>,
    /// Whether the last user has come.
    over: bool,
}

impl Users {
    /// Users with random numbers seeded from `seed`.
    pub fn new(
        paths: Vec<Arc<Path>>,
        every: Duration,
        (request, sizes): (u64, Sizes),
        [start, stop]: [Instant; 2],
        seed: u64,
    ) -> Self {
        let (dice, waiting) = (Dice::new(seed), BTreeMap::new());
        Self { paths, every, request, sizes, start, stop, dice, waiting, over: false }
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
        let talk = world.open(me, &self.paths[path], Closer::Server, None);
        world.ask(talk, Turn { request: self.request, reply: bytes });
        self.waiting.insert(talk, (world.now(), bytes));
    }
}

impl App for Users {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match notice {
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
            Notice::Datagram(_) => {}
        }
        if self.over && self.waiting.is_empty() {
            world.set_done(me);
        }
    }
}
