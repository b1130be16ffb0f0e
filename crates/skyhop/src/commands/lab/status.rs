//! `skyhop lab status`: shows the labs that are up.

use std::process::ExitCode;

use lab::{FoundLabs, LabName, LabRegistry, LabStatus, RunningLab, StateError};

use crate::print;

/// The arguments of `skyhop lab status`.
#[derive(clap::Args)]
pub(super) struct StatusArgs {
    /// Name of the lab; all that are up if omitted
    name: Option<LabName>,
    /// Print everything as JSON: a list of labs
    #[arg(long)]
    json: bool,
    /// Print names only, one a line
    #[arg(long, conflicts_with_all = ["name", "json"])]
    names: bool,
}

/// Shows one lab, or all that are up.
pub(super) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let found = find_labs(&LabRegistry::default())?;
    if args.names {
        let names = found.up.iter().map(|lab| format!("{}\n", lab.name()));
        print(&names.collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let labs = match &args.name {
        Some(name) => vec![found.named(name)?],
        None => found.up,
    };
    let all = labs.iter().map(RunningLab::status).collect::<Result<Vec<LabStatus>, _>>()?;
    let text = match (args.json, all.is_empty()) {
        (true, _) => serde_json::to_string_pretty(&all)? + "\n",
        (false, true) => "no lab is up\n".to_owned(),
        (false, false) => all.iter().map(LabStatus::to_string).collect::<Vec<_>>().join("\n"),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Finds the labs that are up. Reports labs that were killed and whose remains were removed.
pub(super) fn find_labs(labs: &LabRegistry) -> Result<FoundLabs, StateError> {
    let found = labs.find()?;
    for name in &found.swept {
        crate::print_to_stderr(format_args!(
            "skyhop: lab {name} was killed; its remains have been removed"
        ));
    }
    Ok(found)
}
