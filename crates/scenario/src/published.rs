//! Published results to compare with, in files beside the scenarios (`NAME.published.toml`, docs/published.md).
//!
//! A file holds the content of one table, figure or section of a document: values with the document's unit
//! and line, statements about their order, the stated conditions (inputs), values missing from the document's
//! text, and omissions with our assumptions. [`Documents`] lists the documents and their known errors.

mod documents;
#[cfg(test)]
mod tests;
mod unit;

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::built_in::TRACES;
use crate::{Scenario, Statistic};
use config::file::document::TomlDocument;
use config::file::folder::BaseFolder;
use config::file::place::{KeyContext, quoted};
use config::{FileError, FileKind};

pub use documents::{Documents, Erratum, Publication};
pub use unit::Unit;

/// Published results of one table, figure or section.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop published results")]
pub struct Published {
    /// Name of the document in `documents.toml`, or its title.
    pub document: String,
    /// The subject of the study, in a few words.
    pub title: String,
    /// Settings that the document omits, with the scenario's choices.
    #[serde(default)]
    pub assumption: Vec<Assumption>,
    /// Published values of what a scenario measures.
    #[serde(default)]
    pub output: Vec<Output>,
    /// Published statements about the order or the ratio of cases.
    #[serde(default)]
    pub trend: Vec<Trend>,
    /// Conditions of the published experiment: listed, not scored.
    #[serde(default)]
    pub input: Vec<Input>,
    /// Values and curves that are missing from the document's text.
    #[serde(default)]
    pub lost: Vec<Lost>,
}

/// A setting that a document omits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// The omitted setting: `initial window`.
    pub about: String,
    /// The scenario's choice.
    pub taken: String,
    /// Why.
    pub because: String,
}

/// Published values of one metric.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Output {
    /// The table, figure or section.
    #[serde(rename = "where")]
    pub place: String,
    /// The subject: a flow, `forward`, `return`; joined by `+`, the sum over them: `forward+return`.
    pub of: String,
    /// The metric.
    pub metric: String,
    /// Unit of the values, as the document has them.
    pub unit: Unit,
    /// The statistic over several runs that is compared.
    #[serde(default = "median")]
    pub statistic: Statistic,
    /// Comparison of a case with the case `by`; absent: the values are the cases' own.
    pub compare: Option<Compare>,
    /// Greatest difference from the published value at which it counts as reproduced, as a share of that value.
    pub tolerance: f64,
    /// Why this tolerance, stated before the runs.
    pub tolerance_because: String,
    /// The values.
    pub points: Vec<Point>,
}

/// Comparison of two cases. With a = the case, b = the case `by`:
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// a / b.
    Ratio,
    /// a / b − 1.
    Increase,
    /// 1 − a / b.
    Reduction,
}

/// A published value.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The scenario's case; empty if it has only one.
    #[serde(default)]
    pub case: String,
    /// The case that it is compared with.
    pub by: Option<String>,
    /// The value; of a range, the least.
    pub value: f64,
    /// The greatest value of a range.
    pub to: Option<f64>,
    /// Line of the document's text.
    pub line: u32,
    /// Text of that line in place of the number: `twice`.
    pub written: Option<String>,
    /// A remark for the reader who compares.
    #[serde(default)]
    pub note: String,
    /// Why the value cannot be right; it is then not scored.
    pub impossible: Option<String>,
    /// Why our value differs.
    pub differs: Option<Difference>,
}

/// Why our result differs from the published one.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Difference {
    /// The cause.
    pub because: String,
    /// The case that shows it: with this case in the place of the other, the published result is reproduced.
    pub case: Option<String>,
    /// Or pairs of texts: with the second in the place of the first, pair by pair, in the name of each case
    /// that it is about, the published result is reproduced; a statement must then hold for all its pairs.
    #[serde(default)]
    pub swap: Vec<[String; 2]>,
    /// The published value is of one run: `case` shows the cause if single runs of it reproduce the value.
    #[serde(default)]
    pub single_runs: bool,
}

/// A published statement about cases.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trend {
    /// The table, figure or section.
    #[serde(rename = "where")]
    pub place: String,
    /// The statement.
    pub says: String,
    /// Line of the document's text.
    pub line: u32,
    /// A word or two of that line, to find it.
    pub words: String,
    /// The subject: a flow, `forward`, `return`.
    pub of: String,
    /// The metric.
    pub metric: String,
    /// The statistic over several runs that is compared.
    #[serde(default = "median")]
    pub statistic: Statistic,
    /// Cases from the least to the greatest value.
    #[serde(default)]
    pub rising: Vec<String>,
    /// Pairs of cases whose ratio, first by second, is between `least` and `most`.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// Least ratio of each pair.
    pub least: Option<f64>,
    /// Greatest ratio of each pair.
    pub most: Option<f64>,
    /// Why the statement cannot be right; it is then not scored.
    pub impossible: Option<String>,
    /// Why ours differs.
    pub differs: Option<Difference>,
}

