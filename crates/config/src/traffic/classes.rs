//! Sections `[[class]]`: traffic classes and their shares of the rate.

use pep::traffic::{
    ClassDefinition, DEFAULT_CLASS, MOST_CLASSES, PacketQueue, PortRange, TCP, TrafficClasses,
    TrafficSelector, UDP,
};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::{ClassConfig, Destination, ErrorControl};
use units::BitRate;

use crate::file::FileError;
use crate::file::item::{DSCP_FORM, Item, code_point, up_to};
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::traffic::{guarantees, rate};
use crate::values::bounded::{Interval, MINUTE, Number, Size};
use crate::values::{Aqm, Channel};

/// A class of traffic: what matches one of `dscp`, `ports` and `protocols`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Class")]
pub(crate) struct ClassSection {
    /// A unique name. `default` is the class for everything that no other class matches, and has no `dscp`,
    /// `ports` or `protocols`; every other class needs one of them.
    pub(crate) name: String,
    /// Code points that belong to the class, by name or number. One match of `dscp`, `ports` or `protocols`
    /// suffices.
    #[serde(default)]
    #[schemars(extend("examples" = [["EF", "AF41", 8]]))]
    pub(crate) dscp: Vec<Item>,
    /// Ports of either end, such as `22`, `"5060-5061"` or `"udp/443"`. A split connection counts by its
    /// destination port.
    #[serde(default)]
    #[schemars(extend("examples" = [[22, "5060-5061", "udp/443"]]))]
    pub(crate) ports: Vec<Item>,
    /// IP protocols, by name or number (0 to 255): `icmp`, `tcp`, `udp`, `gre`, `esp`, `ah`, `sctp`.
    #[serde(default)]
    #[schemars(extend("examples" = [["icmp", "esp", 50]]))]
    pub(crate) protocols: Vec<Item>,
    /// The class's share of the rate, relative to other classes.
    #[serde(default)]
    pub(crate) weight: Number<1, 1000, 1>,
    /// A rate that the class gets before others share by weight, in each session; others use what it leaves. At
    /// most `maximum`. A fixed `rate` must carry the guarantees of all classes; beyond a reported or measured
    /// rate they are scaled.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(crate) guaranteed: Option<Text<BitRate>>,
    /// A rate that the class never exceeds, in each session.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(crate) maximum: Option<Text<BitRate>>,
    /// The code point (DSCP), by name or number, of the hop's packets that carry the class, for links that serve
    /// classes differently. As soon as one class is marked, packets without new data are marked CS6.
    #[schemars(extend("default" = 0, "examples" = ["EF", "AF41", 8]))]
    pub(crate) mark: Option<Item>,
    /// The name of the [link](links.md#bind-a-class-to-a-link) that carries the class as long as it works;
    /// otherwise any does. Default: the link that delivers first.
    #[schemars(extend("examples" = ["leo"]))]
    pub(crate) link: Option<String>,
    /// Error control of the class's packets in the tunnel: `"none"`, `"fec"`, `"arq"` or `"fec-arq"`. FEC repairs
    /// what it can within 100 ms and gives up the rest; ARQ waits a round trip for each loss. Without losses
    /// neither costs anything.
    #[schemars(extend("default" = "fec-arq"))]
    pub(crate) channel: Option<Channel>,
    /// The most bytes of the class's packets that wait for the hop, over all flows. Streams wait at their senders
    /// instead.
    #[schemars(extend("default" = "1 MB"))]
    pub(crate) queue: Option<Size<2_000, 100_000_000>>,
    /// The longest wait of a packet for the hop; then it is dropped. On a slow link, TCP in the tunnel needs
    /// more. Default: 500 ms, or 3 s with `[dlep] on_demand`.
    pub(crate) queue_time: Option<Interval<5, { MINUTE }>>,
    /// Queue management of the class's packets: `"codel"` keeps each flow's queue short (RFC 8289); `"none"`
    /// drops only packets that find the queue full. Default: `"codel"`, or `"none"` with `[dlep] on_demand`.
    pub(crate) aqm: Option<Aqm>,
    /// Longest wait of a packet for others, to share a packet of the hop. Each packet of the hop costs 50
    /// bytes, so this saves volume and adds delay; see [Voice](traffic.md#voice).
    #[schemars(extend("default" = "0 ms", "examples" = ["20 ms"]))]
    pub(crate) gather: Option<Interval<0, 200>>,
    /// Compress both the streams of the class and the headers of its packets, where that saves bytes; `false`
    /// compresses neither. Compressing streams costs processor time and lets an observer of the hop who can add
    /// text to a cleartext connection test it for secrets. Default: headers only.
    pub(crate) compress: Option<bool>,
}

