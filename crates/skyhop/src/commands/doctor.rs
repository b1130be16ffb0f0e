//! `skyhop doctor`: checks whether a gateway can work on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use gateway::doctor::{FindingSeverity, examine, explain, topics};

use crate::print;

/// Exit code if any check fails.
const CHECK_FAILED: u8 = 1;

/// The arguments of `skyhop doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// A configuration whose requirements are checked too
    config: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Print what the manual says about a check, or about a section that a finding names
    #[arg(long, value_name = "TOPIC", conflicts_with_all = ["config", "json"])]
    explain: Option<String>,
}

/// Runs all checks, which change nothing. Returns exit code 1 if one fails.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    if let Some(topic) = &args.explain {
        let Some(text) = explain(topic) else {
            anyhow::bail!("no topic {topic:?}: expected a check, or {}", topics().join(", "));
        };
        print(text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let findings = examine(args.config.as_deref());
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings)? + "\n",
        false => findings.iter().map(|finding| format!("{finding}\n")).collect(),
    };
    print(&text)?;
    let failed = findings.iter().any(|finding| finding.verdict == FindingSeverity::Fail);
    Ok(if failed { ExitCode::from(CHECK_FAILED) } else { ExitCode::SUCCESS })
}
