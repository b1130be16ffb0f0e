//! Relays between two legs that follow a script.

mod endings;

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use LegSide::{Client, Server};

/// What a leg's peer does, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Send(usize),
    End,
    Fail(LegFailure),
}

/// How a leg was let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Closed,
    Reset(ResetReason),
}

#[derive(Debug)]
struct Leg {
    acts: VecDeque<Act>,
    /// Bytes that can be written before it blocks, and how writing fails.
    room: usize,
    refusal: Option<LegFailure>,
    /// Bytes read from it and not yet written to the other leg.
    held: usize,
    read: usize,
    written: usize,
    discarded: usize,
    is_finished: bool,
    /// Bytes that its peer has yet to acknowledge.
    owed: u64,
    gone: Option<Gone>,
}

#[derive(Debug)]
struct Script([Leg; 2]);

impl Script {
    fn new(client: &[Act], server: &[Act]) -> Self {
        Self([client, server].map(|acts| Leg {
            acts: acts.iter().copied().collect(),
            room: usize::MAX,
            refusal: None,
            held: 0,
            read: 0,
            written: 0,
            discarded: 0,
            is_finished: false,
            owed: 0,
            gone: None,
        }))
    }

    fn leg(&mut self, side: LegSide) -> &mut Leg {
        &mut self.0[side as usize]
    }

    fn write(&mut self, from: LegSide) -> LegStep {
        let sink = self.leg(from.other());
        assert!(sink.gone.is_none() && !sink.is_finished, "written after the end");
        if let Some(refusal) = sink.refusal {
            return LegStep::Failed(from.other(), refusal);
        }
        let room = sink.room;
        let taken = room.min(self.leg(from).held);
        self.leg(from).held -= taken;
        let sink = self.leg(from.other());
        (sink.room, sink.written) = (room - taken, sink.written + taken);
        match sink.room {
            _ if taken == 0 => LegStep::Blocked(from.other()),
            0 => LegStep::Drained(taken),
            _ => LegStep::Moved(taken),
        }
    }

    fn gone(&self) -> [Option<Gone>; 2] {
        self.0.each_ref().map(|leg| leg.gone)
    }
}

impl Legs for Script {
    fn pass(&mut self, from: LegSide) -> LegStep {
        assert!(self.leg(from).gone.is_none(), "read after it was let go of");
        if self.leg(from).held > 0 {
            return self.write(from);
        }
        let source = self.leg(from);
        match source.acts.pop_front() {
            None => LegStep::Blocked(from),
            Some(Act::Send(bytes)) => {
                (source.held, source.read) = (bytes, source.read + bytes);
                self.write(from)
            }
            Some(Act::End) => LegStep::End,
            Some(Act::Fail(failure)) => {
                source.acts.push_front(Act::Fail(failure));
                LegStep::Failed(from, failure)
            }
        }
    }

    fn discard(&mut self, from: LegSide) -> LegStep {
        let leg = self.leg(from);
        match leg.acts.pop_front() {
            None => LegStep::Blocked(from),
            Some(Act::Send(bytes)) => {
                leg.discarded += bytes;
                LegStep::Moved(bytes)
            }
            Some(Act::End) => {
                leg.acts.push_front(Act::End);
                LegStep::End
            }
            Some(Act::Fail(failure)) => {
                leg.acts.push_front(Act::Fail(failure));
                LegStep::Failed(from, failure)
            }
        }
    }

    fn finish(&mut self, to: LegSide) -> Result<bool, LegFailure> {
        let leg = self.leg(to);
        assert!(!leg.is_finished, "finished twice");
        if let Some(refusal) = leg.refusal {
            return Err(refusal);
        }
        leg.is_finished = true;
        Ok(true)
    }

    fn is_delivered(&mut self, leg: LegSide) -> bool {
        self.leg(leg).owed == 0
    }

    fn close(&mut self, leg: LegSide) {
        assert_eq!(self.leg(leg).gone.replace(Gone::Closed), None);
    }

    fn reset(&mut self, leg: LegSide, reason: ResetReason) {
        self.leg(leg).gone.get_or_insert(Gone::Reset(reason));
    }

    fn unacknowledged(&mut self, leg: LegSide) -> u64 {
        self.leg(leg).owed
    }

