//! The plan of a campaign: its cells, and those that are done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use scenario::{Replications, ScenarioCase, StopRule};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cost::CostEstimates;
use super::stop_rule::{StopDecision, need};
use super::{
    BackEndName, CaseHash, Cell, CellName, CellResult, ProgramId, ResultStore, ScenarioOrigin,
    ScenarioSource, SourceError, StoreError,
};

/// The cells of a campaign, in the order of scenarios, cases and seeds.
#[derive(Debug)]
pub struct CampaignPlan {
    /// The scenarios whose cases the cells run.
    pub sources: Vec<ScenarioSource>,
    /// The program that computes the cells.
    pub binary: ProgramId,
    /// The cells, done or not.
    pub cells: Vec<PlannedCell>,
}

/// A cell of a plan.
#[derive(Debug, Clone)]
pub struct PlannedCell {
    /// The case, the seed and the back end.
    pub cell: Cell,
    /// Name of the cell, under which its result is stored.
    pub name: CellName,
    /// Hash of the case's content.
    pub content: CaseHash,
    /// Index of the scenario among [`CampaignPlan::sources`].
    pub source: usize,
    /// Index of the case among the scenario's.
    pub index: usize,
    /// Estimated time to run it, in seconds.
    pub cost: f64,
    /// Set if the store has its result.
    pub done: bool,
}

/// The cells that a plan is to have: every case of its scenarios with each of these seeds.
#[derive(Debug, Clone, Copy)]
pub struct WantedCells {
    /// Number of seeds: 1, 2, … `None` for those that each scenario's file asks for; of a stop
    /// rule, those of the rounds that are done and of the next one.
    pub seeds: Option<u32>,
    /// The back end for all of them.
    pub on: BackEndName,
}

