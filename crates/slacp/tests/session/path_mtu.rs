//! The packet size follows the path, and nothing waits for that.

use core::time::Duration;

use crate::hop::{HUB, Hop, Host, Plan, TERMINAL, at, open_all, run_to_end};
use link::testkit::{Mangle, Net};
use slacp::{Event, SessionStats};
use units::BitRate;

fn set_mtu(net: &mut Net<Host>, mtu: usize) {
    for (from, to) in [(HUB, TERMINAL), (TERMINAL, HUB)] {
        net.mangle(from, to, Mangle { mtu: Some(mtu), ..Mangle::default() });
    }
}

fn stats(net: &Net<Host>, side: usize) -> SessionStats {
    let host = &net.peers()[side];
    host.endpoint.stats(host.session.unwrap()).unwrap()
}

fn only_up(net: &Net<Host>) {
    for host in net.peers() {
        assert!(matches!(host.log[..], [(_, Event::Up { .. })]), "{:?}", host.log);
    }
}

#[test]
fn packets_take_the_size_that_the_path_carries() {
    for mtu in
        [576, 600, 800, 900, 1279, 1280, 1281, 1300, 1352, 1400, 1420, 1492, 1499, 1500, 9000]
    {
        for per in [0.0, 0.02] {
            let mut net = Hop::geo(per, mtu as u64).net(&[]);
            set_mtu(&mut net, mtu);
            net.run_for(Duration::from_secs(25)).unwrap();
            for side in [TERMINAL, HUB] {
                let size = stats(&net, side).packet_size.get() as usize;
                assert!(size <= mtu && size + 16 >= mtu.min(1500), "{size} of {mtu}, PER {per}");
            }
        }
    }
}

#[test]
fn an_ordinary_path_is_used_in_full_after_one_round_trip() {
    let mut net = Hop::geo(0.0, 1).connected(&[]);
    net.run_for(Duration::from_millis(650)).unwrap();
    assert_eq!([TERMINAL, HUB].map(|side| stats(&net, side).packet_size.get()), [1500, 1500]);
}

/// Duration of a 30 MB download in seconds, and the hub's counters.
fn download(mtu: usize, later: Option<(f64, usize)>) -> (f64, SessionStats) {
    let mut net = Hop::geo(0.0, 7).net(&[Plan::new(100, 30_000_000)]);
    set_mtu(&mut net, mtu);
    net.run_until(|hosts| hosts.iter().all(|host| host.session.is_some()), at(30.0)).unwrap();
    let start = net.now();
    open_all(&mut net, TERMINAL);
    if let Some((after, mtu)) = later {
        net.run_for(Duration::from_secs_f64(after)).unwrap();
        set_mtu(&mut net, mtu);
    }
    run_to_end(&mut net, 60.0);
    only_up(&net);
    let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
    (flow.last_byte.unwrap().saturating_since(start).as_secs_f64(), stats(&net, HUB))
}

/// Whatever is sent first, and however early.
#[test]
fn a_path_below_1280_bytes_carries_streams_without_being_configured() {
    let (ideal, _) = download(1500, None);
    for mtu in [600, 900] {
        let (time, stats) = download(mtu, None);
        println!("{mtu}: {time:.3} s, ideal {ideal:.3} s, {} lost", stats.packets_lost);
        let size = stats.packet_size.get() as usize;
        assert!((576..=mtu).contains(&size), "{size} of {mtu}");
        // Three round trips until it is known, then the headers; a few more until the largest size
        // is found.
        let headers = (1500.0 - 57.0) / 1500.0 * mtu as f64 / (mtu as f64 - 57.0);
        assert!(time < ideal * headers + 4.0, "{time} s of {ideal} s over {mtu} bytes");
        for after in [0.0, 3.0] {
            let plans = vec![Plan { reply: true, ..Plan::new(200, 5000) }; 10];
            let mut net = Hop::geo(0.0, 9).net(&plans);
            set_mtu(&mut net, mtu);
            net.run_until(|hosts| hosts.iter().all(|host| host.session.is_some()), at(30.0))
                .unwrap();
            net.run_for(Duration::from_secs_f64(after)).unwrap();
            open_all(&mut net, TERMINAL);
            let end = run_to_end(&mut net, 20.0).saturating_since(net.now());
            println!("{mtu}: replies after {end:?}");
            only_up(&net);
        }
    }
}

