//! Limits on the connections and the memory of a gateway.

use units::ByteCount;

use super::bypass::BypassReason;

/// Descriptors for other purposes: the hop, listeners, control clients.
const OTHER_DESCRIPTORS: u64 = 64;

/// Resources that the machine gives to a gateway.
#[derive(Debug, Clone, Copy)]
pub struct MachineResources {
    /// Memory of the machine or its control group, in bytes.
    pub memory: u64,
    /// Descriptors that the process may have.
    pub descriptors: u64,
    /// Descriptors that a connection needs.
    pub descriptors_each: u64,
}

/// Limits beyond which new connections are not carried.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    memory: u64,
    connections: u64,
}

impl ConnectionLimits {
    /// Computes the limits: half of the memory unless configured, and as many connections as there are
    /// descriptors for, which `connections` can only lower.
    pub fn new(memory: Option<ByteCount>, connections: Option<u64>, has: MachineResources) -> Self {
        let free = has.descriptors.saturating_sub(OTHER_DESCRIPTORS);
        let possible = (free / has.descriptors_each.max(1)).max(1);
        Self {
            memory: memory.map_or(has.memory / 2, ByteCount::get),
            connections: connections.map_or(possible, |most| most.min(possible)),
        }
    }

    /// The limit that this number of connections, holding this many bytes, has reached.
    pub fn exceeded(&self, connections: usize, held: u64) -> Option<BypassReason> {
        if connections as u64 >= self.connections {
            return Some(BypassReason::Connections);
        }
        (held >= self.memory).then_some(BypassReason::Memory)
    }

    /// Returns `true` if less than a sixteenth of a limit is left.
    pub fn is_near(&self, connections: usize, held: u64) -> bool {
        let is_near = |used: u64, most: u64| used >= most - most / 16;
        is_near(connections as u64, self.connections) || is_near(held, self.memory)
    }

    /// Maximum bytes held by all connections.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Maximum number of connections, as far as there are descriptors.
    pub fn connections(&self) -> u64 {
        self.connections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAS: MachineResources =
        MachineResources { memory: 1 << 30, descriptors: 1064, descriptors_each: 2 };

    #[test]
    fn each_limit_has_its_reason() {
        let limits = ConnectionLimits::new(Some(ByteCount::new(1000)), Some(10), HAS);
        assert_eq!(limits.exceeded(9, 999), None);
        assert_eq!(limits.exceeded(10, 0), Some(BypassReason::Connections));
        assert_eq!(limits.exceeded(0, 1000), Some(BypassReason::Memory));
        assert!(!limits.is_near(9, 937) && limits.is_near(10, 0) && limits.is_near(0, 938));
    }

    #[test]
    fn limits_default_to_the_machine_s_and_never_exceed_them() {
        let usual = ConnectionLimits::new(None, None, HAS);
        assert_eq!((usual.memory(), usual.connections()), (1 << 29, 500));
        assert_eq!(ConnectionLimits::new(None, Some(501), HAS).connections(), 500);
        let few = ConnectionLimits::new(None, None, MachineResources { descriptors: 10, ..HAS });
        assert_eq!(few.connections(), 1, "a gateway that can carry nothing would be of no use");
    }
}