    fn reset_after_data(&mut self, leg: LegSide, reason: ResetReason) -> bool {
        assert!(self.leg(leg).gone.is_none(), "reset after it was let go of");
        if self.leg(leg).owed == 0 {
            self.reset(leg, reason);
        }
        self.leg(leg).owed == 0
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Runs until nothing more happens at this moment.
fn run(relay: &mut Relay, now: Instant, legs: &mut Script) -> RelayProgress {
    loop {
        let progress = relay.handle(now, legs);
        if progress != RelayProgress::Busy {
            return progress;
        }
    }
}

/// A leg fails for good, and the driver notices.
fn fail(relay: &mut Relay, legs: &mut Script, side: LegSide, failure: LegFailure) {
    legs.leg(side).acts.push_back(Act::Fail(failure));
    relay.handle_failure(at(0), side, failure);
}

const TIMED_OUT: LegFailure = LegFailure::Broken(ResetReason::TimedOut);

#[test]
fn each_end_is_passed_on_while_the_other_direction_goes_on() {
    let (mut relay, mut legs) = (Relay::default(), Script::new(&[Act::Send(3), Act::End], &[]));
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Waiting);
    assert!(legs.leg(Server).is_finished && !legs.leg(Client).is_finished);
    legs.leg(Server).acts.extend([Act::Send(500), Act::End]);
    assert_eq!(run(&mut relay, at(9), &mut legs), RelayProgress::Over);
    assert_eq!((legs.leg(Server).written, legs.leg(Client).written), (3, 500));
    assert_eq!(relay.outcome(), Some(RelayOutcome::Closed));
    assert_eq!(legs.gone(), [Some(Gone::Closed); 2]);
}

#[test]
fn a_failure_before_the_end_is_a_reset_of_the_other_side() {
    for failure in [TIMED_OUT, LegFailure::Reset(ResetReason::TimedOut)] {
        for (acts, noticed) in [(vec![Act::Send(9), Act::Fail(failure)], false), (vec![], true)] {
            let (mut relay, mut legs) = (Relay::default(), Script::new(&[Act::End], &acts));
            run(&mut relay, at(0), &mut legs);
            if noticed {
                fail(&mut relay, &mut legs, Server, failure);
            }
            assert_eq!(run(&mut relay, at(1), &mut legs), RelayProgress::Over);
            assert_eq!(relay.outcome(), Some(RelayOutcome::Reset(ResetReason::TimedOut)));
            assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::TimedOut)); 2]);
        }
    }
}

#[test]
fn an_unreadable_leg_is_lost_even_if_it_has_closed() {
    let script = [Act::Fail(LegFailure::Closed)];
    let (mut relay, mut legs) = (Relay::default(), Script::new(&script, &[]));
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Over);
    assert_eq!(relay.outcome(), Some(RelayOutcome::Reset(ResetReason::Reset)));
}

#[test]
fn a_server_that_is_gone_after_its_reply_matters_only_if_there_is_data_for_it() {
    for late in [LegFailure::Closed, TIMED_OUT] {
        let mut relay = Relay::default();
        let mut legs = Script::new(&[], &[Act::Send(1000), Act::End]);
        run(&mut relay, at(0), &mut legs);
        relay.handle_failure(at(0), Server, late);
        assert_eq!(run(&mut relay, at(1), &mut legs), RelayProgress::Waiting);
        assert_eq!(legs.gone(), [None; 2], "the client may still be reading");

        legs.leg(Server).refusal = Some(late);
        legs.leg(Client).acts.extend([Act::Send(7), Act::Send(8)]);
        assert_eq!(run(&mut relay, at(2), &mut legs), RelayProgress::Waiting);
        assert!(matches!(legs.gone(), [None, Some(Gone::Reset(_))]));
        assert_eq!(legs.leg(Client).discarded, 8, "the first piece was read to be passed on");
        legs.leg(Client).acts.push_back(Act::End);
        assert_eq!(run(&mut relay, at(3), &mut legs), RelayProgress::Over);
        assert_eq!(legs.gone()[0], Some(Gone::Closed));
        assert!(matches!(relay.outcome(), Some(RelayOutcome::Reset(_))));
    }
}

#[test]
fn a_client_that_never_stops_sending_is_reset_in_the_end() {
    let mut relay = Relay::default();
    let mut legs = Script::new(&[Act::Send(1)], &[Act::End]);
    legs.leg(Server).refusal = Some(LegFailure::Closed);
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Waiting);
    let (until, why) = relay.poll_timeout().unwrap();
    assert_eq!((until, why), (at(0) + HALF_CLOSED_TIMEOUT, RelayWake::HalfClosed));
    legs.leg(Client).acts.push_back(Act::Send(1));
    assert_eq!(run(&mut relay, until, &mut legs), RelayProgress::Over);
    assert_eq!(legs.gone()[0], Some(Gone::Reset(ResetReason::Reset)));
}

