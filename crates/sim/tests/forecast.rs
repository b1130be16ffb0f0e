//! Capacity asked for ahead (`pep::rates::forecast`) on the SLACP paper's link, in virtual time: a terminal's
//! gateway without a hop, which tells the modem every 100 ms what it foresees.

use link::dama::{Dama, SlotCounters};
use pep::rates::forecast::{ForecastCounts, MessageForecast};
use scenario::{Preset, Scenario};
use sim::SimulationRun;
use units::{ByteCount, Instant, Machine};

/// A request of 1 kB and an acknowledgement as packets of the hop, in bytes.
const REQUEST: usize = 1_100;
const ACKNOWLEDGEMENT: usize = 100;
/// From a request's arrival at the hub to its reply at the terminal, in ms.
const REPLY: u64 = 300;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// How capacity for a message is asked for before it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Never,
    /// Foreseen by the gateway, and counted like what waits.
    Counted,
    /// Foreseen by the gateway, and granted from what nobody asks for.
    Spare,
    /// Announced by the hub, with the first byte of the reply: it knows no sooner of the reply.
    Announced,
}

/// A terminal's gateway that tells its modem every 100 ms what it foresees.
struct Gateway {
    forecast: MessageForecast<usize>,
    ahead: Ahead,
    /// What the hub has announced and has not come.
    announced: u64,
}

impl Gateway {
    fn new(ahead: Ahead) -> Self {
        Self { forecast: MessageForecast::default(), ahead, announced: 0 }
    }

    fn sent(&mut self, ms: u64, connection: usize) {
        self.announced = 0;
        self.forecast.handle_sent(at(ms), connection, 1_000);
    }

    fn received(&mut self, ms: u64, connection: usize, link: &mut Dama<usize>) {
        self.forecast.handle_received(at(ms), connection);
        if self.ahead == Ahead::Announced {
            self.announced = (REQUEST + ACKNOWLEDGEMENT + 96) as u64;
            link.set_backlog(at(ms), 0, ByteCount::new(self.announced));
        }
    }

    fn tell(&mut self, ms: u64, link: &mut Dama<usize>) {
        self.forecast.handle_timeout(at(ms));
        let foreseen = self.forecast.foreseen(ByteCount::default());
        match self.ahead {
            Ahead::Never => {}
            Ahead::Counted => link.set_backlog(at(ms), 0, foreseen),
            Ahead::Spare => link.set_foreseen(at(ms), 0, foreseen),
            Ahead::Announced => link.set_backlog(at(ms), 0, ByteCount::new(self.announced)),
        }
    }
}

fn link(terminals: u32) -> Dama<usize> {
    link_of("vsat-dama-vbdc", terminals)
}

fn link_of(preset: &str, terminals: u32) -> Dama<usize> {
    let preset = Preset::load(preset).unwrap();
    let [_, ret] = preset.links();
    let config = preset.dama.as_ref().unwrap().config(&preset.forward, &ret, terminals).unwrap();
    Dama::new(config, 1).unwrap()
}

/// What came of one connection's requests.
struct Outcome {
    /// From each request to its reply, in ms.
    times: Vec<u64>,
    slots: SlotCounters,
    forecasts: ForecastCounts,
}

/// Requests one after the other, each `think` ms after the reply to the one before.
fn requests(count: usize, think: u64, ahead: Ahead) -> Outcome {
    requests_on(usize::MAX, count, think, ahead)
}

/// The same with a new connection after each `on_each` requests.
fn requests_on(on_each: usize, count: usize, think: u64, ahead: Ahead) -> Outcome {
    requests_over(link(1), on_each, count, think, ahead)
}

/// The same over that link.
fn requests_over(
    mut link: Dama<usize>,
    on_each: usize,
    count: usize,
    think: u64,
    ahead: Ahead,
) -> Outcome {
    let mut gateway = Gateway::new(ahead);
    let (mut times, mut sent, mut reply, mut request) = (Vec::new(), 0, None, Some(1_000));
    let mut ms = 0;
    while times.len() < count || ms % 20_000 != 0 {
        ms += 1;
        while let Some((_, _, bytes)) = link.poll_arrival(at(ms)) {
            reply = reply.or_else(|| (bytes == REQUEST).then_some(ms + REPLY));
        }
        if reply.take_if(|due| *due == ms).is_some() {
            gateway.received(ms, times.len() / on_each, &mut link);
            times.push(ms - sent);
            if times.len().is_multiple_of(on_each) {
                gateway.forecast.remove(times.len() / on_each - 1);
            }
            link.handle_packet(at(ms), 0, ACKNOWLEDGEMENT);
            request = (times.len() < count).then_some(ms + think);
        }
        if request.take_if(|due| *due == ms).is_some() {
            gateway.sent(ms, times.len() / on_each);
            link.handle_packet(at(ms), 0, REQUEST);
            sent = ms;
        }
        if ms % 100 == 0 {
            gateway.tell(ms, &mut link);
        }
    }
    Outcome { times, slots: link.slots(0), forecasts: gateway.forecast.counts() }
}

