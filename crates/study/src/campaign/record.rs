//! The result and the timing that are kept of a cell.

use serde::{Deserialize, Serialize};
use sim::MetricValue;

use super::{BackEndName, CaseHash, Cell, CellName, ProgramId};

/// A result and the times it took, as one line of JSON: the output of a process that does not write
/// to the store itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// The result, which is the same wherever and whenever the cell runs.
    pub result: CellResult,
    /// The times, which differ from run to run.
    pub timing: CellTiming,
}

/// The result of a cell. It depends on nothing but the cell, its case and the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// Name of the cell.
    pub cell: CellName,
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the case.
    pub case: String,
    /// Seed of the cell.
    pub seed: u64,
    /// The back end that it ran on.
    pub on: BackEndName,
    /// Version of skyhop that ran it.
    pub skyhop: String,
    /// The program that ran it.
    pub binary: ProgramId,
    /// Hash of the case's content.
    pub content: CaseHash,
    /// The figures, in the back end's order.
    #[serde(with = "figures")]
    pub metrics: Vec<MetricValue>,
}

/// The time that a cell took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CellTiming {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the case.
    pub case: String,
    /// The back end that it ran on.
    pub on: BackEndName,
    /// Seconds from start to end.
    pub wall_s: f64,
    /// Processor seconds of the thread that ran the cell; not those of other processes or threads
    /// that a back end starts.
    pub cpu_s: f64,
}

impl CellRecord {
    /// Returns the record as a line of JSON.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("records are plain data") + "\n"
    }
}

impl CellResult {
    /// Returns the cell that this is the result of.
    pub fn cell(&self) -> Cell {
        let Self { scenario, case, seed, on, .. } = self;
        Cell { scenario: scenario.clone(), case: case.clone(), seed: *seed, on: *on }
    }

    /// Returns true if the name is the one that follows from the other fields.
    pub fn is_named_right(&self) -> bool {
        self.cell().name(&self.content, &self.binary) == self.cell
    }
}

/// Metrics in JSON, which has no infinity and no NaN: those are texts.
mod figures {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use sim::MetricValue;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Figure {
        of: String,
        metric: String,
        value: Number,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged, expecting = "expected a number, \"NaN\", \"inf\" or \"-inf\"")]
    enum Number {
        Finite(f64),
        Other(String),
    }

    pub(super) fn serialize<S: Serializer>(
        metrics: &[MetricValue],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(metrics.iter().map(|MetricValue { of, name, value }| Figure {
            of: of.clone(),
            metric: name.to_string(),
            value: match value.is_finite() {
                true => Number::Finite(*value),
                false => Number::Other(value.to_string()),
            },
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<MetricValue>, D::Error> {
        let read = |Figure { of, metric, value }| {
            let value = match value {
                Number::Finite(value) => value,
                Number::Other(text) => match text.as_str() {
                    // Only what `serialize` writes: `parse` alone would accept finite numbers in quotes.
                    "NaN" | "inf" | "-inf" => text.parse().map_err(D::Error::custom)?,
                    _ => return Err(D::Error::custom(format!("{text:?} is not a number"))),
                },
            };
            Ok(MetricValue { of, name: metric.into(), value })
        };
        Vec::<Figure>::deserialize(deserializer)?.into_iter().map(read).collect()
    }
}
