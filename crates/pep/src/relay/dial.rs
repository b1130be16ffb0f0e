//! Connects to a destination with several addresses (RFC 8305).

use core::net::SocketAddr;
use core::time::Duration;
use std::vec;

use slacp::ResetReason;
use units::Instant;

/// Time without a result after which the next address is tried as well (RFC 8305 §5).
const NEXT: Duration = Duration::from_millis(250);

/// Most addresses of a destination that are tried.
const MOST: usize = 4;

/// Returns up to four of a name's addresses in the order to try them. The address families alternate,
/// beginning with that of the first address (RFC 8305 §4), so that a broken family does not hold up the
/// other.
pub fn alternating(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses = addresses.into_iter().peekable();
    let is_v4 = addresses.peek().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.partition(|address| address.is_ipv4() == is_v4);
    let mut first = first.into_iter();
    let mut second = second.into_iter();
    let mut ordered = Vec::new();
    loop {
        let before = ordered.len();
        ordered.extend(first.next());
        ordered.extend(second.next());
        if ordered.len() == before || ordered.len() >= MOST {
            ordered.truncate(MOST);
            return ordered;
        }
    }
}

/// Attempts to connect to one destination: its addresses in order, each in parallel with those that have no
/// result yet.
#[derive(Debug)]
pub struct DialAttempts {
    untried: vec::IntoIter<SocketAddr>,
    /// Number of attempts without a result.
    running: usize,
    /// Time of the next attempt, whatever becomes of the others.
    next: Instant,
    until: Instant,
}

impl DialAttempts {
    /// Starts with a common time limit for all `addresses`.
    pub fn new(now: Instant, addresses: Vec<SocketAddr>, time_limit: Duration) -> Self {
        Self { untried: addresses.into_iter(), running: 0, next: now, until: now + time_limit }
    }

    /// Returns an address to connect to now if an attempt is due; its time limit is [`Self::until`].
    pub fn poll(&mut self, now: Instant) -> Option<SocketAddr> {
        if now < self.next || now >= self.until {
            return None;
        }
        let address = self.untried.next()?;
        self.running += 1;
        self.next = now + NEXT;
        Some(address)
    }

    /// Time at which [`Self::poll`] returns the next address; `None` if no address is left.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.untried.as_slice().is_empty()).then_some(self.next)
    }

    /// Time limit of all attempts.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Handles a failed attempt: the next address is due at once.
    ///
    /// # Errors
    /// The given reason if no address is left and no attempt is running.
    pub fn handle_failure(&mut self, now: Instant, reason: ResetReason) -> Result<(), ResetReason> {
        self.running -= 1;
        // RFC 8305 §5: a failure is a result, so the next attempt does not wait.
        self.next = now;
        let is_left = !self.untried.as_slice().is_empty() && now < self.until;
        if self.running > 0 || is_left { Ok(()) } else { Err(reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 80).into()
    }

    fn dial(addresses: &[u8]) -> DialAttempts {
        let addresses = addresses.iter().map(|last| address(*last)).collect();
        DialAttempts::new(at(0), addresses, Duration::from_secs(10))
    }

    #[test]
    fn an_address_without_answer_is_joined_by_the_next() {
        let mut dial = dial(&[1, 2]);
        assert_eq!(dial.poll(at(0)), Some(address(1)));
        assert_eq!(dial.poll_timeout(), Some(at(250)));
        assert_eq!(dial.poll(at(249)), None);
        assert_eq!(dial.poll(at(250)), Some(address(2)));
        assert_eq!((dial.poll_timeout(), dial.poll(at(500))), (None, None));
        assert_eq!(dial.until(), at(10_000));
    }

    #[test]
    fn a_failure_is_followed_by_the_next_address_at_once_and_the_last_one_decides() {
        let mut dial = dial(&[1, 2, 3]);
        assert_eq!(dial.poll(at(0)), Some(address(1)));
        assert_eq!(dial.handle_failure(at(10), ResetReason::Unreachable), Ok(()));
        assert_eq!(dial.poll(at(10)), Some(address(2)));
        assert_eq!(dial.poll(at(260)), Some(address(3)));
        assert_eq!(dial.handle_failure(at(300), ResetReason::Refused), Ok(()), "one still runs");
        let last = dial.handle_failure(at(10_000), ResetReason::TimedOut);
        assert_eq!(last, Err(ResetReason::TimedOut));
    }

    #[test]
    fn nothing_begins_after_the_time_limit() {
        let mut dial = dial(&[1, 2]);
        assert_eq!(dial.poll(at(0)), Some(address(1)));
        let late = dial.handle_failure(at(10_000), ResetReason::TimedOut);
        assert_eq!(late, Err(ResetReason::TimedOut));
        assert_eq!(dial.poll(at(10_000)), None);
    }

    #[test]
    fn families_alternate_beginning_with_the_first() {
        let v6 = |last| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], 80));
        let given = [v6(1), v6(2), v6(3), v6(4), address(1)];
        assert_eq!(alternating(given), [v6(1), address(1), v6(2), v6(3)]);
        assert_eq!(alternating([address(2), address(1)]), [address(2), address(1)]);
        assert_eq!(alternating([]), []);
    }
}
