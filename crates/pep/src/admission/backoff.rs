//! Pauses of the acceleration after the far side had no room for connections.

use std::time::Duration;

use units::Instant;

/// First and longest pause.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

/// Computes pauses that double while the far side keeps refusing.
#[derive(Debug, Default)]
pub struct RefusalBackoff {
    /// Total number of refusals at the last call.
    seen: u64,
    last: Option<(Instant, Duration)>,
}

impl RefusalBackoff {
    /// Handles the total number of refusals so far. Returns the pause that new refusals require.
    pub fn handle_refusals(&mut self, now: Instant, refused: u64) -> Option<Duration> {
        if refused <= std::mem::replace(&mut self.seen, refused) {
            return None;
        }
        let pause = match self.last {
            // Connections in flight when the last pause began may still be refused.
            Some((began, pause)) if now < began + pause => return None,
            // Refused again soon after the pause: the far side still has no room.
            Some((began, pause)) if now < began + pause * 4 => LONGEST.min(pause * 2),
            _ => FIRST,
        };
        self.last = Some((now, pause));
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_refusals_go_on() {
        let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let s = Duration::from_secs;
        let mut backoff = RefusalBackoff::default();
        assert_eq!(backoff.handle_refusals(at(1), 0), None);
        assert_eq!(backoff.handle_refusals(at(2), 3), Some(s(2)));
        assert_eq!(backoff.handle_refusals(at(3), 4), None);
        assert_eq!(backoff.handle_refusals(at(5), 4), None);
        assert_eq!(backoff.handle_refusals(at(5), 5), Some(s(4)));
        assert_eq!(backoff.handle_refusals(at(10), 6), Some(s(8)));
        assert_eq!(backoff.handle_refusals(at(100), 7), Some(s(2)));
    }
}
