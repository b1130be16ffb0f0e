//! Scenarios for the circuit breaker alone, and properties of it.

use proptest::prelude::*;
use units::ByteCount;

use super::*;

const RTT: Duration = Duration::from_millis(600);
/// The configured rate.
const LIMIT: BitRate = BitRate::from_mbit(12);
const SIZE: u16 = 1500;

/// A session that always sends as fast as it may, with the fates of its packets known `RTT` later.
struct Sender {
    now: Instant,
    breaker: Breaker,
    fates: std::collections::VecDeque<PacketFate>,
    /// When it tripped, tried, and so on.
    changes: Vec<(u64, Change)>,
    sent: u64,
    dice: u64,
}

impl Sender {
    fn new() -> Self {
        Self {
            now: Instant::ZERO,
            breaker: Breaker::new(LIMIT),
            fates: std::collections::VecDeque::new(),
            changes: Vec::new(),
            sent: 0,
            dice: 1,
        }
    }

    fn seconds(&self) -> u64 {
        self.now.as_nanos() / 1_000_000_000
    }

    fn note(&mut self, change: Option<Change>) {
        let second = self.seconds();
        self.changes.extend(change.map(|change| (second, change)));
    }

    /// Whether something with this chance happens. Weyl's sequence: evenly spread.
    fn by_chance(&mut self, chance: f64) -> bool {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (self.dice as f64) < chance * u64::MAX as f64
    }

    /// Sends until `second`. `carries` is the link's rate in Mbit/s at a time in seconds.
    fn run(&mut self, second: u64, carries: impl Fn(f64) -> f64) {
        while self.seconds() < second {
            let rate = self.breaker.rate();
            let time = self.now.as_nanos() as f64 / 1e9;
            let arrives = carries(time) * 1e6 / rate.bits_per_second() as f64;
            let lost = !self.by_chance(arrives);
            self.fates.push_back(PacketFate { time: self.now, size: SIZE, lost });
            self.breaker.sent(self.now);
            self.sent += 1;
            self.now += rate.time_to_send(ByteCount::new(SIZE.into()));
            self.catch_up();
        }
    }

    fn catch_up(&mut self) {
        while let Some(fate) = self.fates.pop_front_if(|fate| fate.time + RTT <= self.now) {
            let change = self.breaker.saw(self.now, RTT, &fate);
            self.note(change);
        }
        let change = self.breaker.handle_timeout(self.now);
        self.note(change);
    }

    fn mbit(&self) -> f64 {
        self.breaker.rate().bits_per_second() as f64 / 1e6
    }
}

#[test]
fn ten_times_too_fast_trips_after_half_a_minute_and_sends_what_was_delivered() {
    let mut sender = Sender::new();
    sender.run(50, |_| 1.2);
    let [(second, Change::Tripped)] = sender.changes[..] else { panic!("{:?}", sender.changes) };
    assert!((30..34).contains(&second), "after {second} s");
    let mbit = sender.mbit();
    assert!((1.0..=1.08).contains(&mbit), "{mbit} Mbit/s");
}

#[test]
fn it_tries_ever_more_rarely() {
    let mut sender = Sender::new();
    sender.run(4000, |_| 1.2);
    let times = |which| {
        let found = sender.changes.iter().filter(move |(_, change)| *change == which);
        found.map(|(second, _)| *second).collect::<Vec<_>>()
    };
    let (failed, tried) = (times(Change::Again), times(Change::Trial));
    assert_eq!(times(Change::Tripped).len(), 1, "{:?}", sender.changes);
    // A trial begins and ends.
    let begun: Vec<u64> = tried.iter().step_by(2).copied().collect();
    let pauses: Vec<u64> = begun.iter().skip(1).zip(&failed).map(|(a, b)| a - b).collect();
    assert_eq!(pauses, [120, 240, 480, 900, 900, 900]);
    // Without the breaker it would have been 4000 s of 1000 packets.
    assert!(sender.sent < 45_000 + 4000 * 100, "{} packets", sender.sent);
}

#[test]
fn it_closes_when_the_link_has_become_fast_enough() {
    let mut sender = Sender::new();
    sender.run(200, |time| if time < 60.0 { 1.2 } else { 12.0 });
    let closed = sender.changes.last();
    assert!(matches!(closed, Some((90..=100, Change::Closed))), "{:?}", sender.changes);
    assert_eq!(sender.breaker.rate(), LIMIT);
}

#[test]
fn a_failed_trial_shows_what_the_path_carries_now() {
    let mut sender = Sender::new();
    sender.run(100, |time| if time < 60.0 { 1.2 } else { 3.0 });
    let mbit = sender.mbit();
    assert!((2.4..=2.9).contains(&mbit), "{mbit} Mbit/s: {:?}", sender.changes);
}

