//! `skyhop study plan`: shows the cells of a campaign.

use std::process::ExitCode;

use anyhow::Result;

use super::CampaignArgs;

/// Arguments of `skyhop study plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    campaign: CampaignArgs,
    /// Print the plan as JSON, for skyhop study cell
    #[arg(long)]
    json: bool,
    /// Print only the names of the cells that are not done, the longest first
    #[arg(long, conflicts_with = "json")]
    todo: bool,
}

/// Prints a plan as text, as JSON, or as names of cells.
pub(super) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let plan = args.campaign.plan()?;
    let text = match (args.json, args.todo) {
        (true, _) => plan.json(),
        (_, true) => plan.todo().map(|planned| format!("{}\n", planned.name)).collect(),
        _ => plan.text(),
    };
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
