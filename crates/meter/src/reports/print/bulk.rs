//! Tables and CSV of bulk transfers.

use std::fmt::Write as _;

use report::{CsvText, TableColumn, TextTable, dash};

use super::{direction_label, milliseconds, outcome, rate, seconds, seconds_field, size, state};
use crate::bulk::{BulkReport, DirectionSum};
use crate::flow::report::FlowReport;
use crate::sockets::sender::SenderReport;

pub(super) fn text(report: &BulkReport) -> String {
    let mut table = TextTable::new([
        TableColumn::right("flow"),
        TableColumn::left("way").at_least(4),
        TableColumn::right("start").at_least(9),
        TableColumn::right("connect").at_least(9),
        TableColumn::right("first").at_least(9),
        TableColumn::right("total").at_least(9),
        TableColumn::right("moved").at_least(10),
        TableColumn::right("goodput").at_least(14),
        TableColumn::right("retrans"),
        TableColumn::right("min RTT").at_least(9),
        TableColumn::right("mean RTT").at_least(9),
        TableColumn::left("outcome"),
    ]);
    report.flows.iter().for_each(|flow| table.row(cells(flow)));
    let complete = report.flows.iter().filter(|flow| flow.outcome.is_complete()).count();
    let mut text = table.to_string();
    let _ = writeln!(
        text,
        "{} of {} flows complete: {} in {}, {}",
        complete,
        report.flows.len(),
        size(report.moved_bytes),
        seconds(Some(report.total)),
        rate(report.goodput),
    );
    for sum in &report.sums {
        // Every direction has the same number of flows.
        text += &sum_line(sum, report.flows.len() / report.sums.len());
    }
    text
}

fn cells(flow: &FlowReport) -> [String; 12] {
    let sender = flow.sender.as_ref();
    [
        flow.flow.to_string(),
        direction_label(flow.direction).to_owned(),
        seconds(Some(flow.start)),
        seconds(flow.connect),
        seconds(flow.first_byte),
        seconds(Some(flow.total)),
        size(flow.moved_bytes),
        rate(flow.goodput),
        dash(sender.map(|sender| sender.retransmitted_segments)),
        milliseconds(sender.and_then(|sender| sender.min_rtt)),
        milliseconds(sender.and_then(|sender| sender.mean_rtt)),
        outcome(&flow.outcome),
    ]
}

fn sum_line(sum: &DirectionSum, flows: usize) -> String {
    let mut text = format!(
        "{}: {} in {}, {}",
        direction_label(sum.direction),
        size(sum.moved_bytes),
        seconds(Some(sum.total)),
        rate(sum.goodput),
    );
    if let Some(segments) = sum.retransmitted_segments {
        let _ = write!(text, ", {segments} segments retransmitted");
    }
    // The index of a single flow is always 1.
    if let (Some(jain), 2..) = (sum.jain_index, flows) {
        let _ = write!(text, ", Jain's index {jain:.3}");
    }
    text + "\n"
}

pub(super) const COLUMNS: [&str; 19] = [
    "run",
    "flow",
    "direction",
    "client",
    "state",
    "asked_bytes",
    "moved_bytes",
    "start_seconds",
    "connect_seconds",
    "first_byte_seconds",
    "total_seconds",
    "receive_seconds",
    "goodput_bits_per_second",
    "sent_bytes",
    "segments",
    "retransmitted_segments",
    "retransmitted_bytes",
    "min_rtt_seconds",
    "mean_rtt_seconds",
];

pub(super) fn csv(csv: &mut CsvText, run: u32, report: &BulkReport) {
    report.flows.iter().for_each(|flow| csv.row(fields(run, flow)));
}

fn fields(run: u32, flow: &FlowReport) -> [Option<String>; 19] {
    let count =
        |of: fn(&SenderReport) -> u64| flow.sender.as_ref().map(|sender| of(sender).to_string());
    let sender = flow.sender.as_ref();
    [
        Some(run.to_string()),
        Some(flow.flow.to_string()),
        Some(direction_label(flow.direction).to_owned()),
        flow.client.map(|client| client.to_string()),
        Some(state(&flow.outcome).to_owned()),
        flow.asked_bytes.map(|bytes| bytes.to_string()),
        Some(flow.moved_bytes.to_string()),
        seconds_field(Some(flow.start)),
        seconds_field(flow.connect),
        seconds_field(flow.first_byte),
        seconds_field(Some(flow.total)),
        seconds_field(flow.receive),
        flow.goodput.map(|goodput| goodput.bits_per_second().to_string()),
        count(|sender| sender.sent_bytes),
        count(|sender| sender.segments),
        count(|sender| sender.retransmitted_segments),
        count(|sender| sender.retransmitted_bytes),
        seconds_field(sender.and_then(|sender| sender.min_rtt)),
        seconds_field(sender.and_then(|sender| sender.mean_rtt)),
    ]
}
