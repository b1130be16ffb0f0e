//! What a session tells its owner about the link: a rate that exceeds it, and falls of its capacity.

use core::time::Duration;

use crate::path::cases::rate;
use crate::path::{Path, Transfer, at, queue_of};
use link::{LinkConfig, LossModel, Outage};
use slacp::{Config, LogEvent, Rate, SessionStats};
use units::Probability;

const DELAY: Duration = Duration::from_millis(300);
/// The link's rate in Mbit/s. Low, because the tests take minutes of virtual time.
const LINK: f64 = 2.0;

/// A link with a queue of one BDP at 600 ms.
fn link(mbit: f64) -> LinkConfig {
    LinkConfig::new(
        rate(mbit),
        DELAY,
        LossModel::None,
        queue_of(rate(mbit).bytes_in(DELAY * 2).get()),
    )
}

/// An endless download over this link, that the hub sends at this rate.
fn download(from: impl Into<Rate>, forward: LinkConfig) -> Path {
    let mut path = Path::new(forward, link(1.0), 1);
    let mut hub = Config::new(from.into());
    hub.event_log = 1 << 20;
    path.add(Transfer::new([hub, Config::new(rate(1.0))], 1 << 40, at(1.0), 1));
    path
}

fn stats(path: &mut Path) -> SessionStats {
    path.transfer(0).hub_stats()
}

/// The reports in the event log, with their times in seconds.
fn reports(path: &mut Path) -> Vec<(f64, LogEvent)> {
    let hub = &mut path.transfer(0).hub;
    let entries = std::iter::from_fn(|| hub.poll_log());
    let wanted = entries.filter(|entry| {
        matches!(
            entry.event,
            LogEvent::RateExceedsLink { .. }
                | LogEvent::RateFitsLink { .. }
                | LogEvent::CapacityFell { .. }
        )
    });
    wanted.map(|entry| (entry.time.saturating_since(at(0.0)).as_secs_f64(), entry.event)).collect()
}

#[test]
fn a_link_that_becomes_slower_than_the_configured_rate_is_reported_until_it_recovers() {
    let mut path = download(rate(LINK), link(LINK));
    path.change(at(30.0), |path| path.set_rate(rate(LINK * 0.4)));
    path.change(at(120.0), |path| path.set_rate(rate(LINK)));
    path.run(at(30.0));
    assert_eq!(stats(&mut path).overload, None);
    path.run(at(110.0));
    let overload = stats(&mut path).overload.expect("2.5 times too high");
    assert_eq!(overload.rate, rate(LINK));
    let carries = overload.carries.bits_per_second() as f64 / 1e6;
    assert!((carries / (LINK * 0.4) - 1.0).abs() < 0.05, "{carries} of {}", LINK * 0.4);
    assert!((overload.loss - 0.6).abs() < 0.03, "{overload:?}");
    assert!(overload.rtt > 2 * overload.base_rtt, "{overload:?}");
    path.run(at(180.0));
    assert_eq!(stats(&mut path).overload, None);
    let reports = reports(&mut path);
    let [(begin, LogEvent::RateExceedsLink { .. }), (end, LogEvent::RateFitsLink { .. })] =
        reports[..]
    else {
        panic!("{reports:?}")
    };
    assert!((40.0..60.0).contains(&begin) && (130.0..150.0).contains(&end), "{reports:?}");
}

#[test]
fn a_rate_that_is_a_tenth_too_high_from_the_beginning_is_reported() {
    let mut path = download(rate(LINK * 1.1), link(LINK));
    path.run(at(60.0));
    let overload = stats(&mut path).overload.expect("it loses a tenth");
    let carries = overload.carries.bits_per_second() as f64 / 1e6;
    assert!((carries / LINK - 1.0).abs() < 0.02, "{carries}");
}

#[test]
fn losses_of_chance_are_no_overload() {
    for per in [0.01, 0.03, 0.1, 0.3, 0.5] {
        for told in [0.9, 1.0] {
            let loss = LossModel::Per(Probability::new(per).unwrap());
            let mut path = download(rate(LINK * told), LinkConfig { loss, ..link(LINK) });
            path.run(at(120.0));
            assert_eq!(reports(&mut path), [], "PER {per}, told {told}");
        }
    }
}

#[test]
fn outages_are_no_overload() {
    for (lasting, every) in [(1.0, 3.0), (3.0, 5.0), (10.0, 15.0), (30.0, 40.0)] {
        let [lasting, every] = [lasting, every].map(Duration::from_secs_f64);
        let outage = Outage { after: Duration::from_secs(5), lasting, every: Some(every) };
        let loss = LossModel::Per(Probability::new(0.02).unwrap());
        let mut path =
            download(rate(LINK), LinkConfig { outages: vec![outage], loss, ..link(LINK) });
        path.run(at(240.0));
        assert_eq!(reports(&mut path), [], "{lasting:?} every {every:?}");
    }
}

#[test]
fn a_measured_capacity_that_falls_is_reported_and_chance_is_not() {
    let auto = || Rate::Auto { ceiling: None, probe: true };
    let mut path = download(auto(), link(LINK));
    path.change(at(60.0), |path| path.set_rate(rate(LINK * 0.4)));
    path.run(at(180.0));
    let reports_of_fall = reports(&mut path);
    let [(when, LogEvent::CapacityFell { rate: to })] = reports_of_fall[..] else {
        panic!("{reports_of_fall:?}")
    };
    assert!((60.0..100.0).contains(&when), "{when}");
    let to = to.bits_per_second() as f64 / 1e6;
    assert!((to / (LINK * 0.4) - 1.0).abs() < 0.25, "{to} Mbit/s");
    assert_eq!(stats(&mut path).capacity_falls, 1);
    for per in [0.01, 0.1] {
        let loss = LossModel::Per(Probability::new(per).unwrap());
        let mut path = download(auto(), LinkConfig { loss, ..link(LINK) });
        path.run(at(180.0));
        assert_eq!(reports(&mut path), [], "PER {per}");
    }
}
