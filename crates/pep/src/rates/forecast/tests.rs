use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// What is asked for ahead while nothing waits.
fn asked(forecast: &MessageForecast<u32>) -> u64 {
    forecast.foreseen(ByteCount::default()).get()
}

/// How many forecasts that were asked for came true and failed.
fn number(forecast: &MessageForecast<u32>) -> [u64; 2] {
    let ForecastCounts { used, unused, .. } = forecast.counts();
    [used, unused]
}

/// A request of 1000 bytes at each of these times in ms, with a reply 600 ms after each but the last.
fn exchange(forecast: &mut MessageForecast<u32>, key: u32, times: &[u64]) {
    for (number, ms) in times.iter().enumerate() {
        forecast.handle_sent(at(*ms), key, 1000);
        if number + 1 < times.len() {
            forecast.handle_received(at(ms + 600), key);
        }
    }
}

#[test]
fn the_third_request_of_a_connection_is_foreseen_when_the_second_leaves() {
    let mut forecast = MessageForecast::default();
    exchange(&mut forecast, 1, &[0, 1_000]);
    assert_eq!(asked(&forecast), 1_300);
    forecast.handle_received(at(1_600), 1);
    exchange(&mut forecast, 1, &[2_000]);
    assert_eq!(number(&forecast), [2, 0]);
    assert_eq!(asked(&forecast), 1_300, "the fourth");
}

/// Until any connection has had two, the second is asked for half a second after the first, and then
/// a round before it comes on the connection before.
#[test]
fn the_second_request_of_a_connection_is_foreseen_by_those_before() {
    let mut forecast = MessageForecast::default();
    forecast.handle_sent(at(0), 1, 1_000);
    for (ms, bytes) in [(500, 1_300), (800, 2_600)] {
        assert_eq!(forecast.poll_timeout(), Some((at(ms), Wake::Forecast)));
        forecast.handle_timeout(at(ms));
        assert_eq!(asked(&forecast), bytes);
    }
    forecast.handle_received(at(2_000), 1);
    exchange(&mut forecast, 1, &[2_600]);
    forecast.remove(1);
    assert_eq!(number(&forecast), [1, 0]);
    forecast.handle_sent(at(10_000), 2, 1_000);
    assert_eq!(forecast.poll_timeout(), Some((at(11_300), Wake::Forecast)));
}

#[test]
fn after_connections_with_one_request_no_second_one_is_foreseen() {
    let mut forecast = MessageForecast::default();
    for key in 0..100 {
        forecast.handle_sent(at(0), key, 1_000);
    }
    forecast.handle_timeout(at(900));
    assert_eq!(asked(&forecast), 4_096 / 1_300 * 1_300, "half of the budget is for others");
    for key in 0..100 {
        forecast.handle_received(at(1_000), key);
        forecast.remove(key);
    }
    assert_eq!(number(&forecast), [0, 3]);
    forecast.handle_sent(at(2_000), 200, 1_000);
    assert_eq!(forecast.poll_timeout(), None);
    // It takes three connections with two messages to foresee second ones again.
    for key in 201..204 {
        exchange(&mut forecast, key, &[3_000, 4_000]);
        forecast.remove(key);
    }
    forecast.handle_sent(at(5_000), 300, 1_000);
    assert_eq!(forecast.poll_timeout(), Some((at(7_300), Wake::Forecast)));
    assert_eq!(asked(&forecast), 0, "foreseen, but what is left of the budget is for others");
}

#[test]
fn a_message_in_several_parts_is_one_and_a_long_one_counts_as_a_packet() {
    let mut forecast = MessageForecast::default();
    for ms in [0, 1_000] {
        for part in 0..3 {
            forecast.handle_sent(at(ms + part), 1, 200);
        }
        forecast.handle_received(at(ms + 200), 1);
    }
    assert_eq!(asked(&forecast), 900);
    forecast.handle_sent(at(2_000), 1, 1_000_000);
    assert_eq!(asked(&forecast), 1_580);
}

#[test]
fn a_message_is_asked_for_a_round_ahead_and_once_more() {
    let mut forecast = MessageForecast::default();
    exchange(&mut forecast, 1, &[0, 3_000, 6_000]);
    forecast.handle_received(at(6_600), 1);
    assert_eq!(asked(&forecast), 0, "it is expected in three seconds");
    for (ms, bytes) in [(7_700, 1_300), (8_000, 2_600), (10_300, 0)] {
        assert_eq!(forecast.poll_timeout(), Some((at(ms), Wake::Forecast)));
        forecast.handle_timeout(at(ms));
        assert_eq!(asked(&forecast), bytes);
    }
    assert_eq!(forecast.poll_timeout(), None);
    exchange(&mut forecast, 2, &[20_000, 40_000]);
    assert_eq!(forecast.poll_timeout(), None, "too far ahead");
}

/// The first request has waited for its grant, and the second, which was foreseen, has not.
#[test]
fn the_third_request_is_expected_sooner_after_the_second_than_that_after_the_first() {
    let mut forecast = MessageForecast::default();
    exchange(&mut forecast, 1, &[0, 2_600]);
    assert_eq!(forecast.poll_timeout(), Some((at(2_600 + 2_600 - 1_300 - 800), Wake::Forecast)));
    // Here the second was not foreseen: it was long in coming.
    let mut forecast = MessageForecast::default();
    exchange(&mut forecast, 1, &[0, 9_000]);
    assert_eq!(forecast.poll_timeout(), Some((at(9_000 + 9_000 - 1_300), Wake::Forecast)));
}

