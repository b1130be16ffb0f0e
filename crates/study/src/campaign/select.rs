//! The results of a store that a report is about.

use std::collections::BTreeSet;

use super::{
    BackEndName, CaseHash, CellResult, ProgramId, ResultStore, ScenarioSource, StoreError,
};

/// Results of a store for some scenarios.
#[derive(Debug)]
pub struct SelectedResults {
    /// The result of a run with the indices of its scenario and case, in the order of scenarios,
    /// cases and seeds.
    pub runs: Vec<(usize, usize, CellResult)>,
    /// The program that computed them: this one, or, if the store has none by it, another.
    pub binary: ProgramId,
    /// Names of the scenario and of the case for each case without a result.
    pub missing: Vec<(String, String)>,
    /// Damaged files of the store.
    pub damaged: Vec<StoreError>,
}

/// Selects the results of all cases of the scenarios, for all seeds that there are. Those of
/// different programs are never mixed: without any by `binary`, those of the program that has the
/// most.
///
/// # Errors
/// If the store cannot be read.
pub fn select(
    sources: &[ScenarioSource],
    on: BackEndName,
    binary: ProgramId,
    store: &ResultStore,
) -> Result<SelectedResults, StoreError> {
    let (results, damaged) = store.results()?;
    let mut runs = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        for (index, case) in source.cases.iter().enumerate() {
            let content = CaseHash::of(case);
            // Not by cell names, which depend on the program: results of another one may be shown.
            let own = results.iter().filter(|result| {
                result.on == on && result.scenario == source.name && result.content == content
            });
            let mut own: Vec<_> = own.map(|result| (number, index, result.clone())).collect();
            // The store's order is that of the names, which are hashes.
            own.sort_by_key(|(_, _, result)| result.seed);
            runs.extend(own);
        }
    }
    let binary = chosen(&runs, binary);
    runs.retain(|(_, _, result)| result.binary == binary);
    let found: BTreeSet<_> = runs.iter().map(|(number, index, _)| (*number, *index)).collect();
    let all = sources.iter().enumerate().flat_map(|(number, source)| {
        source.cases.iter().enumerate().map(move |(index, case)| (number, index, source, case))
    });
    let missing = all.filter(|(number, index, ..)| !found.contains(&(*number, *index)));
    let missing =
        missing.map(|(_, _, source, case)| (source.name.clone(), case.name.clone())).collect();
    Ok(SelectedResults { runs, binary, missing, damaged })
}

/// Chooses the program whose results are shown.
fn chosen(runs: &[(usize, usize, CellResult)], this: ProgramId) -> ProgramId {
    let count = |binary: &ProgramId| runs.iter().filter(|run| run.2.binary == *binary).count();
    if count(&this) > 0 {
        return this;
    }
    // Sorted, so that a tie always chooses the same program.
    let all: BTreeSet<_> = runs.iter().map(|run| &run.2.binary).collect();
    all.into_iter().max_by_key(|binary| count(binary)).cloned().unwrap_or(this)
}
