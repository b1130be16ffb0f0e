//! The operating points of Vegas and BBR.

use core::time::Duration;

use link::QueueLimit;
use units::{BitRate, ByteCount};

use super::trial::{MSS, Outcome, Trial, seconds};
use super::{Effort, Plot, Row, Section, Series};

/// The overhead of a segment: IPv4, TCP and timestamps.
const PACKET: f64 = MSS + 52.0;
const MBIT: u64 = 20;

pub(super) fn section(_: Effort) -> Section {
    let mut rows = Vec::new();
    let (vegas, queue) = vegas(&mut rows);
    let bbr = bbr(&mut rows);
    Section {
        title: "Operating points",
        text: format!(
            "One transfer over {MBIT} Mbit/s without losses. Vegas: RTT 100 ms, mean over the last \
             60 s of 120 s. BBR: RTT 500 ms, a queue of 2 BDP, mean over 20 s to 100 s."
        ),
        rows,
        plots: vec![
            Plot {
                name: "vegas",
                title: "Vegas: packets in the queue".to_owned(),
                axes: ["time in s", "packets"],
                logarithmic: false,
                series: vec![queue, vegas],
            },
            bbr,
        ],
    }
}

fn trial(controller: &str, ms: u64, seconds: u64) -> Trial {
    let mut trial = Trial::new(Duration::from_millis(ms), controller);
    trial.rate = BitRate::from_mbit(MBIT);
    (trial.time, trial.sample) = (Duration::from_secs(seconds), Duration::from_millis(100));
    trial
}

/// Outstanding data beyond the capacity of the path, in segments, from a time on.
fn excess(trial: &Trial, outcome: &Outcome, from: f64) -> f64 {
    let states = outcome.states.iter().filter(|state| seconds(state.at) >= from);
    let all: Vec<f64> = states.map(|state| state.outstanding as f64 / MSS).collect();
    let path = trial.rate.bits_per_second() as f64 * trial.rtt.as_secs_f64() / (8.0 * PACKET);
    all.iter().sum::<f64>() / all.len().max(1) as f64 - path
}

fn vegas(rows: &mut Vec<Row>) -> (Series, Series) {
    let mut lines = Vec::new();
    for (alpha, beta) in [(2.0, 4.0), (8.0, 12.0)] {
        let trial = trial(&format!("vegas:alpha={alpha},beta={beta}"), 100, 120);
        let outcome = trial.run();
        let ours = excess(&trial, &outcome, 60.0);
        let middle = (alpha + beta) / 2.0;
        let claim = format!("Vegas with α = {alpha}, β = {beta}: segments beyond the BDP");
        let source = "between α and β (Brakmo and Peterson 1995, §3.2)";
        let tolerance = (beta - alpha) / 2.0 / middle;
        rows.push(Row::near(claim, source, "", (middle, ours), tolerance));
        let points = outcome.loads.iter().map(|load| (seconds(load.at), load.queued as f64));
        lines.push(Series::line(format!("α = {alpha}, β = {beta}"), points.collect()));
    }
    let second = lines.pop().expect("two");
    (lines.pop().expect("two"), second)
}

fn bbr(rows: &mut Vec<Row>) -> Plot {
    let mut trial = trial("bbr", 500, 100);
    trial.warm_up = Duration::from_secs(20);
    let bdp = trial.rate.bytes_in(trial.rtt);
    trial.queue = QueueLimit::Bytes(ByteCount::new(2 * bdp.get()));
    let outcome = trial.run();
    let limit = trial.rate.bits_per_second() as f64 * MSS / PACKET / 1e6;
    let source = "BtlBw and RTprop (Cardwell et al. 2016, Fig. 1)";
    let ours = outcome.goodput / 1e6;
    rows.push(Row::near("BBR: goodput", source, "Mbit/s", (limit, ours), 0.05));
    let path = bdp.get() as f64 / PACKET;
    let held = excess(&trial, &outcome, 20.0) + path;
    rows.push(Row::near("BBR: segments in flight", source, "", (path, held), 0.15));
    let points =
        outcome.states.iter().map(|state| (seconds(state.at), state.outstanding as f64 / MSS));
    let flight = Series::line("in flight", points.collect());
    let points = outcome.loads.iter().map(|load| (seconds(load.at), load.queued as f64));
    let queue = Series::line("in the queue", points.collect());
    let bdp = Series::line("BDP", vec![(0.0, path), (100.0, path)]);
    Plot {
        name: "bbr",
        title: "BBR: 20 Mbit/s, 500 ms".to_owned(),
        axes: ["time in s", "segments"],
        logarithmic: false,
        series: vec![flight, queue, bdp],
    }
}
