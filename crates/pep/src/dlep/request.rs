//! Requests for capacity from a modem (Link Characteristics Request, RFC 8175 §12.18): the meaning of the
//! requested rate, and the times of requests.
//!
//! A link with capacity on demand grants what is requested, and requests what its modem holds. If the
//! router keeps the queue, the modem has to learn the backlog, for which the standard has no item. An item
//! of our own would need an extension that both sides announce (§13.6), since unknown items end the session
//! (§12.1). Every modem understands a request for a Current Data Rate (Transmit), so we use it with a rule
//! for the value: the rate that sends the whole backlog within [`DRAIN_TIME`].
//!
//! If nothing waits and the whole request is for foreseen data, it also contains a Latency of [`LATER`]: a
//! modem that understands this requests only spare capacity. A modem that refuses it is asked without a
//! latency.

use std::time::Duration;

use units::{BitRate, ByteCount, Instant};

/// The requested rate sends the whole backlog within this time.
pub const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Minimum time between two requests, unless the backlog becomes empty or ceases to be.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time after which an unchanged request is repeated, because a modem may forget it.
const RENEWAL: Duration = Duration::from_secs(1);

/// Latency in a request for foreseen data: a round of request and grant on a geostationary link.
pub const LATER: Duration = Duration::from_millis(1_300);

/// Rate to request for this backlog.
pub fn rate_to_request(waiting: ByteCount) -> BitRate {
    BitRate::from_bits_per_second(waiting.get().saturating_mul(8 / DRAIN_TIME.as_secs()))
}

/// A request for capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapacityRequest {
    /// Requested rate (Transmit); 0 for nothing more.
    pub rate: BitRate,
    /// `true` if the data does not wait yet.
    pub is_foreseen: bool,
}

impl CapacityRequest {
    /// The request for this backlog and this much foreseen data.
    pub fn of(waiting: ByteCount, foreseen: ByteCount) -> Self {
        let none = ByteCount::default();
        let all = ByteCount::new(waiting.get().saturating_add(foreseen.get()));
        let is_foreseen = waiting == none && foreseen != none;
        Self { rate: rate_to_request(all), is_foreseen }
    }

    fn is_nothing(self) -> bool {
        self.rate == BitRate::default()
    }
}

/// Backlog of a router that requests this rate.
pub fn backlog_of(rate: BitRate) -> ByteCount {
    rate.bytes_in(DRAIN_TIME)
}

/// Requests of one session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestSchedule {
    /// The request that the modem should know.
    wanted: CapacityRequest,
    /// `true` if it was set since the last request was sent.
    is_new: bool,
    /// The last request that was sent, and its time.
    asked: Option<(CapacityRequest, Instant)>,
    /// `true` while the last request awaits its response (§5: one at a time).
    pending: bool,
    /// `true` if the modem refuses all requests, or those with a latency.
    refused: bool,
    refused_latency: bool,
}

impl RequestSchedule {
    /// Sets the request. Setting an equal one again sends it like a change, because the modem has deducted
    /// what was sent meanwhile.
    pub(super) fn set(&mut self, wanted: CapacityRequest) {
        (self.wanted, self.is_new) = (wanted, true);
    }

    /// Forgets what was requested in a session that has ended.
    pub(super) fn forget(&mut self) {
        *self = Self { wanted: self.wanted, ..Self::default() };
    }

    /// Time of the next request; a time in the past means now.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.pending || self.refused {
            return None;
        }
        let (last, at) = self.asked.unwrap_or_default();
        match (last.is_nothing(), self.wanted.is_nothing()) {
            (true, true) => None,
            (true, false) | (false, true) => Some(Instant::ZERO),
            // Foreseen data has arrived, and now needs capacity in any case.
            (false, false) if last.is_foreseen && !self.wanted.is_foreseen => Some(Instant::ZERO),
            (false, false) if !self.is_new => Some(at + RENEWAL),
            (false, false) => Some(at + INTERVAL),
        }
    }

    /// Returns the request to send now, and records it as sent.
    pub(super) fn ask(&mut self, now: Instant) -> CapacityRequest {
        let is_foreseen = self.wanted.is_foreseen && !self.refused_latency;
        let asked = CapacityRequest { is_foreseen, ..self.wanted };
        (self.asked, self.pending, self.is_new) = (Some((asked, now)), true, false);
        asked
    }

    /// Handles the modem's response; `false` if no request was pending.
    pub(super) fn answered(&mut self, refused: bool) -> bool {
        let had_latency = self.asked.is_some_and(|(asked, _)| asked.is_foreseen);
        // A refusal may concern the latency only, so the next request goes without one.
        self.refused |= refused && !had_latency;
        if refused && had_latency {
            (self.refused_latency, self.asked) = (true, None);
        }
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn waiting(bit_s: u64) -> CapacityRequest {
        CapacityRequest { rate: BitRate::from_bits_per_second(bit_s), is_foreseen: false }
    }

    #[test]
    fn what_is_only_foreseen_is_told_apart_unless_the_modem_refuses() {
        let [none, some] = [0, 100].map(ByteCount::new);
        assert_eq!(CapacityRequest::of(none, none), CapacityRequest::default());
        assert_eq!(CapacityRequest::of(some, some), waiting(1600), "it goes with what waits");
        let foreseen = CapacityRequest::of(none, some);
        assert_eq!(foreseen, CapacityRequest { is_foreseen: true, ..waiting(800) });
        let mut requests = RequestSchedule::default();
        requests.set(foreseen);
        assert_eq!(requests.ask(at(0)), foreseen);
        assert!(requests.answered(false));
        requests.set(waiting(800));
        assert_eq!(requests.due(), Some(Instant::ZERO), "it waits now");
        assert_eq!(requests.ask(at(10)), waiting(800));
        assert!(requests.answered(false));
        requests.set(foreseen);
        assert_eq!(requests.ask(at(200)), foreseen);
        assert!(requests.answered(true));
        assert_eq!(requests.due(), Some(Instant::ZERO), "without a latency");
        assert_eq!(requests.ask(at(210)), waiting(800));
        assert!(requests.answered(false));
        assert_eq!(requests.due(), Some(at(1_210)));
        requests.forget();
        assert_eq!(requests.ask(at(3_000)), foreseen, "the next modem may understand it");
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
        let [some, more] = [1000, 2000].map(waiting);
        let mut requests = RequestSchedule::default();
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
        requests.set(CapacityRequest::default());
        assert_eq!(requests.due(), Some(Instant::ZERO));
        assert_eq!(requests.ask(at(60)), CapacityRequest::default());
        assert!(requests.answered(false));
        assert_eq!(requests.due(), None, "nothing to wait, nothing to ask");
    }

    #[test]
    fn a_modem_that_refuses_is_not_asked_again_in_its_session() {
        let mut requests = RequestSchedule::default();
        requests.set(waiting(1_000_000));
        requests.ask(at(0));
        requests.answered(true);
        assert_eq!(requests.due(), None);
        requests.forget();
        assert_eq!(requests.due(), Some(Instant::ZERO));
    }
}
