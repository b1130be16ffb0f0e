//! Settings of a file that hold for all of its cases: back ends, replications and metrics.

mod metrics;
pub(super) mod raw;
mod replications;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;

use super::ScenarioCase;
use config::FileError;
use config::file::document::TomlDocument;
use config::file::place::{KeyContext, quoted};
use raw::{RawMetric, RawReplications};

pub use metrics::{METRICS, MetricName};
pub use replications::{Replications, Statistic, StopRule};

/// Keys that a case cannot change.
pub(super) const KEYS: [&str; 6] =
    ["back-ends", "replications", "result", "factor", "exclude", "case"];

/// A way to run a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum BackEnd {
    /// The simulator, in virtual time.
    Sim,
    /// Real kernels and the real gateways, in real time.
    Lab,
}

/// Back ends, replications and metrics of a file.
#[derive(Debug)]
pub(super) struct StudySettings {
    pub(super) back_ends: Vec<BackEnd>,
    pub(super) replications: Replications,
    pub(super) results: Vec<MetricName>,
}

/// The part of a file with these settings.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawStudy {
    back_ends: Option<Vec<BackEnd>>,
    replications: Option<RawReplications>,
    #[serde(default)]
    result: Vec<RawMetric>,
}

impl StudySettings {
    pub(super) fn read(
        document: &TomlDocument<'_>,
        cases: &[ScenarioCase],
    ) -> Result<Self, FileError> {
        // The cases were read first, and have refused unknown keys.
        let raw: RawStudy = document.read()?;
        let place = KeyContext::file(document);
        let back_ends = raw.back_ends.unwrap_or_else(|| vec![BackEnd::Sim, BackEnd::Lab]);
        let twice = (1..back_ends.len()).any(|at| back_ends[..at].contains(&back_ends[at]));
        let good = !back_ends.is_empty() && !twice;
        let expected = "\"sim\", \"lab\" or both, each once";
        place.check(good, "back-ends", format!("a list of {}", back_ends.len()), expected)?;
        let replications = match &raw.replications {
            Some(raw) => Replications::read(&place.within("replications"), raw, cases)?,
            None => Replications::default(),
        };
        let mut results = Vec::new();
        for (number, RawMetric { of, metric }) in raw.result.iter().enumerate() {
            let place = place.within(format!("result.{number}"));
            let name = MetricName::read(&place, of, metric, cases)?;
            let expected = "a metric that is not in the list already";
            place.check(!results.contains(&name), "metric", quoted(metric), expected)?;
            results.push(name);
        }
        Ok(Self { back_ends, replications, results })
    }
}
