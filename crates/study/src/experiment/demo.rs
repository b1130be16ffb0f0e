//! Measures what the gateway pair gains on this machine.
//!
//! Transfers, web pages and requests cross a satellite link with real packets, first through the
//! pair, then as plain kernel TCP with each congestion control. See [`crate::plan`] for the tasks
//! and [`super::figures`] for the meaning of the figures. Machines without network namespaces
//! simulate it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use config::FileError;
use scenario::{Preset, PresetOverrides};
use units::{BitRate, Probability, format_duration};

use super::entry::MeasurementRecord;
use super::figures::LinkLimit;
use super::machine::Machine;
use super::measure::{LabHosts, Measurement, limits};
use super::on_demand::{self, OnDemandUpload};
use super::progress::ProgressDisplay;
use super::results::{Results, RunConditions};
use super::simulate::Simulation;
use super::summary::Unavailable;
use crate::StudyError;
use crate::plan::{DemoPlan, Task, TrafficPath};

/// Preset of the satellite link.
const PRESET: &str = "geo";

/// The options of the demo.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Rate of the forward link (download).
    pub rate: BitRate,
    /// Rate of the return link (upload).
    pub return_rate: BitRate,
    /// One-way delay of both links.
    pub delay: Duration,
    /// Packet error rate of both links.
    pub per: Probability,
    /// Seed of the link's losses; each round uses the next one.
    pub seed: u64,
    /// Number of rounds, each of which runs all tasks once.
    pub rounds: u32,
    /// The tasks to run; all if empty.
    pub only: Vec<Task>,
    /// The program that runs the gateways: skyhop's own.
    pub program: PathBuf,
    /// The command line, shown with the results.
    pub command: String,
}

/// The demo: tasks over a satellite link, with and without the gateway pair.
#[derive(Debug)]
pub struct Demo {
    options: DemoOptions,
    preset: Preset,
    /// The link with capacity on demand.
    on_demand: Preset,
    /// Upper bounds of the link, forward then return.
    limits: [LinkLimit; 2],
}

impl Demo {
    /// Prepares a demo over a geostationary link with these options.
    ///
    /// # Errors
    /// If the options do not describe a possible link.
    pub fn new(options: DemoOptions) -> Result<Self, FileError> {
        let overrides = PresetOverrides {
            rate: Some(options.rate),
            return_rate: Some(options.return_rate),
            delay: Some(options.delay),
            per: Some(options.per),
            ..PresetOverrides::default()
        };
        let preset = Preset::load(PRESET)?.with(&overrides)?;
        let on_demand = Preset::load(on_demand::PRESET)?;
        Ok(Self { limits: limits(&preset, options.per), preset, on_demand, options })
    }

    /// Runs everything with real packets, or simulates it if this machine cannot start a lab. The
    /// process must have entered namespaces of its own (`lab::enter`).
    ///
    /// # Errors
    /// If a lab fails later. A transfer that fails is a result.
    pub fn run(&self, display: &mut dyn ProgressDisplay) -> Result<Results, StudyError> {
        let hosts = match LabHosts::start(&self.preset) {
            Ok(hosts) => hosts,
            Err(error) => return self.simulate_instead(&error.to_string(), display),
        };
        let (ways, unavailable) = ways(&hosts);
        // Each measurement has a lab of its own.
        drop(hosts);
        let is_present = |way: &&TrafficPath| unavailable.iter().all(|absent| absent.way != **way);
        // `ways` keeps all of them, because results list what is unavailable.
        let present = ways.iter().filter(is_present).cloned().collect();
        let plan = DemoPlan::new(self.options.rounds, &self.options.only, present);
        let setting = self.setting(None);
        display.start(&setting.title(), plan.measurements());
        let (records, on_demand) = self.measure(&plan, display)?;
        let limits = self.limits;
        Ok(Results { plan, ways, unavailable, limits, records, on_demand, setting })
    }

    /// Simulates everything because the lab cannot be started.
    ///
    /// # Errors
    /// As [`Self::simulate`].
    pub fn simulate_instead(
        &self,
        error: &str,
        display: &mut dyn ProgressDisplay,
    ) -> Result<Results, StudyError> {
        self.simulate(format!("no network namespaces here: {error}"), display)
    }

    /// Runs everything in virtual time. `why` is shown with the results.
    ///
    /// # Errors
    /// If the simulator has no model of a congestion control.
    pub fn simulate(
        &self,
        why: String,
        display: &mut dyn ProgressDisplay,
    ) -> Result<Results, StudyError> {
        let ways = TrafficPath::all(None);
        let plan = DemoPlan::new(self.options.rounds, &self.options.only, ways.clone());
        let setting = self.setting(Some(why));
        display.start(&setting.title(), plan.measurements());
        let mut records = Vec::new();
        for round in 0..plan.rounds {
            for &task in &plan.tasks {
                // The pair first, as in the lab.
                for way in plan.ways.iter().rev() {
                    let limit = self.limit(task);
                    let seed = self.seed(round);
                    let preset = &self.preset;
                    let record = Simulation { round, task, way, preset, seed, limit }.run()?;
                    display.done(&record.entry);
                    records.push(record);
                }
            }
        }
        Ok(Results {
            plan,
            ways,
            unavailable: Vec::new(),
            limits: self.limits,
            records,
            on_demand: Vec::new(),
            setting,
        })
    }

