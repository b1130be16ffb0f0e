//! Section `[dlep]`: the rate from the modem.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use pep::dlep::PORT;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::values::bounded::{HOUR, Interval, SECOND, Switch};
use crate::values::interface_name::interface;

/// DLEP settings. Section `[dlep]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DlepConfig {
    /// Location of the modem. Key `interface` or `modem`.
    pub modem: ModemLocation,
    /// Interval of our heartbeats, 1 s to 1 h. Key `heartbeat`, default 5 s.
    pub heartbeat: Duration,
    /// Ignores packets forwarded by a router: the TTL must be 255 (RFC 5082). Key `gtsm`, default
    /// true.
    pub gtsm: bool,
    /// The link gives capacity on demand: the gateway requests it for its backlog, and a rate of 0 means
    /// that nothing is granted at present. Key `on_demand`, default false.
    pub on_demand: bool,
}

/// Location of the modem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModemLocation {
    /// By discovery on this interface.
    Discover(String),
    /// At this address and port.
    At(SocketAddr),
}

/// The rate from the modem by DLEP (RFC 8175); needs `rate = "modem"`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Dlep")]
pub(crate) struct DlepSection {
    /// The interface on which to discover the modem. Give either this or `modem`.
    pub(crate) interface: Option<String>,
    /// The modem's address, with a port unless it is 854. Give either this or `interface`.
    pub(crate) modem: Option<String>,
    /// The interval of this side's heartbeats.
    // RFC 8175 §7.3.1 requires at least one second.
    #[serde(default)]
    pub(crate) heartbeat: Interval<{ SECOND }, { HOUR }, { 5 * SECOND }>,
    /// Accept from the modem only packets that no router has forwarded (TTL 255, RFC 5082). Disable it for a
    /// modem that sends with another TTL.
    #[serde(default)]
    pub(crate) gtsm: Switch<true>,
    /// For a link that gives capacity on demand (DAMA): ask the modem for it according to the backlog, and take
    /// a rate of 0 as "nothing granted now" instead of an outage. See [Capacity on
    /// demand](modem.md#capacity-on-demand).
    #[serde(default)]
    pub(crate) on_demand: bool,
}

const WHERE: &str = "the interface that the modem is on, like interface = \"wan0\", or its \
                     address, like modem = \"192.0.2.1\"";

pub(crate) fn read(
    place: &KeyContext<'_>,
    raw: DlepSection,
    rate: &slacp::Rate,
) -> Result<DlepConfig, FileError> {
    let written = match rate {
        slacp::Rate::Fixed(rate) => quoted(rate),
        _ => quoted("auto"),
    };
    let good = matches!(rate, slacp::Rate::Modem { .. } | slacp::Rate::ModemOrAuto { .. });
    place.check(good, "rate", written, "\"modem\", which [dlep] needs")?;
    let place = place.within("dlep");
    let modem = match (raw.interface, raw.modem) {
        (None, None) => return Err(place.missing_key("interface", WHERE)),
        (Some(_), Some(modem)) => {
            let expected = "only one of `interface` and `modem`";
            return Err(place.wrong_value("modem", quoted(modem), expected));
        }
        (Some(name), None) => {
            interface(&place, "interface", &name)?;
            ModemLocation::Discover(name)
        }
        (None, Some(address)) => ModemLocation::At(modem(&place, &address)?),
    };
    let DlepSection { gtsm, on_demand, heartbeat, .. } = raw;
    Ok(DlepConfig { modem, heartbeat: heartbeat.get(), gtsm: gtsm.get(), on_demand })
}

/// Parses a unicast address; without a port it gets DLEP's.
fn modem(place: &KeyContext<'_>, text: &str) -> Result<SocketAddr, FileError> {
    let alone = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    let modem = alone.or_else(|_| text.parse::<SocketAddr>());
    let good = modem.ok().filter(|modem| {
        !modem.ip().is_unspecified() && !modem.ip().is_multicast() && modem.port() != 0
    });
    let expected = format!("an address, with a port if it is not {PORT}");
    good.ok_or_else(|| place.wrong_value("modem", quoted(text), expected))
}
