//! Sequential requests and replies: a dialogue or a database.

use core::time::Duration;
use std::sync::Arc;

use units::Instant;

use super::lookups::{LookupOutcome, NameLookups};
use super::{App, AppId, AppNotice, ResolutionSetup, WorkUnit};
use crate::connection::path::ConnectionPath;
use crate::connection::talk::FirstCloser;
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;
use crate::world::World;

/// Sends requests over one connection. Each waits for the reply to the previous one and for the
/// think time.
#[derive(Debug)]
pub struct RequestReply {
    /// The path of the connection.
    pub path: Arc<ConnectionPath>,
    /// Sizes of request and reply.
    pub turn: ExchangeSizes,
    /// Time from a reply to the next request.
    pub think: Duration,
    /// Number of requests that have not been answered.
    pub count: u64,
    /// When the current request began; for the first one, when the connection is opened.
    pub start: Instant,
    talk: Option<SlabKey>,
    /// Resolves the server's name, if that is simulated.
    name: Option<NameLookups>,
}

const BEGIN: u64 = 0;
const NEXT: u64 = 1;

impl App for RequestReply {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match self
            .name
            .as_mut()
            .map_or(LookupOutcome::Unrelated, |name| name.handle_notice(world, me, &notice))
        {
            LookupOutcome::Unrelated => {}
            LookupOutcome::Handled => return,
            LookupOutcome::Resolved(_) => return self.connect(world, me),
            LookupOutcome::Unresolved(_) => {
                world.record_failure(me);
                return world.set_done(me);
            }
        }
        match notice {
            AppNotice::Start if self.count == 0 => world.set_done(me),
            AppNotice::Start => world.wake_at(me, self.start, BEGIN),
            AppNotice::Wake(BEGIN) => {
                world.begin(me);
                match &mut self.name {
                    Some(name) => name.ask(world, me, 0, 0),
                    None => self.connect(world, me),
                }
            }
            AppNotice::Wake(_) => {
                // The time of a request excludes the pause before it.
                self.start = world.now();
                if let Some(talk) = self.talk {
                    self.ask(world, talk);
                }
            }
            AppNotice::ExchangeDone(talk) => self.answered(world, me, talk),
            AppNotice::Ended { whole, .. } => {
                if !whole {
                    world.record_failure(me);
                }
                world.set_done(me);
            }
            AppNotice::Connected(_) | AppNotice::RequestArrived(_) | AppNotice::Datagram(_) => {}
        }
    }
}

impl RequestReply {
    /// Sends `count` requests from `start` on.
    pub fn new(
        path: Arc<ConnectionPath>,
        turn: ExchangeSizes,
        think: Duration,
        count: u64,
        start: Instant,
    ) -> Self {
        Self { path, turn, think, count, start, talk: None, name: None }
    }

    /// Lets the server's name be resolved first, if a resolution is given.
    #[must_use]
    pub fn by_name(self, resolution: Option<ResolutionSetup>) -> Self {
        Self { name: resolution.map(NameLookups::new), ..self }
    }

    fn connect(&mut self, world: &mut World, me: AppId) {
        let talk = world.open(me, &self.path, FirstCloser::Client, None);
        self.talk = Some(talk);
        self.ask(world, talk);
    }

    fn ask(&self, world: &mut World, talk: SlabKey) {
        world.send_request(talk, self.turn);
    }

    fn answered(&mut self, world: &mut World, me: AppId, talk: SlabKey) {
        let bytes = self.turn.request + self.turn.reply;
        world.record_work_unit(me, WorkUnit { begin: self.start, end: world.now(), bytes });
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
        let turn = ExchangeSizes { request: 1, reply: 1 };
        let (world, app) =
            run_app(|path| Box::new(RequestReply::new(path, turn, Duration::ZERO, 0, at(1))));
        assert_eq!((world.now(), world.app_stats(app).work_units.len()), (at(0), 0));
    }

    #[test]
    fn a_request_without_a_reply_takes_one_way() {
        let turn = ExchangeSizes { request: 1000, reply: 0 };
        let (world, app) =
            run_app(|path| Box::new(RequestReply::new(path, turn, Duration::ZERO, 2, at(1))));
        let deeds = &world.app_stats(app).work_units;
        let times: Vec<_> = deeds.iter().map(|deed| deed.time().as_millis()).collect();
        assert_eq!((times, deeds[1].bytes), (vec![750, 250], 1000));
    }

    #[test]
    fn a_dialogue_that_is_cut_off_while_it_thinks_is_broken_once() {
        let mut world = World::new(1);
        let ([_, terminal, _, _], path) = gateways(&mut world, 0.0);
        let turn = ExchangeSizes { request: 100, reply: 100 };
        let think = Duration::from_secs(10);
        let app = world.add_app(Box::new(RequestReply::new(path, turn, think, 5, at(3))));
        world.run_until(at(6));
        world.restart_gateway(terminal);
        world.run_until(at(60));
        let tally = world.app_stats(app);
        assert_eq!((tally.work_units.len(), tally.failures, tally.done), (1, 1, true));
    }
}
