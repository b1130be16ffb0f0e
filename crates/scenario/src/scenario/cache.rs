//! The section `[cache]` of a scenario.

use core::time::Duration;

use units::{ByteCount, Probability};

use super::raw::RawCache;
use config::FileError;
use config::file::place::KeyContext;

/// A cache of replies at each hub.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheSpec {
    /// Probability that it has the reply to a request, unless the reply is larger than `largest`.
    pub hit_ratio: Probability,
    /// Largest reply that it keeps; `None`: no limit.
    pub largest: Option<ByteCount>,
    /// Time of a search before it sends a reply or asks the server.
    pub delay: Duration,
}

impl CacheSpec {
    pub(super) fn read(place: &KeyContext<'_>, raw: &RawCache) -> Result<Self, FileError> {
        let largest = raw.largest.map(|text| text.0);
        // A cache that keeps nothing is written as a hit ratio of 0.
        let good = largest.is_none_or(|bytes| bytes.get() > 0);
        place.check(good, "largest", "0 B", "1 B or more")?;
        let delay = place.time("delay", raw.delay)?.unwrap_or_default();
        Ok(Self { hit_ratio: raw.hit_ratio.0, largest, delay })
    }

    /// Checks that there are servers behind the hub.
    pub(super) fn check(
        place: &KeyContext<'_>,
        mesh: bool,
        server_side: bool,
    ) -> Result<(), FileError> {
        let expected = "no [cache]: it is for servers behind a hub, [server-side]";
        place.check(server_side && !mesh, "hit-ratio", "a cache", expected)
    }
}
