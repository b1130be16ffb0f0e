//! Layout and drawing of graphs.

use plotters::coord::ranged1d::{BoldPoints, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::Graph;
use super::picture::{DrawArea, DrawResult, SvgPicture};
use super::series::{GraphSeries, PlotPoint, SeriesShape};
use super::theme::{GRID, INK, SCALE, SOFT, TEXT, text, text_width, title};
use super::thin::{self, PlotView};

/// Heights in pixels: of the title, of a line of the legend, of the y axis's title, and of the x
/// axis's ticks and title.
const TITLE_LINE: u32 = 34;
const LEGEND_LINE: u32 = 22;
const Y_TITLE: u32 = 24;
const X_TICKS: u32 = 26;
const X_TITLE: u32 = 22;
/// Distances in pixels: around the picture, between axis and text, and between legend entries.
const MARGIN: u32 = 12;
const GAP: u32 = 8;
const ENTRY_GAP: u32 = 22;
/// Width of a legend entry's line in pixels.
const SWATCH: u32 = 24;
/// Distance between ticks in pixels.
const TICK_WIDTH: u32 = 90;
const TICK_HEIGHT: u32 = 55;

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

/// An axis type of the drawing library, linear or logarithmic.
trait AxisScale: Ranged<ValueType = f64> + ValueFormatter<f64> {}
impl<T: Ranged<ValueType = f64> + ValueFormatter<f64>> AxisScale for T {}

/// Draws graphs one below the other, with their y axes aligned.
pub fn stacked(graphs: &[Graph]) -> SvgPicture {
    // The widest decides for all, so that equal times are aligned.
    let left = graphs.iter().map(|graph| graph.left()).max().unwrap_or(0);
    let plans: Vec<GraphLayout<'_>> =
        graphs.iter().map(|graph| GraphLayout::new(graph, left)).collect();
    let width = graphs.iter().map(|graph| graph.size.0).max().unwrap_or(1);
    let height = plans.iter().map(GraphLayout::height).sum::<u32>().max(1);
    let label: Vec<&str> = graphs.iter().map(|graph| graph.title.as_str()).collect();
    SvgPicture::draw(width, height, label.join(" ").trim(), |area| {
        let mut rest = area.clone();
        for plan in &plans {
            let (part, below) = rest.split_vertically(scaled(plan.height()));
            plan.draw(&part)?;
            rest = below;
        }
        Ok(())
    })
}

/// Converts pixels to units of the drawing library.
fn scaled(pixels: u32) -> i32 {
    (pixels * SCALE) as i32
}

impl Graph {
    fn view(&self) -> PlotView {
        let points = || self.series.iter().flat_map(GraphSeries::extremes);
        PlotView {
            x: self.x.ends(points().map(|(x, _)| x)),
            y: self.y.ends(points().map(|(_, y)| y)),
            is_logarithmic: self.x.is_logarithmic,
            pixels: self.size,
        }
    }

    fn y_ticks(&self) -> usize {
        (self.size.1 / TICK_HEIGHT).max(3) as usize
    }

    /// Returns the width of the text at the y axis, in pixels.
    fn left(&self) -> u32 {
        let y = self.view().y;
        let ticks = BoldPoints(self.y_ticks());
        // The ticks that the library will choose, to know the widest text in advance.
        let values = match self.y.is_logarithmic {
            true => LogCoord::from(y.clone().log_scale()).key_points(ticks),
            false => RangedCoordf64::from(y.clone()).key_points(ticks),
        };
        let widths = values.iter().map(|value| text_width(&self.y.tick(*value, &y)));
        MARGIN + widths.max().unwrap_or(0) + 2 * GAP
    }
}

/// The layout of a graph.
struct GraphLayout<'a> {
    graph: &'a Graph,
    view: PlotView,
    /// Width left of the y axis, in pixels.
    left: u32,
    /// The entries of the legend, line by line, with the x position of each in pixels.
    legend: Vec<Vec<(u32, &'a GraphSeries)>>,
}

impl<'a> GraphLayout<'a> {
    fn new(graph: &'a Graph, left: u32) -> Self {
        let mut legend: Vec<Vec<(u32, &GraphSeries)>> = Vec::new();
        // No position fits, so the first entry begins a line.
        let mut at = u32::MAX;
        for series in graph.series.iter().filter(|series| !series.name.is_empty()) {
            let width = SWATCH + GAP + text_width(&series.name);
            if at.saturating_add(width + MARGIN) > graph.size.0 {
                legend.push(Vec::new());
                at = left;
            }
            legend.last_mut().expect("a line was begun").push((at, series));
            at += width + ENTRY_GAP;
        }
        Self { graph, view: graph.view(), left, legend }
    }

    fn title_height(&self) -> u32 {
        if self.graph.is_titled && !self.graph.title.is_empty() { TITLE_LINE } else { GAP }
    }

    fn x_height(&self) -> u32 {
        X_TICKS + if self.x_title().is_empty() { 0 } else { X_TITLE }
    }

    fn x_title(&self) -> String {
        self.graph.x.title(&self.view.x)
    }

    fn head_height(&self) -> u32 {
        self.title_height() + self.legend.len() as u32 * LEGEND_LINE + Y_TITLE
    }

    fn height(&self) -> u32 {
        self.head_height() + self.graph.size.1 + GAP
    }

    fn draw(&self, area: &DrawArea<'_>) -> DrawResult {
        let (head, plot) = area.split_vertically(scaled(self.head_height()));
        self.draw_head(&head)?;
        let PlotView { x, y, is_logarithmic, .. } = self.view.clone();
        if is_logarithmic {
            let [x, y] = [x, y].map(|range| LogCoord::from(range.log_scale()));
            self.draw_plot(&plot, x, y)
        } else {
            self.draw_plot(&plot, RangedCoordf64::from(x), RangedCoordf64::from(y))
        }
    }

    /// Draws the title, the legend and the y axis's title.
    fn draw_head(&self, area: &DrawArea<'_>) -> DrawResult {
        let mut y = self.title_height();
        if y > GAP {
            let place = (scaled(MARGIN), scaled(y / 2 + 3));
            area.draw(&Text::new(self.graph.title.clone(), place, title(HPos::Left)))?;
        }
        for line in &self.legend {
            for &(x, series) in line {
                swatch(area, x, y + LEGEND_LINE / 2, series)?;
            }
            y += LEGEND_LINE;
        }
        let place = (scaled(self.left), scaled(y + Y_TITLE / 2));
        let name = self.graph.y.title(&self.view.y);
        area.draw(&Text::new(name, place, text(TEXT, SOFT, HPos::Left)))
    }

    fn draw_plot<X: AxisScale, Y: AxisScale>(&self, area: &DrawArea<'_>, x: X, y: Y) -> DrawResult {
        let mut chart = ChartBuilder::on(area)
            .margin_right(scaled(2 * MARGIN))
            .margin_top(scaled(GAP))
            .margin_bottom(scaled(GAP))
            .x_label_area_size(scaled(self.x_height()))
            .y_label_area_size(scaled(self.left))
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x_title())
            .x_labels((self.graph.size.0 / TICK_WIDTH).max(3) as usize)
            .y_labels(self.graph.y_ticks())
            .x_label_formatter(&|value| self.graph.x.tick(*value, &self.view.x))
            .y_label_formatter(&|value| self.graph.y.tick(*value, &self.view.y))
            .label_style(text(TEXT, SOFT, HPos::Center))
            .axis_desc_style(text(TEXT, SOFT, HPos::Center))
            .axis_style(SOFT.stroke_width(SCALE))
            .bold_line_style(GRID.stroke_width(SCALE))
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(scaled(4))
            .draw()?;
        self.graph.series.iter().try_for_each(|series| self.draw_series(&mut chart, series))
    }

    fn draw_series<X: AxisScale, Y: AxisScale>(
        &self,
        chart: &mut Chart<'_, '_, X, Y>,
        series: &GraphSeries,
    ) -> DrawResult {
        let colour = series.colour.rgb();
        let view = &self.view;
        let style = colour.stroke_width(series.width * SCALE);
        let path = |points: Vec<PlotPoint>| PathElement::new(points, style);
        match &series.shape {
            SeriesShape::Line(points) => {
                chart.draw_series(thin::lines(points, view).into_iter().map(path))?;
            }
            SeriesShape::Dashed(points) => {
                for points in thin::lines(points, view) {
                    let dash = 6 * SCALE;
                    let gap = 5 * SCALE;
                    chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?;
                }
            }
            SeriesShape::Dots(points) => {
                let dot = |at| Circle::new(at, series.width * SCALE / 2, colour.filled());
                chart.draw_series(thin::dots(points, view).into_iter().map(dot))?;
            }
            SeriesShape::Crosses(points) => self.draw_crosses(chart, series, points)?,
            SeriesShape::Diamonds(points) => self.draw_diamonds(chart, series, points)?,
            SeriesShape::Spans(spans) => {
                // Wide bars mark rare events, so they stay visible in a long series.
                let least = view.row_height() * f64::from(series.width * 2);
                let bar = |(x, low, high): (f64, f64, f64)| {
                    let high = high.max(low + least).min(view.y.end);
                    path(vec![(x, low), (x, high)])
                };
                chart.draw_series(thin::spans(spans, view).into_iter().map(bar))?;
            }
            SeriesShape::Level(spans) => {
                chart.draw_series(thin::levels(spans, view).into_iter().map(path))?;
            }
            SeriesShape::Area(spans) => {
                for points in thin::levels(spans, view) {
                    let area = AreaSeries::new(points, view.y.start, colour.mix(0.15));
                    chart.draw_series(area.border_style(style))?;
                }
            }
        }
        Ok(())
    }

    fn draw_diamonds<X: AxisScale, Y: AxisScale>(
        &self,
        chart: &mut Chart<'_, '_, X, Y>,
        series: &GraphSeries,
        points: &[PlotPoint],
    ) -> DrawResult {
        let colour = series.colour.rgb();
        let shape = [(0, -5), (5, 0), (0, 5), (-5, 0)].map(|(x, y)| (pixels(x), pixels(y)));
        let diamond = |at| EmptyElement::at(at) + Polygon::new(shape.to_vec(), colour.filled());
        chart.draw_series(thin::dots(points, &self.view).into_iter().map(diamond))?;
        Ok(())
    }

    fn draw_crosses<X: AxisScale, Y: AxisScale>(
        &self,
        chart: &mut Chart<'_, '_, X, Y>,
        series: &GraphSeries,
        points: &[PlotPoint],
    ) -> DrawResult {
        let colour = series.colour.rgb();
        let style = colour.stroke_width(series.width * SCALE);
        let points = thin::dots(points, &self.view);
        chart.draw_series(points.iter().map(|&at| {
            let arm = pixels(4);
            EmptyElement::at(at)
                + PathElement::new([(-arm, 0), (arm, 0)], style)
                + PathElement::new([(0, -arm), (0, arm)], style)
        }))?;
        if !series.mark.is_empty() {
            let style = text(TEXT, colour, HPos::Center);
            chart.draw_series(points.iter().map(|&at| {
                let above = Text::new(series.mark.clone(), (0, -pixels(13)), style.clone());
                EmptyElement::at(at) + above
            }))?;
        }
        Ok(())
    }
}

/// Draws a series' entry of the legend, whose left end is at `x` and `y` in pixels.
fn swatch(area: &DrawArea<'_>, x: u32, y: u32, series: &GraphSeries) -> DrawResult {
    let from = scaled(x);
    let to = scaled(x + SWATCH);
    let y = scaled(y);
    let colour = series.colour.rgb();
    let style = colour.stroke_width(3 * SCALE);
    match series.shape {
        SeriesShape::Dots(_) => {
            area.draw(&Circle::new(((from + to) / 2, y), pixels(4), colour.filled()))?;
        }
        SeriesShape::Dashed(_) => {
            for part in 0..3 {
                let from = from + part * scaled(9);
                area.draw(&PathElement::new([(from, y), (from + scaled(6), y)], style))?;
            }
        }
        _ => area.draw(&PathElement::new([(from, y), (to, y)], style))?,
    }
    area.draw(&Text::new(series.name.clone(), (to + scaled(GAP), y), text(TEXT, INK, HPos::Left)))
}

fn pixels(count: i32) -> i32 {
    count * SCALE as i32
}
