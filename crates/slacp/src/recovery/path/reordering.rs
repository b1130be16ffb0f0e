//! Measurement of reordering on the path. Within that time, a packet that others have overtaken is
//! late rather than lost (RFC 8985 §6.2, step 4).

use core::time::Duration;

use units::Instant;

/// Minimum time for which an observation counts; the maximum is twice that.
const PERIOD: Duration = Duration::from_secs(10);

/// The delay of a packet behind the newest one that arrived before it: the maximum of the current
/// and the previous period.
///
/// RFC 8985 guesses this in quarters of the round trip, from duplicate segments. Here
/// acknowledgements name the packets received, so it is known to within the interval between two
/// acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct ReorderingWindow {
    longest: [Duration; 2],
    since: Instant,
}

impl ReorderingWindow {
    /// Time to wait for a packet after later ones have arrived.
    pub(crate) fn window(&self) -> Duration {
        self.longest[0].max(self.longest[1])
    }

    /// Records the delay of a packet behind the newest one that arrived before it.
    pub(crate) fn came_late(&mut self, by: Duration) {
        self.longest[0] = self.longest[0].max(by);
    }

    /// Forgets observations of the period before the last.
    pub(crate) fn age(&mut self, now: Instant) {
        let age = now.saturating_since(self.since);
        if age >= PERIOD {
            let last = if age < PERIOD * 2 { self.longest[0] } else { Duration::ZERO };
            self.longest = [Duration::ZERO, last];
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_counts_for_a_while() {
        let (at, ms) = (Instant::from_nanos(100_000_000_000), Duration::from_millis);
        let mut reordering = ReorderingWindow::default();
        reordering.age(at);
        reordering.came_late(ms(7));
        reordering.came_late(ms(5));
        assert_eq!(reordering.window(), ms(7));
        reordering.age(at + PERIOD);
        reordering.came_late(ms(3));
        assert_eq!(reordering.window(), ms(7));
        reordering.age(at + PERIOD * 2);
        assert_eq!(reordering.window(), ms(3));
        reordering.age(at + PERIOD * 10);
        assert_eq!(reordering.window(), Duration::ZERO);
    }
}
