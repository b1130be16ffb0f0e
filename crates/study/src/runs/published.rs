//! Shows scenarios' runs beside published results.

use std::path::PathBuf;

use scenario::{Documents, FileError, Published};
use thiserror::Error;

use super::{File, Run};
use crate::reproduction::{self, Entry};
use crate::verdict::{NoMetric, Runs};

/// Why runs cannot be shown beside published results.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A result is about a metric that the runs do not have.
    #[error("{}: {cause}", path.display())]
    NoMetric {
        /// The scenario.
        path: PathBuf,
        /// The metric.
        cause: NoMetric,
    },
    /// The list of publications is damaged.
    #[error(transparent)]
    Documents(#[from] FileError),
}

/// For each file, a table of our values beside the published ones, and its statements with verdicts. Results about
/// cases that were not run are counted.
///
/// # Errors
/// If a published result is about a metric that its case does not have.
pub fn beside_published(
    files: &[File],
    published: &[Published],
    runs: &[Run<'_>],
) -> Result<String, CompareError> {
    let documents = Documents::shipped()?;
    let mut text = String::new();
    for (index, (file, published)) in files.iter().zip(published).enumerate() {
        let of_file = runs.iter().filter(|run| run.file == index);
        let of_file = Runs(of_file.map(|run| (&run.case.name[..], run.metrics)).collect());
        let entry = Entry::new(file.path.display().to_string(), published, &of_file)
            .map_err(|cause| CompareError::NoMetric { path: file.path.clone(), cause })?;
        text += &reproduction::text(&entry, &documents);
    }
    text.pop();
    Ok(text)
}
