//! The receiver of a stream of numbered datagrams. Sans-I/O: it is handed the bytes and the time.
//!
//! ```text
//!  0  4  magic "SKYU"
//!  4  8  number, from 0; all ones: a greeting, which only shows the sender's address
//! 12  8  sending time, nanoseconds of the sender's clock
//! 20  …  payload, from offset number × length of the datagram of the stream
//! ```
//! Integers are big-endian. The two clocks need not agree.

use std::time::Duration;

use super::delays::DelayHistogram;
use super::exchange::SentCounts;
use crate::protocol::payload::Payload;
use crate::protocol::udp_plan::{HEAD_LEN, UdpCounts};

/// The number that marks a greeting.
pub(crate) const GREETING: u64 = u64::MAX;
const MAGIC: [u8; 4] = *b"SKYU";

/// Fills `buffer` with datagram `number`, sent at `now`.
pub(crate) fn fill(payload: Payload, number: u64, now: Duration, buffer: &mut [u8]) {
    // Wraps for a greeting, whose number is the maximum.
    let offset = number.wrapping_mul(buffer.len() as u64);
    buffer[..4].copy_from_slice(&MAGIC);
    buffer[4..12].copy_from_slice(&number.to_be_bytes());
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    buffer[12..20].copy_from_slice(&nanos.to_be_bytes());
    payload.fill(offset, &mut buffer[HEAD_LEN..]);
}

/// Parses a datagram's number and sending time; `None` for a foreign or corrupt one.
pub(crate) fn read(payload: Payload, bytes: &[u8]) -> Option<(u64, u64)> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>()?;
    let integer = |at: usize| {
        let mut field = [0; 8];
        field.copy_from_slice(&head[at..at + 8]);
        u64::from_be_bytes(field)
    };
    let number = integer(4);
    let sent = integer(12);
    // Wraps, because a foreign datagram's number may lie beyond the stream.
    let offset = number.wrapping_mul(bytes.len() as u64);
    let right = head[..4] == MAGIC && payload.first_difference(offset, rest).is_none();
    right.then_some((number, sent))
}

/// Checks and counts the datagrams of a stream.
pub(crate) struct UdpReceiver {
    payload: Payload,
    length: usize,
    /// One bit for each planned datagram.
    seen: Vec<u64>,
    planned: u64,
    highest: Option<u64>,
    first: Option<Duration>,
    /// Arrival and sending time of the previous datagram.
    before: Option<(i128, i128)>,
    /// Interarrival jitter so far, in nanoseconds.
    jitter: f64,
    delays: DelayHistogram,
    counts: UdpCounts,
}

impl UdpReceiver {
    /// Creates a receiver that expects at most `planned` datagrams of `length` bytes.
    pub(crate) fn new(payload: Payload, length: usize, planned: u64) -> Self {
        Self {
            payload,
            length,
            seen: vec![0; planned.div_ceil(64) as usize],
            planned,
            highest: None,
            first: None,
            before: None,
            jitter: 0.0,
            delays: DelayHistogram::default(),
            counts: UdpCounts::default(),
        }
    }

