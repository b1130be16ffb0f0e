//! Published results beside ours, and what follows from the comparison.
//!
//! A value is *reproduced* if ours differs by no more than its stated tolerance. A *trend* is reproduced if
//! the statement holds for every pair of cases that it names. Otherwise they *differ*; a cause that the file
//! names counts as shown if the case that it points to reproduces the published result, or if some of its
//! runs do where what was published is a single run.

use std::collections::BTreeMap;

use scenario::{Compare, Difference, Output, Point, Published, Statistic, Trend};
use sim::MetricValue;
use stats::{Bootstrap, ConfidenceInterval, mean, mean_interval, median, median_interval};
use thiserror::Error;

mod text;

pub use text::{statements, summary, values};

/// Seed of the resamples behind the intervals of comparisons.
const SEED: u64 = 1;
/// Prefix of the metrics that a run lacks if it did not finish anything.
const TIMES: &str = "time-";
/// Confidence level of all intervals.
const CONFIDENCE: f64 = 0.95;

/// The error for a published result about a metric that its case does not have.
#[derive(Debug, Error)]
#[error("case {case:?} has no metric {of}.{metric}")]
pub struct NoMetric {
    case: String,
    of: String,
    metric: String,
}

/// The metrics of a scenario's runs, each with the name of its case.
#[derive(Debug, Clone, Default)]
pub struct CaseRunMetrics<'a>(pub Vec<(&'a str, &'a [MetricValue])>);

/// The verdict of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Our value is within the tolerance, or the statement holds.
    Reproduced,
    /// Our value is outside the tolerance, or the statement does not hold, for the given cause.
    Differs(Cause),
    /// The published value cannot be right, for the given reason.
    Impossible(String),
    /// A case that it needs was not run.
    NotRun,
}

/// The cause of a difference.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// The cause is not known.
    Unknown,
    /// The file states a cause, without a run that shows it.
    Stated(String),
    /// The file states a cause and the case that should show it by reproducing the published
    /// result.
    Tested {
        /// The cause, as stated.
        because: String,
        /// The runs that should show it: `case "large queue"`, `3 of 32 runs of case "large
        /// queue"`.
        shown_in: String,
        /// Our value there, in the unit of the metric; `None` for trends and single runs.
        value: Option<f64>,
        /// Set if they reproduce the published result.
        shown: bool,
    },
}

/// Our value for a published one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The median or the mean of the runs, or the comparison of two of them.
    pub value: f64,
    /// Its interval at 95 % confidence: of medians by order statistics, of means Student's t, of comparisons
    /// bootstrap. `None` if all runs agree, or there are too few.
    pub interval: Option<ConfidenceInterval>,
    /// Number of runs of the case.
    pub runs: usize,
}

/// A published value beside ours. Both are in the unit of the metric; comparisons are shares.
#[derive(Debug, Clone)]
pub struct ValueBeside<'a> {
    /// The published values that it is one of.
    pub output: &'a Output,
    /// The published value and its case.
    pub point: &'a Point,
    /// The published value; of a range, its ends.
    pub published: [f64; 2],
    /// Our value; `None` if a case was not run.
    pub ours: Option<Estimate>,
    /// The verdict on the value.
    pub verdict: Verdict,
}

/// A published statement and our values.
#[derive(Debug, Clone)]
pub struct TrendBeside<'a> {
    /// The published statement.
    pub trend: &'a Trend,
    /// The pairs of cases that it is about, with our values.
    pub pairs: Vec<PairBeside<'a>>,
    /// The verdict on the statement.
    pub verdict: Verdict,
}

/// Two cases of a statement.
#[derive(Debug, Clone)]
pub struct PairBeside<'a> {
    /// Names of the two cases.
    pub cases: [&'a str; 2],
    /// Our values for the two cases.
    pub ours: [f64; 2],
    /// Set if the statement holds for them.
    pub holds: bool,
}

/// Published results beside those of our runs.
#[derive(Debug, Clone, Default)]
pub struct PublishedComparison<'a> {
    /// Values, in the order of the file.
    pub values: Vec<ValueBeside<'a>>,
    /// Statements, in the order of the file.
    pub trends: Vec<TrendBeside<'a>>,
}

