//! Section `[dlep]`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pep::config::{DlepConfig, Modem};
use pep::dlep::PORT;

use super::parse::{LONGEST_INTERFACE_NAME, quoted};
use super::{ConfigError, Source, raw};

const WHERE: &str = "the interface that the modem is on, like interface = \"wan0\", or its \
                     address, like modem = \"192.0.2.1\"";
const HEARTBEAT: Duration = Duration::from_secs(5);
/// RFC 8175 §7.3.1 requires at least one second.
const HEARTBEATS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

impl Source {
    pub(super) fn dlep(
        &self,
        raw: raw::Dlep,
        rate: &slacp::Rate,
    ) -> Result<DlepConfig, ConfigError> {
        if !matches!(rate, slacp::Rate::Modem { .. }) {
            let problem = "[dlep] needs rate = \"modem\"";
            return Err(self.value("rate", rate_words(rate), problem));
        }
        let modem = match (raw.interface, raw.modem) {
            (None, None) => return Err(self.missing("dlep.interface", WHERE)),
            (Some(_), Some(modem)) => {
                let problem = "`interface` is set too: expected one of the two";
                return Err(self.value("dlep.modem", quoted(modem), problem));
            }
            (Some(name), None) => {
                let fits = (1..=LONGEST_INTERFACE_NAME).contains(&name.len()) && name.is_ascii();
                let problem = "expected the name of an interface, 1 to 15 characters";
                fits.then_some(())
                    .ok_or_else(|| self.value("dlep.interface", quoted(&name), problem))?;
                Modem::Discover(name)
            }
            (None, Some(modem)) => Modem::At(self.modem(&modem)?),
        };
        let heartbeat = raw.heartbeat.map(|text| self.heartbeat(&text)).transpose()?;
        Ok(DlepConfig {
            modem,
            heartbeat: heartbeat.unwrap_or(HEARTBEAT),
            gtsm: raw.gtsm.unwrap_or(true),
        })
    }

    fn modem(&self, text: &str) -> Result<SocketAddr, ConfigError> {
        let alone = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
        let modem = alone.or_else(|_| text.parse::<SocketAddr>());
        let good = modem.ok().filter(|modem| {
            !modem.ip().is_unspecified() && !modem.ip().is_multicast() && modem.port() != 0
        });
        let problem = format!("expected an address, with a port if it is not {PORT}");
        good.ok_or_else(|| self.value("dlep.modem", quoted(text), problem))
    }

    fn heartbeat(&self, text: &str) -> Result<Duration, ConfigError> {
        const KEY: &str = "dlep.heartbeat";
        let refused = |problem: String| self.value(KEY, quoted(text), problem);
        let time = units::parse_duration(text).map_err(|error| refused(error.to_string()))?;
        let fits = HEARTBEATS.contains(&time);
        fits.then_some(time).ok_or_else(|| refused("expected 1 s to 1 h".to_owned()))
    }
}

fn rate_words(rate: &slacp::Rate) -> String {
    match rate {
        slacp::Rate::Fixed(rate) => quoted(rate),
        _ => quoted("auto"),
    }
}
