//! Everything that came of a demo.

use serde::Serialize;

use super::entry::{Entry, Record};
use super::figures::Limit;
use super::machine::Machine;
use super::plan::{Plan, Way};
use super::summary::{Source, Unavailable};

/// Everything that came of a demo.
pub(crate) struct Results {
    /// What was run.
    pub(crate) plan: Plan,
    /// The ways that were to be run, also those that cannot be.
    pub(crate) ways: Vec<Way>,
    /// These.
    pub(crate) unavailable: Vec<Unavailable>,
    /// Forward and return.
    pub(crate) limits: [Limit; 2],
    /// What it came to, in the order in which it ran.
    pub(crate) records: Vec<Record>,
    /// Where, and how.
    pub(crate) setting: Setting,
}

/// Where and how a demo was run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Setting {
    /// The link, in one line.
    pub(crate) link: String,
    /// Why it was simulated in virtual time; nothing if it was real.
    pub(crate) simulated: Option<String>,
    /// The seed of the first round's losses.
    pub(crate) seed: u64,
    /// How often everything was run.
    pub(crate) rounds: u32,
    /// On what.
    pub(crate) machine: Machine,
    /// Of skyhop.
    pub(crate) version: &'static str,
    /// What was typed.
    pub(crate) command: String,
}

impl Setting {
    /// The first line of everything that is shown.
    pub(crate) fn title(&self) -> String {
        match &self.simulated {
            None => self.link.clone(),
            Some(why) => format!("SIMULATED in virtual time ({why}).\n{}", self.link),
        }
    }
}

/// What `--json` keeps.
#[derive(Serialize)]
struct Json<'a> {
    setting: &'a Setting,
    limits_bits_per_second: [f64; 2],
    rtt_seconds: f64,
    unavailable: &'a [Unavailable],
    records: &'a [Record],
}

impl Results {
    /// What each measurement came to.
    pub(crate) fn entries(&self) -> Vec<&Entry> {
        self.records.iter().map(|record| &record.entry).collect()
    }

    /// What a table is made of.
    pub(crate) fn source<'a>(&'a self, entries: &'a [&'a Entry]) -> Source<'a> {
        let limits = [&self.limits[0], &self.limits[1]];
        let (tasks, ways) = (&self.plan.tasks, &self.ways);
        Source { entries, tasks, ways, unavailable: &self.unavailable, limits }
    }

    /// Whether anything failed; what is not finished in its time has not.
    pub(crate) fn any_failed(&self) -> bool {
        self.records.iter().any(|record| record.entry.failure.is_some())
    }

    /// Everything, as JSON.
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
