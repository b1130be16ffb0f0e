//! Flow control of a session: its limits, its speed, and its total credit in either direction
//! (`docs/slacp.md`, Flow control).

use core::time::Duration;

use units::BitRate;

use crate::streams::recv_buffer::GAP_COST;
use crate::wire::open::OpeningFeatures;

/// Number of gaps that a session may have however small its memory: 8 kB of state.
const MIN_GAPS: usize = 64;

/// The limits that one side sets for the other. Fixed at session set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerLimits {
    /// Maximum number of bytes held for all streams, per direction.
    pub(crate) memory: u64,
    /// Maximum number of bytes held for one stream.
    pub(crate) stream_window: u64,
    /// Maximum number of streams that the other side may have open.
    pub(crate) max_streams: u32,
    /// Bit mask of the packet channels that it receives.
    pub(crate) channels: u32,
    /// Number of contexts of packet headers that it keeps.
    pub(crate) contexts: u16,
    /// Number of streams that it decompresses at a time.
    pub(crate) decompressors: u16,
    /// Set if it has the dictionary of compressed streams.
    pub(crate) dictionary: bool,
    /// Destinations and optional fields of openings that it understands.
    pub(crate) openings: OpeningFeatures,
}

impl PeerLimits {
    pub(crate) fn new(memory: u64, stream_window: u64, max_streams: u32) -> Self {
        // The credit of the session bounds each stream anyway.
        let stream_window = stream_window.min(memory);
        Self {
            memory,
            stream_window,
            max_streams,
            channels: 0,
            contexts: 0,
            decompressors: 0,
            dictionary: false,
            openings: OpeningFeatures::default(),
        }
    }

    /// Maximum number of gaps in all streams together, so that they take at most a sixteenth of the
    /// memory. Losses leave at most one gap per packet in flight; to come near the limit takes
    /// packets of less than 2 kB with every second one lost.
    pub(crate) fn max_gaps(&self) -> usize {
        usize::try_from(self.memory / 16 / GAP_COST).unwrap_or(usize::MAX).max(MIN_GAPS)
    }

    /// Maximum sum of the granted windows of all streams: seven eighths of the memory. A sixteenth
    /// is reserved for streams that the peer has opened and that this side has not answered yet
    /// ([`Self::for_openings`]), and another for the session credit, whose announcement lags behind
    /// by as much ([`RecvCredit::grant`]).
    pub(crate) fn for_windows(&self) -> u64 {
        self.memory - self.memory.div_ceil(8)
    }

    /// Maximum sum of the windows that openers take themselves, before the side with this memory
    /// has answered.
    pub(crate) fn for_openings(&self) -> u64 {
        self.memory / 16
    }

    /// Minimum window of a new stream, 16 kB: slightly more than TCP's initial window (RFC 6928).
    /// Four of them must be free to open a stream.
    pub(crate) fn min_window(&self) -> u64 {
        (self.memory / 64).clamp(2, 16_000)
    }

    /// Minimum window that an opener takes itself, 2 kB: enough for a request.
    pub(crate) fn min_opening_window(&self) -> u64 {
        (self.memory / 8000).clamp(1, 2000)
    }

    /// The window a stream keeps when it returns the rest.
    pub(crate) fn kept_window(&self) -> u64 {
        self.min_window() / 2
    }

    /// Maximum number of bytes that one of `streams` may hold for sending while all of them hold
    /// `held`: half of what is left of seven eighths of the memory (the dynamic threshold of
    /// Choudhury and Hahne, 1998, with α = ½), so that stalled streams never take all of it. The
    /// last eighth is divided equally, so that they do not block other streams either.
    pub(crate) fn send_share(&self, held: u64, streams: usize) -> u64 {
        let reserve = self.memory / 8;
        let share = (self.memory - reserve).saturating_sub(held) / 2;
        let least = reserve / (streams as u64).max(1);
        share.max(least.min(MIN_SEND_SHARE)).min(self.stream_window)
    }
}

/// Number of bytes that a stream may hold for sending whatever the others hold, unless there are
/// too many of them: ten packets, TCP's initial window (RFC 6928).
const MIN_SEND_SHARE: u64 = 16_000;

/// The speed of a session, as far as windows depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SessionPace {
    pub(crate) rtt: Duration,
    /// The rate at which this side sends, and the one at which the peer says that it sends; 0 if
    /// unknown.
    pub(crate) rates: [BitRate; 2],
}

/// Bytes that a sender of unknown rate is assumed to send in a round trip: 10 Mbit/s over a
/// geostationary satellite.
const ASSUMED_FLIGHT: u64 = 800_000;
/// Upper bound of the bytes in a round trip, whatever rate the peer claims: windows are multiples
/// of them, which must not overflow.
const MAX_FLIGHT: u64 = 1 << 60;

