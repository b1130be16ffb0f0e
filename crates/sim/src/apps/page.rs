//! Web pages: objects fetched over HTTP, of which only the lengths are simulated.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use scenario::FetchMethod;
use units::Instant;

use super::lookups::{LookupOutcome, NameLookups};
use super::{App, AppId, AppNotice, ResolutionSetup, WorkUnit};
use crate::connection::path::ConnectionPath;
use crate::connection::talk::FirstCloser;
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;
use crate::world::World;

/// Loads a document and, once it has arrived, the objects it refers to; repeatedly.
#[derive(Debug)]
pub struct PageLoads {
    path: Arc<ConnectionPath>,
    method: FetchMethod,
    request: u64,
    objects: Arc<[u64]>,
    think: Duration,
    /// Number of pages left to fetch, including the current one.
    pages: u64,
    start: Instant,
    begun: Instant,
    /// Indices of the objects not yet requested.
    wanted: VecDeque<usize>,
    /// Number of objects that have not arrived.
    missing: usize,
    /// Open connections, with the outstanding requests on each.
    open: Vec<(SlabKey, u32)>,
    /// The host names of the objects, if they have to be resolved.
    names: Option<PageNames>,
}

#[derive(Debug)]
struct PageNames {
    lookups: NameLookups,
    /// For each name, true once it is resolved.
    known: Vec<bool>,
}

const NEXT: u64 = 0;

impl PageLoads {
    /// Loads `pages` pages from `start` on, with a pause of `think` between them. The first of
    /// `objects` (sizes in bytes, with headers) is the document; requests are `request` bytes long.
    pub fn new(
        path: Arc<ConnectionPath>,
        method: FetchMethod,
        request: u64,
        objects: Arc<[u64]>,
        start: Instant,
        pages: u64,
        think: Duration,
    ) -> Self {
        Self {
            path,
            method,
            request,
            objects,
            think,
            pages,
            start,
            begun: start,
            wanted: VecDeque::new(),
            missing: 0,
            open: Vec::new(),
            names: None,
        }
    }

    /// Distributes the objects over `count` host names in turn, the document on the first. For each page
    /// they are resolved before their objects are requested: the first name when the page begins, the
    /// others when the document has arrived.
    #[must_use]
    pub fn on_names(self, count: u32, resolution: Option<ResolutionSetup>) -> Self {
        let names = resolution.map(|resolution| PageNames {
            lookups: NameLookups::new(resolution),
            known: vec![false; count as usize],
        });
        Self { names, ..self }
    }
}

impl App for PageLoads {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match self.names.as_mut().map_or(LookupOutcome::Unrelated, |names| {
            names.lookups.handle_notice(world, me, &notice)
        }) {
            LookupOutcome::Unrelated => {}
            LookupOutcome::Handled => return,
            LookupOutcome::Resolved(name) => return self.resolved(world, me, name),
            LookupOutcome::Unresolved(_) => {
                // The page can never be complete without the objects of that name.
                world.record_failure(me);
                return world.set_done(me);
            }
        }
        match notice {
            AppNotice::Start if self.pages == 0 || self.objects.is_empty() => world.set_done(me),
            AppNotice::Start => world.wake_at(me, self.start, NEXT),
            AppNotice::Wake(_) => {
                if world.app_stats(me).work_units.is_empty() {
                    world.begin(me);
                }
                self.begun = world.now();
                self.missing = self.objects.len();
                self.wanted.push_back(0);
                self.names.iter_mut().for_each(|names| names.known.fill(false));
                self.resolve(world, me, 0..1);
                self.fetch(world, me);
            }
            AppNotice::ExchangeDone(talk) => self.arrived(world, me, talk),
            AppNotice::Ended { talk, whole } => self.over(world, me, talk, whole),
            AppNotice::Connected(_) | AppNotice::RequestArrived(_) | AppNotice::Datagram(_) => {}
        }
    }
}

impl PageLoads {
    /// Requests wanted objects as far as their names and the method allow.
    fn fetch(&mut self, world: &mut World, me: AppId) {
        while let Some(place) = self.wanted.iter().position(|object| self.is_resolved(*object)) {
            let Some(talk) = self.connection(world, me) else { return };
            let Some(object) = self.wanted.remove(place) else { return };
            world.send_request(
                talk,
                ExchangeSizes { request: self.request, reply: self.objects[object] },
            );
        }
    }

    fn is_resolved(&self, object: usize) -> bool {
        self.names.as_ref().is_none_or(|names| names.known[object % names.known.len()])
    }

    /// Starts the look-ups of a range of names.
    fn resolve(&mut self, world: &mut World, me: AppId, which: Range<usize>) {
        let Some(names) = &mut self.names else { return };
        let count = names.known.len().min(self.objects.len());
        for name in which.start..which.end.min(count) {
            names.lookups.ask(world, me, name as u64, 0);
        }
    }

    fn resolved(&mut self, world: &mut World, me: AppId, name: u64) {
        if let Some(names) = &mut self.names {
            names.known[name as usize] = true;
        }
        self.fetch(world, me);
    }

