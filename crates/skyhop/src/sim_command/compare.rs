//! Compares results with published values.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use report::{Column, Table, dash, four_digits};
use sim::Metric;
use sim::published::{Claim, Published, Value, figure};

use super::Given;
use super::replicate::{Job, Outcome};

/// The runs of one file.
struct Runs<'a> {
    path: &'a Path,
    all: Vec<(&'a str, &'a [Metric])>,
}

/// Reads the published values of each file.
pub(super) fn read(given: &[Given]) -> Result<Vec<Published>> {
    let one = |given: &Given| {
        let path = given.path.with_extension("published.toml");
        let shown = path.display().to_string();
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        Ok(Published::parse(&shown, &text)?)
    };
    given.iter().map(one).collect()
}

/// One table per file.
pub(super) fn all(
    given: &[Given],
    published: &[Published],
    jobs: &[Job<'_>],
    outcomes: &[Outcome],
) -> Result<String> {
    let mut text = String::new();
    for (file, (given, published)) in given.iter().zip(published).enumerate() {
        let of_file = jobs.iter().zip(outcomes).filter(|(job, _)| job.file == file);
        let all = of_file.map(|(job, outcome)| (&job.case.name[..], &outcome.metrics[..]));
        let runs = Runs { path: &given.path, all: all.collect() };
        let _ = writeln!(text, "{}\n  {}", given.path.display(), published.source);
        text += &values(&runs, &published.value)?;
        text += &claims(&runs, &published.claim)?;
        text.push('\n');
    }
    text.pop();
    Ok(text)
}

impl Runs<'_> {
    /// Our value for a case; `None` if the case was not run.
    fn ours(&self, case: &str, of: &str, metric: &str) -> Result<Option<f64>> {
        let own = self.all.iter().filter(|(name, _)| *name == case);
        let own: Vec<&[Metric]> = own.map(|(_, metrics)| *metrics).collect();
        if own.is_empty() {
            return Ok(None);
        }
        let Some(value) = figure(&own, of, metric) else {
            bail!("{}: case {case:?} has no figure {of}.{metric}", self.path.display());
        };
        Ok(Some(value))
    }
}

/// A table of our values beside the published ones; empty if none of the cases was run.
fn values(runs: &Runs<'_>, values: &[Value]) -> Result<String> {
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

fn claims(runs: &Runs<'_>, claims: &[Claim]) -> Result<String> {
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
