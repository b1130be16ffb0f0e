//! The configuration of a solo gateway.

use core::ops::RangeInclusive;

use pep::config::{SideConfig, SoloConfig};
use units::{BitRate, ByteCount};

use super::operation::Operation;
use super::policies::Choice;
use super::raw::sections;
use super::{ConfigFile, RawSolo, entrances, hop, number, policies};
use crate::FileError;
use crate::place::{Place, quoted};
use crate::text::Text;

/// TCP_CA_NAME_MAX without the terminating zero.
const LONGEST_CONGESTION_CONTROL: usize = 15;
/// From a segment or two up to half of what SO_SNDBUF's signed number can hold: the kernel doubles
/// it.
const BUFFER: RangeInclusive<ByteCount> = ByteCount::new(4_096)..=ByteCount::new(1_000_000_000);
/// Up to about a megabyte: more in one burst would flood any queue.
const SEGMENTS: RangeInclusive<i64> = 1..=700;

pub(super) fn read(
    place: &Place<'_>,
    raw: RawSolo,
    file: &ConfigFile<'_>,
) -> Result<SoloConfig, FileError> {
    let bypass = entrances::bypass(raw.intercept.as_ref());
    let names = raw.proxy.as_ref().is_some_and(|proxy| proxy.names.is_some());
    let expected = "no such key: a solo gateway resolves names itself";
    place.check(!names, "proxy.names", "a value", expected)?;
    let needs_interception = raw.proxy.is_none();
    let (intercept, proxy) = entrances::read(place, raw.intercept, raw.proxy, needs_interception)?;
    let operation = Operation {
        control: raw.control,
        state: None,
        metrics: raw.metrics,
        total_memory: raw.total_memory,
        max_connections: raw.max_connections,
        keepalive: raw.keepalive,
        log: raw.log,
    };
    let choice = Choice { split: intercept.is_some(), tunnel: false };
    Ok(SoloConfig {
        operation: operation.read(place, file)?,
        policies: policies::read(place, bypass, raw.policy, choice)?,
        intercept,
        proxy,
        lan: side(&place.within("lan"), raw.lan)?,
        wan: side(&place.within("wan"), raw.wan)?,
        transparent: raw.transparent.unwrap_or(false),
        allow_loopback: raw.allow_loopback.unwrap_or(false),
        connect_timeout: hop::connect_timeout(place, raw.connect_timeout)?,
    })
}

fn side(place: &Place<'_>, raw: sections::Side) -> Result<SideConfig, FileError> {
    let segments = |key, count| {
        let count = number(place, key, count, (SEGMENTS, " segments"))?;
        Ok(count.map(|count| count as u32))
    };
    let named = |name| congestion_control(place, name);
    Ok(SideConfig {
        congestion_control: raw.congestion_control.map(named).transpose()?,
        send_buffer: buffer(place, "send_buffer", raw.send_buffer)?,
        receive_buffer: buffer(place, "receive_buffer", raw.receive_buffer)?,
        pacing_rate: pacing_rate(place, raw.pacing_rate)?,
        initial_window: segments("initial_window", raw.initial_window)?,
        initial_receive_window: segments("initial_receive_window", raw.initial_receive_window)?,
        quick_ack: raw.quick_ack.unwrap_or(false),
    })
}

fn congestion_control(place: &Place<'_>, name: String) -> Result<String, FileError> {
    let good = (1..=LONGEST_CONGESTION_CONTROL).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let expected = "the name of a congestion control that the kernel has, like \"cubic\"";
    place.check(good, "congestion_control", quoted(&name), expected).map(|()| name)
}

fn buffer(
    place: &Place<'_>,
    key: &str,
    size: Option<Text<ByteCount>>,
) -> Result<Option<ByteCount>, FileError> {
    let Some(Text(size)) = size else { return Ok(None) };
    place.check(BUFFER.contains(&size), key, quoted(size), "4096 B to 1 GB").map(|()| Some(size))
}

/// The kernel counts whole bytes per second.
fn pacing_rate(
    place: &Place<'_>,
    rate: Option<Text<BitRate>>,
) -> Result<Option<BitRate>, FileError> {
    let Some(Text(rate)) = rate else { return Ok(None) };
    let good = rate.bits_per_second() >= 8;
    let expected = "a rate, like \"10 Mbit/s\"";
    place.check(good, "pacing_rate", quoted(rate), expected).map(|()| Some(rate))
}
