//! Returns the windows of idle streams (`docs/slacp.md`, Flow control, rule 7).

use core::time::Duration;

use units::Instant;

use super::{ProtocolError, StreamEntry, StreamSet};
use crate::StreamId;
use crate::streams::budget::ClientUsage;
use crate::streams::recv_buffer::StreamViolation;
use crate::wire::frame::Frame;

/// Time that a stream rests before its window is returned: longer than a client takes from a
/// response to the next request.
const REST_TIME: Duration = Duration::from_secs(2);
/// The same time while the acceptor has not connected the stream: longer than most servers take,
/// and about as long as a client without an answer takes to send its SYN again (RFC 6298 §2.1).
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// The same time while the peer waits for an answer, which should still find its window: longer
/// than most servers take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);

impl StreamSet {
    /// Starts the rest of a stream, or starts it anew, if everything written has arrived.
    pub(super) fn start_rest(&mut self, now: Instant, id: StreamId) {
        self.end_rest(id);
        let parity = self.parity;
        let Some(stream) = self.map.get_mut(&id).filter(|stream| stream.is_at_rest()) else {
            return;
        };
        // The server of a stream that the peer opened may answer late.
        let thinks = id.0 % 2 != parity && stream.owes_answer;
        let due = now
            + match stream.connected {
                false => CONNECT_TIME,
                true if thinks => ANSWER_TIME,
                true => REST_TIME,
            };
        stream.rest_deadline = Some(due);
        self.resting.insert((due, id));
    }

    /// Ends the rest of a stream.
    pub(super) fn end_rest(&mut self, id: StreamId) {
        if let Some(due) = self.map.get_mut(&id).and_then(|stream| stream.rest_deadline.take()) {
            self.resting.remove(&(due, id));
        }
    }

    /// The time at which [`Self::return_windows`] has something to do.
    pub(crate) fn rest_timeout(&self) -> Option<Instant> {
        self.resting.first().map(|(due, _)| *due)
    }

    /// Returns the windows of streams that have rested long enough.
    pub(crate) fn return_windows(&mut self, now: Instant) {
        while let Some((_, id)) = self.resting.first().copied().filter(|(due, _)| *due <= now) {
            self.end_rest(id);
            let kept = self.peer_limits.kept_window();
            let Some(stream) = self.map.get_mut(&id) else { continue };
            // Thousands of idle streams are to take little memory, too.
            stream.send.free_spare();
            stream.recv.free_spare();
            if let Some(limit) = stream.send.give_up_credit(kept) {
                stream.returns_sent += 1;
                let returns = stream.returns_sent;
                self.control.push_back(Frame::Return { stream: id, returns, limit });
            }
        }
    }

    /// Handles a RETURN frame: the peer gives up its credit beyond `limit`.
    pub(crate) fn on_return(
        &mut self,
        id: StreamId,
        returns: u64,
        limit: u64,
    ) -> Result<(), ProtocolError> {
        let Some(stream) = self.map.get_mut(&id) else { return Ok(()) };
        // A repetition, or one that a later RETURN has overtaken.
        if returns <= stream.returns_received {
            return Ok(());
        }
        let is_next = stream.opened && returns == stream.returns_received + 1;
        if !is_next || !(stream.recv.highest()..=stream.recv.limit()).contains(&limit) {
            return Err(ProtocolError::Stream { stream: id, violation: StreamViolation::Return });
        }
        stream.returns_received = returns;
        stream.is_small = true;
        // A late RETURN may find that all it left is used and read: nothing else would grant more.
        let kept = self.limits.kept_window().min(stream.window);
        stream.window = (limit - stream.recv.highest()).max(kept);
        stream.recv.replace_limit(limit);
        self.update_charge(id);
        self.renew(id);
        Ok(())
    }

    /// Gives an active stream whose window was returned, or small from the beginning, a new first
    /// window.
    pub(super) fn grant_again(&mut self, id: StreamId) {
        let Some(stream) = self.map.get(&id) else { return };
        if !stream.is_small || stream.recv.end().is_some() {
            return;
        }
        let window = self.first_window(stream.client, stream.proven);
        let Some(stream) = self.map.get_mut(&id) else { return };
        if window > stream.window {
            stream.window = window;
            stream.is_small = false;
            self.update_charge(id);
        }
    }
}