fn mean(times: &[u64]) -> u64 {
    times.iter().sum::<u64>() / times.len() as u64
}

/// The two ways in which forecasts are asked for.
const FORESEEN: [Ahead; 2] = [Ahead::Counted, Ahead::Spare];

#[test]
fn a_foreseen_request_is_answered_30_percent_sooner() {
    let without = requests(40, 1, Ahead::Never);
    for way in FORESEEN {
        let ahead = requests(40, 1, way);
        let [ahead_mean, mean] = [&ahead, &without].map(|outcome| mean(&outcome.times[2..]));
        println!("{way:?}: {ahead_mean} ms instead of {mean}, {:?}", ahead.slots);
        assert!(10 * ahead_mean <= 7 * mean, "{way:?}: {ahead_mean} ms instead of {mean}");
        assert!(ahead.times.iter().max() <= without.times.iter().max(), "{way:?}: none is later");
        // What nobody asks for may be granted in vain.
        let [granted, used] = [ahead.slots.granted, ahead.slots.used];
        let is_bounded = granted <= 3 * used || way == Ahead::Spare;
        assert!(is_bounded, "{way:?}: {granted} slots for {used} cells");
    }
}

/// What a hub could announce comes too late. With a constant rate, which needs no grant, a request
/// takes what is left: two propagations, its cells and the reply.
#[test]
fn an_announcement_by_the_hub_gains_less_than_a_forecast() {
    for think in [1, 300, 1_000] {
        let of = |ahead| mean(&requests(40, think, ahead).times[2..]);
        let [never, announced, counted, spare] =
            [Ahead::Never, Ahead::Announced, Ahead::Counted, Ahead::Spare].map(of);
        let constant = link_of("vsat-dama-cra", 1);
        let outcome = requests_over(constant, usize::MAX, 40, think, Ahead::Never);
        println!(
            "next request after {think} ms: {never} ms without, {announced} announced, {counted} \
             foreseen, {spare} from spare capacity, {} with CRA",
            mean(&outcome.times[2..])
        );
        assert!(counted <= announced && spare <= announced, "{think} ms");
    }
}

/// A download between gateways that split.
const DOWNLOAD: &str = r#"
description = "a download over capacity on demand"
hop = "vsat-dama-vbdc"
time = "100 s"

