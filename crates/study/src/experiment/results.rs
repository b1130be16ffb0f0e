//! The results of a study, and their representations.

use serde::Serialize;

use super::entry::{MeasurementEntry, MeasurementRecord};
use super::figures::LinkLimit;
use super::machine::Machine;
use super::on_demand::{self, OnDemandUpload};
use super::summary::{self, SummaryInput, Unavailable};
use crate::plan::{DemoPlan, TrafficPath};

/// All results of a study, with the conditions under which it ran.
pub struct Results {
    /// The plan that was run.
    pub plan: DemoPlan,
    /// The ways that were planned, including unavailable ones.
    pub ways: Vec<TrafficPath>,
    /// The ways that this machine could not measure.
    pub unavailable: Vec<Unavailable>,
    /// Upper bounds, forward then return.
    pub limits: [LinkLimit; 2],
    /// All records in the order they ran.
    pub records: Vec<MeasurementRecord>,
    /// The uploads with capacity on demand; empty if simulated, or if only some tasks ran.
    pub on_demand: Vec<OnDemandUpload>,
    /// The conditions under which the study ran.
    pub setting: RunConditions,
}

/// The conditions under which a study ran.
#[derive(Debug, Clone, Serialize)]
pub struct RunConditions {
    /// The link, in one line.
    pub link: String,
    /// The reason why it was simulated in virtual time; `None` if real packets were used.
    pub simulated: Option<String>,
    /// Seed of the first round.
    pub seed: u64,
    /// Number of rounds that were run.
    pub rounds: u32,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Version of skyhop that ran it.
    pub version: &'static str,
    /// The command line that ran it.
    pub command: String,
}

impl RunConditions {
    /// Returns the first line of every output.
    pub fn title(&self) -> String {
        match &self.simulated {
            None => self.link.clone(),
            Some(why) => format!("SIMULATED in virtual time ({why}).\n{}", self.link),
        }
    }
}

/// The contents of the `--json` file.
#[derive(Serialize)]
struct Json<'a> {
    setting: &'a RunConditions,
    limits_bits_per_second: [f64; 2],
    rtt_seconds: f64,
    unavailable: &'a [Unavailable],
    records: &'a [MeasurementRecord],
    on_demand: &'a [OnDemandUpload],
}

impl Results {
    /// Returns the result of each measurement.
    pub fn entries(&self) -> Vec<&MeasurementEntry> {
        self.records.iter().map(|record| &record.entry).collect()
    }

    /// Returns the input of the tables.
    pub fn source<'a>(&'a self, entries: &'a [&'a MeasurementEntry]) -> SummaryInput<'a> {
        let limits = [&self.limits[0], &self.limits[1]];
        let tasks = &self.plan.tasks;
        let ways = &self.ways;
        SummaryInput { entries, tasks, ways, unavailable: &self.unavailable, limits }
    }

    /// Returns true if anything failed. Running out of time is not a failure.
    pub fn any_failed(&self) -> bool {
        self.records.iter().any(|record| record.entry.failure.is_some())
            || self.on_demand.iter().any(|crossing| crossing.failure.is_some())
    }

    /// Returns the title, the tables and their footnotes.
    pub fn text(&self) -> String {
        let entries = self.entries();
        let tables = summary::text(&self.source(&entries));
        let mut text = format!("{}\n\n{tables}", self.setting.title());
        if !self.on_demand.is_empty() {
            text += &format!("\n{}\n", on_demand::in_short(&self.on_demand));
        }
        text
    }

    /// Returns all results as JSON.
    ///
    /// # Errors
    /// If a figure is not a number, which would be a bug.
    pub fn json(&self) -> serde_json::Result<String> {
        let json = Json {
            setting: &self.setting,
            limits_bits_per_second: self.limits.map(|limit| limit.bits_per_second()),
            rtt_seconds: self.limits[0].rtt.as_secs_f64(),
            unavailable: &self.unavailable,
            records: &self.records,
            on_demand: &self.on_demand,
        };
        Ok(serde_json::to_string_pretty(&json)? + "\n")
    }
}
