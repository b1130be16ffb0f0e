//! `skyhop man`: manual pages, generated from the definition of the command line.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory;
use clap_mangen::{Man, generate_to};

use crate::{Cli, print};

/// The arguments of `skyhop man`.
#[derive(clap::Args)]
#[command(after_help = "Read it:  skyhop man | man -l -")]
pub(crate) struct ManArgs {
    /// Directory for the pages of all commands (skyhop.1, skyhop-lab.1, skyhop-lab-run.1, …);
    /// created if missing. Without it, print skyhop.1
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Prints the page of `skyhop`, or writes the pages of all commands, replacing existing files.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<ExitCode> {
    match &args.directory {
        None => {
            let mut page = Vec::new();
            // `generate_to` does the same, because `help` has no page of its own.
            Man::new(Cli::command().disable_help_subcommand(true)).render(&mut page)?;
            print(&String::from_utf8(page)?)?;
        }
        Some(directory) => fs::create_dir_all(directory)
            .and_then(|()| generate_to(Cli::command(), directory))
            .with_context(|| format!("cannot write pages to {}", directory.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}
