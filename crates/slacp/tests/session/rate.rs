//! Sending rates, reported by a modem or measured.

use core::time::Duration;

use crate::path::cases::{Case, first_round_trips, rate};
use crate::path::fades::Fade;
use crate::path::rivals::Rivals;
use crate::path::sharing::{Sharing, beside_udp};
use crate::path::tcp::Control;
use crate::path::varied::Varied;
use crate::path::{Path, Transfer, at, ms, queue_of};
use link::{Jitter, LinkConfig, LossModel};
use slacp::{Config, Rate, RateError, RateState};
use units::{BitRate, Probability};

const DELAY: Duration = Duration::from_millis(300);

/// A link of `mbit` Mbit/s with a queue of one BDP at 600 ms.
fn link(mbit: u64) -> LinkConfig {
    let rate = BitRate::from_mbit(mbit);
    LinkConfig::new(rate, DELAY, LossModel::None, queue_of(rate.bytes_in(DELAY * 2).get()))
}

/// Sessions that start sending at these times, indefinitely, over 50/10 Mbit/s.
fn sharing(starts: &[f64]) -> Path {
    let mut path = Path::new(link(50), link(10), 1);
    for (seed, start) in (1..).zip(starts) {
        let config = [Config::new(Rate::auto()), Config::new(BitRate::from_mbit(10))];
        path.add(Transfer::new(config, 1 << 40, at(*start), seed));
    }
    path
}

#[test]
fn a_reported_rate_takes_effect_at_once() {
    let mut path = Path::new(link(50), link(10), 1);
    let hub = Config::new(Rate::Modem { initial: BitRate::from_mbit(50) });
    let terminal = Config::new(BitRate::from_mbit(10));
    let flow = path.add(Transfer::new([hub, terminal], 1_000_000_000, at(1.0), 1));
    for (time, mbit) in [(5.0, 5), (10.0, 50)] {
        let rate = BitRate::from_mbit(mbit);
        path.change(at(time), move |path| {
            path.set_rate(rate);
            let (now, transfer) = (path.now, path.transfer(flow));
            let id = transfer.hub_id();
            transfer.hub.set_rate(now, id, rate, ms(60_000)).unwrap();
        });
    }
    path.run(at(15.0));
    // Within a round trip of the change the queue is empty and the link full.
    assert!(path.queue(flow, DELAY, 1.0, at(5.6), at(15.0)) <= ms(50));
    assert!(path.arrived(flow, at(5.9), at(9.9)) > 0.98 * 5.0);
    assert!(path.arrived(flow, at(10.6), at(15.0)) > 0.98 * 50.0);
    assert_eq!(path.loss(flow, at(1.0), at(14.0)), 0.0);
}

/// A misconfigured rate: the link's queue overflows and its losses are resent, but the link stays
/// full of data that has not arrived yet.
#[test]
fn a_fixed_rate_that_is_too_high_loses_nothing_for_good() {
    const BYTES: u64 = 10_000_000;
    let limit = 0.6 + BYTES as f64 * 8.0 / 50e6;
    for (mbit, slower) in [(55, 1.05), (75, 1.2), (100, 1.4)] {
        let mut path = Path::new(link(50), link(10), 1);
        let config = [Config::new(BitRate::from_mbit(mbit)), Config::new(BitRate::from_mbit(10))];
        let flow = path.add(Transfer::new(config, BYTES, at(1.0), 1));
        path.run(at(20.0));
        let transfer = path.transfer(flow);
        let (opened, done) = (transfer.opened.unwrap(), transfer.done.expect("all has come"));
        let time = done.saturating_since(opened).as_secs_f64();
        assert!(time < limit * slower, "{mbit} Mbit/s: {time} s");
    }
}

#[test]
fn only_a_modem_tells_rates() {
    let mut path = sharing(&[1.0]);
    path.run(at(3.0));
    let (now, transfer) = (path.now, path.transfer(0));
    let id = transfer.hub_id();
    let answer = transfer.hub.set_rate(now, id, BitRate::from_mbit(5), ms(1000));
    assert_eq!(answer, Err(RateError::NotFromModem));
}

