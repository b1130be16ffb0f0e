//! The configuration of a solo gateway.

use pep::config::{SideConfig, SoloConfig};
use units::{BitRate, ByteCount};

use super::operation::Written;
use super::parse::quoted;
use super::policy::Choice;
use super::{ConfigError, Source, raw};

/// TCP_CA_NAME_MAX without the terminating zero.
const LONGEST_CONGESTION_CONTROL: usize = 15;
/// From a segment or two up to half of what SO_SNDBUF's signed number can hold: the kernel doubles
/// it.
const BUFFER: std::ops::RangeInclusive<u64> = 4_096..=1_000_000_000;

/// Up to about a megabyte: more in one burst would flood any queue.
const SEGMENTS: std::ops::RangeInclusive<u32> = 1..=700;

impl Source {
    pub(super) fn solo(&self, text: &str) -> Result<SoloConfig, ConfigError> {
        let raw: raw::Solo = raw::read(self, text)?;
        let bypass = self.bypass(raw.intercept.as_ref())?;
        self.no_hub(raw.proxy.as_ref())?;
        let (intercept, proxy) = self.entrances(raw.intercept, raw.proxy)?;
        let operation = Written {
            control: raw.control,
            state: None,
            metrics: raw.metrics,
            total_memory: raw.total_memory,
            max_connections: raw.max_connections,
            keepalive: raw.keepalive,
            log: raw.log,
            maximum_rate: None,
            dlep: None,
        };
        let choice = Choice { split: intercept.is_some(), tunnel: false };
        Ok(SoloConfig {
            operation: self.operation(operation)?,
            policies: self.policies(bypass, raw.policy, choice)?,
            intercept,
            proxy,
            lan: self.side("lan", raw.lan)?,
            wan: self.side("wan", raw.wan)?,
            transparent: raw.transparent.unwrap_or(false),
            allow_loopback: raw.allow_loopback.unwrap_or(false),
            connect_timeout: self.connect_timeout(raw.connect_timeout)?,
        })
    }

    fn side(&self, section: &str, raw: raw::Side) -> Result<SideConfig, ConfigError> {
        let key = |name: &str| format!("{section}.{name}");
        let named = |name| self.congestion_control(&key("congestion_control"), name);
        Ok(SideConfig {
            congestion_control: raw.congestion_control.map(named).transpose()?,
            send_buffer: self.buffer(&key("send_buffer"), raw.send_buffer)?,
            receive_buffer: self.buffer(&key("receive_buffer"), raw.receive_buffer)?,
            pacing_rate: self.pacing_rate(&key("pacing_rate"), raw.pacing_rate)?,
            initial_window: self.segments(&key("initial_window"), raw.initial_window)?,
            initial_receive_window: self
                .segments(&key("initial_receive_window"), raw.initial_receive_window)?,
            quick_ack: raw.quick_ack.unwrap_or(false),
        })
    }

    fn segments(&self, key: &str, count: Option<i64>) -> Result<Option<u32>, ConfigError> {
        let Some(count) = count else { return Ok(None) };
        let segments = u32::try_from(count).ok().filter(|count| SEGMENTS.contains(count));
        let problem = format!("expected {} to {} segments", SEGMENTS.start(), SEGMENTS.end());
        segments.map(Some).ok_or_else(|| self.value(key, count, problem))
    }

    fn congestion_control(&self, key: &str, name: String) -> Result<String, ConfigError> {
        let is_name = (1..=LONGEST_CONGESTION_CONTROL).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        let problem = "expected the name of a congestion control that the kernel has, like \
                       \"cubic\"";
        if is_name { Ok(name) } else { Err(self.value(key, quoted(&name), problem)) }
    }

    fn buffer(&self, key: &str, text: Option<String>) -> Result<Option<ByteCount>, ConfigError> {
        let Some(text) = text else { return Ok(None) };
        let size: ByteCount = text.parse().map_err(|e| self.value(key, quoted(&text), e))?;
        if !BUFFER.contains(&size.get()) {
            return Err(self.value(key, quoted(&text), "expected 4096 B to 1 GB"));
        }
        Ok(Some(size))
    }

    fn pacing_rate(&self, key: &str, text: Option<String>) -> Result<Option<BitRate>, ConfigError> {
        let Some(text) = text else { return Ok(None) };
        let rate: BitRate = text.parse().map_err(|e| self.value(key, quoted(&text), e))?;
        if rate.bits_per_second() < 8 {
            return Err(self.value(key, quoted(&text), "expected a rate, like \"10 Mbit/s\""));
        }
        Ok(Some(rate))
    }
}
