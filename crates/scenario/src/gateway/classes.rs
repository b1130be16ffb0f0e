//! Sections `[[class]]`: traffic classes and their shares of the rate.

use core::ops::RangeInclusive;

use pep::traffic::{Classes, DEFAULT_CLASS, Definition, MOST_CLASSES, Ports, TCP, Traffic, UDP};
use slacp::{ClassConfig, ErrorControl};

use super::raw::sections;
use super::raw::values::Item;
use super::{number, rate};
use crate::FileError;
use crate::place::{Place, quoted};

const WEIGHTS: RangeInclusive<i64> = 1..=1000;
/// Named code points (RFC 2474, 2597, 3246, 5865, 8622) other than CS and AF.
const CODE_POINTS: [(&str, u8); 3] = [("EF", 46), ("VA", 44), ("LE", 1)];
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

/// The configured classes, or the default ones, set in `link`; with channels for `packets` if there
/// is a tunnel.
pub(super) fn read(
    place: &Place<'_>,
    raw: Vec<sections::Class>,
    packets: bool,
    link: &mut slacp::Config,
) -> Result<Classes, FileError> {
    let definitions = match raw.is_empty() {
        true => Definition::usual(),
        false => definitions(place, raw)?,
    };
    Classes::install(definitions, packets, link)
        .map_err(|(name, error)| place.unreadable("class", format!("{name:?}: {error}")))
}

fn definitions(place: &Place<'_>, raw: Vec<sections::Class>) -> Result<Vec<Definition>, FileError> {
    let mut definitions: Vec<Definition> = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("class").within(index);
        let definition = definition(&place, raw)?;
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

fn definition(place: &Place<'_>, raw: sections::Class) -> Result<Definition, FileError> {
    let traffic = Traffic {
        dscp: each(place, "dscp", &raw.dscp, DSCP_FORM, code_point)?,
        ports: each(place, "ports", &raw.ports, PORTS_FORM, ports)?,
        protocols: each(place, "protocols", &raw.protocols, PROTOCOL_FORM, protocols)?.concat(),
    };
    let listed = traffic != Traffic::default();
    let expected = match listed {
        true => {
            "neither dscp, ports nor protocols: it takes the traffic that no other class \
                 matches"
        }
        false => "dscp, ports or protocols with it: it matches no traffic",
    };
    place.check(listed != (raw.name == DEFAULT_CLASS), "name", quoted(&raw.name), expected)?;
    let weight = number(place, "weight", raw.weight, (WEIGHTS, ""))?;
    let share = ClassConfig {
        weight: weight.map_or(1, |weight| weight as u16),
        guaranteed: rate::rate(place, "guaranteed", raw.guaranteed)?,
        maximum: rate::rate(place, "maximum", raw.maximum)?,
    };
    let error_control = raw.channel.map_or(ErrorControl::FecArq, Into::into);
    Ok(Definition { name: raw.name, traffic, share, error_control })
}

/// Reads every element of a list.
pub(super) fn each<T>(
    place: &Place<'_>,
    key: &str,
    items: &[Item],
    expected: &str,
    read: impl Fn(&Item) -> Option<T>,
) -> Result<Vec<T>, FileError> {
    let one = |(index, item)| {
        read(item).ok_or_else(|| place.wrong(&format!("{key}.{index}"), item, expected))
    };
    items.iter().enumerate().map(one).collect()
}

pub(super) const DSCP_FORM: &str = "a code point, like \"EF\", \"AF41\", \"CS1\" or 0 to 63";
pub(super) const PORTS_FORM: &str = "one or more ports, like 22, \"5060-5061\" or \"udp/443\"";
const PROTOCOL_FORM: &str = "a protocol, like \"icmp\", \"udp\", \"esp\" or 0 to 255";

pub(super) fn code_point(item: &Item) -> Option<u8> {
    let name = match item {
        Item::Number(number) => return up_to(*number, 63),
        Item::Text(name) => name,
    };
    let known = CODE_POINTS.iter().find(|(known, _)| known == name);
    known.map(|(_, point)| *point).or_else(|| match *name.as_bytes() {
        [b'C', b'S', class @ b'0'..=b'7'] => Some((class - b'0') << 3),
        [b'A', b'F', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => {
            Some((class - b'0') << 3 | (drop - b'0') << 1)
        }
        _ => None,
    })
}

fn protocols(item: &Item) -> Option<Vec<u8>> {
    match item {
        Item::Number(number) => Some(vec![up_to(*number, 255)?]),
        Item::Text(name) => {
            let known = PROTOCOLS.iter().find(|(known, _)| known == name);
            known.map(|(_, numbers)| numbers.to_vec())
        }
    }
}

pub(super) fn ports(item: &Item) -> Option<Ports> {
    match item {
        Item::Number(number) => {
            let port = u16::try_from(*number).ok()?;
            Ports::range(None, port, port)
        }
        Item::Text(text) => Ports::parse(text),
    }
}

fn up_to(number: i64, most: u8) -> Option<u8> {
    u8::try_from(number).ok().filter(|number| *number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl From<i64> for Item {
        fn from(number: i64) -> Self {
            Self::Number(number)
        }
    }

    impl From<&str> for Item {
        fn from(text: &str) -> Self {
            Self::Text(text.to_owned())
        }
    }

    #[test]
    fn code_points_have_names_and_numbers() {
        for (name, point) in [("EF", 46), ("CS0", 0), ("CS7", 56), ("AF11", 10), ("AF43", 38)] {
            assert_eq!(code_point(&name.into()), Some(point), "{name}");
        }
        assert_eq!(code_point(&63.into()), Some(63));
        for bad in ["CS8", "AF10", "AF53", "ef", "EFx", ""] {
            assert_eq!(code_point(&bad.into()), None, "{bad}");
        }
        assert_eq!(code_point(&64.into()), None);
        assert_eq!(code_point(&(-1).into()), None);
    }

    #[test]
    fn ports_are_one_or_several_of_one_protocol_or_both() {
        let all = |protocol, first, last| Some(Ports { protocol, first, last });
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
