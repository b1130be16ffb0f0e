//! Credit of a session: how many stream bytes may be under way in all
//! (`docs/slacp.md`, Flow control).

use core::time::Duration;

use units::BitRate;

use crate::open::Openings;
use crate::recv_buffer::GAP_COST;

/// Gaps that a session may have however small its memory is: 8 kB of books.
const LEAST_GAPS: usize = 64;

/// What one side allows the other, fixed when the session is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The most bytes held for all streams, in each direction.
    pub(crate) memory: u64,
    /// The most bytes held for one stream.
    pub(crate) stream_window: u64,
    /// The most streams that the other side may have open.
    pub(crate) max_streams: u32,
    /// The packet channels that it receives, a bit for each.
    pub(crate) channels: u32,
    /// What it understands in openings.
    pub(crate) openings: Openings,
}

impl Limits {
    pub(crate) fn new(memory: u64, stream_window: u64, max_streams: u32) -> Self {
        let stream_window = stream_window.min(memory);
        Self { memory, stream_window, max_streams, channels: 0, openings: Openings::default() }
    }

    /// The most gaps in all streams together, so that the books of gaps take at most
    /// a sixteenth of the memory. Losses leave one for each packet under way at most;
    /// it takes packets of less than 2 kB at every second one lost to come near.
    pub(crate) fn most_gaps(&self) -> usize {
        usize::try_from(self.memory / 16 / GAP_COST).unwrap_or(usize::MAX).max(LEAST_GAPS)
    }

    /// What the windows of all streams may take together, by grants: seven eighths of
    /// the memory. A sixteenth is for streams that the peer has opened and that this side
    /// has not heard of ([`Self::for_openings`]). Another is what the credit of the
    /// session may lag behind ([`RecvCredit::grant`]).
    pub(crate) fn for_windows(&self) -> u64 {
        self.memory - self.memory.div_ceil(8)
    }

    /// What the windows of streams may take together of which the side that has this
    /// memory has not been heard yet.
    pub(crate) fn for_openings(&self) -> u64 {
        self.memory / 16
    }

    /// The least window of a new stream, 16 kB: a little more than the initial window of
    /// TCP (RFC 6928). Four of them must be left.
    pub(crate) fn least_window(&self) -> u64 {
        (self.memory / 64).clamp(2, 16_000)
    }

    /// The least window that a stream has before it was granted one, 2 kB: a request.
    pub(crate) fn least_opening(&self) -> u64 {
        (self.memory / 8000).clamp(1, 2000)
    }

    /// The window that a stream keeps when it gives back what it does not use.
    pub(crate) fn kept_window(&self) -> u64 {
        self.least_window() / 2
    }

    /// The most that one of `streams` may hold to be sent while all hold `held`: half of
    /// what is left of seven eighths of the memory (the dynamic threshold of Choudhury &
    /// Hahne, 1998, with α = ½), so that stalled streams never take all. The last eighth
    /// is for equal shares, so that they stop no other either.
    pub(crate) fn share(&self, held: u64, streams: usize) -> u64 {
        let reserve = self.memory / 8;
        let share = (self.memory - reserve).saturating_sub(held) / 2;
        let least = reserve / (streams as u64).max(1);
        share.max(least.min(LEAST_TO_SEND)).min(self.stream_window)
    }
}

/// What a stream may hold to be sent whatever all others hold, if there are not too many:
/// ten packets, the initial window of a TCP (RFC 6928).
const LEAST_TO_SEND: u64 = 16_000;

/// Memory that is given out in parts.
#[derive(Debug)]
pub(crate) struct Budget {
    whole: u64,
    taken: u64,
    shares: Shares,
}

/// How large the parts are, as divisors of what is left.
#[derive(Debug)]
struct Shares {
    /// The first ones, and while how many eighths of all are left.
    first: u64,
    until: u64,
    /// The others, until an eighth is left.
    then: u64,
    /// Each part of the last eighth, in bytes.
    least: u64,
}

impl Budget {
    /// For the windows of streams. The first ones can fill the fastest links; sixty that
    /// stall, however large their windows, leave 1 MB of the default memory to the next, and
    /// there are more than a thousand before one is refused.
    pub(crate) fn for_windows(limits: &Limits) -> Self {
        let least = limits.least_window();
        let shares = Shares { first: 8, until: 7, then: 64, least };
        Self { whole: limits.for_windows(), taken: 0, shares }
    }

    /// For streams that a peer with these limits has not answered: for a round trip.
    pub(crate) fn for_openings(limits: &Limits) -> Self {
        let least = limits.least_opening();
        let shares = Shares { first: 2, until: 4, then: 32, least };
        Self { whole: limits.for_openings(), taken: 0, shares }
    }

    /// What the next one may take at most; nothing if less than four of the least parts
    /// are left.
    pub(crate) fn share(&self) -> u64 {
        let (left, shares) = (self.left(), &self.shares);
        let part = match left {
            _ if left < 4 * shares.least => return 0,
            _ if left > self.whole / 8 * shares.until => left / shares.first,
            _ if left > self.whole / 8 => left / shares.then,
            _ => 0,
        };
        part.max(shares.least)
    }

