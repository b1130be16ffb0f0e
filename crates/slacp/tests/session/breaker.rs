//! The circuit breaker of configured rates: what trips it, and what satellite links may do.

use core::time::Duration;

use crate::path::cases::rate;
use crate::path::tcp::Control;
use crate::path::{Path, Transfer, at, ms, queue_of};
use link::{LinkConfig, LossModel, Outage};
use slacp::{Config, Rate, RateState, SessionStats};
use units::Probability;

const DELAY: Duration = Duration::from_millis(300);
/// The link's rate in Mbit/s. Low, because the tests take minutes of virtual time.
const LINK: f64 = 1.0;

/// A link with a queue of one BDP at 600 ms.
fn link(mbit: f64) -> LinkConfig {
    LinkConfig::new(
        rate(mbit),
        DELAY,
        LossModel::None,
        queue_of(rate(mbit).bytes_in(DELAY * 2).get()),
    )
}

/// An endless download that the hub sends at this rate.
fn download(from: impl Into<Rate>, forward: LinkConfig, ret: LinkConfig) -> Path {
    let mut path = Path::new(forward, ret, 1);
    let config = [Config::new(from.into()), Config::new(rate(1.0))];
    path.add(Transfer::new(config, 1 << 40, at(1.0), 1));
    path
}

fn told(mbit: f64) -> Path {
    download(rate(mbit), link(LINK), link(1.0))
}

fn stats(path: &mut Path) -> SessionStats {
    path.transfer(0).hub_stats()
}

/// Seconds of each `every` seconds without reception.
fn outages(lasting: f64, every: f64) -> Vec<Outage> {
    let [lasting, every] = [lasting, every].map(Duration::from_secs_f64);
    vec![Outage { after: Duration::from_secs(5), lasting, every: Some(every) }]
}

#[test]
fn ten_times_the_link_trips_and_leaves_the_link_full_without_losses() {
    let mut path = told(10.0 * LINK);
    path.run(at(30.0));
    assert_eq!(stats(&mut path).rate_state, RateState::Configured, "a fade may last as long");
    path.run(at(60.0));
    let stats = stats(&mut path);
    assert_eq!((stats.rate_state, stats.trips), (RateState::Tripped, 1));
    let arrived = path.arrived(0, at(45.0), at(60.0));
    assert!(arrived > 0.85 * LINK, "{arrived} Mbit/s");
    assert!(path.loss(0, at(45.0), at(59.0)) < 0.001);
    assert!(path.queue(0, DELAY, 0.95, at(55.0), at(59.0)) < ms(50), "the queue is empty");
}

#[test]
fn a_trial_costs_one_interval() {
    let mut path = told(10.0 * LINK);
    path.run(at(60.0));
    let before = stats(&mut path).packets_sent;
    // A trial after 60 s, the next one 120 s later.
    path.run(at(180.0));
    let stats = stats(&mut path);
    assert_eq!((stats.rate_state, stats.trips), (RateState::Tripped, 1));
    // 120 s at the link's rate, and 1.8 s at ten times that.
    let most = (120.0 * LINK + 1.9 * 10.0 * LINK) * 1e6 / 8.0 / 1450.0;
    let sent = (stats.packets_sent - before) as f64;
    assert!(sent < most, "{sent} of {most} packets");
    assert!(sent > 0.85 * most, "{sent} of {most} packets: it tries, and uses the link");
}

#[test]
fn it_closes_when_the_link_is_fast_enough() {
    let mut path = told(10.0 * LINK);
    path.change(at(50.0), |path| path.set_rate(rate(10.0 * LINK)));
    path.run(at(110.0));
    let stats = stats(&mut path);
    assert_eq!((stats.rate_state, stats.trips), (RateState::Configured, 1));
    assert_eq!(stats.rate, rate(10.0 * LINK));
    let arrived = path.arrived(0, at(105.0), at(110.0));
    assert!(arrived > 0.95 * 10.0 * LINK, "{arrived} Mbit/s");
}

/// Runs for some minutes and checks that it does not trip.
fn survives(name: &str, mut path: Path, seconds: f64) {
    path.run(at(seconds));
    let stats = stats(&mut path);
    assert_eq!((stats.rate_state, stats.trips), (RateState::Configured, 0), "{name}");
    assert!(path.arrived(0, at(0.0), at(seconds)) > 0.01 * LINK, "{name}: it sends");
}

#[test]
fn a_rate_that_is_somewhat_too_high_does_not_trip() {
    for factor in [1.05, 1.5, 3.0] {
        survives(&format!("{factor} times"), told(factor * LINK), 120.0);
    }
}

