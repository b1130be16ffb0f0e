//! Sections `[http]` of a terminal and of a hub: the HTTP cache and HTTP exchanges.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use http_cache::{CacheConfig, StoreLimits};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::HostName;
use units::{ByteCount, format_duration};

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::{Text, Time};
use crate::tls_files::TlsFiles;
use crate::{AnswerTiming, InterceptConfig, hop};

/// Cache for the cleartext HTTP of a terminal's clients.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Http")]
pub(crate) struct HttpSection {
    /// Ports of connections that carry it.
    #[schemars(extend("default" = [80]))]
    pub(crate) ports: Option<Vec<i64>>,
    /// The most memory of the cache.
    #[schemars(extend("default" = "64 MB"))]
    pub(crate) memory: Option<Text<ByteCount>>,
    /// A directory in which the cache is kept, too; without it, in memory only.
    #[schemars(extend("examples" = ["/var/cache/skyhop"]))]
    pub(crate) directory: Option<String>,
    /// With `directory`: the most bytes there.
    #[schemars(extend("default" = "2 GB"))]
    pub(crate) disk: Option<Text<ByteCount>>,
    /// The longest response that is stored.
    #[schemars(extend("default" = "16 MB"))]
    pub(crate) object: Option<Text<ByteCount>>,
    /// Time for which an expired response may be used while its server cannot be reached, at most 720 h.
    #[schemars(extend("default" = "24 h"))]
    pub(crate) stale: Option<Text<Time>>,
    /// Serve clients while the hub cannot be reached: from the cache, or without the hop.
    #[schemars(extend("default" = true))]
    pub(crate) offline: Option<bool>,
    /// Sites whose TLS is ended here.
    #[serde(default)]
    pub(crate) site: Vec<SiteSection>,
    /// Ports of connections that may be for these sites.
    #[schemars(extend("default" = [443]))]
    pub(crate) tls_ports: Option<Vec<i64>>,
    /// PEM file with the authorities that the sites' servers are verified by; by default the system's.
    pub(crate) authorities: Option<String>,
}

/// A site whose owner has given a certificate.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Site")]
pub(crate) struct SiteSection {
    /// Its names.
    #[schemars(extend("examples" = [["mirror.example"]]))]
    pub(crate) hosts: Option<Vec<String>>,
    /// PEM file with its certificate, and those that lead to its authority.
    pub(crate) certificate: Option<String>,
    /// PEM file with the private key.
    pub(crate) key: Option<String>,
}

/// Requests of a hub for its terminals' caches.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HubHttp")]
pub(crate) struct HubHttpSection {
    /// Keep responses, and answer terminals' requests from them.
    #[schemars(extend("default" = false))]
    pub(crate) cache: Option<bool>,
    /// PEM file with the authorities that servers of terminals' sites are verified by; by default the system's.
    pub(crate) authorities: Option<String>,
    /// With `cache`: the most memory.
    #[schemars(extend("default" = "64 MB"))]
    pub(crate) memory: Option<Text<ByteCount>>,
    /// With `cache`: a directory in which it is kept, too; without it, in memory only.
    #[schemars(extend("examples" = ["/var/cache/skyhop"]))]
    pub(crate) directory: Option<String>,
    /// With `directory`: the most bytes there.
    #[schemars(extend("default" = "2 GB"))]
    pub(crate) disk: Option<Text<ByteCount>>,
    /// With `cache`: the longest response that is stored.
    #[schemars(extend("default" = "16 MB"))]
    pub(crate) object: Option<Text<ByteCount>>,
    /// With `cache`: time for which an expired response may be used while its server cannot be reached.
    #[schemars(extend("default" = "24 h"))]
    pub(crate) stale: Option<Text<Time>>,
}

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

const PORT: i64 = 80;
const TLS_PORT: i64 = 443;
const MOST_PORTS: usize = 16;
/// Maximum number of host names of a site.
const MOST_HOSTS: usize = 64;
const MEMORY: ByteCount = ByteCount::new(64_000_000);
const DISK: ByteCount = ByteCount::new(2_000_000_000);
const OBJECT: ByteCount = ByteCount::new(16_000_000);
const STALE: Duration = Duration::from_secs(24 * 3600);
const STALE_TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(720 * 3600);

/// Reads the section of a terminal, whose clients' connections are intercepted as in `intercept`.
pub(crate) fn terminal(
    place: &KeyContext<'_>,
    raw: HttpSection,
    intercept: Option<&InterceptConfig>,
) -> Result<HttpConfig, FileError> {
    const INTERCEPTED: &str = "a section [intercept]: the connections of clients are intercepted";
    const EARLY: &str = "\"early\": a request is read before there is a connection to its server";
    let missing = || place.missing_key("intercept", INTERCEPTED);
    let answer = intercept.ok_or_else(missing)?.answer;
    place.check(answer == AnswerTiming::Early, "intercept.answer", "\"deferred\"", EARLY)?;
    let place = place.within("http");
    let sites = sites(&place, raw.site)?;
    let tls_ports = tls_ports(&place, raw.tls_ports)?;
    let authorities = raw.authorities.map(|path| place.folder().locate(Path::new(&path)));
    let ports = ports(&place, raw.ports)?;
    let twice = ports.iter().position(|port| !sites.is_empty() && tls_ports.contains(port));
    let key = format!("ports.{}", twice.unwrap_or_default());
    place.check(twice.is_none(), &key, "a port of `tls_ports`", "ports of cleartext HTTP")?;
    let kept = read_cache(
        &place,
        CacheKeys {
            memory: raw.memory,
            directory: raw.directory,
            disk: raw.disk,
            object: raw.object,
            stale: raw.stale,
        },
    )?;
    let offline = raw.offline.unwrap_or(true);
    Ok(HttpConfig {
        ports,
        cache: kept.cache,
        directory: kept.directory,
        sites,
        tls_ports,
        authorities,
        offline,
    })
}

