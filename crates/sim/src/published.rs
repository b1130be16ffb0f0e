//! Published values to compare with. They are in separate files beside scenarios
//! (`NAME.published.toml`), each with the table or figure it comes from.

use serde::Deserialize;
use thiserror::Error;

use crate::metric::Metric;

/// Published values for a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The publication.
    pub source: String,
    /// Single values.
    #[serde(default)]
    pub value: Vec<Value>,
    /// Comparisons.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A published value.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The scenario's case; empty if it has only one.
    #[serde(default)]
    pub case: String,
    /// The subject: a flow, `forward`, `return`.
    pub of: String,
    /// The metric.
    pub metric: String,
    /// The value, in the metric's unit.
    pub value: f64,
    /// The table, figure or section it comes from.
    #[serde(rename = "where")]
    pub place: String,
    /// What the reader must know to compare.
    #[serde(default)]
    pub note: String,
}

/// A published ratio of two values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The statement in words.
    pub says: String,
    /// The subject.
    pub of: String,
    /// The metric.
    pub metric: String,
    /// The case in the numerator,
    pub case: String,
    /// and the case in the denominator.
    pub by: String,
    /// Minimum of the ratio,
    pub least: Option<f64>,
    /// and maximum.
    pub most: Option<f64>,
    /// The table, figure or section it comes from.
    #[serde(rename = "where")]
    pub place: String,
}

/// A text that is not a valid list of published values.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{origin}: {message}")]
#[non_exhaustive]
pub struct PublishedError {
    /// The file.
    pub origin: String,
    /// What is wrong with it.
    pub message: String,
}

impl Published {
    /// Parses a file; `origin` is its name in errors.
    ///
    /// # Errors
    /// If it is not valid TOML or has unknown keys.
    pub fn parse(origin: &str, text: &str) -> Result<Self, PublishedError> {
        toml::from_str(text).map_err(|error| PublishedError {
            origin: origin.to_owned(),
            message: error.to_string().trim_end().replace('\n', " "),
        })
    }
}

/// The median of a metric over runs; `None` if no run has it.
pub fn figure(runs: &[&[Metric]], of: &str, name: &str) -> Option<f64> {
    let find = |metrics: &&[Metric]| {
        metrics.iter().find(|metric| metric.of == of && metric.name == name).map(|it| it.value)
    };
    stats::median(&runs.iter().filter_map(find).collect::<Vec<_>>())
}
