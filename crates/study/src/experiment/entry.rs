//! The result of one measurement.

use std::time::Duration;

use meter::{BulkReport, FlowOutcome, PageReport, RrReport};
use serde::Serialize;

use super::figures::{LinkLimit, TaskFigures};
use crate::plan::{Task, TrafficPath};

/// Minimum RTT at which the connect time shows which host answered: a busy machine may add as much.
const TELLING_RTT: Duration = Duration::from_millis(200);

/// The result of one measurement.
#[derive(Debug, Clone, Serialize)]
pub struct MeasurementEntry {
    /// Number of the round, from 0.
    pub round: u32,
    /// The task that was measured.
    pub task: Task,
    /// Path of the traffic: through the pair or as plain TCP.
    pub way: TrafficPath,
    /// The figures; `None` if the measurement failed.
    pub figures: Option<TaskFigures>,
    /// Reason for the failure, in one line.
    pub failure: Option<String>,
}

/// Everything recorded about one measurement.
#[derive(Debug, Clone, Serialize)]
pub struct MeasurementRecord {
    /// The result, as shown in the tables.
    #[serde(flatten)]
    pub entry: MeasurementEntry,
    /// Seed of the link's loss model.
    pub seed: u64,
    /// Progress over time: seconds from the start, and the bytes, objects or replies received.
    pub trail: Trail,
    /// Response time of each object or reply, in seconds; empty for flows.
    pub response_seconds: Vec<f64>,
    /// 99th percentile of how late packets left the lab's links, in seconds; `None` in virtual
    /// time.
    pub lateness_seconds: Option<f64>,
    /// The meter's report; `None` if a gateway failed.
    pub report: Option<TaskReport>,
}

/// Progress samples of one measurement: seconds since its start, and the count at that time.
pub type Trail = Vec<(f64, u64)>;

/// The raw report behind an entry.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum TaskReport {
    /// The report on a download or upload.
    Bulk(BulkReport),
    /// The report on a page load.
    Page(PageReport),
    /// The report on requests and replies.
    Rr(RrReport),
}

impl TaskReport {
    /// Computes the figures, given the limit of the link in the direction of the payload.
    pub fn figures(&self, task: Task, limit: &LinkLimit) -> TaskFigures {
        let figures = |done, seconds: Duration, complete| {
            let figures = TaskFigures::new(task, done, seconds.as_secs_f64(), limit);
            // All bytes may have arrived although the connection did not end properly.
            TaskFigures { complete: figures.complete && complete, ..figures }
        };
        match self {
            Self::Bulk(report) => {
                let first_byte = report.flows.iter().map(|flow| flow.first_byte);
                let first_byte = first_byte.collect::<Option<Vec<_>>>();
                // Of several flows, the one that waited longest for its first byte.
                let latest = first_byte.and_then(|times| times.into_iter().max());
                TaskFigures {
                    first_byte_seconds: latest.map(|time| time.as_secs_f64()),
                    ..figures(report.moved_bytes, report.total, report.is_complete())
                }
            }
            Self::Page(report) => {
                let done =
                    report.objects.iter().filter(|object| object.outcome.is_complete()).count();
                let figures = figures(done as u64, report.total, report.is_complete());
                figures.with_responses(&self.response_seconds())
            }
            Self::Rr(report) => {
                let figures = figures(report.answered(), report.total, report.is_complete());
                figures.with_responses(&self.response_seconds())
            }
        }
    }

    /// Returns the response time of each object or reply, in seconds.
    pub fn response_seconds(&self) -> Vec<f64> {
        let times: Vec<Duration> = match self {
            Self::Bulk(_) => Vec::new(),
            Self::Page(report) => {
                let complete = report.objects.iter().filter(|object| object.outcome.is_complete());
                complete.filter_map(|object| object.time).collect()
            }
            Self::Rr(report) => {
                let responses =
                    report.connections.iter().flat_map(|connection| &connection.responses);
                responses.map(|response| response.time).collect()
            }
        };
        times.iter().map(Duration::as_secs_f64).collect()
    }

    /// Returns the reason why there are no figures, or why they cannot be trusted.
    pub fn failure(&self, way: &TrafficPath, rtt: Duration) -> Option<String> {
        let failure = self.outcomes().into_iter().find_map(failure_text);
        failure.or_else(|| (*way == TrafficPath::Pair).then(|| self.bypass_failure(rtt)).flatten())
    }

    /// Returns the failure if the traffic bypassed the pair, which answers a client's SYN locally.
    /// A connect that took a full round trip to the server did not go through the pair, so its
    /// figures do not describe the pair.
    fn bypass_failure(&self, rtt: Duration) -> Option<String> {
        if rtt < TELLING_RTT {
            return None;
        }
        // The slowest counts: a single connection beside the pair falsifies the figures.
        let slowest = self.connects(rtt).into_iter().max()?;
        (slowest >= rtt)
            .then(|| format!("bypassed the pair: connecting took {} ms", slowest.as_millis()))
    }

    fn outcomes(&self) -> Vec<&FlowOutcome> {
        match self {
            Self::Bulk(report) => report.flows.iter().map(|flow| &flow.outcome).collect(),
            Self::Page(report) => report.objects.iter().map(|object| &object.outcome).collect(),
            Self::Rr(report) => {
                report.connections.iter().map(|connection| &connection.outcome).collect()
            }
        }
    }

    /// Returns all connect times. A page load reports them only together with the round trip to the
    /// first byte, which a loss may have prolonged, so only the shortest of the first objects
    /// counts.
    fn connects(&self, rtt: Duration) -> Vec<Duration> {
        match self {
            Self::Bulk(report) => report.flows.iter().filter_map(|flow| flow.connect).collect(),
            Self::Page(report) => {
                let first = report.objects.iter().take(report.connections as usize);
                let shortest = first.filter_map(|object| object.first_byte).min();
                shortest.map(|time| time.saturating_sub(rtt)).into_iter().collect()
            }
            Self::Rr(report) => {
                report.connections.iter().filter_map(|connection| connection.connect).collect()
            }
        }
    }
}

/// Describes a failure; `None` for success and for a mere time-out.
fn failure_text(outcome: &FlowOutcome) -> Option<String> {
    match outcome {
        FlowOutcome::Complete | FlowOutcome::Unfinished => None,
        FlowOutcome::Truncated => Some("truncated".to_owned()),
        FlowOutcome::Corrupt { offset } => Some(format!("corrupt from byte {offset}")),
        FlowOutcome::Failed { error } => Some(error.clone()),
        other => Some(format!("{other:?}")),
    }
}
