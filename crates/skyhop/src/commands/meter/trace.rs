//! `skyhop meter trace`: analyses a packet capture.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use meter::trace::{AnalysedCapture, TraceOptions, TraceReport};
use serde::Serialize;

/// Arguments of `skyhop meter trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Capture file: pcap or pcapng
    file: PathBuf,
    /// Print the whole report as JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a CSV line for each direction of each connection
    #[arg(long)]
    csv: bool,
    /// Draw an SVG time-sequence graph of each direction with payload into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Analyse only this connection, counted from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    connection: Option<u64>,
}

/// The report in JSON, with the name of its capture.
#[derive(Serialize)]
struct TitledReport<'a> {
    meter: &'static str,
    file: &'a Path,
    #[serde(flatten)]
    report: &'a TraceReport,
}

/// Runs the analysis. Errors inside a capture are warnings; the exit code is 0 if a part of it could be
/// read.
pub(super) fn run(args: &TraceArgs) -> Result<ExitCode> {
    let trace = analyse(args)?;
    for warning in &trace.report.warnings {
        crate::print_to_stderr(format_args!("skyhop: {}: {warning}", args.file.display()));
    }
    let connections = &trace.report.connections;
    if let Some(number) = args.connection.filter(|_| connections.is_empty()) {
        bail!("{} has no connection {number}", args.file.display());
    }
    if let Some(directory) = &args.svg {
        draw(&trace, directory)?;
    }
    crate::print(&show(args, &trace.report)?)?;
    Ok(ExitCode::SUCCESS)
}

fn analyse(args: &TraceArgs) -> Result<AnalysedCapture> {
    let shown = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {shown}"))?;
    // A pipe has length 0; the progress bar then only counts.
    let length = file.metadata().with_context(|| format!("cannot open {shown}"))?.len();
    let bar = crate::progress::bar(length, "{bar:40} {bytes}/{total_bytes} {eta} left");
    let options = TraceOptions { connection: args.connection, plots: args.svg.is_some() };
    let trace = meter::trace::analyse(bar.wrap_read(file), options);
    bar.finish_and_clear();
    trace.with_context(|| shown.to_string())
}

fn draw(trace: &AnalysedCapture, directory: &Path) -> Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    std::fs::create_dir_all(directory).with_context(|| cannot(directory))?;
    for (name, text) in trace.graphs() {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| cannot(&path))?;
    }
    Ok(())
}

fn show(args: &TraceArgs, report: &TraceReport) -> Result<String> {
    if args.json {
        let titled = TitledReport { meter: "trace", file: &args.file, report };
        return Ok(serde_json::to_string_pretty(&titled)? + "\n");
    }
    if args.csv {
        return Ok(report.csv());
    }
    Ok(report.to_string())
}
