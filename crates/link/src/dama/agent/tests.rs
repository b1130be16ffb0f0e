//! What an agent asks for.

use super::*;
use crate::dama::testkit::{config, terminal};

/// An agent on the SLACP paper's link: a cell per frame is 8 kbit/s.
fn agent(cra: u64, rbdc: u64, vbdc: u32, policy: CapacityPolicy) -> RequestAgent {
    let mut config = config(vec![terminal(cra, rbdc, vbdc)]);
    config.requests.policy = policy;
    RequestAgent::new(&config, 0)
}

fn by_rate(agent: &mut RequestAgent, frame: u64, arrived: u32, backlog: u32) -> Option<u64> {
    agent.handle_arrival(CellBacklog { rate: arrived, ..CellBacklog::default() });
    let request = agent.request(frame, CellBacklog { rate: backlog, ..CellBacklog::default() });
    request.rate.map(BitRate::bits_per_second)
}

fn by_volume(
    agent: &mut RequestAgent,
    frame: u64,
    arrived: u32,
    backlog: u32,
) -> Option<VolumeRequest> {
    agent.handle_arrival(CellBacklog { volume: arrived, ..CellBacklog::default() });
    agent.request(frame, CellBacklog { volume: backlog, ..CellBacklog::default() }).volume
}

/// 20 cells in 10 frames are 16 kbit/s.
#[test]
fn a_rate_is_what_came_in() {
    let mut agent = agent(0, 128_000, 0, CapacityPolicy::Classic);
    assert_eq!(by_rate(&mut agent, 10, 20, 20), Some(16_000));
}

#[test]
fn a_backlog_adds_to_the_rate_up_to_the_ceiling() {
    let mut agent = agent(0, 64_000, 0, CapacityPolicy::Classic);
    assert_eq!(by_rate(&mut agent, 10, 20, 60), Some(48_000));
    assert_eq!(by_rate(&mut agent, 20, 0, 600), Some(64_000));
}

/// Mistake: the window of what was asked for is shorter than the request period and thus empty, so
/// that the whole backlog is asked for again each time.
#[test]
fn a_backlog_that_was_asked_for_is_not_asked_for_again() {
    let mut agent = agent(0, 128_000, 0, CapacityPolicy::Classic);
    assert_eq!(by_rate(&mut agent, 10, 60, 60), Some(48_000));
    // All of it still waits, but the rate asked for brings it within these 10 frames.
    assert_eq!(by_rate(&mut agent, 20, 0, 60), Some(0));
}

/// Mistake: `request − CRA` on numbers without a sign wraps to the largest.
#[test]
fn what_cra_covers_is_not_asked_for() {
    let mut agent = agent(100_000, 128_000, 0, CapacityPolicy::Classic);
    assert_eq!(by_rate(&mut agent, 10, 20, 20), None);
    assert_eq!(by_rate(&mut agent, 20, 150, 150), Some(20_000));
}

/// The frames in which a constant rate is requested, with a request period.
fn steady(period: u32) -> (RequestAgent, Vec<u64>) {
    let mut config = config(vec![terminal(0, 128_000, 0)]);
    config.requests.period = period;
    let mut agent = RequestAgent::new(&config, 0);
    let cells = 2 * period;
    let opportunities = (1..=20).map(|n| n * u64::from(period));
    let requested = opportunities.filter(|frame| {
        let backlog = if *frame == u64::from(period) { cells } else { 0 };
        let rate = by_rate(&mut agent, *frame, cells, backlog);
        assert!(rate.is_none_or(|rate| rate == 16_000), "{rate:?}");
        rate.is_some()
    });
    let requested = requested.collect();
    (agent, requested)
}

#[test]
fn a_rate_is_repeated_halfway_to_its_time_out_and_ended() {
    let (mut agent, requested) = steady(6);
    // Twelve superframes are 24 frames.
    assert_eq!(requested[..4], [6, 18, 30, 42]);
    assert!(!agent.is_idle());
    assert_eq!(by_rate(&mut agent, 126, 0, 0), Some(0));
    assert!(agent.is_idle());
    assert_eq!(by_rate(&mut agent, 132, 0, 0), None);
}

