//! When a router asks its modem for capacity (Link Characteristics Request, RFC 8175 §12.18), and
//! what the requested rate means.
//!
//! A link with capacity on demand grants what is asked for, and asks for what its modem holds. If
//! the router keeps the queue, the modem must learn how much waits. The standard has no item for
//! that. An item of our own would need an extension that both sides announce (§13.6): everything
//! unknown ends the session (§12.1). The request for a Current Data Rate (Transmit) is understood by
//! every modem, so we use it, with a rule for the value: the rate that sends everything that waits
//! within [`DRAIN_TIME`].

use std::time::Duration;

use units::{BitRate, ByteCount, Instant};

/// The requested rate is the one at which everything that waits is sent within this time.
pub const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Minimum time between two requests, unless something begins or ends to wait.
const INTERVAL: Duration = Duration::from_millis(100);
/// A request that has not changed is repeated after this time: a modem may forget it.
const RENEWAL: Duration = Duration::from_secs(1);

/// The rate to request if this much waits.
pub fn rate_to_request(waiting: ByteCount) -> BitRate {
    BitRate::from_bits_per_second(waiting.get().saturating_mul(8 / DRAIN_TIME.as_secs()))
}

/// How much waits at a router that requests this rate.
pub fn backlog_of(rate: BitRate) -> ByteCount {
    rate.bytes_in(DRAIN_TIME)
}

/// The requests of one session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Requests {
    /// What the modem is to know.
    wanted: BitRate,
    /// Whether it was set since the last request.
    is_new: bool,
    /// What it was asked for last, and when.
    asked: Option<(BitRate, Instant)>,
    /// Whether the last request awaits its response (§5: one at a time).
    pending: bool,
    /// The modem refuses requests.
    refused: bool,
}

impl Requests {
    /// Sets the rate to request; 0 for nothing more. Setting the same rate again repeats the request
    /// like a change: the modem has taken off what was sent meanwhile.
    pub(super) fn set(&mut self, rate: BitRate) {
        (self.wanted, self.is_new) = (rate, true);
    }

    /// The session has ended, and with it what was asked for.
    pub(super) fn forget(&mut self) {
        *self = Self { wanted: self.wanted, ..Self::default() };
    }

    /// When the next request is due; a time in the past means now.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.pending || self.refused {
            return None;
        }
        let none = BitRate::default();
        let (last, at) = self.asked.unwrap_or((none, Instant::ZERO));
        match (last == none, self.wanted == none) {
            (true, true) => None,
            (true, false) | (false, true) => Some(Instant::ZERO),
            (false, false) if !self.is_new => Some(at + RENEWAL),
            (false, false) => Some(at + INTERVAL),
        }
    }

    /// The rate to request now.
    pub(super) fn ask(&mut self, now: Instant) -> BitRate {
        (self.asked, self.pending, self.is_new) = (Some((self.wanted, now)), true, false);
        self.wanted
    }

    /// The modem has responded; `false` if nothing was asked.
    pub(super) fn answered(&mut self, refused: bool) -> bool {
        self.refused |= refused;
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_rate_stands_for_what_waits() {
        let waiting = ByteCount::new(65_536);
        assert_eq!(rate_to_request(waiting), BitRate::from_bits_per_second(524_288));
        assert_eq!(backlog_of(rate_to_request(waiting)), waiting);
        assert_eq!(rate_to_request(ByteCount::new(u64::MAX)).bits_per_second(), u64::MAX);
    }

    #[test]
    fn a_beginning_is_asked_for_at_once_and_a_change_after_a_while() {
        let [some, more] = [1000, 2000].map(BitRate::from_bits_per_second);
        let mut requests = Requests::default();
        assert_eq!(requests.due(), None);
        requests.set(some);
        assert_eq!(requests.due(), Some(Instant::ZERO));
        assert_eq!(requests.ask(at(50)), some);
        requests.set(more);
        assert_eq!(requests.due(), None, "no answer yet");
        assert!(requests.answered(false) && !requests.answered(false));
        assert_eq!(requests.due(), Some(at(150)));
        requests.set(some);
        assert_eq!(requests.due(), Some(at(150)), "what was sent was taken off");
        assert_eq!(requests.ask(at(150)), some);
        assert!(requests.answered(false));
        assert_eq!(requests.due(), Some(at(1_150)), "a modem may forget");
        requests.set(BitRate::default());
        assert_eq!(requests.due(), Some(Instant::ZERO));
        assert_eq!(requests.ask(at(60)), BitRate::default());
        assert!(requests.answered(false));
        assert_eq!(requests.due(), None, "nothing to wait, nothing to ask");
    }

    #[test]
    fn a_modem_that_refuses_is_not_asked_again_in_its_session() {
        let mut requests = Requests::default();
        requests.set(BitRate::from_mbit(1));
        requests.ask(at(0));
        requests.answered(true);
        assert_eq!(requests.due(), None);
        requests.forget();
        assert_eq!(requests.due(), Some(Instant::ZERO));
    }
}
