//! `skyhop study run`.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::Result;
use study::campaign::{self, Plan, Planned, Record};
use study::runs::STEPS;

use super::{CampaignArgs, back_end, verdict};
use crate::sim_command::{progress, threads};

/// Arguments of `skyhop study run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    campaign: CampaignArgs,
    /// Number of cells that run at a time [default: the number of processors]; results do not
    /// depend on it
    #[arg(long, value_name = "T")]
    threads: Option<NonZeroUsize>,
}

/// Runs a campaign.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let store = args.campaign.store.store();
    let back_end = back_end(args.campaign.on.into())?;
    let plan = args.campaign.plan()?;
    store.tidy();
    let bar = progress(plan.todo().count(), plan.todo().map(weight).sum::<u64>() * STEPS);
    let keep = |record: &Record| store.put(record).map_err(|error| error.to_string());
    let step = |planned: &Planned, steps| bar.inc(steps * weight(planned));
    let report = campaign::run(&plan, &*back_end, threads(args.threads), Some(&store), keep, step)?;
    bar.finish_and_clear();
    crate::print(&summary(&plan, &report, &store))?;
    Ok(verdict(&report))
}

/// A cell's share of the progress, in milliseconds.
fn weight(planned: &Planned) -> u64 {
    ((planned.cost * 1000.0) as u64).max(1)
}

fn summary(plan: &Plan, report: &campaign::Report, store: &campaign::Store) -> String {
    let campaign::Report { run, kept, failed } = report;
    let (cells, failed) = (plan.cells.len(), failed.len());
    let store = store.root().display();
    format!(
        "{cells} cells: {run} run, {kept} kept from before, {failed} failed; results in {store}\n"
    )
}