#[test]
fn losses_of_chance_do_not_trip() {
    for per in [0.1, 0.3, 0.5] {
        let loss = LossModel::Per(Probability::new(per).unwrap());
        let forward = LinkConfig { loss, ..link(LINK) };
        survives(&format!("PER {per}"), download(rate(LINK), forward, link(1.0)), 120.0);
    }
}

#[test]
fn outages_do_not_trip() {
    for (lasting, every) in
        [(1.0, 1.2), (1.0, 3.0), (3.0, 5.0), (5.0, 6.0), (10.0, 15.0), (30.0, 40.0), (60.0, 80.0)]
    {
        let name = format!("{lasting} s every {every} s");
        let fading = |mbit| LinkConfig { outages: outages(lasting, every), ..link(mbit) };
        let (forward, ret) = (fading(LINK), fading(1.0));
        survives(&name, download(rate(LINK), forward.clone(), ret), 240.0);
        survives(&format!("{name}, forward"), download(rate(LINK), forward, link(1.0)), 240.0);
        survives(&format!("{name}, return"), download(rate(LINK), link(LINK), fading(1.0)), 240.0);
    }
}

#[test]
fn rain_that_halves_the_rate_for_minutes_does_not_trip() {
    for (name, per, factor) in [("rain", 0.0, 1.0), ("a bad day", 0.2, 1.5)] {
        let loss = LossModel::Per(Probability::new(per).unwrap());
        let forward = LinkConfig { loss, ..link(LINK) };
        let mut path = download(rate(factor * LINK), forward, link(1.0));
        path.change(at(20.0), |path| path.set_rate(rate(LINK / 2.0)));
        path.change(at(200.0), |path| path.set_rate(rate(LINK)));
        survives(name, path, 240.0);
    }
}

#[test]
fn a_modem_that_reports_too_much_trips_until_it_reports_something_else() {
    let initial = rate(LINK);
    let mut path = download(Rate::Modem { initial }, link(LINK), link(1.0));
    // Modems repeat themselves.
    for second in 5..60 {
        let mbit = 10.0 * LINK + f64::from(second % 3);
        path.change(at(second.into()), move |path| path.tell(0, rate(mbit)));
    }
    path.run(at(59.5));
    assert_eq!(stats(&mut path).rate_state, RateState::Tripped);
    assert!(stats(&mut path).rate < rate(LINK));
    path.tell(0, rate(LINK));
    assert_eq!(stats(&mut path).rate_state, RateState::Configured);
    assert_eq!(stats(&mut path).rate, rate(LINK));
}

#[test]
fn another_configuration_closes_it_and_the_same_one_does_not() {
    let mut path = told(10.0 * LINK);
    path.run(at(50.0));
    for (mbit, state) in [(10.0 * LINK, RateState::Tripped), (LINK, RateState::Configured)] {
        let now = path.now;
        assert!(path.transfer(0).hub.configure_rate(now, rate(mbit).into()));
        assert_eq!(stats(&mut path).rate_state, state, "{mbit} Mbit/s");
    }
    path.run(at(60.0));
    assert!(path.arrived(0, at(52.0), at(60.0)) > 0.95 * LINK);
}

/// A breaker cannot tell a link that has become ten times slower from a rate that is ten times too
/// high. Here the queue makes the round trip, and so the intervals, longer: it trips after a minute.
/// From then on nothing is lost; after the fade, the session waits for the next trial.
#[test]
fn a_deep_fade_of_minutes_costs_a_minute_after_it_at_most() {
    let mut path = told(LINK);
    path.change(at(20.0), |path| path.set_rate(rate(LINK / 10.0)));
    path.change(at(140.0), |path| path.set_rate(rate(LINK)));
    path.run(at(140.0));
    let received = path.transfer(0).received as f64;
    path.run(at(260.0));
    let after = path.transfer(0).received as f64 - received;
    let stats = stats(&mut path);
    let lost = path.loss(0, at(0.0), at(260.0));
    println!("{received} bytes received until the fade ends, {after} after, {lost} lost");
    assert_eq!((stats.rate_state, stats.trips), (RateState::Configured, 1));
    assert!(path.loss(0, at(100.0), at(130.0)) < 0.01);
    let most = LINK * 1e6 / 8.0 * 120.0;
    assert!(after > 0.5 * most, "{after} of {most} bytes");
}

/// How a loss-based TCP gets on beside a session that is told ten times the link's rate.
#[test]
fn others_get_something_again() {
    let mut path = told(10.0 * LINK);
    let tcp = path.add_tcp(Control::Cubic, at(5.0));
    path.run(at(300.0));
    let before = path.arrived(tcp, at(5.0), at(35.0));
    let after = path.arrived(tcp, at(40.0), at(300.0));
    println!("TCP: {before} Mbit/s, then {after}");
    assert!(before < 0.01 * LINK && after > 0.05 * LINK, "{before} Mbit/s, then {after}");
}
