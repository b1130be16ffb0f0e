//! A single transfer at full speed, like FTP.

use std::sync::Arc;

use scenario::Direction;
use units::{ByteCount, Instant};

use super::{App, AppId, Deed, Notice};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::{Closer, ENDLESS, Turn};
use crate::world::World;

/// The amount of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// This many bytes.
    Bytes(ByteCount),
    /// As much as possible until then.
    Until(Instant),
}

/// A transfer over its own connection, which the client opens.
#[derive(Debug)]
pub struct Bulk {
    /// The path of the connection.
    pub path: Arc<Path>,
    /// The sending side.
    pub direction: Direction,
    /// The amount of data.
    pub amount: Amount,
    /// When the connection is opened.
    pub start: Instant,
    /// If set, records the sender's state and segments for plots under this name.
    pub watch: Option<String>,
    talk: Option<Key>,
}

const BEGIN: u64 = 0;
const STOP: u64 = 1;

impl App for Bulk {
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice) {
        match notice {
            Notice::Start => world.wake_at(me, self.start, BEGIN),
            Notice::Wake(BEGIN) => {
                self.talk = Some(self.begin(world, me));
                if let Amount::Until(end) = self.amount {
                    world.wake_at(me, end, STOP);
                }
            }
            Notice::Wake(_) => {
                if let Some(talk) = self.talk {
                    self.stop(world, me, talk);
                }
            }
            Notice::Turn(talk) => {
                if matches!(self.amount, Amount::Bytes(_)) {
                    let bytes = world.tally(me).bytes;
                    world.note_deed(me, Deed { begin: self.start, end: world.now(), bytes });
                    world.set_done(me);
                }
                world.finish(talk);
            }
            Notice::Over { whole, .. } => {
                if !whole {
                    world.note_broken(me);
                    world.set_done(me);
                }
            }
            Notice::Datagram(_) => {}
        }
    }
}

impl Bulk {
    /// A transfer that is not recorded.
    pub fn new(path: Arc<Path>, direction: Direction, amount: Amount, start: Instant) -> Self {
        Self { path, direction, amount, start, watch: None, talk: None }
    }

    fn begin(&self, world: &mut World, me: AppId) -> Key {
        world.begin(me);
        let talk = world.open(me, &self.path, Closer::Client, self.watch.as_deref());
        let bytes = match self.amount {
            Amount::Bytes(bytes) => bytes.get(),
            Amount::Until(_) => ENDLESS,
        };
        let turn = match self.direction {
            Direction::Up => Turn { request: bytes, reply: 0 },
            Direction::Down => Turn { request: 0, reply: bytes },
        };
        world.ask(talk, turn);
        talk
    }

    fn stop(&self, world: &mut World, me: AppId, talk: Key) {
        let bytes = world.tally(me).bytes;
        world.note_deed(me, Deed { begin: self.start, end: world.now(), bytes });
        world.set_done(me);
        world.stop(talk);
    }
}
