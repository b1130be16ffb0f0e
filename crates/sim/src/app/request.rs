//! Sequential requests and replies: a dialogue or a database.

use core::time::Duration;
use std::sync::Arc;

use units::Instant;

use super::{App, AppId, Deed, Notice};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::{Closer, Turn};
use crate::world::World;

/// Requests over one connection. Each waits for the reply to the previous one, and for the think
/// time.
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
    /// When the connection is opened; the time of the first request counts from there.
    pub start: Instant,
    talk: Option<Key>,
}

const BEGIN: u64 = 0;
const NEXT: u64 = 1;

impl App for RequestReply {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match notice {
            Notice::Start if self.count == 0 => world.set_done(me),
            Notice::Start => world.wake_at(me, self.start, BEGIN),
            Notice::Wake(BEGIN) => {
                world.begin(me);
                let talk = world.open(me, &self.path, Closer::Client, None);
                self.talk = Some(talk);
                self.ask(world, talk);
            }
            Notice::Wake(_) => {
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
            Notice::Datagram(_) => {}
        }
    }
}

impl RequestReply {
    /// `count` requests from `start` on.
    pub fn new(path: Arc<Path>, turn: Turn, think: Duration, count: u64, start: Instant) -> Self {
        Self { path, turn, think, count, start, talk: None }
    }

    fn ask(&mut self, world: &mut World, talk: Key) {
        self.start = world.now();
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
