//! Shows scenarios' runs beside published results.

use std::path::PathBuf;

use config::FileError;
use scenario::{Documents, Published};
use thiserror::Error;

use super::{ScenarioFile, ScenarioRun};
use crate::reproduction::{self, ReproductionEntry};
use crate::verdict::{CaseRunMetrics, NoMetric};

/// The reason why runs cannot be shown beside published results.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A result is about a metric that the runs do not have.
    #[error("{}: {cause}", path.display())]
    NoMetric {
        /// Path of the scenario's file.
        path: PathBuf,
        /// The case and the missing metric.
        cause: NoMetric,
    },
    /// The list of publications is damaged.
    #[error(transparent)]
    Documents(#[from] FileError),
}

/// Returns, for each file, a table of our values beside the published ones, and its statements with
/// verdicts. Results about cases that were not run are counted.
///
/// # Errors
/// If a published result is about a metric that its case does not have.
pub fn beside_published(
    files: &[ScenarioFile],
    published: &[Published],
    runs: &[ScenarioRun<'_>],
) -> Result<String, CompareError> {
    let documents = Documents::shipped()?;
    let entries = entries(files, published, runs)?;
    let mut text: String =
        entries.iter().map(|entry| reproduction::text(entry, &documents)).collect();
    // Each entry ends with an empty line; the text ends with a single newline.
    text.pop();
    Ok(text)
}

/// Returns the comparison as JSON: [`reproduction::json`].
///
/// # Errors
/// As for [`beside_published`].
pub fn published_json(
    files: &[ScenarioFile],
    published: &[Published],
    runs: &[ScenarioRun<'_>],
) -> Result<String, CompareError> {
    Ok(reproduction::json(&entries(files, published, runs)?))
}

fn entries<'a>(
    files: &[ScenarioFile],
    published: &'a [Published],
    runs: &[ScenarioRun<'_>],
) -> Result<Vec<ReproductionEntry<'a>>, CompareError> {
    let entry = |(index, (file, published)): (usize, (&ScenarioFile, &'a Published))| {
        let of_file = runs.iter().filter(|run| run.file == index);
        let of_file =
            CaseRunMetrics(of_file.map(|run| (&run.case.name[..], run.metrics)).collect());
        ReproductionEntry::new(file.path.display().to_string(), published, &of_file)
            .map_err(|cause| CompareError::NoMetric { path: file.path.clone(), cause })
    };
    files.iter().zip(published).enumerate().map(entry).collect()
}
