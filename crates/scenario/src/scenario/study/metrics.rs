//! Names and units of metrics.

use crate::scenario::ScenarioCase;
use config::FileError;
use config::file::place::{KeyContext, quoted};

/// Names and units of the metrics of a run; the unit of a number or a share is empty. All back ends
/// use these names.
pub const METRICS: [(&str, &str); 31] = [
    ("bytes", "B"),
    ("goodput-mbit/s", "Mbit/s"),
    ("fairness", ""),
    ("done", ""),
    ("time-mean-s", "s"),
    ("time-median-s", "s"),
    ("time-p95-s", "s"),
    ("time-max-s", "s"),
    ("broken", ""),
    ("connections", ""),
    ("lost-share", ""),
    ("delay-mean-s", "s"),
    ("delay-p99-s", "s"),
    ("delay-max-s", "s"),
    ("outstanding-mean-bytes", "B"),
    ("outstanding-max-bytes", "B"),
    ("first-loss-s", "s"),
    ("first-loss-bytes", "B"),
    ("first-recovery-s", "s"),
    ("srtt-s", "s"),
    ("timeouts", ""),
    ("undone", ""),
    ("data-time-median-s", "s"),
    ("utilisation", ""),
    ("delivered-packets", "packets"),
    ("dropped-packets", "packets"),
    ("lost-packets", "packets"),
    ("peak-queue-packets", "packets"),
    ("datagrams", ""),
    ("link-bytes", "B"),
    ("tunnel-bytes", "B"),
];

/// Subjects of metrics besides flows.
const PARTS: [&str; 4] = ["forward", "return", "shaper", "slacp"];

/// A metric together with its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricName {
    /// The subject: a flow's name, `forward`, `return`, `shaper` or `slacp`.
    pub of: String,
    /// One of [`METRICS`].
    pub metric: String,
}

impl MetricName {
    /// Returns the unit of the metric; empty for numbers and shares.
    pub fn unit(&self) -> &'static str {
        METRICS.iter().find(|(name, _)| *name == self.metric).map_or("", |(_, unit)| unit)
    }

    /// Checks that the metric exists, and that a case has the subject.
    pub(super) fn read(
        place: &KeyContext<'_>,
        of: &str,
        metric: &str,
        cases: &[ScenarioCase],
    ) -> Result<Self, FileError> {
        let known = METRICS.iter().any(|(name, _)| *name == metric);
        let names: Vec<_> = METRICS.iter().map(|(name, _)| *name).collect();
        place.check(known, "metric", quoted(metric), format!("one of {}", names.join(", ")))?;
        // One case with this flow is enough, because cases may differ in their flows.
        let mut flows = cases.iter().flat_map(|case| &case.flows).map(|flow| &flow.name[..]);
        let known = PARTS.contains(&of) || flows.any(|flow| flow == of);
        let expected = format!("the name of a flow, or one of {}", PARTS.join(", "));
        place.check(known, "of", quoted(of), expected)?;
        Ok(Self { of: of.to_owned(), metric: metric.to_owned() })
    }
}
