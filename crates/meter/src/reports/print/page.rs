//! Tables and CSV of page loads.

use std::fmt::Write as _;

use report::{CsvText, TableColumn, TextTable, dash};

use super::{outcome, seconds, seconds_field, size, state};
use crate::page::PageReport;

pub(super) fn text(report: &PageReport) -> String {
    let mut table = TextTable::new([
        TableColumn::right("object"),
        TableColumn::right("conn"),
        TableColumn::right("size").at_least(10),
        TableColumn::right("start").at_least(9),
        TableColumn::right("first").at_least(9),
        TableColumn::right("time").at_least(9),
        TableColumn::left("outcome"),
    ]);
    for object in &report.objects {
        table.row([
            object.object.to_string(),
            dash(object.connection),
            size(object.bytes),
            seconds(object.start),
            seconds(object.first_byte),
            seconds(object.time),
            outcome(&object.outcome),
        ]);
    }
    let complete = report.objects.iter().filter(|object| object.outcome.is_complete()).count();
    let all = report.objects.len();
    let total = seconds(Some(report.total));
    let mut text = format!("{table}{complete} of {all} objects complete; page load time {total}");
    if let Some(times) = report.object_seconds {
        let median = times.median;
        let mean = times.mean;
        let max = times.max;
        let _ = write!(text, "; objects: median {median:.3} s, mean {mean:.3} s, max {max:.3} s");
    }
    text + "\n"
}

pub(super) const COLUMNS: [&str; 8] = [
    "run",
    "object",
    "connection",
    "bytes",
    "state",
    "start_seconds",
    "first_byte_seconds",
    "seconds",
];

/// Adds a line for each object.
pub(super) fn csv(csv: &mut CsvText, run: u32, report: &PageReport) {
    for object in &report.objects {
        csv.row([
            Some(run.to_string()),
            Some(object.object.to_string()),
            object.connection.map(|connection| connection.to_string()),
            Some(object.bytes.to_string()),
            Some(state(&object.outcome).to_owned()),
            seconds_field(object.start),
            seconds_field(object.first_byte),
            seconds_field(object.time),
        ]);
    }
}
