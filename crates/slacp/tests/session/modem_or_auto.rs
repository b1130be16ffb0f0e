//! Rates that a modem reports at times, and that are measured otherwise.

use core::time::Duration;

use crate::luck::ReportEnds;
use crate::path::cases::rate;
use crate::path::{Path, Transfer, at, ms, queue_of};
use link::{LinkConfig, LossModel};
use slacp::{Config, EcnState, Rate, RateError, RateState, SessionStats};
use units::Instant;

const DELAY: Duration = Duration::from_millis(300);
const MBIT: f64 = 50.0;
const MODEM: Rate = Rate::ModemOrAuto { ceiling: None, probe: true };

/// A link with a queue of one BDP at 600 ms.
fn link(mbit: f64) -> LinkConfig {
    LinkConfig::new(
        rate(mbit),
        DELAY,
        LossModel::None,
        queue_of(rate(mbit).bytes_in(DELAY * 2).get()),
    )
}

/// A hub sends over 50/10 Mbit/s without end, from `start` on.
fn download(from: Rate, start: f64) -> Path {
    download_over(MBIT, from, start)
}

fn download_over(mbit: f64, from: Rate, start: f64) -> Path {
    let mut path = Path::new(link(mbit), link(10.0), 1);
    let config = [Config::new(from), Config::new(rate(10.0))];
    path.add(Transfer::new(config, 1 << 40, at(start), 1));
    path
}

fn run(path: &mut Path, until: f64) {
    path.run(at(until));
    path.now = at(until);
}

/// Reports a rate for some seconds.
fn report(path: &mut Path, mbit: f64, seconds: f64) {
    let now = path.now;
    let transfer = path.transfer(0);
    let session = transfer.hub_id();
    let valid_for = Duration::from_secs_f64(seconds);
    transfer.hub.set_rate(now, session, rate(mbit), valid_for).unwrap();
}

fn withdraw(path: &mut Path) {
    let now = path.now;
    let transfer = path.transfer(0);
    let session = transfer.hub_id();
    transfer.hub.expire_rate(now, session).unwrap();
}

fn stats(path: &mut Path) -> SessionStats {
    path.transfer(0).hub_stats()
}

fn is_measured(state: RateState) -> bool {
    matches!(state, RateState::Cruising | RateState::Draining)
}

/// The longest pause between two arrivals in a time.
fn longest_pause(path: &Path, from: f64, until: f64) -> Duration {
    let arrived = path.records.arrived_between(0, at(from), at(until));
    let times: Vec<Instant> = arrived.filter_map(|record| record.arrived).collect();
    let pauses = times.windows(2).map(|pair| pair[1].saturating_since(pair[0]));
    pauses.max().unwrap_or(Duration::MAX)
}

#[test]
fn without_a_report_everything_is_as_with_a_measured_rate() {
    let run = |rate: Rate| {
        let mut path = download(rate, 2.0);
        run(&mut path, 12.0);
        assert!(path.arrived(0, at(5.0), at(12.0)) > 0.95 * MBIT);
        let packets = path.records.iter().map(|it| (it.sent, it.size, it.arrived, it.ecn));
        let packets: Vec<_> = packets.collect();
        (format!("{:?}", stats(&mut path)), packets)
    };
    let (measured, unreported) = (run(Rate::auto()), run(MODEM));
    assert_eq!(measured.0, unreported.0);
    assert!(measured.1 == unreported.1, "the same packets at the same times");
}

#[test]
fn a_report_is_followed_at_once() {
    let mut path = download(MODEM, 1.0);
    for (time, mbit) in [(8.0, 5.0), (14.0, MBIT)] {
        path.change(at(time), move |path| {
            path.set_rate(rate(mbit));
            report(path, mbit, 60.0);
            assert_eq!(stats(path).rate, rate(mbit));
            assert_eq!(stats(path).rate_state, RateState::Configured);
        });
    }
    run(&mut path, 19.0);
    // Within a round trip of the change the queue is empty and the link full.
    let queue = path.queue(0, DELAY, 1.0, at(8.6), at(19.0));
    assert!(queue <= ms(50), "{queue:?}");
    assert!(path.arrived(0, at(8.9), at(13.9)) > 0.98 * 5.0);
    assert!(path.arrived(0, at(14.6), at(19.0)) > 0.98 * MBIT);
    assert_eq!(path.loss(0, at(1.0), at(18.0)), 0.0);
}

