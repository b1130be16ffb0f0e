//! The configuration of a gateway: parses its TOML into types in which every value is valid.
//!
//! A section of the file is a module: its table of keys (a struct `…Section`, from which parser, JSON schema,
//! reference page and restart rule follow), the typed configuration, and the checks that concern several keys.
//! The top levels of the files are `TerminalKeys`, `HubKeys` and `SoloKeys`. No clock; the only I/O is reading the
//! files that presets and scenarios name ([`file::folder`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod bounded;
mod bundles;
mod classes;
mod dlep;
mod dns;
mod egress;
mod etcd;
pub mod file;
mod gateway_file;
mod guarantees;
mod hop;
mod http;
mod hub;
mod hub_address;
mod identity;
mod intercept;
mod interface_name;
mod keys;
mod limits;
mod links;
mod log;
mod operation;
mod permits;
mod policies;
mod rate;
mod restart_keys;
mod schema;
mod shared;
mod shared_name;
mod solo;
mod source;
mod terminal;
mod terminal_list;
mod terminal_section;
#[cfg(test)]
mod tests;
mod tls_files;
mod tunnel;
mod values;

pub use self::bounded::{Interval, Number, Size, Switch};
pub use self::bundles::{BundlesConfig, BundlesSection, BundlesTls, FILE_SERVICES, NodeReach};
pub use self::dlep::{DlepConfig, ModemLocation};
pub use self::dns::{DnsConfig, DnsSection, HubDnsConfig, HubDnsSection, SecureDns};
pub use self::etcd::{EtcdConfig, EtcdLogin, EtcdTls};
pub use self::file::{FileError, FileKind, FilePosition};
pub use self::http::{
    HttpConfig, HttpSection, HubCacheConfig, HubHttpConfig, HubHttpSection, SiteConfig,
};
pub use self::hub::{HubConfig, aggregates, link_rates, memory_limits, packet_addresses, quotas};
pub use self::hub_address::{HubAddress, HubAddressError, TcpAddress, TcpAddressError};
pub use self::intercept::{
    AnswerTiming, InterceptConfig, NameResolution, ProxyConfig, TunnelConfig, TunnelDevice,
};
pub use self::links::LinkConfig;
pub use self::log::{LogFilter, LogFilterError};
pub use self::operation::{ControlPath, MetricsConfig, OperationConfig};
pub use self::permits::PermittedTerminals;
pub use self::restart_keys::{RestartKeys, WrittenKeys};
pub use self::schema::schema_text;
pub use self::solo::{SideConfig, SoloConfig, StackConfig};
pub use self::source::{ConfigFile, KeySource};
pub use self::terminal::{KnownHub, TerminalConfig};
pub use self::terminal_list::PermitDefaults;
pub use self::tls_files::TlsFiles;
pub use pep::routes::PermittedTerminal;