/// Checks that a case takes at most `seconds`, and that its start loses at most 2 %.
fn takes_at_most(case: &Case, seconds: f64) {
    // A link without losses is deterministic.
    for seed in 1..=if case.per > 0.0 { 3 } else { 1 } {
        let run = case.run(seed);
        assert!(run.seconds <= seconds, "seed {seed}: {case:?}: {run:?}");
        assert!(run.start_loss <= 0.02, "seed {seed}: {case:?}: {run:?}");
        // Even the slowest links need an occasional acknowledgement.
        assert!(run.returned <= 0.012, "seed {seed}: {case:?}: {run:?}");
    }
}

#[test]
fn an_unknown_fast_link_is_found_in_three_round_trips() {
    takes_at_most(&Case::geo("cold", 250.0, 3.0), 5.8);
    takes_at_most(&Case { per: 0.01, ..Case::geo("1 % loss", 250.0, 3.0) }, 6.2);
    takes_at_most(&Case { queue: 100, ..Case::geo("short queue", 250.0, 3.0) }, 6.2);
}

/// MTU probes are in flight in the first seconds.
#[test]
fn a_link_is_found_whenever_there_are_data_first() {
    for tenths in (5..70).step_by(5) {
        let start = f64::from(tenths) / 10.0;
        let mut path = sharing(&[start]);
        path.run(at(start + 6.0));
        let transfer = path.transfer(0);
        let stats = transfer.hub.stats(transfer.hub_id()).unwrap();
        assert_eq!(stats.rate_state, RateState::Cruising, "{start} s: {stats:?}");
    }
}

#[test]
fn ninety_percent_of_an_unknown_link_are_used_after_three_round_trips() {
    // One BDP, a quarter of it, and 100 packets. The benchmark runs 50 seeds.
    for queue in [0, 3125, 100] {
        for seed in 1..=2 {
            let (used, lost) = first_round_trips(queue, seed);
            assert!(used > 0.9 && lost < 0.02, "{queue}, seed {seed}: {used}, {lost}");
        }
    }
}

#[test]
fn a_remembered_link_is_used_from_the_first_round_trip() {
    takes_at_most(&Case::geo("resumed", 250.0, 3.0).resumed(250.0), 4.5);
}

#[test]
fn a_wrong_memory_costs_little() {
    let case = Case { bytes: 50_000_000, ..Case::geo("wrong", 25.0, 3.0) }.resumed(250.0);
    let run = case.run(1);
    assert!(run.of_limit > 0.92 && run.start_loss < 0.1, "{run:?}");
    let run = Case { queue: 312, ..case }.run(1);
    assert!(run.of_limit > 0.92 && run.start_loss <= 0.1, "queue of 1/4 BDP: {run:?}");
    // A remembered rate that is too low is outgrown.
    assert!(Case::geo("small", 250.0, 3.0).resumed(25.0).run(1).seconds < 7.5);
    // The memory of another path is not used.
    let mut moved = Case::geo("moved", 50.0, 10.0).resumed(250.0);
    moved.delay = ms(100);
    let run = moved.run(1);
    assert!(run.start_loss == 0.0 && run.of_limit > 0.9, "{run:?}");
}

#[test]
fn ordinary_links_are_filled() {
    for case in [
        Case::geo("50/10", 50.0, 10.0),
        Case { bytes: 30_000_000, ..Case::geo("10/2", 10.0, 2.0) },
        Case { bytes: 10_000_000, ..Case::geo("2/10", 2.0, 10.0) },
        Case { bytes: 5_000_000, ..Case::geo("1/1", 1.0, 1.0) },
        Case::geo("50/0.064", 50.0, 0.064),
        Case { bytes: 400_000_000, ..Case::geo("1000/10", 1000.0, 10.0) },
        Case { delay: ms(10), leo: true, ..Case::geo("LEO", 150.0, 20.0) },
    ] {
        let limit = if case.mbit.0 > 500.0 { 0.48 } else { 0.9 };
        let run = case.run(1);
        assert!(run.of_limit > limit && run.start_loss <= 0.02, "{case:?}: {run:?}");
        // Small against the round trip; on a slow link a few packets are more.
        let packets = Duration::from_secs_f64(20.0 * 0.012 / case.mbit.0);
        assert!(run.queue <= ms(35) + packets, "{case:?}: {run:?}");
        assert!(run.returned <= 0.012, "{case:?}: {run:?}");
    }
}

