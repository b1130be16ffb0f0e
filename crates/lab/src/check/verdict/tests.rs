//! A link that is as configured passes, and one that is not fails where it differs. The measured
//! links run in virtual time.

use link::{CarriedPacket, Link};
use units::{Instant, Machine};

use super::super::probe::ProbeFlow;
use super::super::{asked, flows};
use super::*;
use crate::testkit::preset;

const MTU: u16 = 1500;
/// When the second flow begins, and when the link is empty after it, in nanoseconds.
const SECOND: u64 = 10_000_000_000;
const END: u64 = 30_000_000_000;

struct Probe(u32, usize);

impl CarriedPacket for Probe {
    fn wire_len(&self) -> usize {
        self.1
    }
}

/// What probes measure on a link.
#[derive(Default)]
struct Measured {
    asked: Option<ConfiguredLink>,
    delay: ProbeTrace,
    flood: ProbeTrace,
    dropped: u64,
    fill: ProbeTrace,
    each: Duration,
    overload: Option<ProbeTrace>,
}

/// Sends a flow from `begin` on, and waits until `end`.
fn pass(link: &mut Link<Probe>, flow: &ProbeFlow, begin: u64, end: u64) -> ProbeTrace {
    let mut trace = ProbeTrace::default();
    let take = |link: &mut Link<Probe>, now, arrived: &mut Vec<(u32, u64)>| {
        while let Some((at, probe)) = link.poll_arrival(now) {
            arrived.push((probe.0, at.as_nanos()));
        }
    };
    for (seq, after) in (0..).zip(&flow.times) {
        let now = Instant::from_nanos(begin) + *after;
        take(link, now, &mut trace.arrived);
        trace.sent.push((seq, now.as_nanos()));
        link.handle_packet(now, Probe(seq, flow.len));
    }
    link.handle_timeout(Instant::from_nanos(end));
    take(link, Instant::from_nanos(end), &mut trace.arrived);
    trace
}

impl Measured {
    /// Measures the link `real` as a check does that expects the link `configured`; both are lines
    /// of a preset.
    fn of(configured: &str, real: &str) -> Self {
        let [configured, real] = [configured, real].map(preset);
        let asked_of = |preset: &_| ConfiguredLink::of(preset, LinkName::Forward);
        let expected = asked_of(&configured);
        let [no_discipline, plain, lossless] =
            [asked::drop_tail, asked::plain, asked::lossless].map(|of| asked_of(&of(&real)).link);
        let mut link = Link::new(no_discipline, 7);
        let delay = pass(&mut link, &flows::delay(&expected), 0, SECOND);
        let flood = flows::flood(&expected, MTU, SECOND).unwrap();
        let flood = pass(&mut link, &flood, SECOND, END);
        let dropped = link.counters().dropped_queue.packets;
        let expected_plain = asked_of(&asked::plain(&configured));
        let fill = flows::fill(&expected_plain, MTU).unwrap();
        let fill = pass(&mut Link::new(plain, 7), &fill, 0, END);
        let has_discipline = expected.discipline != link::DisciplineChoice::DropTail;
        let overload = has_discipline.then(|| {
            let flow = flows::overload(&expected, MTU, 0).unwrap();
            pass(&mut Link::new(lossless, 7), &flow, 0, END)
        });
        let each = expected_plain.longest_time_of(MTU.into());
        Self { asked: Some(expected), delay, flood, dropped, fill, each, overload }
    }

    fn report(&self) -> DirectionReport {
        let direction = MeasuredDirection {
            name: LinkName::Forward,
            asked: self.asked.as_ref().unwrap(),
            mtu: MTU,
            delay: &self.delay,
            flood: &self.flood,
            dropped: self.dropped,
            fill: &self.fill,
            each: self.each,
            overload: self.overload.as_ref(),
        };
        direction.report()
    }
}

/// The verdicts, in the order of the report; `None` if it was not measured.
fn verdicts(report: &DirectionReport) -> [(&'static str, Option<bool>); 6] {
    [
        ("delay", report.delay.as_ref().map(|delay| delay.within)),
        ("rate", report.rate.as_ref().map(|rate| rate.within)),
        ("loss", report.loss.as_ref().map(|loss| loss.within)),
        ("order", Some(report.order.within)),
        ("queue", report.queue.as_ref().map(|queue| queue.within)),
        ("discipline", report.discipline.as_ref().map(|discipline| discipline.within)),
    ]
}

fn outside(report: &DirectionReport) -> Vec<&'static str> {
    let verdicts = verdicts(report).into_iter();
    verdicts.filter(|(_, within)| *within == Some(false)).map(|(what, _)| what).collect()
}

