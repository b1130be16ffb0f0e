//! Limits of each terminal on a hub: section `[limits]`, and the same keys of a `[[terminal]]`,
//! which also has `weight`, `guaranteed`, `maximum` and `memory`.

use core::ops::RangeInclusive;

use pep::admission::Quota;
use slacp::SessionShare;

use super::hop::size;
use super::raw::sections;
use super::{guarantees, number, rate};
use crate::FileError;
use crate::place::Place;

/// Up to the number of streams in a session.
const CONNECTIONS: RangeInclusive<i64> = 1..=65_536;
/// Upper end: more than the kernel can open.
const PER_SECOND: RangeInclusive<i64> = 1..=1_000_000;
/// Upper end: the size of the resolver's thread pool.
const LOOKUPS: RangeInclusive<i64> = 1..=128;
/// The same range as a class.
const WEIGHT: RangeInclusive<i64> = 1..=1000;

/// Default limits of all terminals.
pub(super) fn usual(place: &Place<'_>, raw: Option<sections::Limits>) -> Result<Quota, FileError> {
    let raw = raw.unwrap_or_default();
    let counts = [raw.max_connections, raw.connections_per_second, raw.lookups];
    limited(&place.within("limits"), Quota::default(), counts)
}

/// Limits of one terminal: its own values, otherwise those of `usual`.
pub(super) fn of_terminal(
    place: &Place<'_>,
    usual: Quota,
    raw: &sections::PermittedTerminal,
) -> Result<Quota, FileError> {
    let counts = [raw.max_connections, raw.connections_per_second, raw.lookups];
    Ok(Quota {
        share: share(place, raw)?,
        memory: size(place, "memory", raw.memory)?,
        ..limited(place, usual, counts)?
    })
}

fn share(place: &Place<'_>, raw: &sections::PermittedTerminal) -> Result<SessionShare, FileError> {
    let weight = number(place, "weight", raw.weight, (WEIGHT, ""))?;
    let guaranteed = rate::rate(place, "guaranteed", raw.guaranteed)?;
    let maximum = rate::rate(place, "maximum", raw.maximum)?;
    guarantees::within(place, guaranteed, maximum)?;
    Ok(SessionShare { weight: weight.map_or(1, |weight| weight as u32), guaranteed, maximum })
}

fn limited(
    place: &Place<'_>,
    usual: Quota,
    [connections, per_second, lookups]: [Option<i64>; 3],
) -> Result<Quota, FileError> {
    let connections = number(place, "max_connections", connections, (CONNECTIONS, ""))?;
    let per_second = number(place, "connections_per_second", per_second, (PER_SECOND, ""))?;
    let lookups = number(place, "lookups", lookups, (LOOKUPS, ""))?;
    Ok(Quota {
        connections: connections.map(|most| most as u64).or(usual.connections),
        per_second: per_second.map_or(usual.per_second, |pace| pace as u32),
        lookups: lookups.map_or(usual.lookups, |most| most as usize),
        ..usual
    })
}
