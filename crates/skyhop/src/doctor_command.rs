//! `skyhop doctor`: checks whether a gateway can work on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use gateway::doctor::{Verdict, examine};

use crate::print;

/// Exit code if any check fails.
const UNWELL: u8 = 1;

/// `skyhop doctor …`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A configuration whose requirements are checked too
    config: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Runs all checks. Changes nothing.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let findings = examine(args.config.as_deref());
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings)? + "\n",
        false => findings.iter().map(|finding| format!("{finding}\n")).collect(),
    };
    print(&text)?;
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    Ok(if failed { ExitCode::from(UNWELL) } else { ExitCode::SUCCESS })
}