/// The numbers of results of a comparison, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Score {
    /// Number of values within their tolerance.
    pub reproduced: usize,
    /// Number of statements that hold.
    pub trends: usize,
    /// Number of values and statements that do not, with a cause that a run shows.
    pub explained: usize,
    /// Number of values and statements that do not, without a cause that a run shows.
    pub unexplained: usize,
    /// Number of values that cannot be right, which are not scored.
    pub impossible: usize,
    /// Number of values and statements that need a case which was not run.
    pub not_run: usize,
}

impl CaseRunMetrics<'_> {
    /// Returns the number of runs of the case that has most.
    pub fn seeds(&self) -> usize {
        let mut counts = BTreeMap::new();
        self.0.iter().for_each(|(case, _)| *counts.entry(*case).or_insert(0) += 1);
        counts.into_values().max().unwrap_or(0)
    }

    /// Returns the values of a metric over the runs of a case; `None` if the case was not run.
    fn values(&self, case: &str, of: &str, metric: &str) -> Result<Option<Vec<f64>>, NoMetric> {
        let own = self.0.iter().filter(|(name, _)| *name == case);
        let own: Vec<&[MetricValue]> = own.map(|(_, metrics)| *metrics).collect();
        let mut found: Vec<f64> =
            own.iter().filter_map(|metrics| value(metrics, of, metric)).collect();
        // Most likely a misspelt name, which must not count as a result that differs: a case of which no
        // run finished lacks a time that others have.
        let in_others = || self.0.iter().any(|(_, metrics)| value(metrics, of, metric).is_some());
        let is_unfinished = metric.starts_with(TIMES) && in_others();
        if found.is_empty() && !own.is_empty() && !is_unfinished {
            let [case, of, metric] = [case, of, metric].map(str::to_owned);
            return Err(NoMetric { case, of, metric });
        }
        if metric.starts_with(TIMES) {
            // A run that did not finish took longer than any that did.
            found.resize(own.len(), f64::INFINITY);
        }
        Ok((!own.is_empty()).then_some(found))
    }
}

/// Returns the value of a metric of a subject, or the sum over several that `+` joins.
fn value(metrics: &[MetricValue], of: &str, name: &str) -> Option<f64> {
    let own = |of| metrics.iter().find(|metric| metric.of == of && metric.name == name);
    of.split('+').map(|of| own(of).map(|metric| metric.value)).sum()
}

/// Compares a scenario's runs with what was published.
///
/// # Errors
/// If a published result is about a metric that its case does not have.
pub fn compare<'a>(
    published: &'a Published,
    runs: &CaseRunMetrics<'_>,
) -> Result<PublishedComparison<'a>, NoMetric> {
    let mut comparison = PublishedComparison::default();
    for output in &published.output {
        for point in &output.points {
            comparison.values.push(compare_value(output, point, runs)?);
        }
    }
    for trend in &published.trend {
        comparison.trends.push(compare_trend(trend, runs)?);
    }
    Ok(comparison)
}

fn compare_value<'a>(
    output: &'a Output,
    point: &'a Point,
    runs: &CaseRunMetrics<'_>,
) -> Result<ValueBeside<'a>, NoMetric> {
    let published = [point.value, point.to.unwrap_or(point.value)];
    let published = published.map(|value| output.in_metric_unit(value));
    let within = |value: f64| {
        let slack = published.map(|end| end.abs() * output.tolerance);
        (published[0] - slack[0]..=published[1] + slack[1]).contains(&value)
    };
    let ours = |case: &str, by: Option<&str>| estimate(output, case, by, runs);
    let own = ours(&point.case, point.by.as_deref())?;
    let verdict = match (&point.impossible, own) {
        (Some(why), _) => Verdict::Impossible(why.clone()),
        (None, None) => Verdict::NotRun,
        (None, Some(own)) if within(own.value) => Verdict::Reproduced,
        (None, Some(_)) => Verdict::Differs(match (&point.differs, point.shown_by()) {
            (Some(differs), [Some(case), _]) if differs.single_runs => {
                single_runs(output, differs, &case, runs, within)?
            }
            (Some(differs), [Some(case), by]) => {
                let value = ours(&case, by.as_deref())?.map(|metric| metric.value);
                let because = differs.because.clone();
                let shown = value.is_some_and(within);
                let shown_in = match by.filter(|_| !differs.swap.is_empty()) {
                    Some(by) => format!("cases {case:?} and {by:?}"),
                    None => format!("case {case:?}"),
                };
                Cause::Tested { because, shown_in, value, shown }
            }
            (stated, _) => Cause::without_case(stated.as_ref()),
        }),
    };
    Ok(ValueBeside { output, point, published, ours: own, verdict })
}