impl StreamEntry {
    /// Returns `true` if everything written has arrived and the stream is not finished.
    fn is_at_rest(&self) -> bool {
        self.opened
            && self.opening == ClientUsage::default()
            && self.send.held() == 0
            && !self.send.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use units::BitRate;

    use super::*;
    use crate::scheduler::MAX_CLASSES;
    use crate::streams::flow::{PeerLimits, SessionPace};
    use crate::wire::open::OpeningFeatures;
    use crate::{ReadOutcome, ResetReason, StreamOpening};

    /// The windows of all streams together, with some margin.
    const WINDOWS: u64 = 224_000_000;

    impl StreamSet {
        fn allow_questions(&mut self) {
            let openings = OpeningFeatures::of_this_version(false, (true, false), false);
            (self.limits.openings, self.peer_limits.openings) = (openings, openings);
        }
    }

    /// A client and a server over a geostationary hop; frames arrive at once.
    struct Two {
        sides: [StreamSet; 2],
        now: Instant,
    }

    impl Two {
        fn new() -> Self {
            let limits = PeerLimits::new(256_000_000, 64_000_000, 65_536);
            let rates = [BitRate::from_mbit(50); 2];
            let side = |parity| {
                let mut side = StreamSet::new(parity, limits, limits, 100_000, MAX_CLASSES, 1500);
                side.set_pace(SessionPace { rtt: Duration::from_millis(600), rates });
                side
            };
            Self { sides: [side(0), side(1)], now: Instant::from_nanos(1_000_000_000) }
        }

        fn open(&mut self) -> StreamId {
            let address = SocketAddr::from(([192, 0, 2, 1], 80));
            let open = StreamOpening { destination: address.into(), source: address, dscp: None };
            self.sides[0].open(open).unwrap()
        }

        /// Opens a stream that the server accepts at once.
        fn open_accepted(&mut self) -> StreamId {
            let id = self.open();
            self.settle();
            self.sides[1].accept(self.now, id).unwrap();
            self.settle();
            id
        }

        /// Exchanges frames until both sides are quiet.
        fn settle(&mut self) {
            for from in [0, 1, 0, 1, 0, 1] {
                while let Some(bytes) = self.sides[from].say(self.now) {
                    self.sides[1 - from].hear((self.now, 0), &bytes).unwrap();
                }
            }
        }

        /// Lets time pass.
        fn wait(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
            self.sides.iter_mut().for_each(|side| side.return_windows(self.now));
            self.settle();
        }

        /// Sends a few bytes from a side and reads them.
        fn say(&mut self, from: usize, id: StreamId) {
            self.sides[from].write(id, &[7; 300]).unwrap();
            self.settle();
            let read = self.sides[1 - from].read(self.now, id, &mut [0; 1000]);
            assert_eq!(read, Ok(ReadOutcome::Data(300)));
            self.settle();
        }

        /// How much a side may send at once.
        fn room(&self, side: usize, id: StreamId) -> u64 {
            let send = &self.sides[side].map[&id].send;
            send.credit() - send.sent()
        }
    }

    #[test]
    fn connections_at_rest_leave_the_memory_to_others() {
        let mut two = Two::new();
        for _ in 0..200 {
            for _ in 0..100 {
                let id = two.open_accepted();
                two.say(0, id);
                two.say(1, id);
            }
            two.wait(3);
        }
        let taken = 20_000 * 8000;
        assert!(two.sides.iter().all(|side| side.window_budget.left() >= WINDOWS - taken - 1000));
        let fresh = two.open();
        two.settle();
        assert!(two.room(1, fresh) > 990_000, "a fresh page comes in a round trip");
    }

    #[test]
    fn the_answer_to_a_request_after_a_rest_finds_the_window_of_the_first() {
        let mut two = Two::new();
        let id = two.open_accepted();
        let first = two.room(1, id);
        two.say(0, id);
        two.say(1, id);
        two.wait(100);
        assert_eq!([0, 1].map(|side| two.room(side, id)), [8000; 2]);
        two.sides[0].write(id, &[7; 300]).unwrap();
        two.settle();
        assert!(two.room(1, id) >= first, "{} of {first}", two.room(1, id));
    }

    #[test]
    fn a_stream_that_is_not_connected_returns_its_window_after_a_second() {
        let mut two = Two::new();
        let id = two.open();
        two.settle();
        two.sides[0].write(id, &[7; 68]).unwrap();
        two.settle();
        let first = two.room(1, id);
        two.now += Duration::from_millis(900);
        two.wait(0);
        assert_eq!(two.room(1, id), first);
        two.wait(1);
        assert_eq!([0, 1].map(|side| two.room(side, id)), [8000; 2]);
        // Connected late, it gets its windows before anything is read.
        two.sides[1].accept(two.now, id).unwrap();
        two.settle();
        assert!(two.room(1, id) >= first && two.room(0, id) > 8000);
    }

    #[test]
    fn what_one_client_is_offered_limits_no_other() {
        let mut two = Two::new();
        let open = |client: u8| {
            let source = SocketAddr::from(([10, 0, 0, client], 4000));
            let destination = SocketAddr::from(([192, 0, 2, 1], 80));
            StreamOpening { destination: destination.into(), source, dscp: None }
        };
        let first = two.sides[0].open(open(1)).unwrap();
        let room = two.room(0, first);
        // Streams that reach no server: the last are offered the least.
        for _ in 0..200 {
            two.sides[0].open(open(2)).unwrap();
            two.settle();
        }
        let [other, own] = [1, 2].map(|client| two.sides[0].open(open(client)).unwrap());
        assert!(two.room(0, own) < room / 2, "{}", two.room(0, own));
        assert_eq!(two.room(0, other), room);
    }

    #[test]
    fn a_refused_stream_returns_its_window_at_once() {
        let mut two = Two::new();
        let id = two.open();
        two.settle();
        assert!(two.sides[0].window_budget.left() < WINDOWS - 1_000_000);
        two.sides[1].reset(id, ResetReason::TimedOut).unwrap();
        two.settle();
        assert!(two.sides.iter().all(|side| side.window_budget.left() == WINDOWS));
    }

    #[test]
    fn the_stream_of_a_question_gets_a_window_for_a_dns_message() {
        let mut two = Two::new();
        let source = SocketAddr::from(([192, 0, 2, 1], 0));
        let open = StreamOpening { destination: crate::Destination::Resolver, source, dscp: None };
        two.sides.iter_mut().for_each(|side| side.allow_questions());
        let id = two.sides[0].open(open).unwrap();
        two.settle();
        assert_eq!(two.sides[0].window_budget.left(), WINDOWS - 66_000);
        assert_eq!(two.room(1, id), 66_000);
    }

    #[test]
    fn a_server_that_thinks_keeps_its_window_for_half_a_minute() {
        let mut two = Two::new();
        let id = two.open_accepted();
        two.say(0, id);
        let first = two.room(1, id);
        two.wait(29);
        assert_eq!(two.room(1, id), first);
        two.wait(2);
        assert_eq!(two.room(1, id), 8000);
        // Data read from the stream grants it a new window.
        two.say(1, id);
        assert!(two.room(1, id) >= first - 300);
    }

    #[test]
    fn credit_that_crosses_a_return_does_not_hold() {
        let mut two = Two::new();
        let id = two.open_accepted();
        two.say(1, id);
        let [client, server] = &mut two.sides;
        server.return_windows(two.now + Duration::from_secs(3));
        // A request that the server has not seen when it returns its window.
        client.map.get_mut(&id).unwrap().recv.raise_limit(90_000_000);
        client.announce_credit(id);
        two.settle();
        assert_eq!(two.room(1, id), 8000);
        let recv = &two.sides[0].map[&id].recv;
        assert_eq!(recv.limit() - recv.highest(), 8000, "both count the same");
    }

    #[test]
    fn a_return_that_is_lost_goes_again_and_one_that_comes_twice_changes_nothing() {
        let mut two = Two::new();
        let id = two.open_accepted();
        two.say(1, id);
        let [client, server] = &mut two.sides;
        server.return_windows(two.now + Duration::from_secs(3));
        let lost = server.next_control(|_| true).unwrap();
        server.on_control_lost(lost.clone());
        let mut bytes = Vec::new();
        server.next_control(|_| true).unwrap().write(&mut bytes, true);
        client.hear((two.now, 0), &bytes).unwrap();
        two.say(0, id);
        let again = two.room(1, id);
        assert!(again > 1_000_000);
        two.sides[0].hear((two.now, 0), &bytes).unwrap();
        two.settle();
        assert_eq!(two.room(1, id), again);
    }

    #[test]
    fn a_return_that_comes_after_all_it_left_was_read_does_not_stop_the_stream() {
        let mut two = Two::new();
        let id = two.open_accepted();
        two.say(1, id);
        let [client, server] = &mut two.sides;
        server.return_windows(two.now + Duration::from_secs(3));
        let lost = server.next_control(|_| true).unwrap();
        server.write(id, &[7; 20_000]).unwrap();
        let mut buffer = [0; 30_000];
        while let Some(bytes) = server.say(two.now) {
            client.hear((two.now, 0), &bytes).unwrap();
        }
        assert_eq!(client.read(two.now, id, &mut buffer), Ok(ReadOutcome::Data(8000)));
        // What the client grants meanwhile is void.
        while let Some(bytes) = client.say(two.now) {
            server.hear((two.now, 0), &bytes).unwrap();
        }
        assert_eq!(two.room(1, id), 0);
        two.sides[1].on_control_lost(lost);
        let mut read = 8000;
        while read < 20_000 {
            two.settle();
            let more = two.sides[0].read(two.now, id, &mut buffer);
            let Ok(ReadOutcome::Data(bytes)) = more else {
                panic!("stopped after {read}: {more:?}")
            };
            read += bytes;
        }
    }

    #[test]
    fn returning_more_than_was_granted_breaks_the_protocol() {
        let mut two = Two::new();
        let id = two.open_accepted();
        two.say(1, id);
        let limit = two.sides[0].map[&id].recv.limit();
        for (returns, limit) in [(1, limit + 1), (1, 299), (2, limit)] {
            let violation = StreamViolation::Return;
            let expected = Err(ProtocolError::Stream { stream: id, violation });
            assert_eq!(two.sides[0].on_return(id, returns, limit), expected);
        }
        two.sides[0].reset(id, ResetReason::Reset).unwrap();
        assert_eq!(two.sides[0].on_return(id, 1, limit + 1), Ok(()), "it is over");
    }
}
