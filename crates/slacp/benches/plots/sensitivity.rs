//! What becomes of eight sessions when one constant of the law is another, and the others are at
//! their defaults.

use rayon::prelude::*;
use report::{Axis, Graph, GraphSeries, SeriesColour, SvgPicture, stacked};
use slacp::Law;

use crate::path::crowd::Crowd;

const SEEDS: u64 = 2;
const COUNT: usize = 8;
/// Each with its name and its binary logarithm.
const FACTORS: [(f64, &str, f64); 5] =
    [(0.25, "1/4", -2.0), (0.5, "1/2", -1.0), (1.0, "1", 0.0), (2.0, "2", 1.0), (4.0, "4", 2.0)];
/// The bounds: least share of the fair one, and queue in ms.
const SHARE: f64 = 0.8;
const QUEUE: f64 = 60.0;
const HEIGHT: u32 = 270;

/// A constant of the law.
type Constant = (&'static str, fn(&mut Law) -> &mut f64);

const CONSTANTS: [Constant; 4] = [
    ("alone", |law| &mut law.alone),
    ("slope", |law| &mut law.slope),
    ("settle", |law| &mut law.settle),
    ("fairness", |law| &mut law.fairness),
];

/// The worse of the seeds.
#[derive(Clone, Copy)]
struct Came {
    least: f64,
    queue: f64,
}

/// A picture for each constant, with its name.
pub(super) fn draw() -> Vec<(&'static str, SvgPicture)> {
    CONSTANTS.into_iter().map(|constant| (constant.0, picture(constant))).collect()
}

fn picture(constant: Constant) -> SvgPicture {
    let came: Vec<Came> =
        FACTORS.into_par_iter().map(|(factor, ..)| run(constant, factor)).collect();
    for ((_, name, _), Came { least, queue }) in FACTORS.iter().zip(&came) {
        println!("  {:<8} x {name:<4} least share {least:.2}, queue p95 {queue:.0} ms", constant.0);
    }
    let title = format!(
        "Eight sessions with `{}` at multiples of its default; worse of 2 seeds",
        constant.0
    );
    let (least, queue) = ("least share of the fair share", "queueing delay, p95 (ms)");
    let above = graph(&title, "", least, SHARE, came.iter().map(|came| came.least));
    let x = "multiple of the default, as a power of 2";
    let below = graph("", x, queue, QUEUE, came.iter().map(|came| came.queue));
    stacked(&[above, below])
}

fn run((_, of): Constant, factor: f64) -> Came {
    let mut law = Law::default();
    *of(&mut law) *= factor;
    let crowd = Crowd { count: COUNT, unequal: false, law };
    let runs: Vec<_> = (1..=SEEDS).into_par_iter().map(|seed| crowd.run(seed)).collect();
    Came {
        least: runs.iter().map(|run| run.least).fold(f64::INFINITY, f64::min),
        queue: runs.iter().map(|run| run.queue.as_secs_f64() * 1e3).fold(0.0, f64::max),
    }
}

/// One value at each multiple, and its bound.
fn graph(title: &str, x: &str, y: &str, bound: f64, values: impl Iterator<Item = f64>) -> Graph {
    let points: Vec<(f64, f64)> =
        FACTORS.iter().zip(values).map(|((.., x), value)| (*x, value)).collect();
    let most = points.iter().map(|point| point.1).fold(bound, f64::max);
    // There is room above for the marks.
    let (x, y) = (Axis::new(x).range(-2.25..2.25), Axis::new(y).range(0.0..most * 1.25));
    let mut graph = Graph::new(title, x, y).height(HEIGHT);
    let name = format!("bound: {bound}");
    graph.add(GraphSeries::dashed(name, SeriesColour::Grey, vec![(-2.25, bound), (2.25, bound)]));
    graph.add(GraphSeries::line("", SeriesColour::Blue, points.clone()));
    for ((_, name, _), point) in FACTORS.iter().zip(points) {
        graph.add(
            GraphSeries::crosses("", SeriesColour::Blue, vec![point]).marked(format!("x {name}")),
        );
    }
    graph
}
