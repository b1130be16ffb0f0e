//! Replications and metrics as written in a scenario file.

use schemars::JsonSchema;
use serde::Deserialize;
use units::Probability;

use super::Statistic;
use config::file::text::Text;

/// A metric of a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Metric")]
pub(in crate::scenario) struct RawMetric {
    /// The subject: a flow, `forward`, `return`, `shaper` or `slacp`.
    pub(in crate::scenario) of: String,
    /// The name of the metric, which ends with its unit.
    #[schemars(extend("examples" = ["goodput-mbit/s", "time-median-s"]))]
    pub(in crate::scenario) metric: String,
}

/// Number of runs of each case: with given seeds, or until a metric is precise enough.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Replications")]
pub(in crate::scenario) struct RawReplications {
    /// Number of seeds, 1 to 10,000, or a list of them. Not with `until`.
    #[schemars(extend("default" = 1, "examples" = [20, [3, 7]]))]
    pub(in crate::scenario) seeds: Option<RawSeeds>,
    /// The first seed, from which the others count up.
    #[schemars(extend("default" = 1))]
    pub(in crate::scenario) first: Option<u64>,
    /// Stops when the confidence interval of a metric is narrow enough.
    pub(in crate::scenario) until: Option<RawUntil>,
}

/// Seeds as a number, or one by one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of seeds, or a list of seeds")]
#[schemars(inline)]
pub(in crate::scenario) enum RawSeeds {
    Number(u32),
    List(Vec<u64>),
}

/// The precision of a metric at which a case has been run often enough.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Until")]
pub(in crate::scenario) struct RawUntil {
    /// The subject of the metric: a flow, `forward`, `return`, `shaper` or `slacp`.
    pub(in crate::scenario) of: String,
    /// The name of the metric.
    #[schemars(extend("examples" = ["goodput-mbit/s"]))]
    pub(in crate::scenario) metric: String,
    /// Greatest distance of the interval's ends from the statistic, as a part of it.
    #[schemars(extend("examples" = ["5 %"]))]
    pub(in crate::scenario) within: Text<Probability>,
    /// The statistic whose interval decides.
    #[serde(default)]
    pub(in crate::scenario) statistic: Statistic,
    /// The level of confidence.
    #[schemars(extend("default" = "95 %"))]
    pub(in crate::scenario) confidence: Option<Text<Probability>>,
    /// Minimum number of seeds.
    #[schemars(range(min = 2, max = 10_000), extend("default" = 10))]
    pub(in crate::scenario) least: Option<u32>,
    /// Maximum number of seeds.
    #[schemars(range(min = 2, max = 10_000), extend("default" = 200))]
    pub(in crate::scenario) most: Option<u32>,
}
