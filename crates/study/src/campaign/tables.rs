//! Scenarios and plans as text.

use report::{TableColumn, TextTable};
use serde::Serialize;

use super::{CampaignPlan, PlannedCell, ScenarioSource, SourceError};

/// A scenario as `skyhop study list` shows it.
#[derive(Serialize)]
struct ListedScenario<'a> {
    name: &'a str,
    description: &'a str,
    /// Names of the scenario's cases.
    cases: Vec<&'a str>,
    /// Set if there are published values to compare with.
    published: bool,
}

impl<'a> ListedScenario<'a> {
    fn new(source: &'a ScenarioSource) -> Result<Self, SourceError> {
        Ok(Self {
            name: &source.name,
            description: source.cases.first().map_or("", |case| &case.description),
            cases: source.cases.iter().map(|case| &case.name[..]).collect(),
            published: source.published()?.is_some(),
        })
    }
}

/// Returns a line for each scenario: its name, the number of its cases, whether there are published
/// values, and the description of its first case.
///
/// # Errors
/// If the published values of a scenario are not valid.
pub fn list(sources: &[ScenarioSource]) -> Result<String, SourceError> {
    let mut table = TextTable::new([
        TableColumn::left("scenario"),
        TableColumn::right("cases"),
        TableColumn::left("published"),
        TableColumn::left("description"),
    ]);
    for source in sources {
        let ListedScenario { name, description, cases, published } = ListedScenario::new(source)?;
        let published = if published { "yes" } else { "" };
        table.row([name, &cases.len().to_string(), published, description]);
    }
    Ok(table.to_string())
}

/// Returns the list as JSON objects with `name`, `description`, `cases` (their names) and
/// `published`.
///
/// # Errors
/// If the published values of a scenario are not valid.
pub fn list_json(sources: &[ScenarioSource]) -> Result<String, SourceError> {
    let listed = sources.iter().map(ListedScenario::new).collect::<Result<Vec<_>, _>>()?;
    Ok(serde_json::to_string_pretty(&listed).expect("names are plain data") + "\n")
}

impl CampaignPlan {
    /// Returns a line for each cell: its name, scenario, seed, back end, estimated seconds, whether
    /// it is done, and the case.
    pub fn text(&self) -> String {
        let mut table = TextTable::new([
            TableColumn::left(""),
            TableColumn::left(""),
            TableColumn::right(""),
            TableColumn::left(""),
            TableColumn::right(""),
            // As wide as `done`, so that the columns do not move when the first cell is done.
            TableColumn::left("").at_least(4),
            TableColumn::left(""),
        ]);
        for PlannedCell { cell, name, cost, done, .. } in &self.cells {
            let done = if *done { "done" } else { "–" };
            let seed = cell.seed.to_string();
            let on = cell.on.to_string();
            let cost = format!("{cost:.2} s");
            table.row([name.as_str(), &cell.scenario, &seed, &on, &cost, done, &cell.case]);
        }
        table.to_string()
    }
}