#[test]
fn a_one_way_transfer_is_not_foreseen() {
    let mut forecast = MessageForecast::default();
    for ms in 0..5_000 {
        forecast.handle_sent(at(ms), 1, 1_000);
        forecast.handle_received(at(ms), 2);
        assert_eq!(asked(&forecast), 0);
    }
    assert_eq!(forecast.poll_timeout(), None);
}

#[test]
fn nothing_is_asked_for_ahead_while_the_link_is_loaded() {
    let mut forecast = MessageForecast::default();
    exchange(&mut forecast, 1, &[0, 1_000]);
    assert_eq!(forecast.foreseen(LOADED).get(), 1_300);
    assert_eq!(forecast.foreseen(ByteCount::new(LOADED.get() + 1)).get(), 0);
}

#[test]
fn a_message_that_does_not_come_is_forgotten_and_the_next_one_is_not_asked_for() {
    let mut forecast = MessageForecast::default();
    exchange(&mut forecast, 1, &[0, 1_000]);
    forecast.handle_timeout(at(2_500));
    assert_eq!(forecast.poll_timeout(), Some((at(3_300), Wake::Forecast)));
    forecast.handle_received(at(2_500), 1);
    assert_eq!(forecast.poll_timeout(), Some((at(3_800), Wake::Forecast)), "a late reply");
    forecast.handle_timeout(at(3_800));
    assert_eq!((asked(&forecast), forecast.poll_timeout()), (0, None));
    assert_eq!(number(&forecast), [1, 1]);
    // One that comes true unasked makes up for it.
    exchange(&mut forecast, 1, &[6_000]);
    assert_eq!(asked(&forecast), 0);
    forecast.handle_received(at(6_500), 1);
    exchange(&mut forecast, 1, &[7_000]);
    assert_eq!(asked(&forecast), 1_300);
}

#[test]
fn after_connections_with_two_requests_no_third_one_is_asked_for() {
    let mut forecast = MessageForecast::default();
    for key in 0..100 {
        exchange(&mut forecast, key, &[0, 1_000]);
        forecast.remove(key);
    }
    assert_eq!(number(&forecast), [100, 1], "the second of each");
    // Connections on which it would have been right change that.
    for key in 200..203 {
        exchange(&mut forecast, key, &[2_000, 3_000, 4_000]);
        forecast.remove(key);
    }
    exchange(&mut forecast, 300, &[5_000, 6_000]);
    assert_eq!(asked(&forecast), 1_300);
}

#[test]
fn forecasts_that_fail_use_up_the_budget() {
    let mut forecast = MessageForecast::default();
    // What was learned never keeps it from asking.
    for key in 0..100 {
        (forecast.habits.scores[0], forecast.habits.scores[1]) = (-REMEMBERED, REMEMBERED);
        exchange(&mut forecast, key, &[0, 1_000]);
        forecast.remove(key);
    }
    assert_eq!(number(&forecast), [0, INITIAL_BUDGET / 1_300]);
    // Connections on which it would have been right bring it back.
    exchange(&mut forecast, 200, &[2_000, 3_000, 4_000]);
    assert!(asked(&forecast) > 0);
}

#[test]
fn connections_are_bounded() {
    let mut forecast = MessageForecast::default();
    for key in 0..2 * MOST_CONNECTIONS as u32 {
        exchange(&mut forecast, key, &[0, 1_000]);
    }
    assert_eq!(forecast.connections.len(), MOST_CONNECTIONS);
    assert!(asked(&forecast) <= INITIAL_BUDGET + forecast.counts().true_bytes.get());
}

#[derive(Debug, Clone, Copy)]
enum Input {
    Sent(u32, usize),
    Received(u32),
    Removed(u32),
}

fn input() -> impl Strategy<Value = (u64, Input)> {
    let input = prop_oneof![
        4 => (0..6u32, 1..5_000usize).prop_map(|(key, bytes)| Input::Sent(key, bytes)),
        4 => (0..6u32).prop_map(Input::Received),
        1 => (0..6u32).prop_map(Input::Removed),
    ];
    (0..1_500u64, input)
}

proptest! {
    /// What is foreseen in vain never exceeds what came true by more than the initial budget, and
    /// the same inputs give the same forecasts.
    #[test]
    fn failed_forecasts_are_bounded(inputs in prop::collection::vec(input(), 0..400)) {
        let mut twins = [MessageForecast::default(), MessageForecast::default()];
        let mut now = 0;
        for (pause, input) in inputs {
            now += pause;
            for forecast in &mut twins {
                match input {
                    Input::Sent(key, bytes) => forecast.handle_sent(at(now), key, bytes),
                    Input::Received(key) => forecast.handle_received(at(now), key),
                    Input::Removed(key) => forecast.remove(key),
                }
                let next = || forecast.connections.values().filter_map(|known| known.next);
                let live: u64 = next().map(|next| next.all()).sum();
                prop_assert_eq!(live, asked(forecast));
                prop_assert_eq!(next().count(), forecast.dues.len());
                let ForecastCounts { true_bytes, unused_bytes, .. } = forecast.counts();
                prop_assert!(unused_bytes.get() + live <= INITIAL_BUDGET + true_bytes.get());
            }
            prop_assert_eq!(twins[0].counts(), twins[1].counts());
            prop_assert_eq!(asked(&twins[0]), asked(&twins[1]));
        }
    }
}
