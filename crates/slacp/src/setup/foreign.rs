//! Terminals of other protocol versions that a hub has reported to its owner.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

use units::Instant;

/// Interval between reports of the same terminal. It retries every few seconds, but its operator
/// needs one line, and another if nothing is done.
const AGAIN: Duration = Duration::from_secs(3600);

/// Maximum number of reports per [`AGAIN`]: enough to name every terminal of a fleet that was not
/// upgraded, but strangers cannot flood the log. Anyone who knows the hub's key can use them up
/// with forged addresses.
const REPORTS: usize = 64;

/// When each terminal was last reported. At most [`REPORTS`] entries.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    at: BTreeMap<(IpAddr, u8), Instant>,
}

impl Reported {
    /// Whether to report a terminal at this address that speaks `version`.
    pub(crate) fn is_news(&mut self, now: Instant, address: IpAddr, version: u8) -> bool {
        self.at.retain(|_, at| now < *at + AGAIN);
        let news = self.at.len() < REPORTS && !self.at.contains_key(&(address, version));
        if news {
            self.at.insert((address, version), now);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_reported_once_an_hour_and_a_flood_64_times() {
        let mut reported = Reported::default();
        let start = Instant::from_nanos(1);
        let address = |n: u32| IpAddr::V4(n.into());
        assert!(reported.is_news(start, address(0), 1));
        assert!(!reported.is_news(start + AGAIN / 2, address(0), 1));
        assert!(reported.is_news(start + AGAIN / 2, address(0), 3));
        assert!(reported.is_news(start + AGAIN, address(0), 1));
        let flood = (1..100_000).filter(|n| reported.is_news(start + AGAIN, address(*n), 1));
        assert_eq!(flood.count(), REPORTS - 2);
        assert!(reported.is_news(start + AGAIN * 2, address(0), 1));
    }
}