/// Keys of the cache, which terminals and hubs have in common.
struct CacheKeys {
    memory: Option<Text<ByteCount>>,
    directory: Option<String>,
    disk: Option<Text<ByteCount>>,
    object: Option<Text<ByteCount>>,
    stale: Option<Text<Time>>,
}

impl CacheKeys {
    fn is_given(&self) -> bool {
        self.memory.is_some()
            || self.directory.is_some()
            || self.disk.is_some()
            || self.object.is_some()
            || self.stale.is_some()
    }
}

fn read_cache(place: &KeyContext<'_>, raw: CacheKeys) -> Result<HubCacheConfig, FileError> {
    let directory = raw.directory.map(|path| place.folder().locate(Path::new(&path)));
    let disk = hop::size(place, "disk", raw.disk)?;
    if disk.is_some() && directory.is_none() {
        return Err(place.missing_key("directory", "where to store it, like \"/var/cache/skyhop\""));
    }
    // Without a directory, the cache is in memory only.
    let disk = if directory.is_some() { disk.unwrap_or(DISK) } else { ByteCount::new(0) };
    let stale = raw.stale.map_or(STALE, |time| time.0.0);
    let stale_is_good = STALE_TIMES.contains(&stale);
    place.check(stale_is_good, "stale", quoted(format_duration(stale)), "0 s to 720 h")?;
    let limits = StoreLimits {
        memory: hop::size(place, "memory", raw.memory)?.unwrap_or(MEMORY),
        disk,
        object: hop::size(place, "object", raw.object)?.unwrap_or(OBJECT),
    };
    Ok(HubCacheConfig { cache: CacheConfig { limits, stale }, directory })
}

/// Reads the section of a hub.
pub(crate) fn hub(place: &KeyContext<'_>, raw: HubHttpSection) -> Result<HubHttpConfig, FileError> {
    let place = place.within("http");
    let given = CacheKeys {
        memory: raw.memory,
        directory: raw.directory,
        disk: raw.disk,
        object: raw.object,
        stale: raw.stale,
    };
    let cached = raw.cache.unwrap_or(false);
    if !cached && given.is_given() {
        return Err(place.missing_key("cache", "true: the other keys configure the cache"));
    }
    let cache = read_cache(&place, given)?;
    let authorities = raw.authorities.map(|path| place.folder().locate(Path::new(&path)));
    Ok(HubHttpConfig { authorities, cache: cached.then_some(cache) })
}

/// Reads the sites whose TLS is terminated here.
fn sites(place: &KeyContext<'_>, raw: Vec<SiteSection>) -> Result<Vec<SiteConfig>, FileError> {
    const HOSTS: &str = "1 to 64 names of hosts, like [\"mirror.example\"]";
    let mut known = BTreeSet::new();
    let mut sites = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within(format!("site.{index}"));
        let file = |path: String| place.folder().locate(Path::new(&path));
        let hosts = raw.hosts.ok_or_else(|| place.missing_key("hosts", HOSTS))?;
        place.check(
            (1..=MOST_HOSTS).contains(&hosts.len()),
            "hosts",
            format!("{hosts:?}"),
            HOSTS,
        )?;
        for (index, host) in hosts.iter().enumerate() {
            let key = format!("hosts.{index}");
            let is_name = HostName::new(host).is_some() && host.parse::<IpAddr>().is_err();
            place.check(is_name, &key, quoted(host), HOSTS)?;
            // Host names are case-insensitive (RFC 4343).
            let is_new = known.insert(host.to_ascii_lowercase());
            place.check(is_new, &key, quoted(host), "a name that no other site has")?;
        }
        let missing = |key, what| place.missing_key(key, what);
        let certificate = raw.certificate.ok_or_else(|| missing("certificate", "a PEM file"))?;
        let key = raw.key.ok_or_else(|| missing("key", "the PEM file of the private key"))?;
        let files = TlsFiles { certificate: file(certificate), key: file(key) };
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        sites.push(SiteConfig { hosts, files });
    }
    Ok(sites)
}

fn tls_ports(place: &KeyContext<'_>, ports: Option<Vec<i64>>) -> Result<Vec<u16>, FileError> {
    const EXPECTED: &str = "1 to 16 ports, like [443]";
    let ports = ports.unwrap_or_else(|| vec![TLS_PORT]);
    let good = (1..=MOST_PORTS).contains(&ports.len());
    place.check(good, "tls_ports", format!("{ports:?}"), EXPECTED)?;
    let mut all = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let is_good = (1..=65_535).contains(&port) && port != 53;
        place.check(is_good, &format!("tls_ports.{index}"), port, "a port of TLS, 1 to 65535")?;
        all.extend(u16::try_from(port));
    }
    Ok(all)
}

fn ports(place: &KeyContext<'_>, ports: Option<Vec<i64>>) -> Result<Vec<u16>, FileError> {
    const EXPECTED: &str = "1 to 16 ports, like [80, 8080]";
    let ports = ports.unwrap_or_else(|| vec![PORT]);
    place.check(
        (1..=MOST_PORTS).contains(&ports.len()),
        "ports",
        format!("{ports:?}"),
        EXPECTED,
    )?;
    let mut good = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let key = format!("ports.{index}");
        // Port 443 carries TLS, and port 53 belongs to the resolver.
        let is_good = (1..=65_535).contains(&port) && port != 443 && port != 53;
        place.check(is_good, &key, port, "a port of cleartext HTTP, 1 to 65535")?;
        good.extend(u16::try_from(port));
    }
    Ok(good)
}
