//! A single transfer at full speed, like FTP.

use std::sync::Arc;

use scenario::Direction;
use units::{ByteCount, Instant};

use super::{App, AppId, AppNotice, WorkUnit};
use crate::connection::path::ConnectionPath;
use crate::connection::talk::{ENDLESS, FirstCloser};
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;
use crate::world::World;

/// The amount of data of a [`BulkTransfer`] transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAmount {
    /// A transfer of this size.
    Bytes(ByteCount),
    /// As many bytes as possible until this time.
    Until(Instant),
}

/// A transfer over its own connection, which the client opens.
#[derive(Debug)]
pub struct BulkTransfer {
    /// The path of the connection.
    pub path: Arc<ConnectionPath>,
    /// The direction of the data.
    pub direction: Direction,
    /// Size or end of the transfer.
    pub amount: BulkAmount,
    /// When the connection is opened.
    pub start: Instant,
    /// If set, records the sender's state and segments for plots under this name.
    pub watch: Option<String>,
    talk: Option<SlabKey>,
}

const BEGIN: u64 = 0;
const STOP: u64 = 1;

impl App for BulkTransfer {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match notice {
            AppNotice::Start => world.wake_at(me, self.start, BEGIN),
            AppNotice::Wake(BEGIN) => {
                self.talk = Some(self.begin(world, me));
                if let BulkAmount::Until(end) = self.amount {
                    world.wake_at(me, end, STOP);
                }
            }
            AppNotice::Wake(_) => {
                if let Some(talk) = self.talk {
                    self.stop(world, me, talk);
                }
            }
            AppNotice::ExchangeDone(talk) => {
                // A transfer that lasts until a time has been recorded by `stop`.
                if matches!(self.amount, BulkAmount::Bytes(_)) {
                    let bytes = world.app_stats(me).bytes;
                    world.record_work_unit(
                        me,
                        WorkUnit { begin: self.start, end: world.now(), bytes },
                    );
                    world.set_done(me);
                }
                world.finish(talk);
            }
            AppNotice::Ended { whole, .. } => {
                if !whole {
                    world.record_failure(me);
                    world.set_done(me);
                }
            }
            AppNotice::Connected(_) | AppNotice::RequestArrived(_) | AppNotice::Datagram(_) => {}
        }
    }
}

impl BulkTransfer {
    /// Creates a transfer that is not recorded.
    pub fn new(
        path: Arc<ConnectionPath>,
        direction: Direction,
        amount: BulkAmount,
        start: Instant,
    ) -> Self {
        Self { path, direction, amount, start, watch: None, talk: None }
    }

    fn begin(&self, world: &mut World, me: AppId) -> SlabKey {
        world.begin(me);
        let talk = world.open(me, &self.path, FirstCloser::Client, self.watch.as_deref());
        let bytes = match self.amount {
            BulkAmount::Bytes(bytes) => bytes.get(),
            // Cut off by the wake-up at the end.
            BulkAmount::Until(_) => ENDLESS,
        };
        let turn = match self.direction {
            Direction::Up => ExchangeSizes { request: bytes, reply: 0 },
            Direction::Down => ExchangeSizes { request: 0, reply: bytes },
        };
        world.send_request(talk, turn);
        talk
    }

    fn stop(&self, world: &mut World, me: AppId, talk: SlabKey) {
        let bytes = world.app_stats(me).bytes;
        world.record_work_unit(me, WorkUnit { begin: self.start, end: world.now(), bytes });
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
            run_app(|path| Box::new(BulkTransfer::new(path, Direction::Up, bytes(1000), at(1))));
        let tally = world.app_stats(app);
        assert_eq!((tally.bytes, tally.began), (1000, at(1)));
        // SYN, SYN-ACK, data: three ways of 250 ms, and their serialisation.
        let deed = tally.work_units[0];
        assert_eq!((deed.begin, deed.bytes, deed.time().as_millis()), (at(1), 1000, 750));
        assert_eq!(tally.last, Some(deed.end));
    }

    /// The time may end before the handshake does.
    #[test]
    fn a_transfer_whose_time_is_shorter_than_the_handshake_moves_nothing() {
        let mut world = World::new(1);
        let (_, _, path) = geo(&mut world);
        let until = BulkAmount::Until(at_ms(1100));
        let app = world.add_app(Box::new(BulkTransfer::new(path, Direction::Down, until, at(1))));
        assert!(world.run_until_done(at(2)));
        world.run_until(at(70));
        let tally = world.app_stats(app);
        assert_eq!((tally.work_units.len(), tally.work_units[0].bytes, tally.failures), (1, 0, 0));
        assert_eq!((tally.bytes, world.sockets()), (0, 0));
    }

    #[test]
    fn a_transfer_that_was_cut_off_is_broken_and_not_done() {
        let mut world = World::new(1);
        let ([_, _, hub, _], path) = crate::testkit::gateways(&mut world, 0.0);
        let bulk = BulkTransfer::new(path, Direction::Down, bytes(50_000_000), at(3));
        let app = world.add_app(Box::new(bulk));
        world.run_until(at(6));
        world.restart_gateway(hub);
        world.run_until(at(60));
        let tally = world.app_stats(app);
        assert!((1..50_000_000).contains(&tally.bytes), "{}", tally.bytes);
        assert_eq!((tally.failures, tally.work_units.len(), tally.done), (1, 0, true));
    }
}
