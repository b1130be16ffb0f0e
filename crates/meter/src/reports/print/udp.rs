//! Tables and CSV of UDP measurements.

use report::{CsvText, TableColumn, TextTable};

use super::{direction_label, milliseconds, outcome, rate, seconds_field};
use crate::udp::{UdpFlow, UdpReport};

pub(super) fn text(report: &UdpReport) -> String {
    let mut table = TextTable::new([
        TableColumn::left("way").at_least(4),
        TableColumn::right("sent").at_least(8),
        TableColumn::right("received"),
        TableColumn::right("lost").at_least(8),
        TableColumn::right("loss").at_least(8),
        TableColumn::right("reordered"),
        TableColumn::right("duplicates"),
        TableColumn::right("corrupt"),
        TableColumn::right("jitter").at_least(9),
        TableColumn::right("p99 above least delay"),
        TableColumn::right("goodput").at_least(14),
    ]);
    for flow in &report.flows {
        let counts = &flow.counts;
        table.row([
            direction_label(flow.direction).to_owned(),
            flow.sent.to_string(),
            counts.received.to_string(),
            flow.lost.to_string(),
            loss(flow),
            counts.reordered.to_string(),
            counts.duplicates.to_string(),
            counts.corrupt.to_string(),
            milliseconds(counts.jitter),
            milliseconds(counts.delay_variation),
            rate(flow.goodput),
        ]);
    }
    let own: String = report.flows.iter().filter_map(own_losses).collect();
    format!("{table}{own}{}\n", outcome(&report.outcome))
}

/// A line about datagrams that were not lost on the path, if there are any.
fn own_losses(flow: &UdpFlow) -> Option<String> {
    let overflowed = flow.counts.overflowed;
    let unsent = flow.unsent;
    (overflowed + unsent > 0).then(|| {
        format!(
            "{}: not lost on the path: {overflowed} overflowed the receiver's socket (see \
             net.core.rmem_max), {unsent} were refused by the sender's own system\n",
            direction_label(flow.direction)
        )
    })
}

fn loss(flow: &UdpFlow) -> String {
    match flow.sent {
        0 => "-".to_owned(),
        sent => format!("{:.3} %", flow.lost as f64 / sent as f64 * 100.0),
    }
}

pub(super) const COLUMNS: [&str; 14] = [
    "run",
    "direction",
    "sent",
    "received",
    "lost",
    "reordered",
    "duplicates",
    "corrupt",
    "jitter_seconds",
    "delay_variation_p99_seconds",
    "span_seconds",
    "goodput_bits_per_second",
    "overflowed",
    "unsent",
];

/// Adds a line for each direction.
pub(super) fn csv(csv: &mut CsvText, run: u32, report: &UdpReport) {
    for flow in &report.flows {
        csv.row([
            Some(run.to_string()),
            Some(direction_label(flow.direction).to_owned()),
            Some(flow.sent.to_string()),
            Some(flow.counts.received.to_string()),
            Some(flow.lost.to_string()),
            Some(flow.counts.reordered.to_string()),
            Some(flow.counts.duplicates.to_string()),
            Some(flow.counts.corrupt.to_string()),
            seconds_field(flow.counts.jitter),
            seconds_field(flow.counts.delay_variation),
            seconds_field(Some(flow.counts.span)),
            flow.goodput.map(|goodput| goodput.bits_per_second().to_string()),
            Some(flow.counts.overflowed.to_string()),
            Some(flow.unsent.to_string()),
        ]);
    }
}
