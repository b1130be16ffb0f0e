//! `skyhop study run`: runs a campaign on this machine.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use study::campaign::STEPS;
use study::campaign::{self, BackEnd, CampaignPlan, CellRecord, PlannedCell, ResultStore};

use super::{CampaignArgs, back_end, report_failures};
use crate::commands::sim::{progress, threads};

/// Arguments of `skyhop study run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    campaign: CampaignArgs,
    /// Number of cells that run at a time [default: the number of processors]; results do not
    /// depend on it
    #[arg(long, value_name = "T")]
    threads: Option<NonZeroUsize>,
}

/// Runs a campaign. After each round, stop rules may plan more cells, until they are met or a cell fails.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let store = args.campaign.store.store();
    let back_end = back_end(args.campaign.on.into())?;
    store.tidy();
    let mut plan = args.campaign.plan()?;
    let mut total = campaign::CampaignReport::default();
    let mut is_first = true;
    while is_first || (total.failed.is_empty() && plan.todo().next().is_some()) {
        let report = round(args, &plan, &*back_end, &store)?;
        if is_first {
            // In later rounds, the cells of earlier ones count as kept, too.
            total.kept = report.kept;
        }
        total.run += report.run;
        total.failed.extend(report.failed);
        (plan, is_first) = (args.campaign.plan()?, false);
    }
    crate::print(&summary(&total, &store))?;
    Ok(report_failures(&total))
}

/// Runs the cells of a plan that are not done.
fn round(
    args: &RunArgs,
    plan: &CampaignPlan,
    back_end: &dyn BackEnd,
    store: &ResultStore,
) -> Result<campaign::CampaignReport> {
    let bar = progress(plan.todo().count(), plan.todo().map(weight).sum::<u64>() * STEPS);
    let keep = |record: &CellRecord| store.put(record).map_err(|error| error.to_string());
    let step = |planned: &PlannedCell, steps| bar.inc(steps * weight(planned));
    let report = campaign::run(plan, back_end, threads(args.threads), Some(store), keep, step)?;
    bar.finish_and_clear();
    Ok(report)
}

/// Returns a cell's share of the progress, in milliseconds of its estimated time.
fn weight(planned: &PlannedCell) -> u64 {
    ((planned.cost * 1000.0) as u64).max(1)
}

fn summary(report: &campaign::CampaignReport, store: &ResultStore) -> String {
    let campaign::CampaignReport { run, kept, failed } = report;
    let failed = failed.len();
    let cells = run + kept + failed;
    let store = store.root().display();
    format!(
        "{cells} cells: {run} run, {kept} kept from before, {failed} failed; results in {store}\n"
    )
}
