//! Connecting to a destination that has several addresses.

use core::net::SocketAddr;
use core::time::Duration;

use slacp::ResetReason;
use units::Instant;

/// Time limit per address while others are untried: two SYNs (RFC 6298 §2) and a round trip.
const NEXT: Duration = Duration::from_secs(2);

/// The attempts to connect to one destination: its addresses in order, one at a time.
#[derive(Debug)]
pub struct Dial {
    addresses: Vec<SocketAddr>,
    /// Index of the address being tried.
    current: usize,
    /// Deadlines of the current attempt, and of all attempts together.
    attempt_until: Instant,
    until: Instant,
}

impl Dial {
    /// Starts with the first of `addresses`, with a time limit for all of them together.
    ///
    /// # Panics
    /// Without an address.
    pub fn new(now: Instant, addresses: Vec<SocketAddr>, time_limit: Duration) -> Self {
        assert!(!addresses.is_empty(), "a destination has an address");
        let until = now + time_limit;
        let mut dial = Self { addresses, current: 0, attempt_until: until, until };
        dial.limit(now);
        dial
    }

    /// The address to connect to now, and when to give up on it: then call
    /// [`Self::handle_failure`] with [`ResetReason::TimedOut`].
    pub fn attempt(&self) -> (SocketAddr, Instant) {
        (self.addresses[self.current], self.attempt_until)
    }

    /// The current attempt has failed. [`Self::attempt`] has the next one.
    ///
    /// # Errors
    /// The given reason if there is no further address, or no time left.
    pub fn handle_failure(&mut self, now: Instant, reason: ResetReason) -> Result<(), ResetReason> {
        if self.current + 1 == self.addresses.len() || now >= self.until {
            return Err(reason);
        }
        self.current += 1;
        self.limit(now);
        Ok(())
    }

    /// The last address gets all the remaining time.
    fn limit(&mut self, now: Instant) {
        let is_last = self.current + 1 == self.addresses.len();
        self.attempt_until = if is_last { self.until } else { self.until.min(now + NEXT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 80).into()
    }

    #[test]
    fn addresses_are_tried_in_order_the_last_for_all_the_time_left() {
        let time_limit = Duration::from_secs(10);
        let mut dial = Dial::new(at(0), [1, 2, 3].map(address).to_vec(), time_limit);
        assert_eq!(dial.attempt(), (address(1), at(2)));
        assert_eq!(dial.handle_failure(at(2), ResetReason::TimedOut), Ok(()));
        assert_eq!(dial.attempt(), (address(2), at(4)));
        assert_eq!(dial.handle_failure(at(3), ResetReason::Refused), Ok(()));
        assert_eq!(dial.attempt(), (address(3), at(10)));
        let refused = dial.handle_failure(at(5), ResetReason::Refused);
        assert_eq!(refused, Err(ResetReason::Refused), "the last one decides");
    }

    #[test]
    fn no_attempt_outlasts_the_time_limit_for_all() {
        let mut dial = Dial::new(at(0), [1, 2, 3].map(address).to_vec(), Duration::from_secs(3));
        assert_eq!(dial.handle_failure(at(2), ResetReason::TimedOut), Ok(()));
        assert_eq!(dial.attempt(), (address(2), at(3)));
        let late = dial.handle_failure(at(3), ResetReason::TimedOut);
        assert_eq!(late, Err(ResetReason::TimedOut));
    }
}
