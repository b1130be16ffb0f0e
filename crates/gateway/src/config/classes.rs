//! Sections `[[class]]`: traffic classes and their shares of the rate.

use pep::traffic::{Classes, DEFAULT_CLASS, Definition, MOST_CLASSES, Ports, TCP, Traffic, UDP};
use slacp::{ClassConfig, ErrorControl};
use toml::Value;
use units::BitRate;

use super::parse::quoted;
use super::{ConfigError, Source, raw};

const WEIGHTS: std::ops::RangeInclusive<i64> = 1..=1000;
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
const CHANNELS: [(&str, ErrorControl); 4] = [
    ("none", ErrorControl::None),
    ("fec", ErrorControl::Fec),
    ("arq", ErrorControl::Arq),
    ("fec-arq", ErrorControl::FecArq),
];

impl Source {
    /// The configured classes, or the default ones, set in `link`; with channels for `packets` if
    /// there is a tunnel.
    pub(super) fn classes(
        &self,
        raw: Vec<raw::Class>,
        packets: bool,
        link: &mut slacp::Config,
    ) -> Result<Classes, ConfigError> {
        let definitions = match raw.is_empty() {
            true => Definition::usual(),
            false => self.definitions(raw)?,
        };
        Classes::install(definitions, packets, link)
            .map_err(|(name, error)| self.value("class.name", quoted(&name), error))
    }

    fn definitions(&self, raw: Vec<raw::Class>) -> Result<Vec<Definition>, ConfigError> {
        let mut definitions: Vec<Definition> = Vec::with_capacity(raw.len());
        for entry in raw {
            let definition = self.definition(entry)?;
            let name = &definition.name;
            if definitions.iter().any(|other| other.name == *name) {
                let problem = "this name is used twice: expected another";
                return Err(self.value("class.name", quoted(name), problem));
            }
            let besides = definitions.iter().filter(|other| other.name != DEFAULT_CLASS).count();
            if name != DEFAULT_CLASS && besides >= MOST_CLASSES {
                let problem =
                    format!("expected at most {MOST_CLASSES} besides \"{DEFAULT_CLASS}\"");
                return Err(self.value("class.name", quoted(name), problem));
            }
            definitions.push(definition);
        }
        Ok(definitions)
    }

    fn definition(&self, raw: raw::Class) -> Result<Definition, ConfigError> {
        let name = raw.name.ok_or_else(|| self.missing("class.name", "its name"))?;
        let traffic = Traffic {
            dscp: self.each("class.dscp", &raw.dscp, DSCP_FORM, code_point)?,
            ports: self.each("class.ports", &raw.ports, PORTS_FORM, ports)?,
            protocols: self
                .each("class.protocols", &raw.protocols, PROTOCOL_FORM, protocols)?
                .concat(),
        };
        let listed = traffic != Traffic::default();
        if listed == (name == DEFAULT_CLASS) {
            let problem = match listed {
                true => {
                    "it takes the traffic that no other class matches: expected neither dscp, \
                     ports nor protocols"
                }
                false => "it matches no traffic: expected dscp, ports or protocols",
            };
            return Err(self.value("class.name", quoted(&name), problem));
        }
        let share = ClassConfig {
            weight: self.weight(raw.weight)?,
            guaranteed: self.share("class.guaranteed", raw.guaranteed)?,
            maximum: self.share("class.maximum", raw.maximum)?,
        };
        let error_control = self.channel(raw.channel)?;
        Ok(Definition { name, traffic, share, error_control })
    }

    pub(super) fn each<T>(
        &self,
        key: &str,
        values: &[Value],
        accepted: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, ConfigError> {
        let refused = |value: &Value| self.value(key, value, format!("expected {accepted}"));
        values.iter().map(|value| read(value).ok_or_else(|| refused(value))).collect()
    }

    fn weight(&self, weight: Option<i64>) -> Result<u16, ConfigError> {
        let weight = weight.unwrap_or(1);
        let problem = format!("expected {} to {}", WEIGHTS.start(), WEIGHTS.end());
        let fitting = WEIGHTS.contains(&weight).then_some(weight as u16);
        fitting.ok_or_else(|| self.value("class.weight", weight, problem))
    }

    fn share(&self, key: &str, text: Option<String>) -> Result<Option<BitRate>, ConfigError> {
        let Some(text) = text else { return Ok(None) };
        let rate: BitRate = text.parse().map_err(|e| self.value(key, quoted(&text), e))?;
        if rate.bits_per_second() == 0 {
            let problem = "expected a rate, like \"2 Mbit/s\", or no key";
            return Err(self.value(key, quoted(&text), problem));
        }
        Ok(Some(rate))
    }

    fn channel(&self, text: Option<String>) -> Result<ErrorControl, ConfigError> {
        let Some(text) = text else { return Ok(ErrorControl::FecArq) };
        let known = CHANNELS.iter().find(|(name, _)| *name == text);
        let problem = "expected \"none\", \"fec\", \"arq\" or \"fec-arq\"";
        known
            .map(|(_, control)| *control)
            .ok_or_else(|| self.value("class.channel", quoted(&text), problem))
    }
}

pub(super) const DSCP_FORM: &str = "a code point, like \"EF\", \"AF41\", \"CS1\" or 0 to 63";
pub(super) const PORTS_FORM: &str = "one or more ports, like 22, \"5060-5061\" or \"udp/443\"";
const PROTOCOL_FORM: &str = "a protocol, like \"icmp\", \"udp\", \"esp\" or 0 to 255";

pub(super) fn code_point(value: &Value) -> Option<u8> {
    let Some(name) = value.as_str() else { return number(value, 63) };
    let known = CODE_POINTS.iter().find(|(known, _)| *known == name);
    known.map(|(_, point)| *point).or_else(|| match *name.as_bytes() {
        [b'C', b'S', class @ b'0'..=b'7'] => Some((class - b'0') << 3),
        [b'A', b'F', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => {
            Some((class - b'0') << 3 | (drop - b'0') << 1)
        }
        _ => None,
    })
}

fn protocols(value: &Value) -> Option<Vec<u8>> {
    let Some(name) = value.as_str() else { return Some(vec![number(value, 255)?]) };
    let known = PROTOCOLS.iter().find(|(known, _)| *known == name);
    known.map(|(_, numbers)| numbers.to_vec())
}

pub(super) fn ports(value: &Value) -> Option<Ports> {
    let Some(text) = value.as_str() else {
        let port = value.as_integer().and_then(|port| u16::try_from(port).ok())?;
        return Ports::range(None, port, port);
    };
    Ports::parse(text)
}

fn number(value: &Value, most: u8) -> Option<u8> {
    value.as_integer()?.try_into().ok().filter(|number| *number <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

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
