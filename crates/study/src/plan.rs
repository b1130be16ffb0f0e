//! The tasks of a study, and the order in which they run.

use std::fmt;
use std::time::Duration;

use meter::CongestionControl;
use serde::{Serialize, Serializer};
use units::ByteCount;

/// Payload of the download, in bytes.
pub const DOWNLOAD: ByteCount = ByteCount::new(20_000_000);
/// Payload of the upload, in bytes.
pub const UPLOAD: ByteCount = ByteCount::new(3_000_000);
/// Number of objects on the page.
pub const OBJECTS: u32 = 40;
/// Size of each object: 2 MB in all.
pub const OBJECT: ByteCount = ByteCount::new(50_000);
/// Maximum parallel connections for the page.
pub const PAGE_CONNECTIONS: u32 = 6;
/// Number of requests, over all connections.
pub const REQUESTS: u32 = 100;
/// Connections that share the requests.
pub const CONNECTIONS: u32 = 20;
/// Payload of each request, in bytes.
pub const REQUEST: ByteCount = ByteCount::new(1_000);
/// Payload of each reply, in bytes.
pub const REPLY: ByteCount = ByteCount::new(10_000);
/// Kernel congestion controls to compare with, besides the machine's default.
const PLAIN: [&str; 2] = ["cubic", "bbr"];
/// Time that a measurement takes besides its traffic: starting the lab, waiting for the pair,
/// stopping both.
const AROUND: Duration = Duration::from_millis(1500);
/// Minimum time for a measurement's traffic.
const LEAST: Duration = Duration::from_secs(2);

/// A kind of traffic to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// One flow from the server to the client.
    Download,
    /// A web page with a new connection for each object.
    Page,
    /// The same page over persistent connections.
    PageKeepAlive,
    /// Many small requests and replies.
    Requests,
    /// One flow from the client to the server.
    Upload,
}

/// The data that a task moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskWork {
    /// This many bytes in one flow.
    Flow(ByteCount),
    /// Objects or replies, each requested once an earlier one is complete.
    Pieces {
        /// Number of objects or replies.
        count: u32,
        /// Payload bytes of each.
        size: ByteCount,
        /// Maximum number outstanding at once.
        at_a_time: u32,
    },
}

impl Task {
    /// All tasks in the order they run.
    pub const ALL: [Self; 5] =
        [Self::Download, Self::Page, Self::PageKeepAlive, Self::Requests, Self::Upload];

    /// Returns the data that the task moves.
    pub fn work(self) -> TaskWork {
        match self {
            Self::Download => TaskWork::Flow(DOWNLOAD),
            Self::Upload => TaskWork::Flow(UPLOAD),
            Self::Page | Self::PageKeepAlive => {
                TaskWork::Pieces { count: OBJECTS, size: OBJECT, at_a_time: PAGE_CONNECTIONS }
            }
            Self::Requests => {
                TaskWork::Pieces { count: REQUESTS, size: REPLY, at_a_time: CONNECTIONS }
            }
        }
    }

    /// Returns the final value of the progress counter: bytes, objects or replies.
    pub fn total(self) -> u64 {
        match self.work() {
            TaskWork::Flow(bytes) => bytes.get(),
            TaskWork::Pieces { count, .. } => count.into(),
        }
    }

    /// Returns a short name, for narrow places.
    pub fn short(self) -> String {
        match self {
            Self::Download | Self::Upload => self.to_string(),
            Self::Page => "Web page, new connections".to_owned(),
            Self::PageKeepAlive => "Web page, kept connections".to_owned(),
            Self::Requests => format!("{REQUESTS} small requests"),
        }
    }

    /// Returns the name of the units of work.
    pub fn parts(self) -> &'static str {
        match self {
            Self::Download | Self::Upload => "bytes",
            Self::Page | Self::PageKeepAlive => "objects",
            Self::Requests => "replies",
        }
    }

    /// Returns true if all ways run concurrently, each in its own lab. Tasks that mostly wait for
    /// the link leave the machine idle and can share it; tasks that fill the link get the machine
    /// to themselves.
    pub fn is_shared(self) -> bool {
        matches!(self.work(), TaskWork::Pieces { .. })
    }

    /// Returns the time for the task over all ways. All tasks together: 116 s.
    fn budget(self) -> Duration {
        Duration::from_secs(match self {
            Self::Download => 36,
            Self::Page => 26,
            Self::PageKeepAlive => 15,
            Self::Requests => 13,
            Self::Upload => 26,
        })
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = format!("{OBJECTS} objects of {OBJECT}, {PAGE_CONNECTIONS} at a time");
        match self {
            Self::Download => write!(f, "Download of {DOWNLOAD}"),
            Self::Upload => write!(f, "Upload of {UPLOAD}"),
            Self::Page => write!(f, "Web page of {page}, a new connection for each"),
            Self::PageKeepAlive => write!(f, "Web page of {page}, over kept connections"),
            Self::Requests => write!(
                f,
                "{REQUESTS} requests of {REQUEST}, replies of {REPLY}, over {CONNECTIONS} connections"
            ),
        }
    }
}

/// The path of the traffic across the link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficPath {
    /// As plain TCP of the end hosts, with this congestion control.
    Plain {
        /// Congestion control of the end hosts.
        name: CongestionControl,
        /// Set if it is this machine's default.
        is_default: bool,
    },
    /// Through the gateway pair.
    Pair,
}

impl TrafficPath {
    /// Returns all ways in the order of the table, on a machine with this default congestion
    /// control.
    pub fn all(default: Option<&CongestionControl>) -> Vec<Self> {
        let known = PLAIN.iter().map(|name| name.parse().expect("a name"));
        let mut names: Vec<CongestionControl> = known.collect();
        let further = default.filter(|default| !names.contains(default)).cloned();
        names.splice(0..0, further);
        let plain = |name| Self::Plain { is_default: default == Some(&name), name };
        names.into_iter().map(plain).chain([Self::Pair]).collect()
    }

