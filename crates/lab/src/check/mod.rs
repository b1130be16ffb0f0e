//! Measures a lab's link from outside and compares it with what was asked for.
//!
//! Probes are UDP packets between `terminal` and `hub`. A [`Tap`](crate::tap) on
//! each of the two sees them leave and arrive; delays are differences of the
//! kernel's two time stamps, so that neither the sender's nor the receiver's
//! own slowness counts. The driver has no part in what is measured; its own
//! record of its lateness stands beside it, to tell whose fault a miss is.

mod asked;
mod bench;
mod binomial;
mod flows;
mod judge;
mod probe;
mod reach;
mod rehearse;
mod report;
mod run;
mod span;
mod verdict;

use std::io;

use thiserror::Error;

pub use self::report::{
    CheckReport, DelayReport, DirectionReport, DisciplineReport, DriverReport, LossReport,
    OrderReport, QueueReport, RateReport, ReachReport,
};
pub use self::run::check;

use crate::{Node, StartError};

/// Why a link cannot be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The lab does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A socket for probes cannot be had.
    #[error("cannot open a socket for probes on {node}: {cause}")]
    Socket {
        /// The host.
        node: Node,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// More went by on a host's device than could be recorded.
    #[error("{missed} packets on {node} were not recorded: this machine is too busy to measure")]
    Blind {
        /// The host.
        node: Node,
        /// How many.
        missed: u64,
    },
}
