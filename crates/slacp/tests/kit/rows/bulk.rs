//! Large transfers at a fixed rate.

use link::ErrorModel;

use super::{LossCase, Row, Run, Scale, download, hop, limit};

/// 100 MB over 250/3 Mbit/s.
pub fn fast(scale: Scale) -> Vec<Row> {
    [(0.0, 4.2), (0.01, 4.4)].map(|(per, asked)| fast_with(scale, per, asked)).into()
}

fn fast_with(scale: Scale, per: f64, asked: f64) -> Row {
    let loss = LossCase::per(per);
    let run = |seed| download(&hop(250.0, 3.0, &loss, seed), scale.bytes).seconds;
    let slowest = (0..scale.seeds).map(run).fold(0.0, f64::max);
    let asked = scale.time(asked);
    Row::new(
        format!("{} MB over 250/3, {}", scale.bytes / 1_000_000, loss.name),
        format!("≤ {asked:.2} s"),
        format!("{slowest:.3} s, the slowest of {}", scale.seeds),
        slowest <= asked,
    )
}

/// 100 MB over ordinary links without loss.
pub fn lossless(scale: Scale) -> Vec<Row> {
    let clean = LossCase::per(0.0);
    let row = |(forward, ret)| share(scale, forward, ret, &clean, 0.94);
    [(50.0, 10.0), (10.0, 2.0), (2.0, 10.0)].map(row).into()
}

/// Losses one by one and in bursts.
pub fn lossy(scale: Scale) -> Vec<Row> {
    losses().iter().map(|loss| share(scale, 50.0, 10.0, loss, 0.93)).collect()
}

pub fn losses() -> Vec<LossCase> {
    let rates = [0.001, 0.01, 0.05, 0.1].map(LossCase::per);
    let bursts = [ErrorModel::Low, ErrorModel::Medium, ErrorModel::High, ErrorModel::Huge]
        .map(LossCase::model);
    rates.into_iter().chain(bursts).chain([LossCase::regular(650, 50)]).collect()
}

/// The share of the limit that is reached over whole transfers, of all seeds
/// together: what a burst model loses in one transfer varies a lot.
fn share(scale: Scale, forward: f64, ret: f64, loss: &LossCase, asked: f64) -> Row {
    let seeds = if loss.mean == 0.0 { 1 } else { scale.seeds };
    let runs: Vec<Run> =
        (0..seeds).map(|seed| download(&hop(forward, ret, loss, seed), scale.bytes)).collect();
    let mean = runs.iter().map(|run| run.seconds).sum::<f64>() / seeds as f64;
    let reached = limit(scale.bytes, forward, loss.mean) / mean;
    let repairs: u64 = runs.iter().map(|run| run.hub.repairs_sent).sum();
    let packets: u64 = runs.iter().map(|run| run.hub.packets_sent).sum();
    Row::new(
        format!("{} MB over {forward}/{ret}, {}", scale.bytes / 1_000_000, loss.name),
        format!("≥ {:.0} % of the limit", asked * 100.0),
        format!(
            "{:.1} %, repairs {:.2} %",
            reached * 100.0,
            100.0 * repairs as f64 / packets as f64
        ),
        reached >= asked,
    )
}

/// What acknowledgements take of a return link, and of a very thin one.
pub fn acknowledgements(scale: Scale) -> Vec<Row> {
    let mut rows = Vec::new();
    for ret in [10.0, 0.064] {
        for per in [0.0, 0.01, 0.1] {
            rows.push(acknowledged(scale, ret, &LossCase::per(per)));
        }
    }
    rows
}

fn acknowledged(scale: Scale, ret: f64, loss: &LossCase) -> Row {
    let run = download(&hop(50.0, ret, loss, 3), scale.bytes);
    let bytes = 100.0 * run.ret.offered.bytes.get() as f64 / run.forward.offered.bytes.get() as f64;
    let share = 100.0 * limit(scale.bytes, 50.0, loss.mean) / run.seconds;
    Row::new(
        format!("acknowledgements, 50/{ret}, {}", loss.name),
        "≤ 1 % of the bytes; ≥ 93 % of the limit",
        format!("{bytes:.2} %; {share:.1} % of the limit"),
        bytes <= 1.0 && share >= 93.0,
    )
}
