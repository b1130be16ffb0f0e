//! The picture of a recovery as SVG: numbers of packets over time.

use report::{Axis, Graph, GraphSeries, SeriesColour};

use crate::points::{Point, Recovery};

/// Draws a recovery; gives the text of an SVG file. The colours are about the paper's.
pub(crate) fn draw(title: &str, recovery: &Recovery) -> String {
    let (time, sequence) = (Axis::new("time (s)"), Axis::new("number of the packet"));
    let mut graph = Graph::new(title, time, sequence).height(660);
    let level =
        recovery.acknowledged.iter().map(place).map(|(time, number)| (time, number, number));
    let acknowledged = "acknowledged, at the sender";
    graph.add(GraphSeries::level(acknowledged, SeriesColour::Green, level.collect()));
    for (points, name, colour) in [
        (&recovery.sent, "sent", SeriesColour::Orange),
        (&recovery.received, "received", SeriesColour::Blue),
    ] {
        graph.add(GraphSeries::line(name, colour, places(points)).width(1));
        graph.add(GraphSeries::crosses("", colour, places(points)));
    }
    let delivered = places(&recovery.delivered);
    graph.add(GraphSeries::diamonds("delivered, in order", SeriesColour::Sky, delivered));
    for (points, mark, name) in [
        (&recovery.resent, "Rs", "Rs: retransmission sent"),
        (&recovery.resent_received, "Rr", "Rr: retransmission received"),
        (&recovery.restored, "Fd", "Fd: data restored by FEC"),
        (&recovery.restored_acknowledgements, "Fa", "Fa: acknowledgement restored by FEC"),
    ] {
        graph.add(GraphSeries::crosses(name, SeriesColour::Red, places(points)).marked(mark));
    }
    graph.picture().file()
}

fn places(points: &[Point]) -> Vec<(f64, f64)> {
    points.iter().map(place).collect()
}

/// Seconds, and the number of a packet.
fn place(point: &Point) -> (f64, f64) {
    (point.time.as_nanos() as f64 / 1e9, point.sequence as f64)
}
