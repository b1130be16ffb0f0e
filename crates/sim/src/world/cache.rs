//! Caches at hubs, which fetch missing replies from servers.

use std::sync::Arc;

use super::World;
use crate::connection::cache::ServerReplyCache;
use crate::connection::socket::{ConnectionHosts, SocketOwner};
use crate::connection::talk::{AppConversation, ConversationEvent, ConversationSide};
use crate::connection::turn::ExchangeSizes;
use crate::slab::SlabKey;

impl World {
    /// Fetches a reply for the cache at the end of a conversation.
    pub(super) fn fetch(&mut self, client: SlabKey, turn: ExchangeSizes) {
        let Some(talk) = self.talks.get(client) else { return };
        let Some(origin) = talk.cache.as_ref().map(|cache| Arc::clone(&cache.origin)) else {
            return;
        };
        let app = talk.app;
        let fetching = self.talks.insert(|_| AppConversation::for_fetch(app, client));
        let owner = SocketOwner::Talk(fetching, ConversationSide::Client);
        let near = self.open_leg(&origin, 0, ConnectionHosts::Talk(fetching), owner);
        if let Some(talk) = self.talks.get_mut(fetching) {
            talk.sockets[0] = near;
        }
        self.send_request(fetching, turn);
    }

    /// Ends a cache's search: on a hit it passes the reply on, on a miss it asks the server.
    pub(super) fn finish_search(&mut self, client: SlabKey) {
        let cache = self.talks.get_mut(client).and_then(|talk| talk.cache.as_mut());
        match cache.and_then(ServerReplyCache::finish_search) {
            Some((turn, true)) => self.feed(client, turn.reply),
            Some((turn, false)) => self.fetch(client, turn),
            None => {}
        }
    }

    /// Passes on bytes that have come from a server.
    pub(super) fn feed(&mut self, client: SlabKey, bytes: u64) {
        let Some(talk) = self.talks.get_mut(client) else { return };
        talk.feed(bytes);
        if let Some(socket) = talk.sockets[1] {
            self.service(socket);
        }
    }

    /// Handles an event of the conversation between a cache and a server.
    pub(super) fn handle_origin_event(
        &mut self,
        fetching: SlabKey,
        client: SlabKey,
        news: ConversationEvent,
    ) {
        match news {
            ConversationEvent::ExchangeDone => self.finish(fetching),
            ConversationEvent::Ended { whole } => {
                self.talks.remove(fetching);
                if !whole {
                    self.abort_client(client);
                }
            }
            ConversationEvent::Connected
            | ConversationEvent::RequestArrived
            | ConversationEvent::Fetch(_)
            | ConversationEvent::Search(_) => {}
        }
    }

    /// Resets the connection of a client whose reply is incomplete.
    fn abort_client(&mut self, client: SlabKey) {
        let now = self.now;
        let cut = self
            .talks
            .get(client)
            // A complete reply does not suffer from how its connection ends.
            .filter(|talk| talk.cache.as_ref().is_some_and(|cache| cache.awaited > 0));
        if let Some(key) = cut.and_then(|talk| talk.sockets[1])
            && let Some(socket) = self.sockets.get_mut(key)
        {
            socket.tcp.abort(now);
            self.service(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use scenario::CacheSpec;
    use units::{ByteCount, Probability};

    use super::*;
    use crate::testkit::{at, link, row, tcp};
    use crate::{ConnectionPath, FetchMethod, PageLoads};

    fn cache(hit_ratio: f64, largest: Option<u64>) -> CacheSpec {
        let hit_ratio = Probability::new(hit_ratio).unwrap();
        CacheSpec { hit_ratio, largest: largest.map(ByteCount::new), delay: Duration::ZERO }
    }

    /// A client, a hub with a cache, and a server 100 ms behind it; the times in milliseconds of pages
    /// of 11 objects of 10 kB, and the bytes that the application has read at either end.
    fn pages(spec: Option<CacheSpec>, method: FetchMethod) -> (Vec<u128>, u64) {
        let mut world = World::new(1);
        let (nodes, _) = row(&mut world, &[link(10, 250, 0.0), link(100, 50, 0.0)]);
        let [client, hub, server] = nodes[..] else { unreachable!() };
        let path = match spec {
            None => ConnectionPath::direct(client, server, tcp()),
            Some(spec) => ConnectionPath::direct(client, hub, tcp())
                .to_cache(spec, ConnectionPath::direct(hub, server, tcp())),
        };
        let objects = [10_000; 11].into();
        let think = Duration::from_secs(1);
        let page = PageLoads::new(Arc::new(path), method, 300, objects, at(1), 20, think);
        let app = world.add_app(Box::new(page));
        assert!(world.run_until_done(at(1000)));
        world.run_until(world.now() + Duration::from_secs(200));
        let tally = world.app_stats(app);
        assert_eq!((tally.failures, world.sockets(), world.talks.iter().count()), (0, 0, 0));
        (tally.work_units.iter().map(|deed| deed.time().as_millis()).collect(), tally.bytes)
    }

    const METHODS: [FetchMethod; 3] =
        [FetchMethod::Http10(4), FetchMethod::KeepAlive(2), FetchMethod::Pipelining(1)];

    #[test]
    fn every_byte_arrives_whatever_the_cache_has() {
        for method in METHODS {
            for spec in [None, Some(cache(0.0, None)), Some(cache(0.5, None))] {
                let (times, bytes) = pages(spec, method);
                assert_eq!((times.len(), bytes), (20, 20 * 11 * 10_300), "{method:?}");
            }
        }
    }

    /// With everything in the cache the way to the server does not count; with nothing in it, each
    /// object costs a connection there: two round trips of 100 ms.
    #[test]
    fn a_page_takes_as_long_as_what_the_cache_lacks() {
        let method = FetchMethod::KeepAlive(1);
        let [all, half, none] =
            [1.0, 0.5, 0.0].map(|ratio| pages(Some(cache(ratio, None)), method).0);
        let mean = |times: &[u128]| times.iter().sum::<u128>() as f64 / times.len() as f64;
        let each = (mean(&none) - mean(&all)) / 11.0;
        assert!((200.0..215.0).contains(&each), "{each}");
        let share = (mean(&half) - mean(&all)) / (mean(&none) - mean(&all));
        assert!((0.4..0.6).contains(&share), "{share}");
        // It looks for each object, one after the other on a connection.
        let slow = |ratio| CacheSpec { delay: Duration::from_millis(300), ..cache(ratio, None) };
        for (ratio, quick) in [(1.0, &all), (0.0, &none)] {
            let (times, bytes) = pages(Some(slow(ratio)), method);
            let more: Vec<_> = times.iter().zip(quick).map(|(slow, quick)| slow - quick).collect();
            assert!(more.iter().all(|more| (3290..=3310).contains(more)), "{more:?}");
            assert_eq!(bytes, 20 * 11 * 10_300);
        }
        // All objects are too large to be kept.
        assert_eq!(pages(Some(cache(1.0, Some(9999))), method).0, none);
        assert_eq!(pages(Some(cache(1.0, Some(10_000))), method).0, all);
    }
}
