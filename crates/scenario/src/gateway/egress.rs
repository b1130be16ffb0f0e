//! Egress rules: section `[egress]` and the keys `reach` and `deny` of a `[[terminal]]` on a hub,
//! section `[accept]` on a terminal.

use pep::egress::{Egress, Target};

use super::raw::sections;
use crate::FileError;
use crate::place::Place;
use crate::text::Text;

/// Maximum number of lines per list, because each connection is compared with all of them.
const MOST_TARGETS: usize = 1000;

/// Reads the default rules of a hub, for terminals without rules of their own.
pub(super) fn usual(place: &Place<'_>, raw: Option<sections::Egress>) -> Result<Egress, FileError> {
    let raw = raw.unwrap_or_default();
    of_terminal(&place.within("egress"), &Egress::everywhere(), raw.reach, raw.deny)
}

/// Reads the rules of one terminal: its `reach` replaces the `usual` one, its `deny` adds to it.
pub(super) fn of_terminal(
    place: &Place<'_>,
    usual: &Egress,
    reach: Option<Vec<Text<Target>>>,
    deny: Vec<Text<Target>>,
) -> Result<Egress, FileError> {
    let reach = reach.map(|reach| targets(place, "reach", reach)).transpose()?;
    Ok(Egress {
        reach: reach.unwrap_or_else(|| usual.reach.clone()),
        deny: [usual.deny.clone(), targets(place, "deny", deny)?].concat(),
    })
}

/// Reads a terminal's rules for connections from the hub.
pub(super) fn accept(
    place: &Place<'_>,
    raw: Option<sections::Accept>,
) -> Result<Egress, FileError> {
    let Some(raw) = raw else { return Ok(Egress::nowhere()) };
    let place = place.within("accept");
    Ok(Egress { reach: targets(&place, "to", raw.to)?, deny: targets(&place, "deny", raw.deny)? })
}

fn targets(
    place: &Place<'_>,
    key: &str,
    targets: Vec<Text<Target>>,
) -> Result<Vec<Target>, FileError> {
    let count = targets.len();
    let expected = format!("at most {MOST_TARGETS} lines");
    place.check(count <= MOST_TARGETS, key, format!("{count} lines"), expected)?;
    Ok(targets.into_iter().map(|target| target.0).collect())
}

/// Rejects `allow_loopback`, which hubs of earlier versions had.
pub(super) fn no_allow_loopback(place: &Place<'_>, key: Option<bool>) -> Result<(), FileError> {
    const EXPECTED: &str = "no such key, which has been removed: list loopback addresses in what \
                            terminals may reach, like `[egress]` with `reach = [\"0.0.0.0/0\", \
                            \"::/0\", \"127.0.0.0/8\", \"::1\"]`";
    key.map_or(Ok(()), |value| Err(place.wrong("allow_loopback", value, EXPECTED)))
}
