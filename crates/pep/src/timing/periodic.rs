//! Timing of work that is repeated at an interval.

use std::time::Duration;

use units::Instant;

/// Decides when periodic work is due. Work that is late is done once, not made up for.
#[derive(Debug, Clone, Copy)]
pub struct Periodic {
    every: Duration,
    next: Instant,
}

impl Periodic {
    /// Work that is due at `first`, and then each time `every` has passed since it was last done.
    pub fn new(every: Duration, first: Instant) -> Self {
        Self { every, next: first }
    }

    /// Returns `true` if the work is due, and records it as done.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.every;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_work_is_done_once() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let mut save = Periodic::new(Duration::from_secs(10), at(5));
        let due: Vec<u64> = (0..50).filter(|s| save.is_due(at(*s))).collect();
        assert_eq!(due, [5, 15, 25, 35, 45]);
        assert!(save.is_due(at(90)) && !save.is_due(at(99)) && save.is_due(at(100)));
    }
}
