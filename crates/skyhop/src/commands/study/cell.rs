//! `skyhop study cell`: runs cells of a plan.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use study::campaign::STEPS;
use study::campaign::{self, CampaignPlan, CellName, CellRecord, PlannedCell};

use super::{StoreArg, back_end, binary, report_failures};
use crate::commands::sim::progress;

/// Arguments of `skyhop study cell`.
#[derive(Debug, clap::Args)]
pub(crate) struct CellArgs {
    /// Names of cells
    #[arg(required = true, value_name = "CELL")]
    cells: Vec<CellName>,
    /// The plan that has them: the output of skyhop study plan --json
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    #[command(flatten)]
    store: StoreArg,
    /// Print each result as a line of JSON, for skyhop study add, and keep none
    #[arg(long, conflicts_with = "store")]
    print: bool,
    /// Number of cells that run at a time
    #[arg(long, default_value = "1", value_name = "T")]
    threads: NonZeroUsize,
}

/// Runs the cells, and stores or prints their results.
pub(super) fn run(args: &CellArgs) -> Result<ExitCode> {
    let plan = CampaignPlan::load(&args.plan, &args.cells, binary()?)?;
    let store = (!args.print).then(|| args.store.store());
    let keep = |record: &CellRecord| match &store {
        Some(store) => store.put(record).map_err(|error| error.to_string()),
        None => crate::print(&record.line()).map_err(|error| error.to_string()),
    };
    // There is a first cell, because the command line requires one.
    let on = plan.cells[0].cell.on;
    if plan.cells.iter().any(|planned| planned.cell.on != on) {
        bail!("these cells run on different back ends: expected those of one");
    }
    let back_end = back_end(on)?;
    let threads = args.threads.get();
    let bar = progress(args.cells.len(), args.cells.len() as u64 * STEPS);
    let step = |_: &PlannedCell, steps| bar.inc(steps);
    let report = campaign::run(&plan, &*back_end, threads, store.as_ref(), keep, step)?;
    bar.finish_and_clear();
    Ok(report_failures(&report))
}