/// Conditions of the published experiment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The table, figure or section.
    #[serde(rename = "where")]
    pub place: String,
    /// The quantity.
    pub what: String,
    /// Unit of the values, as the document has them.
    pub unit: Unit,
    /// The values.
    pub points: Vec<Condition>,
}

/// A condition of the published experiment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// A name that distinguishes it from other conditions of the same quantity.
    #[serde(default)]
    pub name: String,
    /// The value.
    pub value: f64,
    /// Line of the document's text.
    pub line: u32,
    /// Text of that line in place of the number: `eight`.
    pub written: Option<String>,
    /// A remark for the reader.
    #[serde(default)]
    pub note: String,
}

/// Values or curves that are missing from a document's text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// The table, figure or section.
    #[serde(rename = "where")]
    pub place: String,
    /// Description of the missing content.
    pub what: String,
    /// Number of missing values; 0 for curves.
    #[serde(default)]
    pub values: u32,
    /// Line of the document's text where it is mentioned.
    pub line: u32,
    /// A word or two of that line, to find it.
    pub words: String,
}

fn median() -> Statistic {
    Statistic::Median
}

impl Published {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, is not valid TOML, keys are unknown or missing, or values contradict each other.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let (_, text) = BaseFolder::Disk(Path::new("")).open(path)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Parses a file; `origin` is its name in errors.
    ///
    /// # Errors
    /// If it is not valid TOML, keys are unknown or missing, or values contradict each other.
    pub fn parse(origin: &str, text: &str) -> Result<Self, FileError> {
        Self::parse_for(origin, text, None)
    }

    /// Like [`Self::parse`], and checks that every case that the file names exists in `scenario`, if
    /// that is given.
    ///
    /// # Errors
    /// Like [`Self::parse`], or if the scenario does not have a case.
    pub fn parse_for(
        origin: &str,
        text: &str,
        scenario: Option<&Scenario>,
    ) -> Result<Self, FileError> {
        let document =
            // The file names no others, so any folder will do.
            TomlDocument::parse(origin, BaseFolder::BuiltIn(TRACES), text, FileKind::Published)?;
        let published: Self = document.read()?;
        let place = KeyContext::file(&document);
        if let Some(scenario) = scenario {
            published.check_cases(&place, &KnownCases::of(scenario))?;
        }
        for (number, output) in published.output.iter().enumerate() {
            output.check(&place.within(format!("output.{number}")))?;
        }
        for (number, trend) in published.trend.iter().enumerate() {
            trend.check(&place.within(format!("trend.{number}")))?;
        }
        Ok(published)
    }

    fn check_cases(&self, place: &KeyContext<'_>, known: &KnownCases<'_>) -> Result<(), FileError> {
        let shows = |place: &KeyContext<'_>, cases: Vec<String>| {
            // A misspelt case would look like a cause that is not shown.
            known.check(&place.within("differs"), "case", &cases)
        };
        for (number, output) in self.output.iter().enumerate() {
            for (point_number, point) in output.points.iter().enumerate() {
                let place = place.within(format!("output.{number}.points.{point_number}"));
                known.check(&place, "case", [&point.case])?;
                known.check(&place, "by", &point.by)?;
                shows(&place, point.shown_by().into_iter().flatten().collect())?;
            }
        }
        for (number, trend) in self.trend.iter().enumerate() {
            let place = place.within(format!("trend.{number}"));
            known.check(&place, "rising", &trend.rising)?;
            known.check(&place, "pairs", trend.pairs.iter().flatten())?;
            shows(&place, trend.shown_by())?;
        }
        Ok(())
    }

    /// Returns the names of the cases that it refers to, with repetitions.
    pub fn cases(&self) -> impl Iterator<Item = String> {
        let points = self.output.iter().flat_map(|output| &output.points);
        let of_points = points.flat_map(|point| {
            let own = [Some(point.case.clone()), point.by.clone()];
            own.into_iter().chain(point.shown_by()).flatten()
        });
        let of_trends = self.trend.iter().flat_map(|trend| {
            let own = trend.rising.iter().chain(trend.pairs.iter().flatten()).cloned();
            own.chain(trend.shown_by())
        });
        of_points.chain(of_trends)
    }
}

impl Point {
    /// Returns the cases that replace `case` and `by` to show why our value differs; `None` where none is named.
    pub fn shown_by(&self) -> [Option<String>; 2] {
        let own = [Some(&self.case), self.by.as_ref()];
        match &self.differs {
            // One case shows the cause; what it is compared with stays as published.
            Some(Difference { case: Some(case), .. }) => [Some(case.clone()), self.by.clone()],
            Some(differs) if !differs.swap.is_empty() => own.map(|name| differs.swapped(name?)),
            _ => [None, None],
        }
    }
}

