//! `skyhop study report`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use scenario::Published;
use study::campaign::{Selection, Source, select};
use study::runs::{self, File};

use super::{On, ScenariosArg, StoreArg, binary, warn};

/// Arguments of `skyhop study report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    scenarios: ScenariosArg,
    /// Where the cells ran
    #[arg(long, value_enum, default_value = "sim")]
    on: On,
    #[command(flatten)]
    store: StoreArg,
    /// Print every figure of every run as CSV
    #[arg(long, conflicts_with = "published")]
    csv: bool,
    /// Compare with published values; scenarios without any are left out
    #[arg(long)]
    published: bool,
}

/// Prints what the store has.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let mut sources = args.scenarios.read()?;
    let mut published = Vec::new();
    if args.published {
        (sources, published) = with_published(sources)?;
    }
    let this = binary()?;
    let selection = select(&sources, args.on.into(), this.clone(), &args.store.store())?;
    warn(&selection.damaged);
    for (scenario, case) in &selection.missing {
        eprintln!("skyhop: warning: no result of {scenario}, case {case:?}");
    }
    if selection.runs.is_empty() {
        bail!(
            "{} has no result of these scenarios: see skyhop study run",
            args.store.store.display()
        );
    }
    if selection.binary != this {
        eprintln!("skyhop: warning: these are results of another program, {}", selection.binary);
    }
    crate::print(&text(args, sources, &published, &selection)?)?;
    Ok(ExitCode::SUCCESS)
}

fn with_published(sources: Vec<Source>) -> Result<(Vec<Source>, Vec<Published>)> {
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

fn text(
    args: &Args,
    sources: Vec<Source>,
    published: &[Published],
    selection: &Selection,
) -> Result<String> {
    let file = |source: Source| {
        let path = source.path();
        File { path, cases: source.cases, replications: source.replications }
    };
    let files: Vec<File> = sources.into_iter().map(file).collect();
    let runs = selection.runs.iter().map(|(file, index, result)| runs::Run {
        file: *file,
        case: &files[*file].cases[*index],
        seed: result.seed,
        metrics: &result.metrics,
    });
    let runs: Vec<runs::Run<'_>> = runs.collect();
    Ok(match (args.published, args.csv) {
        (true, _) => runs::beside_published(&files, published, &runs)?,
        (_, true) => runs::csv(&files, &runs),
        _ => runs::text(&files, &runs),
    })
}
