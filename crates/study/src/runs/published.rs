//! Compares figures with published values.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use report::{Column, Table, dash, four_digits};
use scenario::{Claim, Published, Value};
use sim::Metric;
use sim::figure;
use thiserror::Error;

use super::{File, Run};

/// A published value is about a figure that the case does not have.
#[derive(Debug, Error)]
#[error("{}: case {case:?} has no figure {of}.{metric}", path.display())]
pub struct NoFigure {
    path: PathBuf,
    case: String,
    of: String,
    metric: String,
}

/// The runs of one file.
struct Runs<'a> {
    path: &'a Path,
    all: Vec<(&'a str, &'a [Metric])>,
}

/// For each file, a table of our values beside the published ones, and its claims with verdicts.
/// Cases that were not run are left out.
///
/// # Errors
/// If a published value is about a figure that its case does not have.
pub fn beside_published(
    files: &[File],
    published: &[Published],
    runs: &[Run<'_>],
) -> Result<String, NoFigure> {
    let mut text = String::new();
    for (index, (file, published)) in files.iter().zip(published).enumerate() {
        let of_file = runs.iter().filter(|run| run.file == index);
        let all = of_file.map(|run| (&run.case.name[..], run.metrics)).collect();
        let runs = Runs { path: &file.path, all };
        let _ = writeln!(text, "{}\n  {}", file.path.display(), published.source);
        text += &values(&runs, &published.value)?;
        text += &claims(&runs, &published.claim)?;
        text.push('\n');
    }
    text.pop();
    Ok(text)
}

impl Runs<'_> {
    /// Our value for a case; `None` if the case was not run.
    fn ours(&self, case: &str, of: &str, metric: &str) -> Result<Option<f64>, NoFigure> {
        let own = self.all.iter().filter(|(name, _)| *name == case);
        let own: Vec<&[Metric]> = own.map(|(_, metrics)| *metrics).collect();
        if own.is_empty() {
            return Ok(None);
        }
        let value = figure(&own, of, metric).ok_or_else(|| {
            let [case, of, metric] = [case, of, metric].map(str::to_owned);
            NoFigure { path: self.path.to_owned(), case, of, metric }
        });
        value.map(Some)
    }
}

/// A table of our values beside the published ones; empty if none of the cases was run.
fn values(runs: &Runs<'_>, values: &[Value]) -> Result<String, NoFigure> {
    let mut table = Table::new([
        Column::left("where").at_least(18),
        Column::left("case").at_least(26),
        Column::left("figure").at_least(30),
        Column::right("published").at_least(12),
        Column::right("ours").at_least(10),
        Column::right("ratio").at_least(7),
        Column::left(""),
    ]);
    for Value { case, of, metric, value, place, note } in values {
        let Some(ours) = runs.ours(case, of, metric)? else { continue };
        let ratio = dash((*value != 0.0).then(|| format!("{:.2}", ours / value)));
        let what = format!("{of} {metric}");
        let [theirs, ours] = [*value, ours].map(four_digits);
        table.row([place, case, &what, &theirs, &ours, &ratio, note]);
    }
    Ok(if table.is_empty() { String::new() } else { table.indent(2).to_string() })
}

fn claims(runs: &Runs<'_>, claims: &[Claim]) -> Result<String, NoFigure> {
    let mut text = String::new();
    for Claim { says, of, metric, case, by, least, most, place } in claims {
        let both = [runs.ours(case, of, metric)?, runs.ours(by, of, metric)?];
        let [Some(first), Some(second)] = both else { continue };
        let quotient = first / second;
        let holds =
            least.is_none_or(|least| quotient >= least) && most.is_none_or(|most| quotient <= most);
        let verdict = if holds { "holds" } else { "differs" };
        let wanted = match (least, most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!("at least {least}"),
            (None, Some(most)) => format!("at most {most}"),
            (None, None) => String::new(),
        };
        let _ = writeln!(text, "  {place}: {says}");
        let _ = writeln!(
            text,
            "    {of} {metric}: {case} / {by} = {} / {} = {quotient:.2}, published {wanted}: {verdict}",
            four_digits(first),
            four_digits(second),
        );
    }
    Ok(text)
}
