//! Series of points in a graph.

use super::theme::Colour;

/// A point in the axes' units.
pub(super) type Point = (f64, f64);
/// A position on the x axis, with a lower and an upper value.
pub(super) type Span = (f64, f64, f64);

/// A series of points with its name, colour and shape.
#[derive(Debug, Clone)]
pub struct Series {
    pub(super) name: String,
    pub(super) colour: Colour,
    /// Width of its strokes in pixels.
    pub(super) width: u32,
    pub(super) shape: Shape,
    /// Text above each point.
    pub(super) mark: String,
}

/// The shape in which points are drawn. Values that are not finite or outside the axes are not drawn.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Line(Vec<Point>),
    Dashed(Vec<Point>),
    Dots(Vec<Point>),
    Crosses(Vec<Point>),
    Diamonds(Vec<Point>),
    Spans(Vec<Span>),
    Level(Vec<Span>),
    Area(Vec<Span>),
}

impl Series {
    /// Creates points joined by straight lines.
    pub fn line(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Line(points))
    }

    /// Creates points joined by dashed lines, for values that are computed rather than measured.
    pub fn dashed(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Dashed(points))
    }

    /// Creates a dot at each point.
    pub fn dots(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self { width: 4, ..Self::new(name, colour, Shape::Dots(points)) }
    }

    /// Creates a plus sign at each point.
    pub fn crosses(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Crosses(points))
    }

    /// Creates a diamond at each point.
    pub fn diamonds(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Diamonds(points))
    }

    /// Creates a vertical bar for each `(x, low, high)`.
    pub fn spans(name: impl Into<String>, colour: Colour, spans: Vec<(f64, f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Spans(spans))
    }

    /// Creates a step function: at each `(x, first, last)` it goes from `first` to `last`, which holds
    /// until the next one.
    pub fn level(name: impl Into<String>, colour: Colour, spans: Vec<(f64, f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Level(spans))
    }

    /// Creates a step function like [`Self::level`], with the area below it filled.
    pub fn area(name: impl Into<String>, colour: Colour, spans: Vec<(f64, f64, f64)>) -> Self {
        Self::new(name, colour, Shape::Area(spans))
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

    fn new(name: impl Into<String>, colour: Colour, shape: Shape) -> Self {
        Self { name: name.into(), colour, width: 2, shape, mark: String::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extremes().next().is_none()
    }

    /// Returns points that include the least and the greatest value of each axis.
    pub(super) fn extremes(&self) -> Box<dyn Iterator<Item = Point> + '_> {
        match &self.shape {
            Shape::Line(points)
            | Shape::Dashed(points)
            | Shape::Dots(points)
            | Shape::Crosses(points)
            | Shape::Diamonds(points) => Box::new(points.iter().copied()),
            Shape::Spans(spans) | Shape::Level(spans) | Shape::Area(spans) => {
                Box::new(spans.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]))
            }
        }
    }
}