/// The client has closed and answers with RST; what it sent still waits for room at the server.
fn closed_client_with_data_left(server: &[Act]) -> (Relay, Script) {
    let mut legs = Script::new(&[Act::Send(900), Act::End], server);
    legs.leg(Server).room = 0;
    legs.leg(Client).refusal = Some(LegFailure::Closed);
    (Relay::default(), legs)
}

#[test]
fn data_for_a_closed_client_is_discarded_while_its_own_data_waits_for_room() {
    let (mut relay, mut legs) =
        closed_client_with_data_left(&[Act::Send(1), Act::Send(20), Act::Send(30), Act::End]);
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Waiting);
    assert_eq!(legs.leg(Server).discarded, 50, "or the other gateway would never read");
    assert_eq!((legs.gone(), relay.poll_timeout()), ([None; 2], None), "the server may be slow");

    legs.leg(Server).room = 1000;
    assert_eq!(run(&mut relay, at(90_000), &mut legs), RelayProgress::Over);
    assert!(legs.leg(Server).written == 900 && legs.leg(Server).is_finished);
    assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::Reset)), Some(Gone::Closed)]);
}

#[test]
fn a_server_that_sends_to_a_closed_client_must_take_what_the_client_sent() {
    let (mut relay, mut legs) = closed_client_with_data_left(&[Act::Send(1), Act::Send(20)]);
    let mut now = at(0);
    assert_eq!(run(&mut relay, now, &mut legs), RelayProgress::Waiting);
    for _ in 0..3 {
        now += HALF_CLOSED_TIMEOUT;
        legs.leg(Server).room = 1;
        legs.leg(Server).acts.push_back(Act::Send(20));
        assert_eq!(run(&mut relay, now, &mut legs), RelayProgress::Waiting, "it takes some");
    }
    now += HALF_CLOSED_TIMEOUT;
    legs.leg(Server).acts.push_back(Act::Send(20));
    assert_eq!(run(&mut relay, now, &mut legs), RelayProgress::Over);
    assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::Reset)); 2]);
}

#[test]
fn a_reset_stream_is_a_reset_whatever_has_ended_before() {
    let (mut relay, mut legs) = (Relay::default(), Script::new(&[], &[Act::End]));
    run(&mut relay, at(0), &mut legs);
    fail(&mut relay, &mut legs, Server, LegFailure::Reset(ResetReason::SessionLost));
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Over);
    assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::SessionLost)); 2]);
}

#[test]
fn a_client_answered_early_is_reset_only_when_the_driver_is_ready() {
    let refused = LegFailure::Reset(ResetReason::Refused);
    let (mut relay, mut legs) = (Relay::early(), Script::new(&[Act::Send(9)], &[]));
    run(&mut relay, at(0), &mut legs);
    relay.handle_failure(at(0), Server, refused);
    for _ in 0..2 {
        let progress = run(&mut relay, at(1), &mut legs);
        assert_eq!(progress, RelayProgress::Refused(ResetReason::Refused));
        assert_eq!(legs.gone(), [None; 2]);
    }
    relay.abort(ResetReason::Refused, &mut legs);
    assert_eq!(run(&mut relay, at(2), &mut legs), RelayProgress::Over);
    assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::Refused)); 2]);

    let (mut relay, mut legs) = (Relay::early(), Script::new(&[], &[]));
    relay.handle_accepted();
    fail(&mut relay, &mut legs, Server, refused);
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Over, "it was connected before");
}

#[test]
fn a_leg_stays_until_its_peer_has_acknowledged_everything() {
    let (mut relay, mut legs) = (Relay::default(), Script::new(&[Act::End], &[Act::End]));
    legs.leg(Client).owed = 1;
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Waiting);
    assert_eq!(
        (legs.gone(), relay.outcome()),
        ([None, Some(Gone::Closed)], Some(RelayOutcome::Closed))
    );
    let mut pauses = Vec::new();
    let mut now = at(0);
    for _ in 0..12 {
        let (look, why) = relay.poll_timeout().unwrap();
        assert_eq!(why, RelayWake::Delivery);
        pauses.push(look.saturating_since(now).as_millis());
        now = look;
        assert_eq!(run(&mut relay, now, &mut legs), RelayProgress::Waiting);
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000, 1000]);
    legs.leg(Client).owed = 0;
    assert_eq!(run(&mut relay, now, &mut legs), RelayProgress::Waiting, "between two looks");
    assert_eq!(run(&mut relay, now + LAST_POLL, &mut legs), RelayProgress::Over);
}

