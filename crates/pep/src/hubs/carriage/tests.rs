//! A terminal's network that blocks UDP, fades, and refuses TCP.

use proptest::prelude::*;

use super::*;

/// The first round trip of a connection, and of a question.
const RTT: Duration = Duration::from_millis(600);
/// How long the owner waits for an answer over UDP.
const ASKED: Duration = Duration::from_secs(4);
/// After this long without an answer the session calls the hub silent.
const NOTICED: Duration = Duration::from_millis(1500);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// What gets through at a time: UDP, and TCP.
type Network = fn(Instant) -> [bool; 2];

/// A terminal with its network, in steps of 10 ms.
struct World {
    ms: u64,
    fallback: TransportFallback,
    network: Network,
    /// The ends of a connection attempt and of a question.
    connect: Option<Instant>,
    asked: Option<Instant>,
    /// Whether the newest connection still exists.
    connected: bool,
    heard: Instant,
    silent: bool,
    /// Each change of the carriage.
    uses: Vec<(Instant, HopTransport)>,
}

impl World {
    fn new(network: Network) -> Self {
        Self {
            ms: 0,
            fallback: TransportFallback::new(at(0)),
            network,
            connect: None,
            asked: None,
            connected: false,
            heard: at(0),
            silent: true,
            uses: Vec::new(),
        }
    }

    fn run(&mut self, until: u64) {
        while self.ms < until {
            self.turn(at(self.ms));
            self.ms += 10;
        }
    }

    fn turn(&mut self, now: Instant) {
        let [udp, tcp] = (self.network)(now);
        if self.connect.is_some_and(|end| end <= now) {
            self.connect = None;
            self.connected |= tcp;
            if tcp {
                self.fallback.handle_connected(now);
            } else {
                self.fallback.handle_refused(now);
            }
        }
        if self.asked.is_some_and(|end| end <= now) {
            self.asked = None;
            self.fallback.handle_asked(now, udp);
        }
        let through = match self.fallback.carriage() {
            HopTransport::Udp => udp,
            HopTransport::Tcp => tcp && self.connected,
        };
        self.hear(now, through);
        while let Some(step) = self.fallback.poll_step(now) {
            match step {
                FallbackStep::Connect => self.connect = Some(now + RTT),
                FallbackStep::Ask => self.asked = Some(now + if udp { RTT } else { ASKED }),
                FallbackStep::Use(carriage) => self.uses.push((now, carriage)),
            }
        }
        assert!(self.fallback.poll_timeout().is_none_or(|at| at > now), "a step is forgotten");
    }

    fn hear(&mut self, now: Instant, through: bool) {
        if through {
            self.heard = now;
            if std::mem::take(&mut self.silent) {
                self.fallback.handle_answer(now);
            }
        } else if !self.silent && now.saturating_since(self.heard) >= NOTICED {
            self.silent = true;
            self.fallback.handle_silence(now);
        }
    }
}

#[test]
fn an_open_network_is_left_alone() {
    let mut world = World::new(|_| [true, true]);
    world.run(600_000);
    assert_eq!(world.uses, []);
}

#[test]
fn blocked_udp_is_replaced_within_three_seconds_and_asked_less_and_less() {
    let mut world = World::new(|_| [false, true]);
    world.run(3_000);
    assert_eq!(world.uses, [(at(2_600), HopTransport::Tcp)]);
    world.run(600_000);
    assert_eq!(world.uses.len(), 1, "{:?}", world.uses);
}

#[test]
fn a_session_that_loses_udp_goes_on_over_tcp() {
    let mut world = World::new(|now| [now < at(60_000), true]);
    world.run(64_500);
    assert_eq!(world.uses, [(at(60_000 + 1_500 + 2_000 + 590), HopTransport::Tcp)]);
}

#[test]
fn udp_is_taken_back_when_it_answers() {
    let mut world = World::new(|now| [now >= at(20_000), true]);
    world.run(60_000);
    let [_, (back, HopTransport::Udp)] = world.uses[..] else { panic!("{:?}", world.uses) };
    assert!(back < at(40_000), "{back:?}");
    assert_eq!(world.fallback.carriage(), HopTransport::Udp);
}

#[test]
fn a_fade_of_ten_minutes_changes_nothing() {
    for first in [[true, true], [false, true]] {
        // Which of the two worlds is chosen by whether UDP works before the fade.
        let network: Network = if first[0] {
            |now| if (at(60_000)..at(660_000)).contains(&now) { [false; 2] } else { [true; 2] }
        } else {
            |now| [false, !(at(60_000)..at(660_000)).contains(&now)]
        };
        let mut world = World::new(network);
        world.run(59_000);
        let before = world.uses.len();
        world.run(700_000);
        // On TCP, a new connection may take over from the one that the fade has slowed down.
        let changes: Vec<_> = world.uses[before..].to_vec();
        let carriage = if first[0] { HopTransport::Udp } else { HopTransport::Tcp };
        assert!(changes.iter().all(|(_, to)| *to == carriage), "{first:?}: {changes:?}");
        assert!(world.fallback.carriage() == carriage && !world.silent);
    }
}

