//! `skyhop demo`: what the gateway pair is worth, measured here and now.
//!
//! A download, an upload and requests with replies cross a satellite link made
//! of real packets, first as plain kernel TCP with each congestion control, then
//! through the pair. See [`plan`] for what is run, [`figures`] for what the
//! table's figures mean.

mod display;
mod entry;
mod figures;
mod measure;
mod plan;
mod server;
mod summary;
mod table;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::{Overrides, Preset};
use serde::Serialize;
use units::{BitRate, Probability, format_duration};

use self::display::Display;
use self::entry::Entry;
use self::figures::Limit;
use self::measure::{Measurement, Record};
use self::plan::{LIMIT, Plan, Task, Way};
use self::summary::Unavailable;

/// The satellite link that the demo crosses.
const PRESET: &str = "geo";

/// Arguments of `skyhop demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rate of the forward link (download).
    #[arg(long, value_name = "RATE", default_value = "50 Mbit/s")]
    rate: BitRate,
    /// Rate of the return link (upload).
    #[arg(long, value_name = "RATE", default_value = "10 Mbit/s")]
    return_rate: BitRate,
    /// Delay one way; the RTT is twice that.
    #[arg(long, value_name = "TIME", default_value = "300 ms", value_parser = units::parse_duration)]
    delay: Duration,
    /// Packet error rate, both ways.
    #[arg(long, value_name = "P", default_value = "1 %")]
    per: Probability,
    /// Seed of the link's losses; each round has the next one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often everything is run; the table then shows medians and ranges.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Run only this; may be repeated.
    #[arg(long, value_name = "TASK")]
    only: Vec<Task>,
    /// Print everything that was measured as JSON in place of the table.
    #[arg(long)]
    json: bool,
}

/// Everything that was measured, for `--json`.
#[derive(Serialize)]
struct Report<'a> {
    link: Link,
    limit_seconds: f64,
    records: &'a [Record],
    unavailable: &'a [Unavailable],
}

/// The link, in numbers.
#[derive(Serialize)]
struct Link {
    forward_bits_per_second: u64,
    return_bits_per_second: u64,
    rtt_seconds: f64,
    per: f64,
    queue: String,
    mtu_bytes: u16,
}

/// Runs the demo. The exit code is 1 if anything failed; what is unfinished at
/// its time limit is a result.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let preset = args.preset()?;
    // Before any thread: only the calling thread enters.
    lab::enter().context("the demo needs network namespaces")?;
    crate::start_log();
    let demo = Demo { args, limits: measure::limits(&preset, args.per), preset };
    demo.run()
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

struct Demo<'a> {
    args: &'a Args,
    preset: Preset,
    /// Forward and return.
    limits: [Limit; 2],
}

impl Demo<'_> {
    fn run(&self) -> Result<ExitCode> {
        let (ways, unavailable) = self.ways()?;
        let plan = Plan::new(self.args.runs, &self.args.only, ways);
        eprintln!("{}", self.title());
        let records = self.measure(&plan)?;
        let entries: Vec<Entry> = records.iter().map(|record| record.entry.clone()).collect();
        let text = if self.args.json {
            self.json(&records, &unavailable)?
        } else {
            let limits = [&self.limits[0], &self.limits[1]];
            let table = summary::text(&entries, &plan.tasks, &unavailable, limits);
            format!("\n{}\n\n{table}", self.title())
        };
        std::io::stdout().write_all(text.as_bytes()).context("cannot write the table")?;
        let failed = entries.iter().any(|entry| entry.failure.is_some());
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The ways that can be measured here, and those that cannot.
    fn ways(&self) -> Result<(Vec<Way>, Vec<Unavailable>)> {
        let (mut ways, mut unavailable) = (Vec::new(), Vec::new());
        for way in Way::all() {
            let checked = match &way {
                Way::Plain(name) => measure::check(&self.preset, name)?,
                Way::Pair => Ok(()),
            };
            match checked {
                Ok(()) => ways.push(way),
                Err(error) => unavailable.push(Unavailable { way, reason: error.to_string() }),
            }
        }
        Ok((ways, unavailable))
    }

    fn measure(&self, plan: &Plan) -> Result<Vec<Record>> {
        let mut display = Display::new(plan.len());
        let mut records = Vec::new();
        for round in 0..plan.rounds {
            for way in &plan.ways {
                for &task in &plan.tasks {
                    let limit = self.limits[usize::from(task == Task::Upload)];
                    let seed = self.args.seed.wrapping_add(round.into());
                    let preset = &self.preset;
                    let measurement = Measurement { round, task, way, preset, seed, limit };
                    let record = measurement.run(&display)?;
                    display.done(&record.entry);
                    records.push(record);
                }
            }
        }
        Ok(records)
    }

    fn title(&self) -> String {
        let Args { rate, return_rate, per, seed, runs, .. } = self.args;
        let rates = format!("{rate} down, {return_rate} up");
        let rtt = format_duration(self.preset.rtt());
        let (per, queue) = (per.get() * 100.0, &self.preset.forward.queue);
        let runs = if *runs == 1 { String::new() } else { format!(", {runs} runs") };
        format!("Satellite link: {rates}, {rtt} RTT, PER {per} %, queue {queue}, seed {seed}{runs}")
    }

    fn json(&self, records: &[Record], unavailable: &[Unavailable]) -> Result<String> {
        let report = Report {
            link: Link {
                forward_bits_per_second: self.preset.forward.rate.bits_per_second(),
                return_bits_per_second: self.preset.ret.rate.bits_per_second(),
                rtt_seconds: self.preset.rtt().as_secs_f64(),
                per: self.args.per.get(),
                queue: self.preset.forward.queue.to_string(),
                mtu_bytes: self.preset.mtu,
            },
            limit_seconds: LIMIT.as_secs_f64(),
            records,
            unavailable,
        };
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }
}