    /// Returns the congestion control to set on the end hosts; `None` for their default.
    pub fn congestion_control(&self) -> Option<&CongestionControl> {
        match self {
            Self::Plain { name, .. } => Some(name),
            Self::Pair => None,
        }
    }
}

impl fmt::Display for TrafficPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { name, is_default } => {
                let default = if *is_default { " (default)" } else { "" };
                f.pad(&format!("plain {}{default}", name.as_str().to_uppercase()))
            }
            Self::Pair => f.pad("skyhop"),
        }
    }
}

impl Serialize for TrafficPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain { name, .. } => serializer.serialize_str(name.as_str()),
            Self::Pair => serializer.serialize_str("skyhop"),
        }
    }
}

/// The plan of a study: everything once per round. All ways of a task run back to back or
/// concurrently, so that changes in the machine's load affect them alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoPlan {
    /// Number of rounds; each runs everything once.
    pub rounds: u32,
    /// The tasks, in the order they run.
    pub tasks: Vec<Task>,
    /// Ways, in the order of the table.
    pub ways: Vec<TrafficPath>,
}

impl DemoPlan {
    /// Plans only the tasks in `only`, or all if it is empty.
    pub fn new(rounds: u32, only: &[Task], ways: Vec<TrafficPath>) -> Self {
        let wanted = |task: &Task| only.is_empty() || only.contains(task);
        Self { rounds, tasks: Task::ALL.into_iter().filter(wanted).collect(), ways }
    }

    /// Returns the number of measurements in all rounds.
    pub fn measurements(&self) -> usize {
        self.rounds as usize * self.tasks.len() * self.ways.len()
    }

    /// Returns the ways of a task; those of one group run concurrently. The way likely to finish
    /// first goes first, because the others share the time it leaves.
    pub fn groups(&self, task: Task) -> Vec<Vec<&TrafficPath>> {
        // Reversed: the table ends with the pair, which usually finishes first.
        let ways = self.ways.iter().rev();
        if task.is_shared() { vec![ways.collect()] } else { ways.map(|way| vec![way]).collect() }
    }

    /// Returns the time limit for the traffic of a group that begins `elapsed` into the round, with
    /// `after` more groups of the same task to come: what remains of the budgets up to this task,
    /// less an equal share for each remaining group. Groups that run back to back get at most half
    /// of their task's budget.
    pub fn allowance(&self, task: Task, elapsed: Duration, after: usize) -> Duration {
        let so_far = self.tasks.iter().filter(|each| **each <= task);
        let end: Duration = so_far.map(|each| each.budget()).sum();
        let groups = self.groups(task).len() as u32;
        let reserved = task.budget() / (groups + 1) * after as u32;
        let most = if groups == 1 { task.budget() } else { task.budget() / 2 };
        // Does not panic: half of the smallest budget is more than `LEAST`.
        end.saturating_sub(elapsed + reserved + AROUND).clamp(LEAST, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways() -> Vec<TrafficPath> {
        TrafficPath::all(None)
    }

    #[test]
    fn only_restricts_and_keeps_the_order() {
        let plan = DemoPlan::new(2, &[Task::Requests, Task::Download], ways());
        assert_eq!(plan.tasks, [Task::Download, Task::Requests]);
        assert_eq!(plan.measurements(), 12);
        assert_eq!(DemoPlan::new(1, &[], ways()).tasks, Task::ALL);
    }

    #[test]
    fn names_as_the_table_shows_them() {
        let names = |default: &str| -> Vec<String> {
            let default = default.parse().unwrap();
            TrafficPath::all(Some(&default)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("bbr"), ["plain CUBIC", "plain BBR (default)", "skyhop"]);
        assert_eq!(names("reno"), ["plain RENO (default)", "plain CUBIC", "plain BBR", "skyhop"]);
        assert_eq!(Task::Download.to_string(), "Download of 20 MB");
        assert_eq!(
            Task::Requests.to_string(),
            "100 requests of 1 kB, replies of 10 kB, over 20 connections"
        );
        let page = "Web page of 40 objects of 50 kB, 6 at a time, over kept connections";
        assert_eq!(Task::PageKeepAlive.to_string(), page);
    }

    /// However much of its time limit each measurement uses, the round ends within two minutes.
    #[test]
    fn a_round_ends_in_time() {
        for hopeless in [0.0, 0.3, 1.0] {
            let default = "reno".parse().unwrap();
            let plan = DemoPlan::new(1, &[], TrafficPath::all(Some(&default)));
            let mut elapsed = Duration::ZERO;
            for &task in &plan.tasks {
                let groups = plan.groups(task);
                for (index, _) in groups.iter().enumerate() {
                    let allowed = plan.allowance(task, elapsed, groups.len() - 1 - index);
                    assert!(allowed > LEAST, "{task} {index}: {allowed:?}");
                    elapsed += AROUND + allowed.mul_f64(hopeless);
                }
            }
            assert!(elapsed <= Duration::from_secs(116), "{hopeless}: {elapsed:?}");
        }
    }

    #[test]
    fn what_the_first_leave_is_for_the_last() {
        let plan = DemoPlan::new(1, &[Task::Download], ways());
        let after = |seconds, after| {
            plan.allowance(Task::Download, Duration::from_secs(seconds), after).as_secs_f64()
        };
        assert_eq!(after(0, 2), 36.0 - 18.0 - 1.5);
        assert_eq!(after(5, 1), 18.0);
        assert_eq!(after(20, 0), 16.0 - 1.5);
        assert_eq!(after(100, 0), 2.0);
    }
}
