//! `skyhop tcp compare`: our endpoint beside the kernel's, on the same links.
//!
//! Each run has a new lab with the run's seed for every sender, one after the
//! other, so that whatever else the machine does meets all of them. The client
//! is the kernel's in all of them; what differs is who sends.

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
    /// What is sent, such as 10MB.
    #[arg(long, value_name = "SIZE", default_value = "10MB")]
    object: String,
    /// How often, each time with the next seed.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The congestion control, of those that the kernel has; of ours with its
    /// options.
    #[arg(long = "cc", value_name = "NAME", value_delimiter = ' ', default_values = ["cubic:hystart=2011", "reno"])]
    controllers: Vec<ControllerSpec>,
    /// Further options of our endpoint, whose profile is linux.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    options: Config,
    /// Print every run as JSON.
    #[arg(long)]
    json: bool,
    /// Write the packets of each transfer as pcapng, on both sides of the hop,
    /// into DIR/CONTROLLER-SEED-kernel and DIR/CONTROLLER-SEED-skyhop.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
}

impl CompareArgs {
    /// Our endpoint with this controller. What repairs losses is the same with
    /// every controller of Linux, and stays in recovery until all is repaired:
    /// RFC 2581's Reno, which does not, would halve its window for each loss of a
    /// window.
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
            // Who is first changes from run to run.
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