    /// What one that is in use may take in addition at most: nothing of the last eighth.
    pub(crate) fn growth(&self) -> u64 {
        match self.left() {
            left if left > self.whole / 2 => left / 8,
            left if left > self.whole / 8 => left / 32,
            _ => 0,
        }
    }

    /// Whether hardly anything is taken.
    pub(crate) fn is_fresh(&self) -> bool {
        self.left() > self.whole / 4 * 3
    }

    /// A part that was `old` becomes `new`.
    pub(crate) fn replace(&mut self, old: u64, new: u64) {
        debug_assert!(old <= self.taken && self.taken - old + new <= self.whole);
        self.taken = self.taken - old + new;
    }

    pub(crate) fn left(&self) -> u64 {
        self.whole - self.taken
    }
}

/// How fast a session is, as far as windows depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    pub(crate) rtt: Duration,
    /// At which this side sends, and at which the peer said that it does; 0 if unknown.
    pub(crate) rates: [BitRate; 2],
}

/// What a sender whose rate nobody knows may have under way: 10 Mbit/s by way of a
/// geostationary satellite.
const UNKNOWN: u64 = 800_000;
/// No flight is larger, whatever rate the peer claims to have: windows are multiples of it.
const LARGEST: u64 = 1 << 60;

impl Pace {
    /// What this side can send in a round trip.
    pub(crate) fn own_flight(&self) -> u64 {
        self.flight(self.rates[0], 0)
    }

    /// What the peer can send in a round trip, of which it has sent `seen` before.
    pub(crate) fn peer_flight(&self, seen: u64) -> u64 {
        self.flight(self.rates[1], seen)
    }

    /// The window of a stream of which nothing is lost: 1¼ round trips at the peer's rate;
    /// twice as much if it may become faster than it was `seen` to be.
    pub(crate) fn window(&self, seen: u64) -> u64 {
        let flight = self.peer_flight(seen);
        let window = flight + flight / 4;
        if self.rates[1].bits_per_second() == 0 { 2 * window } else { window }
    }

    /// Whether nobody has said how fast the peer is, nor has it shown that it is fast.
    pub(crate) fn is_peer_unknown(&self, seen: u64) -> bool {
        self.rates[1].bits_per_second() == 0 && seen < UNKNOWN
    }

    fn flight(&self, rate: BitRate, seen: u64) -> u64 {
        let told = rate.bytes_in(self.rtt).get().min(LARGEST);
        if rate.bits_per_second() == 0 { seen.max(UNKNOWN) } else { seen.max(told) }
    }
}

/// The bytes that the peer lets this side send.
#[derive(Debug, Default)]
pub(crate) struct SendCredit {
    limit: u64,
    sent: u64,
}

impl SendCredit {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, sent: 0 }
    }

    /// As if so many bytes had come and gone.
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
    }
}

/// The bytes that this side lets the peer send.
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

    /// As if so many bytes had come and been read.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.limit += bytes;
        self.received += bytes;
        self.consumed += bytes;
    }

    /// Bytes received, or overtaken by received ones, and not read.
    pub(crate) fn held(&self) -> u64 {
        self.received - self.consumed
    }

    /// Counts bytes received; `false`, and nothing counted, if they exceed the
    /// credit.
    pub(crate) fn receive(&mut self, bytes: u64) -> bool {
        let allowed = bytes <= self.limit - self.received;
        if allowed {
            self.received += bytes;
        }
        allowed
    }

    pub(crate) fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
    }

    /// The new limit if the peer is worth telling: a sixteenth of the memory has
    /// become free since the last time.
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
        let limits = Limits::new(1_000_000, 400_000, 10);
        let mut held = 0;
        for _ in 0..100 {
            let share = limits.share(held, 100);
            assert!(share >= 1250);
            held += share;
        }
        assert!(held <= 1_000_000);
    }

    #[test]
    fn sixty_windows_leave_a_megabyte_however_large_they_are() {
        let limits = Limits::new(256_000_000, 64_000_000, 65_536);
        for mbit in [1, 5, 20, 50, 100, 250, 1000, 10_000] {
            let mut budget = Budget::for_windows(&limits);
            for _ in 0..60 {
                // In 1¼ round trips of 610 ms.
                let window = budget.share().min(mbit * 95_000);
                budget.replace(0, window);
            }
            assert!(budget.share() > 1_050_000, "{} at {mbit} Mbit/s", budget.share());
        }
    }

    #[test]
    fn a_peer_that_claims_any_rate_has_a_window() {
        let rates = [0, crate::varint::MAX].map(BitRate::from_bits_per_second);
        let pace = Pace { rtt: Duration::from_secs(86_400), rates };
        assert!(pace.window(0) > LARGEST);
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