/// Mistake: the first opportunity after half of the time-out, of which the next is after all of it.
#[test]
fn a_rate_outlives_the_loss_of_any_one_of_its_repeats() {
    for period in 1..=12 {
        let (_, requested) = steady(period);
        for repeats in requested.windows(3) {
            let without_one = repeats[2] - repeats[0];
            assert!(without_one <= 24, "every {period} frames: {requested:?}");
        }
    }
}

#[test]
fn a_volume_is_asked_for_once() {
    let mut agent = agent(0, 0, 512, CapacityPolicy::Classic);
    assert_eq!(by_volume(&mut agent, 10, 100, 100), Some(VolumeRequest::More(100)));
    assert_eq!(by_volume(&mut agent, 20, 31, 131), Some(VolumeRequest::More(31)));
    assert_eq!(by_volume(&mut agent, 30, 0, 131), None);
    agent.handle_volume_grant(32, 131);
    assert!(agent.is_idle());
    assert_eq!(by_volume(&mut agent, 40, 1_000, 1_000), Some(VolumeRequest::More(512)));
}

/// No request is lost silently: without a grant it is made again, absolutely.
#[test]
fn a_lost_volume_request_is_replaced() {
    let mut agent = agent(0, 0, 512, CapacityPolicy::Classic);
    assert_eq!(by_volume(&mut agent, 10, 100, 100), Some(VolumeRequest::More(100)));
    for frame in (20..110).step_by(10) {
        assert_eq!(by_volume(&mut agent, frame, 0, 100), None);
    }
    assert_eq!(by_volume(&mut agent, 110, 0, 100), Some(VolumeRequest::All(100)));
    assert_eq!(agent.replaced(), 1);
    assert_eq!(by_volume(&mut agent, 120, 0, 100), None);
}

#[test]
fn grants_that_come_slowly_are_no_reason_to_ask_again() {
    let mut agent = agent(0, 0, 512, CapacityPolicy::Classic);
    assert_eq!(by_volume(&mut agent, 10, 500, 500), Some(VolumeRequest::More(496)));
    for frame in (20..1_000).step_by(10) {
        agent.handle_volume_grant(frame, 1);
        let more = by_volume(&mut agent, frame, 0, 500 - frame as u32 / 10);
        assert!(!matches!(more, Some(VolumeRequest::All(_))), "{frame}: {more:?}");
    }
    assert_eq!(agent.replaced(), 0);
}

#[test]
fn the_rtt_aware_policy_asks_for_a_tenth_more() {
    let mut agent = agent(0, 128_000, 512, CapacityPolicy::RttAware);
    agent.handle_arrival(CellBacklog { rate: 20, volume: 30, ..CellBacklog::default() });
    let request = agent.request(10, CellBacklog { rate: 20, volume: 30, ..CellBacklog::default() });
    // 2.2 cells of 8 kbit/s, to the nearest 2 kbit/s.
    assert_eq!(request.rate, Some(BitRate::from_bits_per_second(18_000)));
    assert_eq!(request.volume, Some(VolumeRequest::All(33)));
    agent.handle_arrival(CellBacklog { volume: 10, ..CellBacklog::default() });
    let request = agent.request(20, CellBacklog { volume: 40, ..CellBacklog::default() });
    assert_eq!(request.volume, Some(VolumeRequest::More(11)));
}

/// Voice of 6 cells in 10 frames leaves 4 of the constant rate's 10 for streams of 24.
#[test]
fn rates_are_asked_for_beyond_what_is_left_of_the_constant_rate() {
    let mut agent = agent(8_000, 128_000, 0, CapacityPolicy::Classic);
    agent.handle_arrival(CellBacklog { constant: 6, rate: 24, ..CellBacklog::default() });
    let request =
        agent.request(10, CellBacklog { constant: 6, rate: 24, ..CellBacklog::default() });
    assert_eq!(request.rate, Some(BitRate::from_bits_per_second(16_000)));
}
