//! A cache of replies at a hub, in the place of the server.
//!
//! What it has is drawn by chance for each request, because what users ask for is not modelled. A reply
//! that it has comes from the cache. Any other it fetches from the server over a new connection, and
//! passes on as it arrives. Replies keep the order of their requests, and a connection fetches one at
//! a time.

use std::sync::Arc;

use link::Dice;
use scenario::CacheSpec;

use crate::path::Path;

/// The cache at the end of one connection.
#[derive(Debug)]
pub(crate) struct Cache {
    spec: CacheSpec,
    /// From the cache to the server.
    pub(crate) origin: Arc<Path>,
    dice: Dice,
    /// Bytes of a reply that have still to come from the server.
    pub(crate) awaits: u64,
}

impl Cache {
    pub(crate) fn new((spec, origin): (CacheSpec, Arc<Path>), seed: u64) -> Self {
        Self { spec, origin, dice: Dice::new(seed), awaits: 0 }
    }

    /// Whether the next reply, of this size, has to come from the server. It is then awaited.
    pub(crate) fn lacks(&mut self, bytes: u64) -> bool {
        // Drawn for each, so that the bound does not change what becomes of the others.
        let hit = self.dice.chance() < self.spec.hit_ratio.get();
        let keeps = self.spec.largest.is_none_or(|largest| bytes <= largest.get());
        self.awaits = if hit && keeps { 0 } else { bytes };
        self.awaits > 0
    }
}
