//! `skyhop lab check`: compares a link's settings with measurements.

use std::process::ExitCode;

use super::link_args::LinkArgs;
use crate::print;

/// Measures the link in its own lab; exit code 1 if it is out of tolerance.
pub(super) fn run(link: &LinkArgs, json: bool) -> anyhow::Result<ExitCode> {
    let preset = link.preset()?;
    lab::enter()?;
    let say = |what: &str| eprintln!("skyhop: measuring {what} …");
    let report = lab::check(&preset, link.seed(), say)?;
    print(&match json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    })?;
    Ok(if report.is_within() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
