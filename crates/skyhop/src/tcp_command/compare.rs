//! `skyhop tcp compare`: our endpoint against the kernel's, on the same links.
//!
//! Each run starts a new lab with the run's seed for every sender, one after the other, so that
//! changes in the machine's load affect all senders. The client is always the kernel's; only the
//! sender differs.

mod table;
mod transfer;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use lab::TestObject;
use meter::CongestionControl;
use tcp::Config;
use tcp::cc::{ControllerSpec, FastRecovery};

use self::table::{Comparison, Row};
use self::transfer::{Sender, Transfer};
use crate::lab_command::LinkArgs;

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
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    options: Config,
    /// Print every run as JSON
    #[arg(long)]
    json: bool,
    /// Write the packets of each transfer as pcapng, from both sides of the hop, into
    /// DIR/CONTROLLER-SEED-kernel and DIR/CONTROLLER-SEED-skyhop
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
}

impl CompareArgs {
    /// Our endpoint with this controller. Like Linux, it uses the same loss recovery with every
    /// controller, and stays in recovery until all losses are repaired: RFC 2581's Reno does not,
    /// and would halve its window for each loss in a window.
    fn endpoint(&self, controller: &ControllerSpec) -> Box<Config> {
        let recovery = self.options.recovery.unwrap_or(FastRecovery::NewReno);
        let controller = controller.clone();
        Box::new(Config { controller, recovery: Some(recovery), ..self.options.clone() })
    }
}

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode> {
    let preset = args.link.preset()?;
    let object = TestObject::named(&args.object);
    let object = object.with_context(|| format!("{:?}: expected a size: 10MB", args.object))?;
    ensure!(args.runs > 0, "--runs 0: expected 1 or more");
    let mut rows = Vec::new();
    for spec in &args.controllers {
        let text = spec.to_string();
        let name = text.split(':').next().unwrap_or_default().to_owned();
        rows.push((spec, name.parse::<CongestionControl>()?, Row::new(text)));
    }
    lab::enter()?;
    let bar = progress(u64::from(args.runs) * 2 * rows.len() as u64);
    for run in 0..args.runs {
        let seed = args.link.seed() + u64::from(run);
        for (spec, name, row) in &mut rows {
            let mut both = [Sender::Kernel(name.clone()), Sender::Ours(args.endpoint(spec))];
            // Alternate the order, so that neither sender always goes first.
            if run % 2 == 1 {
                both.reverse();
            }
            for sender in both {
                let who = sender.name();
                bar.set_message(format!("{} {who}, seed {seed}", row.controller));
                let pcap = args.pcap.as_ref();
                let pcap = pcap.map(|dir| dir.join(format!("{}-{seed}-{who}", row.controller)));
                let transfer = Transfer { preset: &preset, seed, object, pcap };
                let samples = if who == "kernel" { &mut row.kernel } else { &mut row.skyhop };
                samples.push(transfer.run(sender)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let rows = rows.into_iter().map(|(.., row)| row).collect();
    let comparison = Comparison::new(object, args.link.seed(), args.runs, rows);
    crate::print(&match args.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => comparison.to_string(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn progress(transfers: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:40} {pos} of {len} transfers, {eta} left: {msg}");
    ProgressBar::new(transfers).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