/// The report ends by itself, or is withdrawn.
#[test]
fn after_a_report_the_link_is_measured_without_a_stall_and_without_a_flood() {
    for withdrawn in [false, true] {
        let mut path = download(MODEM, 1.0);
        run(&mut path, 5.0);
        report(&mut path, MBIT, if withdrawn { 3600.0 } else { 7.0 });
        run(&mut path, 12.0);
        if withdrawn {
            withdraw(&mut path);
        }
        run(&mut path, 12.1);
        assert_eq!(stats(&mut path).rate_state, RateState::Resuming, "{withdrawn}");
        run(&mut path, 25.0);
        assert!(is_measured(stats(&mut path).rate_state), "{withdrawn}");
        // What was in flight arrives until 12.3 s, then for a round trip what a memory is worth.
        let (first, later) =
            (path.arrived(0, at(12.3), at(12.95)), path.arrived(0, at(13.1), at(25.0)));
        let pause = longest_pause(&path, 12.0, 25.0);
        let queue = path.queue(0, DELAY, 1.0, at(12.0), at(25.0));
        let case = format!("{withdrawn}: {first:.1}, {later:.1} Mbit/s, {pause:?}, {queue:?}");
        println!("{case}");
        assert!(first > 0.12 * MBIT && later > 0.95 * MBIT, "{case}");
        assert!(pause < ms(600), "{case}");
        assert!(queue < ms(50), "{case}");
        assert_eq!(path.loss(0, at(5.0), at(24.0)), 0.0, "{case}");
    }
}

/// The link falls when the report ends, or before: then a queue stands already.
#[test]
fn after_a_report_a_link_that_has_fallen_is_followed() {
    for (mbit, before) in [(25.0, 0.0), (5.0, 0.0), (5.0, 1.0), (1.0, 0.0)] {
        let mut path = download(MODEM, 1.0);
        path.change(at(12.0 - before), move |path| path.set_rate(rate(mbit)));
        run(&mut path, 5.0);
        report(&mut path, MBIT, 7.0);
        run(&mut path, 60.0);
        // A queue of one BDP of 50 Mbit/s, if it has filled, has left by then.
        let drained = 13.5 + before * MBIT / mbit;
        let first = path.sent(0, at(12.001), at(12.6));
        let later = path.arrived(0, at(drained), at(60.0));
        let (most, lost) =
            (path.sent(0, at(drained), at(59.0)), path.loss(0, at(drained), at(59.0)));
        let pause = longest_pause(&path, 12.0, 59.0);
        let case = format!(
            "{mbit} Mbit/s, {before} s before: {first:.1} in the first round trip; from {drained} s \
             {later:.2} of {most:.2}, {lost:.3} lost, {pause:?}"
        );
        println!("{case}");
        // 0.14 of it per round trip, which the queue has made longer.
        assert!(first < 0.145 * MBIT * (1.0 + before), "{case}");
        assert!(later > 0.9 * mbit && most < 1.05 * mbit && lost < 0.02, "{case}");
        assert!(pause < ms(700), "{case}");
    }
}

#[test]
fn a_link_that_has_become_faster_is_found() {
    let mut path = download(MODEM, 1.0);
    run(&mut path, 5.0);
    report(&mut path, 5.0, 7.0);
    run(&mut path, 20.0);
    let (during, later) = (path.arrived(0, at(7.0), at(12.0)), path.arrived(0, at(15.0), at(20.0)));
    assert!(during < 5.1 && later > 0.9 * MBIT, "{during}, {later}");
}

/// A modem that comes and goes: no time at which nothing arrives, no overflow.
#[test]
fn reports_that_come_and_go_cost_a_round_trip_each() {
    let mut path = download(MODEM, 1.0);
    run(&mut path, 5.0);
    for n in 0..8 {
        report(&mut path, MBIT, 2.5);
        run(&mut path, 10.0 + f64::from(n) * 5.0);
    }
    let (pause, mean) = (longest_pause(&path, 5.0, 44.0), path.arrived(0, at(5.0), at(45.0)));
    println!("{mean:.1} Mbit/s, {pause:?}");
    assert!(pause < ms(600) && mean > 0.88 * MBIT, "{mean}, {pause:?}");
    assert_eq!(path.loss(0, at(5.0), at(44.0)), 0.0);
}

/// Nobody waits when the report ends, by itself or withdrawn: padding finds out at once, if the
/// configuration allows it.
#[test]
fn an_idle_session_measures_again_with_padding_if_it_may() {
    for (probe, withdrawn) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut path = download(Rate::ModemOrAuto { ceiling: None, probe }, 60.0);
        run(&mut path, 6.0);
        let before = stats(&mut path).padding_bytes;
        assert_eq!(before > 0, probe);
        report(&mut path, MBIT, if withdrawn { 3600.0 } else { 7.0 });
        run(&mut path, 12.9);
        assert_eq!(stats(&mut path).padding_bytes, before, "not while a rate is reported");
        path.set_rate(rate(10.0));
        run(&mut path, 13.0);
        if withdrawn {
            withdraw(&mut path);
        }
        run(&mut path, 13.1);
        assert_eq!(stats(&mut path).padding_bytes > before, probe, "at once");
        // Two trains, each a round trip and its time on a link of a fifth.
        run(&mut path, 15.0);
        let after = stats(&mut path);
        assert_eq!(after.padding_bytes > before, probe, "{after:?}");
        let measured = after.capacity.map(|rate| rate.bits_per_second() as f64 * 1e-6);
        assert_eq!(measured.is_some(), probe, "{after:?}");
        assert!(measured.is_none_or(|mbit| (9.5..10.5).contains(&mbit)), "{measured:?}");
    }
}

