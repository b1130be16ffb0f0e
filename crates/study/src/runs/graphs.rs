//! Graphs of a run: sequence, window and queue over time.

use std::path::Path;

use report::{Axis, Graph, GraphSeries, SeriesColour};
use scenario::ScenarioCase;
use sim::{MarkKind, RunRecordings, SenderRecording, SimulationRun};
use units::Instant;

/// Returns the name of a graph's file.
pub fn file_name(scenario: &Path, case: &ScenarioCase, graph: &str) -> String {
    let stem = scenario.file_stem().unwrap_or_default().to_string_lossy();
    let case = if case.name.is_empty() { String::new() } else { format!("-{}", case.name) };
    plain(&format!("{stem}{case}-{graph}")) + ".svg"
}

/// Makes a text usable as a file name.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    text.chars().map(keep).collect()
}

/// Returns the names and SVG texts of a run's graphs.
pub(super) fn graphs(case: &ScenarioCase, run: &SimulationRun) -> Vec<(String, String)> {
    let probe: &RunRecordings = run.world.probe();
    let mut graphs = Vec::new();
    for sender in probe.senders.iter().filter(|sender| sender.has_sent()) {
        let title = format!("{}: {}", case.description, sender.label);
        let mut put = |kind: &str, unit: &str, series: Vec<GraphSeries>| {
            let text = graph(format!("{title}, {kind}"), unit, series);
            graphs.push((format!("{}-{kind}", sender.label), text));
        };
        put("sequence", "byte of the stream", sequence(sender));
        put("window", "bytes", window(sender));
    }
    for line in &probe.links {
        let points = line.loads.iter().map(|load| (seconds(load.at), load.queued as f64));
        let series = GraphSeries::line("packets", SeriesColour::Blue, points.collect());
        let title = format!("{}: queue of the {} link", case.description, line.label);
        let text = graph(title, "packets", vec![series]);
        graphs.push((format!("{}-queue", line.label), text));
    }
    graphs
}

fn seconds(at: Instant) -> f64 {
    at.saturating_since(Instant::ZERO).as_secs_f64()
}

fn sequence(sender: &SenderRecording) -> Vec<GraphSeries> {
    let mut high = 0;
    let mut first = Vec::new();
    let mut again = Vec::new();
    let mut acks = Vec::new();
    for mark in &sender.marks {
        let point = (seconds(mark.at), f64::from(mark.from));
        match mark.kind {
            MarkKind::Ack => acks.push(point),
            // Data from below the highest byte sent so far is a retransmission.
            MarkKind::Data if mark.from < high => again.push(point),
            MarkKind::Data => {
                high = mark.from.saturating_add(mark.len);
                first.push(point);
            }
            _ => {}
        }
    }
    vec![
        GraphSeries::dots("acknowledged", SeriesColour::Green, acks).width(2),
        GraphSeries::dots("sent", SeriesColour::Blue, first).width(2),
        GraphSeries::dots("sent again", SeriesColour::Red, again).width(3),
    ]
}

fn window(sender: &SenderRecording) -> Vec<GraphSeries> {
    let of = |value: fn(&sim::SenderSample) -> u64| {
        sender.states.iter().map(|state| (seconds(state.at), value(state) as f64)).collect()
    };
    let mut known: Vec<(f64, f64)> = of(|state| state.ssthresh);
    // An unlimited ssthresh is not drawn.
    known.retain(|(_, bytes)| *bytes < 1e12);
    vec![
        GraphSeries::line("ssthresh", SeriesColour::Green, known),
        GraphSeries::line("outstanding", SeriesColour::Red, of(|state| state.outstanding)),
        GraphSeries::line("cwnd", SeriesColour::Blue, of(|state| state.cwnd)),
    ]
}

fn graph(title: String, unit: &str, series: Vec<GraphSeries>) -> String {
    let mut graph = Graph::new(title, Axis::new("time (s)"), Axis::new(unit).from_zero());
    series.into_iter().for_each(|series| graph.add(series));
    graph.picture().file()
}
