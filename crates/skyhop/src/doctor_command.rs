//! `skyhop doctor`: what would keep a gateway from working here.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use gateway::doctor::{Finding, Verdict, examine};

use crate::print;

/// The exit code when something is not well.
const UNWELL: u8 = 1;

/// `skyhop doctor …`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration of a hub or a terminal, to see what it needs, too.
    config: Option<PathBuf>,
    /// Prints the findings as JSON.
    #[arg(long)]
    json: bool,
}

/// Looks at everything and changes nothing.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let findings = examine(args.config.as_deref());
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings)? + "\n",
        false => table(&findings),
    };
    print(&text)?;
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    Ok(if failed { ExitCode::from(UNWELL) } else { ExitCode::SUCCESS })
}

fn table(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let verdict = finding.verdict.as_str();
        let _ = writeln!(text, "{verdict:<5} {:<14} {}", finding.check, finding.text);
        if let Some(mend) = &finding.mend {
            let _ = writeln!(text, "{:<20} -> {mend}", "");
        }
    }
    text
}