#[test]
fn a_full_leg_stops_the_reading_of_the_other() {
    let sent = [Act::Send(600), Act::Send(600), Act::Send(600), Act::End];
    let (mut relay, mut legs) = (Relay::default(), Script::new(&sent, &[]));
    legs.leg(Server).room = 700;
    assert_eq!(relay.handle(at(0), &mut legs), RelayProgress::Busy);
    assert_eq!(relay.handle(at(0), &mut legs), RelayProgress::Waiting, "it is full now");
    assert_eq!((legs.leg(Client).read, legs.leg(Server).written), (1200, 700), "one piece is held");
    assert!(!legs.leg(Server).is_finished);
    legs.leg(Server).room = 10_000;
    run(&mut relay, at(1), &mut legs);
    assert!(legs.leg(Server).written == 1800 && legs.leg(Server).is_finished);
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let failure = prop_oneof![
        Just(LegFailure::Closed),
        Just(TIMED_OUT),
        Just(LegFailure::Reset(ResetReason::SessionLost))
    ];
    let last = prop_oneof![4 => Just(Act::End), 1 => failure.prop_map(Act::Fail)];
    (prop::collection::vec((1usize..100_000).prop_map(Act::Send), 0..8), last).prop_map(
        |(mut acts, last)| {
            acts.push(last);
            acts
        },
    )
}

proptest! {
    #[test]
    fn no_byte_is_lost_and_both_legs_are_let_go_of(
        client in acts(),
        server in acts(),
        rooms in prop::collection::vec((0usize..150_000, 0usize..150_000), 1..10),
        noticed in prop::option::of(0usize..10),
        refusal in prop::option::of(any::<bool>()),
    ) {
        let sent = [&client, &server].map(|acts| {
            acts.iter().map(|act| if let Act::Send(bytes) = act { *bytes } else { 0 }).sum::<usize>()
        });
        let ends = [&client, &server].map(|acts| acts.last() == Some(&Act::End));
        let failures = [&client, &server].map(|acts| match acts.last() {
            Some(Act::Fail(failure)) => Some(*failure),
            _ => None,
        });
        let failing = LegSide::BOTH.into_iter().find(|side| failures[*side as usize].is_some());
        let (mut relay, mut legs) = (Relay::default(), Script::new(&client, &server));
        let mut now = at(0);
        for (step, (to_client, to_server)) in rooms.into_iter().enumerate() {
            (legs.leg(Client).room, legs.leg(Server).room) = (to_client, to_server);
            if let (3, Some(side)) = (step, refusal) {
                legs.leg(if side { Client } else { Server }).refusal = Some(LegFailure::Closed);
            }
            // A failure may be noticed before what came before it is read.
            if let (true, Some(side)) = (noticed == Some(step), failing)
                && let Some(failure) = failures[side as usize]
            {
                relay.handle_failure(now, side, failure);
            }
            run(&mut relay, now, &mut legs);
            now += Duration::from_millis(7);
        }
        for leg in LegSide::BOTH {
            legs.leg(leg).room = usize::MAX;
        }
        run(&mut relay, now, &mut legs);
        prop_assert_eq!(run(&mut relay, now + HALF_CLOSED_TIMEOUT, &mut legs), RelayProgress::Over);
        let whole = [legs.leg(Server).written, legs.leg(Client).written] == sent;
        prop_assert!(legs.gone().iter().all(Option::is_some));
        // If one side alone breaks, all that it sent before has reached the other.
        if let (Some(side), None) = (failing, refusal)
            && ends[side.other() as usize]
        {
            prop_assert_eq!(legs.leg(side.other()).written, sent[side as usize]);
        }
        match relay.outcome() {
            Some(RelayOutcome::Closed) => prop_assert!(whole && ends == [true; 2]),
            Some(RelayOutcome::Reset(_)) => prop_assert!(ends != [true; 2] || refusal.is_some()),
            None => prop_assert!(false, "no outcome"),
        }
    }
}
