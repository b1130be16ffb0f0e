//! Runs replications in parallel.

use std::io::IsTerminal;
use std::thread;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::ThreadPoolBuilder;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use scenario::Case;
use sim::Metric;
use sim::Run;

use super::{Args, capture};

/// A run to make.
pub(super) struct Job<'a> {
    /// Index of the file.
    pub(super) file: usize,
    pub(super) case: &'a Case,
    pub(super) seed: u64,
}

/// Results of a run.
pub(super) struct Outcome {
    pub(super) metrics: Vec<Metric>,
    /// Names and SVG texts of graphs, if requested for this run.
    pub(super) graphs: Vec<(String, String)>,
}

/// Resolution of the progress bar, per run.
const PARTS: f64 = 100.0;

/// Runs all jobs. Outcomes are in the order of the jobs, whichever thread ran them.
pub(super) fn all(args: &Args, jobs: &[Job<'_>]) -> Result<Vec<Outcome>> {
    let threads = args.threads.or_else(|| thread::available_parallelism().ok());
    let threads = threads.map_or(1, std::num::NonZero::get).min(jobs.len());
    let bar = progress(jobs.len());
    let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
    let run = |(index, job)| one(args, job, index == 0, &bar);
    // One job at a time: some take much longer than others.
    let run_all = || jobs.par_iter().enumerate().with_max_len(1).map(run).collect::<Vec<_>>();
    let outcomes = pool.install(run_all);
    bar.finish_and_clear();
    outcomes.into_iter().collect()
}

fn progress(jobs: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent} % of {msg}, {eta} left");
    let bar = ProgressBar::new((jobs as f64 * PARTS) as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(if jobs == 1 { "1 run".to_owned() } else { format!("{jobs} runs") })
}

/// Makes one run; the `first` of all is the one to capture.
fn one(args: &Args, job: &Job<'_>, first: bool, bar: &ProgressBar) -> Result<Outcome> {
    let mut run = Run::new(job.case, job.seed);
    let pcap = args.pcap.as_ref().filter(|_| first);
    let capture = pcap.map(|path| capture::start(path, args.pcap_at, &mut run)).transpose()?;
    let mut shown = 0;
    loop {
        let more = run.advance();
        let now = if more { (run.progress() * PARTS) as u64 } else { PARTS as u64 };
        bar.inc(now.saturating_sub(shown));
        shown = shown.max(now);
        if !more {
            break;
        }
    }
    capture.map(|capture| capture.end(&mut run)).transpose()?;
    Ok(Outcome { metrics: run.metrics(), graphs: graphs(args, job, &run)? })
}

fn graphs(args: &Args, job: &Job<'_>, run: &Run) -> Result<Vec<(String, String)>> {
    if args.svg.is_none() || job.seed != 1 {
        return Ok(Vec::new());
    }
    Ok(study::runs::graphs(job.case, run))
}
