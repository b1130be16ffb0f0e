//! ECN: codepoints that a path marks, keeps, clears, or does not bear.

use core::time::Duration;

use link::{CoDel, Discipline, LinkConfig, LossModel, Outage};
use slacp::{Config, Ecn, EcnState, Rate};
use units::{BitRate, Instant};

use crate::path::cases::rate;
use crate::path::{Codepoints, Path, Transfer, at, ms, queue_of};

const DELAY: Duration = Duration::from_millis(300);
const START: f64 = 4.0;

/// A link of 20 Mbit/s that marks packets which waited too long.
fn marking() -> LinkConfig {
    let codel = CoDel { target: ms(2), interval: ms(50), ecn: true };
    let link = LinkConfig::new(rate(20.0), DELAY, LossModel::None, queue_of(1_500_000));
    LinkConfig { discipline: Discipline::CoDel(codel), ..link }
}

/// A hub that measures its rate, and a terminal that is told it.
fn configs() -> [Config; 2] {
    [Config::new(Rate::auto()), Config::new(BitRate::from_mbit(5))]
}

fn download(forward: LinkConfig, configs: [Config; 2], bytes: u64) -> Path {
    let ret = LinkConfig::new(rate(5.0), DELAY, LossModel::None, queue_of(375_000));
    let mut path = Path::new(forward, ret, 1);
    path.add(Transfer::new(configs, bytes, at(START), 1));
    path
}

/// Packets of the forward link with this codepoint when they left (0), or when they came (1).
fn with(path: &Path, ecn: Ecn, end: usize) -> u64 {
    let records = path.records.iter().filter(|it| end == 0 || it.arrived.is_some());
    records.filter(|record| record.ecn[end] == ecn).count() as u64
}

/// Packets that left with ECT(0) from a time on.
fn ect_from(path: &Path, time: Instant) -> usize {
    let later = path.records.iter().filter(|record| record.sent >= time);
    later.filter(|record| record.ecn[0] == Ecn::Ect0).count()
}

#[test]
fn every_mark_is_counted_at_both_ends() {
    let mut path = download(marking(), configs(), 20_000_000);
    path.run(at(60.0));
    assert!(path.transfer(0).done.is_some());
    // The last acknowledgements.
    path.run_on(path.now + Duration::from_secs(2));
    let marked = with(&path, Ecn::Ce, 1);
    assert!(marked >= 10, "{marked}");
    let (sent, came) = (with(&path, Ecn::Ect0, 0), with(&path, Ecn::Ect0, 1));
    assert!(sent >= 13_000, "{sent}");
    let (hub, terminal) = (path.transfer(0).hub_stats(), path.transfer(0).terminal_stats());
    assert_eq!((terminal.ect_received, terminal.ce_received), (came, marked));
    assert_eq!((hub.ecn, hub.ect_sent, hub.ce_reported), (EcnState::Capable, sent, marked));
    // The terminal has a fixed rate: it reports, and sets nothing itself.
    assert_eq!((terminal.ecn, terminal.ect_sent), (EcnState::Off, 0));
    assert_eq!((hub.ect_received, hub.ce_received), (0, 0));
}

#[test]
fn marks_are_counted_although_packets_and_acknowledgements_are_lost() {
    let loss = LossModel::Per(units::Probability::new(0.05).unwrap());
    let forward = LinkConfig { loss: loss.clone(), ..marking() };
    let ret = LinkConfig {
        loss,
        ..LinkConfig::new(rate(5.0), DELAY, LossModel::None, queue_of(375_000))
    };
    let mut path = Path::new(forward, ret, 3);
    path.add(Transfer::new(configs(), 10_000_000, at(START), 3));
    path.run(at(60.0));
    path.run_on(path.now + Duration::from_secs(5));
    let (hub, terminal) = (path.transfer(0).hub_stats(), path.transfer(0).terminal_stats());
    assert_eq!(hub.ecn, EcnState::Capable);
    assert_eq!(hub.ce_reported, with(&path, Ecn::Ce, 1));
    assert_eq!(terminal.ect_received, with(&path, Ecn::Ect0, 1));
}

