//! Operational settings: `control`, `metrics`, `state`, `total_memory`, `max_connections`,
//! `keepalive`, `log`.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::Path;

use config::{ControlPath, LogFilter, MetricsConfig, OperationConfig};
use units::{ByteCount, format_duration};

use super::ConfigFile;
use super::hop::size;
use super::raw::sections;
use crate::FileError;
use crate::place::{KeyContext, quoted};
use crate::text::{Text, Time};

/// Permitted values of `keepalive`: from 1 s, because the kernel counts in seconds, to the least
/// default that RFC 9293 §3.8.4 permits.
const KEEPALIVE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7200);

/// The operational keys as written.
pub(super) struct OperationKeys {
    pub(super) control: Option<String>,
    pub(super) state: Option<String>,
    pub(super) metrics: Option<sections::Metrics>,
    pub(super) total_memory: Option<Text<ByteCount>>,
    pub(super) max_connections: Option<i64>,
    pub(super) keepalive: Option<Text<Time>>,
    pub(super) log: Option<Text<LogFilter>>,
}

impl OperationKeys {
    /// Reads the settings except `maximum_rate` and `dlep`, which are read with the rate.
    pub(super) fn read(
        self,
        place: &KeyContext<'_>,
        file: &ConfigFile<'_>,
    ) -> Result<OperationConfig, FileError> {
        let path = |path: String| place.folder().locate(Path::new(&path));
        place.check(
            self.control.as_deref() != Some(""),
            "control",
            "\"\"",
            "a path, or \"none\"",
        )?;
        let most = self.max_connections;
        let good = most.is_none_or(|most| most > 0);
        place.check(good, "max_connections", most.unwrap_or_default(), "at least 1")?;
        let metrics = self.metrics.map(|raw| metrics(&place.within("metrics"), raw));
        Ok(OperationConfig {
            control: match self.control {
                None => ControlPath::Usual,
                Some(word) if word == "none" => ControlPath::None,
                Some(named) => ControlPath::At(path(named)),
            },
            total_memory: size(place, "total_memory", self.total_memory)?,
            max_connections: most.map(|most| most as u64),
            keepalive: self.keepalive.map(|time| keepalive(place, time.0.0)).transpose()?,
            log: self.log.map(|filter| filter.0),
            metrics: metrics.transpose()?,
            state: self.state.map(path),
            // Only a regular file can be read again by a reload.
            file: file.regular.then(|| file.path.to_owned()),
            warnings: place.warnings(),
            ..OperationConfig::default()
        })
    }
}

fn metrics(place: &KeyContext<'_>, raw: sections::Metrics) -> Result<MetricsConfig, FileError> {
    const LISTEN: &str = "a local address and a TCP port, like \"127.0.0.1:9590\"";
    let listen = raw.listen.ok_or_else(|| place.missing_key("listen", LISTEN))?.0.0;
    let file = raw.token_file.as_deref();
    place.check(file != Some(""), "token_file", "\"\"", "a path")?;
    let nobody = raw.allow.as_ref().is_some_and(Vec::is_empty);
    place.check(!nobody, "allow", "[]", "at least one prefix, or no such key")?;
    let is_open = raw.token_file.is_none() && raw.allow.is_none();
    let beyond = "a loopback address such as \"127.0.0.1:9590\", or, to be reached from other \
                  machines, also `token_file = \"FILE\"` or `allow = [\"10.0.0.0/8\"]`";
    place.check(listen.ip().is_loopback() || !is_open, "listen", quoted(listen), beyond)?;
    for host in &raw.hosts {
        let good = !host.is_empty() && !host.contains([':', '/', '@', ' ', '*']);
        place.check(good, "hosts", quoted(host), "names without a port, such as \"hub.lan\"")?;
    }
    Ok(MetricsConfig {
        listen,
        token_file: raw.token_file.map(|path| place.folder().locate(Path::new(&path))),
        allow: raw.allow.unwrap_or_default().into_iter().map(|prefix| prefix.0).collect(),
        hosts: raw.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
        hide_destinations: raw.hide_destinations.unwrap_or(false),
    })
}

fn keepalive(place: &KeyContext<'_>, time: Duration) -> Result<Duration, FileError> {
    let value = quoted(format_duration(time));
    place.check(KEEPALIVE.contains(&time), "keepalive", value, "1 s to 2 h").map(|()| time)
}
