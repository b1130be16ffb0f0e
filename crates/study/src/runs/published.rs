//! Shows scenarios' runs beside published results.

use std::fmt::Write as _;
use std::path::PathBuf;

use scenario::{Documents, FileError, Published};
use thiserror::Error;

use super::{File, Run};
use crate::verdict::{self, NoMetric, Runs};

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
        let comparison = verdict::compare(published, &of_file)
            .map_err(|cause| CompareError::NoMetric { path: file.path.clone(), cause })?;
        let document = documents.find(&published.document);
        let title = document.map_or(&published.document, |document| &document.title);
        let _ = writeln!(text, "{}\n  {title}", file.path.display());
        for table in [verdict::values(&comparison, true), verdict::statements(&comparison)] {
            if !table.is_empty() {
                text += &table.indent(2).to_string();
            }
        }
        let _ = writeln!(text, "  {}\n", verdict::summary(&comparison.score()));
    }
    text.pop();
    Ok(text)
}
