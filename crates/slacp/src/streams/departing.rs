//! Resets that wait until the data written before them is acknowledged.
//!
//! A RESET that overtook data would destroy it, because the peer drops data that arrives after it.
//! The stream therefore goes on sending until everything is acknowledged, and only then sends
//! RESET, also to peers of earlier versions. Data received meanwhile is dropped.

use units::Instant;

use super::peer::UNREAD_TIMEOUT;
use super::{StreamEntry, StreamSet};
use crate::{ResetReason, StreamError, StreamId};

/// A reset that waits for the data before it to be acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct DelayedReset {
    pub(super) reason: ResetReason,
    /// The time at which it stops waiting, unless more data is acknowledged before.
    pub(super) until: Instant,
}

impl StreamSet {
    /// Resets a stream once the peer has acknowledged everything that was written to it, at the
    /// latest when it has acknowledged nothing more for [`UNREAD_TIMEOUT`]. To the owner, the
    /// stream is over at once.
    pub(crate) fn reset_after_data(
        &mut self,
        now: Instant,
        id: StreamId,
        reason: ResetReason,
    ) -> Result<(), StreamError> {
        let until = now + UNREAD_TIMEOUT;
        match self.map.get_mut(&id) {
            // Its owner has given it up.
            Some(stream) if stream.delayed_reset.is_some() => return Err(StreamError::NoStream),
            Some(stream) if stream.send.held() > 0 => {
                stream.delayed_reset = Some(DelayedReset { reason, until });
                // Its owner has let go of it and gets no more events.
                stream.reader_waits = false;
            }
            _ => return self.reset(id, reason),
        }
        self.departures.insert((until, id));
        self.writers.remove(&id);
        self.drop_unread(id);
        Ok(())
    }

    /// The stream, unless its owner has reset it.
    pub(super) fn owned(&self, id: StreamId) -> Option<&StreamEntry> {
        self.map.get(&id).map(|stream| &**stream).filter(|stream| stream.delayed_reset.is_none())
    }

    /// Continues the reset of a departing stream after an acknowledgement: sends RESET, or waits
    /// for the rest.
    pub(super) fn continue_reset(&mut self, now: Instant, id: StreamId) {
        let Some(stream) = self.map.get(&id) else { return };
        let Some(departure) = stream.delayed_reset else { return };
        if stream.send.held() > 0 {
            self.postpone_reset(now, id);
        } else if !stream.is_done() {
            let reason = departure.reason;
            // Cannot fail: the stream exists.
            let _ = self.reset(id, reason);
        }
    }

    fn postpone_reset(&mut self, now: Instant, id: StreamId) {
        let stream = self.map.get_mut(&id);
        let Some(departure) = stream.and_then(|stream| stream.delayed_reset.as_mut()) else {
            return;
        };
        self.departures.remove(&(departure.until, id));
        departure.until = now + UNREAD_TIMEOUT;
        self.departures.insert((departure.until, id));
    }

