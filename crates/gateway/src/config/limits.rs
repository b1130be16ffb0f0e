//! Limits of each terminal on a hub: section `[limits]`, and the same keys of a `[[terminal]]`,
//! which also has `weight` and `memory`.

use std::ops::RangeInclusive;

use pep::admission::Quota;

use super::{ConfigError, Source, raw};

/// Up to the number of streams in a session.
const CONNECTIONS: RangeInclusive<i64> = 1..=65_536;
/// Upper end: more than the kernel can open.
const PER_SECOND: RangeInclusive<i64> = 1..=1_000_000;
/// Upper end: the size of the resolver's thread pool.
const LOOKUPS: RangeInclusive<i64> = 1..=128;
/// The same range as a class.
const WEIGHT: RangeInclusive<i64> = 1..=1000;

impl Source {
    /// Default limits of all terminals.
    pub(super) fn limits(&self, raw: Option<raw::Limits>) -> Result<Quota, ConfigError> {
        self.quota("limits", Quota::default(), &raw.unwrap_or_default())
    }

    /// Limits of one terminal: its own values, otherwise those of `usual`.
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