/// Named protocols (IANA registry); `icmp` covers both versions.
const PROTOCOLS: [(&str, &[u8]); 7] = [
    ("icmp", &[1, 58]),
    ("tcp", &[TCP]),
    ("udp", &[UDP]),
    ("gre", &[47]),
    ("esp", &[50]),
    ("ah", &[51]),
    ("sctp", &[132]),
];

/// Reads the classes, or takes the default ones, and installs them in `link`. The default ones include
/// a class for bundles if there is a node for them; with `packets` (a tunnel), classes get channels.
pub(crate) fn read(
    place: &KeyContext<'_>,
    raw: Vec<ClassSection>,
    bundles: bool,
    links: &[&str],
    packets: bool,
    link: &mut slacp::Config,
) -> Result<TrafficClasses, FileError> {
    // Packets wait longer for capacity on demand, which takes at least a round trip to arrive.
    let queue = if link.on_demand { PacketQueue::on_demand() } else { PacketQueue::default() };
    let definitions = match raw.is_empty() {
        true => {
            usual(bundles).into_iter().map(|class| ClassDefinition { queue, ..class }).collect()
        }
        false => definitions(place, raw, queue, links)?,
    };
    let guarantees =
        definitions.iter().map(|definition| (&definition.name, definition.share.guaranteed));
    guarantees::carried(place, &link.rate, "class", guarantees)?;
    TrafficClasses::install(definitions, packets, link)
        .map_err(|(name, error)| place.unreadable("class", format!("{name:?}: {error}")))
}

/// Returns the default classes. Bundles have a class of their own, with the share of bulk.
fn usual(bundles: bool) -> Vec<ClassDefinition> {
    let port = Destination::Bundles.port();
    let ports = vec![PortRange { protocol: Some(TCP), first: port, last: port }];
    let traffic = TrafficSelector { ports, ..TrafficSelector::default() };
    let class = ClassDefinition { traffic, ..ClassDefinition::new("bundles") };
    ClassDefinition::usual().into_iter().chain(bundles.then_some(class)).collect()
}

fn definitions(
    place: &KeyContext<'_>,
    raw: Vec<ClassSection>,
    usual: PacketQueue,
    links: &[&str],
) -> Result<Vec<ClassDefinition>, FileError> {
    let mut definitions: Vec<ClassDefinition> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("class").within(index);
        let definition = definition(&place, raw, usual, links)?;
        let name = &definition.name;
        let is_new = definitions.iter().all(|other| other.name != *name);
        place.check(is_new, "name", quoted(name), "a name that no earlier class has")?;
        let besides = definitions.iter().filter(|other| other.name != DEFAULT_CLASS).count();
        let good = name == DEFAULT_CLASS || besides < MOST_CLASSES;
        let expected = format!("at most {MOST_CLASSES} classes besides \"{DEFAULT_CLASS}\"");
        place.check(good, "name", quoted(name), expected)?;
        definitions.push(definition);
    }
    Ok(definitions)
}

fn definition(
    place: &KeyContext<'_>,
    raw: ClassSection,
    usual: PacketQueue,
    links: &[&str],
) -> Result<ClassDefinition, FileError> {
    let traffic = TrafficSelector {
        dscp: each(place, "dscp", &raw.dscp, DSCP_FORM, code_point)?,
        ports: each(place, "ports", &raw.ports, PORTS_FORM, ports)?,
        protocols: each(place, "protocols", &raw.protocols, PROTOCOL_FORM, protocols)?.concat(),
    };
    let listed = traffic != TrafficSelector::default();
    let expected = match listed {
        true => {
            "neither dscp, ports nor protocols: it takes the traffic that no other class \
                 matches"
        }
        false => "dscp, ports or protocols with it: it matches no traffic",
    };
    place.check(listed != (raw.name == DEFAULT_CLASS), "name", quoted(&raw.name), expected)?;
    let share = share(place, &raw, links)?;
    let queue = queue(&raw, usual);
    let error_control = raw.channel.map_or(ErrorControl::FecArq, Into::into);
    Ok(ClassDefinition {
        name: raw.name,
        traffic,
        share,
        error_control,
        queue,
        // Streams only if asked for: compressed lengths say something about contents (docs/decisions.md).
        compress_headers: raw.compress.unwrap_or(true),
        compress_streams: raw.compress.unwrap_or(false),
    })
}

