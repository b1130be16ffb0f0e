//! Draws a direction's time-sequence graph, with the outstanding data below it, as SVG.

use report::{Axis, Graph, GraphSeries, SeriesColour, stacked};
use units::Instant;

use super::analysis::AnalysedCapture;
use super::connection::Plots;
use super::plot::{Plot, PlotMark, PlotMarks};
use super::report::{ConnectionReport, DirectionReport};
use crate::reports::print::size;

/// Heights of the time-sequence graph and of the one below it, in pixels.
const HEIGHTS: [u32; 2] = [490, 240];

impl AnalysedCapture {
    /// Returns the graphs of the plotted connections: a file name and text for each direction with
    /// payload.
    pub fn graphs(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.plots.iter().flat_map(|(number, plots)| {
            let found =
                self.report.connections.iter().find(|connection| connection.number == *number);
            found.map(|connection| draw(connection, plots)).unwrap_or_default()
        })
    }
}

/// Draws the directions that have payload.
pub(super) fn draw(connection: &ConnectionReport, plots: &Plots) -> Vec<(String, String)> {
    let a = connection.a;
    let b = connection.b;
    let number = connection.number;
    let sides = [("a2b", a, b, &connection.a_to_b), ("b2a", b, a, &connection.b_to_a)];
    let mut drawn = Vec::new();
    for ((name, from, to, direction), plot) in sides.into_iter().zip(plots) {
        if direction.data_packets > 0 {
            let view = GraphView::new(connection, direction, plot);
            let sequence = view.sequence(format!("Connection {number}: {from} → {to}"));
            let text = stacked(&[sequence, view.outstanding()]).file();
            drawn.push((format!("connection-{number}-{name}.svg"), text));
        }
    }
    drawn
}

/// A direction and the scales of its graphs.
struct GraphView<'a> {
    direction: &'a DirectionReport,
    plot: &'a Plot,
    begin: Instant,
    /// Length of the time axis, in seconds.
    lasted: f64,
    /// Length of the stream in bytes.
    length: f64,
}

impl<'a> GraphView<'a> {
    fn new(connection: &ConnectionReport, direction: &'a DirectionReport, plot: &'a Plot) -> Self {
        let payload = [&plot.data, &plot.retransmissions, &plot.reordered];
        let marks = || payload.iter().flat_map(|marks| marks.iter()).chain(plot.acks.iter());
        let begin = marks().map(|mark| mark.time).min().unwrap_or_default();
        // Times are shown relative to the connection's first packet.
        let before = direction.first_data.unwrap_or_default();
        let begin = Instant::from_nanos(
            begin.as_nanos().saturating_sub(before.as_nanos().try_into().unwrap_or(u64::MAX)),
        );
        let high = marks().map(|mark| mark.end.saturating_sub(plot.origin)).max().unwrap_or(0);
        let lasted = connection.lasted.unwrap_or_default().as_secs_f64().max(1e-3);
        Self { direction, plot, begin, lasted, length: high.max(1) as f64 }
    }

    fn sequence(&self, title: String) -> Graph {
        let plot = self.plot;
        let time = Axis::new("").range(0.0..self.lasted * 1.02);
        let offset = Axis::new("offset in the stream").in_bytes().range(0.0..self.length * 1.06);
        let mut graph = Graph::new(title, time, offset).height(HEIGHTS[0]);
        let places = |marks| self.points(marks, plot.origin);
        let window = places(&plot.window);
        graph.add(
            GraphSeries::level("end of the receiver's window", SeriesColour::Grey, window).width(1),
        );
        graph.add(
            GraphSeries::spans("SACK blocks", SeriesColour::Purple, places(&plot.sacks)).width(1),
        );
        graph.add(GraphSeries::spans("payload", SeriesColour::Blue, places(&plot.data)));
        graph.add(
            GraphSeries::level("acknowledged", SeriesColour::Green, places(&plot.acks)).width(1),
        );
        let reordered = places(&plot.reordered);
        graph.add(
            GraphSeries::spans("payload out of order", SeriesColour::Orange, reordered).width(3),
        );
        let again = places(&plot.retransmissions);
        graph.add(
            GraphSeries::spans("retransmissions and repairs", SeriesColour::Red, again).width(3),
        );
        graph
    }

    fn outstanding(&self) -> Graph {
        let high = self.direction.outstanding_max_bytes.unwrap_or(0).max(1) as f64 * 1.06;
        let title = "time from the first packet of the connection (s)";
        let time = Axis::new(title).range(0.0..self.lasted * 1.02);
        let bytes = Axis::new("outstanding").in_bytes().range(0.0..high);
        let mut graph = Graph::new("", time, bytes).height(HEIGHTS[1]);
        let outstanding = self.points(&self.plot.outstanding, 0);
        graph.add(
            GraphSeries::area("sent and not acknowledged", SeriesColour::Blue, outstanding)
                .width(1),
        );
        if let Some(mean) = self.direction.outstanding_mean_bytes {
            let line = vec![(0.0, mean), (self.lasted, mean)];
            let name = format!("mean over time: {}", size(mean as u64));
            graph.add(GraphSeries::dashed(name, SeriesColour::Red, line).width(1));
        }
        graph
    }

    /// Converts marks to `(seconds, lowest, highest)`.
    fn points(&self, marks: &PlotMarks, origin: u64) -> Vec<(f64, f64, f64)> {
        let bytes = |number: u64| number.saturating_sub(origin) as f64;
        let place = |mark: &PlotMark| {
            let time = mark.time.saturating_since(self.begin).as_secs_f64();
            (time, bytes(mark.start), bytes(mark.end))
        };
        marks.iter().map(place).collect()
    }
}
