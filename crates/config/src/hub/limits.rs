//! Limits of each terminal on a hub: section `[limits]`, and the same keys of a `[[terminal]]`,
//! which also has `weight`, `guaranteed`, `maximum`, `classes` and `memory`.

use std::collections::BTreeMap;

use pep::accounting::{ExhaustedAction, RenewalPeriod, VolumeDefaults, VolumeQuota};
use pep::routes::TerminalQuota;
use pep::traffic::TrafficClasses;
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::{ClassRates, SessionShare};
use units::ByteCount;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::hub::terminal_section::{OwnRatesSection, PermittedTerminalSection};
use crate::traffic::{guarantees, rate};
use crate::values::bounded::{Number, Size};

/// Limits of each terminal.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Limits")]
pub(crate) struct LimitsSection {
    /// The most connections that one terminal opens and holds; one client of it, seven eighths. Further ones are
    /// refused and pass unaccelerated for a while. Default: all of the hub's, or half of them with several
    /// terminals.
    pub(crate) max_connections: Option<Number<1, 65_536>>,
    /// New connections of one terminal per second on average; ten seconds' worth at once.
    #[schemars(extend("default" = 1000))]
    pub(crate) connections_per_second: Option<Number<1, 1_000_000>>,
    /// Names resolved at the same time for one terminal; three quarters of them for one client. As many of each
    /// client wait; further ones are refused.
    #[schemars(extend("default" = 16))]
    pub(crate) lookups: Option<Number<1, 128>>,
    /// The volume that each terminal may move in a period, both directions together. Needs `state` to survive a
    /// restart. See [Accounts and quotas](operate.md#accounts-and-quotas). Default: unlimited.
    #[schemars(extend("examples" = ["50 GB"]))]
    pub(crate) quota: Option<Text<ByteCount>>,
    /// The period of the quota, in UTC: `"month"`, `"day"`, or a time of a minute or more, counted from
    /// 1970-01-01, such as `"168 h"`.
    #[schemars(extend("default" = "month", "examples" = ["month", "day", "168 h"]))]
    pub(crate) quota_period: Option<Text<RenewalPeriod>>,
    /// Consequence of a used-up quota: `"block"`, a rate towards the terminal such as `"256 kbit/s"`, or
    /// the name of a `[[class]]` that takes all its traffic.
    #[schemars(extend("default" = "block", "examples" = ["block", "256 kbit/s", "bulk"]))]
    pub(crate) quota_then: Option<Text<ExhaustedAction>>,
}

/// Reads the default limits of all terminals.
pub(crate) fn usual(raw: Option<LimitsSection>) -> TerminalQuota {
    let raw = raw.unwrap_or_default();
    let counts = [
        raw.max_connections.map(Number::get),
        raw.connections_per_second.map(Number::get),
        raw.lookups.map(Number::get),
    ];
    limited(TerminalQuota::default(), counts)
}

/// Reads the limits of one terminal; missing ones are those of `usual`.
pub(crate) fn of_terminal(
    place: &KeyContext<'_>,
    usual: TerminalQuota,
    raw: &PermittedTerminalSection,
) -> Result<TerminalQuota, FileError> {
    let counts = [
        raw.max_connections.map(Number::get),
        raw.connections_per_second.map(Number::get),
        raw.lookups.map(Number::get),
    ];
    Ok(TerminalQuota {
        share: share(place, raw)?,
        memory: raw.memory.map(Size::get),
        ..limited(usual, counts)
    })
}

/// Reads the default volume quota of all terminals.
pub(crate) fn usual_volume(
    place: &KeyContext<'_>,
    raw: Option<&LimitsSection>,
) -> Result<VolumeDefaults, FileError> {
    let Some(raw) = raw else { return Ok(VolumeDefaults::default()) };
    let place = place.within("limits");
    let period = raw.quota_period.as_ref().map(|period| period.0);
    let then = raw.quota_then.as_ref().map(|then| then.0.clone());
    volume(&place, VolumeDefaults::default(), raw.quota, period, then)
}

