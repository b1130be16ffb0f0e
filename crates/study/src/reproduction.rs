//! The report on published results that are reproduced: a summary by document, and a line for every
//! value, statement, condition and loss, as Markdown, CSV and a web page.

mod page;
mod plot;

use report::{CsvText, TableColumn, TextTable};
use scenario::{Documents, Publication, Published};
use serde_json::{Map, Value};

use crate::verdict::{
    self, CaseRunMetrics, NoMetric, PublishedComparison, Score, ValueBeside, Verdict,
};

pub use page::page;

/// Published results beside the runs of their scenario.
#[derive(Debug)]
pub struct ReproductionEntry<'a> {
    /// The scenario's name, or that of the results if there is no scenario.
    pub name: String,
    /// Number of seeds of the case that has most; 0 if the scenario was not run.
    pub seeds: usize,
    /// The published results.
    pub published: &'a Published,
    /// The comparison with our runs.
    pub comparison: PublishedComparison<'a>,
}

impl<'a> ReproductionEntry<'a> {
    /// Compares published results with the runs of their scenario.
    ///
    /// # Errors
    /// If a published result is about a metric that its case does not have.
    pub fn new(
        name: String,
        published: &'a Published,
        runs: &CaseRunMetrics<'_>,
    ) -> Result<Self, NoMetric> {
        let comparison = verdict::compare(published, runs)?;
        Ok(Self { name, seeds: runs.seeds(), published, comparison })
    }

    /// Returns the number of seeds in words.
    fn runs(&self) -> String {
        if self.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", self.seeds) }
    }
}

/// Returns one entry as plain text: our values beside the published ones, then its statements.
/// Results about cases that were not run are only counted.
pub fn text(entry: &ReproductionEntry<'_>, documents: &Documents) -> String {
    let document = documents.find(&entry.published.document);
    let title = document.map_or(&entry.published.document, |document| &document.title);
    let mut text = format!("{}\n  {title}\n", entry.name);
    let tables = [verdict::values(&entry.comparison, true), verdict::statements(&entry.comparison)];
    for table in tables.into_iter().filter(|table| !table.is_empty()) {
        text += &table.indent(2).to_string();
    }
    text + &format!("  {}\n\n", verdict::summary(&entry.comparison.score()))
}

/// The entries of one document.
struct DocumentPart<'a, 'e> {
    document: &'a Publication,
    entries: Vec<&'e ReproductionEntry<'a>>,
}

impl DocumentPart<'_, '_> {
    fn score(&self) -> Score {
        let mut score = Score::default();
        self.entries.iter().for_each(|entry| score += entry.comparison.score());
        score
    }

    fn inputs(&self) -> usize {
        let inputs = self.entries.iter().flat_map(|entry| &entry.published.input);
        inputs.map(|input| input.points.len()).sum()
    }

    fn lost(&self) -> (usize, u32) {
        let lost = || self.entries.iter().flat_map(|entry| &entry.published.lost);
        (lost().filter(|lost| lost.values == 0).count(), lost().map(|lost| lost.values).sum())
    }
}

fn by_document<'a, 'e>(
    entries: &'e [ReproductionEntry<'a>],
    documents: &'a Documents,
) -> Vec<DocumentPart<'a, 'e>> {
    let of = |document: &'a Publication| {
        let own = entries.iter().filter(|entry| entry.published.document == document.name);
        DocumentPart { document, entries: own.collect() }
    };
    documents.document.iter().map(of).filter(|part| !part.entries.is_empty()).collect()
}

const SUMMARY_COLUMNS: [&str; 11] = [
    "values",
    "statements",
    "of",
    "share",
    "explained",
    "not explained",
    "not run",
    "impossible",
    "inputs",
    "lost values",
    "lost curves",
];