/// Determines the cause of a difference from a single run: shown if a run of the case reproduces
/// what was published.
fn single_runs(
    output: &Output,
    differs: &Difference,
    case: &str,
    runs: &CaseRunMetrics<'_>,
    within: impl Fn(f64) -> bool,
) -> Result<Cause, NoMetric> {
    let values = runs.values(case, &output.of, &output.metric)?.unwrap_or_default();
    let agree = values.iter().filter(|value| within(**value)).count();
    let shown_in = format!("{agree} of {} runs of case {case:?}", values.len());
    let because = differs.because.clone();
    Ok(Cause::Tested { because, shown_in, value: None, shown: agree > 0 })
}

impl Cause {
    /// Returns the cause of a difference for which no case is named.
    fn without_case(stated: Option<&Difference>) -> Self {
        stated.map_or(Self::Unknown, |stated| Self::Stated(stated.because.clone()))
    }
}

/// Computes our value for a case, compared with the case `by` if the output compares. `None` if one
/// was not run.
fn estimate(
    output: &Output,
    case: &str,
    by: Option<&str>,
    runs: &CaseRunMetrics<'_>,
) -> Result<Option<Estimate>, NoMetric> {
    let Some(own) = runs.values(case, &output.of, &output.metric)? else { return Ok(None) };
    let mut groups = vec![own];
    if let Some(by) = by {
        let Some(other) = runs.values(by, &output.of, &output.metric)? else { return Ok(None) };
        groups.push(other);
    }
    let figure = |groups: &[Vec<f64>]| {
        let mut each = groups.iter().map(|values| centre(output.statistic, values));
        let own = each.next().unwrap_or(f64::NAN);
        match (output.compare, each.next()) {
            (Some(compare), Some(other)) => compared(compare, own, other),
            _ => own,
        }
    };
    let value = figure(&groups);
    let runs = groups[0].len();
    let interval = match (&groups[..], output.statistic) {
        ([own], Statistic::Median) => median_interval(own, CONFIDENCE),
        ([own], Statistic::Mean) => mean_interval(own, CONFIDENCE),
        _ => Bootstrap::new(SEED).statistic(&groups, figure).map(|estimate| estimate.ci95),
    };
    // Runs that all agree have no interval to show.
    let interval = interval.filter(|interval| interval.low < interval.high);
    Ok(Some(Estimate { value, interval, runs }))
}

fn centre(statistic: Statistic, values: &[f64]) -> f64 {
    let middle = match statistic {
        Statistic::Median => median(values),
        Statistic::Mean => mean(values),
    };
    middle.unwrap_or(f64::NAN)
}

fn compared(compare: Compare, own: f64, other: f64) -> f64 {
    match compare {
        Compare::Ratio => own / other,
        Compare::Increase => own / other - 1.0,
        Compare::Reduction => 1.0 - own / other,
    }
}

fn compare_trend<'a>(
    trend: &'a Trend,
    runs: &CaseRunMetrics<'_>,
) -> Result<TrendBeside<'a>, NoMetric> {
    let mut pairs = Vec::new();
    let mut is_whole = true;
    for cases in trend.compared() {
        let pair = compare_pair(trend, cases, runs)?;
        is_whole &= pair.is_some();
        pairs.extend(pair);
    }
    let verdict = if let Some(why) = &trend.impossible {
        Verdict::Impossible(why.clone())
    } else if !is_whole {
        Verdict::NotRun
    } else if pairs.iter().all(|pair| pair.holds) {
        Verdict::Reproduced
    } else {
        Verdict::Differs(trend_cause(trend, &pairs, runs)?)
    };
    Ok(TrendBeside { trend, pairs, verdict })
}

