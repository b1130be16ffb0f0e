//! Entry point of the fuzzer for captures, which may be any bytes.

use super::{DirectionReport, TraceOptions, analyse, svg};

/// Analyses `bytes` and draws every graph.
///
/// # Panics
/// If the figures contradict each other.
pub fn capture(bytes: &[u8]) {
    let options = TraceOptions { connection: None, plots: true };
    let Ok(trace) = analyse(bytes, options) else { return };
    let report = &trace.report;
    let packets = |direction: &DirectionReport| direction.packets;
    let directions = || {
        report.connections.iter().flat_map(|connection| [&connection.a_to_b, &connection.b_to_a])
    };
    let seen = directions().map(|direction| packets(direction) + direction.copies).sum::<u64>();
    assert!(seen <= report.tcp_packets);
    assert!(report.tcp_packets + report.other_packets.values().sum::<u64>() <= report.packets);
    for it in directions() {
        assert_eq!(it.payload_bytes, it.unique_bytes + it.retransmitted_bytes, "{it:#?}");
        assert!(it.data_packets + it.pure_acks <= it.packets, "{it:#?}");
        assert!(it.needless_packets <= it.retransmitted_packets, "{it:#?}");
        let mean = it.outstanding_mean_bytes.unwrap_or(0.0);
        let max = it.outstanding_max_bytes.unwrap_or(0);
        assert!(mean <= max as f64 * 1.000_001, "{it:#?}");
    }
    // Drawing takes longer than everything else, so two graphs have to do.
    for (number, plots) in trace.plots.iter().take(2) {
        let connection = report.connections.iter().find(|connection| connection.number == *number);
        let drawn = connection.map(|connection| svg::draw(connection, plots));
        let is_whole = |svg: &str| svg.ends_with("</svg>\n");
        assert!(drawn.is_some_and(|drawn| drawn.iter().all(|(_, svg)| is_whole(svg))));
    }
}
