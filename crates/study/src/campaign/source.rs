//! The scenarios of a campaign.

use std::path::{Path, PathBuf};

use config::FileError;
use scenario::{
    BackEnd, MetricName, Published, Replications, Scenario, ScenarioCase, ShippedScenario,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A scenario, and the file or the program that it is from.
#[derive(Debug)]
pub struct ScenarioSource {
    /// Name of the scenario: that of its file without `.toml`.
    pub name: String,
    /// The origin, from which it can be read again.
    pub origin: ScenarioOrigin,
    /// The cases of the scenario.
    pub cases: Vec<ScenarioCase>,
    /// The number of runs that it asks for, or its stop rule.
    pub replications: Replications,
    /// The back ends that it is meant for.
    pub back_ends: Vec<BackEnd>,
    /// The metrics that its tables have; all if empty.
    pub results: Vec<MetricName>,
}

/// The origin of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum ScenarioOrigin {
    /// The scenario is part of the program.
    Shipped,
    /// A file: its path, and its text when it was read.
    File {
        /// The path as given; paths in the text are relative to it.
        path: PathBuf,
        /// The contents of the file.
        text: String,
    },
}

/// The reason why a scenario cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The program has no scenario of this name.
    #[error(
        "no scenario {name:?}: expected {known}, or the path of a file, which contains / or ends \
         in .toml"
    )]
    Unknown {
        /// The name, as given.
        name: String,
        /// The names of the scenarios that it has.
        known: String,
    },
    /// The file is not a valid scenario.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ScenarioSource {
    /// Reads the scenario of that name, or in the file at that path.
    ///
    /// # Errors
    /// If there is none, or it is not valid.
    pub fn named(text: &str) -> Result<Self, SourceError> {
        if !text.contains('/') && !text.ends_with(".toml") {
            return Self::from_origin(text, ScenarioOrigin::Shipped);
        }
        let path = Path::new(text);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        // The text goes into plans, for machines that do not have the file.
        let origin = ScenarioOrigin::File { path: path.to_owned(), text: Scenario::text_at(path)? };
        Self::from_origin(&name, origin)
    }

    /// Reads the scenario called `name` again.
    ///
    /// # Errors
    /// If there is none, or it is not valid.
    pub fn from_origin(name: &str, origin: ScenarioOrigin) -> Result<Self, SourceError> {
        let Scenario { cases, replications, back_ends, results } = match &origin {
            ScenarioOrigin::Shipped => shipped(name)?.scenario()?,
            ScenarioOrigin::File { path, text } => Scenario::parse_at(path, text)?,
        };
        let name = name.to_owned();
        Ok(Self { name, origin, cases, replications, back_ends, results })
    }

    /// Reads all scenarios that are part of the program.
    ///
    /// # Errors
    /// If one is not valid, which tests exclude.
    pub fn all_shipped() -> Result<Vec<Self>, SourceError> {
        let read =
            |shipped: &ShippedScenario| Self::from_origin(shipped.name, ScenarioOrigin::Shipped);
        ShippedScenario::all().iter().map(read).collect()
    }

    /// Returns the seeds with which each case is run: 1 to `count` if given, else those of the
    /// file; of a stop rule, those of its first round.
    pub fn seeds(&self, count: Option<u32>) -> Vec<u64> {
        let replications = match (&self.replications, count) {
            (_, Some(count)) => &Replications::from_first(1, count),
            (Replications::Until(rule), None) => &Replications::from_first(rule.first, rule.least),
            (seeds @ Replications::Seeds(_), None) => seeds,
        };
        replications.seeds()
    }

    /// Reads the published values to compare with: those beside the scenario, if there are any.
    ///
    /// # Errors
    /// If the published values are not valid.
    pub fn published(&self) -> Result<Option<Published>, SourceError> {
        match &self.origin {
            ScenarioOrigin::Shipped => Ok(shipped(&self.name)?.published()?),
            ScenarioOrigin::File { path, .. } => {
                let path = path.with_extension("published.toml");
                Ok(if path.exists() { Some(Published::load(&path)?) } else { None })
            }
        }
    }

    /// Returns the name of its files in tables: the path as given, or the name.
    pub fn path(&self) -> PathBuf {
        match &self.origin {
            ScenarioOrigin::Shipped => PathBuf::from(&self.name),
            ScenarioOrigin::File { path, .. } => path.clone(),
        }
    }
}

fn shipped(name: &str) -> Result<&'static ShippedScenario, SourceError> {
    ShippedScenario::find(name).ok_or_else(|| {
        let known: Vec<_> = ShippedScenario::all().iter().map(|shipped| shipped.name).collect();
        SourceError::Unknown { name: name.to_owned(), known: known.join(", ") }
    })
}
