//! `skyhop lab check`: compares a link's settings with measurements.

use std::process::ExitCode;

use super::link_args::LinkArgs;
use crate::{print, progress};

/// Measures the link in a lab of its own. Returns exit code 1 if a value is out of tolerance.
pub(super) fn run(link: &LinkArgs, json: bool) -> anyhow::Result<ExitCode> {
    let preset = link.preset()?;
    // Before the spinner, which has a thread: only a process without threads can enter.
    lab::enter()?;
    let spinner = progress::spinner(String::new());
    let say = |what: &str| spinner.set_message(format!("measuring {what}"));
    let report = lab::check(&preset, link.seed(), say)?;
    spinner.finish_and_clear();
    print(&match json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    })?;
    Ok(if report.is_within() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
