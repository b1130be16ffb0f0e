//! `skyhop study list`: lists scenarios.

use std::process::ExitCode;

use anyhow::Result;
use study::campaign::{ScenarioSource, list, list_json};

/// Arguments of `skyhop study list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListScenariosArgs {
    /// Scenario files, instead of the scenarios that are part of the program
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists the given scenarios, or those of the program.
pub(super) fn run(args: &ListScenariosArgs) -> Result<ExitCode> {
    let sources = match &args.files[..] {
        [] => ScenarioSource::all_shipped()?,
        files => files.iter().map(|file| ScenarioSource::named(file)).collect::<Result<_, _>>()?,
    };
    crate::print(&if args.json { list_json(&sources)? } else { list(&sources)? })?;
    Ok(ExitCode::SUCCESS)
}
