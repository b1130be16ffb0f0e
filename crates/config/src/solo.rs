//! Configuration of a solo gateway.

use std::sync::Arc;
use std::time::Duration;

use pep::traffic::TrafficPolicy;
use units::{BitRate, ByteCount};

use super::intercept::{InterceptConfig, ProxyConfig, TunnelConfig};
use super::operation::OperationConfig;

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
    pub tcp: Arc<tcp::Config>,
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
