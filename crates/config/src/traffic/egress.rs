//! Egress rules: section `[egress]` and the keys `reach` and `deny` of a `[[terminal]]` on a hub,
//! section `[accept]` on a terminal.

use pep::egress::{EgressRules, EgressTarget};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::place::KeyContext;
use crate::file::text::Text;

/// Destinations that terminals may reach through the hub.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Egress")]
pub(crate) struct EgressSection {
    /// Destinations that all terminals may reach: prefixes, with ports if not all, such as `"0.0.0.0/0:443"`; at
    /// most 1000 lines. [Special addresses and those of gateways](access.md#the-rule) need lines of their own.
    /// Default: everything but these.
    #[schemars(extend("examples" = [["0.0.0.0/0:443", "10.1.0.0/16"]]))]
    pub(crate) reach: Option<Vec<Text<EgressTarget>>>,
    /// Destinations that terminals may not reach even if they are in `reach`; at most 1000 lines.
    #[serde(default)]
    pub(crate) deny: Vec<Text<EgressTarget>>,
}

/// Destinations behind this terminal for the hub's side and other terminals.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Accept")]
pub(crate) struct AcceptSection {
    /// Destinations behind this terminal that may be reached: prefixes, with ports if not all, such as
    /// `"10.1.0.0/16:22"`; at most 1000 lines. [Special addresses and those of gateways](access.md#the-rule) need
    /// lines of their own.
    #[schemars(extend("examples" = [["10.1.0.0/16:22"]]))]
    pub(crate) to: Vec<Text<EgressTarget>>,
    /// Destinations that may not be reached even if they are in `to`; at most 1000 lines.
    #[serde(default)]
    pub(crate) deny: Vec<Text<EgressTarget>>,
}

/// Maximum number of lines per list, because each connection is compared with all of them.
const MOST_TARGETS: usize = 1000;

/// Reads the default rules of a hub, for terminals without rules of their own.
pub(crate) fn usual(
    place: &KeyContext<'_>,
    raw: Option<EgressSection>,
) -> Result<EgressRules, FileError> {
    let raw = raw.unwrap_or_default();
    of_terminal(&place.within("egress"), &EgressRules::everywhere(), raw.reach, raw.deny)
}

/// Reads the rules of one terminal: its `reach` replaces the `usual` one, its `deny` adds to it.
pub(crate) fn of_terminal(
    place: &KeyContext<'_>,
    usual: &EgressRules,
    reach: Option<Vec<Text<EgressTarget>>>,
    deny: Vec<Text<EgressTarget>>,
) -> Result<EgressRules, FileError> {
    let reach = reach.map(|reach| targets(place, "reach", reach)).transpose()?;
    Ok(EgressRules {
        reach: reach.unwrap_or_else(|| usual.reach.clone()),
        deny: [usual.deny.clone(), targets(place, "deny", deny)?].concat(),
    })
}

/// Reads a terminal's rules for connections from the hub.
pub(crate) fn accept(
    place: &KeyContext<'_>,
    raw: Option<AcceptSection>,
) -> Result<EgressRules, FileError> {
    let Some(raw) = raw else { return Ok(EgressRules::nowhere()) };
    let place = place.within("accept");
    Ok(EgressRules {
        reach: targets(&place, "to", raw.to)?,
        deny: targets(&place, "deny", raw.deny)?,
    })
}

fn targets(
    place: &KeyContext<'_>,
    key: &str,
    targets: Vec<Text<EgressTarget>>,
) -> Result<Vec<EgressTarget>, FileError> {
    let count = targets.len();
    let expected = format!("at most {MOST_TARGETS} lines");
    place.check(count <= MOST_TARGETS, key, format!("{count} lines"), expected)?;
    Ok(targets.into_iter().map(|target| target.0).collect())
}

/// Rejects `allow_loopback`, which hubs of earlier versions had.
pub(crate) fn no_allow_loopback(
    place: &KeyContext<'_>,
    key: Option<bool>,
) -> Result<(), FileError> {
    const EXPECTED: &str = "no such key, which has been removed: list loopback addresses in what \
                            terminals may reach, like `[egress]` with `reach = [\"0.0.0.0/0\", \
                            \"::/0\", \"127.0.0.0/8\", \"::1\"]`";
    key.map_or(Ok(()), |value| Err(place.wrong_value("allow_loopback", value, EXPECTED)))
}
