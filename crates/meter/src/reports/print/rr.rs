//! Tables and CSV of requests and replies.

use std::fmt::Write as _;

use report::{CsvText, TableColumn, TextTable};

use super::{outcome, seconds, seconds_field};
use crate::rr::RrReport;

pub(super) fn text(report: &RrReport) -> String {
    let mut table = TextTable::new([
        TableColumn::right("conn"),
        TableColumn::right("connect").at_least(9),
        TableColumn::right("total").at_least(9),
        TableColumn::right("answered").at_least(9),
        TableColumn::left("outcome"),
    ]);
    for connection in &report.connections {
        table.row([
            connection.connection.to_string(),
            seconds(connection.connect),
            seconds(Some(connection.total)),
            format!("{}/{}", connection.responses.len(), connection.asked),
            outcome(&connection.outcome),
        ]);
    }
    let total = seconds(Some(report.total));
    let mut text =
        format!("{table}{} of {} requests answered in {total}", report.answered(), report.asked());
    if let Some(times) = report.response_seconds {
        let _ = write!(
            text,
            "; response time: median {:.3} s, mean {:.3} s, p99 {:.3} s, min {:.3} s, max {:.3} s",
            times.median, times.mean, times.p99, times.min, times.max
        );
    }
    text + "\n"
}

pub(super) const COLUMNS: [&str; 4] = ["run", "connection", "index", "seconds"];

/// Adds a line for each answered request.
pub(super) fn csv(csv: &mut CsvText, run: u32, report: &RrReport) {
    for response in report.connections.iter().flat_map(|connection| &connection.responses) {
        csv.row([
            Some(run.to_string()),
            Some(response.connection.to_string()),
            Some(response.index.to_string()),
            seconds_field(Some(response.time)),
        ]);
    }
}