#[test]
fn a_modem_that_flaps_pads_no_more_than_a_session_that_moves() {
    let mut path = download(MODEM, 1e6);
    run(&mut path, 6.0);
    let first = stats(&mut path).padding_bytes;
    for n in 0..50 {
        report(&mut path, MBIT, 1.0);
        run(&mut path, 11.0 + f64::from(n) * 5.0);
    }
    let padded = stats(&mut path).padding_bytes;
    assert!(padded < 3 * first, "{first}, then {padded}");
}

/// Rate 0 means that the link is down. What it carries after that is unknown.
#[test]
fn after_rate_zero_nothing_of_it_is_remembered() {
    let mut path = download(MODEM, 1.0);
    run(&mut path, 6.0);
    report(&mut path, 0.0, 5.0);
    run(&mut path, 10.9);
    assert!(path.arrived(0, at(7.0), at(10.9)) < 0.1);
    run(&mut path, 20.0);
    assert!(path.arrived(0, at(14.0), at(20.0)) > 0.95 * MBIT);
}

#[test]
fn ecn_is_used_only_while_the_rate_is_measured() {
    let mut path = download(MODEM, 1.0);
    run(&mut path, 5.0);
    assert_eq!(stats(&mut path).ecn, EcnState::Capable);
    report(&mut path, MBIT, 5.0);
    let before = stats(&mut path).ect_sent;
    run(&mut path, 9.9);
    let told = stats(&mut path);
    assert_eq!((told.ecn, told.ect_sent), (EcnState::Off, before));
    run(&mut path, 15.0);
    let after = stats(&mut path);
    assert!(after.ecn == EcnState::Capable && after.ect_sent > before, "{after:?}");
}

/// The circuit breaker judges a modem that repeats a wrong rate, whatever comes in between.
#[test]
fn a_wrong_modem_does_not_get_past_the_breaker_by_pausing() {
    const LINK: f64 = 1.0;
    let mut path = download_over(LINK, MODEM, 1.0);
    run(&mut path, 10.0);
    report(&mut path, 10.0 * LINK, 3600.0);
    run(&mut path, 60.0);
    assert_eq!(stats(&mut path).rate_state, RateState::Tripped);
    withdraw(&mut path);
    run(&mut path, 75.0);
    assert!(is_measured(stats(&mut path).rate_state));
    let measured = path.arrived(0, at(66.0), at(75.0));
    assert!(measured > 0.98 * LINK, "{measured}");
    report(&mut path, 10.0 * LINK, 3600.0);
    let again = stats(&mut path);
    assert_eq!((again.rate_state, again.trips), (RateState::Tripped, 1));
    assert!(again.rate <= rate(LINK), "{again:?}");
    // Another report is news.
    report(&mut path, LINK, 3600.0);
    assert_eq!(stats(&mut path).rate_state, RateState::Configured);
}

#[test]
fn a_ceiling_holds_for_what_is_measured() {
    let mut path = download(Rate::ModemOrAuto { ceiling: Some(rate(20.0)), probe: true }, 1.0);
    run(&mut path, 4.0);
    report(&mut path, 30.0, 2.0);
    run(&mut path, 20.0);
    let measured = path.arrived(0, at(9.0), at(20.0));
    assert!((19.0..20.2).contains(&measured), "{measured}");
}

#[test]
fn a_report_that_ended_cannot_be_withdrawn_and_does_no_harm() {
    let mut path = download(MODEM, 1.0);
    run(&mut path, 8.0);
    let before = stats(&mut path);
    withdraw(&mut path);
    assert_eq!(format!("{:?}", stats(&mut path)), format!("{before:?}"));
    let now = path.now;
    let mut measured = download(Rate::auto(), 1.0);
    run(&mut measured, 2.0);
    let transfer = measured.transfer(0);
    let session = transfer.hub_id();
    assert_eq!(transfer.hub.expire_rate(now, session), Err(RateError::NotFromModem));
}

/// A hub reports the whole link to each session. When the report ends, they do not send as much
/// together as the link carries for each of them.
#[test]
fn sessions_of_a_hub_go_on_with_their_shares_when_the_report_ends() {
    // Sessions that do not know of each other, and members of an aggregate. The queue of many members
    // is that of their first 16 packets each.
    for (count, aggregate, longest) in
        [(2, false, 100.0), (8, false, 200.0), (2, true, 60.0), (8, true, 60.0), (32, true, 250.0)]
    {
        for seed in 1..=2 {
            let ended = ReportEnds { count, aggregate }.run(seed);
            let case = format!("{count}, {aggregate}, seed {seed}: {ended:?}");
            println!("{case}");
            assert!(ended.before > 0.97 && ended.after > 0.9, "{case}");
            assert!(ended.used > 0.95 && ended.queue < longest, "{case}");
            assert_eq!(ended.dropped, 0, "{case}");
        }
    }
}
