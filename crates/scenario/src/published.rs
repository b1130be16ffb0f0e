//! Published values to compare with. They are in separate files beside scenarios
//! (`NAME.published.toml`), each with the table or figure it comes from.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::document::Document;
use crate::folder::Folder;
use crate::{FileError, FileKind};

/// Published values for a scenario (docs/published.md).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop published values")]
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
#[derive(Debug, Clone, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Deserialize, JsonSchema)]
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

impl Published {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is not valid TOML, or keys are unknown or missing.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let (_, text) = Folder::Disk(Path::new("")).open(path)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Parses a file; `origin` is its name in errors.
    ///
    /// # Errors
    /// If it is not valid TOML, or keys are unknown or missing.
    pub fn parse(origin: &str, text: &str) -> Result<Self, FileError> {
        Document::parse(origin, Folder::BuiltIn, text, FileKind::Published)?.read()
    }
}
