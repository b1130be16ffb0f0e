//! Resources of the machine and the process, and their use.

use std::fs;

use config::OperationConfig;
use control::Role;
use control::status::MemoryStatus;
use os::descriptor::raise_limit;
use pep::admission::{ConnectionLimits, MachineResources};

/// Memory assumed if the machine does not report it, in bytes.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// The limits of a gateway, and the descriptor limit of its process.
#[derive(Debug, Clone)]
pub(super) struct ProcessLimits {
    pub(super) limits: ConnectionLimits,
    descriptors: u64,
}

impl ProcessLimits {
    /// The configured limits, or defaults from the machine. Raises the process's soft descriptor
    /// limit.
    pub(super) fn new(config: &OperationConfig, role: Role) -> Self {
        let descriptors = raise_limit();
        // A solo gateway has a socket on both sides of a connection.
        let descriptors_each = match role {
            Role::Hub | Role::Terminal => 1,
            Role::Solo => 2,
        };
        let has = MachineResources { memory: usable_memory(), descriptors, descriptors_each };
        let limits = ConnectionLimits::new(config.total_memory, config.max_connections, has);
        Self { limits, descriptors }
    }

    pub(super) fn status(&self, connections: usize, held: u64) -> MemoryStatus {
        MemoryStatus {
            held_bytes: held,
            limit_bytes: self.limits.memory(),
            resident_bytes: field("/proc/self/status", "VmRSS:").unwrap_or(0),
            connections: connections as u64,
            connections_limit: self.limits.connections(),
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            descriptors_limit: self.descriptors,
        }
    }
}

/// Memory of the machine, or of our control group (v2) if that is less.
fn usable_memory() -> u64 {
    let machine = field("/proc/meminfo", "MemTotal:").unwrap_or(UNKNOWN_MEMORY);
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max");
    // Without a limit the file reads `max`, which is no number.
    let group = group.ok().and_then(|text| text.trim().parse().ok());
    group.map_or(machine, |group: u64| group.min(machine))
}

/// Reads a field such as `VmRSS:   1234 kB` of a file in /proc; in bytes.
fn field(file: &str, name: &str) -> Option<u64> {
    parse_field(&fs::read_to_string(file).ok()?, name)
}

fn parse_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconfigured_bounds_are_those_of_the_machine() {
        let limits = ProcessLimits::new(&OperationConfig::default(), Role::Terminal);
        let status = limits.status(0, 0);
        assert!(status.limit_bytes > 1 << 20 && status.resident_bytes > 1 << 20, "{status:?}");
        assert!(status.descriptors >= 3 && status.descriptors < status.descriptors_limit);
        assert!(status.connections_limit < status.descriptors_limit);
        // A solo gateway needs two sockets per connection.
        let alone = ProcessLimits::new(&OperationConfig::default(), Role::Solo).status(0, 0);
        assert_eq!(alone.connections_limit, status.connections_limit / 2);
    }

    #[test]
    fn figures_of_the_kernel_are_read() {
        assert_eq!(parse_field("VmPeak:\t9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1024));
        assert_eq!(parse_field("VmRSS:\t12\n", "VmRSS:"), None);
        assert_eq!(parse_field("", "VmRSS:"), None);
    }
}
