//! Capacity asked for ahead (`pep::forecast`) on the SLACP paper's link, in virtual time: a terminal's
//! gateway without a hop, which tells the modem every 100 ms what it foresees.

use link::dama::{Dama, Slots};
use pep::forecast::{Forecast, Forecasts};
use scenario::Preset;
use units::{ByteCount, Instant, Machine};

/// A request of 1 kB and an acknowledgement as packets of the hop, in bytes.
const REQUEST: usize = 1_100;
const ACKNOWLEDGEMENT: usize = 100;
/// From a request's arrival at the hub to its reply at the terminal, in ms.
const REPLY: u64 = 300;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn link(terminals: u32) -> Dama<usize> {
    let preset = Preset::load("vsat-dama-vbdc").unwrap();
    let [_, ret] = preset.links();
    let config = preset.dama.as_ref().unwrap().config(&preset.forward, &ret, terminals).unwrap();
    Dama::new(config, 1).unwrap()
}

/// What came of one connection's requests.
struct Outcome {
    /// From each request to its reply, in ms.
    times: Vec<u64>,
    slots: Slots,
    forecasts: Forecasts,
}

/// Requests one after the other, each `think` ms after the reply to the one before.
fn requests(count: usize, think: u64, ahead: bool) -> Outcome {
    requests_on(usize::MAX, count, think, ahead)
}

/// The same with a new connection after each `on_each` requests.
fn requests_on(on_each: usize, count: usize, think: u64, ahead: bool) -> Outcome {
    let (mut link, mut forecast) = (link(1), Forecast::default());
    let (mut times, mut sent, mut reply, mut request) = (Vec::new(), 0, None, Some(1_000));
    let mut ms = 0;
    while times.len() < count || ms % 20_000 != 0 {
        ms += 1;
        while let Some((_, _, bytes)) = link.poll_arrival(at(ms)) {
            reply = reply.or((bytes == REQUEST).then_some(ms + REPLY));
        }
        if reply.take_if(|due| *due == ms).is_some() {
            forecast.handle_received(at(ms), times.len() / on_each);
            times.push(ms - sent);
            if times.len().is_multiple_of(on_each) {
                forecast.remove(times.len() / on_each - 1);
            }
            link.handle_packet(at(ms), 0, ACKNOWLEDGEMENT);
            request = (times.len() < count).then_some(ms + think);
        }
        if request.take_if(|due| *due == ms).is_some() {
            forecast.handle_sent(at(ms), times.len() / on_each, 1_000);
            link.handle_packet(at(ms), 0, REQUEST);
            sent = ms;
        }
        if ahead && ms % 100 == 0 {
            forecast.handle_timeout(at(ms));
            link.set_backlog(at(ms), 0, forecast.foreseen(ByteCount::default()));
        }
    }
    Outcome { times, slots: link.slots(0), forecasts: forecast.counts() }
}

fn mean(times: &[u64]) -> u64 {
    times.iter().sum::<u64>() / times.len() as u64
}

#[test]
fn a_foreseen_request_is_answered_30_percent_sooner() {
    let [ahead, without] = [true, false].map(|ahead| requests(40, 1, ahead));
    let [ahead_mean, mean] = [&ahead, &without].map(|outcome| mean(&outcome.times[2..]));
    assert!(10 * ahead_mean <= 7 * mean, "{ahead_mean} ms instead of {mean}");
    assert!(ahead.times.iter().max() <= without.times.iter().max(), "none is later");
    let [granted, used] = [ahead.slots.granted, ahead.slots.used];
    assert!(granted <= 3 * used, "{granted} slots for {used} cells");
}

