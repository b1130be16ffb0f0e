//! Reports as tables for people and as CSV for programs.

mod bulk;
mod compare;
mod page;
mod rr;
mod swarm;
mod udp;

use core::fmt;
use std::time::Duration;

use report::{CsvText, dash};
use units::BitRate;

use super::run_report::MeterReport;
use crate::flow::outcome::FlowOutcome;
use crate::protocol::direction::Direction;
use crate::swarm::SwarmReport;

impl fmt::Display for MeterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Bulk(report) => bulk::text(report),
            Self::Rr(report) => rr::text(report),
            Self::Page(report) => page::text(report),
            Self::Udp(report) => udp::text(report),
        })
    }
}

impl fmt::Display for SwarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&swarm::text(self))
    }
}

impl MeterReport {
    /// Returns CSV: a line for each flow, request, object or direction of this run. Run 1 begins
    /// with the names of the columns.
    pub fn csv(&self, run: u32) -> String {
        let names: &[&str] = match self {
            Self::Bulk(_) => &bulk::COLUMNS,
            Self::Rr(_) => &rr::COLUMNS,
            Self::Page(_) => &page::COLUMNS,
            Self::Udp(_) => &udp::COLUMNS,
        };
        let mut csv = if run == 1 { CsvText::new(names) } else { CsvText::continued(names.len()) };
        match self {
            Self::Bulk(report) => bulk::csv(&mut csv, run, report),
            Self::Rr(report) => rr::csv(&mut csv, run, report),
            Self::Page(report) => page::csv(&mut csv, run, report),
            Self::Udp(report) => udp::csv(&mut csv, run, report),
        }
        csv.into_text()
    }
}

pub(crate) fn seconds(time: Option<Duration>) -> String {
    dash(time.map(|time| format!("{:.3} s", time.as_secs_f64())))
}

pub(crate) fn milliseconds(time: Option<Duration>) -> String {
    dash(time.map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3)))
}

pub(crate) fn rate(rate: Option<BitRate>) -> String {
    dash(rate.map(|rate| format!("{:.2} Mbit/s", rate.bits_per_second() as f64 / 1e6)))
}

pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.2} kB", bytes as f64 / 1e3),
        _ => format!("{:.2} MB", bytes as f64 / 1e6),
    }
}

fn direction_label(direction: Direction) -> &'static str {
    match direction {
        Direction::Download => "down",
        Direction::Upload => "up",
    }
}

/// An outcome in words, for the tables.
fn outcome(outcome: &FlowOutcome) -> String {
    match outcome {
        FlowOutcome::Complete => "complete, verified".to_owned(),
        FlowOutcome::Unfinished => "unfinished at the time limit".to_owned(),
        FlowOutcome::Interrupted => "interrupted".to_owned(),
        FlowOutcome::Truncated => "truncated".to_owned(),
        FlowOutcome::Corrupt { offset } => format!("corrupt from byte {offset}"),
        FlowOutcome::Failed { error } => format!("failed: {error}"),
    }
}

/// The state of an outcome for CSV, the same word as in the JSON.
fn state(outcome: &FlowOutcome) -> &'static str {
    match outcome {
        FlowOutcome::Complete => "complete",
        FlowOutcome::Unfinished => "unfinished",
        FlowOutcome::Interrupted => "interrupted",
        FlowOutcome::Truncated => "truncated",
        FlowOutcome::Corrupt { .. } => "corrupt",
        FlowOutcome::Failed { .. } => "failed",
    }
}

/// Seconds as a CSV field.
pub(crate) fn seconds_field(time: Option<Duration>) -> Option<String> {
    time.map(|time| time.as_secs_f64().to_string())
}

#[cfg(test)]
mod tests;
