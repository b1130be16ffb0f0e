//! The configuration of a solo gateway.

use core::time::Duration;
use std::sync::Arc;

use pep::traffic::TrafficPolicy;
use schemars::JsonSchema;
use serde::Deserialize;
use tcp::{Config, SynData, TcbSharing};
use units::{BitRate, ByteCount};

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::tcp_options::TcpOptions;
use crate::file::text::Text;
use crate::hop::ConnectTimeout;
use crate::intercept::{
    InterceptConfig, InterceptSection, ProxyConfig, ProxySection, TunnelConfig,
};
use crate::operation::{Keepalive, MetricsSection, OperationConfig, OperationKeys};
use crate::services::tunnel;
use crate::traffic::policies::{self, PolicyActions, PolicySection};
use crate::values::Stack;
use crate::values::bounded::{Memory, Number, Size};
use crate::values::interface_name::interface;
use crate::values::source::ConfigFile;
use crate::{LogFilter, TunnelDevice, intercept};

/// The configuration of a solo gateway (docs/solo.md).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop solo gateway")]
pub(crate) struct SoloKeys {
    /// The path of the control socket, or `"none"`. Default: `solo.sock` in the first available of several
    /// directories; see [Control sockets](operate.md#control-sockets).
    #[schemars(extend("x-restart" = true))]
    pub(crate) control: Option<String>,
    /// An HTTP server for the [dashboard](dashboard.md), [metrics](operate.md#metrics) and status. Without it,
    /// nothing is served.
    #[schemars(extend("x-restart" = true))]
    pub(crate) metrics: Option<MetricsSection>,
    /// The most that waits in pipes, and in the connections of `stack = "skyhop"`, before new connections pass
    /// unaccelerated; those to the proxy are refused. Default: half of the machine's memory, or of its control
    /// group's limit.
    #[schemars(extend("examples" = ["1 GB"]))]
    pub(crate) total_memory: Option<Memory>,
    /// The most connections carried. Further ones pass unaccelerated; those to the proxy are refused. One client
    /// (an IPv4 address or an IPv6 /64) has at most seven times as many as are free, and when a sixteenth is
    /// left, connections idle for more than a minute give way to new ones. Default: (the process's descriptors −
    /// 64) / 2, which it cannot exceed; 16,384 with `stack = "skyhop"` if that is less.
    pub(crate) max_connections: Option<Number<1, { u32::MAX }>>,
    /// Time limit for opening a connection to a destination.
    #[serde(default)]
    pub(crate) connect_timeout: ConnectTimeout,
    /// Silence after which a client or server is probed. Up to six probes follow over the same time again, at
    /// most one a second; without an answer the connection is reset. The default keeps connections of clients
    /// that are suspended or out of reach for two hours, but one whose peer is gone holds its slot of
    /// `max_connections` and [its memory](performance.md) for four. Shorter costs a few packets on the LAN.
    #[schemars(extend("default" = "2 h"))]
    pub(crate) keepalive: Option<Keepalive>,
    /// Filter of the log (standard error): `"off"`, `"error"`, `"warn"`, `"info"`, `"debug"` or `"trace"`, or
    /// several parts such as `"info,gateway::hop=debug"`. Of libraries, `warn` and `info` show only errors. Up
    /// to `info`, one place in the code writes at most 200 lines at once and then one every 10 s; the rest is
    /// counted once a minute. The environment variable `SKYHOP_LOG` overrides it.
    #[schemars(extend("default" = "info", "examples" = ["warn", "info,gateway::hop=debug"]))]
    pub(crate) log: Option<Text<LogFilter>>,
    /// Show servers the clients' addresses, with other ports, on intercepted connections.
    #[serde(default)]
    pub(crate) transparent: bool,
    /// Let clients reach services on this machine's own loopback addresses.
    #[serde(default)]
    pub(crate) allow_loopback: bool,
    /// Interception of the TCP connections that come in by the interfaces to the clients. A solo gateway needs
    /// this, `[proxy]` or `[wan] interfaces`.
    #[schemars(extend("x-restart" = "presence"))]
    pub(crate) intercept: Option<InterceptSection>,
    /// A SOCKS5 and HTTP CONNECT proxy. Alone it needs no privileges, and passes the server's answer on; see [the
    /// proxy](proxy.md).
    #[schemars(extend("x-restart" = true))]
    pub(crate) proxy: Option<ProxySection>,
    /// Rules that split, bypass or refuse traffic; the first match decides. By default all TCP is split. See
    /// [Policies](traffic.md#policies).
    #[serde(default)]
    pub(crate) policy: Vec<PolicySection>,
    /// The kernel's TCP towards clients.
    #[serde(default)]
    pub(crate) lan: SideSection,
    /// TCP towards servers: the kernel's, or skyhop's own. See [`skyhop solo`](solo.md).
    #[serde(default)]
    pub(crate) wan: WanSection,
}