    /// Returns a connection for another request and counts the request; `None` if all are busy.
    fn connection(&mut self, world: &mut World, me: AppId) -> Option<SlabKey> {
        let most = match self.method {
            FetchMethod::Http10(_) => 0,
            FetchMethod::KeepAlive(_) => 1,
            FetchMethod::Pipelining(_) => u32::MAX,
        };
        let is_full = self.open.len() >= self.method.connections() as usize;
        let free = self.open.iter_mut().filter(|(_, under_way)| *under_way < most);
        // Pipelined requests are spread over the connections.
        let best = free.min_by_key(|(_, under_way)| *under_way);
        // A busy connection is shared only when no further one may be opened.
        if let Some((talk, under_way)) = best
            && (*under_way == 0 || is_full)
        {
            *under_way += 1;
            return Some(*talk);
        }
        if is_full {
            return None;
        }
        let closer = match self.method {
            FetchMethod::Http10(_) => FirstCloser::Server,
            _ => FirstCloser::Client,
        };
        let talk = world.open(me, &self.path, closer, None);
        self.open.push((talk, 1));
        Some(talk)
    }

    fn arrived(&mut self, world: &mut World, me: AppId, talk: SlabKey) {
        if let Some((_, under_way)) = self.open.iter_mut().find(|(open, _)| *open == talk) {
            *under_way -= 1;
        }
        if matches!(self.method, FetchMethod::Http10(_)) {
            // The server closes after its only reply, so the connection no longer counts as open.
            self.open.retain(|(open, _)| *open != talk);
            world.finish(talk);
        }
        // The first object to arrive is the document, which refers to all others.
        if self.missing == self.objects.len() {
            self.wanted.extend(1..self.objects.len());
            self.resolve(world, me, 1..usize::MAX);
        }
        self.missing -= 1;
        if self.missing == 0 {
            self.complete(world, me);
        } else {
            self.fetch(world, me);
        }
    }

    fn complete(&mut self, world: &mut World, me: AppId) {
        let bytes = self.objects.iter().sum();
        world.record_work_unit(me, WorkUnit { begin: self.begun, end: world.now(), bytes });
        self.pages -= 1;
        // The next page uses new connections, as after a visit to other sites.
        for (talk, _) in self.open.drain(..) {
            world.finish(talk);
        }
        if self.pages == 0 {
            world.set_done(me);
        } else {
            world.wake_at(me, world.now() + self.think, NEXT);
        }
    }

    fn over(&mut self, world: &mut World, me: AppId, talk: SlabKey, whole: bool) {
        if !whole {
            world.record_failure(me);
        }
        if self.open.iter().any(|(open, under_way)| *open == talk && *under_way > 0) {
            // The client does not retry, so the page will never be complete.
            world.set_done(me);
        }
        self.open.retain(|(open, _)| *open != talk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{at, gateways, run_app};

    fn page(
        path: Arc<ConnectionPath>,
        method: FetchMethod,
        sizes: &[u64],
        pages: u64,
    ) -> Box<PageLoads> {
        let think = Duration::from_secs(5);
        Box::new(PageLoads::new(path, method, 300, sizes.into(), at(1), pages, think))
    }

    #[test]
    fn pages_follow_each_other_after_the_time_to_read_one() {
        let sizes = [1000, 200, 300];
        let (world, app) = run_app(|path| page(path, FetchMethod::KeepAlive(2), &sizes, 3));
        let deeds = &world.app_stats(app).work_units;
        assert_eq!(deeds.len(), 3);
        assert!(deeds.iter().all(|deed| deed.bytes == 1500));
        for pair in deeds.windows(2) {
            assert_eq!(pair[1].begin, pair[0].end + Duration::from_secs(5));
            // Each page opens its own connections.
            assert_eq!(pair[0].time().as_millis() / 100, pair[1].time().as_millis() / 100);
        }
        assert_eq!(world.app_stats(app).bytes, 3 * (1500 + 3 * 300));
    }

    #[test]
    fn no_more_connections_are_open_than_the_method_allows() {
        for (method, most) in [
            (FetchMethod::Http10(3), 3),
            (FetchMethod::KeepAlive(2), 2),
            (FetchMethod::Pipelining(1), 1),
        ] {
            let (world, app) = run_app(|path| {
                let page = *page(path, method, &[500; 20], 1);
                Box::new(Watched { page, most: 0, expected: most })
            });
            assert_eq!(world.app_stats(app).work_units.len(), 1, "{method:?}");
        }
    }

    /// A page that counts its connections.
    #[derive(Debug)]
    struct Watched {
        page: PageLoads,
        most: usize,
        expected: usize,
    }

    impl App for Watched {
        fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
            self.page.handle(world, me, notice);
            self.most = self.most.max(self.page.open.len());
            assert!(self.most <= self.expected, "{} connections", self.most);
            if world.app_stats(me).done {
                assert_eq!(self.most, self.expected);
            }
        }
    }

    #[test]
    fn a_page_without_objects_is_done_at_once() {
        for (sizes, pages) in [(&[][..], 3), (&[100][..], 0)] {
            let (world, app) = run_app(|path| page(path, FetchMethod::Http10(1), sizes, pages));
            assert_eq!((world.now(), world.app_stats(app).work_units.len()), (at(0), 0));
        }
    }

    #[test]
    fn a_page_that_lost_a_connection_is_given_up() {
        let mut world = World::new(1);
        let ([_, _, hub, _], path) = gateways(&mut world, 0.0);
        let app = world.add_app(page(path, FetchMethod::Http10(2), &[20_000_000; 3], 2));
        world.run_until(at(6));
        world.restart_gateway(hub);
        world.run_until(at(60));
        let tally = world.app_stats(app);
        assert_eq!((tally.work_units.len(), tally.done), (0, true));
        assert!(tally.failures > 0);
    }
}
