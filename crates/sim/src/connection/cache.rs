//! A cache of replies at a hub, which takes the place of the server.
//!
//! Hits are drawn at random for each request, because the content of requests is not modelled. A hit
//! is served from the cache. On a miss the cache fetches the reply from the server over a new
//! connection, and passes it on as it arrives. Replies keep the order of their requests, and a
//! connection fetches one at a time. Each reply may be preceded by a search, which takes the
//! scenario's delay.

use core::time::Duration;
use std::sync::Arc;

use link::Dice;
use scenario::CacheSpec;

use super::path::ConnectionPath;
use super::turn::ExchangeSizes;

/// The cache at the end of one connection.
#[derive(Debug)]
pub(crate) struct ServerReplyCache {
    spec: CacheSpec,
    /// From the cache to the server.
    pub(crate) origin: Arc<ConnectionPath>,
    dice: Dice,
    /// Bytes of the current reply that have not arrived from the server or from the cache's store.
    pub(crate) awaited: u64,
    /// The request that it searches for, and true if it will be a hit.
    search: Option<(ExchangeSizes, bool)>,
}

/// The way in which a cache serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheDecision {
    /// It replies at once from its store.
    Hit,
    /// It fetches the reply from the server.
    Miss,
    /// It first searches its store, for this long.
    Search(Duration),
}

impl ServerReplyCache {
    pub(crate) fn new(spec: CacheSpec, origin: Arc<ConnectionPath>, seed: u64) -> Self {
        Self { spec, origin, dice: Dice::new(seed), awaited: 0, search: None }
    }

    /// Decides how to serve the next request. Unless the result is [`CacheDecision::Hit`], the reply is then
    /// awaited.
    pub(crate) fn decide(&mut self, turn: ExchangeSizes) -> CacheDecision {
        // Drawn even if not used, so that `largest` does not change the random numbers of later requests.
        let hit = self.dice.chance() < self.spec.hit_ratio.get();
        let keeps = self.spec.largest.is_none_or(|largest| turn.reply <= largest.get());
        // A request without a reply has nothing to fetch.
        let has = hit && keeps || turn.reply == 0;
        if !self.spec.delay.is_zero() && turn.reply > 0 {
            self.awaited = turn.reply;
            self.search = Some((turn, has));
            return CacheDecision::Search(self.spec.delay);
        }
        self.awaited = if has { 0 } else { turn.reply };
        if has { CacheDecision::Hit } else { CacheDecision::Miss }
    }

    /// Ends the search and returns the request, with true for a hit; `None` if the reply is no longer
    /// awaited.
    pub(crate) fn finish_search(&mut self) -> Option<(ExchangeSizes, bool)> {
        self.search.take().filter(|_| self.awaited > 0)
    }
}