/// As of a page that needs two requests on each connection. The first one is not foreseen.
#[test]
fn the_second_request_of_each_connection_is_answered_30_percent_sooner() {
    let [ahead, without] = [true, false].map(|ahead| requests_on(2, 40, 1, ahead));
    let every = |outcome: &Outcome, first| -> Vec<u64> {
        outcome.times[first..].iter().step_by(2).copied().collect()
    };
    let [second, second_without] = [&ahead, &without].map(|outcome| mean(&every(outcome, 1)));
    assert!(10 * second <= 7 * second_without, "{second} ms instead of {second_without}");
    let [first, first_without] = [&ahead, &without].map(|outcome| mean(&every(outcome, 0)));
    // Where in a superframe they come differs, by less than a frame on average.
    assert!(first < first_without + 53, "{first} ms instead of {first_without}");
    assert!(ahead.times[1] < without.times[1], "from the first connection on");
}

/// Connections with one request each: a forecast fails, and is the last.
#[test]
fn connections_with_one_request_are_as_before() {
    let [ahead, without] = [true, false].map(|ahead| requests_on(1, 40, 1, ahead));
    assert!(ahead.forecasts.unused <= 1 && ahead.forecasts.used == 0, "{:?}", ahead.forecasts);
    let more = ahead.slots.granted - without.slots.granted;
    assert!(more <= 8 * 28, "{more} slots");
    let later = ahead.times.iter().zip(&without.times).filter(|(ahead, without)| ahead > without);
    assert!(later.count() <= 20, "{:?} {:?}", ahead.times, without.times);
    assert!(mean(&ahead.times) <= mean(&without.times) + 10);
}

#[test]
fn a_request_that_does_not_follow_costs_little() {
    // Two requests a second apart, after which nothing follows.
    let [ahead, without] = [true, false].map(|ahead| requests(2, 1, ahead));
    // The second is foreseen, and a third.
    assert_eq!((ahead.forecasts.used, ahead.forecasts.unused), (1, 1));
    let more = ahead.slots.granted - without.slots.granted;
    // The second's and the third's size twice, in some rounds of request and grant.
    assert!(more <= 10 * 28, "{more} slots");
}

#[test]
fn requests_after_long_pauses_are_not_foreseen() {
    let [ahead, without] = [true, false].map(|ahead| requests(10, 10_000, ahead));
    assert_eq!((ahead.forecasts.used, ahead.forecasts.unused), (0, 1), "only the second");
    assert_eq!(ahead.times, without.times);
    let more = ahead.slots.granted - without.slots.granted;
    assert!(more <= 8 * 28, "{more} slots");
}

/// Slots that a terminal which uploads for a minute uses, while another one sends requests.
fn upload_beside_requests(ahead: bool) -> (u64, Slots) {
    let (mut link, mut forecast) = (link(2), Forecast::default());
    let (mut reply, mut request) = (None, Some(1_000));
    for ms in 0..60_000 {
        while let Some((_, terminal, bytes)) = link.poll_arrival(at(ms)) {
            reply = reply.or((terminal == 0 && bytes == REQUEST).then_some(ms + REPLY));
        }
        if link.mac_cells(1) < 400 {
            link.handle_packet(at(ms), 1, 1_450);
        }
        if reply.take_if(|due| *due == ms).is_some() {
            forecast.handle_received(at(ms), 0);
            link.handle_packet(at(ms), 0, ACKNOWLEDGEMENT);
            request = Some(ms + 1);
        }
        if request.take_if(|due| *due == ms).is_some() {
            forecast.handle_sent(at(ms), 0, 1_000);
            link.handle_packet(at(ms), 0, REQUEST);
        }
        if ahead && ms % 100 == 0 {
            forecast.handle_timeout(at(ms));
            link.set_backlog(at(ms), 0, forecast.foreseen(ByteCount::default()));
        }
    }
    (link.slots(1).used, link.slots(0))
}

#[test]
fn what_forecasts_cost_another_terminal_is_bounded() {
    let [(upload, requests), (alone, without)] = [true, false].map(upload_beside_requests);
    assert!(3 * requests.used >= 4 * without.used, "a third more requests: {requests:?}");
    assert!(100 * upload >= 94 * alone, "{upload} slots instead of {alone}");
    // A thirtieth of the link: 32 slots in each superframe of 106 ms.
    let (unused, all) = (requests.granted - requests.used, 60_000 / 106 * 32);
    assert!(30 * unused <= all, "{unused} slots of {all}");
}
