//! `skyhop demo`: measures what the gateway pair gains on this machine.
//!
//! Transfers, web pages and requests cross a satellite link with real packets, first through the
//! pair, then as plain kernel TCP with each congestion control. See [`plan`] for what runs,
//! [`figures`] for the meaning of the figures, and [`simulate`] for machines without network
//! namespaces.

mod display;
mod entry;
mod figures;
mod machine;
mod measure;
mod output;
mod plan;
mod report;
mod results;
mod simulate;
mod summary;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use scenario::{Overrides, Preset};
use units::{BitRate, Probability, format_duration};

use self::display::Display;
use self::entry::Record;
use self::figures::Limit;
use self::machine::Machine;
use self::measure::{Hosts, Measurement};
use self::output::Output;
use self::plan::{Plan, Task, Way};
use self::results::{Results, Setting};
use self::simulate::Simulation;
use self::summary::Unavailable;

/// Preset of the satellite link.
const PRESET: &str = "geo";

/// Arguments of `skyhop demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rate of the forward link (download)
    #[arg(long, value_name = "RATE", default_value = "50 Mbit/s")]
    rate: BitRate,
    /// Rate of the return link (upload)
    #[arg(long, value_name = "RATE", default_value = "10 Mbit/s")]
    return_rate: BitRate,
    /// One-way delay; the RTT is twice that
    #[arg(long, value_name = "TIME", default_value = "300 ms", value_parser = units::parse_duration)]
    delay: Duration,
    /// Packet error rate of both links
    #[arg(long, value_name = "P", default_value = "1 %")]
    per: Probability,
    /// Seed of the link's losses; each round uses the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of rounds; above 1 the table shows medians and ranges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Run only this task; may be repeated
    #[arg(long, value_name = "TASK")]
    only: Vec<Task>,
    /// Simulate in virtual time, which takes seconds; the default without network namespaces
    #[arg(long)]
    simulate: bool,
    /// Write the HTML page with plots to this file
    #[arg(long, value_name = "FILE", default_value = "skyhop-demo.html")]
    html: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "html")]
    no_html: bool,
    /// Write all results as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the bar chart of all times as SVG to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Runs the demo. Returns exit code 1 if anything failed; running out of time is a result, not a
/// failure.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let preset = args.preset()?;
    let outputs = Outputs::new(args)?;
    // Must precede any thread: only the calling thread enters the namespaces.
    let refused = if args.simulate { None } else { lab::enter().err() };
    crate::start_log();
    let demo = Demo { args, limits: measure::limits(&preset, args.per), preset };
    let results = match refused {
        _ if args.simulate => demo.simulate("requested by --simulate".to_owned()),
        None => demo.run(),
        Some(error) => demo.make_do(&error.into()),
    }?;
    let entries = results.entries();
    let table = summary::text(&results.source(&entries));
    let text = format!("\n{}\n\n{table}", results.setting.title());
    crate::print(&text).context("cannot write the table")?;
    outputs.write(&results)?;
    Ok(if results.any_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Args {
    fn preset(&self) -> Result<Preset> {
        let overrides = Overrides {
            rate: Some(self.rate),
            return_rate: Some(self.return_rate),
            delay: Some(self.delay),
            per: Some(self.per),
            ..Overrides::default()
        };
        Ok(Preset::load(PRESET)?.with(&overrides)?)
    }
}

/// The requested output files.
struct Outputs {
    html: Option<Output>,
    json: Option<Output>,
    svg: Option<Output>,
}

impl Outputs {
    fn new(args: &Args) -> Result<Self> {
        let output = |path: Option<&PathBuf>| path.map(|path| Output::new(path)).transpose();
        let html = Some(&args.html).filter(|_| !args.no_html);
        let (json, svg) = (args.json.as_ref(), args.svg.as_ref());
        Ok(Self { html: output(html)?, json: output(json)?, svg: output(svg)? })
    }

    fn write(&self, results: &Results) -> Result<()> {
        if let Some(json) = &self.json {
            json.write(&results.json()?)?;
        }
        if let Some(svg) = &self.svg {
            svg.write(&report::picture(results))?;
        }
        if let Some(html) = &self.html {
            html.write(&report::html(results))?;
            eprintln!("\nwith plots: {}", html.path().display());
        }
        Ok(())
    }
}

struct Demo<'a> {
    args: &'a Args,
    preset: Preset,
    /// Forward, then return.
    limits: [Limit; 2],
}