impl SessionPace {
    /// Number of bytes that this side can send in one round trip.
    pub(crate) fn own_flight(&self) -> u64 {
        self.flight(self.rates[0], 0)
    }

    /// Number of bytes that the peer can send in one round trip: at least `seen`, the most
    /// observed.
    pub(crate) fn peer_flight(&self, seen: u64) -> u64 {
        self.flight(self.rates[1], seen)
    }

    /// Window of a stream without losses: 1¼ round trips at the peer's rate, or twice that if the
    /// peer has not announced its rate and may become faster.
    pub(crate) fn window(&self, seen: u64) -> u64 {
        let flight = self.peer_flight(seen);
        let window = flight + flight / 4;
        if self.rates[1].bits_per_second() == 0 { 2 * window } else { window }
    }

    /// Returns `true` if the peer's rate is neither announced nor observed to be high.
    pub(crate) fn is_peer_unknown(&self, seen: u64) -> bool {
        self.rates[1].bits_per_second() == 0 && seen < ASSUMED_FLIGHT
    }

    fn flight(&self, rate: BitRate, seen: u64) -> u64 {
        let told = rate.bytes_in(self.rtt).get().min(MAX_FLIGHT);
        if rate.bits_per_second() == 0 { seen.max(ASSUMED_FLIGHT) } else { seen.max(told) }
    }
}

/// The bytes that the peer allows this side to send on all streams.
#[derive(Debug, Default)]
pub(crate) struct SendCredit {
    limit: u64,
    sent: u64,
}

impl SendCredit {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, sent: 0 }
    }

    /// Continues as if this many bytes had been sent and acknowledged.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.limit += bytes;
        self.sent += bytes;
    }

    pub(crate) fn room(&self) -> u64 {
        self.limit - self.sent
    }

    pub(crate) fn spend(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.room());
        self.sent += bytes;
    }

    pub(crate) fn raise(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
        debug_assert!(self.sent <= self.limit, "nothing is sent without credit");
    }
}

/// The bytes that this side allows the peer to send on all streams.
#[derive(Debug)]
pub(crate) struct RecvCredit {
    memory: u64,
    limit: u64,
    received: u64,
    consumed: u64,
}

impl RecvCredit {
    pub(crate) fn new(memory: u64) -> Self {
        Self { memory, limit: memory, received: 0, consumed: 0 }
    }

    /// Continues as if this many bytes had been received and read.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.limit += bytes;
        self.received += bytes;
        self.consumed += bytes;
    }

    /// Number of bytes received, or skipped over by received ones, and not yet read.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
    }

    /// Counts received bytes. Returns `false`, with nothing counted, if they exceed the credit.
    pub(crate) fn receive(&mut self, bytes: u64) -> bool {
        let allowed = bytes <= self.limit - self.received;
        if allowed {
            self.received += bytes;
        }
        debug_assert!(self.held() <= self.memory, "credit never exceeds the memory");
        allowed
    }

    pub(crate) fn consume(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.held(), "only what was received is read");
        self.consumed += bytes;
    }

    /// The new limit, if it is worth announcing: a sixteenth of the memory has been freed since the
    /// last announcement.
    pub(crate) fn grant(&mut self) -> Option<u64> {
        let limit = self.consumed + self.memory;
        if limit - self.limit < self.memory.div_ceil(16) {
            return None;
        }
        self.limit = limit;
        Some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_that_stall_leave_something_to_the_next() {
        let limits = PeerLimits::new(1_000_000, 400_000, 10);
        let mut held = 0;
        for _ in 0..100 {
            let share = limits.send_share(held, 100);
            assert!(share >= 1250);
            held += share;
        }
        assert!(held <= 1_000_000);
    }

    #[test]
    fn a_peer_that_claims_any_rate_has_a_window() {
        let rates = [0, crate::wire::varint::MAX].map(BitRate::from_bits_per_second);
        let pace = SessionPace { rtt: Duration::from_secs(86_400), rates };
        assert!(pace.window(0) > MAX_FLIGHT);
    }

    #[test]
    fn credit_is_granted_in_sixteenths_and_enforced() {
        let mut credit = RecvCredit::new(1600);
        assert!(credit.receive(1600));
        credit.consume(99);
        assert_eq!(credit.grant(), None);
        credit.consume(1);
        assert_eq!(credit.grant(), Some(1700));
        assert!(credit.receive(100));
        assert!(!credit.receive(1));
    }
}
