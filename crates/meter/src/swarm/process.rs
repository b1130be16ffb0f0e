//! Memory and CPU time of the hub's process.

use std::fs;
use std::io;

use nix::time::ClockId;
use nix::unistd::Pid;
use serde::Serialize;

/// Memory and CPU time of the hub's process, by phase of the swarm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ProcessFigures {
    /// Resident memory before the swarm, in bytes.
    pub resident_before_bytes: u64,
    /// Resident memory with all sessions up.
    pub resident_up_bytes: u64,
    /// Resident memory after the traffic.
    pub resident_after_bytes: u64,
    /// Maximum resident memory since the process started.
    pub resident_peak_bytes: u64,
    /// Memory per session with all sessions up: the difference of the first two, divided by their
    /// number.
    pub resident_per_session_bytes: Option<u64>,
    /// CPU time while the sessions came up, in seconds.
    pub setup_cpu_seconds: f64,
    /// CPU time during the traffic, in seconds.
    pub traffic_cpu_seconds: f64,
    /// CPU time of the traffic per 10⁹ bytes moved; `None` if nothing was moved.
    pub cpu_seconds_per_gigabyte: Option<f64>,
}

/// Measures a process phase by phase.
pub(super) struct ProcessGauge {
    process: Pid,
    before: u64,
    cpu: f64,
}

/// CPU time that a phase used, and the memory of the process at its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct PhaseUsage {
    cpu: f64,
    memory: ResidentMemory,
}

/// Resident memory in bytes: now, and the maximum so far.
#[derive(Debug, Clone, Copy, Default)]
struct ResidentMemory {
    now: u64,
    peak: u64,
}

impl ProcessGauge {
    pub(super) fn new(process: u32) -> io::Result<Self> {
        let process = Pid::from_raw(i32::try_from(process).map_err(io::Error::other)?);
        Ok(Self { process, before: memory(process)?.now, cpu: cpu(process)? })
    }

    /// Ends a phase. A process that has ended used no more CPU time.
    pub(super) fn lap(&mut self) -> PhaseUsage {
        let cpu = cpu(self.process).unwrap_or(self.cpu);
        let used = cpu - core::mem::replace(&mut self.cpu, cpu);
        PhaseUsage { cpu: used, memory: memory(self.process).unwrap_or_default() }
    }

    /// Returns the figures of the two phases, in which `sessions` came up and `moved` bytes were
    /// moved.
    pub(super) fn figures(
        &self,
        phases: [PhaseUsage; 2],
        sessions: u32,
        moved: u64,
    ) -> ProcessFigures {
        let [setup, traffic] = phases;
        // The process may have returned memory since.
        let grown = setup.memory.now.saturating_sub(self.before);
        ProcessFigures {
            resident_before_bytes: self.before,
            resident_up_bytes: setup.memory.now,
            resident_after_bytes: traffic.memory.now,
            resident_peak_bytes: traffic.memory.peak,
            resident_per_session_bytes: grown.checked_div(sessions.into()),
            setup_cpu_seconds: setup.cpu,
            traffic_cpu_seconds: traffic.cpu,
            cpu_seconds_per_gigabyte: (moved > 0).then(|| traffic.cpu / moved as f64 * 1e9),
        }
    }
}

fn cpu(process: Pid) -> io::Result<f64> {
    let time = ClockId::pid_cpu_clock_id(process)?.now()?;
    Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

fn memory(process: Pid) -> io::Result<ResidentMemory> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("the process has no memory"))
    };
    // VmHWM is the peak of VmRSS since the process started (proc(5)).
    Ok(ResidentMemory { now: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}
