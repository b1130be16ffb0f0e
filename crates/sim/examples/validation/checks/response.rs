//! Response functions: mean window by loss rate.

use core::num::NonZeroU64;
use core::time::Duration;

use link::LossModel;
use units::ByteCount;

use super::published::{self, Response};
use super::trial::{MSS, Trial, random};
use super::{Effort, Plot, Row, Section, Series, equations};

/// Relative tolerance.
const TOLERANCE: f64 = 0.15;
/// How long to observe a window, in loss periods: periodic losses soon repeat, but random ones need
/// averaging.
const PERIODS: f64 = 20.0;
const RANDOM_LOSSES: f64 = 100.0;
const RATES: [f64; 4] = [1e-2, 1e-3, 1e-4, 1e-5];

pub(super) fn section(effort: Effort) -> Section {
    let smallest = if effort == Effort::Quick { 1e-3 } else { 1e-5 };
    let is_wanted = |p: f64| p >= smallest * 0.99;
    let mut rows = Vec::new();
    let mut dots: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut note = |name: String, p, ours| match dots.iter_mut().find(|(known, _)| *known == name) {
        Some((_, points)) => points.push((p, ours)),
        None => dots.push((name, vec![(p, ours)])),
    };
    for value in published::read().response.iter().filter(|value| is_wanted(value.p)) {
        let ours = periodic(&value.controller, value.rtt, value.p, value.window);
        note(format!("{}, RTT {} s", value.controller, value.rtt), value.p, ours);
        rows.push(from_table(value, ours));
        if value.controller == "newreno" {
            let row = (equations::mathis(value.p), ours);
            let source = "√(3/2p) (Mathis et al. 1997, eq. 3)";
            rows.push(Row::near(claim(value), source, "segments", row, TOLERANCE));
        }
    }
    for p in RATES.into_iter().filter(|p| is_wanted(*p)) {
        let ours = by_chance(p);
        // The RTO is at its minimum, because there is no queue to vary the RTT.
        let expected = equations::pftk(p, 0.1, 0.2);
        note("newreno, random loss".to_owned(), p, ours);
        let claim = format!("NewReno, RTT 0.1 s, PER {p:e}");
        rows.push(Row::near(claim, "PFTK 1998, eq. 30", "segments", (expected, ours), TOLERANCE));
    }
    let mut series: Vec<_> =
        dots.into_iter().map(|(name, points)| Series::dots(name, points)).collect();
    series.extend(theory());
    Section {
        title: "Response functions",
        text: "The mean window (goodput · RTT / MSS) of a transfer limited only by loss. \
               Deterministic loss, as in the models, drops every 1/p-th packet; random loss drops \
               each with probability p, with a minimum RTO of 200 ms."
            .to_owned(),
        rows,
        plots: vec![Plot {
            name: "response",
            title: "Response functions".to_owned(),
            axes: ["loss rate", "mean window in segments"],
            logarithmic: true,
            series,
        }],
    }
}

fn from_table(value: &Response, ours: f64) -> Row {
    Row::near(claim(value), &value.place, "segments", (value.window, ours), TOLERANCE)
}

fn claim(value: &Response) -> String {
    let Response { controller, rtt, p, .. } = value;
    format!("{controller}, RTT {rtt} s, every {:.0}th packet lost", 1.0 / p)
}

fn theory() -> Vec<Series> {
    let points = |of: &dyn Fn(f64) -> f64| {
        (0..=60)
            .map(|step| 10_f64.powf(-5.0 + f64::from(step) / 20.0))
            .map(|p| (p, of(p)))
            .collect()
    };
    vec![
        Series::line("Mathis et al.", points(&equations::mathis)),
        Series::line("RFC 9438, RTT 0.1 s", points(&|p| equations::cubic(p, 0.1))),
        Series::line("PFTK", points(&|p| equations::pftk(p, 0.1, 0.2))),
    ]
}

/// A transfer that starts near its equilibrium window.
fn trial(controller: &str, rtt: f64, window: f64, losses: f64, p: f64) -> Trial {
    let mut trial = Trial::new(Duration::from_secs_f64(rtt), controller);
    trial.tcp.initial_ssthresh = Some(ByteCount::new((window * MSS) as u64));
    trial.tcp.rto.min = Duration::from_millis(200);
    let time = losses / p / window * rtt;
    trial.time = Duration::from_secs_f64(1.25 * time);
    trial.warm_up = Duration::from_secs_f64(0.25 * time);
    trial
}

fn periodic(controller: &str, rtt: f64, p: f64, window: f64) -> f64 {
    let mut trial = trial(controller, rtt, window, PERIODS, p);
    trial.loss =
        NonZeroU64::new((1.0 / p).round() as u64).map_or(LossModel::None, LossModel::Periodic);
    trial.window(&trial.run())
}

fn by_chance(p: f64) -> f64 {
    let mut trial = trial("newreno", 0.1, equations::mathis(p), RANDOM_LOSSES, p);
    trial.loss = random(p);
    trial.window(&trial.run())
}
