//! One measurement of the demo.

use std::time::Duration;

use meter::{BulkReport, Outcome, PageReport, RrReport};
use serde::Serialize;

use super::figures::{Figures, Limit};
use super::plan::{Task, Way};

/// Below this RTT the connect time does not tell who answered: a busy machine
/// adds as much.
const TELLING_RTT: Duration = Duration::from_millis(200);

/// What a measurement came to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Entry {
    /// In which round, from 0.
    pub(crate) round: u32,
    /// What was measured.
    pub(crate) task: Task,
    /// How the traffic crossed the link.
    pub(crate) way: Way,
    /// The figures; none if it failed.
    pub(crate) figures: Option<Figures>,
    /// Why there are none.
    pub(crate) failure: Option<String>,
}

/// Everything that is known about one measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Record {
    /// What it came to.
    #[serde(flatten)]
    pub(crate) entry: Entry,
    /// The seed of the link's losses.
    pub(crate) seed: u64,
    /// The progress over time: seconds from the start, and bytes, objects or
    /// replies that had arrived.
    pub(crate) trail: Vec<(f64, u64)>,
    /// The time that each piece took, in seconds; nothing for flows.
    pub(crate) response_seconds: Vec<f64>,
    /// 99 % of the packets left the lab's links no later than this after their
    /// time; nothing in virtual time.
    pub(crate) lateness_seconds: Option<f64>,
    /// What the meter measured; nothing if a gateway failed.
    pub(crate) report: Option<Report>,
}

/// The raw report behind an entry.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Report {
    /// Of a download or an upload.
    Bulk(BulkReport),
    /// Of a page.
    Page(PageReport),
    /// Of requests and replies.
    Rr(RrReport),
}

impl Report {
    /// The figures, with the limit of the link in the direction of the payload.
    pub(crate) fn figures(&self, task: Task, limit: &Limit) -> Figures {
        let figures = |done, seconds: Duration, complete| {
            let figures = Figures::new(task, done, seconds.as_secs_f64(), limit);
            // All bytes may be there, and the end of the connection not.
            Figures { complete: figures.complete && complete, ..figures }
        };
        match self {
            Self::Bulk(report) => {
                let first_byte = report.flows.iter().map(|flow| flow.first_byte);
                let first_byte = first_byte.collect::<Option<Vec<_>>>();
                let latest = first_byte.and_then(|times| times.into_iter().max());
                Figures {
                    first_byte_seconds: latest.map(|time| time.as_secs_f64()),
                    ..figures(report.moved_bytes, report.total, report.is_complete())
                }
            }
            Self::Page(report) => {
                let done = report.objects.iter().filter(|it| it.outcome.is_complete()).count();
                let figures = figures(done as u64, report.total, report.is_complete());
                figures.with_responses(&self.response_seconds())
            }
            Self::Rr(report) => {
                let figures = figures(report.answered(), report.total, report.is_complete());
                figures.with_responses(&self.response_seconds())
            }
        }
    }

    /// The time of each piece, in seconds.
    pub(crate) fn response_seconds(&self) -> Vec<f64> {
        let times: Vec<Duration> = match self {
            Self::Bulk(_) => Vec::new(),
            Self::Page(report) => {
                let complete = report.objects.iter().filter(|it| it.outcome.is_complete());
                complete.filter_map(|it| it.time).collect()
            }
            Self::Rr(report) => {
                let responses = report.connections.iter().flat_map(|it| &it.responses);
                responses.map(|it| it.time).collect()
            }
        };
        times.iter().map(Duration::as_secs_f64).collect()
    }

    /// Why there are no figures, or none to be trusted.
    pub(crate) fn failure(&self, way: &Way, rtt: Duration) -> Option<String> {
        let failure = self.outcomes().into_iter().find_map(words);
        failure.or_else(|| (*way == Way::Pair).then(|| self.not_carried(rtt)).flatten())
    }

    /// The pair answers a client's SYN from nearby. A connect that took as long
    /// as the way to the server and back was not carried by the pair, and its
    /// figures are not those of the pair.
    fn not_carried(&self, rtt: Duration) -> Option<String> {
        if rtt < TELLING_RTT {
            return None;
        }
        let slowest = self.connects(rtt).into_iter().max()?;
        (slowest >= rtt)
            .then(|| format!("not carried by the pair: connecting took {} ms", slowest.as_millis()))
    }

    fn outcomes(&self) -> Vec<&Outcome> {
        match self {
            Self::Bulk(report) => report.flows.iter().map(|flow| &flow.outcome).collect(),
            Self::Page(report) => report.objects.iter().map(|it| &it.outcome).collect(),
            Self::Rr(report) => report.connections.iter().map(|it| &it.outcome).collect(),
        }
    }

    /// The times of all connects. A page tells them only together with the
    /// round trip to the first byte, and a loss may have prolonged that: the
    /// shortest of the first objects counts.
    fn connects(&self, rtt: Duration) -> Vec<Duration> {
        match self {
            Self::Bulk(report) => report.flows.iter().filter_map(|flow| flow.connect).collect(),
            Self::Page(report) => {
                let first = report.objects.iter().take(report.connections as usize);
                let shortest = first.filter_map(|it| it.first_byte).min();
                shortest.map(|it| it.saturating_sub(rtt)).into_iter().collect()
            }
            Self::Rr(report) => report.connections.iter().filter_map(|it| it.connect).collect(),
        }
    }
}

/// What went wrong, unless nothing did or only time ran out.
fn words(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Complete | Outcome::Unfinished => None,
        Outcome::Truncated => Some("truncated".to_owned()),
        Outcome::Corrupt { offset } => Some(format!("corrupt from byte {offset}")),
        Outcome::Failed { error } => Some(error.clone()),
        other => Some(format!("{other:?}")),
    }
}
