//! All results of a demo.

use serde::Serialize;

use super::entry::{Entry, Record};
use super::figures::Limit;
use super::machine::Machine;
use super::plan::{Plan, Way};
use super::summary::{Source, Unavailable};

/// All results of a demo.
pub(crate) struct Results {
    /// What was run.
    pub(crate) plan: Plan,
    /// The ways that were planned, including unavailable ones.
    pub(crate) ways: Vec<Way>,
    /// The ways that this machine could not measure.
    pub(crate) unavailable: Vec<Unavailable>,
    /// Upper bounds, forward then return.
    pub(crate) limits: [Limit; 2],
    /// All records in the order they ran.
    pub(crate) records: Vec<Record>,
    /// Where and how the demo ran.
    pub(crate) setting: Setting,
}

/// Where and how a demo ran.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Setting {
    /// The link, in one line.
    pub(crate) link: String,
    /// Why it was simulated in virtual time; `None` if real packets were used.
    pub(crate) simulated: Option<String>,
    /// Seed of the first round.
    pub(crate) seed: u64,
    /// Number of rounds.
    pub(crate) rounds: u32,
    /// The machine.
    pub(crate) machine: Machine,
    /// Version of skyhop.
    pub(crate) version: &'static str,
    /// The command line.
    pub(crate) command: String,
}

impl Setting {
    /// First line of every output.
    pub(crate) fn title(&self) -> String {
        match &self.simulated {
            None => self.link.clone(),
            Some(why) => format!("SIMULATED in virtual time ({why}).\n{}", self.link),
        }
    }
}

/// The contents of the `--json` file.
#[derive(Serialize)]
struct Json<'a> {
    setting: &'a Setting,
    limits_bits_per_second: [f64; 2],
    rtt_seconds: f64,
    unavailable: &'a [Unavailable],
    records: &'a [Record],
}

impl Results {
    /// The result of each measurement.
    pub(crate) fn entries(&self) -> Vec<&Entry> {
        self.records.iter().map(|record| &record.entry).collect()
    }

    /// The input of the tables.
    pub(crate) fn source<'a>(&'a self, entries: &'a [&'a Entry]) -> Source<'a> {
        let limits = [&self.limits[0], &self.limits[1]];
        let (tasks, ways) = (&self.plan.tasks, &self.ways);
        Source { entries, tasks, ways, unavailable: &self.unavailable, limits }
    }

    /// Whether anything failed. Running out of time is not a failure.
    pub(crate) fn any_failed(&self) -> bool {
        self.records.iter().any(|record| record.entry.failure.is_some())
    }

    /// All results as JSON.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let json = Json {
            setting: &self.setting,
            limits_bits_per_second: self.limits.map(|limit| limit.bits_per_second()),
            rtt_seconds: self.limits[0].rtt.as_secs_f64(),
            unavailable: &self.unavailable,
            records: &self.records,
        };
        Ok(serde_json::to_string_pretty(&json)? + "\n")
    }
}
