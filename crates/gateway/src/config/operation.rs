//! Operational settings: `control`, `metrics`, `state`, `total_memory`, `max_connections`,
//! `keepalive`, `log`.

use std::net::SocketAddr;
use std::time::Duration;

use pep::config::{ControlPath, DlepConfig, LogFilter, OperationConfig};
use units::BitRate;

use super::parse::quoted;
use super::{ConfigError, Source, raw};

/// Lower bound: the kernel counts in seconds.
const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);
/// RFC 9293 §3.8.4: keep-alive intervals elsewhere are at least this long by default.
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(7200);

/// The keys as written.
pub(super) struct Written {
    pub(super) control: Option<String>,
    pub(super) state: Option<String>,
    pub(super) metrics: Option<raw::Metrics>,
    pub(super) total_memory: Option<String>,
    pub(super) max_connections: Option<i64>,
    pub(super) keepalive: Option<String>,
    pub(super) log: Option<String>,
    /// Already parsed with the other rate keys.
    pub(super) maximum_rate: Option<BitRate>,
    /// Already parsed, because it concerns the rate.
    pub(super) dlep: Option<DlepConfig>,
}

impl Source {
    pub(super) fn operation(&self, written: Written) -> Result<OperationConfig, ConfigError> {
        let control = match written.control.as_deref() {
            None => ControlPath::Usual,
            Some("none") => ControlPath::None,
            Some("") => {
                let problem = "expected a path, or \"none\"";
                return Err(self.value("control", quoted(""), problem));
            }
            Some(path) => ControlPath::At(self.relative(path)),
        };
        let most = |most: i64| {
            let problem = "expected at least 1";
            let count = u64::try_from(most).ok().filter(|count| *count > 0);
            count.ok_or_else(|| self.value("max_connections", most, problem))
        };
        Ok(OperationConfig {
            control,
            total_memory: self.optional_size("total_memory", written.total_memory)?,
            max_connections: written.max_connections.map(most).transpose()?,
            keepalive: written.keepalive.map(|text| self.keepalive(&text)).transpose()?,
            log: written.log.map(|text| self.log(&text)).transpose()?,
            metrics: written.metrics.map(|metrics| self.metrics(metrics)).transpose()?,
            state: written.state.map(|path| self.relative(&path)),
            maximum_rate: written.maximum_rate,
            dlep: written.dlep,
            file: self.metadata.is_file().then(|| self.path.clone()),
        })
    }

    fn keepalive(&self, text: &str) -> Result<Duration, ConfigError> {
        const KEY: &str = "keepalive";
        let refused = |problem: String| self.value(KEY, quoted(text), problem);
        let time = units::parse_duration(text).map_err(|error| refused(error.to_string()))?;
        let fits = (SHORTEST_KEEPALIVE..=LONGEST_KEEPALIVE).contains(&time);
        fits.then_some(time).ok_or_else(|| refused("expected 1 s to 2 h".to_owned()))
    }

    fn log(&self, text: &str) -> Result<LogFilter, ConfigError> {
        text.parse().map_err(|_| self.value("log", quoted(text), LogFilter::EXPECTED))
    }

    fn metrics(&self, metrics: raw::Metrics) -> Result<SocketAddr, ConfigError> {
        const KEY: &str = "metrics.listen";
        const ACCEPTED: &str = "a local address and a TCP port, like \"127.0.0.1:9590\"";
        let text = metrics.listen.ok_or_else(|| self.missing(KEY, ACCEPTED))?;
        text.parse().map_err(|_| self.value(KEY, quoted(&text), format!("expected {ACCEPTED}")))
    }
}
