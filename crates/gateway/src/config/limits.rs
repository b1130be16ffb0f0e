//! What each terminal may take of a hub: section `[limits]`, and the same keys of a
//! `[[terminal]]`, which may have a `weight` and a `memory` of its own, too.

use std::ops::RangeInclusive;

use super::{ConfigError, Source, raw};
use crate::quota::Quota;

/// As many as a session has streams.
const CONNECTIONS: RangeInclusive<i64> = 1..=65_536;
/// More than the kernel opens.
const PER_SECOND: RangeInclusive<i64> = 1..=1_000_000;
/// All threads that there are for it.
const LOOKUPS: RangeInclusive<i64> = 1..=128;
/// As of a class.
const WEIGHT: RangeInclusive<i64> = 1..=1000;

impl Source {
    /// What every terminal may take whose own section says nothing.
    pub(super) fn limits(&self, raw: Option<raw::Limits>) -> Result<Quota, ConfigError> {
        self.quota("limits", Quota::default(), &raw.unwrap_or_default())
    }

    /// What one terminal may take, where that is not what is `usual`.
    pub(super) fn quota(
        &self,
        section: &str,
        usual: Quota,
        raw: &raw::Limits,
    ) -> Result<Quota, ConfigError> {
        let number = |key: &str, value: Option<i64>, range: RangeInclusive<i64>| match value {
            Some(value) if !range.contains(&value) => {
                let problem = format!("expected {} to {}", range.start(), range.end());
                Err(self.value(&format!("{section}.{key}"), value, problem))
            }
            value => Ok(value),
        };
        let connections = number("max_connections", raw.max_connections, CONNECTIONS)?;
        let per_second = number("connections_per_second", raw.connections_per_second, PER_SECOND)?;
        let lookups = number("lookups", raw.lookups, LOOKUPS)?;
        let weight = number("weight", raw.weight, WEIGHT)?;
        Ok(Quota {
            weight: weight.map_or(usual.weight, |weight| weight as u32),
            connections: connections.map(|most| most as u64).or(usual.connections),
            per_second: per_second.map_or(usual.per_second, |pace| pace as u32),
            lookups: lookups.map_or(usual.lookups, |most| most as usize),
            memory: self.optional_size("terminal.memory", raw.memory.clone())?,
        })
    }
}
