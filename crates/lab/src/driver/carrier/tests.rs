//! How links change while a lab runs.

use core::time::Duration;

use super::*;
use crate::LinkName;
use crate::preset::PresetLinks as _;
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
        "policer = \"2 Mbit/s burst 15 kB\"",
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
