//! The configuration file of a solo gateway.

use core::ops::RangeInclusive;

use config::{SideConfig, SoloConfig, StackConfig};
use tcp::{Config, SynData, TcbSharing};
use units::{BitRate, ByteCount};

use super::operation::OperationKeys;
use super::policies::PolicyActions;
use super::raw::sections;
use super::raw::values::Stack;
use super::{ConfigFile, RawSolo, entrances, hop, interface, policies, tunnel};
use crate::FileError;
use crate::place::{KeyContext, quoted};
use crate::scenario::{RawTcp, tcp as tcp_of};
use crate::text::Text;

/// Default name of the stack's network device.
const DEVICE: &str = "skyhop-wan";
/// Longest name of a congestion control: TCP_CA_NAME_MAX without the terminating zero.
const LONGEST_CONGESTION_CONTROL: usize = 15;
/// Permitted socket buffers: from a segment or two up to half of SO_SNDBUF's largest value, because
/// the kernel doubles it.
const BUFFER: RangeInclusive<ByteCount> = ByteCount::new(4_096)..=ByteCount::new(1_000_000_000);

pub(super) fn read(
    place: &KeyContext<'_>,
    raw: RawSolo,
    file: &ConfigFile<'_>,
) -> Result<SoloConfig, FileError> {
    let bypass = entrances::bypass(raw.intercept.as_ref());
    let names = raw.proxy.as_ref().is_some_and(|proxy| proxy.names.is_some());
    let expected = "no such key: a solo gateway resolves names itself";
    place.check(!names, "proxy.names", "a value", expected)?;
    let (wan, stack) = wan(&place.within("wan"), raw.wan)?;
    let accepts = stack.as_ref().is_some_and(|stack| !stack.interfaces.is_empty());
    let needs_interception = raw.proxy.is_none() && !accepts;
    let (intercept, proxy) = entrances::read(place, raw.intercept, raw.proxy, needs_interception)?;
    let operation = OperationKeys {
        control: raw.control,
        state: None,
        metrics: raw.metrics,
        total_memory: raw.total_memory,
        max_connections: raw.max_connections,
        keepalive: raw.keepalive,
        log: raw.log,
    };
    let choice = PolicyActions { split: intercept.is_some() || accepts, tunnel: false };
    Ok(SoloConfig {
        operation: operation.read(place, file)?,
        policies: policies::read(place, bypass, raw.policy, choice)?,
        intercept,
        proxy,
        lan: side(&place.within("lan"), raw.lan)?,
        wan,
        stack,
        transparent: raw.transparent.unwrap_or(false),
        allow_loopback: raw.allow_loopback.unwrap_or(false),
        connect_timeout: hop::connect_timeout(place, raw.connect_timeout)?,
    })
}

/// Reads the settings of the WAN side, for the kernel's TCP or skyhop's own.
fn wan(
    place: &KeyContext<'_>,
    raw: sections::Wan,
) -> Result<(SideConfig, Option<StackConfig>), FileError> {
    let kernels = sections::Side {
        congestion_control: raw.congestion_control,
        send_buffer: raw.send_buffer,
        receive_buffer: raw.receive_buffer,
        pacing_rate: raw.pacing_rate,
        quick_ack: raw.quick_ack,
    };
    let is_ours = raw.stack == Some(Stack::Skyhop);
    let used = if is_ours { kernels.first_key() } else { None };
    let expected = "no such key with stack = \"skyhop\": its TCP is configured in [wan.tcp]";
    place.check(used.is_none(), used.unwrap_or_default(), "a value", expected)?;
    let ours = [
        ("interfaces", !raw.interfaces.is_empty()),
        ("name", raw.name.is_some()),
        ("device", raw.device.is_some()),
        ("mtu", raw.mtu.is_some()),
        ("tcp", raw.tcp.is_some()),
    ];
    let used = ours.iter().find(|(_, is_there)| *is_there && !is_ours).map(|(key, _)| *key);
    let expected = "no such key without stack = \"skyhop\"";
    place.check(used.is_none(), used.unwrap_or_default(), "a value", expected)?;
    let wan = side(place, kernels)?;
    if !is_ours {
        return Ok((wan, None));
    }
    for (index, name) in raw.interfaces.iter().enumerate() {
        interface(place, &format!("interfaces.{index}"), name)?;
    }
    let usual_mtu = tunnel::USUAL_MTU;
    let device = tunnel::device_of(place, raw.name, raw.device, raw.mtu, DEVICE, usual_mtu)?;
    let tcp = stack_tcp(&place.within("tcp"), &raw.tcp.unwrap_or_default())?;
    Ok((wan, Some(StackConfig { tcp: tcp.into(), device, interfaces: raw.interfaces })))
}

