//! The configuration of a solo gateway.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::Arc;

use pep::traffic::TrafficPolicy;
use schemars::JsonSchema;
use serde::Deserialize;
use tcp::{Config, SynData, TcbSharing};
use units::{BitRate, ByteCount};

use crate::bounds::interface;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::tcp_options::TcpOptions;
use crate::file::text::{Text, Time};
use crate::gateway_file::ConfigFile;
use crate::intercept::{
    InterceptConfig, InterceptSection, ProxyConfig, ProxySection, TunnelConfig,
};
use crate::operation::{MetricsSection, OperationConfig, OperationKeys};
use crate::policies::{PolicyActions, PolicySection};
use crate::values::Stack;
use crate::{LogFilter, TunnelDevice, hop, intercept, policies, tunnel};

/// The configuration of a solo gateway (docs/solo.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop solo gateway")]
pub(crate) struct SoloKeys {
    /// The control socket: a path, or `none`.
    #[schemars(extend("x-restart" = true))]
    pub(crate) control: Option<String>,
    /// The metrics server.
    #[schemars(extend("x-restart" = true))]
    pub(crate) metrics: Option<MetricsSection>,
    /// While more waits in pipes, new connections pass unaccelerated; by default half of the
    /// machine's memory.
    #[schemars(extend("examples" = ["1 GB"]))]
    pub(crate) total_memory: Option<Text<ByteCount>>,
    /// The most connections carried.
    #[schemars(range(min = 1))]
    pub(crate) max_connections: Option<i64>,
    /// Time limit for opening a connection to a destination; at most 10 min.
    #[schemars(extend("default" = "30 s"))]
    pub(crate) connect_timeout: Option<Text<Time>>,
    /// Clients and servers that are silent for this long are probed; 1 s to 2 h.
    #[schemars(extend("default" = "2 h"))]
    pub(crate) keepalive: Option<Text<Time>>,
    /// Filter of the log: a level, or levels of single modules.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::tunnel=debug"]))]
    pub(crate) log: Option<Text<LogFilter>>,
    /// Servers see the clients' addresses (with other ports) for intercepted connections.
    #[schemars(extend("default" = false))]
    pub(crate) transparent: Option<bool>,
    /// Clients may reach services on this machine's own loopback addresses.
    #[schemars(extend("default" = false))]
    pub(crate) allow_loopback: Option<bool>,
    /// Connections to intercept.
    #[schemars(extend("x-restart" = "presence"))]
    pub(crate) intercept: Option<InterceptSection>,
    /// The SOCKS5 and HTTP CONNECT proxy.
    #[schemars(extend("x-restart" = true))]
    pub(crate) proxy: Option<ProxySection>,
    /// Rules that split or bypass traffic; the first match decides.
    #[serde(default)]
    pub(crate) policy: Vec<PolicySection>,
    /// TCP towards clients.
    #[serde(default)]
    pub(crate) lan: SideSection,
    /// TCP towards servers.
    #[serde(default)]
    pub(crate) wan: WanSection,
}

/// The kernel's TCP on one side of a solo gateway.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Side")]
pub(crate) struct SideSection {
    /// A congestion control that the kernel has.
    #[schemars(extend("examples" = ["cubic", "bbr"]))]
    pub(crate) congestion_control: Option<String>,
    /// Size of the send buffer, 4096 B to 1 GB; by default the kernel's
    /// tuning.
    pub(crate) send_buffer: Option<Text<ByteCount>>,
    /// Size of the receive buffer, 4096 B to 1 GB; by default the kernel's tuning.
    pub(crate) receive_buffer: Option<Text<ByteCount>>,
    /// The highest rate at which one connection sends.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(crate) pacing_rate: Option<Text<BitRate>>,
    /// Acknowledge at once.
    #[schemars(extend("default" = false))]
    pub(crate) quick_ack: Option<bool>,
}

/// TCP towards servers: the kernel's, or skyhop's own (docs/solo.md).
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Wan")]
pub(crate) struct WanSection {
    /// The TCP stack: `kernel`, which the keys `congestion_control` to `quick_ack` configure, or `skyhop`,
    /// which the others configure.
    #[schemars(extend("default" = "kernel"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) stack: Option<Stack>,
    /// With `skyhop`: connections that come in by these interfaces are accepted too.
    #[serde(default)]
    #[schemars(extend("examples" = [["sat0"]]))]
    pub(crate) interfaces: Vec<String>,
    /// With `skyhop`: the network device.
    #[schemars(extend("default" = "skyhop-wan"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) name: Option<String>,
    /// With `skyhop`: the device's type; `auto` takes the first that works.
    #[schemars(extend("default" = "auto"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) device: Option<TunnelDevice>,
    /// With `skyhop`: the longest packet towards the servers, in bytes.
    #[schemars(range(min = 1280, max = 9216), extend("default" = 1500))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) mtu: Option<i64>,
    /// With `skyhop`: the options of its TCP, by the names of docs/tcp.md.
    #[schemars(extend("examples" = [{"profile": "scps", "max-rate": "10 Mbit/s"}]))]
    pub(crate) tcp: Option<TcpOptions>,
    /// A congestion control that the kernel has.
    #[schemars(extend("examples" = ["cubic", "bbr"]))]
    pub(crate) congestion_control: Option<String>,
    /// Size of the send buffer, 4096 B to 1 GB; by default the kernel's
    /// tuning.
    pub(crate) send_buffer: Option<Text<ByteCount>>,
    /// Size of the receive buffer, 4096 B to 1 GB; by default the kernel's tuning.
    pub(crate) receive_buffer: Option<Text<ByteCount>>,
    /// The highest rate at which one connection sends.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(crate) pacing_rate: Option<Text<BitRate>>,
    /// Acknowledge at once.
    #[schemars(extend("default" = false))]
    pub(crate) quick_ack: Option<bool>,
}

