//! `skyhop study report`: shows stored results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use config::FileError;
use scenario::{Documents, Published, ShippedScenario};
use study::campaign::{ScenarioSource, SelectedResults, select};
use study::reproduction::{ReproductionEntry, csv, json, markdown, page, text as text_of};
use study::runs::{self, ScenarioFile};
use study::verdict::CaseRunMetrics;

use super::{BackEndArg, ScenariosArg, StoreArg, binary, warn};

/// Arguments of `skyhop study report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    scenarios: ScenariosArg,
    /// Where the cells ran
    #[arg(long, value_enum, default_value = "sim")]
    on: BackEndArg,
    #[command(flatten)]
    store: StoreArg,
    /// Print CSV: every figure of every run, or with --published every published result beside ours
    #[arg(long, conflicts_with = "markdown")]
    csv: bool,
    /// Print the same as JSON
    #[arg(long, conflicts_with_all = ["csv", "markdown"])]
    json: bool,
    /// Compare with published results; scenarios without any are left out
    #[arg(long)]
    published: bool,
    /// Print Markdown: a summary by document and every published result beside ours
    #[arg(long)]
    markdown: bool,
    /// Write a page with graphs for each scenario with published results into this directory
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,
}

impl ReportArgs {
    fn compares(&self) -> bool {
        self.published || self.markdown || self.html.is_some()
    }

    /// Returns the command that makes the report of one scenario again, or of all requested ones.
    fn command(&self, name: Option<&str>) -> String {
        let names = name.map_or_else(|| self.scenarios.scenarios.join(" "), str::to_owned);
        let flag = if name.is_some() { "--html DIR" } else { "--markdown" };
        format!("skyhop study report {names} {flag}")
    }
}

/// Prints the stored results of the scenarios.
pub(super) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let mut sources = args.scenarios.read()?;
    let mut published = Vec::new();
    if args.compares() {
        (sources, published) = with_published(sources)?;
    }
    let this = binary()?;
    let selection = select(&sources, args.on.into(), this.clone(), &args.store.store())?;
    warn(&selection.damaged);
    for (scenario, case) in &selection.missing {
        crate::print_to_stderr(format_args!(
            "skyhop: warning: no result of {scenario}, case {case:?}"
        ));
    }
    if selection.runs.is_empty() {
        bail!(
            "{} has no result of these scenarios: see skyhop study run",
            args.store.store.display()
        );
    }
    if selection.binary != this {
        crate::print_to_stderr(format_args!(
            "skyhop: warning: these are results of another program, {}",
            selection.binary
        ));
    }
    if args.compares() {
        let all = args.scenarios.is_all();
        let alone = if all { ShippedScenario::published_alone().collect() } else { Vec::new() };
        return compare(args, &sources, &published, &selection, alone);
    }
    crate::print(&text(args, sources, &selection))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the results beside published ones; `alone` are published results without a scenario.
fn compare(
    args: &ReportArgs,
    sources: &[ScenarioSource],
    published: &[Published],
    selection: &SelectedResults,
    alone: Vec<(&str, Result<Published, FileError>)>,
) -> Result<ExitCode> {
    let documents = Documents::shipped()?;
    let mut entries = Vec::new();
    for (file, (source, published)) in sources.iter().zip(published).enumerate() {
        let own = selection.runs.iter().filter(|(number, ..)| *number == file);
        let runs = own.map(|(_, case, result)| (&*source.cases[*case].name, &*result.metrics));
        let runs = CaseRunMetrics(runs.collect());
        let entry = ReproductionEntry::new(source.path().display().to_string(), published, &runs);
        entries.push(entry.with_context(|| source.path().display().to_string())?);
    }
    let alone: Vec<(&str, Published)> =
        alone.into_iter().map(|(name, published)| Ok((name, published?))).collect::<Result<_>>()?;
    for (name, published) in &alone {
        entries.push(ReproductionEntry::new(
            (*name).to_owned(),
            published,
            &CaseRunMetrics::default(),
        )?);
    }
    if let Some(directory) = &args.html {
        write_pages(args, directory, &entries, &documents)?;
    }
    print_comparison(args, &entries, &documents)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the comparison in the requested format; nothing if only pages were requested.
fn print_comparison(
    args: &ReportArgs,
    entries: &[ReproductionEntry<'_>],
    documents: &Documents,
) -> Result<()> {
    if args.markdown {
        crate::print(&markdown(entries, documents, &args.command(None)))?;
    } else if args.json {
        crate::print(&json(entries))?;
    } else if args.csv {
        crate::print(&csv(entries))?;
    } else if args.published {
        let mut text: String = entries.iter().map(|entry| text_of(entry, documents)).collect();
        text.pop();
        crate::print(&text)?;
    }
    Ok(())
}

fn write_pages(
    args: &ReportArgs,
    directory: &Path,
    entries: &[ReproductionEntry<'_>],
    documents: &Documents,
) -> Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    fs::create_dir_all(directory).with_context(|| cannot(directory))?;
    for entry in entries {
        let stem = Path::new(&entry.name).file_stem().unwrap_or_default().to_string_lossy();
        let path = directory.join(format!("{stem}.html"));
        let html = page(entry, documents, &args.command(Some(&entry.name)));
        fs::write(&path, html).with_context(|| cannot(&path))?;
        crate::print_to_stderr(path.display());
    }
    Ok(())
}

fn with_published(sources: Vec<ScenarioSource>) -> Result<(Vec<ScenarioSource>, Vec<Published>)> {
    let mut both = (Vec::new(), Vec::new());
    for source in sources {
        if let Some(published) = source.published()? {
            both.0.push(source);
            both.1.push(published);
        }
    }
    if both.0.is_empty() {
        bail!("none of these scenarios has published values");
    }
    Ok(both)
}

fn text(args: &ReportArgs, sources: Vec<ScenarioSource>, selection: &SelectedResults) -> String {
    let file = |source: ScenarioSource| {
        let path = source.path();
        let ScenarioSource { cases, replications, results, .. } = source;
        ScenarioFile { path, cases, replications, results }
    };
    let files: Vec<ScenarioFile> = sources.into_iter().map(file).collect();
    let runs = selection.runs.iter().map(|(file, index, result)| runs::ScenarioRun {
        file: *file,
        case: &files[*file].cases[*index],
        seed: result.seed,
        metrics: &result.metrics,
    });
    let runs: Vec<runs::ScenarioRun<'_>> = runs.collect();
    match args {
        ReportArgs { csv: true, .. } => runs::csv(&files, &runs),
        ReportArgs { json: true, .. } => runs::json(&files, &runs),
        _ => runs::text(&files, &runs),
    }
}
