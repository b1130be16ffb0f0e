//! Series of points in a graph.

use super::theme::SeriesColour;

/// A point in the axes' units.
pub(super) type PlotPoint = (f64, f64);
/// A position on the x axis, with a lower and an upper value.
pub(super) type PlotSpan = (f64, f64, f64);

/// A series of points with its name, colour and shape.
#[derive(Debug, Clone)]
pub struct GraphSeries {
    pub(super) name: String,
    pub(super) colour: SeriesColour,
    /// Width of its strokes in pixels.
    pub(super) width: u32,
    pub(super) shape: SeriesShape,
    /// Text above each point.
    pub(super) mark: String,
}

/// The shape in which points are drawn. Values that are not finite or outside the axes are not drawn.
#[derive(Debug, Clone)]
pub(super) enum SeriesShape {
    Line(Vec<PlotPoint>),
    Dashed(Vec<PlotPoint>),
    Dots(Vec<PlotPoint>),
    Crosses(Vec<PlotPoint>),
    Diamonds(Vec<PlotPoint>),
    Spans(Vec<PlotSpan>),
    Level(Vec<PlotSpan>),
    Area(Vec<PlotSpan>),
}

impl GraphSeries {
    /// Creates points joined by straight lines.
    pub fn line(name: impl Into<String>, colour: SeriesColour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, SeriesShape::Line(points))
    }

    /// Creates points joined by dashed lines, for values that are computed rather than measured.
    pub fn dashed(name: impl Into<String>, colour: SeriesColour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, SeriesShape::Dashed(points))
    }

    /// Creates a dot at each point.
    pub fn dots(name: impl Into<String>, colour: SeriesColour, points: Vec<(f64, f64)>) -> Self {
        Self { width: 4, ..Self::new(name, colour, SeriesShape::Dots(points)) }
    }

    /// Creates a plus sign at each point.
    pub fn crosses(name: impl Into<String>, colour: SeriesColour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, SeriesShape::Crosses(points))
    }

    /// Creates a diamond at each point.
    pub fn diamonds(
        name: impl Into<String>,
        colour: SeriesColour,
        points: Vec<(f64, f64)>,
    ) -> Self {
        Self::new(name, colour, SeriesShape::Diamonds(points))
    }

    /// Creates a vertical bar for each `(x, low, high)`.
    pub fn spans(
        name: impl Into<String>,
        colour: SeriesColour,
        spans: Vec<(f64, f64, f64)>,
    ) -> Self {
        Self::new(name, colour, SeriesShape::Spans(spans))
    }

    /// Creates a step function: at each `(x, first, last)` it goes from `first` to `last`, which holds
    /// until the next one.
    pub fn level(
        name: impl Into<String>,
        colour: SeriesColour,
        spans: Vec<(f64, f64, f64)>,
    ) -> Self {
        Self::new(name, colour, SeriesShape::Level(spans))
    }

    /// Creates a step function like [`Self::level`], with the area below it filled.
    pub fn area(
        name: impl Into<String>,
        colour: SeriesColour,
        spans: Vec<(f64, f64, f64)>,
    ) -> Self {
        Self::new(name, colour, SeriesShape::Area(spans))
    }

    /// Sets the width of strokes, or the diameter of dots, in pixels.
    #[must_use]
    pub fn width(self, width: u32) -> Self {
        Self { width, ..self }
    }

    /// Writes a text above each point of a series of crosses.
    #[must_use]
    pub fn marked(self, mark: impl Into<String>) -> Self {
        Self { mark: mark.into(), ..self }
    }

    fn new(name: impl Into<String>, colour: SeriesColour, shape: SeriesShape) -> Self {
        Self { name: name.into(), colour, width: 2, shape, mark: String::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extremes().next().is_none()
    }

    /// Returns points that include the least and the greatest value of each axis.
    pub(super) fn extremes(&self) -> Box<dyn Iterator<Item = PlotPoint> + '_> {
        match &self.shape {
            SeriesShape::Line(points)
            | SeriesShape::Dashed(points)
            | SeriesShape::Dots(points)
            | SeriesShape::Crosses(points)
            | SeriesShape::Diamonds(points) => Box::new(points.iter().copied()),
            SeriesShape::Spans(spans) | SeriesShape::Level(spans) | SeriesShape::Area(spans) => {
                Box::new(spans.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]))
            }
        }
    }
}
