//! Linux capabilities of this process.

use std::fs;

/// A capability, numbered as in `linux/capability.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysAdmin = 21,
}

impl Capability {
    /// Returns whether the capability is in the process's effective set.
    pub(crate) fn is_held(self) -> bool {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        effective.is_some_and(|bits| bits & (1 << self as u64) != 0)
    }
}
