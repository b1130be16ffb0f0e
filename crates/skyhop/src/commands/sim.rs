//! `skyhop sim`: simulates scenario files.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use indicatif::ProgressBar;
use scenario::{BackEnd, Published, Replications, Scenario, Statistic};
use study::campaign::STEPS;
use study::runs::{
    self, Extras, RoundProgress, RunJob, RunOutcome, ScenarioFile, replicate_as_declared,
};

/// The arguments of `skyhop sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// Scenario files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run seeds 1 to N [default: as often as the file says]
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroU32>,
    /// Number of parallel runs [default: the number of processors]; results do not depend on it
    #[arg(long, value_name = "T")]
    threads: Option<NonZeroUsize>,
    /// Run only this case of the files
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Print every figure of every run as CSV
    #[arg(long, conflicts_with = "published")]
    csv: bool,
    /// Print every figure of every case as JSON, or with --published every published value beside
    /// ours
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Compare with the published values in `NAME.published.toml`
    #[arg(long)]
    published: bool,
    /// Draw sequence, window and queue over time of each case's first seed, as SVG
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the packets of the first case's first seed as pcapng
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Node at which to capture
    #[arg(long, value_enum, default_value = "server", requires = "pcap")]
    pcap_at: CaptureNode,
}

/// Where packets are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CaptureNode {
    /// At the servers
    Server,
    /// At the clients
    Client,
    /// At the hub's gateway
    Hub,
    /// At the first terminal's gateway
    Terminal,
}

impl From<CaptureNode> for runs::CapturePoint {
    fn from(at: CaptureNode) -> Self {
        match at {
            CaptureNode::Server => Self::Server,
            CaptureNode::Client => Self::Client,
            CaptureNode::Hub => Self::Hub,
            CaptureNode::Terminal => Self::Terminal,
        }
    }
}

/// Runs the scenarios and prints their results.
pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    let files = args.files.iter().map(|path| read(path, args)).collect::<Result<Vec<_>>>()?;
    let published = args.published.then(|| files.iter().map(read_published).collect());
    let published: Option<Vec<Published>> = published.transpose()?;
    let bar = progress(0, 0);
    let progress =
        RoundProgress { planned: &|runs| add_runs(&bar, runs), step: &|steps| bar.inc(steps) };
    let done = replicate_as_declared(&files, threads(args.threads), args.extras(), &progress)?;
    bar.finish_and_clear();
    // With --seeds the user has said how many runs there are.
    if args.seeds.is_none() {
        files
            .iter()
            .filter_map(describe_replications)
            .chain(done.notes)
            .for_each(crate::print_to_stderr);
    }
    let (jobs, outcomes): (Vec<RunJob<'_>>, Vec<RunOutcome>) = done.runs.into_iter().unzip();
    if let Some(directory) = &args.svg {
        write_graphs(directory, &files, &jobs, &outcomes)?;
    }
    let done = jobs.iter().zip(&outcomes).map(|(job, outcome)| {
        let RunJob { file, case, seed } = *job;
        runs::ScenarioRun { file, case, seed, metrics: &outcome.metrics }
    });
    let done: Vec<runs::ScenarioRun<'_>> = done.collect();
    let text = match published {
        Some(published) if args.json => runs::published_json(&files, &published, &done)?,
        Some(published) => runs::beside_published(&files, &published, &done)?,
        None if args.json => runs::json(&files, &done),
        None if args.csv => runs::csv(&files, &done),
        None => runs::text(&files, &done),
    };
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl SimArgs {
    fn extras(&self) -> Extras {
        let capture = self.pcap.clone().map(|path| (path, self.pcap_at.into()));
        Extras { graphs: self.svg.is_some(), capture }
    }
}

/// Returns the given number of threads, or the number of processors.
pub(crate) fn threads(given: Option<NonZeroUsize>) -> usize {
    given.or_else(|| available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// Creates a bar for a number of runs with `length` steps in total.
pub(crate) fn progress(runs: usize, length: u64) -> ProgressBar {
    let bar = crate::progress::bar(length, "{bar:40} {percent} % of {msg}, {eta} left");
    bar.with_message(of_runs(runs as u64))
}

fn of_runs(runs: u64) -> String {
    if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }
}

/// Extends a bar by further runs.
pub(crate) fn add_runs(bar: &ProgressBar, more: usize) {
    let steps = bar.length().unwrap_or(0) + more as u64 * STEPS;
    bar.set_length(steps);
    bar.set_message(of_runs(steps / STEPS));
}

/// Describes the replications that a file asks for; `None` for the default.
fn describe_replications(file: &ScenarioFile) -> Option<String> {
    let path = file.path.display();
    match &file.replications {
        Replications::Seeds(seeds) if seeds[..] == [1] => None,
        Replications::Seeds(seeds) => {
            Some(format!("{path}: {} seeds of the file for each case", seeds.len()))
        }
        Replications::Until(rule) => {
            let statistic = match rule.statistic {
                Statistic::Mean => "mean",
                Statistic::Median => "median",
            };
            Some(format!(
                "{path}: each case until the {} of {} {} is known to {:.1} % ({:.1} % confidence, {} to \
             {} seeds)",
                statistic,
                rule.name.of,
                rule.name.metric,
                rule.within * 100.0,
                rule.confidence * 100.0,
                rule.least,
                rule.most,
            ))
        }
    }
}

fn read(path: &Path, args: &SimArgs) -> Result<ScenarioFile> {
    let shown = path.display().to_string();
    let Scenario { mut cases, mut replications, back_ends, results, .. } = Scenario::load(path)?;
    if !back_ends.contains(&BackEnd::Sim) {
        bail!("{shown} is for the lab only (back-ends)");
    }
    if let Some(seeds) = args.seeds {
        replications = Replications::from_first(1, seeds.get());
    }
    if let Some(name) = &args.case {
        let names: Vec<_> = cases.iter().map(|case| format!("{:?}", case.name)).collect();
        cases.retain(|case| case.name == *name);
        if cases.is_empty() {
            bail!("{shown} has no case {name:?}: it has {}", names.join(", "));
        }
    }
    Ok(ScenarioFile { path: path.to_owned(), cases, replications, results })
}

/// Reads the published values beside a scenario file.
fn read_published(file: &ScenarioFile) -> Result<Published> {
    Ok(Published::load(&file.path.with_extension("published.toml"))?)
}

/// Writes the graphs of all runs that have them.
fn write_graphs(
    directory: &Path,
    files: &[ScenarioFile],
    jobs: &[RunJob<'_>],
    outcomes: &[RunOutcome],
) -> Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    std::fs::create_dir_all(directory).with_context(|| cannot(directory))?;
    for (job, outcome) in jobs.iter().zip(outcomes) {
        for (name, text) in &outcome.graphs {
            let path = directory.join(runs::file_name(&files[job.file].path, job.case, name));
            std::fs::write(&path, text).with_context(|| cannot(&path))?;
        }
    }
    Ok(())
}