/// The kernel's TCP on one side of a solo gateway.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Side")]
pub(crate) struct SideSection {
    /// A congestion control from `/proc/sys/net/ipv4/tcp_available_congestion_control`. Default: cubic or reno.
    #[schemars(extend("examples" = ["cubic", "bbr"]))]
    pub(crate) congestion_control: Option<String>,
    /// Bytes that may wait to be sent or acknowledged; root may exceed `net.core.wmem_max`. A given size is
    /// fixed: too small limits the rate to size / RTT, too large costs memory per connection. Default: the
    /// kernel's tuning.
    pub(crate) send_buffer: Option<SocketBuffer>,
    /// Bytes that may wait to be read, which also bounds the window; otherwise as `send_buffer`. Default: the
    /// kernel's tuning.
    pub(crate) receive_buffer: Option<SocketBuffer>,
    /// The highest rate at which one connection sends. Default: unlimited.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(crate) pacing_rate: Option<Text<BitRate>>,
    /// Acknowledge at once, as the kernel does by itself at the start of a connection and in one-way transfers.
    /// In a conversation it waits 40 ms for a reply, which holds up a sender that writes messages in two parts
    /// with Nagle's algorithm on. Costs packets on the return path.
    #[schemars(extend("default" = false))]
    pub(crate) quick_ack: Option<bool>,
}

/// TCP towards servers: the kernel's, or skyhop's own (docs/solo.md).
#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Wan")]
pub(crate) struct WanSection {
    /// The TCP towards servers: the kernel's, or [skyhop's own](solo.md#our-own-tcp-towards-the-satellite). Each
    /// has keys of its own, and refuses those of the other.
    #[schemars(extend("default" = "kernel"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) stack: Option<Stack>,
    /// With `"skyhop"`: interfaces whose incoming connections the stack accepts and continues towards the LAN.
    #[serde(default)]
    #[schemars(extend("examples" = [["sat0"]]))]
    pub(crate) interfaces: Vec<String>,
    /// With `"skyhop"`: the name of the stack's network device.
    #[schemars(extend("default" = "skyhop-wan"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) name: Option<String>,
    /// With `"skyhop"`: the type of the device: `"tun"`, `"veth"`, or `"auto"`, the first that works.
    #[schemars(extend("default" = "auto"))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) device: Option<TunnelDevice>,
    /// With `"skyhop"`: the longest packet towards the servers, in bytes.
    #[schemars(extend("default" = 1500))]
    #[schemars(extend("x-restart" = true))]
    pub(crate) mtu: Option<Number<1280, 9216>>,
    /// With `"skyhop"`: [options](tcp.md#options) of its TCP, as in a scenario's `[tcp.NAME]`. `syn-data` and
    /// `tcb-sharing` must be off. Default: profile `linux` with `snack = true`; with any profile `nagle = false`.
    #[schemars(extend("examples" = [{"profile": "scps", "max-rate": "10 Mbit/s"}]))]
    pub(crate) tcp: Option<TcpOptions>,
    /// With `"kernel"`: a congestion control from `/proc/sys/net/ipv4/tcp_available_congestion_control`. Default:
    /// the system's.
    #[schemars(extend("examples" = ["cubic", "bbr"]))]
    pub(crate) congestion_control: Option<String>,
    /// With `"kernel"`: bytes that may wait to be sent or acknowledged; root may exceed `net.core.wmem_max`. A
    /// given size is fixed: too small limits the rate to size / RTT, too large costs memory per connection.
    /// Default: the kernel's tuning.
    pub(crate) send_buffer: Option<SocketBuffer>,
    /// With `"kernel"`: bytes that may wait to be read, which also bounds the window; otherwise as `send_buffer`.
    /// Default: the kernel's tuning.
    pub(crate) receive_buffer: Option<SocketBuffer>,
    /// With `"kernel"`: the highest rate at which one connection sends. Default: unlimited.
    #[schemars(extend("examples" = ["10 Mbit/s"]))]
    pub(crate) pacing_rate: Option<Text<BitRate>>,
    /// With `"kernel"`: acknowledge at once, as the kernel does by itself at the start of a connection and in
    /// one-way transfers. In a conversation it waits 40 ms for a reply, which holds up a sender that writes
    /// messages in two parts with Nagle's algorithm on. Costs packets on the return path.
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
type SocketBuffer = Size<4_096, 1_000_000_000>;

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
    let refuse = intercept.is_some();
    let choice = PolicyActions { split: refuse || accepts, refuse, tunnel: false };
    Ok(SoloConfig {
        operation: operation.read(place, file)?,
        policies: policies::read(place, bypass, raw.policy, choice)?,
        intercept,
        proxy,
        lan: side(&place.within("lan"), raw.lan)?,
        wan,
        stack,
        transparent: raw.transparent,
        allow_loopback: raw.allow_loopback,
        connect_timeout: raw.connect_timeout.get(),
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
        send_buffer: raw.send_buffer.map(Size::get),
        receive_buffer: raw.receive_buffer.map(Size::get),
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
