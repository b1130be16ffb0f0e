//! The configuration of a gateway: parses its TOML into types in which every value is valid.
//!
//! A section of the file is a module: its table of keys (a struct `…Section`, from which parser, JSON schema,
//! reference page and restart rule follow), the typed configuration, and the checks that concern several keys.
//! The top levels of the files are `TerminalKeys`, `HubKeys` and `SoloKeys`. No clock; the only I/O is reading the
//! files that presets and scenarios name ([`file::folder`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod file;
mod gateway_file;
mod hop;
mod hub;
mod intercept;
mod operation;
mod schema;
mod services;
mod shared;
mod solo;
mod terminal;
#[cfg(test)]
mod tests;
mod traffic;
mod values;

pub use self::file::{FileError, FileKind, FilePosition};
pub use self::hop::links::LinkConfig;
pub use self::hub::permits::PermittedTerminals;
pub use self::hub::terminal_list::PermitDefaults;
pub use self::hub::{HubConfig, aggregates, link_rates, memory_limits, packet_addresses, quotas};
pub use self::intercept::{
    AnswerTiming, InterceptConfig, NameResolution, ProxyConfig, TunnelConfig, TunnelDevice,
};
pub use self::operation::log::{LogFilter, LogFilterError};
pub use self::operation::{ControlPath, MetricsConfig, OperationConfig};
pub use self::schema::restart_keys::{RestartKeys, WrittenKeys};
pub use self::schema::schema_text;
pub use self::services::bundles::{
    BundlesConfig, BundlesSection, BundlesTls, FILE_SERVICES, NodeReach,
};
pub use self::services::dlep::{DlepConfig, ModemLocation};
pub use self::services::dns::{DnsConfig, DnsSection, HubDnsSection, SecureDns};
pub use self::services::etcd::{EtcdConfig, EtcdLogin, EtcdTls};
pub use self::services::http::{
    HttpConfig, HttpSection, HubHttpConfig, HubHttpSection, SiteConfig,
};
pub use self::solo::{SideConfig, SoloConfig, StackConfig};
pub use self::terminal::{KnownHub, TerminalConfig};
pub use self::values::bounded::{Interval, Number, Size, Switch};
pub use self::values::hub_address::{HubAddress, HubAddressError, TcpAddress, TcpAddressError};
pub use self::values::source::{ConfigFile, KeySource};
pub use self::values::tls_files::TlsFiles;
pub use self::values::{AddressWithPort, ResolverAddress};
pub use pep::routes::PermittedTerminal;
