//! Configuration of the HTTP cache and of HTTP exchanges.

use std::path::PathBuf;

use http_cache::CacheConfig;

use super::tls_files::TlsFiles;

/// HTTP cache for a terminal's clients. Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Destination ports of cleartext HTTP. Key `ports`, default 80.
    pub ports: Vec<u16>,
    /// Limits of the cache, and use of expired responses. Keys `memory`, `disk`, `object` and `stale`.
    pub cache: CacheConfig,
    /// Directory of the cache; `None` keeps it in memory only. Key `directory`, default none.
    pub directory: Option<PathBuf>,
    /// Sites whose TLS the terminal terminates. Table `site`, default none.
    pub sites: Vec<SiteConfig>,
    /// Destination ports of TLS connections to these sites. Key `tls_ports`, default 443.
    pub tls_ports: Vec<u16>,
    /// PEM file with the authorities that verify the sites' servers; `None` for the system's. Key
    /// `authorities`.
    pub authorities: Option<PathBuf>,
    /// Serves clients while the hub cannot be reached, from the cache or without the hop. Key `offline`,
    /// default true.
    pub offline: bool,
}

/// HTTP exchanges of a hub for its terminals. Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubHttpConfig {
    /// The hub's cache; `None` stores nothing. Key `cache`, default false.
    pub cache: Option<HubCacheConfig>,
    /// PEM file with the authorities that verify servers, where terminals terminate the TLS of sites;
    /// `None` for the system's. Key `authorities`.
    pub authorities: Option<PathBuf>,
}

/// A site for which its owner has provided a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteConfig {
    /// Its names, in lower case. Key `hosts`.
    pub hosts: Vec<String>,
    /// Its certificate. Keys `certificate` and `key`.
    pub files: TlsFiles,
}

/// A hub's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubCacheConfig {
    /// Limits of the cache, and use of expired responses. Keys `memory`, `disk`, `object` and `stale`.
    pub cache: CacheConfig,
    /// Directory of the cache; `None` keeps it in memory only. Key `directory`, default none.
    pub directory: Option<PathBuf>,
}

impl HttpConfig {
    /// Returns `true` if connections to this port carry cleartext HTTP.
    pub fn takes(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }
}
