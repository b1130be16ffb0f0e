//! Published values, which stand in files of their own beside scenarios
//! (`NAME.published.toml`), each with the table or figure that it comes from.

use serde::Deserialize;
use thiserror::Error;

use crate::metric::Metric;

/// What is published of what a scenario simulates.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The publication.
    pub source: String,
    /// Numbers.
    #[serde(default)]
    pub value: Vec<Value>,
    /// Statements that compare.
    #[serde(default)]
    pub claim: Vec<Claim>,
}

/// A number.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The scenario's case; empty if it has only one.
    #[serde(default)]
    pub case: String,
    /// Whose figure: a flow, `forward`, `return`.
    pub of: String,
    /// Which figure.
    pub metric: String,
    /// The number, in the figure's unit.
    pub value: f64,
    /// The table, figure or section.
    #[serde(rename = "where")]
    pub place: String,
    /// What must be known to compare.
    #[serde(default)]
    pub note: String,
}

/// That one figure is a multiple of another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The statement in words.
    pub says: String,
    /// Whose figure.
    pub of: String,
    /// Which figure.
    pub metric: String,
    /// The case whose figure is divided,
    pub case: String,
    /// and the one by whose it is.
    pub by: String,
    /// What the quotient is at least,
    pub least: Option<f64>,
    /// and at most.
    pub most: Option<f64>,
    /// The table, figure or section.
    #[serde(rename = "where")]
    pub place: String,
}

/// A text that is no list of published values.
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
    /// Reads a file's text; `origin` is its name in errors.
    ///
    /// # Errors
    /// When it is not TOML or has other keys.
    pub fn parse(origin: &str, text: &str) -> Result<Self, PublishedError> {
        toml::from_str(text).map_err(|error| PublishedError {
            origin: origin.to_owned(),
            message: error.to_string().trim_end().replace('\n', " "),
        })
    }
}

/// The median over runs of one figure; `None` if no run has it.
pub fn figure(runs: &[&[Metric]], of: &str, name: &str) -> Option<f64> {
    let find = |metrics: &&[Metric]| {
        metrics.iter().find(|metric| metric.of == of && metric.name == name).map(|it| it.value)
    };
    stats::median(&runs.iter().filter_map(find).collect::<Vec<_>>())
}
