//! Caches of a scenario.

use core::time::Duration;

use units::{ByteCount, Probability};

use super::raw::RawCache;
use crate::FileError;
use crate::place::Place;

/// A cache of replies at each hub.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheSpec {
    /// The share of requests whose reply it has, if that is not too large.
    pub hit_ratio: Probability,
    /// The largest reply that it keeps; `None`: no bound.
    pub largest: Option<ByteCount>,
    /// How long it looks for a reply before it sends it, or asks the server.
    pub delay: Duration,
}

impl CacheSpec {
    pub(super) fn read(place: &Place<'_>, raw: &RawCache) -> Result<Self, FileError> {
        let largest = raw.largest.map(|text| text.0);
        let good = largest.is_none_or(|bytes| bytes.get() > 0);
        place.check(good, "largest", "0 B", "1 B or more")?;
        let delay = place.time("delay", raw.delay)?.unwrap_or_default();
        Ok(Self { hit_ratio: raw.hit_ratio.0, largest, delay })
    }

    /// Checks that there are servers behind the hub.
    pub(super) fn check(place: &Place<'_>, mesh: bool, server_side: bool) -> Result<(), FileError> {
        let expected = "no [cache]: it is for servers behind a hub, [server-side]";
        place.check(server_side && !mesh, "hit-ratio", "a cache", expected)
    }
}
