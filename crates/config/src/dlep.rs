//! Section `[dlep]`: the rate from the modem.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use pep::dlep::PORT;
use schemars::JsonSchema;
use serde::Deserialize;
use units::format_duration;

use crate::bounds::interface;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::{Text, Time};
use crate::{DlepConfig, ModemLocation};

/// The rate from the modem by DLEP (RFC 8175); needs `rate = "modem"`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Dlep")]
pub(crate) struct DlepSection {
    /// The interface on which to discover the modem; or `modem`.
    pub(crate) interface: Option<String>,
    /// The modem's address, with a port unless it is 854.
    pub(crate) modem: Option<String>,
    /// Interval of this side's heartbeats; 1 s to 1 h.
    #[schemars(extend("default" = "5 s"))]
    pub(crate) heartbeat: Option<Text<Time>>,
    /// Accept only packets that no router has forwarded (TTL 255, RFC 5082).
    #[schemars(extend("default" = true))]
    pub(crate) gtsm: Option<bool>,
    /// The link gives capacity on demand: ask for it by what waits, and take a rate of 0 for nothing
    /// granted now.
    #[schemars(extend("default" = false))]
    pub(crate) on_demand: Option<bool>,
}

const WHERE: &str = "the interface that the modem is on, like interface = \"wan0\", or its \
                     address, like modem = \"192.0.2.1\"";
const HEARTBEAT: Duration = Duration::from_secs(5);
/// RFC 8175 §7.3.1 requires at least one second.
const HEARTBEATS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

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
    let heartbeat = raw.heartbeat.map_or(HEARTBEAT, |time| time.0.0);
    let value = quoted(format_duration(heartbeat));
    place.check(HEARTBEATS.contains(&heartbeat), "heartbeat", value, "1 s to 1 h")?;
    let on_demand = raw.on_demand.unwrap_or(false);
    Ok(DlepConfig { modem, heartbeat, gtsm: raw.gtsm.unwrap_or(true), on_demand })
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
