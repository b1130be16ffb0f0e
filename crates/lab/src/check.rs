//! Measures a lab's link from outside and compares it with its configuration.
//!
//! Probes are UDP packets between `terminal` and `hub`. A [`Tap`](os::packet::Tap) on each sees them
//! leave and arrive. Delays are differences between two kernel time stamps, so neither the sender's
//! nor the receiver's own slowness counts. The driver takes no part in the measurement; its own
//! record of lateness is reported as well, to show what caused a deviation.

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
mod text;
mod verdict;

use std::io;

use thiserror::Error;

pub use self::report::{
    CheckReport, DelayReport, DirectionReport, DisciplineReport, DriverReport, LossReport,
    OrderReport, QueueReport, RateReport, ReachReport,
};
pub use self::run::check;

use crate::{Node, StartError};

/// The reason why a link could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The lab did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A probe socket could not be opened.
    #[error("cannot open a socket for probes on {node}: {cause}")]
    Socket {
        /// The host of the socket.
        node: Node,
        /// The error of the system call.
        cause: io::Error,
    },
    /// Packets went by on a host's device faster than they could be recorded.
    #[error("{missed} packets on {node} were not recorded: this machine is too busy to measure")]
    Blind {
        /// The host of the device.
        node: Node,
        /// Number of packets not recorded.
        missed: u64,
    },
}