#[test]
fn a_trip_soon_after_a_trial_that_passed_doubles_the_pause() {
    let mut sender = Sender::new();
    sender.run(300, |time| if (60.0..100.0).contains(&time) { 12.0 } else { 1.2 });
    let begun =
        |n: usize| sender.changes.iter().filter(|it| it.1 == Change::Trial).nth(n).unwrap().0;
    let trips: Vec<u64> =
        sender.changes.iter().filter(|it| it.1 == Change::Tripped).map(|it| it.0).collect();
    assert_eq!(trips.len(), 2, "{:?}", sender.changes);
    assert_eq!((begun(0) - trips[0], begun(2) - trips[1]), (60, 120));
}

/// A link's rate in Mbit/s at a time in seconds.
type Carries = fn(f64) -> f64;

#[test]
fn what_satellite_links_do_does_not_trip_it() {
    let spared: [(&str, Carries); 7] = [
        ("1.5 times too fast", |_| 8.0),
        ("30 % of chance", |_| 8.4),
        ("half the rate for minutes", |time| if time < 300.0 { 6.0 } else { 12.0 }),
        ("all of that at once", |_| 12.0 / 1.5 / 2.0 * 0.8),
        ("outages of a second", |time| if time % 2.0 < 1.0 { 0.0 } else { 12.0 }),
        ("outages that leave a seventh", |time| if time % 3.0 < 2.6 { 0.0 } else { 12.0 }),
        ("a tenth for 20 s in a minute", |time| if time % 60.0 < 20.0 { 1.2 } else { 12.0 }),
    ];
    for (name, carries) in spared {
        let mut sender = Sender::new();
        sender.run(600, carries);
        assert_eq!(sender.changes, [], "{name}");
    }
}

#[test]
fn a_peer_that_acknowledges_a_packet_now_and_then_does_not_keep_the_rate_up() {
    for every in [0.1, 0.5, 1.5] {
        let mut sender = Sender::new();
        sender.run(120, |time| if time % every < 0.001 { 12.0 } else { 0.0 });
        assert!(sender.mbit() < 0.5, "every {every} s: {:?}", sender.changes);
    }
}

#[test]
fn a_trial_without_a_result_closes_nothing() {
    let mut sender = Sender::new();
    sender.run(50, |_| 1.2);
    // An outage from now on, and so no result.
    sender.run(120, |time| if time < 80.0 { 1.2 } else { 0.0 });
    assert!(sender.breaker.is_tripped() && sender.mbit() < 1.2, "{:?}", sender.changes);
}

#[test]
fn a_report_closes_it_if_it_is_news() {
    let mut sender = Sender::new();
    sender.run(50, |_| 1.2);
    let now = sender.now;
    let repeated = sender.breaker.follow(now, BitRate::from_mbit(11));
    assert_eq!((repeated, sender.breaker.is_tripped()), (None, true));
    let news = sender.breaker.follow(now, BitRate::from_mbit(1));
    assert_eq!((news, sender.breaker.rate()), (Some(Change::Closed), BitRate::from_mbit(1)));
}

#[derive(Debug, Clone)]
enum Input {
    Packets { count: u16, lost: u8, gap: u32 },
    Pass(u32),
    Follow(u32),
    Reset(u32),
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        8 => (1..2000u16, 0..=100u8, 0..20_000u32)
            .prop_map(|(count, lost, gap)| Input::Packets { count, lost, gap }),
        3 => (0..400_000u32).prop_map(Input::Pass),
        1 => any::<u32>().prop_map(Input::Follow),
        1 => any::<u32>().prop_map(Input::Reset),
    ]
}

/// The rates after each input, and the limits.
fn rates(inputs: &[Input]) -> Vec<(BitRate, BitRate)> {
    let (mut now, mut limit) = (Instant::ZERO, LIMIT);
    let mut breaker = Breaker::new(limit);
    let mut rates = Vec::new();
    for input in inputs {
        match input {
            Input::Packets { count, lost, gap } => {
                for n in 0..*count {
                    now += Duration::from_micros((*gap).into());
                    breaker.sent(now);
                    let lost = u32::from(n) * 37 % 100 < u32::from(*lost);
                    breaker.saw(now, RTT, &PacketFate { time: now, size: SIZE, lost });
                }
            }
            Input::Pass(millis) => now += Duration::from_millis((*millis).into()),
            Input::Follow(bits) => {
                limit = BitRate::from_bits_per_second((*bits).into());
                breaker.follow(now, limit);
            }
            Input::Reset(bits) => {
                limit = BitRate::from_bits_per_second((*bits).into());
                breaker.reset(now, limit);
            }
        }
        breaker.handle_timeout(now);
        assert!(breaker.poll_timeout().is_none_or(|time| time > now), "{breaker:?}");
        rates.push((breaker.rate(), limit));
    }
    rates
}

proptest! {
    #[test]
    fn the_rate_stays_between_floor_and_limit(inputs in prop::collection::vec(input(), 0..60)) {
        for (rate, limit) in rates(&inputs) {
            prop_assert!(rate <= limit && rate >= limit.min(FLOOR), "{rate} of {limit}");
        }
    }

    #[test]
    fn the_same_inputs_have_the_same_rates(inputs in prop::collection::vec(input(), 0..20)) {
        prop_assert_eq!(rates(&inputs), rates(&inputs));
    }
}
