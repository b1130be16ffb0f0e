//! What the links of a lab are made of, and how they change while it runs.

use core::time::Duration;
use std::collections::BTreeSet;

use super::*;
use crate::testkit::preset;

fn config(lines: &str) -> LinkConfig {
    preset(lines).link(LinkName::Forward)
}

/// When 200 packets, sent at 18 Mbit/s with a number each, arrive on `link`.
fn arrivals(link: &mut Link<Vec<u8>>) -> Vec<(Instant, Vec<u8>)> {
    let mut arrived = Vec::new();
    for number in 0..200u8 {
        let now = Instant::from_nanos(u64::from(number) * 666_000);
        arrived.extend(core::iter::from_fn(|| link.poll_arrival(now)));
        link.handle_packet(now, vec![number; 1500]);
    }
    let end = Instant::ZERO + Duration::from_secs(5);
    arrived.extend(core::iter::from_fn(|| link.poll_arrival(end)));
    arrived
}

fn changed(before: &LinkConfig, after: &LinkConfig) -> Vec<(Instant, Vec<u8>)> {
    let mut link = Link::new(before.clone(), 1);
    reconfigure(&mut link, Instant::ZERO, before, after.clone());
    arrivals(&mut link)
}

#[test]
fn each_setting_of_a_link_can_change_while_it_runs() {
    let before = config("queue = \"50 packets\"");
    for lines in [
        "rate = \"6 Mbit/s\"",
        "encapsulation = \"fixed 100 B\"",
        "delay = \"20 ms\"",
        "loss-period = 2",
        "queue = \"20 packets\"",
        "discipline = \"codel target=5ms interval=20ms\"",
    ] {
        let after = config(lines);
        let expected = arrivals(&mut Link::new(after.clone(), 1));
        assert_ne!(expected, arrivals(&mut Link::new(before.clone(), 1)), "{lines}");
        assert_eq!(changed(&before, &after), expected, "{lines}");
        assert_eq!(changed(&after, &before), changed(&before, &before), "back from {lines}");
    }
    // Jitter is random.
    assert_ne!(changed(&before, &config("jitter = \"9 ms\"")), changed(&before, &before));
}

#[test]
fn a_setting_that_stays_carries_on_undisturbed() {
    // Both would start anew if they were set again: every third packet, and the trace.
    let same = config("loss-period = 3\nrate-trace = [\"0s 12 Mbit/s\", \"20ms 3 Mbit/s\"]");
    let undisturbed = arrivals(&mut Link::new(same.clone(), 1));
    let mut link = Link::new(same.clone(), 1);
    let mut arrived = Vec::new();
    for number in 0..200u8 {
        let now = Instant::from_nanos(u64::from(number) * 666_000);
        arrived.extend(core::iter::from_fn(|| link.poll_arrival(now)));
        link.handle_packet(now, vec![number; 1500]);
        reconfigure(&mut link, now, &same, same.clone());
    }
    let end = Instant::ZERO + Duration::from_secs(5);
    arrived.extend(core::iter::from_fn(|| link.poll_arrival(end)));
    assert_eq!(arrived, undisturbed);
}

/// All links that any lab can have.
fn all_links() -> impl Iterator<Item = LinkName> {
    let returns = Site::first(Site::MOST).map(LinkName::Return);
    [LinkName::Forward, LinkName::TerrestrialForward, LinkName::TerrestrialReturn]
        .into_iter()
        .chain(returns)
}

#[test]
fn no_two_links_lose_the_same_packets() {
    for seed in [0, 1, u64::MAX] {
        let seeds: BTreeSet<u64> = all_links().map(|name| seed_of(name, seed)).collect();
        assert_eq!(seeds.len(), all_links().count(), "seed {seed}");
    }
}

#[test]
fn neighbouring_seeds_have_no_link_in_common() {
    let of = |seed| all_links().map(move |name| seed_of(name, seed));
    let seeds: BTreeSet<u64> = (0..10).flat_map(of).collect();
    assert_eq!(seeds.len(), 10 * all_links().count());
}

#[test]
fn the_hop_s_seeds_are_those_that_reports_were_made_with() {
    // A change would alter the result of every published `--seed`.
    let hop = [LinkName::Forward, LinkName::Return(Site::FIRST)];
    assert_eq!(hop.map(|name| seed_of(name, 21)), [42, 43]);
}
