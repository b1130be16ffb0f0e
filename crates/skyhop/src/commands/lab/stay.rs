//! `skyhop lab up`, `down` and `set`: labs that outlive the command.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Parser;
use lab::{
    AppliedChange, DetachedProcess, LabCallbacks, LabCapture, LabName, LabRegistry, LinkChange,
    PersistentLab, Preset, StartingLab,
};
use scenario::PresetOverrides;
use study::GatewayPair;

use super::inside::choose;
use super::link_args::{LinkArgs, LinkOptions};
use super::{GatewaysArg, describe};

/// The arguments of `skyhop lab up`.
#[derive(clap::Args)]
pub(super) struct UpArgs {
    #[command(flatten)]
    link: LinkArgs,
    /// Name of the lab [default: the preset's name]
    #[arg(long)]
    name: Option<LabName>,
    #[command(flatten)]
    gateways: GatewaysArg,
    /// Capture both sides of each link as pcapng files in this directory until the lab ends
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
}

/// The arguments of `skyhop lab down`.
#[derive(clap::Args)]
pub(super) struct DownArgs {
    /// Name of the lab; optional if only one is up
    name: Option<LabName>,
    /// Stop all labs
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// The arguments of `skyhop lab set`.
#[derive(clap::Args, Clone)]
pub(super) struct SetArgs {
    /// Name of the lab; optional if only one is up
    name: Option<LabName>,
    #[command(flatten)]
    link: LinkOptions,
    /// Cancel all outages; --outage counts from now
    #[arg(long, help_heading = "Link")]
    end_outages: bool,
}

/// Starts a lab and detaches from it.
pub(super) fn up(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let preset = args.link.preset()?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => preset.name.parse().context(
            "the preset's name is not a valid lab name: use \
                                             --name",
        )?,
    };
    // The lab's process has another working directory, so a relative path would lead elsewhere.
    let pcap = args.pcap.as_ref().map(std::path::absolute).transpose()?;
    let taken = LabRegistry::default().reserve(&name)?;
    match lab::detach(taken)? {
        DetachedProcess::Command(Ok(())) => {
            crate::print(&welcome(&name, &preset, args.gateways.gateways))?;
            Ok(ExitCode::SUCCESS)
        }
        DetachedProcess::Command(Err(error)) => Err(anyhow!(error)),
        DetachedProcess::Lab(starting) => keep(args, &preset, pcap, starting),
    }
}

/// Returns usage hints for the new lab.
fn welcome(name: &LabName, preset: &Preset, gateways: bool) -> String {
    let through = if gateways { ", through the gateway pair" } else { "" };
    format!(
        "lab {name} is up: {}{through}\n\
         \x20 skyhop lab exec --lab {name} client -- curl -o /dev/null http://server/10MB\n\
         \x20 skyhop lab exec --lab {name} client      your shell there\n\
         \x20 skyhop lab set {name} --per 1%           and other options of its links\n\
         \x20 skyhop lab status\n\
         \x20 skyhop lab down {name}\n",
        describe(preset)
    )
}

/// Runs the lab in the detached process until it is stopped.
fn keep(
    args: &UpArgs,
    preset: &Preset,
    pcap: Option<PathBuf>,
    starting: StartingLab,
) -> anyhow::Result<ExitCode> {
    let start = || -> anyhow::Result<_> {
        let lab = super::start(preset, args.link.seed())?;
        let meter = super::serve_meter(&lab)?;
        let pair = args.gateways.start(&lab, preset)?;
        let capture = pcap.map(|directory| LabCapture::start(&lab, &directory)).transpose()?;
        Ok((lab, meter, pair, capture))
    };
    let (lab, _meter, pair, _capture) = match start() {
        Ok(started) => started,
        Err(error) => starting.fail(&format!("{error:#}")),
    };
    let seed = args.link.seed();
    let gateways = pair.is_some();
    let mut keeper = LabHousekeeper { pair, failed: false };
    let mut stand = PersistentLab { lab, seed, gateways };
    let kept = stand.keep(starting, &mut keeper);
    let stopped = keeper.pair.map_or(Ok(()), GatewayPair::stop);
    kept?;
    stopped?;
    Ok(ExitCode::SUCCESS)
}

/// Supervises the gateways of a detached lab, and parses the options of `skyhop lab set`.
struct LabHousekeeper {
    pair: Option<GatewayPair>,
    failed: bool,
}

impl LabCallbacks for LabHousekeeper {
    fn change(&mut self, preset: &Preset, change: &LinkChange) -> Result<AppliedChange, String> {
        // Paths of traces are relative to the directory in which `skyhop lab set` was called.
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        std::env::set_current_dir(&change.directory)
            .map_err(|error| format!("cannot enter {}: {error}", change.directory.display()))?;
        let changed = parse_change(preset, &change.options);
        std::env::set_current_dir(here).map_err(|error| error.to_string())?;
        changed
    }

    fn tick(&mut self) {
        let Some(pair) = self.pair.as_mut().filter(|_| !self.failed) else { return };
        if let Err(error) = pair.check() {
            crate::print_to_stderr(format_args!("skyhop: {error:#}"));
            self.failed = true;
        }
    }
}

/// Parser of the options of `skyhop lab set`, as given on the command line.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct SetLine {
    #[command(flatten)]
    args: SetArgs,
}

fn parse_change(preset: &Preset, options: &[String]) -> Result<AppliedChange, String> {
    let line = SetLine::try_parse_from(options).map_err(|error| error.to_string())?;
    let mut overrides = line.args.link.overrides();
    // They count from now, so they are added to the running links and not to the preset.
    let outages = overrides.outages.take();
    let preset = preset.clone().with(&overrides).map_err(|error| error.to_string())?;
    let end_outages = line.args.end_outages || outages.as_ref().is_some_and(Vec::is_empty);
    Ok(AppliedChange { preset, outages: outages.unwrap_or_default(), end_outages })
}

/// Stops labs, and cleans up after labs that were killed.
pub(super) fn down(args: &DownArgs) -> anyhow::Result<ExitCode> {
    let found = super::status::find_labs(&LabRegistry::default())?;
    let killed = |name: &LabName| found.swept.contains(name);
    // A lab that was killed is already down, which is what was asked for.
    let nothing_left = match &args.name {
        Some(name) => killed(name),
        None => found.up.is_empty() && (args.all || !found.swept.is_empty()),
    };
    if nothing_left {
        return Ok(ExitCode::SUCCESS);
    }
    let labs = if args.all { found.up } else { vec![choose(found, args.name.as_ref())?] };
    for lab in labs {
        lab.down()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the options to a lab, which changes its links.
pub(super) fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    if args.link.overrides() == PresetOverrides::default() && !args.end_outages {
        bail!("nothing to set: see the options of skyhop lab set --help");
    }
    let lab = choose(super::status::find_labs(&LabRegistry::default())?, args.name.as_ref())?;
    // The lab's process parses the options, because it knows the preset that they change.
    let line = std::env::args_os().skip_while(|argument| argument != "set").skip(1);
    let options = line.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let directory = std::env::current_dir().context("cannot determine the working directory")?;
    lab.change(LinkChange { options, directory })?;
    Ok(ExitCode::SUCCESS)
}
