//! The picture of a recovery as SVG: numbers of packets over time.

use core::ops::Range;

use plotters::chart::SeriesAnno;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::points::{Point, Recovery};

const SIZE: (u32, u32) = (1200, 800);
const FONT: &str = "sans-serif";

// The paper's colours.
const SENT: RGBColor = RGBColor(240, 140, 0);
const RECEIVED: RGBColor = RGBColor(31, 78, 180);
const DELIVERED: RGBColor = RGBColor(90, 190, 235);
const ACKNOWLEDGED: RGBColor = RGBColor(34, 150, 70);
const AGAIN: RGBColor = RGBColor(208, 32, 48);
const TEXT: RGBColor = RGBColor(60, 60, 60);

type DrawError = DrawingAreaErrorKind<std::io::Error>;
type Drawn = Result<(), DrawError>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// Seconds, and the number of a packet.
type Place = (f64, f64);

/// Draws a recovery; gives the text of an SVG file.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(crate) fn draw(title: &str, recovery: &Recovery) -> Result<String, DrawError> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (time, sequence) = scales(recovery);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, (FONT, 22).into_font().color(&TEXT))
        .margin(12)
        .margin_right(24)
        .set_label_area_size(LabelAreaPosition::Left, 64)
        .set_label_area_size(LabelAreaPosition::Bottom, 48)
        .build_cartesian_2d(time, sequence)?;
    mesh(&mut chart)?;
    series(&mut chart, recovery)?;
    legend(&mut chart)?;
    root.present()?;
    drop((chart, root));
    Ok(text)
}

fn place(point: &Point) -> Place {
    (point.time.as_nanos() as f64 / 1e9, point.sequence as f64)
}

/// The ranges in which all points are, with a margin.
fn scales(recovery: &Recovery) -> (Range<f64>, Range<f64>) {
    let around = |values: &mut dyn Iterator<Item = f64>, margin: f64| {
        let (low, high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > high { 0.0..1.0 } else { low - margin..high + margin }
    };
    let time = around(&mut recovery.points().map(|point| place(point).0), 0.03);
    let sequence = around(&mut recovery.points().map(|point| place(point).1), 1.5);
    (time, sequence)
}

fn series(chart: &mut Chart<'_, '_>, recovery: &Recovery) -> Drawn {
    steps(chart, &recovery.acknowledged)?;
    crosses(chart, &recovery.sent, SENT, "sent")?;
    crosses(chart, &recovery.received, RECEIVED, "received")?;
    diamonds(chart, &recovery.delivered)?;
    let again = [
        (&recovery.resent, "Rs", "Rs: retransmission sent"),
        (&recovery.resent_received, "Rr", "Rr: retransmission received"),
        (&recovery.restored, "Fd", "Fd: data restored by FEC"),
        (&recovery.restored_acknowledgements, "Fa", "Fa: acknowledgement restored by FEC"),
    ];
    for (points, mark, label) in again {
        marks(chart, points, mark, label)?;
    }
    Ok(())
}

/// Plus signs, joined by a line.
fn crosses<'b>(
    chart: &mut Chart<'_, 'b>,
    points: &[Point],
    colour: RGBColor,
    label: &str,
) -> Drawn {
    let line = LineSeries::new(points.iter().map(place), colour.stroke_width(1));
    chart.draw_series(line)?.label(label).legend(swatch(colour));
    pluses(chart, points, colour)?;
    Ok(())
}

fn diamonds(chart: &mut Chart<'_, '_>, points: &[Point]) -> Drawn {
    const SHAPE: [(i32, i32); 4] = [(0, -5), (5, 0), (0, 5), (-5, 0)];
    let diamond = |point| EmptyElement::at(place(point)) + Polygon::new(SHAPE, DELIVERED.filled());
    let label = "delivered, in order";
    chart.draw_series(points.iter().map(diamond))?.label(label).legend(swatch(DELIVERED));
    Ok(())
}

/// A level that holds until the next point.
fn steps(chart: &mut Chart<'_, '_>, points: &[Point]) -> Drawn {
    let mut line: Vec<Place> = Vec::new();
    for (time, level) in points.iter().map(place) {
        line.extend(line.last().map(|(_, before)| (time, *before)));
        line.push((time, level));
    }
    let line = LineSeries::new(line, ACKNOWLEDGED.stroke_width(2));
    chart.draw_series(line)?.label("acknowledged, at the sender").legend(swatch(ACKNOWLEDGED));
    Ok(())
}

/// Plus signs with a name above; nothing, not even a legend, without points.
fn marks<'b>(chart: &mut Chart<'_, 'b>, points: &[Point], name: &str, label: &str) -> Drawn {
    if points.is_empty() {
        return Ok(());
    }
    let style = (FONT, 13).into_font().color(&AGAIN).pos(Pos::new(HPos::Center, VPos::Bottom));
    pluses(chart, points, AGAIN)?.label(label).legend(swatch(AGAIN));
    let text =
        |point| EmptyElement::at(place(point)) + Text::new(name.to_owned(), (0, -5), style.clone());
    chart.draw_series(points.iter().map(text))?;
    Ok(())
}

/// A plus sign at every point.
fn pluses<'a, 'b, 'c>(
    chart: &'a mut Chart<'c, 'b>,
    points: &[Point],
    colour: RGBColor,
) -> Result<&'a mut SeriesAnno<'c, SVGBackend<'b>>, DrawError> {
    let style = colour.stroke_width(2);
    chart.draw_series(points.iter().map(|point| {
        EmptyElement::at(place(point))
            + PathElement::new([(-4, 0), (4, 0)], style)
            + PathElement::new([(0, -4), (0, 4)], style)
    }))
}

fn mesh(chart: &mut Chart<'_, '_>) -> Drawn {
    let font = |size| (FONT, size).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .x_desc("time (s)")
        .y_desc("number of the packet")
        .x_labels(12)
        .x_label_formatter(&|seconds| format!("{seconds:.1}"))
        .y_label_formatter(&|number| format!("{number:.0}"))
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
