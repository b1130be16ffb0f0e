//! A single transfer at full speed, like FTP.

use std::sync::Arc;

use scenario::Direction;
use units::{ByteCount, Instant};

use super::{App, AppId, Deed, Notice};
use crate::path::Path;
use crate::slab::Key;
use crate::talk::{Closer, ENDLESS};
use crate::turn::Turn;
use crate::world::World;

/// The amount of data of a [`Bulk`] transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// A transfer of this size.
    Bytes(ByteCount),
    /// As many bytes as possible until this time.
    Until(Instant),
}

/// A transfer over its own connection, which the client opens.
#[derive(Debug)]
pub struct Bulk {
    /// The path of the connection.
    pub path: Arc<Path>,
    /// The direction of the data.
    pub direction: Direction,
    /// Size or end of the transfer.
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
            Notice::Connected(_) | Notice::Asked(_) | Notice::Datagram(_) => {}
        }
    }
}

impl Bulk {
    /// Creates a transfer that is not recorded.
    pub fn new(path: Arc<Path>, direction: Direction, amount: Amount, start: Instant) -> Self {
        Self { path, direction, amount, start, watch: None, talk: None }
    }

    fn begin(&self, world: &mut World, me: AppId) -> Key {
        world.begin(me);
        let talk = world.open(me, &self.path, Closer::Client, self.watch.as_deref());
        let bytes = match self.amount {
            Amount::Bytes(bytes) => bytes.get(),
            // Cut off by the wake-up at the end.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, at_ms, bytes, geo, run_app};

    #[test]
    fn an_upload_is_done_when_the_last_byte_has_arrived() {
        let (world, app) =
            run_app(|path| Box::new(Bulk::new(path, Direction::Up, bytes(1000), at(1))));
        let tally = world.tally(app);
        assert_eq!((tally.bytes, tally.began), (1000, at(1)));
        // SYN, SYN-ACK, data: three ways of 250 ms, and their serialisation.
        let deed = tally.deeds[0];
        assert_eq!((deed.begin, deed.bytes, deed.time().as_millis()), (at(1), 1000, 750));
        assert_eq!(tally.last, Some(deed.end));
    }

    /// The time may end before the handshake does.
    #[test]
    fn a_transfer_whose_time_is_shorter_than_the_handshake_moves_nothing() {
        let mut world = World::new(1);
        let (_, _, path) = geo(&mut world);
        let until = Amount::Until(at_ms(1100));
        let app = world.add_app(Box::new(Bulk::new(path, Direction::Down, until, at(1))));
        assert!(world.run_until_done(at(2)));
        world.run_until(at(70));
        let tally = world.tally(app);
        assert_eq!((tally.deeds.len(), tally.deeds[0].bytes, tally.broken), (1, 0, 0));
        assert_eq!((tally.bytes, world.sockets()), (0, 0));
    }

    #[test]
    fn a_transfer_that_was_cut_off_is_broken_and_not_done() {
        let mut world = World::new(1);
        let ([_, _, hub, _], path) = crate::testkit::gateways(&mut world, 0.0);
        let bulk = Bulk::new(path, Direction::Down, bytes(50_000_000), at(3));
        let app = world.add_app(Box::new(bulk));
        world.run_until(at(6));
        world.restart_gateway(hub);
        world.run_until(at(60));
        let tally = world.tally(app);
        assert!((1..50_000_000).contains(&tally.bytes), "{}", tally.bytes);
        assert_eq!((tally.broken, tally.deeds.len(), tally.done), (1, 0, true));
    }
}
