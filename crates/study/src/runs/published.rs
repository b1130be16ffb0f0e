//! Shows scenarios' runs beside published results.

use std::fmt::Write as _;
use std::path::PathBuf;

use report::{Column, Table, dash, four_digits};
use scenario::{Documents, FileError, Published};
use stats::Interval;
use thiserror::Error;

use super::{File, Run};
use crate::verdict::{
    self, Cause, Comparison, Estimate, NoMetric, Runs, Score, TrendBeside, ValueBeside, Verdict,
};

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
/// cases that were not run are left out.
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
        text += &shown(&comparison);
        text.push('\n');
    }
    text.pop();
    Ok(text)
}

fn shown(comparison: &Comparison<'_>) -> String {
    let mut text = values(&comparison.values);
    for trend in &comparison.trends {
        text += &statement(trend);
    }
    let Score { reproduced, trends, explained, unexplained, impossible } = comparison.score();
    let scored = comparison.score().scored();
    let _ = writeln!(
        text,
        "  {} of {scored} reproduced: {reproduced} values, {trends} statements; \
         {explained} differ for a cause that a run shows, {unexplained} without; \
         {impossible} published values are impossible",
        reproduced + trends,
    );
    text
}

/// A table of our values beside the published ones; empty if none of the cases was run.
fn values(values: &[ValueBeside<'_>]) -> String {
    let mut table = Table::new([
        Column::left("where").at_least(14),
        Column::left("case").at_least(26),
        Column::left("metric").at_least(24),
        Column::right("published").at_least(12),
        Column::right("ours").at_least(10),
        Column::right("95 %"),
        Column::right("ratio").at_least(5),
        Column::right("allowed"),
        Column::left(""),
    ]);
    for ValueBeside { output, point, published, ours, verdict } in values {
        let case = match &point.by {
            Some(by) => format!("{} / {by}", point.case),
            None => point.case.clone(),
        };
        let metric = format!("{} {}", output.of, output.metric);
        let nearest = ours.value.clamp(published[0], published[1]);
        let ratio = dash((nearest != 0.0).then(|| format!("{:.2}", ours.value / nearest)));
        let allowed = format!("±{:.0} %", output.tolerance * 100.0);
        let what = [word(verdict), point.note.clone()];
        let what: Vec<String> = what.into_iter().filter(|part| !part.is_empty()).collect();
        table.row([
            output.place.clone(),
            case,
            metric,
            range(*published),
            four_digits(ours.value),
            interval(ours),
            ratio,
            allowed,
            what.join("; "),
        ]);
    }
    if table.is_empty() { String::new() } else { table.indent(2).to_string() }
}

fn range([low, high]: [f64; 2]) -> String {
    let low_text = four_digits(low);
    if low == high { low_text } else { format!("{low_text}–{}", four_digits(high)) }
}

fn interval(ours: &Estimate) -> String {
    let ends = |Interval { low, high }| format!("{}–{}", four_digits(low), four_digits(high));
    dash(ours.interval.map(ends))
}

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Reproduced => "reproduced".to_owned(),
        Verdict::Impossible(why) => format!("impossible: {why}"),
        Verdict::Differs(Cause::Unknown) => "differs".to_owned(),
        Verdict::Differs(Cause::Stated(because)) => format!("differs: {because} (not shown)"),
        Verdict::Differs(Cause::Tested { because, case, value, shown }) => {
            let with = value.map_or(String::new(), |value| format!(" {}", four_digits(value)));
            let not = if *shown { "" } else { ", which does not show it" };
            format!("differs: {because} (case {case:?}:{with}{not})")
        }
    }
}

fn statement(TrendBeside { trend, pairs, verdict }: &TrendBeside<'_>) -> String {
    let mut text = format!("  {}: {}: {}\n", trend.place, trend.says, word(verdict));
    let wanted = match (trend.least, trend.most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "below 1".to_owned(),
    };
    for pair in pairs {
        let [first, second] = pair.ours;
        let _ = writeln!(
            text,
            "    {} {}: {} / {} = {} / {} = {:.2}, stated {wanted}: {}",
            trend.of,
            trend.metric,
            pair.cases[0],
            pair.cases[1],
            four_digits(first),
            four_digits(second),
            first / second,
            if pair.holds { "holds" } else { "does not hold" },
        );
    }
    text
}
