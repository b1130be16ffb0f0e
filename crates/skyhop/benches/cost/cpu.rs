//! The CPU time of a process.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

use crate::Failure;

/// User and system time of process `pid` in seconds, to a hundredth or so.
pub(crate) fn seconds(pid: u32) -> Result<f64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold spaces; utime and stime are the 14th and 15th field.
    let fields = stat.rsplit_once(')').ok_or("no process")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<_, _>>()?;
    let per_second = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100);
    Ok(ticks as f64 / per_second as f64)
}