/// The path MTU drops in the middle of a transfer.
#[test]
fn a_path_that_shrinks_below_1280_bytes_goes_on() {
    let (ideal, _) = download(1500, None);
    for mtu in [600, 900] {
        let (time, stats) = download(1500, Some((2.0, mtu)));
        println!("{mtu}: {time:.3} s, ideal {ideal:.3} s, {} lost", stats.packets_lost);
        let headers = (1500.0 - 57.0) / 1500.0 * mtu as f64 / (mtu as f64 - 57.0);
        assert!(time < ideal * headers + 6.0, "{time} s of {ideal} s over {mtu} bytes");
    }
}

#[test]
fn a_fade_does_not_shrink_packets() {
    let mut net = Hop::geo(0.0, 7).connected(&[Plan::new(100, 30_000_000)]);
    open_all(&mut net, TERMINAL);
    net.run_for(Duration::from_secs(2)).unwrap();
    let outages = vec![net.now()..net.now() + Duration::from_secs(10)];
    net.mangle(HUB, TERMINAL, Mangle { outages, ..Mangle::default() });
    run_to_end(&mut net, 60.0);
    assert_eq!((stats(&net, HUB).black_holes, stats(&net, HUB).packet_size.get()), (0, 1500));
}

#[test]
fn the_search_stalls_nothing() {
    let (ideal, _) = download(1500, None);
    for mtu in [1280, 1400, 1492] {
        let (time, stats) = download(mtu, None);
        println!("{mtu}: {time:.3} s, ideal {ideal:.3} s");
        assert_eq!((stats.packets_lost, stats.black_holes), (0, 0));
        // No slower than the larger share of headers, 55 bytes each, explains.
        assert!(
            time < ideal * (1500.0 - 55.0) / 1500.0 * 1280.0 / (1280.0 - 55.0) + 0.01,
            "{time}"
        );
    }
}

#[test]
fn a_path_that_shrinks_costs_two_round_trips() {
    let (ideal, _) = download(1500, None);
    for mtu in [1280, 1400] {
        let (time, stats) = download(1500, Some((2.0, mtu)));
        println!("{mtu}: {time:.3} s, ideal {ideal:.3} s, {} lost", stats.packets_lost);
        assert!(stats.black_holes >= 1, "it was not noticed");
        assert!(time < ideal * 1.02 + 1.5, "{time} s after a path of {mtu} bytes");
    }
}

/// A slow return link: a probe occupies it for 0.19 s of the 0.6 s round trip.
fn slow_return(plans: &[Plan]) -> Net<Host> {
    let slow = Hop { ret: BitRate::from_bits_per_second(64_000), ..Hop::geo(0.0, 3) };
    slow.connected(plans)
}

/// Response time of a request sent `after` seconds after session set-up, in seconds.
fn reply_to_a_request(after: f64) -> f64 {
    let mut net = slow_return(&[Plan { reply: true, ..Plan::new(200, 1000) }]);
    net.run_for(Duration::from_secs_f64(after)).unwrap();
    let start = net.now();
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 60.0);
    let flow = net.peers()[TERMINAL].flows.values().next().unwrap();
    flow.last_byte.unwrap().saturating_since(start).as_secs_f64()
}

#[test]
fn no_request_waits_behind_a_probe_on_a_slow_link() {
    let later = reply_to_a_request(9.0);
    for after in [0.0, 0.05, 0.2, 0.7] {
        let time = reply_to_a_request(after);
        println!("after {after} s: {time:.3} s, later {later:.3} s");
        assert!(time <= later + 0.06, "a tenth of a round trip: {time} and {later}");
    }
}

#[test]
fn a_slow_link_that_is_used_learns_what_it_carries() {
    let mut net = slow_return(&[Plan::new(200_000, 0)]);
    net.run_for(Duration::from_secs(20)).unwrap();
    assert_eq!([TERMINAL, HUB].map(|side| stats(&net, side).packet_size.get()), [1280, 1500]);
    open_all(&mut net, TERMINAL);
    run_to_end(&mut net, 60.0);
    assert_eq!(stats(&net, TERMINAL).packet_size.get(), 1500);
    only_up(&net);
}