    /// Handles a datagram that arrived at `now`.
    pub(crate) fn handle(&mut self, now: Duration, bytes: &[u8]) {
        let found = read(self.payload, bytes).filter(|_| bytes.len() == self.length);
        let Some((number, sent)) = found else {
            self.counts.corrupt += 1;
            return;
        };
        // Repeated greetings may arrive late.
        if number == GREETING {
            return;
        }
        // Bounds `seen`, whatever a sender writes.
        if number >= self.planned {
            self.counts.corrupt += 1;
            return;
        }
        let word = (number / 64) as usize;
        let bit = 1 << (number % 64);
        if self.seen[word] & bit != 0 {
            // The first copy has counted for order and jitter.
            self.counts.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        self.counts.received += 1;
        if self.highest.is_some_and(|highest| number < highest) {
            self.counts.reordered += 1;
        }
        self.highest = self.highest.max(Some(number));
        self.times(now, sent);
    }

    /// Updates the jitter, J += (|D| − J) / 16 in order of arrival (RFC 3550 §6.4.1), and the
    /// delays.
    fn times(&mut self, now: Duration, sent: u64) {
        let arrival = now.as_nanos() as i128;
        let sent = i128::from(sent);
        if let Some((arrival_before, sent_before)) = self.before {
            let difference = (arrival - arrival_before) - (sent - sent_before);
            self.jitter += (difference.unsigned_abs() as f64 - self.jitter) / 16.0;
            self.counts.jitter = Some(Duration::from_nanos(self.jitter as u64));
        }
        self.before = Some((arrival, sent));
        // The clocks differ by an unknown constant, which only differences of delays do not
        // contain.
        self.delays.add(arrival - sent);
        let first = *self.first.get_or_insert(now);
        self.counts.span = now.saturating_sub(first);
    }

    /// Sets how many datagrams found no room in the socket.
    pub(crate) fn overflowed(&mut self, datagrams: u64) {
        self.counts.overflowed = datagrams;
    }

    /// Returns the number of datagrams that the peer has certainly sent, by their numbers.
    pub(crate) fn seen_sent(&self) -> SentCounts {
        SentCounts { datagrams: self.highest.map_or(0, |highest| highest + 1), unsent: 0 }
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> UdpCounts {
        UdpCounts { delay_variation: self.delays.variation(), ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::payload::PayloadSide;

    const LENGTH: usize = 100;

    fn payload() -> Payload {
        Payload::new(5, PayloadSide::Client)
    }

    fn datagram(number: u64, sent: Duration) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        fill(payload(), number, sent, &mut bytes);
        bytes
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn loss_reordering_and_duplicates_are_distinguished() {
        let mut receiver = UdpReceiver::new(payload(), LENGTH, 10);
        for number in [0, 1, 4, 2, 4, 5] {
            receiver.handle(ms(number), &datagram(number, ms(number)));
        }
        let mut wrong = datagram(6, ms(0));
        wrong[50] ^= 1;
        receiver.handle(ms(6), &wrong);
        receiver.handle(ms(6), &datagram(10, ms(0)));
        receiver.handle(ms(6), &datagram(GREETING, ms(0)));
        let counts = receiver.counts();
        assert_eq!((counts.received, counts.duplicates, counts.reordered), (5, 1, 1));
        assert_eq!(counts.corrupt, 2);
    }

    #[test]
    fn a_number_whose_payload_passes_the_last_offset_is_corrupt() {
        let mut receiver = UdpReceiver::new(payload(), LENGTH, 10);
        receiver.handle(ms(0), &datagram(u64::MAX / LENGTH as u64, ms(0)));
        assert_eq!(receiver.counts().corrupt, 1);
    }

    #[test]
    fn jitter_is_that_of_the_rfc() {
        let mut receiver = UdpReceiver::new(payload(), LENGTH, 10);
        // A constant delay of 300 ms is not jitter, whatever the clocks show.
        receiver.handle(ms(300), &datagram(0, ms(9000)));
        assert_eq!((receiver.counts().jitter, receiver.counts().delay_variation), (None, None));
        receiver.handle(ms(310), &datagram(1, ms(9010)));
        assert_eq!(receiver.counts().jitter, Some(Duration::ZERO));
        // 16 ms late: 16/16 = 1 ms; then on time again: 1 + (16 - 1)/16.
        receiver.handle(ms(336), &datagram(2, ms(9020)));
        assert_eq!(receiver.counts().jitter, Some(ms(1)));
        receiver.handle(ms(330), &datagram(3, ms(9030)));
        assert_eq!(receiver.counts().jitter, Some(Duration::from_nanos(1_937_500)));
        assert_eq!(receiver.counts().span, ms(30));
        // 16 ms late, one datagram of four.
        assert_eq!(receiver.counts().delay_variation, Some(ms(16)));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(noise: Vec<u8>, sent: u64, number in 0u64..20) {
            let mut receiver = UdpReceiver::new(payload(), LENGTH, 10);
            receiver.handle(ms(1), &noise);
            let at = Duration::from_nanos(sent);
            receiver.handle(ms(2), &datagram(number, at));
            receiver.handle(ms(3), &datagram(number / 2, ms(0)));
            let counts = receiver.counts();
            prop_assert_eq!(counts.received + counts.duplicates + counts.corrupt, 3);
        }
    }
}