#[test]
fn a_link_as_configured_passes_in_all_that_is_measured() {
    for lines in [
        "",
        "queue = \"64 kB\"",
        "per = \"1 %\"",
        "ber = \"1e-6\"",
        "loss-period = 50",
        "jitter = \"20 ms\"",
        "jitter = \"20 ms reordering\"",
        "encapsulation = \"fixed 18 B\"",
        "rate-trace = [\"0s 12 Mbit/s\", \"11s 3 Mbit/s\"]",
        "delay-trace = [\"0s 300 ms\", \"1s 20 ms\"]",
        "outages = [\"11s+100ms\"]",
        "discipline = \"codel target=5ms interval=100ms\"",
        "discipline = \"red\"",
    ] {
        let report = Measured::of(lines, lines).report();
        assert_eq!(outside(&report), [""; 0], "{lines}: {report:?}");
        for (what, within) in &verdicts(&report)[..5] {
            assert!(within.is_some(), "{lines}: {what} was not measured");
        }
        assert_eq!(report.discipline.is_some(), lines.contains("discipline"), "{lines}");
    }
}

#[test]
fn a_link_fails_in_exactly_what_differs() {
    for (configured, real, expected) in [
        ("", "delay = \"301 ms\"", &["delay"][..]),
        ("", "delay = \"299 ms\"", &["delay"]),
        ("", "rate = \"12.1 Mbit/s\"", &["rate"]),
        ("", "per = \"0.1 %\"", &["loss"]),
        ("per = \"1 %\"", "per = \"3 %\"", &["loss"]),
        ("per = \"3 %\"", "per = \"1 %\"", &["loss"]),
        ("ber = \"1e-6\"", "", &["loss"]),
        ("outages = [\"11s+100ms\"]", "outages = [\"11s+110ms\"]", &["loss"]),
        ("outages = [\"11s+100ms\"]", "", &["loss"]),
        ("", "queue = \"101 packets\"", &["queue"]),
        ("", "queue = \"99 packets\"", &["queue"]),
        ("jitter = \"20 ms\"", "", &["delay"]),
        ("", "jitter = \"5 ms\"", &["delay"]),
        ("jitter = \"20 ms\"", "jitter = \"20 ms reordering\"", &["order"]),
        ("discipline = \"red\"", "", &["discipline"]),
    ] {
        let report = Measured::of(configured, real).report();
        assert_eq!(outside(&report), expected, "{configured} but {real}: {report:?}");
    }
}

#[test]
fn drops_by_a_full_queue_are_no_losses() {
    let mut measured = Measured::of("", "");
    let lost: Vec<_> = measured.flood.arrived.drain(1000..1005).collect();
    assert_eq!(outside(&measured.report()), ["loss"]);
    measured.dropped = lost.len() as u64;
    let loss = measured.report().loss.unwrap();
    assert_eq!((loss.lost, loss.sent), (0, measured.flood.sent.len() as u64 - 5));
    assert!(loss.within);
}

#[test]
fn a_rate_is_unknown_if_the_queue_dropped_other_packets_than_expected() {
    let mut measured = Measured::of("", "");
    let few = measured.flood.sent.len() as u64 / 1000;
    measured.dropped = few;
    assert!(measured.report().rate.is_some());
    measured.dropped = few + 1;
    assert_eq!(measured.report().rate, None);
}

#[test]
fn a_queue_that_was_never_full_is_only_judged_if_it_is_too_long() {
    let mut measured = Measured::of("", "queue = \"200 packets\"");
    let queue = measured.report().queue.unwrap();
    assert!(!queue.full && !queue.within && queue.measured_packets > 100, "{queue:?}");
    // With half of the probes sent, the queue as configured would not have been full.
    measured.fill.sent.truncate(100);
    measured.fill.arrived.truncate(100);
    assert_eq!(measured.report().queue, None);
}

#[test]
fn without_probes_there_is_no_verdict_but_on_the_order() {
    let measured = Measured { asked: Some(ConfiguredLink::forward("")), ..Measured::default() };
    let expected = ["delay", "rate", "loss", "order", "queue", "discipline"]
        .map(|what| (what, (what == "order").then_some(true)));
    assert_eq!(verdicts(&measured.report()), expected);
}

#[test]
fn one_probe_that_arrives_twice_is_out_of_order() {
    let mut measured = Measured::of("", "");
    let last = *measured.fill.arrived.last().unwrap();
    measured.fill.arrived.push(last);
    let order = measured.report().order;
    assert_eq!((order.out_of_order, order.within), (1, false));
}
