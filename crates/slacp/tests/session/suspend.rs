//! A machine that was asleep, or whose clock leaps ahead: hours of timers are due at once.

use core::time::Duration;
use std::net::SocketAddr;

use slacp::{
    Config, DownReason, Endpoint, Event, KeyPair, Rate, ReadOutcome, SessionId, StreamOpening,
};
use units::{BitRate, Instant, Machine};

const HOUR: Duration = Duration::from_secs(3600);
const STEP: Duration = Duration::from_millis(5);
/// Without padding at the start of a session, which would count as datagrams of a storm.
const UNPROBED: Rate = Rate::Auto { ceiling: None, probe: false };

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1))
}

/// A terminal whose clock leaps and a hub whose clock does not, on a link of 100 ms.
struct Pair {
    now: Instant,
    /// How far the terminal's clock is ahead.
    ahead: Duration,
    ends: [Endpoint; 2],
    sessions: [Option<SessionId>; 2],
    /// Arrival, destination, datagram.
    flights: Vec<(Instant, usize, Vec<u8>)>,
    /// Datagrams sent by the terminal.
    sent: usize,
    events: [Vec<Event>; 2],
}

impl Pair {
    fn new(rate: Rate) -> Self {
        let key = |seed: u8| KeyPair::from_private([seed; 32]);
        let config = Config::new(rate);
        let hub = Endpoint::hub(config.clone(), key(1), vec![key(2).public()], [9; 32]);
        let to = vec![address()];
        let terminal = Endpoint::terminal(config, key(2), key(1).public(), to, [8; 32]);
        Self {
            now: Instant::from_nanos(1_000_000_000),
            ahead: Duration::ZERO,
            ends: [terminal, hub],
            sessions: [None; 2],
            flights: Vec::new(),
            sent: 0,
            events: [Vec::new(), Vec::new()],
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            self.step();
        }
    }

    fn clock(&self, side: usize) -> Instant {
        if side == 0 { self.now + self.ahead } else { self.now }
    }

    fn step(&mut self) {
        let now = self.now;
        for (_, to, mut datagram) in self.flights.extract_if(.., |flight| flight.0 <= now) {
            let clock = if to == 0 { now + self.ahead } else { now };
            self.ends[to].handle_datagram(clock, address(), &mut datagram);
        }
        for side in [0, 1] {
            let (clock, mut buf) = (self.clock(side), Vec::new());
            self.ends[side].handle_timeout(clock);
            while self.ends[side].poll_transmit(clock, &mut buf).is_some() {
                self.sent += 1 - side;
                self.flights.push((now + Duration::from_millis(100), 1 - side, buf.clone()));
            }
            while let Some((id, event)) = self.ends[side].poll_event() {
                match event {
                    Event::Up { .. } => self.sessions[side] = Some(id),
                    Event::Down(_) if self.sessions[side] == Some(id) => self.sessions[side] = None,
                    _ => {}
                }
                self.events[side].push(event);
            }
        }
    }

    /// Makes the terminal's clock leap; returns how many datagrams it sends at once, and in the
    /// next second.
    fn leap(&mut self, time: Duration) -> [usize; 2] {
        self.ahead += time;
        let before = self.sent;
        self.step();
        let at_once = self.sent - before;
        self.run(Duration::from_secs(1));
        [at_once, self.sent - before]
    }

    /// Whether a stream can carry a byte to the hub.
    fn works(&mut self) -> bool {
        let Some(session) = self.sessions[0] else { return false };
        let open = StreamOpening { destination: address(), source: address(), dscp: None };
        let stream = self.ends[0].open(self.clock(0), session, open).unwrap();
        self.ends[0].write(session, stream, b"!").unwrap();
        self.run(Duration::from_secs(1));
        let Some(session) = self.sessions[1] else { return false };
        matches!(self.ends[1].read(session, stream, &mut [0; 8]), Ok(ReadOutcome::Data(1)))
    }
}

/// What a terminal does in the second before its clock leaps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    Nothing,
    Sending,
    Asking,
}

#[test]
fn a_leap_of_hours_is_no_storm_and_the_session_goes_on() {
    for rate in [Rate::Fixed(BitRate::from_mbit(10)), UNPROBED] {
        for doing in [Doing::Nothing, Doing::Sending, Doing::Asking] {
            for leap in [HOUR / 60, HOUR, HOUR * 10_000] {
                let case = format!("{rate:?}, {doing:?}, {leap:?}");
                let mut pair = Pair::new(rate.clone());
                if doing != Doing::Asking {
                    pair.run(Duration::from_secs(2));
                }
                if doing == Doing::Sending {
                    assert!(pair.works(), "{case}");
                    let session = pair.sessions[0].unwrap();
                    let open =
                        StreamOpening { destination: address(), source: address(), dscp: None };
                    let stream = pair.ends[0].open(pair.clock(0), session, open).unwrap();
                    pair.ends[0].write(session, stream, &[7; 60_000]).unwrap();
                    pair.run(Duration::from_millis(20));
                }
                let [at_once, later] = pair.leap(leap);
                println!("{case}: {at_once} at once, {later} in a second");
                // Queued data may leave in a burst of 4 ms; everything else is single packets.
                assert!(at_once <= 10 && later <= 100, "{case}: {at_once}, {later} datagrams");
                pair.run(Duration::from_secs(3));
                assert!(pair.works(), "{case}: {:?}", pair.events);
                let rtt = pair.ends[0].stats(pair.sessions[0].unwrap()).unwrap().rtt;
                assert!(rtt < Duration::from_millis(1300), "{case}: {rtt:?}");
                let ended = |event: &Event| matches!(event, Event::Down(_));
                assert!(!pair.events.iter().flatten().any(ended), "{case}: {:?}", pair.events);
            }
        }
    }
}

/// The hub has forgotten the session meanwhile. It says so, and a new session follows at once.
#[test]
fn after_a_night_a_terminal_is_back_in_seconds() {
    let mut pair = Pair::new(UNPROBED);
    pair.run(Duration::from_secs(2));
    // The terminal sleeps while time passes for the hub.
    let (before, step) = (pair.now, Duration::from_secs(1));
    while pair.now < before + HOUR * 8 {
        pair.now += step;
        pair.ends[1].handle_timeout(pair.now);
        while pair.ends[1].poll_transmit(pair.now, &mut Vec::new()).is_some() {}
        while let Some((_, event)) = pair.ends[1].poll_event() {
            pair.events[1].push(event);
        }
    }
    assert_eq!(pair.events[1].last(), Some(&Event::Down(DownReason::GivenUp)));
    pair.sessions[1] = None;
    let sent = pair.sent;
    pair.run(Duration::from_secs(3));
    assert!(pair.sent - sent < 100, "{} datagrams", pair.sent - sent);
    assert!(pair.works(), "{:?}", pair.events);
}
