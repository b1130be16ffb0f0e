//! `skyhop lab exec`: runs a command in a running lab.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::bail;
use lab::{FoundLabs, LabName, LabRegistry, NETNS_VARIABLE, Node, RunningLab};

use super::not_run;

/// The arguments of `skyhop lab exec`.
#[derive(clap::Args)]
pub(super) struct ExecArgs {
    /// Name of the lab; optional if only one is up
    #[arg(long, value_name = "NAME")]
    lab: Option<LabName>,
    /// Host: client, terminal, hub or server; client2, terminal2, … in a star
    node: Node,
    /// Command and its arguments; your shell if omitted
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs a command on a host of a lab; returns its exit code.
pub(super) fn exec(args: &ExecArgs) -> anyhow::Result<ExitCode> {
    if args.lab.is_none() && std::env::var_os(NETNS_VARIABLE).is_some() {
        // The process is already inside a lab: entering the host's namespace is enough.
        lab::find_netns(args.node)?.enter()?;
        let mut command = args.command();
        let error = command.exec();
        return Ok(not_run(&command, &error));
    }
    let found = super::status::find_labs(&LabRegistry::default())?;
    if args.lab.is_none() && found.up.is_empty() {
        bail!("not inside a lab, and no lab is up: skyhop lab up PRESET");
    }
    let entry = choose(found, args.lab.as_ref())?.join(&args.node.to_string())?;
    let mut command = args.command();
    entry.enter()?;
    match entry.run(&mut command) {
        Ok(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        Err(error) => Ok(not_run(&command, &error)),
    }
}

impl ExecArgs {
    fn command(&self) -> Command {
        let Some((program, arguments)) = self.command.split_first() else {
            let mut shell = Command::new(own_shell());
            shell.env("PS1", prompt(&self.node.to_string()));
            return shell;
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }
}

/// Returns the user's shell.
pub(super) fn own_shell() -> OsString {
    std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())
}

/// Returns the prompt of a shell in a lab. A shell whose start-up file sets another prompt still has
/// `SKYHOP_LAB`.
pub(super) fn prompt(place: &str) -> String {
    format!("({place}) \\$ ")
}

/// Returns the lab of this name or, without one, the only lab that is up.
pub(super) fn choose(found: FoundLabs, name: Option<&LabName>) -> anyhow::Result<RunningLab> {
    if let Some(name) = name {
        return Ok(found.named(name)?);
    }
    let names: Vec<String> = found.up.iter().map(|lab| lab.name().to_string()).collect();
    match found.up.into_iter().next() {
        Some(only) if names.len() == 1 => Ok(only),
        Some(_) => bail!("several labs are up: choose one of {}", names.join(", ")),
        None => bail!("no lab is up: skyhop lab up PRESET"),
    }
}
