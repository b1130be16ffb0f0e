//! What a gateway keeps in front of a terminal, and what it learns of the grants.

use super::*;
use crate::dama::{BACKLOG_LASTS, VolumeRequest};

/// All volumes asked for, and all slots granted for them.
fn asked_and_granted(network: &mut Dama<usize>) -> (u32, u32) {
    let mut asked = 0;
    let mut granted = 0;
    while let Some(event) = network.poll_event() {
        match event {
            DamaEvent::Requested { request, .. } => {
                asked += match request.volume {
                    Some(VolumeRequest::More(cells) | VolumeRequest::All(cells)) => cells,
                    None => 0,
                }
            }
            DamaEvent::Allocated { grants, .. } => {
                granted += grants.iter().map(|grant| grant.vbdc).sum::<u32>();
            }
            _ => {}
        }
    }
    (asked, granted)
}

#[test]
fn what_waits_in_the_gateway_is_asked_for_before_it_comes() {
    let mut network = network(vec![terminal(0, 0, 512)]);
    network.record_events();
    network.set_backlog(millis(100), 0, ByteCount::new(4_800));
    assert!(arrivals(&mut network, millis(1_059)).is_empty());
    // The first slots begin at 1060 ms, as for a packet that came at the same time. The packets that
    // come then meet them.
    for _ in 0..10 {
        network.handle_packet(millis(1_059), 0, 472);
    }
    network.set_backlog(millis(1_059), 0, ByteCount::new(0));
    let all = arrivals(&mut network, millis(3_000));
    assert_eq!(all.len(), 10);
    // Each packet is 10 cells. The last four of the 100 are two in each frame of the fourth
    // superframe.
    let last = millis(1_060 + 7 * 53) + Duration::from_micros(2 * 53_000 / 16);
    assert_eq!(all[9].0, last + DELAY);
    assert_eq!(asked_and_granted(&mut network), (100, 100));
}

/// What moves from the gateway into the MAC buffer is not asked for again, whether or not the
/// gateway has said so yet.
#[test]
fn what_moves_into_the_mac_buffer_is_asked_for_once() {
    for renews in [false, true] {
        let mut network = network(vec![terminal(0, 0, 512)]);
        network.record_events();
        let mut left = 48_000;
        network.set_backlog(millis(100), 0, ByteCount::new(left));
        for index in 0..100 {
            let now = millis(600 + 20 * index);
            arrivals(&mut network, now);
            network.handle_packet(now, 0, 472);
            left -= 480;
            if renews {
                network.set_backlog(now, 0, ByteCount::new(left));
            }
        }
        arrivals(&mut network, millis(30_000));
        let (asked, granted) = asked_and_granted(&mut network);
        assert_eq!(asked, granted);
        // 472 of 480 bytes are a packet's, so that a statement that is not renewed keeps the rest.
        assert!((1_000..=1_020).contains(&asked), "{asked} cells, renewed: {renews}");
        assert_eq!(network.mac_cells(0), 0);
    }
}

#[test]
fn a_gateway_that_has_died_holds_no_capacity() {
    let mut network = network(vec![terminal(0, 64_000, 0), terminal(0, 0, 512)]);
    network.record_events();
    for terminal in [0, 1] {
        network.set_backlog(millis(0), terminal, ByteCount::new(1_000_000));
    }
    arrivals(&mut network, Instant::ZERO + BACKLOG_LASTS);
    asked_and_granted(&mut network);
    arrivals(&mut network, millis(60_000));
    let late = core::iter::from_fn(|| network.poll_event()).filter(|event| match event {
        DamaEvent::Requested { at, request, .. } => {
            // A rate of 0 ends what holds.
            let asks = |rate: BitRate| rate > BitRate::default();
            *at > millis(4_000) && (request.volume.is_some() || request.rate.is_some_and(asks))
        }
        _ => false,
    });
    assert_eq!(late.count(), 0);
    assert!(network.terminals.iter().all(|terminal| terminal.is_idle()));
}

#[test]
fn a_backlog_of_zero_ends_the_one_before() {
    let mut network = network(vec![terminal(0, 0, 512)]);
    network.record_events();
    network.set_backlog(millis(100), 0, ByteCount::new(1_000_000));
    network.set_backlog(millis(200), 0, ByteCount::new(0));
    arrivals(&mut network, millis(10_000));
    assert_eq!(asked_and_granted(&mut network), (0, 0));
}

#[test]
fn the_granted_rate_is_that_of_the_slots_ahead_without_cell_headers() {
    let superframe = 2 * FRAME;
    let mut network = network(vec![terminal(16_000, 0, 512), terminal(0, 0, 512)]);
    // Two cells in a frame: 192 bytes in a superframe.
    let rate = network.granted(millis(1), 0, superframe);
    assert_eq!(rate, bits(192 * 8 * 1_000 / 106));
    assert_eq!(network.granted(millis(1), 1, superframe), bits(0));
    // The plan reaches 250 ms and at most a superframe ahead.
    let long = network.granted(millis(1), 0, Duration::from_secs(106));
    assert!(long < bits(192 * 8 * 4 / 106), "{long}");
    // Asked for in frame 9 or 10; known from 810 ms, 250 ms before the slots begin.
    network.set_backlog(millis(100), 1, ByteCount::new(4_800));
    assert_eq!(network.granted(millis(1_000), 1, Duration::from_millis(60)), bits(0));
    let rate = network.granted(millis(1_060), 1, superframe);
    assert_eq!(rate, bits(28 * 48 * 8 * 1_000 / 106), "all but the other terminal's");
}

#[test]
fn the_policy_that_knows_the_round_trip_counts_what_is_new_once() {
    let mut config = config(vec![terminal(0, 0, 4_080)]);
    config.requests.policy = CapacityPolicy::RttAware;
    let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
    network.record_events();
    network.set_backlog(millis(100), 0, ByteCount::new(9_600));
    for index in 0..20 {
        let now = millis(1_100 + 40 * index);
        arrivals(&mut network, now);
        network.handle_packet(now, 0, 472);
    }
    arrivals(&mut network, millis(20_000));
    let (_, granted) = asked_and_granted(&mut network);
    // 200 cells, and the tenth more that this policy asks for.
    assert!((200..=260).contains(&granted), "{granted}");
    assert_eq!(network.mac_cells(0), 0);
}