#[test]
fn chance_does_not_look_like_congestion() {
    for per in [0.01, 0.05, 0.1] {
        let case = Case { per, bytes: 60_000_000, ..Case::geo("loss", 50.0, 10.0) };
        let (auto, fixed) = (case.run(1), case.clone().fixed().run(1));
        assert!(auto.seconds < fixed.seconds + 1.5, "{per}: {auto:?} {fixed:?}");
    }
}

#[test]
fn the_overflow_of_a_short_queue_does_not_look_like_chance() {
    for per in [0.0, 0.02] {
        let leo = Case { delay: ms(20), ..Case::geo("short queue", 100.0, 10.0) };
        let run = Case { per, queue: 10, bytes: 150_000_000, ..leo }.run(1);
        assert!(run.lost < 0.1 && run.of_limit > 0.85, "{per}: {run:?}");
    }
}

#[test]
fn what_a_token_bucket_drops_does_not_look_like_chance() {
    // On 100 and on 1000 Mbit/s; the benchmark has the others.
    for link in Varied::all_policed().into_iter().step_by(5) {
        let came = link.run(false, 1);
        assert!(came.goodput > 0.9 * link.mbit && came.lost < 0.02, "{} {came:?}", link.name);
    }
}

#[test]
fn a_token_bucket_hides_no_losses_by_chance() {
    let mut link = Varied::all_policed().swap_remove(0);
    link.link.loss = LossModel::Per(Probability::new(0.02).unwrap());
    let came = link.run(false, 1);
    assert!(came.goodput > 0.85 * link.mbit && came.lost < 0.05, "{came:?}");
}

#[test]
fn jitter_and_slots_do_not_look_like_congestion() {
    for case in [
        Case { jitter: Jitter::InOrder(ms(2)), ..Case::geo("jitter", 50.0, 10.0) },
        Case { jitter: Jitter::Reordering(ms(2)), ..Case::geo("reordering", 50.0, 10.0) },
        Case { jitter: Jitter::Reordering(ms(20)), ..Case::geo("reordering", 50.0, 10.0) },
        Case { slot: Some(26), ..Case::geo("slots", 50.0, 10.0) },
        Case { slot: Some(26), ..Case::geo("slots", 6.0, 1.0) },
        Case { slot: Some(100), ..Case::geo("slots", 6.0, 1.0) },
    ] {
        let case = Case { bytes: (case.mbit.0 * 2e6) as u64, ..case };
        let run = case.run(1);
        assert!(run.of_limit > 0.84, "{case:?}: {run:?}");
    }
}

#[test]
fn a_fade_is_followed() {
    for fade in [
        Fade::step("a queue of 1 BDP", ms(600)),
        Fade::step("a queue of 100 ms", ms(100)),
        Fade::ramp("ten steps in 10 s", 10.0),
    ] {
        let followed = fade.run(1);
        let context = format!("{}: {followed:?}", fade.name);
        // Two round trips and a quarter of a second after what was in flight has left at the
        // earliest, and three after the rate is back: four times a second a packet answers the
        // receiver's question and measures nothing. The benchmark runs more seeds.
        assert!(followed.calm <= followed.earliest + 1.45, "{context}");
        assert!(followed.full <= 1.8 && followed.used > 0.97, "{context}");
    }
}