#[test]
fn a_path_that_clears_or_loses_codepoints_gets_ten_and_then_none() {
    for codepoints in [Codepoints::Cleared, Codepoints::Lost] {
        let mut path = download(marking(), configs(), 10_000_000);
        path.codepoints = codepoints;
        path.run(at(60.0));
        let transfer = path.transfer(0);
        // 4.6 s at the rate of the link, and round trips to find it.
        let seconds = transfer.done.unwrap().saturating_since(at(START)).as_secs_f64();
        assert!(seconds < 9.0, "{codepoints:?}: {seconds}");
        let stats = transfer.hub_stats();
        assert_eq!((stats.ecn, stats.ect_sent), (EcnState::Failed, 10), "{codepoints:?}");
        assert_eq!(with(&path, Ecn::Ect0, 0), 10, "{codepoints:?}");
    }
}

#[test]
fn a_path_that_begins_to_clear_codepoints_gets_none_two_round_trips_later() {
    let mut path = download(marking(), configs(), 1 << 40);
    path.change(at(10.0), |path| path.codepoints = Codepoints::Cleared);
    path.run(at(20.0));
    assert!(ect_from(&path, at(9.0)) > 1000);
    assert_eq!(ect_from(&path, at(11.2)), 0);
    assert_eq!(path.transfer(0).hub_stats().ecn, EcnState::Failed);
}

#[test]
fn after_an_outage_the_path_is_tested_again() {
    for (codepoints, then) in
        [(Codepoints::Kept, EcnState::Capable), (Codepoints::Lost, EcnState::Failed)]
    {
        let outage = Outage { after: ms(10_000), lasting: ms(5_000), every: None };
        let forward = LinkConfig { outages: vec![outage], ..marking() };
        let mut path = download(forward, configs(), 1 << 40);
        path.change(at(12.0), move |path| path.codepoints = codepoints);
        path.run(at(9.9));
        assert_eq!(path.transfer(0).hub_stats().ecn, EcnState::Capable);
        path.run(at(25.0));
        assert_eq!(path.transfer(0).hub_stats().ecn, then);
        assert!(path.arrived(0, at(20.0), at(25.0)) > 15.0, "{codepoints:?}");
    }
}

#[test]
fn a_path_to_another_address_is_tested_again() {
    let mut path = download(marking(), configs(), 1 << 40);
    path.change(at(10.0), |path| path.transfer(0).place.set_port(77));
    path.run(at(20.0));
    let transfer = path.transfer(0);
    assert_eq!((transfer.moves, transfer.hub_stats().ecn), (1, EcnState::Capable));
    // Large packets without a codepoint until the first is acknowledged, half a second at least.
    let plain = |from, to| {
        let sent = path.records.iter().filter(|it| (at(from)..at(to)).contains(&it.sent));
        sent.filter(|it| it.ecn[0] == Ecn::NotEct && it.size > 1000).count()
    };
    assert_eq!((plain(8.0, 10.0), plain(15.0, 20.0)), (0, 0));
    // As many as a session sends that begins afresh: 457.
    assert!(plain(10.0, 15.0) > 400, "{}", plain(10.0, 15.0));
    // From the first of them on, only the ten that test the path have a codepoint for half a second.
    let large = || path.records.iter().filter(|it| it.size > 1000 && it.sent >= at(10.0));
    let first = large().find(|it| it.ecn[0] == Ecn::NotEct).expect("one").sent;
    let soon = large().filter(|it| (first..first + ms(500)).contains(&it.sent));
    let tests = soon.filter(|it| it.ecn[0] != Ecn::NotEct).count();
    assert!(tests <= 10, "{tests}");
}

#[test]
fn nothing_is_set_for_a_peer_that_does_not_report_nor_at_a_configured_rate() {
    let off = |mut config: Config| {
        config.ecn = false;
        config
    };
    let [hub, terminal] = configs();
    let fixed = Config::new(rate(20.0));
    for configs in
        [[hub.clone(), off(terminal.clone())], [off(hub), terminal.clone()], [fixed, terminal]]
    {
        let mut path = download(marking(), configs, 1_000_000);
        path.run(at(20.0));
        let transfer = path.transfer(0);
        assert!(transfer.done.is_some());
        for stats in [transfer.hub_stats(), transfer.terminal_stats()] {
            assert_eq!((stats.ecn, stats.ect_sent), (EcnState::Off, 0));
            assert_eq!((stats.ect_received, stats.ce_received, stats.ce_reported), (0, 0, 0));
        }
        assert_eq!(with(&path, Ecn::NotEct, 0), path.records.len() as u64);
    }
}
