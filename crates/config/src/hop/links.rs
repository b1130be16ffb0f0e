//! Sections `[[link]]`: the links that a session uses at once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Deserialize;
use slacp::{MAX_LINKS, Rate};

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::traffic::rate;
use crate::values::RateChoice;
use crate::values::interface_name::LONGEST_INTERFACE_NAME;

/// One of several links between terminal and hub.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Link")]
pub(crate) struct LinkSection {
    /// A unique name for classes and status.
    #[schemars(length(min = 1), extend("examples" = ["geo", "leo"]))]
    pub(crate) name: String,
    /// The rate at which this side sends on the link, to each peer: a rate or `"auto"`. Required with `rate =
    /// "modem"`. Default: the rate of the side.
    #[schemars(extend("examples" = ["20 Mbit/s", "auto"]))]
    pub(crate) rate: Option<Text<RateChoice>>,
    /// On a terminal: the interface to send on, whatever the routing table says; it needs a route to the hub.
    /// Every link needs this or `source`.
    #[schemars(extend("examples" = ["wan1"]))]
    pub(crate) interface: Option<String>,
    /// On a terminal: the local address to send from; route by it with rules of your own.
    #[schemars(extend("examples" = ["192.0.2.7"]))]
    pub(crate) source: Option<Text<IpAddr>>,
}

/// One of several links that a session uses at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Name in classes and status. Key `name`.
    pub name: String,
    /// The rate at which this side sends on it, to each peer. Key `rate`, by default that of the side.
    pub rate: Rate,
    /// The interface that a terminal sends on; needs CAP_NET_RAW. Key `interface`, default none.
    pub interface: Option<String>,
    /// The local address that a terminal sends from. Key `source`, default none.
    pub source: Option<IpAddr>,
}

/// The side of a pair that has the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkSide {
    /// A terminal has an interface or an address on each link.
    Terminal,
    /// A hub has one address, which its terminals reach over all links.
    Hub,
}

/// Reads the links of a side; a link without a rate gets `usual`. Empty if there is a single link.
pub(crate) fn read(
    place: &KeyContext<'_>,
    raw: Vec<LinkSection>,
    usual: &Rate,
    side: LinkSide,
) -> Result<Vec<LinkConfig>, FileError> {
    if raw.is_empty() {
        return Ok(Vec::new());
    }
    let count = raw.len();
    let expected = format!("2 to {MAX_LINKS} links, or none");
    let good = (2..=MAX_LINKS).contains(&count);
    place.check(good, "link", format!("{count} links"), &expected)?;
    let mut links: Vec<LinkConfig> = Vec::with_capacity(count);
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("link").within(index);
        let link = link(&place, raw, usual, side)?;
        let is_new = links.iter().all(|other| other.name != link.name);
        place.check(is_new, "name", quoted(&link.name), "a name that no earlier link has")?;
        links.push(link);
    }
    Ok(links)
}

fn link(
    place: &KeyContext<'_>,
    raw: LinkSection,
    usual: &Rate,
    side: LinkSide,
) -> Result<LinkConfig, FileError> {
    place.check(!raw.name.is_empty(), "name", quoted(&raw.name), "a name")?;
    let source = raw.source.map(|source| source.0);
    if side == LinkSide::Hub {
        let expected = "no such key: terminals reach one address of the hub over all links";
        let interface = raw.interface.as_deref().unwrap_or_default();
        place.check(interface.is_empty(), "interface", quoted(interface), expected)?;
        let address = source.map(|address| address.to_string()).unwrap_or_default();
        place.check(address.is_empty(), "source", quoted(address), expected)?;
    }
    if side == LinkSide::Terminal && raw.interface.is_none() && source.is_none() {
        return Err(place.missing_key("interface", "an interface, or a local address as `source`"));
    }
    if let Some(name) = &raw.interface {
        let good = (1..=LONGEST_INTERFACE_NAME).contains(&name.len());
        place.check(good, "interface", quoted(name), "the name of an interface")?;
    }
    Ok(LinkConfig {
        name: raw.name,
        rate: rate_of(place, raw.rate, usual)?,
        interface: raw.interface,
        source,
    })
}

/// Reads the rate of a link, or derives it from the rate of the side.
fn rate_of(
    place: &KeyContext<'_>,
    choice: Option<Text<RateChoice>>,
    usual: &Rate,
) -> Result<Rate, FileError> {
    match choice {
        Some(choice) => chosen(place, "rate", choice),
        None => match *usual {
            Rate::Auto { ceiling, .. } => Ok(Rate::Auto { ceiling, probe: false }),
            Rate::Fixed(_) => Ok(usual.clone()),
            _ => Err(place.missing_key("rate", RATE)),
        },
    }
}

/// Description of accepted rates of a link.
const RATE: &str = "a rate, like \"10 Mbit/s\", or \"auto\"";

/// Checks the rate of a link that is written at this key. `modem` is refused, because a modem reports
/// rates of a session and not of its links.
fn chosen(place: &KeyContext<'_>, key: &str, choice: Text<RateChoice>) -> Result<Rate, FileError> {
    match choice.0 {
        RateChoice::Auto => Ok(Rate::Auto { ceiling: None, probe: false }),
        RateChoice::Fixed(bits) => {
            let bits = rate::rate(place, key, Some(Text(bits)))?;
            Ok(Rate::Fixed(bits.unwrap_or_default()))
        }
        RateChoice::Modem => Err(place.wrong_value(key, quoted("modem"), RATE)),
    }
}

/// Reads the rates of links towards one terminal. Without `known`, the hub's links, any name is
/// accepted.
pub(crate) fn of_terminal(
    place: &KeyContext<'_>,
    raw: BTreeMap<String, Text<RateChoice>>,
    known: Option<&[LinkConfig]>,
) -> Result<BTreeMap<String, Rate>, FileError> {
    let place = place.within("links");
    let read = |(name, choice): (String, Text<RateChoice>)| {
        if let Some(known) = known.filter(|known| known.iter().all(|link| link.name != name)) {
            let names: Vec<String> = known.iter().map(|link| quoted(&link.name)).collect();
            let names = if names.is_empty() { "none here".to_owned() } else { names.join(", ") };
            return Err(place.wrong_value(
                &name,
                quoted(&name),
                format!("the name of a link: {names}"),
            ));
        }
        let rate = chosen(&place, &name, choice)?;
        Ok((name, rate))
    };
    raw.into_iter().map(read).collect()
}