#[test]
fn a_hub_without_tcp_is_tried_again_at_most_twice_a_minute() {
    let mut world = World::new(|_| [false, false]);
    let mut attempts = 0;
    for ms in (0..600_000).step_by(10) {
        let before = world.connect.is_some();
        world.turn(at(ms));
        attempts += u32::from(!before && world.connect.is_some());
    }
    assert!((20..=25).contains(&attempts), "{attempts}");
    assert_eq!(world.uses, []);
}

#[test]
fn silent_connections_are_replaced_more_and_more_seldom() {
    let mut fallback = TransportFallback::new(at(0));
    let connected = |fallback: &mut TransportFallback, until: u64| -> Vec<u64> {
        let mut times = Vec::new();
        for ms in (0..until).step_by(10) {
            while let Some(step) = fallback.poll_step(at(ms)) {
                if step == FallbackStep::Connect {
                    times.push(ms);
                    fallback.handle_connected(at(ms));
                }
            }
        }
        times
    };
    let seconds = [2, 10, 26, 58, 118, 178].map(|second| second * 1000);
    assert_eq!(connected(&mut fallback, 200_000), seconds);
    // An answer begins anew.
    fallback.handle_answer(at(200_000));
    fallback.handle_silence(at(200_000));
    assert_eq!(fallback.poll_timeout(), Some(at(208_000)));
}

#[test]
fn a_connection_that_ends_gives_way_to_udp_and_to_another() {
    let mut fallback = TransportFallback::new(at(0));
    let steps = |fallback: &mut TransportFallback, ms| -> Vec<FallbackStep> {
        std::iter::from_fn(|| fallback.poll_step(at(ms))).collect()
    };
    assert_eq!(steps(&mut fallback, 2_000), [FallbackStep::Connect]);
    fallback.handle_connected(at(2_100));
    fallback.handle_answer(at(2_200));
    assert_eq!(steps(&mut fallback, 2_200), [FallbackStep::Use(HopTransport::Tcp)]);
    fallback.handle_ended(at(3_000));
    assert_eq!(steps(&mut fallback, 3_000), [FallbackStep::Use(HopTransport::Udp)]);
    assert_eq!(steps(&mut fallback, 5_000), [FallbackStep::Connect]);
    // UDP answers first: the connection is not needed.
    fallback.handle_answer(at(5_100));
    fallback.handle_connected(at(5_200));
    assert_eq!(steps(&mut fallback, 5_200), [FallbackStep::Use(HopTransport::Udp)]);
}

#[test]
fn a_successor_is_connected_to_at_once() {
    let mut fallback = TransportFallback::new(at(0));
    let steps = |fallback: &mut TransportFallback, ms| -> Vec<FallbackStep> {
        std::iter::from_fn(|| fallback.poll_step(at(ms))).collect()
    };
    assert!(!fallback.handle_successor(at(100)), "on UDP there is nothing to do");
    assert_eq!(steps(&mut fallback, 2_000), [FallbackStep::Connect]);
    fallback.handle_connected(at(2_100));
    fallback.handle_answer(at(2_200));
    assert_eq!(steps(&mut fallback, 2_200), [FallbackStep::Use(HopTransport::Tcp)]);
    assert!(fallback.handle_successor(at(3_000)));
    assert_eq!(fallback.poll_timeout(), Some(at(3_000)));
    assert_eq!(steps(&mut fallback, 3_000), [FallbackStep::Connect]);
    // It is refused once, and tried again.
    fallback.handle_refused(at(3_100));
    assert_eq!(steps(&mut fallback, 4_000), []);
    assert_eq!(steps(&mut fallback, 4_100), [FallbackStep::Connect]);
    // The session with the former process answers all the while.
    fallback.handle_answer(at(4_150));
    fallback.handle_connected(at(4_200));
    assert_eq!(steps(&mut fallback, 4_200), [FallbackStep::Use(HopTransport::Tcp)]);
    fallback.handle_answer(at(4_300));
    assert_eq!(steps(&mut fallback, 6_000), []);
    assert_eq!(steps(&mut fallback, 7_100), [FallbackStep::Ask], "UDP is asked as before");
}

proptest! {
    /// Whatever happens, steps come to an end and time-outs lie ahead.
    #[test]
    fn any_order_of_inputs_is_harmless(inputs in prop::collection::vec((0u8..7, 0u64..5_000), 200)) {
        let (mut fallback, mut now) = (TransportFallback::new(at(0)), 0);
        for (input, pause) in inputs {
            now += pause;
            match input {
                0 => fallback.handle_silence(at(now)),
                1 => fallback.handle_answer(at(now)),
                2 => fallback.handle_connected(at(now)),
                3 => fallback.handle_refused(at(now)),
                4 => fallback.handle_ended(at(now)),
                5 => _ = fallback.handle_successor(at(now)),
                _ => fallback.handle_asked(at(now), pause % 2 == 0),
            }
            let mut last = None;
            for _ in 0..4 {
                let Some(step) = fallback.poll_step(at(now)) else { break };
                if let FallbackStep::Use(carriage) = step { last = Some(carriage) }
            }
            prop_assert_eq!(fallback.poll_step(at(now)), None);
            prop_assert!(last.is_none_or(|last| last == fallback.carriage()));
            prop_assert!(fallback.poll_timeout().is_none_or(|at_time| at_time > at(now)));
        }
    }
}
