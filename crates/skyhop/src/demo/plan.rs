//! What the demo runs, and in which order.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use meter::CongestionControl;
use serde::{Serialize, Serializer};
use units::ByteCount;

/// How long a transfer, or all requests, may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Payload of the download.
pub(crate) const DOWNLOAD: ByteCount = ByteCount::new(20_000_000);
/// Payload of the upload.
pub(crate) const UPLOAD: ByteCount = ByteCount::new(5_000_000);
/// Requests in all.
pub(crate) const REQUESTS: u32 = 40;
/// Connections that share the requests.
pub(crate) const CONNECTIONS: u32 = 8;
/// Payload of a request.
pub(crate) const REQUEST: ByteCount = ByteCount::new(1_000);
/// Payload of a reply.
pub(crate) const REPLY: ByteCount = ByteCount::new(10_000);
/// The kernel's congestion controls that skyhop is compared with.
const PLAIN: [&str; 2] = ["cubic", "bbr"];

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// One flow from the server to the client.
    Download,
    /// One flow from the client to the server.
    Upload,
    /// Many small requests and replies.
    Requests,
}

impl Task {
    /// All of them, in the order in which they run.
    pub(crate) const ALL: [Self; 3] = [Self::Download, Self::Upload, Self::Requests];

    /// What the progress bar counts to: bytes or replies.
    pub(crate) fn total(self) -> u64 {
        match self {
            Self::Download => DOWNLOAD.get(),
            Self::Upload => UPLOAD.get(),
            Self::Requests => REQUESTS.into(),
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Download => write!(f, "Download of {DOWNLOAD}"),
            Self::Upload => write!(f, "Upload of {UPLOAD}"),
            Self::Requests => write!(
                f,
                "{REQUESTS} requests of {REQUEST}, replies of {REPLY}, over {CONNECTIONS} connections"
            ),
        }
    }
}

/// How the traffic crosses the link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// As the end hosts' kernel TCP, with this congestion control.
    Plain(CongestionControl),
    /// Through the gateway pair.
    Pair,
}

impl Way {
    /// All of them, in the order in which they run.
    pub(crate) fn all() -> Vec<Self> {
        let plain = PLAIN.iter().map(|name| Self::Plain(name.parse().expect("a name")));
        plain.chain([Self::Pair]).collect()
    }

    /// The congestion control that the end hosts are told to use.
    pub(crate) fn congestion_control(&self) -> Option<&CongestionControl> {
        match self {
            Self::Plain(name) => Some(name),
            Self::Pair => None,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) => f.pad(&format!("plain {}", name.as_str().to_uppercase())),
            Self::Pair => f.pad("skyhop"),
        }
    }
}

impl Serialize for Way {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(name) => serializer.serialize_str(name.as_str()),
            Self::Pair => serializer.serialize_str("skyhop"),
        }
    }
}

/// What is to be run: everything once per round, so that whatever changes on
/// the machine in the meantime meets all ways alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How often.
    pub(crate) rounds: u32,
    /// What, in order.
    pub(crate) tasks: Vec<Task>,
    /// How, in order.
    pub(crate) ways: Vec<Way>,
}

impl Plan {
    /// Only the tasks of `only`, or all if it is empty.
    pub(crate) fn new(rounds: u32, only: &[Task], ways: Vec<Way>) -> Self {
        let wanted = |task: &Task| only.is_empty() || only.contains(task);
        Self { rounds, tasks: Task::ALL.into_iter().filter(wanted).collect(), ways }
    }

    /// How many measurements that makes.
    pub(crate) fn len(&self) -> usize {
        self.rounds as usize * self.tasks.len() * self.ways.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_restricts_and_keeps_the_order() {
        let plan = Plan::new(2, &[Task::Requests, Task::Download], Way::all());
        assert_eq!(plan.tasks, [Task::Download, Task::Requests]);
        assert_eq!(plan.len(), 12);
        assert_eq!(Plan::new(1, &[], Way::all()).tasks, Task::ALL);
    }

    #[test]
    fn names_as_the_table_shows_them() {
        let names: Vec<String> = Way::all().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["plain CUBIC", "plain BBR", "skyhop"]);
        assert_eq!(Task::Download.to_string(), "Download of 20 MB");
        assert_eq!(
            Task::Requests.to_string(),
            "40 requests of 1 kB, replies of 10 kB, over 8 connections"
        );
    }
}
