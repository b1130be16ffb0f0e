//! The report of a run that ended before its condition held.

use core::fmt;

use thiserror::Error;
use units::Instant;

/// A run ended before its condition held. Prints as a report: the time, the reason, and what each
/// machine was waiting for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub struct Stalled {
    /// The virtual time at that moment.
    pub now: Instant,
    /// The reason why the run ended.
    pub reason: Reason,
    /// Every link and peer, in driving order.
    pub machines: Vec<Waiting>,
}

/// The reason why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The deadline was reached before the condition held.
    #[error("the deadline has passed")]
    Deadline,
    /// Nothing is in transit and no machine waits for anything.
    #[error("nothing will ever happen again")]
    Idle,
    /// The clock stands still although the machines keep being driven: one has a timeout in the
    /// past, or keeps transmitting.
    #[error("livelock: {rounds} rounds at the same instant")]
    Livelock {
        /// Number of rounds at that instant.
        rounds: u32,
    },
}

/// A machine with the event that it was waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// `peer 0`, or `link 0 -> 1`.
    pub machine: String,
    /// Its next timeout, and the reason given by its `Wake`.
    pub next: Option<(Instant, String)>,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stalled at {}: {}", self.now, self.reason)?;
        for Waiting { machine, next } in &self.machines {
            match next {
                Some((at, why)) => write!(f, "\n  {machine}: {at} {why}")?,
                None => write!(f, "\n  {machine}: waits for nothing")?,
            }
        }
        Ok(())
    }
}
