//! The throughput that a window allows, and how long slow start takes to open it.

use core::time::Duration;

use tcp::AckCounting;
use units::{BitRate, ByteCount};

use super::equations;
use super::trial::{MSS, Trial, seconds};
use super::{Effort, Plot, Row, Section, Series};

pub(super) fn section(_: Effort) -> Section {
    let mut rows = Vec::new();
    for kib in [8, 64, 1024] {
        for ms in [200, 560] {
            rows.push(limited(kib, ms));
        }
    }
    let mut series = Vec::new();
    for (from, to, counts_acks) in
        [(1, 512, false), (4, 512, false), (10, 640, false), (4, 512, true)]
    {
        let (row, line) = start(from, to, counts_acks);
        rows.push(row);
        series.push(line);
    }
    Section {
        title: "Windows and slow start",
        text: "Throughput with a receive window in whole segments; and the time from the first segment \
               until slow start has opened the window from its initial size. NewReno without \
               losses, RTT 560 ms for slow start."
            .to_owned(),
        rows,
        plots: vec![Plot {
            name: "slow-start",
            title: "Slow start at an RTT of 560 ms".to_owned(),
            axes: ["time in s", "window in segments"],
            logarithmic: false,
            series,
        }],
    }
}

fn limited(kib: u64, ms: u64) -> Row {
    let mut trial = Trial::new(Duration::from_millis(ms), "newreno");
    trial.rate = BitRate::from_mbit(1000);
    trial.tcp.receive_buffer = ByteCount::new(kib << 10);
    trial.tcp.acks.delay = None;
    (trial.warm_up, trial.time) = (Duration::from_secs(20), Duration::from_secs(60));
    let segments = ((kib << 10) as f64 / MSS).floor();
    let expected = segments * MSS * 8e-6 / trial.rtt.as_secs_f64();
    let ours = trial.run().goodput / 1e6;
    let claim = format!("{kib} KiB of window, RTT {ms} ms");
    Row::near(claim, "window / RTT (RFC 2488 §4.1)", "Mbit/s", (expected, ours), 0.03)
}

fn start(from: u32, to: u32, counts_acks: bool) -> (Row, Series) {
    let mut trial = Trial::new(Duration::from_millis(560), "newreno");
    trial.tcp.initial_window = from;
    trial.tcp.receive_buffer = ByteCount::new(2 << 20);
    trial.tcp.acks.delay = None;
    let (mut factor, mut how) = (2.0, "");
    if counts_acks {
        trial.tcp.counting = AckCounting::Acks;
        trial.tcp.acks.delay = Some(Duration::from_millis(200));
        (factor, how) = (1.5, ", every second segment acknowledged and acknowledgements counted");
    }
    (trial.time, trial.sample) = (Duration::from_secs(12), Duration::from_millis(10));
    let states = trial.run().states;
    // The SYN counts as one.
    let begin = states.iter().find(|state| state.outstanding > 1);
    let done = states.iter().find(|state| state.cwnd as f64 >= f64::from(to) * MSS);
    let (begin, done) = (begin.expect("it sent"), done.expect("it grew"));
    let ours = seconds(done.at) - seconds(begin.at);
    let rounds = equations::slow_start(from.into(), to.into(), factor);
    let expected = rounds * trial.rtt.as_secs_f64();
    let claim = format!("slow start from {from} to {to} segments{how}");
    let source = if counts_acks {
        "R·log₁.₅(W/IW) (RFC 2488 §4.1)"
    } else {
        "R·log₂(W/IW) (RFC 2488 §4.1)"
    };
    let points = states.iter().filter(|state| state.at <= done.at);
    let points =
        points.map(|state| (seconds(state.at) - seconds(begin.at), state.cwnd as f64 / MSS));
    let line = Series::line(
        format!("IW {from}{}", if counts_acks { ", ACKs" } else { "" }),
        points.filter(|(time, _)| *time >= 0.0).collect(),
    );
    (Row::near(claim, source, "s", (expected, ours), 0.05), line)
}
