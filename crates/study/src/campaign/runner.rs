//! Runs the cells of a plan on this machine.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use os::clock;
use rayon::ThreadPoolBuildError;

use super::{
    BackEnd, CampaignPlan, CellRecord, CellResult, CellTiming, PlannedCell, ResultStore, STEPS,
    pool,
};
use crate::VERSION;

/// The outcome of a campaign.
#[derive(Debug, Default)]
pub struct CampaignReport {
    /// Number of cells that were run.
    pub run: usize,
    /// Number of cells whose results the store had.
    pub kept: usize,
    /// The cells that could not be run, the longest first.
    pub failed: Vec<FailedCell>,
}

/// A cell that could not be run or kept.
#[derive(Debug)]
pub struct FailedCell {
    /// The cell as planned.
    pub planned: PlannedCell,
    /// The reason, in one line.
    pub why: String,
}

/// The outcome of a cell.
enum CellOutcome {
    Run,
    Kept,
    Failed(String),
}

/// Runs the plan's cells that are not done, on at most `threads` threads, the longest first, and
/// hands each record to `keep` as soon as it is there. A cell that fails, even by a panic, does not
/// stop the others. `step` is called with a cell and the number of its steps just done; each cell
/// has [`STEPS`] in the end.
///
/// With a `store`, cells that another process has finished in the meantime are not run.
///
/// # Errors
/// If the threads cannot be started.
pub fn run(
    plan: &CampaignPlan,
    back_end: &dyn BackEnd,
    threads: usize,
    store: Option<&ResultStore>,
    keep: impl Fn(&CellRecord) -> Result<(), String> + Sync,
    step: impl Fn(&PlannedCell, u64) + Sync,
) -> Result<CampaignReport, ThreadPoolBuildError> {
    let todo: Vec<&PlannedCell> = plan.todo().collect();
    let threads = back_end.most_at_once().map_or(threads, |most| most.min(threads));
    let fate = |index: usize| {
        let planned: &PlannedCell = todo[index];
        // A damaged result does not count; running the cell again replaces it.
        if store.is_some_and(|store| matches!(store.get(&planned.name), Ok(Some(_)))) {
            step(planned, STEPS);
            return CellOutcome::Kept;
        }
        let record = run_cell(plan, planned, back_end, &|steps| step(planned, steps));
        match record.and_then(|record| keep(&record)) {
            Ok(()) => CellOutcome::Run,
            Err(why) => CellOutcome::Failed(why),
        }
    };
    let fates = pool::run_in_order(&(0..todo.len()).collect::<Vec<_>>(), threads, fate)?;
    let mut report =
        CampaignReport { kept: plan.cells.len() - todo.len(), ..CampaignReport::default() };
    for (planned, fate) in todo.into_iter().zip(fates) {
        match fate {
            CellOutcome::Run => report.run += 1,
            CellOutcome::Kept => report.kept += 1,
            CellOutcome::Failed(why) => {
                report.failed.push(FailedCell { planned: planned.clone(), why });
            }
        }
    }
    Ok(report)
}

/// Runs one cell and measures its times.
fn run_cell(
    plan: &CampaignPlan,
    planned: &PlannedCell,
    back_end: &dyn BackEnd,
    step: &dyn Fn(u64),
) -> Result<CellRecord, String> {
    let start = Instant::now();
    let before = clock::thread_time();
    let work = || back_end.run(&planned.cell, plan.case(planned), step);
    // What a panic leaves half-done is dropped with the run; the plan is only read.
    let metrics = catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panic_message(&*panic))?;
    let metrics = metrics.map_err(|failure| failure.to_string())?;
    let PlannedCell { cell, name, content, .. } = planned;
    let timing = CellTiming {
        scenario: cell.scenario.clone(),
        case: cell.case.clone(),
        on: cell.on,
        wall_s: start.elapsed().as_secs_f64(),
        cpu_s: clock::thread_time().saturating_sub(before).as_secs_f64(),
    };
    let result = CellResult {
        cell: name.clone(),
        scenario: cell.scenario.clone(),
        case: cell.case.clone(),
        seed: cell.seed,
        on: cell.on,
        skyhop: VERSION.to_owned(),
        binary: plan.binary.clone(),
        content: content.clone(),
        metrics,
    };
    Ok(CellRecord { result, timing })
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("no message"))
}
