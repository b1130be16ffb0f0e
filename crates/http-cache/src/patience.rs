//! How long a server may take that is asked without the hop, while something stored would do instead.
//!
//! Without the hop the link itself is often gone, and then a connection takes half a minute to fail. A page
//! of expired objects must not take that long for each of them.

use core::time::Duration;

use units::Instant;

/// Time for an answer. A connection and a request take two round trips, 1.2 s over a geostationary link.
const LIMIT: Duration = Duration::from_secs(3);
/// How long no server is waited for after one that was silent: that of names (`RECHECK` in
/// `names/resolver.rs`).
const SILENT: Duration = Duration::from_secs(30);

/// What is known of the way to servers without the hop.
#[derive(Debug, Default)]
pub struct Patience {
    silent_until: Option<Instant>,
}

impl Patience {
    /// How long to wait for an answer: not at all if no server answered shortly before.
    pub fn limit(&self, now: Instant) -> Duration {
        if self.silent_until.is_some_and(|until| now < until) { Duration::ZERO } else { LIMIT }
    }

    /// A server has not answered within the limit.
    pub fn handle_silence(&mut self, now: Instant) {
        if self.silent_until.is_none_or(|until| until <= now) {
            self.silent_until = Some(now + SILENT);
        }
    }

    /// A server has answered.
    pub fn handle_answer(&mut self) {
        self.silent_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn one_silent_server_is_enough_for_half_a_minute() {
        let mut patience = Patience::default();
        assert_eq!(patience.limit(at(0)), LIMIT);
        patience.handle_silence(at(3));
        assert_eq!(patience.limit(at(32)), Duration::ZERO);
        // Those that were waited for at the same time do not prolong it.
        patience.handle_silence(at(4));
        assert_eq!(patience.limit(at(33)), LIMIT);
        patience.handle_silence(at(36));
        assert_eq!(patience.limit(at(37)), Duration::ZERO);
        patience.handle_answer();
        assert_eq!(patience.limit(at(37)), LIMIT);
    }
}