/// Reads the rates of classes towards one terminal. Without `known`, the hub's classes, any name is
/// accepted.
pub(crate) fn class_rates(
    place: &KeyContext<'_>,
    raw: &BTreeMap<String, OwnRatesSection>,
    known: Option<&TrafficClasses>,
) -> Result<BTreeMap<String, ClassRates>, FileError> {
    let place = place.within("classes");
    let read = |(name, raw): (&String, &OwnRatesSection)| {
        if let Some(known) = known.filter(|known| known.id_of(name).is_none()) {
            let expected = format!("the name of a class: {}", names(known));
            return Err(place.wrong_value(name, quoted(name), expected));
        }
        let place = place.within(name);
        let rates = ClassRates {
            guaranteed: rate::rate(&place, "guaranteed", raw.guaranteed)?,
            maximum: rate::rate(&place, "maximum", raw.maximum)?,
        };
        let of_class = known.and_then(|known| known.all().find(|(class, _)| class.name == *name));
        let all = rates.or(of_class.map(|(class, _)| class.share.rates()).unwrap_or_default());
        guarantees::within(&place, all.guaranteed, all.maximum)?;
        Ok((name.clone(), rates))
    };
    raw.iter().map(read).collect()
}

/// Lists the names of classes, quoted.
fn names(classes: &TrafficClasses) -> String {
    let names: Vec<String> = classes.all().map(|(class, _)| quoted(&class.name)).collect();
    names.join(", ")
}

/// Reads the volume quota of one terminal; missing values are those of `usual`. Without `classes`,
/// the hub's, any name of a class is accepted.
pub(crate) fn volume_of_terminal(
    place: &KeyContext<'_>,
    usual: &VolumeDefaults,
    raw: &PermittedTerminalSection,
    classes: Option<&TrafficClasses>,
) -> Result<Option<VolumeQuota>, FileError> {
    let period = raw.quota_period.as_ref().map(|period| period.0);
    let then = raw.quota_then.as_ref().map(|then| then.0.clone());
    let VolumeDefaults { quota, period, then } =
        volume(place, usual.clone(), raw.quota, period, then)?;
    let Some(volume) = quota else { return Ok(None) };
    if let ExhaustedAction::Class(name) = &then
        && let Some(classes) = classes.filter(|classes| classes.id_of(name).is_none())
    {
        let classes = names(classes);
        let expected = format!("\"block\", a rate like \"256 kbit/s\", or a class: {classes}");
        return Err(place.wrong_value("quota_then", quoted(name), expected));
    }
    Ok(Some(VolumeQuota { volume, period, then }))
}

/// Checks a volume quota; missing values are those of `usual`.
fn volume(
    place: &KeyContext<'_>,
    usual: VolumeDefaults,
    quota: Option<Text<ByteCount>>,
    period: Option<RenewalPeriod>,
    then: Option<ExhaustedAction>,
) -> Result<VolumeDefaults, FileError> {
    let quota = quota.map(|quota| quota.0);
    let then = then.unwrap_or(usual.then);
    let some = quota.is_none_or(|quota| quota.get() > 0);
    place.check(some, "quota", quoted(quota.unwrap_or_default()), "above 0")?;
    let rate_is_some = !matches!(then, ExhaustedAction::Rate(rate) if rate.bits_per_second() == 0);
    place.check(rate_is_some, "quota_then", quoted(&then), "a rate above 0, or \"block\"")?;
    Ok(VolumeDefaults {
        quota: quota.or(usual.quota),
        period: period.unwrap_or(usual.period),
        then,
    })
}

fn share(
    place: &KeyContext<'_>,
    raw: &PermittedTerminalSection,
) -> Result<SessionShare, FileError> {
    let guaranteed = rate::rate(place, "guaranteed", raw.guaranteed)?;
    let maximum = rate::rate(place, "maximum", raw.maximum)?;
    guarantees::within(place, guaranteed, maximum)?;
    Ok(SessionShare { weight: raw.weight.get(), guaranteed, maximum })
}

fn limited(
    usual: TerminalQuota,
    [connections, per_second, lookups]: [Option<u32>; 3],
) -> TerminalQuota {
    TerminalQuota {
        connections: connections.map(u64::from).or(usual.connections),
        per_second: per_second.unwrap_or(usual.per_second),
        lookups: lookups.map_or(usual.lookups, |most| most as usize),
        ..usual
    }
}
