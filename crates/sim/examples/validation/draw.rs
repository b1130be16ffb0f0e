//! Graphs as SVG.

use report::{Axis, Graph, GraphSeries as Drawn, SeriesColour};

use crate::checks::{Plot, Series};

/// Renders the graph as the text of an SVG file.
pub(crate) fn plot(plot: &Plot) -> String {
    let axis = |title: &str| match plot.logarithmic {
        true => Axis::new(title).logarithmic(),
        false => Axis::new(title).from_zero(),
    };
    let [x, y] = plot.axes.map(axis);
    let mut graph = Graph::new(plot.title.clone(), x, y);
    for (index, series) in plot.series.iter().enumerate() {
        let Series { name, joined, points } = series;
        let (colour, points) = (SeriesColour::cycle(index), points.clone());
        graph.add(match joined {
            true => Drawn::line(name.as_str(), colour, points),
            false => Drawn::dots(name.as_str(), colour, points).width(8),
        });
    }
    graph.picture().file()
}
