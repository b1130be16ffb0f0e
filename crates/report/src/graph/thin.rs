//! Reduces series to as many elements as a picture can show, and drops points outside the picture. The
//! drawing library cannot handle values far outside, such as those of a hostile or disordered capture.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::series::{PlotPoint, PlotSpan};

/// The visible ranges of both axes, and the size of the picture in pixels.
#[derive(Debug, Clone)]
pub(super) struct PlotView {
    pub(super) x: Range<f64>,
    pub(super) y: Range<f64>,
    pub(super) is_logarithmic: bool,
    pub(super) pixels: (u32, u32),
}

impl PlotView {
    fn column(&self, x: f64) -> i64 {
        self.pixel(x, &self.x, self.pixels.0)
    }

    fn row(&self, y: f64) -> i64 {
        self.pixel(y, &self.y, self.pixels.1)
    }

    fn pixel(&self, value: f64, range: &Range<f64>, pixels: u32) -> i64 {
        // Any base will do, because only ratios of distances count.
        let scaled = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let [value, start, end] = [value, range.start, range.end].map(scaled);
        ((value - start) / (end - start) * f64::from(pixels)) as i64
    }

    fn contains(&self, point: PlotPoint) -> bool {
        let (x, y) = point;
        self.has_column(x) && self.y.start <= y && y <= self.y.end
    }

    fn has_column(&self, x: f64) -> bool {
        self.x.start <= x && x <= self.x.end
    }

    /// Returns the height of a pixel in units of a linear axis.
    pub(super) fn row_height(&self) -> f64 {
        (self.y.end - self.y.start) / f64::from(self.pixels.1)
    }
}

/// Returns one of the points on each pixel.
pub(super) fn dots(points: &[PlotPoint], view: &PlotView) -> Vec<PlotPoint> {
    let mut seen = BTreeSet::new();
    let mut is_new = |&(x, y): &PlotPoint| seen.insert((view.column(x), view.row(y)));
    points
        .iter()
        .copied()
        .filter(|point| view.contains(*point))
        .filter(|point| is_new(point))
        .collect()
}

/// Returns the parts of a line that are inside the picture, with one point on each pixel.
pub(super) fn lines(points: &[PlotPoint], view: &PlotView) -> Vec<Vec<PlotPoint>> {
    // A line is cut where it leaves the picture, and goes on where it comes back.
    let inside = |(a, b): (&PlotPoint, &PlotPoint)| view.contains(*a) == view.contains(*b);
    let parts = points.chunk_by(|a, b| inside((a, b)));
    let parts = parts.filter(|part| view.contains(part[0]));
    // A single point makes no line.
    parts.map(|part| dots(part, view)).filter(|part| part.len() > 1).collect()
}

/// Joins bars in the same column of pixels that are less than a pixel apart.
pub(super) fn spans(spans: &[PlotSpan], view: &PlotView) -> Vec<PlotSpan> {
    let mut of_column: BTreeMap<i64, Vec<PlotSpan>> = BTreeMap::new();
    for &(x, low, high) in spans {
        if view.has_column(x) && low <= view.y.end && high >= view.y.start {
            let span = (x, low.max(view.y.start), high.min(view.y.end));
            of_column.entry(view.column(x)).or_default().push(span);
        }
    }
    let mut bars = Vec::new();
    for mut parts in of_column.into_values() {
        // By their lower ends, so that bars that touch follow each other.
        parts.sort_by(|a, b| a.1.total_cmp(&b.1));
        let x = parts[0].0;
        let mut last = (x, parts[0].1, parts[0].2);
        for &(_, low, high) in &parts[1..] {
            if low <= last.2 + view.row_height() {
                last.2 = last.2.max(high);
            } else {
                bars.push(last);
                last = (x, low, high);
            }
        }
        bars.push(last);
    }
    bars
}

