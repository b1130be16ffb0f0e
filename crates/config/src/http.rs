//! How cleartext HTTP is handled.

use std::path::PathBuf;

use http_cache::CacheConfig;

use super::tls_files::TlsFiles;

/// Cleartext HTTP of a terminal's clients. Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Ports whose connections carry it. Key `ports`, default 80.
    pub ports: Vec<u16>,
    /// What is stored, and for how long it may be used. Keys `memory`, `disk`, `object` and `stale`.
    pub cache: CacheConfig,
    /// Where it is stored, besides memory; `None` stores nothing on disk. Key `directory`, default none.
    pub directory: Option<PathBuf>,
    /// Sites whose TLS is ended here. Table `site`, default none.
    pub sites: Vec<SiteConfig>,
    /// Ports whose connections may be for these sites. Key `tls_ports`, default 443.
    pub tls_ports: Vec<u16>,
    /// PEM file with the authorities that the sites' servers are verified by; `None` for the system's. Key
    /// `authorities`.
    pub authorities: Option<PathBuf>,
    /// Whether clients are served while the hub cannot be reached: from the cache, or without the hop.
    /// Key `offline`, default true.
    pub offline: bool,
}

/// How a hub has HTTP exchanges for its terminals. Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubHttpConfig {
    /// What is stored; `None` stores nothing. Key `cache`, default false.
    pub cache: Option<HubCacheConfig>,
    /// PEM file with the authorities that servers are verified by, where terminals end the TLS of sites;
    /// `None` for the system's. Key `authorities`.
    pub authorities: Option<PathBuf>,
}

/// A site whose owner has given a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteConfig {
    /// Its names, in lower case. Key `hosts`.
    pub hosts: Vec<String>,
    /// Keys `certificate` and `key`.
    pub files: TlsFiles,
}

/// A hub's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubCacheConfig {
    /// What is stored, and for how long it may be used. Keys `memory`, `disk`, `object` and `stale`.
    pub cache: CacheConfig,
    /// Where it is stored, besides memory. Key `directory`, default none.
    pub directory: Option<PathBuf>,
}

impl HttpConfig {
    /// Whether connections to this port are handled.
    pub fn takes(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }
}
