//! Drain of a gateway that exits after its last connection.

use std::time::Duration;

use units::Instant;

/// State of a gateway that accepts no new connections.
#[derive(Debug, Clone, Copy)]
pub struct DrainDeadline {
    until: Option<Instant>,
}

impl DrainDeadline {
    /// Starts the drain; it ends after `within` at the latest.
    pub fn new(now: Instant, within: Option<Duration>) -> Self {
        Self { until: within.map(|within| now + within) }
    }

    /// Returns `true` if the gateway may exit while `live` connections are left.
    pub fn is_over(&self, now: Instant, live: usize) -> bool {
        live == 0 || self.until.is_some_and(|until| until <= now)
    }

    /// Time until the remaining connections are reset; zero if they never are.
    pub fn left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_ends_with_the_last_connection_or_its_time() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let limited = DrainDeadline::new(at(1), Some(Duration::from_secs(10)));
        assert!(!limited.is_over(at(10), 1) && limited.is_over(at(10), 0));
        assert!(limited.is_over(at(11), 1));
        assert_eq!(limited.left(at(4)), Duration::from_secs(7));
        let patient = DrainDeadline::new(at(1), None);
        assert!(!patient.is_over(at(1_000_000), 1) && patient.is_over(at(1), 0));
        assert_eq!(patient.left(at(4)), Duration::ZERO);
    }
}