/// Returns a table of the number of reproduced results of each document.
pub fn summary(entries: &[ReproductionEntry<'_>], documents: &Documents) -> TextTable {
    let columns = SUMMARY_COLUMNS.map(TableColumn::right);
    let mut table = TextTable::new([TableColumn::left("document")].into_iter().chain(columns));
    let mut row = |name: String, score: Score, inputs: usize, (curves, values): (usize, u32)| {
        // What was not run counts as not reproduced.
        let due = score.scored() + score.not_run;
        let share = if due == 0 { 0.0 } else { 100.0 * score.agree() as f64 / due as f64 };
        let numbers = [
            score.reproduced.to_string(),
            score.trends.to_string(),
            due.to_string(),
            format!("{share:.0} %"),
            score.explained.to_string(),
            score.unexplained.to_string(),
            score.not_run.to_string(),
            score.impossible.to_string(),
            inputs.to_string(),
            values.to_string(),
            curves.to_string(),
        ];
        table.row([name].into_iter().chain(numbers));
    };
    let parts = by_document(entries, documents);
    let mut total = Score::default();
    let mut inputs = 0;
    let mut lost = (0, 0);
    for part in &parts {
        let score = part.score();
        let own = part.lost();
        total += score;
        inputs += part.inputs();
        lost = (lost.0 + own.0, lost.1 + own.1);
        row(part.document.by.clone(), score, part.inputs(), own);
    }
    row("all".to_owned(), total, inputs, lost);
    table
}

/// Returns the whole report as Markdown. `command` is shown as the way to make it again.
pub fn markdown(entries: &[ReproductionEntry<'_>], documents: &Documents, command: &str) -> String {
    let mut text = format!(
        "# What is reproduced\n\n\
         `{command}` writes this page from the results of `skyhop study run all`. A value is\n\
         reproduced if ours is within its stated tolerance, a statement if it holds for every pair of cases that it\n\
         is about. *Explained* are results that differ for a cause that a case shows: with another assumption, where the\n\
         document leaves one open, the published value is met. That it was so is not shown. Impossible values and inputs\n\
         are not scored. [Published scenarios](published.md) discusses the differences and\n\
         [explains](published.md#results-files) the columns.\n\n{}",
        summary(entries, documents).markdown(),
    );
    for part in by_document(entries, documents) {
        text += &format!("\n## {}: {}\n", part.document.by, part.document.title);
        text += &errata(part.document);
        for entry in &part.entries {
            text += &section(entry);
        }
    }
    text
}

/// Returns a table of the known errors of a document.
fn errata(document: &Publication) -> String {
    if document.erratum.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(["where", "says", "error"].map(TableColumn::left));
    for erratum in &document.erratum {
        table.row([&erratum.place, &erratum.words, &erratum.because].map(String::as_str));
    }
    format!("\nErrors of the document:\n\n{}", table.markdown())
}

fn section(entry: &ReproductionEntry<'_>) -> String {
    let published = entry.published;
    let mut text = format!("\n### {}: {}\n\n", entry.name, published.title);
    if entry.seeds > 0 {
        text += &format!("{}: {}.\n", entry.runs(), verdict::summary(&entry.comparison.score()));
    }
    for assumption in &published.assumption {
        text += &format!(
            "\nAssumption: {}: {} ({}).\n",
            assumption.about, assumption.taken, assumption.because
        );
    }
    let tables = [
        verdict::values(&entry.comparison, false),
        verdict::statements(&entry.comparison),
        conditions(published),
        losses(published),
    ];
    for table in tables.iter().filter(|table| !table.is_empty()) {
        text += &format!("\n{}", table.markdown());
    }
    text
}

/// Returns a table of the conditions of the experiment.
fn conditions(published: &Published) -> TextTable {
    let columns =
        [TableColumn::left("where"), TableColumn::left("input"), TableColumn::left("values")];
    let mut table = TextTable::new(columns);
    for input in &published.input {
        let value = |point: &scenario::Condition| match point.name.as_str() {
            "" => report::four_digits(point.value),
            name => format!("{name}: {}", report::four_digits(point.value)),
        };
        let values: Vec<String> = input.points.iter().map(value).collect();
        let unit = if input.unit == scenario::Unit::One {
            String::new()
        } else {
            format!(" {}", input.unit)
        };
        table.row([
            input.place.clone(),
            input.what.clone(),
            format!("{}{unit}", values.join("; ")),
        ]);
    }
    table
}

/// Returns a table of the values and curves that the document's text has lost.
fn losses(published: &Published) -> TextTable {
    let columns =
        [TableColumn::left("where"), TableColumn::left("lost"), TableColumn::right("values")];
    let mut table = TextTable::new(columns);
    for lost in &published.lost {
        let values = if lost.values == 0 { "curves".to_owned() } else { lost.values.to_string() };
        table.row([lost.place.clone(), lost.what.clone(), values]);
    }
    table
}

/// Names of the fields of a published value or of a pair of a statement.
const FIELDS: [&str; 15] = [
    "document",
    "name",
    "where",
    "case",
    "by",
    "of",
    "metric",
    "published",
    "to",
    "ours",
    "low",
    "high",
    "seeds",
    "tolerance",
    "verdict",
];
/// The fields that hold numbers.
const NUMBERS: [&str; 7] = ["published", "to", "ours", "low", "high", "seeds", "tolerance"];

/// Returns CSV: a line for each published value and each pair of a statement.
pub fn csv(entries: &[ReproductionEntry<'_>]) -> String {
    let mut csv = CsvText::new(&FIELDS);
    rows(entries).for_each(|row| csv.row(row));
    csv.into_text()
}

/// Returns the lines of [`csv`] as a JSON list of objects; unknown fields are `null`.
pub fn json(entries: &[ReproductionEntry<'_>]) -> String {
    let value = |name: &str, text: Option<String>| match text {
        // NaN and infinity, which JSON cannot express, become `null`.
        Some(text) if NUMBERS.contains(&name) => text.parse::<f64>().ok().into(),
        text => Value::from(text),
    };
    let object = |row: [Option<String>; 15]| {
        FIELDS.iter().zip(row).map(|(name, text)| ((*name).to_owned(), value(name, text))).collect()
    };
    let all: Vec<Map<String, Value>> = rows(entries).map(object).collect();
    format!("{:#}\n", Value::from_iter(all))
}

fn rows(entries: &[ReproductionEntry<'_>]) -> impl Iterator<Item = [Option<String>; 15]> {
    let mut rows = Vec::new();
    for entry in entries {
        for value in &entry.comparison.values {
            rows.push(value_fields(entry, value));
        }
        for trend in &entry.comparison.trends {
            for pair in &trend.pairs {
                let [first, second] = pair.ours;
                let text = |text: &str| Some(text.to_owned());
                rows.push([
                    text(&entry.published.document),
                    text(&entry.name),
                    text(&trend.trend.place),
                    text(pair.cases[0]),
                    text(pair.cases[1]),
                    text(&trend.trend.of),
                    text(&trend.trend.metric),
                    trend.trend.least.map(|least| least.to_string()),
                    trend.trend.most.map(|most| most.to_string()),
                    Some((first / second).to_string()),
                    None,
                    None,
                    None,
                    None,
                    text(if pair.holds { "holds" } else { "does not hold" }),
                ]);
            }
        }
    }
    rows.into_iter()
}

fn value_fields(entry: &ReproductionEntry<'_>, value: &ValueBeside<'_>) -> [Option<String>; 15] {
    let ValueBeside { output, point, published, ours, verdict } = value;
    let number = |value: f64| Some(value.to_string());
    let word = match verdict {
        Verdict::Reproduced => "reproduced",
        Verdict::Differs(_) => "differs",
        Verdict::Impossible(_) => "impossible",
        Verdict::NotRun => "not run",
    };
    let interval = ours.and_then(|ours| ours.interval);
    [
        Some(entry.published.document.clone()),
        Some(entry.name.clone()),
        Some(output.place.clone()),
        Some(point.case.clone()),
        point.by.clone(),
        Some(output.of.clone()),
        Some(output.metric.clone()),
        number(published[0]),
        point.to.and_then(|_| number(published[1])),
        ours.and_then(|ours| number(ours.value)),
        interval.and_then(|interval| number(interval.low)),
        interval.and_then(|interval| number(interval.high)),
        ours.map(|ours| ours.runs.to_string()),
        number(output.tolerance),
        Some(word.to_owned()),
    ]
}

#[cfg(test)]
mod tests;
