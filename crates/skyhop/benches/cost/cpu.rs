//! CPU time of a process.

use nix::time::ClockId;
use nix::unistd::Pid;

use crate::Failure;

/// User and system time of process `pid` in seconds.
pub(crate) fn seconds(pid: u32) -> Result<f64, Failure> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.try_into()?))?;
    let time = clock.now()?;
    Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}
