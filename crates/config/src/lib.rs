//! Typed configuration of a gateway: a constructed value is valid, whatever file it came from.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod bundles;
mod dns;
mod http;
mod hub;
mod hub_address;
mod intercept;
mod link;
mod log;
mod operation;
mod solo;
mod terminal;
mod tls_files;

pub use self::bundles::{BundlesConfig, BundlesTls, FILE_SERVICES, NodeReach};
pub use self::dns::{DnsConfig, HubDnsConfig, SecureDns};
pub use self::http::{HttpConfig, HubCacheConfig, HubHttpConfig, SiteConfig};
pub use self::hub::{
    EtcdConfig, EtcdLogin, EtcdTls, HubConfig, PermitDefaults, aggregates, link_rates,
    memory_limits, quotas,
};
pub use self::hub_address::{HubAddress, HubAddressError, TcpAddress, TcpAddressError};
pub use self::intercept::{
    AnswerTiming, InterceptConfig, NameResolution, ProxyConfig, TunnelConfig, TunnelDevice,
};
pub use self::link::LinkConfig;
pub use self::log::{LogFilter, LogFilterError};
pub use self::operation::{ControlPath, DlepConfig, MetricsConfig, ModemLocation, OperationConfig};
pub use self::solo::{SideConfig, SoloConfig, StackConfig};
pub use self::terminal::{KnownHub, TerminalConfig};
pub use self::tls_files::TlsFiles;
pub use pep::routes::PermittedTerminal;