/// Reads a class's share of the hop, its link and its mark.
fn share(
    place: &KeyContext<'_>,
    raw: &ClassSection,
    links: &[&str],
) -> Result<ClassConfig, FileError> {
    let mark = raw.mark.as_ref().map_or(Ok(0), |item| {
        code_point(item).ok_or_else(|| place.wrong_value("mark", item, DSCP_FORM))
    })?;
    let share = ClassConfig {
        dscp: mark,
        link: raw.link.as_deref().map(|name| link(place, name, links)).transpose()?,
        weight: raw.weight.get() as u16,
        guaranteed: rate::rate(place, "guaranteed", raw.guaranteed)?,
        maximum: rate::rate(place, "maximum", raw.maximum)?,
    };
    guarantees::within(place, share.guaranteed, share.maximum).map(|()| share)
}

/// Returns the index of the link with that name.
fn link(place: &KeyContext<'_>, name: &str, links: &[&str]) -> Result<u8, FileError> {
    let found = links.iter().position(|link| *link == name);
    let expected = "the name of a section [[link]]";
    found
        .map(|number| number as u8)
        .ok_or_else(|| place.wrong_value("link", quoted(name), expected))
}

/// Reads the settings of a class's queue; missing ones are those of `usual`.
fn queue(raw: &ClassSection, usual: PacketQueue) -> PacketQueue {
    PacketQueue {
        bytes: raw.queue.map_or(usual.bytes, Size::get),
        time: raw.queue_time.map_or(usual.time, Interval::get),
        discipline: raw.aqm.map_or(usual.discipline, Into::into),
        gather: raw.gather.map_or(usual.gather, Interval::get),
    }
}

/// Reads every element of a list.
pub(crate) fn each<T>(
    place: &KeyContext<'_>,
    key: &str,
    items: &[Item],
    expected: &str,
    read: impl Fn(&Item) -> Option<T>,
) -> Result<Vec<T>, FileError> {
    let one = |(index, item)| {
        read(item).ok_or_else(|| place.wrong_value(&format!("{key}.{index}"), item, expected))
    };
    items.iter().enumerate().map(one).collect()
}

pub(crate) const PORTS_FORM: &str = "one or more ports, like 22, \"5060-5061\" or \"udp/443\"";
const PROTOCOL_FORM: &str = "a protocol, like \"icmp\", \"udp\", \"esp\" or 0 to 255";

fn protocols(item: &Item) -> Option<Vec<u8>> {
    match item {
        Item::Number(number) => Some(vec![up_to(*number, 255)?]),
        Item::Text(name) => {
            let known = PROTOCOLS.iter().find(|(known, _)| known == name);
            known.map(|(_, numbers)| numbers.to_vec())
        }
    }
}

pub(crate) fn ports(item: &Item) -> Option<PortRange> {
    match item {
        Item::Number(number) => {
            let port = u16::try_from(*number).ok()?;
            PortRange::range(None, port, port)
        }
        Item::Text(text) => PortRange::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_several_of_one_protocol_or_both() {
        let all = |protocol, first, last| Some(PortRange { protocol, first, last });
        assert_eq!(ports(&22.into()), all(None, 22, 22));
        assert_eq!(ports(&"5060-5061".into()), all(None, 5060, 5061));
        assert_eq!(ports(&"udp/443".into()), all(Some(UDP), 443, 443));
        for bad in ["", "a", "5-4", "0", "1-", "70000", "sctp/5", "udp/"] {
            assert_eq!(ports(&bad.into()), None, "{bad}");
        }
        assert_eq!(ports(&0.into()), None);
        assert_eq!(ports(&70_000.into()), None);
    }
}
