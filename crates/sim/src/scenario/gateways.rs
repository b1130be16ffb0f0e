//! Split gateways of a scenario.

use units::BitRate;

use super::error::{Place, ScenarioError};
use super::raw;

/// Where connections are split, and how the parts are joined.
#[derive(Debug, Clone)]
pub(super) struct Gateways {
    pub(super) split: Split,
    /// The names of the TCP on the hop and towards the hosts.
    pub(super) tcp: String,
    pub(super) lan_tcp: String,
    /// The rates configured in SLACP; by default those of the link.
    pub(super) forward_rate: Option<BitRate>,
    pub(super) return_rate: Option<BitRate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// One gateway, at the hub.
    Two,
    /// A gateway on each side.
    ThreeTcp,
    ThreeSlacp,
    /// No split: SLACP carries whole packets.
    Packets,
}

impl Gateways {
    pub(super) fn read(
        place: &Place,
        raw: Option<&raw::Gateways>,
    ) -> Result<Option<Self>, ScenarioError> {
        let Some(raw) = raw else { return Ok(None) };
        let hop = raw.hop.as_deref().unwrap_or("tcp");
        let slacp = place.word("hop", hop, &[("tcp", false), ("slacp", true)])?;
        let words = [("none", 0), ("packets", 1), ("two", 2), ("three", 3)];
        let split = match (place.word("split", &raw.split, &words)?, slacp) {
            (0, _) => return Ok(None),
            (1, true) => Split::Packets,
            (1, false) => return Err(place.wrong("hop", "\"tcp\"", "\"slacp\" to carry packets")),
            (2, true) => {
                return Err(place.wrong(
                    "hop",
                    "\"slacp\"",
                    "a gateway on each side: split = \"three\"",
                ));
            }
            (2, false) => Split::Two,
            (_, false) => Split::ThreeTcp,
            (_, true) => Split::ThreeSlacp,
        };
        let rate = |key, text: &Option<String>| {
            let rate: Option<BitRate> = place.read(key, text.as_deref())?;
            let good = rate.is_none_or(|rate| rate.bits_per_second() > 0);
            place.check(good, key, "0 bit/s", "above 0").map(|()| rate)
        };
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "default".to_owned());
        Ok(Some(Self {
            split,
            tcp: name(&raw.tcp),
            lan_tcp: name(&raw.lan_tcp),
            forward_rate: rate("forward-rate", &raw.forward_rate)?,
            return_rate: rate("return-rate", &raw.return_rate)?,
        }))
    }

    pub(super) fn is_three(&self) -> bool {
        self.split != Split::Two
    }

    pub(super) fn has_slacp(&self) -> bool {
        matches!(self.split, Split::ThreeSlacp | Split::Packets)
    }
}
