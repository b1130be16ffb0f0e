//! How the queue grows with the number of sessions.

use rayon::prelude::*;
use report::{Axis, Graph, GraphSeries, SeriesColour, SvgPicture};
use slacp::Law;

use crate::path::crowd::{Crowd, Shared};

const COUNTS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const SEEDS: u64 = 2;

pub(super) fn draw() -> SvgPicture {
    let runs: Vec<(f64, Vec<Shared>)> = COUNTS.into_par_iter().map(run).collect();
    let longest = |of: fn(&Shared) -> f64| -> Vec<(f64, f64)> {
        runs.iter().map(|(x, runs)| (*x, runs.iter().map(of).fold(0.0, f64::max) * 1e3)).collect()
    };
    let p95 = longest(|run| run.queue.as_secs_f64());
    let x = Axis::new("sessions, as a power of 2").range(-0.25..5.25);
    let y = Axis::new("queueing delay (ms) over the last 30 s; the worse of 2 seeds").from_zero();
    let mut graph = Graph::new("The queue of a crowd on 50 Mbit/s, 600 ms", x, y);
    graph.add(GraphSeries::dashed("alone + slope ln N", SeriesColour::Grey, law()));
    graph.add(GraphSeries::line(
        "p50",
        SeriesColour::Green,
        longest(|run| run.median.as_secs_f64()),
    ));
    graph.add(GraphSeries::line("p95", SeriesColour::Blue, p95.clone()));
    for (count, point) in COUNTS.iter().zip(p95) {
        graph.add(
            GraphSeries::crosses("", SeriesColour::Blue, vec![point])
                .marked(format!("N = {count}")),
        );
    }
    graph.picture()
}

fn run(count: usize) -> (f64, Vec<Shared>) {
    let crowd = Crowd { count, unequal: false, law: Law::default() };
    ((count as f64).log2(), (1..=SEEDS).into_par_iter().map(|seed| crowd.run(seed)).collect())
}

/// The queue that the law aims at, in ms.
fn law() -> Vec<(f64, f64)> {
    let Law { alone, slope, .. } = Law::default();
    let queue = |count: usize| (alone + slope * (count as f64).ln()) * 1e3;
    COUNTS.iter().map(|count| ((*count as f64).log2(), queue(*count))).collect()
}
