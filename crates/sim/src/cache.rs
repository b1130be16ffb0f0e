//! A cache of replies at a hub, in the place of the server.
//!
//! What it has is drawn by chance for each request, because what users ask for is not modelled. A reply
//! that it has comes from the cache. Any other it fetches from the server over a new connection, and
//! passes on as it arrives. Replies keep the order of their requests, and a connection fetches one at
//! a time. Before any reply it may have to look for it, which takes the scenario's delay.

use core::time::Duration;
use std::sync::Arc;

use link::Dice;
use scenario::CacheSpec;

use crate::path::Path;
use crate::turn::Turn;

/// The cache at the end of one connection.
#[derive(Debug)]
pub(crate) struct Cache {
    spec: CacheSpec,
    /// From the cache to the server.
    pub(crate) origin: Arc<Path>,
    dice: Dice,
    /// Bytes of a reply that have still to come, from the server or from where the cache keeps it.
    pub(crate) awaits: u64,
    /// What it looks for, and whether it will find it.
    looks_for: Option<(Turn, bool)>,
}

/// What a cache does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It replies.
    Here,
    /// It asks the server.
    Elsewhere,
    /// It looks for the reply first, for this long.
    Looking(Duration),
}

impl Cache {
    pub(crate) fn new((spec, origin): (CacheSpec, Arc<Path>), seed: u64) -> Self {
        Self { spec, origin, dice: Dice::new(seed), awaits: 0, looks_for: None }
    }

    /// What it does with the next request. Unless it replies at once, the reply is then awaited.
    pub(crate) fn find(&mut self, turn: Turn) -> Found {
        // Drawn for each, so that the bound does not change what becomes of the others.
        let hit = self.dice.chance() < self.spec.hit_ratio.get();
        let keeps = self.spec.largest.is_none_or(|largest| turn.reply <= largest.get());
        let has = hit && keeps || turn.reply == 0;
        if !self.spec.delay.is_zero() && turn.reply > 0 {
            self.awaits = turn.reply;
            self.looks_for = Some((turn, has));
            return Found::Looking(self.spec.delay);
        }
        self.awaits = if has { 0 } else { turn.reply };
        if has { Found::Here } else { Found::Elsewhere }
    }

    /// What it has looked for, and whether it has found it; `None` if nobody waits for it any more.
    pub(crate) fn looked(&mut self) -> Option<(Turn, bool)> {
        self.looks_for.take().filter(|_| self.awaits > 0)
    }
}
