//! Sequential requests and replies: a dialogue or a database.

use core::time::Duration;
use std::sync::Arc;

use units::Instant;

use super::lookups::{Heard, Lookups};
use super::{App, AppId, Deed, Notice, Resolution};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::Closer;
use crate::turn::Turn;
use crate::world::World;

/// Sends requests over one connection. Each waits for the reply to the previous one and for the
/// think time.
#[derive(Debug)]
pub struct RequestReply {
    /// The path of the connection.
    pub path: Arc<Path>,
    /// Sizes of request and reply.
    pub turn: Turn,
    /// Time from a reply to the next request.
    pub think: Duration,
    /// Number of requests.
    pub count: u64,
    /// When the current request began; for the first one, when the connection is opened.
    pub start: Instant,
    talk: Option<Key>,
    /// Resolves the server's name, if that is simulated.
    name: Option<Lookups>,
}

const BEGIN: u64 = 0;
const NEXT: u64 = 1;

impl App for RequestReply {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match self.name.as_mut().map_or(Heard::Other, |name| name.hear(world, me, &notice)) {
            Heard::Other => {}
            Heard::Nothing => return,
            Heard::Known(_) => return self.connect(world, me),
            Heard::Unknown(_) => {
                world.note_broken(me);
                return world.set_done(me);
            }
        }
        match notice {
            Notice::Start if self.count == 0 => world.set_done(me),
            Notice::Start => world.wake_at(me, self.start, BEGIN),
            Notice::Wake(BEGIN) => {
                world.begin(me);
                match &mut self.name {
                    Some(name) => name.ask(world, me, 0, 0),
                    None => self.connect(world, me),
                }
            }
            Notice::Wake(_) => {
                self.start = world.now();
                if let Some(talk) = self.talk {
                    self.ask(world, talk);
                }
            }
            Notice::Turn(talk) => self.answered(world, me, talk),
            Notice::Over { whole, .. } => {
                if !whole {
                    world.note_broken(me);
                }
                world.set_done(me);
            }
            Notice::Connected(_) | Notice::Asked(_) | Notice::Datagram(_) => {}
        }
    }
}

impl RequestReply {
    /// Sends `count` requests from `start` on.
    pub fn new(path: Arc<Path>, turn: Turn, think: Duration, count: u64, start: Instant) -> Self {
        Self { path, turn, think, count, start, talk: None, name: None }
    }

    /// Lets the server's name be resolved first, if a resolution is given.
    #[must_use]
    pub fn by_name(self, resolution: Option<Resolution>) -> Self {
        Self { name: resolution.map(Lookups::new), ..self }
    }

    fn connect(&mut self, world: &mut World, me: AppId) {
        let talk = world.open(me, &self.path, Closer::Client, None);
        self.talk = Some(talk);
        self.ask(world, talk);
    }

    fn ask(&self, world: &mut World, talk: Key) {
        world.ask(talk, self.turn);
    }

    fn answered(&mut self, world: &mut World, me: AppId, talk: Key) {
        let bytes = self.turn.request + self.turn.reply;
        world.note_deed(me, Deed { begin: self.start, end: world.now(), bytes });
        self.count -= 1;
        if self.count == 0 {
            world.set_done(me);
            world.finish(talk);
        } else {
            world.wake_at(me, world.now() + self.think, NEXT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, gateways, run_app};

    #[test]
    fn no_requests_are_done_at_once() {
        let turn = Turn { request: 1, reply: 1 };
        let (world, app) =
            run_app(|path| Box::new(RequestReply::new(path, turn, Duration::ZERO, 0, at(1))));
        assert_eq!((world.now(), world.tally(app).deeds.len()), (at(0), 0));
    }

    #[test]
    fn a_request_without_a_reply_takes_one_way() {
        let turn = Turn { request: 1000, reply: 0 };
        let (world, app) =
            run_app(|path| Box::new(RequestReply::new(path, turn, Duration::ZERO, 2, at(1))));
        let deeds = &world.tally(app).deeds;
        let times: Vec<_> = deeds.iter().map(|deed| deed.time().as_millis()).collect();
        assert_eq!((times, deeds[1].bytes), (vec![750, 250], 1000));
    }

    #[test]
    fn a_dialogue_that_is_cut_off_while_it_thinks_is_broken_once() {
        let mut world = World::new(1);
        let ([_, terminal, _, _], path) = gateways(&mut world, 0.0);
        let turn = Turn { request: 100, reply: 100 };
        let think = Duration::from_secs(10);
        let app = world.add_app(Box::new(RequestReply::new(path, turn, think, 5, at(3))));
        world.run_until(at(6));
        world.restart_gateway(terminal);
        world.run_until(at(60));
        let tally = world.tally(app);
        assert_eq!((tally.deeds.len(), tally.broken, tally.done), (1, 1, true));
    }
}
