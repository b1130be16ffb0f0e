//! Comparisons with published results as tables.

use report::{TableColumn, TextTable, dash, four_digits};
use scenario::Trend;
use stats::ConfidenceInterval;

use super::{Cause, PairBeside, PublishedComparison, Score, TrendBeside, ValueBeside, Verdict};

/// Returns a table of our values beside the published ones, without those of cases that were not
/// run if `only_run`.
pub fn values(comparison: &PublishedComparison<'_>, only_run: bool) -> TextTable {
    let mut table = TextTable::new([
        TableColumn::left("where").at_least(14),
        TableColumn::left("case").at_least(26),
        TableColumn::left("metric").at_least(24),
        TableColumn::right("published").at_least(12),
        TableColumn::right("ours").at_least(10),
        TableColumn::right("95 %"),
        TableColumn::right("ratio").at_least(5),
        TableColumn::right("allowed"),
        TableColumn::left("verdict"),
    ]);
    for ValueBeside { output, point, published, ours, verdict } in &comparison.values {
        if only_run && ours.is_none() {
            continue;
        }
        let case = match &point.by {
            Some(by) => format!("{} / {by}", point.case),
            None => point.case.clone(),
        };
        let ratio = ours.and_then(|ours| {
            // Of a published range, the nearest value counts.
            let nearest = ours.value.clamp(published[0], published[1]);
            (nearest != 0.0).then(|| format!("{:.2}", ours.value / nearest))
        });
        let ends = |ConfidenceInterval { low, high }| {
            format!("{}–{}", four_digits(low), four_digits(high))
        };
        let what = [word(verdict), point.note.clone()];
        let what: Vec<String> = what.into_iter().filter(|part| !part.is_empty()).collect();
        table.row([
            output.place.clone(),
            case,
            format!("{} {}", output.of, output.metric),
            range(*published),
            dash(ours.map(|ours| four_digits(ours.value))),
            dash(ours.and_then(|ours| ours.interval).map(ends)),
            dash(ratio),
            format!("±{:.0} %", output.tolerance * 100.0),
            what.join("; "),
        ]);
    }
    table
}

/// Returns a table of the published statements: a row for each pair of cases, without those that
/// were not run.
pub fn statements(comparison: &PublishedComparison<'_>) -> TextTable {
    let mut table = TextTable::new([
        TableColumn::left("where").at_least(14),
        TableColumn::left("statement").at_least(26),
        TableColumn::left("cases"),
        TableColumn::left("metric"),
        TableColumn::right("ours"),
        TableColumn::right("ratio"),
        TableColumn::right("stated"),
        TableColumn::left("verdict"),
    ]);
    for TrendBeside { trend, pairs, verdict } in &comparison.trends {
        let heads = [&trend.place, &trend.says].map(Clone::clone);
        // Only the row of the first pair has the statement.
        let rest = [const { String::new() }; 2];
        for (heads, pair) in [heads].into_iter().chain(std::iter::repeat(rest)).zip(pairs) {
            let is_first = !heads[0].is_empty();
            let [place, says] = heads;
            let mut verdict = if is_first { word(verdict) } else { String::new() };
            if !pair.holds {
                let separator = if is_first { "; " } else { "" };
                verdict += &format!("{separator}this pair does not hold");
            }
            table.row([
                place,
                says,
                pair.cases.join(" / "),
                format!("{} {}", trend.of, trend.metric),
                pair.ours.map(four_digits).join(" / "),
                ratio(pair),
                wanted(trend),
                verdict,
            ]);
        }
    }
    table
}

/// Returns the number of results that agree, in one line.
pub fn summary(score: &Score) -> String {
    let Score { reproduced, trends, explained, unexplained, impossible, not_run } = score;
    format!(
        "{} of {} reproduced: {reproduced} values, {trends} statements; {explained} differ for a cause that a run \
         shows, {unexplained} without; {impossible} published values are impossible, {not_run} were not run",
        score.agree(),
        score.scored(),
    )
}

fn range([low, high]: [f64; 2]) -> String {
    let least = four_digits(low);
    if low == high { least } else { format!("{least}–{}", four_digits(high)) }
}

fn ratio(pair: &PairBeside<'_>) -> String {
    format!("{:.2}", pair.ours[0] / pair.ours[1])
}

fn wanted(trend: &Trend) -> String {
    match (trend.least, trend.most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => "below 1".to_owned(),
    }
}

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Reproduced => "reproduced".to_owned(),
        Verdict::NotRun => "not run".to_owned(),
        Verdict::Impossible(why) => format!("impossible: {why}"),
        Verdict::Differs(Cause::Unknown) => "differs".to_owned(),
        Verdict::Differs(Cause::Stated(because)) => format!("differs: {because} (not shown)"),
        Verdict::Differs(Cause::Tested { because, shown_in, value, shown }) => {
            let with = value.map_or(String::new(), |value| format!(": {}", four_digits(value)));
            let not = if *shown { "" } else { ", which does not show it" };
            format!("differs: {because} ({shown_in}{with}{not})")
        }
    }
}
