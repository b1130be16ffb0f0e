//! Limits log lines to one a minute for each cause.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Instant;

const EVERY: Duration = Duration::from_secs(60);
/// Maximum causes remembered. Beyond that, further causes are not logged until some are a minute old.
const MOST: usize = 256;

/// The time at which each cause was last logged.
#[derive(Debug, Default)]
pub(crate) struct CauseLimiter(BTreeMap<String, Instant>);

impl CauseLimiter {
    /// Returns whether a line of this cause may be logged now, and if so, records it.
    pub(crate) fn is_due(&mut self, now: Instant, cause: &str) -> bool {
        self.0.retain(|_, last| now.saturating_since(*last) < EVERY);
        // A flood of different causes must not fill memory or log.
        let is_due = self.0.len() < MOST && !self.0.contains_key(cause);
        if is_due {
            self.0.insert(cause.to_owned(), now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn each_cause_is_due_once_a_minute() {
        let mut occasions = CauseLimiter::default();
        let due: Vec<u64> = (0..150).filter(|s| occasions.is_due(at(*s), "disk")).collect();
        assert_eq!(due, [0, 60, 120]);
        assert!(occasions.is_due(at(150), "network"));
    }

    #[test]
    fn ever_new_causes_are_not_remembered_without_end() {
        let mut occasions = CauseLimiter::default();
        let due = (0..1000).filter(|cause| occasions.is_due(at(0), &cause.to_string())).count();
        assert_eq!((due, occasions.0.len()), (MOST, MOST));
        assert!(occasions.is_due(at(60), "another"));
    }
}
