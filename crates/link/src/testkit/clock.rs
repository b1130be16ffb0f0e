//! A clock that only moves when set.

use units::Instant;

/// Virtual time. It moves forwards only, by [`Clock::advance_to`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that shows [`Instant::ZERO`].
    pub const fn new() -> Self {
        Self(Instant::ZERO)
    }

    /// Returns the time that it shows.
    pub const fn now(self) -> Instant {
        self.0
    }

    /// Moves the clock to `at`, unless it is already later. Returns whether it moved.
    pub fn advance_to(&mut self, at: Instant) -> bool {
        let moved = at > self.0;
        self.0 = self.0.max(at);
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let mut clock = Clock::new();
        assert!(clock.advance_to(Instant::from_nanos(5)));
        assert!(!clock.advance_to(Instant::from_nanos(5)));
        assert!(!clock.advance_to(Instant::from_nanos(4)));
        assert_eq!(clock.now(), Instant::from_nanos(5));
    }
}
