//! One measurement of the demo.

use std::time::Duration;

use meter::{BulkReport, Outcome, RrReport};
use serde::Serialize;

use super::figures::{Limit, Requests, Transfer};
use super::plan::{Task, Way};

/// Below this RTT the connect time does not tell who answered.
const TELLING_RTT: Duration = Duration::from_millis(20);

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

/// The figures of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Figures {
    /// Of a download or an upload.
    Transfer(Transfer),
    /// Of requests and replies.
    Requests(Requests),
}

impl Figures {
    /// Whether everything arrived within the time limit.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Transfer(transfer) => transfer.complete,
            Self::Requests(requests) => requests.complete,
        }
    }

    /// From before connect until the end, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        match self {
            Self::Transfer(transfer) => transfer.seconds,
            Self::Requests(requests) => requests.seconds,
        }
    }
}

/// The raw report behind an entry.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Report {
    /// Of a download or an upload.
    Bulk(BulkReport),
    /// Of requests and replies.
    Rr(RrReport),
}

impl Report {
    /// The figures, with the limit of the link in the direction of the payload.
    pub(crate) fn figures(&self, limit: &Limit) -> Option<Figures> {
        match self {
            Self::Bulk(report) => Transfer::of(report, limit).map(Figures::Transfer),
            Self::Rr(report) => Requests::of(report).map(Figures::Requests),
        }
    }

    /// Why there are no figures, or none to be trusted.
    pub(crate) fn failure(&self, way: &Way, rtt: Duration) -> Option<String> {
        let failure = self.outcomes().find_map(words);
        failure.or_else(|| (*way == Way::Pair).then(|| self.not_carried(rtt)).flatten())
    }

    /// The pair answers a client's SYN from nearby. A connect that took as long
    /// as the way to the server and back was not carried by the pair, and its
    /// figures are not those of the pair.
    fn not_carried(&self, rtt: Duration) -> Option<String> {
        if rtt < TELLING_RTT {
            return None;
        }
        let slowest = self.connects().max()?;
        (slowest >= rtt)
            .then(|| format!("not carried by the pair: connecting took {} ms", slowest.as_millis()))
    }

    fn outcomes(&self) -> Box<dyn Iterator<Item = &Outcome> + '_> {
        match self {
            Self::Bulk(report) => Box::new(report.flows.iter().map(|flow| &flow.outcome)),
            Self::Rr(report) => Box::new(report.connections.iter().map(|c| &c.outcome)),
        }
    }

    fn connects(&self) -> Box<dyn Iterator<Item = Duration> + '_> {
        match self {
            Self::Bulk(report) => Box::new(report.flows.iter().filter_map(|flow| flow.connect)),
            Self::Rr(report) => Box::new(report.connections.iter().filter_map(|c| c.connect)),
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
