//! Graphs as SVG.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::checks::{Plot, Series};

const SIZE: (u32, u32) = (900, 480);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 78, 140),
    RGBColor(208, 32, 48),
    RGBColor(34, 139, 80),
    RGBColor(220, 130, 20),
    RGBColor(120, 60, 160),
    RGBColor(90, 90, 90),
];

type Error = Box<dyn std::error::Error>;
type Pair = (f64, f64);

/// Renders the graph as the text of an SVG file.
pub(crate) fn plot(plot: &Plot) -> Result<String, Error> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (x, y) = (range(plot, |point| point.0), range(plot, |point| point.1));
        let mut builder = ChartBuilder::on(&root);
        builder
            .caption(&plot.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70);
        if plot.logarithmic {
            let (x, y) = ((x.0..x.1).log_scale(), (y.0..y.1).log_scale());
            fill(plot, builder.build_cartesian_2d(x, y)?)?;
        } else {
            let (x, y): (RangedCoordf64, RangedCoordf64) = ((0.0..x.1).into(), (0.0..y.1).into());
            fill(plot, builder.build_cartesian_2d(x, y)?)?;
        }
        root.present()?;
    }
    Ok(text)
}

fn range(plot: &Plot, of: impl Fn(&Pair) -> f64) -> Pair {
    let all = || plot.series.iter().flat_map(|series| &series.points).map(&of);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(1e-9, f64::max));
    if low.is_finite() { (low.max(1e-9) * 0.9, high * 1.05) } else { (0.1, 1.0) }
}

fn fill<'a, X, Y>(
    plot: &Plot,
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> Result<(), Error>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let [x, y] = plot.axes;
    chart.configure_mesh().light_line_style(WHITE).x_desc(x).y_desc(y).draw()?;
    for (series, colour) in plot.series.iter().zip(COLOURS.iter().cycle()) {
        let Series { name, joined, points } = series;
        let points = points.iter().copied();
        let drawn = if *joined {
            chart.draw_series(LineSeries::new(points, colour))?
        } else {
            chart.draw_series(points.map(|point| Circle::new(point, 4, colour.filled())))?
        };
        let colour = *colour;
        drawn
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
