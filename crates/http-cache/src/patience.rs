//! Time limit for a server that is asked without the hop, while a stored response could be used instead.
//!
//! Without the hop the link itself is often down, and connecting then fails only after half a minute. A
//! page of expired objects must not wait that long for each of them.

use core::time::Duration;

use units::Instant;

/// Time limit of a request. Connecting and asking take two round trips, 1.2 s over a geostationary link.
const LIMIT: Duration = Duration::from_secs(3);
/// Time for which no server is waited for after one did not answer: the same as for names (`RECHECK` in
/// `names/resolver.rs`).
const SILENT: Duration = Duration::from_secs(30);

/// Experience with servers that are asked without the hop.
#[derive(Debug, Default)]
pub struct OriginTimeout {
    silent_until: Option<Instant>,
}

impl OriginTimeout {
    /// Time to wait for a response; zero shortly after a server did not answer.
    pub fn limit(&self, now: Instant) -> Duration {
        if self.silent_until.is_some_and(|until| now < until) { Duration::ZERO } else { LIMIT }
    }

    /// A server did not answer within the limit.
    pub fn handle_silence(&mut self, now: Instant) {
        // Servers that were waited for at the same time do not prolong the pause.
        if self.silent_until.is_none_or(|until| until <= now) {
            self.silent_until = Some(now + SILENT);
        }
    }

    /// A server has answered: the path works.
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
        let mut patience = OriginTimeout::default();
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