/// Reads the options of skyhop's own TCP. By default it offers SNACK, which takes effect only if the
/// peer does the same. Nagle's algorithm is off by default, as on a gateway's kernel sockets: the
/// sender has already applied its own.
fn stack_tcp(place: &KeyContext<'_>, raw: &RawTcp) -> Result<Config, FileError> {
    let mut config = Config::clone(&*tcp_of::read(place, raw)?);
    let good = config.syn_data == SynData::Off;
    let expected = "off: a gateway keeps no cookies and counts for data on a SYN";
    place.check(good, "syn-data", "another value", expected)?;
    let good = config.sharing == TcbSharing::None;
    let expected = "none: the connections of a gateway learn nothing from each other";
    place.check(good, "tcb-sharing", "another value", expected)?;
    // A profile decides about SNACK itself.
    if !raw.contains_key("profile") && !raw.contains_key("snack") {
        config.snack = true;
    }
    if !raw.contains_key("nagle") {
        config.nagle = false;
    }
    Ok(config)
}

impl sections::Side {
    /// Returns the first key that is set.
    fn first_key(&self) -> Option<&'static str> {
        let keys = [
            ("congestion_control", self.congestion_control.is_some()),
            ("send_buffer", self.send_buffer.is_some()),
            ("receive_buffer", self.receive_buffer.is_some()),
            ("pacing_rate", self.pacing_rate.is_some()),
            ("quick_ack", self.quick_ack.is_some()),
        ];
        keys.into_iter().find(|(_, is_there)| *is_there).map(|(key, _)| key)
    }
}

fn side(place: &KeyContext<'_>, raw: sections::Side) -> Result<SideConfig, FileError> {
    let named = |name| congestion_control(place, name);
    Ok(SideConfig {
        congestion_control: raw.congestion_control.map(named).transpose()?,
        send_buffer: buffer(place, "send_buffer", raw.send_buffer)?,
        receive_buffer: buffer(place, "receive_buffer", raw.receive_buffer)?,
        pacing_rate: pacing_rate(place, raw.pacing_rate)?,
        quick_ack: raw.quick_ack.unwrap_or(false),
    })
}

fn congestion_control(place: &KeyContext<'_>, name: String) -> Result<String, FileError> {
    let good = (1..=LONGEST_CONGESTION_CONTROL).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let expected = "the name of a congestion control that the kernel has, like \"cubic\"";
    place.check(good, "congestion_control", quoted(&name), expected).map(|()| name)
}

fn buffer(
    place: &KeyContext<'_>,
    key: &str,
    size: Option<Text<ByteCount>>,
) -> Result<Option<ByteCount>, FileError> {
    let Some(Text(size)) = size else { return Ok(None) };
    place.check(BUFFER.contains(&size), key, quoted(size), "4096 B to 1 GB").map(|()| Some(size))
}

/// Checks that a pacing rate is at least 8 bit/s, because the kernel counts whole bytes per second.
fn pacing_rate(
    place: &KeyContext<'_>,
    rate: Option<Text<BitRate>>,
) -> Result<Option<BitRate>, FileError> {
    let Some(Text(rate)) = rate else { return Ok(None) };
    let good = rate.bits_per_second() >= 8;
    let expected = "a rate, like \"10 Mbit/s\"";
    place.check(good, "pacing_rate", quoted(rate), expected).map(|()| Some(rate))
}
