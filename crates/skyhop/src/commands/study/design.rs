//! `skyhop study design`: ranks TCP enhancements for a link.

use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use study::design::{DesignAnswer, DesignQuestion, DesignTask, LinkErrors, OnDemand};
use study::runs::{Extras, RoundProgress, ScenarioRun, replicate_as_declared};
use units::{BitRate, ErrorRate, parse_duration};

use crate::commands::sim::{add_runs, progress, threads};

/// Arguments of `skyhop study design`.
#[derive(Debug, clap::Args)]
pub(crate) struct DesignArgs {
    /// Rate of the forward link, towards the terminals
    #[arg(long, value_name = "RATE")]
    rate: BitRate,
    /// Rate of the return link; with --on-demand, of its carrier [default: a quarter of --rate]
    #[arg(long, value_name = "RATE")]
    return_rate: Option<BitRate>,
    /// Round-trip propagation delay of the satellite hop
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    rtt: std::time::Duration,
    /// Bit error rate, such as 1e-7 [default: 0]
    #[arg(long, value_name = "BER", conflicts_with = "per")]
    ber: Option<ErrorRate>,
    /// Packet error rate, such as 1%
    #[arg(long, value_name = "PER")]
    per: Option<ErrorRate>,
    /// Number of terminals that download at the same time
    #[arg(long, default_value = "1", value_name = "N")]
    terminals: NonZeroU32,
    /// Capacity on demand on the return link
    #[arg(long, value_enum, value_name = "HOW")]
    on_demand: Option<OnDemandArg>,
    /// Number of seeds; intervals need six
    #[arg(long, default_value = "8", value_name = "N")]
    seeds: NonZeroU32,
    /// Number of parallel runs [default: the number of processors]
    #[arg(long, value_name = "T")]
    threads: Option<NonZeroUsize>,
    /// Print the ranking as JSON
    #[arg(long)]
    json: bool,
    /// Write a page to hand on
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the scenarios into this directory, for skyhop study run
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

/// The kind of requests for capacity on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnDemandArg {
    /// By requests for a rate
    Rbdc,
    /// By requests for a volume
    Vbdc,
    /// A sixteenth constantly, the rest by requests for a volume
    CraVbdc,
}

/// Runs the scenarios and ranks the enhancements.
pub(super) fn run(args: &DesignArgs) -> Result<ExitCode> {
    let question = args.question();
    let files = question.files()?;
    if let Some(directory) = &args.write {
        write(directory, &question)?;
    }
    let bar = progress(0, 0);
    let follow =
        RoundProgress { planned: &|runs| add_runs(&bar, runs), step: &|steps| bar.inc(steps) };
    let done = replicate_as_declared(&files, threads(args.threads), Extras::default(), &follow)?;
    bar.finish_and_clear();
    let runs = done.runs.iter().map(|(job, outcome)| ScenarioRun {
        file: job.file,
        case: job.case,
        seed: job.seed,
        metrics: &outcome.metrics,
    });
    let answer = DesignAnswer::new(&question, &runs.collect::<Vec<_>>());
    crate::print(&match args.json {
        true => answer.json(),
        false => format!("{}\n{}\n", answer.table(), answer.notes().join("\n")),
    })?;
    if let Some(path) = &args.html {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let html = answer.page(&format!("skyhop {}", command.join(" ")));
        fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl DesignArgs {
    fn question(&self) -> DesignQuestion {
        let quarter = BitRate::from_bits_per_second((self.rate.bits_per_second() / 4).max(1000));
        let errors = match (self.ber, self.per) {
            (_, Some(per)) => LinkErrors::Per(per.0.get()),
            (ber, None) => LinkErrors::Ber(ber.map_or(0.0, |ber| ber.0.get())),
        };
        DesignQuestion {
            rate: self.rate,
            return_rate: self.return_rate.unwrap_or(quarter),
            rtt: self.rtt,
            errors,
            terminals: self.terminals.get(),
            on_demand: self.on_demand.map(|how| match how {
                OnDemandArg::Rbdc => OnDemand::Rbdc,
                OnDemandArg::Vbdc => OnDemand::Vbdc,
                OnDemandArg::CraVbdc => OnDemand::CraVbdc,
            }),
            seeds: self.seeds.get(),
        }
    }
}

fn write(directory: &PathBuf, question: &DesignQuestion) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    for task in DesignTask::ALL {
        let path = directory.join(format!("{}.toml", task.name()));
        fs::write(&path, question.scenario(task))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
