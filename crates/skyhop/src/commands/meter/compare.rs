//! `skyhop meter compare`: compares the runs of several files.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use meter::{RunFile, compare};

use super::print;

/// Arguments of `skyhop meter compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Output of `skyhop meter … --runs N --json`, one file per variant; the first is the baseline
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let files: Result<Vec<RunFile>> = args.files.iter().map(|file| read(file)).collect();
    let comparison = compare(&files?, args.seed)?;
    print(&match args.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => comparison.to_string(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &str) -> Result<RunFile> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    Ok(RunFile::read(file, &text)?)
}
