//! The scenarios of a campaign.

use std::path::{Path, PathBuf};

use scenario::{BackEnd, Case, FileError, MetricName, Published, Replications, Scenario, Shipped};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A scenario and where it comes from.
#[derive(Debug)]
pub struct Source {
    /// Its name: that of its file without `.toml`.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its cases.
    pub cases: Vec<Case>,
    /// How often it asks for them to be run.
    pub replications: Replications,
    /// What it is for.
    pub back_ends: Vec<BackEnd>,
    /// The metrics that its tables have; none: all.
    pub results: Vec<MetricName>,
}

/// Where a scenario comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Origin {
    /// It is part of the program.
    Shipped,
    /// A file: its path, and its text when it was read.
    File {
        /// To which paths in the text are relative.
        path: PathBuf,
        /// Its contents.
        text: String,
    },
}

/// Why there is no such scenario.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// None of this name is part of the program.
    #[error(
        "no scenario {name:?}: expected {known}, or the path of a file, which contains / or ends \
         in .toml"
    )]
    Unknown {
        /// The given name.
        name: String,
        /// The names of those that are.
        known: String,
    },
    /// The file is not a valid scenario.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Source {
    /// The scenario of that name, or in the file at that path.
    ///
    /// # Errors
    /// If there is none, or it is not valid.
    pub fn named(text: &str) -> Result<Self, SourceError> {
        if !text.contains('/') && !text.ends_with(".toml") {
            return Self::from_origin(text, Origin::Shipped);
        }
        let path = Path::new(text);
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let origin = Origin::File { path: path.to_owned(), text: Scenario::text_at(path)? };
        Self::from_origin(&name, origin)
    }

    /// The scenario called `name`, read again.
    ///
    /// # Errors
    /// If there is none, or it is not valid.
    pub fn from_origin(name: &str, origin: Origin) -> Result<Self, SourceError> {
        let Scenario { cases, replications, back_ends, results } = match &origin {
            Origin::Shipped => shipped(name)?.scenario()?,
            Origin::File { path, text } => Scenario::parse_at(path, text)?,
        };
        let name = name.to_owned();
        Ok(Self { name, origin, cases, replications, back_ends, results })
    }

    /// All scenarios that are part of the program.
    ///
    /// # Errors
    /// If one is not valid, which tests exclude.
    pub fn all_shipped() -> Result<Vec<Self>, SourceError> {
        let read = |shipped: &Shipped| Self::from_origin(shipped.name, Origin::Shipped);
        Shipped::all().iter().map(read).collect()
    }

    /// The seeds with which each case is run: 1 to `count` if given, else those of the file; of a stop rule, those of
    /// its first round.
    pub fn seeds(&self, count: Option<u32>) -> Vec<u64> {
        let replications = match (&self.replications, count) {
            (_, Some(count)) => &Replications::from_first(1, count),
            (Replications::Until(rule), None) => &Replications::from_first(rule.first, rule.least),
            (seeds @ Replications::Seeds(_), None) => seeds,
        };
        replications.seeds()
    }

    /// The published values to compare with: those beside it, if there are any.
    ///
    /// # Errors
    /// If they are not valid.
    pub fn published(&self) -> Result<Option<Published>, SourceError> {
        match &self.origin {
            Origin::Shipped => Ok(shipped(&self.name)?.published()?),
            Origin::File { path, .. } => {
                let path = path.with_extension("published.toml");
                Ok(if path.exists() { Some(Published::load(&path)?) } else { None })
            }
        }
    }

    /// What its files are called in tables: the path as given, or the name.
    pub fn path(&self) -> PathBuf {
        match &self.origin {
            Origin::Shipped => PathBuf::from(&self.name),
            Origin::File { path, .. } => path.clone(),
        }
    }
}

fn shipped(name: &str) -> Result<&'static Shipped, SourceError> {
    Shipped::find(name).ok_or_else(|| {
        let known: Vec<_> = Shipped::all().iter().map(|shipped| shipped.name).collect();
        SourceError::Unknown { name: name.to_owned(), known: known.join(", ") }
    })
}