/// The reason why a plan cannot be made or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A stop rule is about a metric that no run of the case has.
    #[error(
        "scenario {scenario}, case {case:?}: its stop rule is about {metric}, which no run has"
    )]
    NoMetric {
        /// Name of the scenario.
        scenario: String,
        /// Name of the case.
        case: String,
        /// The metric, with its subject.
        metric: String,
    },
    /// Two scenarios have the same name.
    #[error("two scenarios are called {0:?}: run them as two campaigns, or rename one")]
    SameName(String),
    /// A scenario is not meant for the back end on which it is to run.
    #[error("scenario {scenario} does not run on {on}: its `back-ends` leave it out")]
    NotFor {
        /// Name of the scenario.
        scenario: String,
        /// The back end on which it was to run.
        on: BackEndName,
    },
    /// The plan's file cannot be read.
    #[error("{file}: {cause}")]
    Read {
        /// Path of the plan's file.
        file: String,
        /// The error of reading the file.
        cause: io::Error,
    },
    /// The file is not a plan.
    #[error("{file}: not a plan of `skyhop study plan --json`: {cause}")]
    Parse {
        /// Path of the plan's file.
        file: String,
        /// The error of parsing the file, with its position.
        cause: serde_json::Error,
    },
    /// The plan does not have this cell.
    #[error("{file} has no cell {cell}")]
    NoCell {
        /// Path of the plan's file.
        file: String,
        /// Name of the missing cell.
        cell: CellName,
    },
    /// The name that follows from this program and machine is another one.
    #[error(
        "cell {cell} ({scenario}, case {case:?}) is another one here: expected the program that \
         made the plan ({binary}), and the same presets and traces"
    )]
    Different {
        /// Name of the cell in the plan.
        cell: CellName,
        /// Name of the scenario.
        scenario: String,
        /// Name of the case.
        case: String,
        /// The program that made the plan.
        binary: ProgramId,
    },
    /// A scenario of the plan is not valid.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl CampaignPlan {
    /// Plans the wanted cells. Those with a result in the store are done. Damaged files of the
    /// store are returned, and their cells count as not run.
    ///
    /// With a stop rule, a plan has a round: once its cells are done, another plan has more, or the rule is
    /// satisfied.
    ///
    /// # Errors
    /// If two scenarios have the same name, one is not for where it is to run, or a stop rule is about a metric that
    /// the results do not have.
    pub fn new(
        sources: Vec<ScenarioSource>,
        wanted: WantedCells,
        binary: ProgramId,
        store: &ResultStore,
    ) -> Result<(Self, Vec<StoreError>), PlanError> {
        check_sources(&sources, wanted.on)?;
        let costs = CostEstimates::new(store.timings());
        let mut cells = Vec::new();
        let mut damaged = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            for (index, case) in source.cases.iter().enumerate() {
                let content = CaseHash::of(case);
                let mut get = |seed| {
                    let cell = Cell {
                        scenario: source.name.clone(),
                        case: case.name.clone(),
                        seed,
                        on: wanted.on,
                    };
                    let name = cell.name(&content, &binary);
                    let cost = costs.of(&cell, case);
                    let result = store.get(&name).unwrap_or_else(|error| {
                        damaged.push(error);
                        None
                    });
                    let content = content.clone();
                    let done = result.is_some();
                    (PlannedCell { cell, name, content, source: number, index, cost, done }, result)
                };
                match (&source.replications, wanted.seeds) {
                    (Replications::Until(rule), None) => cells.extend(round(rule, get)?),
                    // A given number of seeds replaces a stop rule.
                    _ => {
                        cells
                            .extend(source.seeds(wanted.seeds).into_iter().map(|seed| get(seed).0));
                    }
                }
            }
        }
        Ok((Self { sources, binary, cells }, damaged))
    }

    /// Returns the case of a cell.
    pub fn case(&self, planned: &PlannedCell) -> &ScenarioCase {
        &self.sources[planned.source].cases[planned.index]
    }

    /// Returns the cells that are not done, the longest first; of equally long ones in the plan's
    /// order.
    pub fn todo(&self) -> impl Iterator<Item = &PlannedCell> {
        let mut todo: Vec<_> = self.cells.iter().filter(|planned| !planned.done).collect();
        // A stable sort: equally long cells keep the plan's order.
        todo.sort_by(|a, b| b.cost.total_cmp(&a.cost));
        todo.into_iter()
    }

    /// Returns the plan as JSON, for processes that run some of its cells ([`Self::load`]). It
    /// holds the texts of scenarios that are not part of the program, but not the presets and
    /// traces that they name.
    pub fn json(&self) -> String {
        let scenario = |source: &ScenarioSource| (source.name.clone(), source.origin.clone());
        let cell = |planned: &PlannedCell| PlannedText {
            cell: planned.name.clone(),
            scenario: planned.cell.scenario.clone(),
            case: planned.cell.case.clone(),
            seed: planned.cell.seed,
            on: planned.cell.on,
            estimate_s: planned.cost,
            done: planned.done,
        };
        let text = PlanText {
            skyhop: crate::VERSION.to_owned(),
            binary: self.binary.clone(),
            scenarios: self.sources.iter().map(scenario).collect(),
            cells: self.cells.iter().map(cell).collect(),
        };
        serde_json::to_string_pretty(&text).expect("plans are plain data") + "\n"
    }

    /// Reads the wanted cells from the plan in the file at `path`, in the order given.
    ///
    /// # Errors
    /// If the file is not a plan or lacks a cell, or if `binary` is not the program that made it,
    /// or presets or traces are not those of the machine that made it.
    pub fn load(path: &Path, wanted: &[CellName], binary: ProgramId) -> Result<Self, PlanError> {
        let file = path.display().to_string();
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(cause) => return Err(PlanError::Read { file, cause }),
        };
        let text: PlanText = match serde_json::from_slice(&text) {
            Ok(text) => text,
            Err(cause) => return Err(PlanError::Parse { file, cause }),
        };
        // A map, because a process may be asked for all cells of a large plan.
        let known: BTreeMap<&CellName, &PlannedText> =
            text.cells.iter().map(|cell| (&cell.cell, cell)).collect();
        let mut plan = Self { sources: Vec::new(), binary, cells: Vec::new() };
        for name in wanted {
            let Some(planned) = known.get(name) else {
                return Err(PlanError::NoCell { file, cell: name.clone() });
            };
            let planned = plan.adopt_cell(planned, &text)?;
            plan.cells.push(planned);
        }
        Ok(plan)
    }

    /// Converts a cell of a plan's file to one of this plan, to which its scenario is added.
    fn adopt_cell(
        &mut self,
        planned: &PlannedText,
        text: &PlanText,
    ) -> Result<PlannedCell, PlanError> {
        let different = || different(planned, text);
        // Checked first: another version may not even be able to read the scenario.
        if text.binary != self.binary {
            return Err(different());
        }
        let source = self.source_of(planned, text)?;
        let mut cases = self.sources[source].cases.iter().enumerate();
        let case = cases.find(|(_, case)| case.name == planned.case);
        let (index, case) = case.ok_or_else(different)?;
        let cell = Cell {
            scenario: planned.scenario.clone(),
            case: planned.case.clone(),
            seed: planned.seed,
            on: planned.on,
        };
        let content = CaseHash::of(case);
        let name = cell.name(&content, &self.binary);
        // The presets or traces of this machine may differ from those that the plan was made with.
        if name != planned.cell {
            return Err(different());
        }
        Ok(PlannedCell {
            cell,
            name,
            content,
            source,
            index,
            cost: planned.estimate_s,
            // Requested by name; `run` still skips it if its own store has the result.
            done: false,
        })
    }

    /// Returns the index of a cell's scenario, which is added if this plan does not have it yet.
    fn source_of(&mut self, planned: &PlannedText, text: &PlanText) -> Result<usize, PlanError> {
        let known = self.sources.iter().position(|source| source.name == planned.scenario);
        if let Some(number) = known {
            return Ok(number);
        }
        let origin = text.scenarios.get(&planned.scenario);
        let origin = origin.ok_or_else(|| different(planned, text))?;
        self.sources.push(ScenarioSource::from_origin(&planned.scenario, origin.clone())?);
        Ok(self.sources.len() - 1)
    }
}