[server-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "100 packets"

[client-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "100 packets"

[gateways]
split = "three"
hop = "slacp"
forward-rate = "440 kbit/s"
return-rate = "110 kbit/s"

[[flow]]
name = "file"
kind = "bulk"
direction = "down"
bytes = "10 kB"
start = "3 s"
"#;

/// How long it takes, in seconds.
fn download(hop: &str, bytes: &str) -> f64 {
    let text = DOWNLOAD.replace("vsat-dama-vbdc", hop).replace("10 kB", bytes);
    let scenario = Scenario::parse("download.toml", &text).unwrap();
    let mut run = SimulationRun::new(&scenario.cases[0], 1);
    run.finish();
    let metrics = run.metrics();
    metrics.iter().find(|it| it.of == "file" && it.name == "time-max-s").unwrap().value
}

/// The hub knows of a download when it begins to send it, and could ask for the capacity of its
/// acknowledgements. They need none in time: a longer download waits for grants no longer than a
/// short one, which waits for that of its request.
#[test]
fn downloads_do_not_wait_for_grants_of_their_acknowledgements() {
    let waits = ["10 kB", "100 kB", "1 MB"].map(|bytes| {
        let [constant, asked] = ["vsat-dama-cra", "vsat-dama-vbdc"].map(|hop| download(hop, bytes));
        println!("{bytes}: {constant:.2} s with CRA, {asked:.2} s with VBDC");
        asked - constant
    });
    let request = waits[0];
    assert!((0.5..1.3).contains(&request), "{request} s");
    assert!(waits.iter().all(|wait| *wait <= request + 0.05), "{waits:?}");
}

/// As of a page that needs two requests on each connection. The first one is not foreseen.
#[test]
fn the_second_request_of_each_connection_is_answered_30_percent_sooner() {
    let without = requests_on(2, 40, 1, Ahead::Never);
    let every = |outcome: &Outcome, first| -> Vec<u64> {
        outcome.times[first..].iter().step_by(2).copied().collect()
    };
    for way in FORESEEN {
        let ahead = requests_on(2, 40, 1, way);
        let [second, second_without] = [&ahead, &without].map(|outcome| mean(&every(outcome, 1)));
        assert!(10 * second <= 7 * second_without, "{second} ms instead of {second_without}");
        let [first, first_without] = [&ahead, &without].map(|outcome| mean(&every(outcome, 0)));
        // Where in a superframe they come differs, by less than a frame on average.
        assert!(first < first_without + 53, "{first} ms instead of {first_without}");
        assert!(ahead.times[1] < without.times[1], "from the first connection on");
    }
}

/// The second has been foreseen, and the third comes sooner after it than it came after the first.
#[test]
fn the_third_request_of_each_connection_is_answered_30_percent_sooner() {
    let third =
        |outcome: Outcome| -> Vec<u64> { outcome.times[2..].iter().step_by(3).copied().collect() };
    let without = mean(&third(requests_on(3, 42, 1, Ahead::Never)));
    for way in FORESEEN {
        let with = mean(&third(requests_on(3, 42, 1, way)));
        println!("{way:?}: {with} ms instead of {without}");
        assert!(10 * with <= 7 * without, "{way:?}: {with} ms instead of {without}");
    }
}

/// Connections with one request each: a forecast fails, and is the last.
#[test]
fn connections_with_one_request_are_as_before() {
    let [ahead, without] = [Ahead::Counted, Ahead::Never].map(|ahead| requests_on(1, 40, 1, ahead));
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
    let [ahead, without] = [Ahead::Counted, Ahead::Never].map(|ahead| requests(2, 1, ahead));
    // The second is foreseen, and a third.
    assert_eq!((ahead.forecasts.used, ahead.forecasts.unused), (1, 1));
    let more = ahead.slots.granted - without.slots.granted;
    // The second's and the third's size twice, in some rounds of request and grant.
    assert!(more <= 10 * 28, "{more} slots");
}

#[test]
fn requests_after_long_pauses_are_not_foreseen() {
    let [ahead, without] = [Ahead::Counted, Ahead::Never].map(|ahead| requests(10, 10_000, ahead));
    assert_eq!((ahead.forecasts.used, ahead.forecasts.unused), (0, 1), "only the second");
    assert_eq!(ahead.times, without.times);
    let more = ahead.slots.granted - without.slots.granted;
    assert!(more <= 8 * 28, "{more} slots");
}

/// Slots that a terminal which uploads for a minute uses, while another one sends requests. The
/// upload has packets for this share of the link's 32 slots in 106 ms, in percent.
fn upload_beside_requests(load: u64, ahead: Ahead) -> (u64, SlotCounters) {
    let (mut link, mut gateway) = (link(2), Gateway::new(ahead));
    let (mut reply, mut request, mut offered) = (None, Some(1_000), 0);
    for ms in 0..60_000 {
        while let Some((_, terminal, bytes)) = link.poll_arrival(at(ms)) {
            reply = reply.or_else(|| (terminal == 0 && bytes == REQUEST).then_some(ms + REPLY));
        }
        // A packet has 31 cells.
        while link.mac_cells(1) < 400 && offered * 31 * 106 * 100 < ms * 32 * load {
            link.handle_packet(at(ms), 1, 1_450);
            offered += 1;
        }
        if reply.take_if(|due| *due == ms).is_some() {
            gateway.received(ms, 0, &mut link);
            link.handle_packet(at(ms), 0, ACKNOWLEDGEMENT);
            request = Some(ms + 1);
        }
        if request.take_if(|due| *due == ms).is_some() {
            gateway.sent(ms, 0);
            link.handle_packet(at(ms), 0, REQUEST);
        }
        if ms % 100 == 0 {
            gateway.tell(ms, &mut link);
        }
    }
    (link.slots(1).used, link.slots(0))
}

#[test]
fn what_forecasts_cost_another_terminal_is_bounded() {
    let [(upload, requests), (alone, without)] =
        [Ahead::Counted, Ahead::Never].map(|ahead| upload_beside_requests(200, ahead));
    assert!(3 * requests.used >= 4 * without.used, "a third more requests: {requests:?}");
    assert!(100 * upload >= 94 * alone, "{upload} slots instead of {alone}");
    // A thirtieth of the link: 32 slots in each superframe of 106 ms.
    let (unused, all) = (requests.granted - requests.used, 60_000 / 106 * 32);
    assert!(30 * unused <= all, "{unused} slots of {all}");
}

/// A neighbour pays nothing for forecasts that spare capacity serves, whatever it sends.
#[test]
fn forecasts_that_take_spare_capacity_cost_another_terminal_nothing() {
    for load in [25, 50, 75, 200] {
        let of = |ahead| upload_beside_requests(load, ahead);
        let [(upload, requests), (alone, without)] = [Ahead::Spare, Ahead::Never].map(of);
        println!(
            "load {load} %: upload {upload} slots instead of {alone}, requests {} cells instead of {}",
            requests.used, without.used
        );
        assert!(1000 * upload >= 995 * alone, "{load} %: {upload} slots instead of {alone}");
        let more = requests.used as f64 / without.used as f64;
        assert!(more >= if load <= 75 { 1.3 } else { 1.0 }, "{load} %: {more} times the requests");
    }
}