/// Returns the cause that is stated for a statement that does not hold.
fn trend_cause(
    trend: &Trend,
    pairs: &[PairBeside<'_>],
    runs: &CaseRunMetrics<'_>,
) -> Result<Cause, NoMetric> {
    let Some(differs) = &trend.differs else { return Ok(Cause::Unknown) };
    // With other cases for all, the whole statement must hold; a single case stands for the first of each pair that
    // does not.
    let (shown_in, instead): (_, Vec<[String; 2]>) = if !differs.swap.is_empty() {
        let swapped = |pair: &PairBeside<'_>| {
            pair.cases.map(|name| differs.swapped(name).unwrap_or_default())
        };
        let named = |[first, second]: &[String; 2]| format!("{second:?} in the place of {first:?}");
        let named: Vec<_> = differs.swap.iter().map(named).collect();
        (format!("cases with {}", named.join(" and ")), pairs.iter().map(swapped).collect())
    } else if let Some(case) = &differs.case {
        let failed = pairs.iter().filter(|pair| !pair.holds);
        let instead = failed.map(|pair| [case.clone(), pair.cases[1].to_owned()]);
        (format!("case {case:?}"), instead.collect())
    } else {
        return Ok(Cause::without_case(Some(differs)));
    };
    let mut shown = true;
    for [first, second] in &instead {
        shown &= compare_pair(trend, [first, second], runs)?.is_some_and(|pair| pair.holds);
    }
    Ok(Cause::Tested { because: differs.because.clone(), shown_in, value: None, shown })
}

fn compare_pair<'a>(
    trend: &Trend,
    cases: [&'a str; 2],
    runs: &CaseRunMetrics<'_>,
) -> Result<Option<PairBeside<'a>>, NoMetric> {
    let ours = |case| {
        let values = runs.values(case, &trend.of, &trend.metric)?;
        Ok(values.map(|values| centre(trend.statistic, &values)))
    };
    let Some((first, second)) = ours(cases[0])?.zip(ours(cases[1])?) else { return Ok(None) };
    let ratio = first / second;
    // Cases that are stated to rise have no bounds: each must exceed the one before.
    let holds = if trend.pairs.is_empty() {
        first < second
    } else {
        trend.least.is_none_or(|least| ratio >= least)
            && trend.most.is_none_or(|most| ratio <= most)
    };
    Ok(Some(PairBeside { cases, ours: [first, second], holds }))
}

impl PublishedComparison<'_> {
    /// Counts the results of each kind.
    pub fn score(&self) -> Score {
        let mut score = Score::default();
        let verdicts = self.values.iter().map(|value| (&value.verdict, false));
        for (verdict, is_trend) in
            verdicts.chain(self.trends.iter().map(|trend| (&trend.verdict, true)))
        {
            *match verdict {
                Verdict::Reproduced if is_trend => &mut score.trends,
                Verdict::Reproduced => &mut score.reproduced,
                Verdict::Differs(Cause::Tested { shown: true, .. }) => &mut score.explained,
                Verdict::Differs(_) => &mut score.unexplained,
                Verdict::Impossible(_) => &mut score.impossible,
                Verdict::NotRun => &mut score.not_run,
            } += 1;
        }
        score
    }
}

impl core::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.reproduced += other.reproduced;
        self.trends += other.trends;
        self.explained += other.explained;
        self.unexplained += other.unexplained;
        self.impossible += other.impossible;
        self.not_run += other.not_run;
    }
}

impl Score {
    /// Returns the number of results that were run and are scored.
    pub fn scored(&self) -> usize {
        self.agree() + self.explained + self.unexplained
    }

    /// Returns the number of results that are reproduced.
    pub fn agree(&self) -> usize {
        self.reproduced + self.trends
    }
}

#[cfg(test)]
mod tests;
