//! The identity of a process, which no later process of the same number has.

use core::fmt;
use core::str::FromStr;
use std::fs;
use std::io;

use nix::sys::signal::Signal;
use os::process::Handle;

/// A process: its number, and its start time in clock ticks since boot (proc(5), field 22 of
/// `stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessIdentity {
    pid: u32,
    start: u64,
}

impl ProcessIdentity {
    /// Returns the identity of this process.
    pub(super) fn own() -> io::Result<Self> {
        let pid = std::process::id();
        let start = start_of(pid).ok_or_else(|| io::Error::other("cannot read /proc"))?;
        Ok(Self { pid, start })
    }

    /// Sends the process a signal. Returns false if it has ended, even if its number is in use
    /// again.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(process) = Handle::open(self.pid)? else { return Ok(false) };
        // The handle refers to the process that has the number right now, so whatever holds for
        // the number now holds for it.
        if start_of(self.pid) != Some(self.start) {
            return Ok(false);
        }
        process.signal(signal)
    }
}

/// Returns the start time of the process.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name (field 2) may contain anything, even ')'.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.start)
    }
}

/// A text that does not identify a process.
#[derive(Debug)]
pub(super) struct NoIdentity;

impl FromStr for ProcessIdentity {
    type Err = NoIdentity;

    fn from_str(text: &str) -> Result<Self, NoIdentity> {
        let (pid, start) = text.split_once(' ').ok_or(NoIdentity)?;
        let pid = pid.parse();
        let start = start.parse();
        match (pid, start) {
            // pidfd_open requires positive numbers.
            (Ok(pid @ 1..=0x7fff_ffff), Ok(start)) => Ok(Self { pid, start }),
            _ => Err(NoIdentity),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, ProcessIdentity) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity { pid: child.id(), start: start_of(child.id()).unwrap() };
        (child, identity)
    }

    #[test]
    fn an_identity_reads_back() {
        let own = ProcessIdentity::own().unwrap();
        assert_eq!(own.to_string().parse::<ProcessIdentity>().unwrap(), own);
    }

    #[test]
    fn a_later_process_of_the_same_number_is_left_alone() {
        let (mut child, identity) = sleeper();
        let earlier = ProcessIdentity { start: identity.start - 1, ..identity };
        assert!(!earlier.signal(Signal::SIGKILL).unwrap());
        assert!(child.try_wait().unwrap().is_none(), "the wrong one was killed");
        assert!(identity.signal(Signal::SIGKILL).unwrap());
        assert_eq!(child.wait().unwrap().code(), None);
        assert!(!identity.signal(Signal::SIGKILL).unwrap());
    }
}
