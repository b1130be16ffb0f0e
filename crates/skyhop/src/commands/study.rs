//! `skyhop study …`: campaigns of scenarios, whose results are kept.

mod add;
mod cell;
mod design;
mod list;
mod plan;
mod report;
mod run;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use study::campaign::{
    self, BackEnd, CampaignPlan, ProgramId, ResultStore, ScenarioSource, StoreError, WantedCells,
};

/// Subcommands of `skyhop study`.
#[derive(Subcommand)]
pub(crate) enum StudyCommand {
    /// List the scenarios
    List(list::ListScenariosArgs),
    /// Show the cells of a campaign: each case of its scenarios with each seed
    Plan(plan::PlanArgs),
    /// Run some cells of a plan, on this machine or as part of a larger campaign
    Cell(cell::CellArgs),
    /// Run a campaign on this machine; what the store has is not run again
    Run(run::RunArgs),
    /// Keep results that `skyhop study cell --print` wrote, one a line, from standard input
    Add(add::AddArgs),
    /// Rank TCP enhancements for your own link: hosts, one gateway, a pair, SLACP under IP
    Design(design::DesignArgs),
    /// Show results as tables, CSV, or beside published ones, also as Markdown and as pages with graphs
    Report(report::ReportArgs),
}

/// Runs a subcommand of `skyhop study`.
pub(crate) fn run(command: StudyCommand) -> Result<ExitCode> {
    match command {
        StudyCommand::List(args) => list::run(&args),
        StudyCommand::Plan(args) => plan::run(&args),
        StudyCommand::Cell(args) => cell::run(&args),
        StudyCommand::Run(args) => run::run(&args),
        StudyCommand::Add(args) => add::run(&args),
        StudyCommand::Design(args) => design::run(&args),
        StudyCommand::Report(args) => report::run(&args),
    }
}

/// Where cells run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackEndArg {
    /// In the simulator, in virtual time
    Sim,
    /// In the lab, with real packets
    Lab,
}

impl From<BackEndArg> for campaign::BackEndName {
    fn from(on: BackEndArg) -> Self {
        match on {
            BackEndArg::Sim => Self::Sim,
            BackEndArg::Lab => Self::Lab,
        }
    }
}

/// The scenarios of a campaign.
#[derive(Debug, clap::Args)]
struct ScenariosArg {
    /// Names of scenarios (skyhop study list), paths of scenario files, or `all`: all with a name
    #[arg(required = true, value_name = "NAME|FILE")]
    scenarios: Vec<String>,
}

impl ScenariosArg {
    fn is_all(&self) -> bool {
        self.scenarios.iter().any(|name| name == "all")
    }

    fn read(&self) -> Result<Vec<ScenarioSource>> {
        if self.is_all() {
            if self.scenarios.len() > 1 {
                bail!("`all` stands for all scenarios with a name: expected no others beside it");
            }
            return Ok(ScenarioSource::all_shipped()?);
        }
        self.scenarios.iter().map(|name| Ok(ScenarioSource::named(name)?)).collect()
    }
}

/// Where results are kept.
#[derive(Debug, clap::Args)]
struct StoreArg {
    /// Directory of the results
    #[arg(long, default_value = "skyhop-study", value_name = "DIR")]
    store: PathBuf,
}

impl StoreArg {
    fn store(&self) -> ResultStore {
        ResultStore::at(&self.store)
    }
}

/// A campaign.
#[derive(Debug, clap::Args)]
struct CampaignArgs {
    #[command(flatten)]
    scenarios: ScenariosArg,
    /// Number of seeds for each case: 1, 2, … [default: those of the scenario's file, else 1]
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroU32>,
    /// Where the cells run
    #[arg(long, value_enum, default_value = "sim")]
    on: BackEndArg,
    #[command(flatten)]
    store: StoreArg,
}

impl CampaignArgs {
    /// Returns the plan. Damaged results in the store are reported and planned again.
    fn plan(&self) -> Result<CampaignPlan> {
        let wanted = WantedCells { seeds: self.seeds.map(NonZeroU32::get), on: self.on.into() };
        let sources = self.scenarios.read()?;
        let (plan, damaged) = CampaignPlan::new(sources, wanted, binary()?, &self.store.store())?;
        warn(&damaged);
        Ok(plan)
    }
}

/// Creates a back end. For the lab, the process enters the namespaces, which must happen before the first
/// thread starts.
fn back_end(on: campaign::BackEndName) -> Result<Box<dyn BackEnd>> {
    if on == campaign::BackEndName::Lab {
        lab::enter()?;
    }
    let program = std::env::current_exe().context("cannot find this program's file")?;
    Ok(campaign::back_end(on, program))
}

/// Returns the identity of this program.
fn binary() -> Result<ProgramId> {
    ProgramId::this().context("cannot read this program's file")
}

/// Reports damaged files of a store.
fn warn(damaged: &[StoreError]) {
    for error in damaged {
        crate::print_to_stderr(format_args!(
            "skyhop: warning: {error}; the cell counts as not run"
        ));
    }
}

/// Reports the cells that failed. Returns exit code 1 if there are any.
fn report_failures(report: &campaign::CampaignReport) -> ExitCode {
    for campaign::FailedCell { planned, why } in &report.failed {
        let campaign::Cell { scenario, case, seed, on } = &planned.cell;
        crate::print_to_stderr(format_args!(
            "skyhop: cell {} ({scenario}, case {case:?}, seed {seed}, {on}) failed: {why}",
            planned.name
        ));
    }
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
