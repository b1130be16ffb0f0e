//! The validation checks and their results.

#![expect(
    clippy::disallowed_methods,
    reason = "what theory says is printed with three digits, and decides nothing"
)]

mod bands;
mod buffer;
mod equations;
mod hybla;
mod operating;
mod published;
mod response;
mod row;
mod trial;
mod window;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
pub(crate) use row::{Plot, Row, Section, Series, Verdict};

/// How much to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Only the rows that take a second or two.
    Quick,
    /// All rows.
    Full,
}

/// Runs every check. The order of sections is fixed, and each row is the same on every machine.
pub(crate) fn sections(effort: Effort) -> Vec<Section> {
    let all: [fn(Effort) -> Section; 6] = [
        window::section,
        response::section,
        hybla::section,
        operating::section,
        buffer::section,
        bands::section,
    ];
    all.into_par_iter().map(|section| section(effort)).collect()
}