impl Demo<'_> {
    /// Runs everything with real packets, or simulates it if this machine cannot start a lab.
    fn run(&self) -> Result<Results> {
        let hosts = match Hosts::start(&self.preset) {
            Ok(hosts) => hosts,
            Err(error) => return self.make_do(&error),
        };
        let (ways, unavailable) = ways(&hosts);
        drop(hosts);
        let is_present = |way: &&Way| unavailable.iter().all(|absent| absent.way != **way);
        let present = ways.iter().filter(is_present).cloned().collect();
        let plan = Plan::new(self.args.runs, &self.args.only, present);
        let setting = self.setting(None);
        eprintln!("{}", setting.title());
        let records = self.measure(&plan)?;
        Ok(Results { plan, ways, unavailable, limits: self.limits, records, setting })
    }

    /// Falls back to the simulator when no lab can be started.
    fn make_do(&self, error: &Error) -> Result<Results> {
        self.simulate(format!("no network namespaces here: {error:#}"))
    }

    /// Runs everything in virtual time.
    fn simulate(&self, why: String) -> Result<Results> {
        let ways = Way::all(None);
        let plan = Plan::new(self.args.runs, &self.args.only, ways.clone());
        let setting = self.setting(Some(why));
        eprintln!("{}", setting.title());
        let mut display = Display::new(plan.len());
        let mut records = Vec::new();
        for round in 0..plan.rounds {
            for &task in &plan.tasks {
                for way in plan.ways.iter().rev() {
                    let (limit, seed) = (self.limit(task), self.seed(round));
                    let preset = &self.preset;
                    let record = Simulation { round, task, way, preset, seed, limit }.run()?;
                    display.done(&record.entry);
                    records.push(record);
                }
            }
        }
        let (unavailable, limits) = (Vec::new(), self.limits);
        Ok(Results { plan, ways, unavailable, limits, records, setting })
    }

    fn measure(&self, plan: &Plan) -> Result<Vec<Record>> {
        let mut display = Display::new(plan.len());
        let mut records = Vec::new();
        for round in 0..plan.rounds {
            let start = Instant::now();
            for &task in &plan.tasks {
                let groups = plan.groups(task);
                for (index, group) in groups.iter().enumerate() {
                    let after = groups.len() - 1 - index;
                    let allowance = plan.allowance(task, start.elapsed(), after);
                    let measurement = |way| self.measurement(round, task, way, allowance);
                    let group: Vec<_> = group.iter().map(|way| measurement(way)).collect();
                    let done = at_the_same_time(&group, &display)?;
                    done.iter().for_each(|record| display.done(&record.entry));
                    records.extend(done);
                }
            }
        }
        Ok(records)
    }

    fn measurement<'a>(
        &'a self,
        round: u32,
        task: Task,
        way: &'a Way,
        allowance: Duration,
    ) -> Measurement<'a> {
        let (limit, seed) = (self.limit(task), self.seed(round));
        Measurement { round, task, way, preset: &self.preset, seed, limit, allowance }
    }

    /// Upper bound of the link in the direction of the task's payload.
    fn limit(&self, task: Task) -> Limit {
        self.limits[usize::from(task == Task::Upload)]
    }

    fn seed(&self, round: u32) -> u64 {
        self.args.seed.wrapping_add(round.into())
    }

    fn link(&self) -> String {
        let Args { rate, return_rate, per, seed, runs, .. } = self.args;
        let rates = format!("{rate} down, {return_rate} up");
        let rtt = format_duration(self.preset.rtt());
        let (per, queue) = (per.get() * 100.0, &self.preset.forward.queue);
        let runs = if *runs == 1 { String::new() } else { format!(", {runs} runs") };
        format!("Satellite link: {rates}, {rtt} RTT, PER {per} %, queue {queue}, seed {seed}{runs}")
    }

    fn setting(&self, simulated: Option<String>) -> Setting {
        Setting {
            link: self.link(),
            simulated,
            seed: self.args.seed,
            rounds: self.args.runs,
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            command: command(),
        }
    }
}

/// All ways to cross the link, and those that this machine cannot measure.
fn ways(hosts: &Hosts) -> (Vec<Way>, Vec<Unavailable>) {
    let ways = Way::all(hosts.default_congestion_control().as_ref());
    let check = |way: &Way| {
        let error = hosts.check(way.congestion_control()?).err()?;
        Some(Unavailable { way: way.clone(), reason: error.to_string() })
    };
    let unavailable = ways.iter().filter_map(check).collect();
    (ways, unavailable)
}

/// The command line without the program's path.
fn command() -> String {
    let quoted = |argument: String| {
        let is_plain =
            |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:%+".contains(letter);
        if argument.chars().all(is_plain) { argument } else { format!("'{argument}'") }
    };
    let arguments = std::env::args().skip(1).map(quoted);
    std::iter::once("skyhop".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Runs the measurements of a group concurrently, each in its own thread and lab.
fn at_the_same_time(group: &[Measurement<'_>], display: &Display) -> Result<Vec<Record>> {
    std::thread::scope(|scope| {
        let start = |measurement| scope.spawn(move || Measurement::run(measurement, display));
        let running: Vec<_> = group.iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Record>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a measurement panicked")))
        };
        running.into_iter().map(join).collect()
    })
}