impl Difference {
    /// Returns the name of the case that replaces the case `name`; `None` without `swap`.
    pub fn swapped(&self, name: &str) -> Option<String> {
        let swap = |name: String, [first, second]: &[String; 2]| name.replace(first, second);
        (!self.swap.is_empty()).then(|| self.swap.iter().fold(name.to_owned(), swap))
    }

    fn check(&self, place: &KeyContext<'_>) -> Result<(), FileError> {
        let both = self.case.is_some() && !self.swap.is_empty();
        place.check(!both, "case, swap", "both", "one of them")?;
        let good = !self.single_runs || self.case.is_some();
        place.check(good, "single-runs", true, "a `case` whose runs these are")
    }
}

/// Names of the cases of a scenario.
struct KnownCases<'a>(Vec<&'a str>);

impl<'a> KnownCases<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        Self(scenario.cases.iter().map(|case| &*case.name).collect())
    }

    fn check<'n>(
        &self,
        place: &KeyContext<'_>,
        key: &str,
        names: impl IntoIterator<Item = &'n String>,
    ) -> Result<(), FileError> {
        match names.into_iter().find(|name| !self.0.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let known: Vec<String> = self.0.iter().map(quoted).collect();
                let expected = format!("a case of the scenario: {}", known.join(", "));
                Err(place.wrong_value(key, quoted(name), expected))
            }
        }
    }
}

impl Output {
    fn check(&self, place: &KeyContext<'_>) -> Result<(), FileError> {
        let good = (0.0..=1.0).contains(&self.tolerance);
        place.check(good, "tolerance", self.tolerance, "a share from 0 to 1")?;
        let unit = match self.compare {
            None => Unit::of_metric(&self.metric),
            // A comparison of two cases is a share, whatever the metric's unit.
            Some(_) => Unit::One,
        };
        let fits = self.unit.in_unit(1.0, unit).is_some();
        let expected = format!("a unit that converts to {unit}, the metric's");
        place.check(fits, "unit", self.unit, expected)?;
        for (number, point) in self.points.iter().enumerate() {
            let place = place.within(format!("points.{number}"));
            place.check(point.value.is_finite(), "value", point.value, "a number")?;
            // A single value is written without `to`.
            let ordered = point.to.is_none_or(|to| to > point.value);
            place.check(ordered, "to", point.to.unwrap_or_default(), "more than the value")?;
            let given = point.by.is_some();
            let compare = self.compare.is_some();
            let by = point.by.as_deref().unwrap_or("nothing");
            place.check(given == compare, "by", by, "a case if the output has `compare`")?;
            if let Some(differs) = &point.differs {
                let place = place.within("differs");
                differs.check(&place)?;
                // A single run has no counterpart among those of the other case.
                let good = !(differs.single_runs && compare);
                place.check(good, "single-runs", true, "an output without `compare`")?;
            }
        }
        Ok(())
    }

    /// Converts a value of this output to the unit of its metric; a comparison, to a share.
    pub fn in_metric_unit(&self, value: f64) -> f64 {
        let unit = if self.compare.is_some() { Unit::One } else { Unit::of_metric(&self.metric) };
        // `check` has refused units that do not convert.
        self.unit.in_unit(value, unit).unwrap_or(f64::NAN)
    }
}

impl Trend {
    /// Returns the pairs of cases that it compares: the given ones, or the neighbours in `rising`.
    pub fn compared(&self) -> Vec<[&str; 2]> {
        let rising = self.rising.windows(2).map(|two| [&*two[0], &*two[1]]);
        let given = self.pairs.iter().map(|[first, second]| [&**first, &**second]);
        rising.chain(given).collect()
    }

    /// Returns the names of the cases that show why our result differs, with repetitions.
    fn shown_by(&self) -> Vec<String> {
        let Some(differs) = &self.differs else { return Vec::new() };
        let own = self.rising.iter().chain(self.pairs.iter().flatten());
        let swapped = own.filter_map(|name| differs.swapped(name));
        swapped.chain(differs.case.clone()).collect()
    }

    fn check(&self, place: &KeyContext<'_>) -> Result<(), FileError> {
        let rising = self.rising.len();
        let pairs = self.pairs.len();
        // A single case compares nothing, and bounds are for pairs only.
        let good = (rising >= 2) != (pairs >= 1) && (rising == 0 || pairs == 0);
        let value = format!("{rising} and {pairs}");
        place.check(good, "rising, pairs", value, "two or more cases, or one or more pairs")?;
        if let Some(differs) = &self.differs {
            let place = place.within("differs");
            differs.check(&place)?;
            // A statement compares cases, but a single run can only stand for a value.
            place.check(
                !differs.single_runs,
                "single-runs",
                true,
                "no such key: it is for values only",
            )?;
        }
        // `rising` needs no bounds: each case must exceed the one before.
        let bounded = self.least.is_some() || self.most.is_some();
        place.check(bounded == (pairs > 0), "least, most", bounded, "one of them, with pairs")
    }
}
