//! Graphs of a run: sequence, window and queue over time.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use sim::scenario::{Case, Run};
use sim::{MarkKind, Probe, Sender};
use units::Instant;

use super::Given;
use super::replicate::{Job, Outcome};

const SIZE: (u32, u32) = (1200, 640);
const FONT: &str = "sans-serif";
const BLUE: RGBColor = RGBColor(31, 78, 140);
const GREEN: RGBColor = RGBColor(34, 139, 80);
const RED: RGBColor = RGBColor(208, 32, 48);
/// Grid in which marks that fall into the same cell are drawn once.
const GRID: (f64, f64) = (1200.0, 640.0);

/// A line or a scatter plot: name, colour, and whether it is a line.
struct Series {
    name: &'static str,
    colour: RGBColor,
    line: bool,
    points: Vec<(f64, f64)>,
}

/// Writes the graphs of all runs that have them.
pub(super) fn all(
    directory: &Path,
    given: &[Given],
    jobs: &[Job<'_>],
    outcomes: &[Outcome],
) -> Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    std::fs::create_dir_all(directory).with_context(|| cannot(directory))?;
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let stem = given[job.file].path.file_stem().unwrap_or_default().to_string_lossy();
        for (name, text) in &outcome.graphs {
            let case = if job.case.name.is_empty() {
                String::new()
            } else {
                format!("-{}", job.case.name)
            };
            let path = directory.join(plain(&format!("{stem}{case}-{name}")) + ".svg");
            std::fs::write(&path, text).with_context(|| cannot(&path))?;
        }
    }
    Ok(())
}

/// Makes a text usable as a file name.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    text.chars().map(keep).collect()
}

/// Names and SVG texts of a run's graphs.
pub(super) fn run(case: &Case, run: &Run) -> Result<Vec<(String, String)>> {
    let probe: &Probe = run.world.probe();
    let mut graphs = Vec::new();
    for sender in probe.senders.iter().filter(|sender| sender.has_sent()) {
        let title = format!("{}: {}", case.description, sender.label);
        let mut put = |kind: &str, unit: &str, series: Vec<Series>| {
            let text = graph(&format!("{title}, {kind}"), unit, &series)?;
            graphs.push((format!("{}-{kind}", sender.label), text));
            anyhow::Ok(())
        };
        put("sequence", "byte of the stream", sequence(sender))?;
        put("window", "bytes", window(sender))?;
    }
    for line in &probe.links {
        let points = line.loads.iter().map(|load| (seconds(load.at), load.queued as f64));
        let series = Series { name: "packets", colour: BLUE, line: true, points: points.collect() };
        let title = format!("{}: queue of the {} link", case.description, line.label);
        graphs.push((format!("{}-queue", line.label), graph(&title, "packets", &[series])?));
    }
    Ok(graphs)
}

fn seconds(at: Instant) -> f64 {
    at.saturating_since(Instant::ZERO).as_secs_f64()
}

fn sequence(sender: &Sender) -> Vec<Series> {
    let mut high = 0;
    let (mut first, mut again, mut acks) = (Vec::new(), Vec::new(), Vec::new());
    for mark in &sender.marks {
        let point = (seconds(mark.at), f64::from(mark.from));
        match mark.kind {
            MarkKind::Ack => acks.push(point),
            MarkKind::Data if mark.from < high => again.push(point),
            MarkKind::Data => {
                high = mark.from.saturating_add(mark.len);
                first.push(point);
            }
            _ => {}
        }
    }
    vec![
        Series { name: "acknowledged", colour: GREEN, line: false, points: acks },
        Series { name: "sent", colour: BLUE, line: false, points: first },
        Series { name: "sent again", colour: RED, line: false, points: again },
    ]
}

fn window(sender: &Sender) -> Vec<Series> {
    let of = |value: fn(&sim::State) -> u64| {
        sender.states.iter().map(|state| (seconds(state.at), value(state) as f64)).collect()
    };
    let mut known: Vec<(f64, f64)> = of(|state| state.ssthresh);
    // An unlimited ssthresh is not drawn.
    known.retain(|(_, bytes)| *bytes < 1e12);
    vec![
        Series { name: "ssthresh", colour: GREEN, line: true, points: known },
        Series {
            name: "outstanding",
            colour: RED,
            line: true,
            points: of(|state| state.outstanding),
        },
        Series { name: "cwnd", colour: BLUE, line: true, points: of(|state| state.cwnd) },
    ]
}

fn graph(title: &str, unit: &str, series: &[Series]) -> Result<String> {
    let mut text = String::new();
    draw(&mut text, title, unit, series)
        .map_err(|error| anyhow!("cannot draw {title}: {error}"))?;
    Ok(text)
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw(text: &mut String, title: &str, unit: &str, series: &[Series]) -> Drawn {
    let points = || series.iter().flat_map(|series| &series.points);
    let end = points().map(|(time, _)| *time).fold(1e-3, f64::max);
    let begin = points().map(|(time, _)| *time).fold(end, f64::min);
    let most = points().map(|(_, value)| *value).fold(1.0, f64::max) * 1.06;
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(begin..end.max(begin + 1e-3), 0.0..most)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("time in s")
        .y_desc(unit)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .draw()?;
    for series in series.iter().filter(|series| !series.points.is_empty()) {
        one(&mut chart, series, (end - begin, most))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()
}

/// Formats an axis label: `0.25`, `17`, `1,200,000`.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "plotters' callback")]
fn label(value: &f64) -> String {
    // Tick steps are at least a hundredth of the axis; anything smaller is rounding error.
    let short = format!("{value:.3}");
    let short = short.trim_end_matches('0').trim_end_matches('.');
    let whole = short.find('.').unwrap_or(short.len());
    let mut text = String::new();
    for (place, digit) in short.char_indices() {
        let follows = text.ends_with(|before: char| before.is_ascii_digit());
        if follows && place < whole && (whole - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn one(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    series: &Series,
    span: (f64, f64),
) -> Drawn {
    let points = thinned(&series.points, span);
    let colour = series.colour;
    let drawn = if series.line {
        chart.draw_series(LineSeries::new(points, &colour))?
    } else {
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 1, colour.filled())))?
    };
    drawn
        .label(series.name)
        .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    Ok(())
}

/// Keeps one of the points that fall on the same dot of the picture.
fn thinned(points: &[(f64, f64)], (width, height): (f64, f64)) -> Vec<(f64, f64)> {
    let mut seen = BTreeSet::new();
    let dot = |(x, y): &(f64, f64)| {
        ((x / width.max(1e-9) * GRID.0) as i64, (y / height.max(1e-9) * GRID.1) as i64)
    };
    points.iter().filter(|point| seen.insert(dot(point))).copied().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_at_axes_are_short_and_grouped() {
        let labels = [0.0, 0.1 + 0.2, 17.0, 999.5, 1000.0, 1_200_000.0].map(|v| super::label(&v));
        assert_eq!(labels, ["0", "0.3", "17", "999.5", "1,000", "1,200,000"]);
    }
}
