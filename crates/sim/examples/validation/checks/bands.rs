//! Compares every controller over GEO with another simulator.

use core::time::Duration;

use link::QueueLimit;
use units::{BitRate, ByteCount};

use super::published::{self, Band, Difference};
use super::trial::{MSS, Trial, random, seconds};
use super::{Effort, Plot, Row, Section, Series, equations};

/// Of ours. Five are too few: means of five runs of NewReno at 1e-4 lie between 3.7 and 5.5 Mbit/s.
const SEEDS: u64 = 20;
/// Runs behind each mean of the other simulator.
const THEIR_RUNS: f64 = 5.0;
const TOLERANCE: f64 = 0.15;

pub(super) fn section(effort: Effort) -> Section {
    let mut rows = Vec::new();
    let (mut theirs, mut same) = (Vec::new(), Vec::new());
    for band in &published::read().band {
        let is_quick = band.per >= 1e-2;
        if effort == Effort::Full || is_quick {
            let ours = goodput(&band.controller, band.per);
            theirs.push((band.mean, ours));
            rows.push(row(band, ours));
        }
    }
    same.extend([(0.1, 0.1), (20.0, 20.0)]);
    rows.extend(laws());
    Section {
        title: "Controllers over GEO beside another simulator",
        text: format!(
            "20 Mbit/s, 252 ms one way, MSS 1448, buffers of 16 MiB, a queue of 850 packets, 100 s \
             with the start, mean of {SEEDS} seeds (one run at PER 0). The expected values \
             are means of five runs of ns-3 on one day, with their deviation, a cross-check rather than \
             the truth; *reproduced* means within 15 %. Where ns-3 differs, the last rows compare skyhop \
             with the law."
        ),
        rows,
        plots: vec![Plot {
            name: "bands",
            title: "Goodput over GEO in Mbit/s".to_owned(),
            axes: ["ns-3", "skyhop"],
            logarithmic: true,
            series: vec![
                Series::dots("controllers and loss rates", theirs),
                Series::line("equal", same),
            ],
        }],
    }
}

fn row(band: &Band, ours: f64) -> Row {
    let Band { controller, per, mean, sd, differs } = band;
    let source = if *sd > 0.0 { format!("ns-3, ± {sd}") } else { "ns-3".to_owned() };
    let row = Row::near(name(controller, *per), source, "Mbit/s", (*mean, ours), TOLERANCE);
    let row = row.with_error(*sd / THEIR_RUNS.sqrt());
    match differs {
        Some(Difference { ratio, why }) => row.differs(*ratio, why),
        None => row,
    }
}

fn name(controller: &str, per: f64) -> String {
    if per > 0.0 { format!("{controller}, PER {per:e}") } else { format!("{controller}, PER 0") }
}

fn trial(controller: &str, per: f64) -> Trial {
    let mut trial = Trial::new(Duration::from_millis(504), controller);
    trial.rate = BitRate::from_mbit(20);
    trial.loss = random(per);
    trial.queue = QueueLimit::Packets(850);
    trial.tcp.receive_buffer = ByteCount::new(16 << 20);
    trial.tcp.send_buffer = ByteCount::new(16 << 20);
    trial
}

/// Mbit/s.
fn goodput(controller: &str, per: f64) -> f64 {
    mean(&trial(controller, per))
}

fn mean(trial: &Trial) -> f64 {
    let seeds = if trial.loss == random(0.0) { 1 } else { SEEDS };
    let run = |seed| Trial { seed, ..trial.clone() }.run().goodput / 1e6;
    (1..=seeds).map(run).sum::<f64>() / seeds as f64
}

/// What the controllers' equations predict where the bands differ.
fn laws() -> Vec<Row> {
    let rate = |window: f64| window * MSS * 8e-6 / 0.504;
    let law = |claim: &str, source: &str, window: f64, trial: &Trial| {
        Row::near(claim, source, "Mbit/s", (rate(window), mean(trial)), TOLERANCE)
    };
    let mut counted = trial("newreno", 1e-2);
    counted.tcp.counting = tcp::AckCounting::Acks;
    // Only the queue may delay acknowledgements, and the start is over.
    let mut illinois = trial("illinois:threshold=0", 1e-2);
    illinois.tcp.acks.delay = None;
    (illinois.warm_up, illinois.time) = (Duration::from_secs(100), Duration::from_secs(500));
    let random = "1.31/√p: random loss (Mathis et al. 1997, Table 1)";
    vec![
        law(
            "newreno, PER 1e-2, acknowledgements counted",
            "0.93/√p: random loss, delayed acknowledgements (Mathis et al. 1997, Table 1)",
            0.93 / 0.1,
            &counted,
        ),
        law("vegas, PER 1e-2, as Reno", random, 1.31 / 0.1, &trial("vegas", 1e-2)),
        law(
            "illinois, PER 1e-2, without a threshold and delayed acknowledgements",
            "AIMD with α = 10, β = 1/8 (Liu et al. 2008)",
            equations::aimd(10.0, 0.125, 1e-2),
            &illinois,
        )
        .differs(
            0.66,
            "at that window losses are 1.2 round trips apart, and one round trip of that is \
             recovery, in which nothing grows",
        ),
        law(
            "illinois, PER 1e-2, threshold never reached",
            random,
            1.31 / 0.1,
            &trial("illinois:threshold=1000", 1e-2),
        ),
        vegas_grows(),
    ]
}

/// Without losses Vegas adds a segment per round trip to the window that slow start has reached.
fn vegas_grows() -> Row {
    let mut trial = trial("vegas", 0.0);
    trial.sample = Duration::from_millis(100);
    let states = trial.run().states;
    let left = states.iter().find(|state| state.ssthresh < 1 << 40).expect("it left slow start");
    let last = states.last().expect("states");
    let [from, ours] = [left, last].map(|state| state.cwnd as f64 / MSS);
    let rounds = (seconds(last.at) - seconds(left.at)) / 0.504;
    let claim = format!("vegas, PER 0: window at the end, from {from:.0} segments on");
    let source = "one segment per RTT (Brakmo and Peterson 1995, §3.2)";
    Row::near(claim, source, "segments", (from + rounds, ours), TOLERANCE)
}
