//! Operational settings: `control`, `metrics`, `state`, `total_memory`, `max_connections`,
//! `keepalive`, `log`.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::Path;

use pep::config::{ControlPath, LogFilter, OperationConfig};
use units::{ByteCount, format_duration};

use super::ConfigFile;
use super::hop::size;
use super::raw::sections;
use crate::FileError;
use crate::place::{Place, quoted};
use crate::text::{Text, Time};

/// From 1 s, because the kernel counts in seconds, to the least default elsewhere (RFC 9293
/// §3.8.4).
const KEEPALIVE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7200);

/// The keys as written.
pub(super) struct Operation {
    pub(super) control: Option<String>,
    pub(super) state: Option<String>,
    pub(super) metrics: Option<sections::Metrics>,
    pub(super) total_memory: Option<Text<ByteCount>>,
    pub(super) max_connections: Option<i64>,
    pub(super) keepalive: Option<Text<Time>>,
    pub(super) log: Option<Text<LogFilter>>,
}

impl Operation {
    /// The settings without those of the rate: `maximum_rate` and `dlep`.
    pub(super) fn read(
        self,
        place: &Place<'_>,
        file: &ConfigFile<'_>,
    ) -> Result<OperationConfig, FileError> {
        const METRICS: &str = "a local address and a TCP port, like \"127.0.0.1:9590\"";
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
        let metrics = self.metrics.map(|metrics| {
            let missing = || place.missing("metrics.listen", METRICS);
            metrics.listen.map(|address| address.0.0).ok_or_else(missing)
        });
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
            file: file.regular.then(|| file.path.to_owned()),
            ..OperationConfig::default()
        })
    }
}

fn keepalive(place: &Place<'_>, time: Duration) -> Result<Duration, FileError> {
    let value = quoted(format_duration(time));
    place.check(KEEPALIVE.contains(&time), "keepalive", value, "1 s to 2 h").map(|()| time)
}
