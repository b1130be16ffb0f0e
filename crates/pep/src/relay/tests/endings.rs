//! What is sent before a reset is delivered before it.

use super::*;

const RESET: LegFailure = LegFailure::Broken(ResetReason::Reset);

/// A server that has sent something and closed its socket before it had read everything: its kernel
/// has sent a RST, and ours holds what came before that.
fn answered_and_reset(answer: &[Act]) -> (Relay, Script) {
    let (mut relay, legs) = (Relay::default(), Script::new(&[], answer));
    relay.handle_failure(at(0), Server, RESET);
    (relay, legs)
}

#[test]
fn what_a_kernel_holds_when_its_connection_fails_is_delivered_before_the_reset() {
    // The kernel reports its error once: it may have done so already.
    for last in [Act::Fail(RESET), Act::End] {
        let (mut relay, mut legs) = answered_and_reset(&[Act::Send(300), Act::Send(7), last]);
        assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Over);
        assert_eq!(legs.leg(Client).written, 307);
        assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::Reset)); 2]);
        assert!(!legs.leg(Client).is_finished, "a reset is no end");
        assert_eq!(relay.outcome(), Some(RelayOutcome::Reset(ResetReason::Reset)));
    }
}

#[test]
fn a_write_that_fails_loses_nothing_of_what_its_leg_has_sent() {
    let acts = [Act::Send(300), Act::End];
    let (mut relay, mut legs) = (Relay::default(), Script::new(&[Act::Send(1)], &acts));
    legs.leg(Server).refusal = Some(RESET);
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Over);
    assert_eq!(legs.leg(Client).written, 300);
    assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::Reset)); 2]);
}

#[test]
fn a_leg_is_reset_only_when_its_peer_has_acknowledged_everything() {
    let (mut relay, mut legs) = answered_and_reset(&[Act::Send(300), Act::End]);
    legs.leg(Client).owed = 300;
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Waiting);
    assert_eq!(legs.gone(), [None, Some(Gone::Reset(ResetReason::Reset))]);
    let (look, why) = relay.poll_timeout().unwrap();
    assert_eq!((look, why), (at(0) + FIRST_POLL, RelayWake::Reset));
    legs.leg(Client).owed = 0;
    assert_eq!(run(&mut relay, look, &mut legs), RelayProgress::Over);
    assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::Reset)); 2]);
}

/// Runs the relay at each of its times, as long as it waits; returns when it is over.
fn run_to_the_end(relay: &mut Relay, legs: &mut Script, each: impl Fn(&mut Script)) -> Instant {
    let mut now = at(0);
    while run(relay, now, legs) == RelayProgress::Waiting {
        each(legs);
        now = relay.poll_timeout().expect("it waits for nothing else").0;
    }
    now
}

#[test]
fn a_reader_that_takes_nothing_is_reset_at_the_limit() {
    for owed in [0, 300] {
        let (mut relay, mut legs) = answered_and_reset(&[Act::Send(300), Act::End]);
        let leg = legs.leg(Client);
        (leg.room, leg.owed) = (owed as usize, owed);
        let end = run_to_the_end(&mut relay, &mut legs, |_| {});
        assert_eq!(end, at(0) + HALF_CLOSED_TIMEOUT);
        assert_eq!(legs.gone(), [Some(Gone::Reset(ResetReason::Reset)); 2]);
    }
}

#[test]
fn a_slow_reader_gets_everything_however_long_it_takes() {
    // Its kernel acknowledges 1 byte at each look, and there is room for the rest only when it has
    // acknowledged all of them.
    let (mut relay, mut legs) = answered_and_reset(&[Act::Send(300), Act::End]);
    let leg = legs.leg(Client);
    (leg.room, leg.owed) = (200, 200);
    let end = run_to_the_end(&mut relay, &mut legs, |legs| {
        let leg = legs.leg(Client);
        leg.owed = leg.owed.saturating_sub(1);
        leg.room += if leg.owed == 0 { 100 } else { 0 };
    });
    assert!(end > at(0) + 3 * HALF_CLOSED_TIMEOUT, "{end:?}");
    assert_eq!(legs.leg(Client).written, 300);
}

#[test]
fn a_client_that_writes_before_it_reads_may_finish_that() {
    let (mut relay, mut legs) = answered_and_reset(&[Act::Send(300), Act::End]);
    (legs.leg(Client).owed, legs.leg(Client).room) = (100, 100);
    legs.leg(Client).acts.extend([Act::Send(4000), Act::Send(500)]);
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Waiting);
    assert_eq!(legs.leg(Client).discarded, 4500);
    (legs.leg(Client).owed, legs.leg(Client).room) = (0, 1000);
    assert_eq!(run(&mut relay, at(1000), &mut legs), RelayProgress::Over);
    assert_eq!(legs.leg(Client).written, 300);
}

#[test]
fn nothing_waits_for_a_reader_that_is_gone() {
    for last in [Act::Fail(RESET), Act::Fail(TIMED_OUT)] {
        let (mut relay, mut legs) = answered_and_reset(&[Act::Send(300), Act::End]);
        legs.leg(Client).room = 0;
        legs.leg(Client).acts.push_back(last);
        assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Over);
    }
    let (mut relay, mut legs) = answered_and_reset(&[Act::Send(300), Act::End]);
    legs.leg(Client).refusal = Some(LegFailure::Reset(ResetReason::Reset));
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Over);
}

#[test]
fn a_slow_client_of_a_server_that_is_gone_has_its_end_before_it_is_reset() {
    let acts = [Act::Send(1), Act::Send(1)];
    let (mut relay, mut legs) = (Relay::default(), Script::new(&acts, &[Act::Send(9), Act::End]));
    legs.leg(Server).refusal = Some(LegFailure::Closed);
    legs.leg(Client).owed = 9;
    assert_eq!(run(&mut relay, at(0), &mut legs), RelayProgress::Waiting);
    let until = at(0) + HALF_CLOSED_TIMEOUT;
    assert_eq!(relay.poll_timeout(), Some((until, RelayWake::HalfClosed)));
    assert_eq!(run(&mut relay, until, &mut legs), RelayProgress::Waiting);
    assert_eq!(legs.gone()[0], None, "it still reads");
    legs.leg(Client).owed = 0;
    assert_eq!(run(&mut relay, until + LAST_POLL, &mut legs), RelayProgress::Over);
    assert_eq!(legs.gone()[0], Some(Gone::Reset(ResetReason::Reset)));
}
