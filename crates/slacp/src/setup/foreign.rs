//! Rate limit for reports about unserved machines: terminals of other versions, and strangers.

use core::time::Duration;
use std::collections::BTreeMap;

use units::Instant;

/// Interval between reports of the same terminal. It retries every few seconds, but its operator
/// needs one line, and another if nothing is done.
const AGAIN: Duration = Duration::from_secs(3600);

/// Maximum number of reports per [`AGAIN`]: enough to name every terminal of a fleet that was not
/// upgraded, but strangers cannot flood the log. Anyone who knows the hub's key can use them up
/// with forged addresses.
const REPORTS: usize = 64;

/// The last report about each machine, by a key that identifies it. At most [`REPORTS`] entries.
#[derive(Debug)]
pub(crate) struct ReportLimiter<K> {
    at: BTreeMap<K, Instant>,
}

impl<K> Default for ReportLimiter<K> {
    fn default() -> Self {
        Self { at: BTreeMap::new() }
    }
}

impl<K: Ord> ReportLimiter<K> {
    /// Returns whether to report this machine now, and records that it was reported.
    pub(crate) fn is_news(&mut self, now: Instant, machine: K) -> bool {
        self.at.retain(|_, at| now < *at + AGAIN);
        let news = self.at.len() < REPORTS && !self.at.contains_key(&machine);
        if news {
            self.at.insert(machine, now);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_terminal_is_reported_once_an_hour_and_a_flood_64_times() {
        let mut reported = ReportLimiter::default();
        let start = Instant::from_nanos(1);
        let address = |n: u32| IpAddr::V4(n.into());
        let terminal = |n, version: u8| (address(n), version);
        assert!(reported.is_news(start, terminal(0, 1)));
        assert!(!reported.is_news(start + AGAIN / 2, terminal(0, 1)));
        assert!(reported.is_news(start + AGAIN / 2, terminal(0, 3)));
        assert!(reported.is_news(start + AGAIN, terminal(0, 1)));
        let flood = (1..100_000).filter(|n| reported.is_news(start + AGAIN, terminal(*n, 1)));
        assert_eq!(flood.count(), REPORTS - 2);
        assert!(reported.is_news(start + AGAIN * 2, terminal(0, 1)));
    }
}