fn different(planned: &PlannedText, text: &PlanText) -> PlanError {
    PlanError::Different {
        cell: planned.cell.clone(),
        scenario: planned.scenario.clone(),
        case: planned.case.clone(),
        binary: text.binary.clone(),
    }
}

/// Checks that names are unique, and that each scenario is for this back end.
fn check_sources(sources: &[ScenarioSource], on: BackEndName) -> Result<(), PlanError> {
    // A plan's file and the store know scenarios only by name.
    let mut names = BTreeSet::new();
    if let Some(twice) = sources.iter().find(|source| !names.insert(&source.name)) {
        return Err(PlanError::SameName(twice.name.clone()));
    }
    match sources.iter().find(|source| !on.is_among(&source.back_ends)) {
        Some(other) => Err(PlanError::NotFor { scenario: other.name.clone(), on }),
        None => Ok(()),
    }
}

/// Plans the cells of a case that a stop rule asks for: those that are done, from the first seed
/// without a gap, and those of the next round; if they satisfy the rule, as many as do. `get` plans
/// a seed and returns its result, if there is one.
fn round(
    rule: &StopRule,
    mut get: impl FnMut(u64) -> (PlannedCell, Option<CellResult>),
) -> Result<Vec<PlannedCell>, PlanError> {
    let mut seeds = Replications::from_first(rule.first, rule.most).seeds().into_iter();
    let mut cells = Vec::new();
    let mut values = Vec::new();
    for seed in seeds.by_ref() {
        let (planned, result) = get(seed);
        cells.push(planned);
        // A stop rule is applied to the seeds in order, so results behind a gap do not count.
        let Some(result) = result else { break };
        let value = sim::median_of_runs(&[&result.metrics], &rule.name.of, &rule.name.metric);
        // NaN keeps the seed's place, and the interval unknown.
        values.push(value.unwrap_or(f64::NAN));
    }
    // A rule without values is never satisfied, and would run every case to its maximum.
    if !values.is_empty() && values.iter().all(|value| value.is_nan()) {
        let Cell { scenario, case, .. } = cells.swap_remove(0).cell;
        let metric = format!("{}.{}", rule.name.of, rule.name.metric);
        return Err(PlanError::NoMetric { scenario, case, metric });
    }
    let count = match need(rule, &values) {
        StopDecision::Enough(count) => count,
        StopDecision::More(more) => values.len() + more,
        StopDecision::Exhausted => values.len(),
    };
    let more = count.saturating_sub(cells.len());
    cells.extend(seeds.take(more).map(|seed| get(seed).0));
    // An earlier round may have run more seeds than the rule needs.
    cells.truncate(count);
    Ok(cells)
}

/// A plan as written to a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    skyhop: String,
    binary: ProgramId,
    scenarios: BTreeMap<String, ScenarioOrigin>,
    cells: Vec<PlannedText>,
}

/// A cell as written to a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PlannedText {
    cell: CellName,
    scenario: String,
    case: String,
    seed: u64,
    on: BackEndName,
    estimate_s: f64,
    done: bool,
}
