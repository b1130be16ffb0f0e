//! Graphs as SVG, all in one theme.

mod axis;
mod bars;
mod draw;
mod picture;
mod series;
mod theme;
mod thin;

pub use axis::Axis;
pub use bars::{BarGroup, TimeBar, bars};
pub use draw::stacked;
pub use picture::SvgPicture;
pub use series::GraphSeries;
pub use theme::SeriesColour;
pub(crate) use theme::dark_css;

/// A coordinate system with its series, drawn in their order.
#[derive(Debug, Clone)]
pub struct Graph {
    title: String,
    is_titled: bool,
    /// Width of the picture and height of the plotting area with its axes, in pixels.
    size: (u32, u32),
    x: Axis,
    y: Axis,
    series: Vec<GraphSeries>,
}

impl Graph {
    /// Creates a wide graph with its own title, which also serves as the label for screen readers.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        let title = title.into();
        let series = Vec::new();
        Self { title, is_titled: true, size: (1200, 540), x, y, series }
    }

    /// Makes the graph small enough for a page or a phone, and omits the title, which the page shows.
    #[must_use]
    pub fn narrow(self) -> Self {
        Self { is_titled: false, size: (560, 290), ..self }
    }

    /// Sets the height of the plotting area with its axes, in pixels.
    #[must_use]
    pub fn height(self, height: u32) -> Self {
        Self { size: (self.size.0, height), ..self }
    }

    /// Adds a series. A series without points is left out, also in the legend.
    pub fn add(&mut self, series: GraphSeries) {
        if !series.is_empty() {
            self.series.push(series);
        }
    }

    /// Draws the graph as SVG.
    pub fn picture(&self) -> SvgPicture {
        stacked(std::slice::from_ref(self))
    }
}

#[cfg(test)]
mod tests;
