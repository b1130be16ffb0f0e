//! `skyhop tcp compare`: compares skyhop's endpoint with the kernel's on the same links.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use lab::TestObject;
use study::senders::{ControllerPair, SenderComparison};
use tcp::Config;
use tcp::cc::ControllerSpec;

use crate::commands::lab::LinkArgs;

#[derive(clap::Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    link: LinkArgs,
    /// Object size, such as 10MB
    #[arg(long, value_name = "SIZE", default_value = "10MB")]
    object: String,
    /// Number of runs, each with the next seed
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Congestion controls that the kernel has; those of our endpoint may have options
    #[arg(long = "cc", value_name = "NAME", value_delimiter = ' ', default_values = ["cubic:hystart=2011", "reno"])]
    controllers: Vec<ControllerSpec>,
    /// Further options of our endpoint, on top of the linux profile
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, value_parser = super::on_device)]
    options: Config,
    /// Print every run as JSON
    #[arg(long)]
    json: bool,
    /// Write the packets of each transfer as pcapng, from both sides of the hop, into
    /// DIR/CONTROLLER-SEED-kernel and DIR/CONTROLLER-SEED-skyhop
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
}

pub(crate) fn run(args: CompareArgs) -> Result<ExitCode> {
    let object = TestObject::named(&args.object);
    let object = object.with_context(|| format!("{:?}: expected a size: 10MB", args.object))?;
    ensure!(args.runs > 0, "--runs 0: expected 1 or more");
    let controllers = args.controllers.into_iter().map(ControllerPair::try_from);
    let senders = SenderComparison {
        preset: args.link.preset()?,
        first_seed: args.link.seed(),
        runs: args.runs,
        object,
        controllers: controllers.collect::<Result<_, _>>()?,
        options: args.options,
        pcap: args.pcap,
    };
    // Before the progress bar, which has a thread: only a process without threads can enter.
    lab::enter()?;
    let template = "{bar:40} {pos} of {len} transfers, {eta} left: {msg}";
    let bar = crate::progress::bar(senders.transfers(), template);
    let comparison = senders.compare(|done, next| {
        bar.set_position(done);
        bar.set_message(next.to_owned());
    })?;
    bar.finish_and_clear();
    crate::print(&match args.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => comparison.to_string(),
    })?;
    Ok(ExitCode::SUCCESS)
}
