//! Draws a direction's time-sequence graph, with the outstanding data below it, as SVG.

use std::ops::Range;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use thiserror::Error;
use units::Instant;

use super::columns::{columns, steps};
use super::connection::Plots;
use super::plot::{Marks, Plot};
use super::report::{ConnectionReport, DirectionReport};

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 860;
/// Height of the upper part, with title and time-sequence graph.
const SEQUENCE_HEIGHT: u32 = 590;
const FONT: &str = "sans-serif";

const DATA: RGBColor = RGBColor(31, 78, 140);
const AGAIN: RGBColor = RGBColor(208, 32, 48);
const REORDERED: RGBColor = RGBColor(240, 140, 0);
const ACK: RGBColor = RGBColor(34, 139, 80);
const WINDOW: RGBColor = RGBColor(150, 150, 150);
const SACK: RGBColor = RGBColor(150, 80, 200);
const TEXT: RGBColor = RGBColor(60, 60, 60);

/// Why a graph could not be drawn.
#[derive(Debug, Error)]
#[error("cannot draw a graph: {cause}")]
pub struct DrawError {
    /// The drawing library's error.
    cause: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws the directions that have payload. Returns a file name and text for each.
///
/// # Errors
/// If the drawing library fails, which is not expected.
pub fn draw(
    connection: &ConnectionReport,
    plots: &Plots,
) -> Result<Vec<(String, String)>, DrawError> {
    let (a, b, number) = (connection.a, connection.b, connection.number);
    let sides = [("a2b", a, b, &connection.a_to_b), ("b2a", b, a, &connection.b_to_a)];
    let mut drawn = Vec::new();
    for ((name, from, to, direction), plot) in sides.into_iter().zip(plots) {
        if direction.data_packets > 0 {
            let title = format!("Connection {number}: {from} → {to}");
            let graph = Graph::new(connection, direction, plot, title);
            let text = graph.draw().map_err(|error| DrawError { cause: error.to_string() })?;
            drawn.push((format!("connection-{number}-{name}.svg"), text));
        }
    }
    Ok(drawn)
}

/// A graph being drawn: its data and its scales.
struct Graph<'a> {
    title: String,
    direction: &'a DirectionReport,
    plot: &'a Plot,
    begin: Instant,
    /// Seconds.
    time: Range<f64>,
    /// Bytes of the stream.
    offset: Range<f64>,
}

impl<'a> Graph<'a> {
    fn new(
        connection: &ConnectionReport,
        direction: &'a DirectionReport,
        plot: &'a Plot,
        title: String,
    ) -> Self {
        let payload = [&plot.data, &plot.retransmissions, &plot.reordered];
        let marks = || payload.iter().flat_map(|marks| marks.iter()).chain(plot.acks.iter());
        let begin = marks().map(|mark| mark.time).min().unwrap_or_default();
        // Times are shown relative to the connection's first packet.
        let before = direction.first_data.unwrap_or_default();
        let begin = Instant::from_nanos(
            begin.as_nanos().saturating_sub(before.as_nanos().try_into().unwrap_or(u64::MAX)),
        );
        let high = marks().map(|mark| mark.end.saturating_sub(plot.origin)).max().unwrap_or(0);
        let lasted = connection.lasted.as_secs_f64().max(1e-3);
        Self {
            title,
            direction,
            plot,
            begin,
            time: 0.0..lasted * 1.02,
            offset: 0.0..(high.max(1) as f64) * 1.06,
        }
    }