/// Returns the lines of a step function, with the first, lowest, highest and last value of each
/// column of pixels. Parts outside the picture are left out.
pub(super) fn levels(spans: &[PlotSpan], view: &PlotView) -> Vec<Vec<PlotPoint>> {
    let spans: Vec<PlotSpan> =
        spans.iter().copied().filter(|&(x, ..)| view.has_column(x)).collect();
    let mut lines = vec![Vec::new()];
    let mut last: Option<f64> = None;
    for part in spans.chunk_by(|a, b| view.column(a.0) == view.column(b.0)) {
        let first = part[0];
        let end = part[part.len() - 1];
        let low = part.iter().map(|span| span.1).fold(f64::INFINITY, f64::min);
        let top = part.iter().map(|span| span.2).fold(f64::NEG_INFINITY, f64::max);
        // The level before holds until this one begins.
        let held = last.map(|value| (first.0, value));
        let points = held.into_iter().chain([
            (first.0, first.1),
            (first.0, low),
            (first.0, top),
            (end.0, end.2),
        ]);
        for point in points {
            if !view.contains(point) {
                lines.push(Vec::new());
            } else if let Some(line) = lines.last_mut() {
                line.push(point);
                // First, lowest and highest are often the same.
                line.dedup();
            }
        }
        last = Some(end.2);
    }
    lines.retain(|line| line.len() > 1);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten by ten, on as many pixels.
    fn view() -> PlotView {
        PlotView { x: 0.0..10.0, y: 0.0..10.0, is_logarithmic: false, pixels: (10, 10) }
    }

    #[test]
    fn one_dot_on_each_pixel_and_none_outside() {
        let points =
            [(1.1, 2.1), (1.9, 2.9), (2.0, 2.0), (11.0, 1.0), (1.0, f64::NAN), (1.0, 1e300)];
        assert_eq!(dots(&points, &view()), [(1.1, 2.1), (2.0, 2.0)]);
        let view =
            PlotView { x: 1.0..1000.0, y: 1.0..1000.0, is_logarithmic: true, pixels: (3, 3) };
        let points = [(2.0, 2.0), (9.0, 9.0), (20.0, 2.0), (0.0, 1.0)];
        assert_eq!(dots(&points, &view), [(2.0, 2.0), (20.0, 2.0)]);
    }

    #[test]
    fn a_line_ends_where_it_leaves_the_picture() {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, 20.0), (3.0, 3.0), (4.0, 4.0), (5.0, -1.0)];
        let expected = [vec![(0.0, 1.0), (1.0, 2.0)], vec![(3.0, 3.0), (4.0, 4.0)]];
        assert_eq!(lines(&points, &view()), expected);
    }

    #[test]
    fn bars_of_a_column_are_joined_where_they_touch() {
        let marks = [
            (0.1, 0.0, 1.0),
            (0.2, 1.0, 2.0),
            (0.3, 5.0, 6.0),
            (1.2, 6.0, 70.0),
            (2.0, 11.0, 12.0),
            (11.0, 0.0, 1.0),
        ];
        let expected = [(0.1, 0.0, 2.0), (0.1, 5.0, 6.0), (1.2, 6.0, 10.0)];
        assert_eq!(spans(&marks, &view()), expected);
    }

    #[test]
    fn a_level_holds_and_is_cut_where_it_leaves_the_picture() {
        let marks = [(0.0, 5.0, 5.0), (2.0, 7.0, 7.0), (4.0, 99.0, 99.0), (6.0, 8.0, 8.0)];
        let expected = [vec![(0.0, 5.0), (2.0, 5.0), (2.0, 7.0), (4.0, 7.0)]];
        assert_eq!(levels(&marks, &view()), expected);
    }

    #[test]
    fn extremes_within_a_column_are_kept() {
        let marks: Vec<_> = (0..1000)
            .map(|number| (f64::from(number) / 1e3, f64::from(number % 10), f64::from(number % 10)))
            .collect();
        assert_eq!(levels(&marks, &view()), [vec![(0.0, 0.0), (0.0, 9.0), (0.999, 9.0)]]);
    }
}