#[test]
fn a_path_may_become_longer_and_shorter() {
    let mut path = sharing(&[2.0]);
    path.set_delay(ms(10));
    path.change(at(8.0), |path| path.set_delay(ms(300)));
    path.change(at(16.0), |path| path.set_delay(ms(10)));
    path.run(at(24.0));
    // Until trains have found room for some feedback times, a longer path may as well be a queue: from
    // 9.5 to 12 s the session sends 25 to 36 Mbit/s, from 12 s on 49.5.
    for (from, to) in [(3.0, 8.0), (11.5, 16.0), (17.0, 23.5)] {
        let rate = path.arrived(0, at(from), at(to));
        assert!(rate > 0.95 * 50.0, "{rate} from {from} s on");
    }
    let longest = |delay, from: f64, to: f64| path.queue(0, delay, 0.95, at(from), at(to));
    assert!(longest(ms(300), 11.0, 15.0) < ms(60) && longest(ms(10), 18.0, 23.0) < ms(60));
}

#[test]
fn the_queue_of_a_long_download_stays_short() {
    let mut path = sharing(&[0.5]);
    path.run(at(120.0));
    let queue = |from: f64| path.queue(0, DELAY, 0.95, at(from), at(from + 20.0));
    let (early, late) = (queue(10.0), queue(95.0));
    assert!(late < ms(12) && late < early + ms(3), "{early:?} {late:?}");
}

#[test]
fn two_sessions_share_a_link_evenly() {
    // With seed 2 the later session has to correct losses that it took for random while a queue was
    // standing.
    for (later, nearer, seed) in [(8.0, false, 1), (3.0, true, 1), (3.0, false, 2)] {
        let shared = Sharing { later, nearer }.run(seed);
        let least = shared.jain.iter().copied().fold(1.0, f64::min);
        assert!(least > 0.9 && shared.least > 0.65, "{later}, {nearer}: {shared:?}");
        assert!(shared.used > 0.98 && shared.queue < ms(50), "{later}, {nearer}: {shared:?}");
    }
}

#[test]
fn what_others_leave_is_used_without_a_standing_queue() {
    let (share, queue) = beside_udp(25.0, 1);
    assert!(share > 0.9 && queue < ms(50), "{share}, {queue:?}");
}

#[test]
fn a_loss_based_tcp_leaves_its_share_and_gets_its_own() {
    let shared = Rivals { control: Control::Cubic, count: 1 }.run(1);
    let third = 1.0 / 3.0;
    assert!(shared.session > third && shared.least > third, "{shared:?}");
}

#[test]
fn a_path_is_measured_before_there_is_data() {
    for (mbit, most) in [(50.0, 400_000), (2.0, 30_000), (0.064, 8_000)] {
        let case = Case::geo("idle", mbit, 10.0);
        let mut path = Path::new(case.forward(), link(10), 1);
        let config = [Config::new(Rate::auto()), Config::new(BitRate::from_mbit(10))];
        path.add(Transfer::new(config, 1, at(60.0), 1));
        path.run(at(6.0));
        let stats = path.transfer(0).hub_stats();
        let capacity = stats.capacity.expect("it is measured").bits_per_second() as f64 / 1e6;
        assert!((capacity / mbit - 1.0).abs() < 0.03, "{mbit}: {stats:?}");
        assert!((1..most).contains(&stats.padding_bytes), "{mbit}: {stats:?}");
    }
}

#[test]
fn measurements_are_reported() {
    let mut path = sharing(&[2.0]);
    path.run(at(10.0));
    let now = path.now;
    let transfer = path.transfer(0);
    let stats = transfer.hub_stats();
    assert_eq!(stats.rate_state, RateState::Cruising);
    let close = |measured: BitRate| (measured.bits_per_second() as f64 / 50e6 - 1.0).abs() < 0.05;
    assert!(close(stats.rate) && close(stats.capacity.unwrap()), "{stats:?}");
    assert!(stats.min_rtt.unwrap().abs_diff(ms(600)) < ms(3), "{stats:?}");
    assert!(stats.queue < ms(50), "{stats:?}");
    let memory = transfer.hub.path_memory(now, transfer.hub_id()).unwrap();
    assert_eq!(Some(memory.capacity), stats.capacity);
    assert!(memory.age < ms(100));
    let session = transfer.session.unwrap();
    assert_eq!(transfer.terminal.path_memory(now, session), None);
    assert_eq!(rate(50.0), BitRate::from_mbit(50));
}