    fn measure(
        &self,
        plan: &DemoPlan,
        display: &mut dyn ProgressDisplay,
    ) -> Result<(Vec<MeasurementRecord>, Vec<OnDemandUpload>), StudyError> {
        let mut records = Vec::new();
        let mut on_demand = Vec::new();
        for round in 0..plan.rounds {
            let start = Instant::now();
            for &task in &plan.tasks {
                let groups = plan.groups(task);
                for (index, group) in groups.iter().enumerate() {
                    let after = groups.len() - 1 - index;
                    let allowance = plan.allowance(task, start.elapsed(), after);
                    let measurement = |way| self.measurement(round, task, way, allowance);
                    let group: Vec<_> = group.iter().map(|way| measurement(way)).collect();
                    // Beside the first task that leaves the machine idle.
                    let beside =
                        self.options.only.is_empty() && task.is_shared() && on_demand.is_empty();
                    let (done, crossed) = self.run_group(&group, beside, plan, display)?;
                    done.iter().for_each(|record| display.done(&record.entry));
                    records.extend(done);
                    on_demand.extend(crossed);
                }
            }
        }
        Ok((records, on_demand))
    }

    /// Runs the measurements of a group concurrently, each in its own thread and lab, and beside
    /// them, if asked for, the uploads with capacity on demand.
    fn run_group(
        &self,
        group: &[Measurement<'_>],
        beside: bool,
        plan: &DemoPlan,
        display: &dyn ProgressDisplay,
    ) -> Result<(Vec<MeasurementRecord>, Vec<OnDemandUpload>), StudyError> {
        let DemoOptions { program, seed, .. } = &self.options;
        let plain = plan.ways.iter().find(|way| **way != TrafficPath::Pair);
        let ways: Vec<&TrafficPath> = [&TrafficPath::Pair].into_iter().chain(plain).collect();
        let cross = || on_demand::run_uploads(&self.on_demand, &ways, *seed, program);
        thread::scope(|scope| {
            let crossing = beside.then(|| scope.spawn(cross));
            let start = |measurement| scope.spawn(move || Measurement::run(measurement, display));
            let running: Vec<_> = group.iter().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<
                '_,
                Result<MeasurementRecord, StudyError>,
            >| { thread.join().unwrap_or(Err(StudyError::Panicked)) };
            let records = running.into_iter().map(join).collect::<Result<_, _>>()?;
            let crossed = crossing.map(|thread| thread.join().unwrap_or(Err(StudyError::Panicked)));
            Ok((records, crossed.transpose()?.unwrap_or_default()))
        })
    }

    fn measurement<'a>(
        &'a self,
        round: u32,
        task: Task,
        way: &'a TrafficPath,
        allowance: Duration,
    ) -> Measurement<'a> {
        let limit = self.limit(task);
        let seed = self.seed(round);
        let program = &self.options.program;
        Measurement { round, task, way, preset: &self.preset, seed, limit, allowance, program }
    }

    /// Upper bound of the link in the direction of the task's payload.
    fn limit(&self, task: Task) -> LinkLimit {
        self.limits[usize::from(task == Task::Upload)]
    }

    fn seed(&self, round: u32) -> u64 {
        // A round's measurements share a seed, so that the link treats all ways alike.
        self.options.seed.wrapping_add(round.into())
    }

    fn link(&self) -> String {
        let DemoOptions { rate, return_rate, per, seed, rounds, .. } = &self.options;
        let rates = format!("{rate} down, {return_rate} up");
        let rtt = format_duration(self.preset.rtt());
        let per = per.get() * 100.0;
        let queue = &self.preset.forward.queue;
        let runs = if *rounds == 1 { String::new() } else { format!(", {rounds} runs") };
        format!("Satellite link: {rates}, {rtt} RTT, PER {per} %, queue {queue}, seed {seed}{runs}")
    }

    fn setting(&self, simulated: Option<String>) -> RunConditions {
        RunConditions {
            link: self.link(),
            simulated,
            seed: self.options.seed,
            rounds: self.options.rounds,
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
            command: self.options.command.clone(),
        }
    }
}

/// Returns all ways to cross the link, and those that this machine cannot measure.
fn ways(hosts: &LabHosts) -> (Vec<TrafficPath>, Vec<Unavailable>) {
    let ways = TrafficPath::all(hosts.default_congestion_control().as_ref());
    let check = |way: &TrafficPath| {
        let error = hosts.check(way.congestion_control()?).err()?;
        Some(Unavailable { way: way.clone(), reason: error.to_string() })
    };
    let unavailable = ways.iter().filter_map(check).collect();
    (ways, unavailable)
}