/// Configuration of a solo gateway. At least one of `intercept`, `proxy` and the stack's interfaces
/// is set.
#[derive(Debug, Clone)]
pub struct SoloConfig {
    /// Connections to intercept; `None` intercepts nothing. Section `intercept`.
    pub intercept: Option<InterceptConfig>,
    /// Policies of splitting and bypassing; the first match decides. Key `intercept.bypass`, then sections
    /// `[[policy]]`.
    pub policies: Vec<TrafficPolicy>,
    /// SOCKS5 and HTTP proxy; `None` runs none. Section `proxy`.
    pub proxy: Option<ProxyConfig>,
    /// TCP settings towards clients. Section `lan`.
    pub lan: SideConfig,
    /// TCP settings towards servers. Section `wan`.
    pub wan: SideConfig,
    /// Our own TCP towards servers, instead of the kernel's; `wan` then has its defaults. Key
    /// `wan.stack`.
    pub stack: Option<StackConfig>,
    /// Shows servers the client's address on intercepted connections. Key `transparent`, default
    /// false.
    pub transparent: bool,
    /// Lets clients reach services on this machine's loopback addresses. Key `allow_loopback`,
    /// default false.
    pub allow_loopback: bool,
    /// Time limit for connecting to a destination. Key `connect_timeout`, default 30 s.
    pub connect_timeout: Duration,
    /// Operational settings. Keys `control`, `metrics`, `total_memory`, `max_connections`,
    /// `keepalive`, `log`.
    pub operation: OperationConfig,
}

/// Our own TCP towards servers, whose segments pass through a network device.
#[derive(Debug, Clone, PartialEq)]
pub struct StackConfig {
    /// Its options. Section `wan.tcp`, default the profile `linux` with SNACK.
    pub tcp: Arc<Config>,
    /// The device. Keys `wan.name` (default `skyhop-wan`), `wan.device` and `wan.mtu` (default 1500).
    pub device: TunnelConfig,
    /// Interfaces whose connections the stack accepts. Key `wan.interfaces`, default none.
    pub interfaces: Vec<String>,
}

/// Kernel TCP settings on one side of a solo gateway. `None` keeps the system's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideConfig {
    /// Name in the kernel. Key `congestion_control`, default the system's; on the LAN side CUBIC or
    /// Reno, which cost little.
    pub congestion_control: Option<String>,
    /// Bytes waiting to be sent or acknowledged; must hold one BDP to fill the path. Autotuned by
    /// default. Key `send_buffer`.
    pub send_buffer: Option<ByteCount>,
    /// Bytes waiting to be read, and so the maximum window. Autotuned by default. Key
    /// `receive_buffer`.
    pub receive_buffer: Option<ByteCount>,
    /// Maximum sending rate of one connection. Key `pacing_rate`.
    pub pacing_rate: Option<BitRate>,
    /// Disables delayed ACKs. The kernel waits up to 40 ms to send an ACK with a reply, which
    /// stalls a sender that holds back the rest of a message (Nagle's algorithm). Costs extra ACKs.
    /// Key `quick_ack`, default false.
    pub quick_ack: bool,
}

/// Default name of the stack's network device.
const DEVICE: &str = "skyhop-wan";

/// Longest name of a congestion control: TCP_CA_NAME_MAX without the terminating zero.
const LONGEST_CONGESTION_CONTROL: usize = 15;

/// Permitted socket buffers: from a segment or two up to half of SO_SNDBUF's largest value, because
/// the kernel doubles it.
const BUFFER: RangeInclusive<ByteCount> = ByteCount::new(4_096)..=ByteCount::new(1_000_000_000);

pub(crate) fn read(
    place: &KeyContext<'_>,
    raw: SoloKeys,
    file: &ConfigFile<'_>,
) -> Result<SoloConfig, FileError> {
    let bypass = intercept::bypass(raw.intercept.as_ref());
    let names = raw.proxy.as_ref().is_some_and(|proxy| proxy.names.is_some());
    let expected = "no such key: a solo gateway resolves names itself";
    place.check(!names, "proxy.names", "a value", expected)?;
    let (wan, stack) = wan(&place.within("wan"), raw.wan)?;
    let accepts = stack.as_ref().is_some_and(|stack| !stack.interfaces.is_empty());
    let needs_interception = raw.proxy.is_none() && !accepts;
    let (intercept, proxy) = intercept::read(place, raw.intercept, raw.proxy, needs_interception)?;
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
    raw: WanSection,
) -> Result<(SideConfig, Option<StackConfig>), FileError> {
    let kernels = SideSection {
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
fn stack_tcp(place: &KeyContext<'_>, raw: &TcpOptions) -> Result<Config, FileError> {
    let mut config = Config::clone(&*crate::file::tcp_options::read(place, raw)?);
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

impl SideSection {
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

fn side(place: &KeyContext<'_>, raw: SideSection) -> Result<SideConfig, FileError> {
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
