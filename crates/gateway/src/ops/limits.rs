//! Limits on what a gateway holds, and its current usage.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::OperationConfig;
use crate::status::{Bypass, MemoryStatus, Role};

/// Descriptors for other purposes: the hop, listeners, control clients.
const OTHER_DESCRIPTORS: u64 = 64;
/// Memory assumed if the machine does not report it, in bytes.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// Limits on memory, connections and descriptors.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    memory: u64,
    pub(super) connections: u64,
    descriptors: u64,
}

impl Limits {
    /// The configured limits, or defaults from the machine. Raises the process's soft descriptor
    /// limit.
    pub(super) fn new(config: &OperationConfig, role: Role) -> Self {
        let descriptors = raise_descriptors();
        let each = match role {
            Role::Hub | Role::Terminal => 1,
            Role::Solo => 2,
        };
        let possible = (descriptors.saturating_sub(OTHER_DESCRIPTORS) / each).max(1);
        let configured = config.total_memory.map(|memory| memory.get());
        Self {
            memory: configured.unwrap_or_else(|| usable_memory() / 2),
            connections: config.max_connections.map_or(possible, |most| most.min(possible)),
            descriptors,
        }
    }

    /// The limit that has been reached, if any.
    pub(super) fn exceeded(&self, connections: usize, held: u64) -> Option<Bypass> {
        if connections as u64 >= self.connections {
            return Some(Bypass::Connections);
        }
        (held >= self.memory).then_some(Bypass::Memory)
    }

    pub(super) fn status(&self, connections: usize, held: u64) -> MemoryStatus {
        MemoryStatus {
            held_bytes: held,
            limit_bytes: self.memory,
            resident_bytes: field("/proc/self/status", "VmRSS:").unwrap_or(0),
            connections: connections as u64,
            connections_limit: self.connections,
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            descriptors_limit: self.descriptors,
        }
    }
}

/// Raises the soft descriptor limit to the hard one, and returns it.
fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Memory of the machine, or of our control group if that is less.
fn usable_memory() -> u64 {
    let machine = field("/proc/meminfo", "MemTotal:").unwrap_or(UNKNOWN_MEMORY);
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max");
    let group = group.ok().and_then(|text| text.trim().parse().ok());
    group.map_or(machine, |group: u64| group.min(machine))
}

/// A field such as `VmRSS:   1234 kB` of a file in /proc, in bytes.
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
    use units::ByteCount;

    use super::*;

    #[test]
    fn each_bound_has_its_reason() {
        let config = OperationConfig {
            total_memory: Some(ByteCount::new(1000)),
            max_connections: Some(10),
            ..OperationConfig::default()
        };
        let limits = Limits::new(&config, Role::Hub);
        assert_eq!(limits.exceeded(9, 999), None);
        assert_eq!(limits.exceeded(10, 0), Some(Bypass::Connections));
        assert_eq!(limits.exceeded(0, 1000), Some(Bypass::Memory));
    }

    #[test]
    fn unconfigured_bounds_are_those_of_the_machine() {
        let limits = Limits::new(&OperationConfig::default(), Role::Terminal);
        let status = limits.status(0, 0);
        assert!(status.limit_bytes > 1 << 20 && status.resident_bytes > 1 << 20, "{status:?}");
        assert!(status.descriptors >= 3 && status.descriptors < status.descriptors_limit);
        assert!(status.connections_limit < status.descriptors_limit);
        // A solo gateway needs two sockets per connection.
        let alone = Limits::new(&OperationConfig::default(), Role::Solo).status(0, 0);
        assert_eq!(alone.connections_limit, status.connections_limit / 2);
    }

    #[test]
    fn figures_of_the_kernel_are_read() {
        assert_eq!(parse_field("VmPeak:\t9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1024));
        assert_eq!(parse_field("VmRSS:\t12\n", "VmRSS:"), None);
        assert_eq!(parse_field("", "VmRSS:"), None);
    }
}