    /// Drops the received data of a departing stream, and grants no credit for more.
    pub(super) fn drop_unread(&mut self, id: StreamId) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        let count = stream.recv.drop_ready();
        self.recv_credit.consume(count);
        self.update_charge(id);
        self.grant_session();
    }

    /// Resets departing streams for which nothing more has been acknowledged for too long. While
    /// the peer is unreachable they go on waiting.
    pub(super) fn end_departures(&mut self, now: Instant, is_reachable: bool) {
        while let Some((_, id)) = self.departures.first().copied().filter(|(due, _)| *due <= now) {
            let departure = self.map.get(&id).and_then(|stream| stream.delayed_reset);
            match departure {
                Some(_) if !is_reachable => self.postpone_reset(now, id),
                Some(DelayedReset { reason, .. }) => _ = self.reset(id, reason),
                None => unreachable!("a stream takes its departure along"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::net::SocketAddr;

    use super::*;
    use crate::scheduler::MAX_CLASSES;
    use crate::streams::StreamChunk;
    use crate::streams::flow::PeerLimits;
    use crate::wire::frame::{self, Frame, TruncatedOffset};
    use crate::{Event, ReadOutcome, StreamOpening};

    const MEMORY: u64 = 1_000_000;
    /// Of stream data in a frame.
    const PIECE: usize = 1000;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// Two sides with a stream that the first has opened.
    struct Two {
        sides: [StreamSet; 2],
        id: StreamId,
    }

    impl Two {
        fn new() -> Self {
            let limits = PeerLimits::new(MEMORY, MEMORY / 4, 100);
            let side = |parity| StreamSet::new(parity, limits, limits, MEMORY, MAX_CLASSES, 1500);
            let mut sides = [side(0), side(1)];
            let address = SocketAddr::from(([192, 0, 2, 1], 80));
            let open = StreamOpening { destination: address.into(), source: address, dscp: None };
            let id = sides[0].open(open).unwrap();
            let mut two = Self { sides, id };
            two.settle(0);
            two.events(0);
            two.events(1);
            two
        }

        /// Exchanges frames until both sides are quiet.
        fn settle(&mut self, now: u64) {
            let mut is_busy = true;
            while is_busy {
                is_busy = false;
                for from in 0..2 {
                    while let Some(bytes) = self.sides[from].say(at(now)) {
                        self.sides[1 - from].hear((at(now), 0), &bytes).unwrap();
                        is_busy = true;
                    }
                }
            }
        }

        /// Sends a piece of the first side's data, without an acknowledgement.
        fn send_one(&mut self) -> StreamChunk {
            let lost = self.sides[0].next_lost(|_| PIECE);
            lost.or_else(|| self.sides[0].next_new(0, |_| PIECE)).expect("a piece")
        }

        fn deliver(&mut self, chunk: &StreamChunk) {
            let mut bytes = Vec::new();
            let offset = TruncatedOffset::full(chunk.range.start);
            frame::write_stream_head(&mut bytes, chunk.stream, offset, chunk.fin, None);
            self.sides[0].copy(chunk.stream, &chunk.range, &mut bytes);
            assert_eq!(self.sides[1].hear((at(0), 0), &bytes), Ok(true));
        }

        fn events(&mut self, side: usize) -> Vec<Event> {
            core::iter::from_fn(|| self.sides[side].poll_event()).collect()
        }

        /// Reads all that the second side has; returns how much that was.
        fn read(&mut self) -> usize {
            let (mut sum, mut out) = (0, [0; 4096]);
            while let Ok(ReadOutcome::Data(count)) = self.sides[1].read(at(0), self.id, &mut out) {
                sum += count;
            }
            sum
        }

        fn reset(&mut self) {
            self.sides[0].reset_after_data(at(0), self.id, ResetReason::TimedOut).unwrap();
        }

        /// The first side's next control frame, if that is a RESET.
        fn next_reset(&mut self) -> Option<ResetReason> {
            match self.sides[0].next_control(|frame| matches!(frame, Frame::Reset { .. })) {
                Some(Frame::Reset { reason, .. }) => Some(reason),
                _ => None,
            }
        }
    }

    #[test]
    fn a_reset_arrives_after_the_data_before_it_however_that_was_lost() {
        let mut two = Two::new();
        assert_eq!(two.sides[0].write(two.id, &[7; 3 * PIECE]), Ok(3 * PIECE));
        let first = two.send_one();
        two.reset();
        let (second, third) = (two.send_one(), two.send_one());
        two.deliver(&third);
        two.deliver(&first);
        for arrived in [first, third] {
            two.sides[0].on_acknowledged(at(1), two.id, arrived.range, false);
        }
        assert_eq!(two.next_reset(), None, "the second piece is missing");
        two.sides[0].on_lost(two.id, second.range, false);
        two.settle(2);
        assert_eq!(two.read(), 3 * PIECE);
        let reset = Event::Reset { stream: two.id, reason: ResetReason::TimedOut };
        assert_eq!(two.events(1).last(), Some(&reset));
        two.settle(2);
        assert!(two.sides.iter().all(|side| side.len() == 0 && side.held() == (0, 0)));
        assert_eq!(two.events(0), [], "its owner has let go of it");
    }

    #[test]
    fn a_reset_without_data_before_it_does_not_wait() {
        let mut two = Two::new();
        two.reset();
        assert_eq!(two.next_reset(), Some(ResetReason::TimedOut));
        assert_eq!(two.sides[0].reset_timeout(), None);
    }

    #[test]
    fn a_reset_waits_while_its_data_is_acknowledged_or_the_link_is_out() {
        let mut two = Two::new();
        two.sides[0].write(two.id, &[7; 2 * PIECE]).unwrap();
        two.reset();
        let first = two.send_one();
        two.send_one();
        assert_eq!(two.sides[0].reset_timeout(), Some(at(0) + UNREAD_TIMEOUT));
        two.sides[0].on_acknowledged(at(20), two.id, first.range, false);
        let due = at(20) + UNREAD_TIMEOUT;
        assert_eq!(two.sides[0].reset_timeout(), Some(due));
        two.sides[0].end_resets(due, false);
        assert_eq!(
            (two.next_reset(), two.sides[0].reset_timeout()),
            (None, Some(due + UNREAD_TIMEOUT))
        );
        two.sides[0].end_resets(due + UNREAD_TIMEOUT, true);
        assert_eq!(two.next_reset(), Some(ResetReason::TimedOut));
        assert_eq!((two.sides[0].len(), two.sides[0].held().0), (0, 0));
    }

    #[test]
    fn what_comes_for_a_stream_that_was_reset_is_dropped() {
        let mut two = Two::new();
        two.sides[0].write(two.id, &[7; PIECE]).unwrap();
        two.reset();
        assert_eq!(two.sides[0].write(two.id, &[7]), Err(StreamError::NoStream));
        assert_eq!(two.sides[0].finish(two.id), Err(StreamError::NoStream));
        let again = two.sides[0].reset_after_data(at(0), two.id, ResetReason::Reset);
        assert_eq!(again, Err(StreamError::NoStream));
        two.sides[1].write(two.id, &[7; 5000]).unwrap();
        while let Some(bytes) = two.sides[1].say(at(0)) {
            two.sides[0].hear((at(0), 0), &bytes).unwrap();
        }
        assert_eq!(two.sides[0].held().1, 0);
        assert_eq!(two.sides[0].read(at(0), two.id, &mut [0; 9]), Err(StreamError::NoStream));
        assert_eq!(two.events(0), []);
        // The peer resets it, too: nobody is left to hear of that.
        two.sides[1].reset(two.id, ResetReason::Reset).unwrap();
        two.settle(0);
        assert_eq!((two.sides[0].len(), two.events(0)), (0, vec![]));
    }

    #[test]
    fn a_reader_that_goes_on_is_not_given_up() {
        let mut two = Two::new();
        two.sides[0].write(two.id, &[7; 10]).unwrap();
        two.settle(0);
        two.reset();
        two.settle(0);
        let pause = UNREAD_TIMEOUT - Duration::from_secs(1);
        let mut now = at(0);
        for _ in 0..10 {
            two.sides[1].end_resets(now, true);
            assert_eq!(two.sides[1].read(now, two.id, &mut [0]), Ok(ReadOutcome::Data(1)));
            now += pause;
        }
        let reset = Event::Reset { stream: two.id, reason: ResetReason::TimedOut };
        assert_eq!(two.events(1).last(), Some(&reset));
    }
}
