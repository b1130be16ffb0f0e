//! The typed configuration of a gateway: valid as it stands, whatever file it came from.

mod bundles;
mod dns;
mod http;
mod hub;
mod intercept;
mod link;
mod log;
mod operation;
mod solo;
mod terminal;

pub use bundles::{BundlesConfig, BundlesTls, FILE_SERVICES, Reach};
pub use dns::{DnsConfig, HubDnsConfig, SecureDns};
pub use http::{HttpConfig, HubCacheConfig, HubHttpConfig, SiteConfig};
pub use hub::{
    EtcdConfig, EtcdLogin, EtcdTls, HubConfig, PermitDefaults, PermittedTerminal, TlsFiles,
    aggregates, link_rates, memory_limits, quotas,
};
pub use intercept::{Answer, InterceptConfig, Names, ProxyConfig, TunnelConfig, TunnelDevice};
pub use link::LinkConfig;
pub use log::{LogFilter, LogFilterError};
pub use operation::{ControlPath, DlepConfig, MetricsConfig, Modem, OperationConfig};
pub use solo::{SideConfig, SoloConfig, StackConfig};
pub use terminal::{HubAddress, KnownHub, TcpAddress, TerminalConfig};