    fn draw(&self) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
        let mut text = String::new();
        let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        let (upper, lower) = root.split_vertically(SEQUENCE_HEIGHT);
        self.sequence(&upper)?;
        self.outstanding(&lower)?;
        root.present()?;
        drop((upper, lower, root));
        Ok(text)
    }

    fn sequence(&self, area: &Area<'_>) -> Drawn {
        let mut chart = self.chart(area, Some(&self.title), self.offset.clone())?;
        mesh(&mut chart, "", "offset in the stream", self.offset.end)?;
        let plot = self.plot;
        self.level(&mut chart, &plot.window, WINDOW, "end of the receiver's window")?;
        self.bars(&mut chart, &plot.sacks, SACK, 1, "SACK blocks")?;
        self.bars(&mut chart, &plot.data, DATA, 2, "payload")?;
        self.level(&mut chart, &plot.acks, ACK, "acknowledged")?;
        self.bars(&mut chart, &plot.reordered, REORDERED, 3, "payload out of order")?;
        let again = "retransmissions and repairs";
        self.bars(&mut chart, &plot.retransmissions, AGAIN, 3, again)?;
        legend(&mut chart)
    }

    fn outstanding(&self, area: &Area<'_>) -> Drawn {
        let high = self.direction.outstanding_max_bytes.max(1) as f64 * 1.3;
        let mut chart = self.chart(area, None, 0.0..high)?;
        mesh(&mut chart, "time from the first packet of the connection", "outstanding", high)?;
        let marks = self.places(&self.plot.outstanding, 0, high);
        let line = steps(&marks, self.column(), high).into_iter().flatten();
        let area = AreaSeries::new(line, 0.0, DATA.mix(0.15)).border_style(DATA);
        chart.draw_series(area)?.label("sent and not acknowledged").legend(swatch(DATA));
        if let Some(mean) = self.direction.outstanding_mean_bytes {
            let (unit, name) = unit(high);
            let line = [(0.0, mean), (self.time.end, mean)];
            chart
                .draw_series(DashedLineSeries::new(line, 6, 4, AGAIN.stroke_width(1)))?
                .label(format!("mean over time: {:.1} {name}", mean / unit))
                .legend(swatch(AGAIN));
        }
        legend(&mut chart)
    }

    fn chart<'b, 'c>(
        &self,
        area: &'b Area<'c>,
        title: Option<&str>,
        range: Range<f64>,
    ) -> Result<Chart<'b, 'c>, DrawingAreaErrorKind<std::io::Error>> {
        let mut builder = ChartBuilder::on(area);
        // The same left margin, so that the time axes of both parts line up.
        builder
            .margin_left(12)
            .margin_right(24)
            .margin_bottom(8)
            .set_label_area_size(LabelAreaPosition::Left, 84);
        builder
            .set_label_area_size(LabelAreaPosition::Bottom, if title.is_none() { 52 } else { 28 });
        if let Some(title) = title {
            builder.caption(title, (FONT, 22).into_font().color(&TEXT)).margin_top(10);
        }
        builder.build_cartesian_2d(self.time.clone(), range)
    }

    /// Width of a column of the picture in seconds.
    fn column(&self) -> f64 {
        self.time.end / f64::from(WIDTH)
    }

    /// Positions of marks, as `(seconds, lowest, highest)`. A hostile or disordered capture has
    /// some far outside the picture, which the drawing library cannot handle: bars are clipped at
    /// `high`, and times outside are left out.
    fn places(&self, marks: &Marks, origin: u64, high: f64) -> Vec<(f64, f64, f64)> {
        let bytes = |number: u64| number.saturating_sub(origin) as f64;
        let placed = marks.iter().map(|mark| {
            let time = mark.time.saturating_since(self.begin).as_secs_f64();
            (time, bytes(mark.start), bytes(mark.end))
        });
        let within = placed.filter(|(time, start, _)| *time <= self.time.end && *start <= high);
        within.map(|(time, start, end)| (time, start, end.min(high))).collect()
    }

    /// The same for marks with a stream offset.
    fn in_stream(&self, marks: &Marks) -> Vec<(f64, f64, f64)> {
        self.places(marks, self.plot.origin, self.offset.end)
    }

    /// Draws each mark as a bar from its first to its last byte.
    fn bars<'b, 'c: 'b>(
        &self,
        chart: &mut Chart<'b, 'c>,
        marks: &Marks,
        colour: RGBColor,
        width: u32,
        label: &str,
    ) -> Drawn {
        if marks.is_empty() {
            return Ok(());
        }
        let row = self.offset.end / f64::from(SEQUENCE_HEIGHT);
        let bars = columns(&self.in_stream(marks), self.column(), row);
        let style = colour.stroke_width(width);
        // Wide bars mark rare events, so they stay visible in a long capture.
        let least = row * f64::from(width * 2);
        let bars = bars.into_iter().map(|(time, start, end)| {
            PathElement::new([(time, start), (time, end.max(start + least))], style)
        });
        chart.draw_series(bars)?.label(label).legend(swatch(colour));
        Ok(())
    }

    /// Draws a level that holds until the next mark.
    fn level<'b, 'c: 'b>(
        &self,
        chart: &mut Chart<'b, 'c>,
        marks: &Marks,
        colour: RGBColor,
        label: &str,
    ) -> Drawn {
        let marks = self.places(marks, self.plot.origin, f64::INFINITY);
        let lines = steps(&marks, self.column(), self.offset.end);
        if lines.is_empty() {
            return Ok(());
        }
        let lines = lines.into_iter().map(|line| PathElement::new(line, colour.stroke_width(1)));
        chart.draw_series(lines)?.label(label).legend(swatch(colour));
        Ok(())
    }
}

fn mesh<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, x: &str, y: &str, high: f64) -> Drawn {
    let (unit, name) = unit(high);
    let digits = usize::from(high / unit < 10.0);
    let font = |size| (FONT, size).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .x_desc(if x.is_empty() { String::new() } else { format!("{x} (s)") })
        .y_desc(format!("{y} ({name})"))
        .x_labels(12)
        .y_labels(8)
        .x_label_formatter(&|seconds| trimmed(*seconds))
        .y_label_formatter(&|bytes| format!("{:.digits$}", bytes / unit))
        .label_style(font(15))
        .axis_desc_style(font(16))
        .axis_style(TEXT)
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .draw()
}

fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>) -> Drawn {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(12)
        .legend_area_size(28)
        .label_font((FONT, 15).into_font().color(&TEXT))
        .background_style(WHITE.mix(0.88))
        .border_style(BLACK.mix(0.2))
        .draw()
}

fn swatch(colour: RGBColor) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(3))
}

/// The unit for axes up to `high` bytes.
fn unit(high: f64) -> (f64, &'static str) {
    match high {
        2e9.. => (1e9, "GB"),
        2e6.. => (1e6, "MB"),
        2e3.. => (1e3, "kB"),
        _ => (1.0, "B"),
    }
}

/// Formats seconds without trailing zeros.
fn trimmed(seconds: f64) -> String {
    let text = format!("{seconds:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
