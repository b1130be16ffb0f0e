//! Sections `[http]` of a terminal and of a hub: the HTTP cache and HTTP exchanges.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use http_cache::{CacheConfig, StoreLimits};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::HostName;
use units::ByteCount;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::values::bounded::{HOUR, Interval, Memory, Size, Switch};
use crate::values::tls_files::TlsFiles;
use crate::{AnswerTiming, InterceptConfig};

/// Declares the keys of a section: those of the cache, which terminals and hubs have in common, and its own.
/// Serde cannot both flatten structs and refuse unknown keys.
macro_rules! keys_of_http {
    ($(#[$attribute:meta])* pub struct $Name:ident { $($own:tt)* }) => {
        #[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$attribute])*
        pub struct $Name {
            /// The most memory of the cache. On a hub only with `cache`.
            #[schemars(extend("default" = "64 MB"))]
            pub(crate) memory: Option<Memory>,
            /// A directory that keeps the cache, too, so that it survives a restart; made if missing. One gateway uses it
            /// at a time. On a hub only with `cache`. Default: in memory only.
            #[schemars(extend("examples" = ["/var/cache/skyhop"]))]
            pub directory: Option<PathBuf>,
            /// With `directory`: the most bytes there.
            #[schemars(extend("default" = "2 GB"))]
            pub(crate) disk: Option<Memory>,
            /// The longest response that is stored. Each is held in memory until it is complete. On a hub only with
            /// `cache`.
            #[schemars(extend("default" = "16 MB"))]
            pub(crate) object: Option<Memory>,
            /// Time for which an expired response that does not say so itself may be used while its server cannot be reached; 0
            /// s for never. On a hub only with `cache`.
            #[schemars(extend("default" = "24 h"))]
            pub(crate) stale: Option<Interval<0, { 720 * HOUR }>>,
            /// A PEM file with the authorities that verify the servers of terminals' [sites](http.md#sites-by-tls).
            /// Default: the system's.
            pub authorities: Option<PathBuf>,
            $($own)*
        }

        impl $Name {
            /// Locates the files, and reads the keys of the cache.
            fn read(&mut self, place: &KeyContext<'_>) -> Result<CacheConfig, FileError> {
                for path in [&mut self.directory, &mut self.authorities].into_iter().flatten() {
                    *path = place.folder().locate(path);
                }
                let has_directory = self.directory.is_some();
                if self.disk.is_some() && !has_directory {
                    return Err(place.missing_key("directory", DIRECTORY));
                }
                let disk = self.disk.map_or(DISK, Size::get);
                let limits = StoreLimits {
                    memory: self.memory.map_or(MEMORY, Size::get),
                    // Without a directory, the cache is in memory only.
                    disk: if has_directory { disk } else { ByteCount::new(0) },
                    object: self.object.map_or(OBJECT, Size::get),
                };
                Ok(CacheConfig { limits, stale: self.stale.map_or(STALE, Interval::get) })
            }
        }
    };
}

keys_of_http! {
    /// Cache for the cleartext HTTP of a terminal's clients.
    #[schemars(rename = "Http")]
    pub struct HttpSection {
        /// Destination ports of cleartext HTTP, 1 to 16; not 443 or 53.
        #[schemars(extend("default" = [80]))]
        pub(crate) ports: Option<Vec<i64>>,
        /// Serve clients while the hub cannot be reached: from the cache, and otherwise from the server, without the
        /// hop and from the terminal's own address. If false, their connections pass unaccelerated.
        #[serde(default)]
        pub offline: Switch<true>,
        /// Sites whose owner has given a certificate, and whose TLS the terminal terminates; all other HTTPS passes
        /// untouched. See [Sites by TLS](http.md#sites-by-tls).
        #[serde(default)]
        pub(crate) site: Vec<SiteSection>,
        /// With `[[http.site]]`: 1 to 16 destination ports of TLS connections that may be for these sites; not 53,
        /// and none of `ports`.
        #[schemars(extend("default" = [443]))]
        pub(crate) tls_ports: Option<Vec<i64>>,
    }
}

keys_of_http! {
    /// Requests of a hub for its terminals' caches.
    #[schemars(rename = "HubHttp")]
    pub struct HubHttpSection {
        /// Keep what the hub fetches, and answer terminals from it: see [A cache at the
        /// hub](http.md#a-cache-at-the-hub). It spares the servers and the hub's way to them, not the hop, and takes
        /// memory.
        #[serde(default)]
        pub(crate) cache: bool,
    }
}

/// A site whose owner has given a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Site")]
pub(crate) struct SiteSection {
    /// The site's host names, 1 to 64, which no other site has.
    #[schemars(extend("examples" = [["mirror.example"]]))]
    pub(crate) hosts: Option<Vec<String>>,
    /// A PEM file with the site's certificate and its chain.
    pub(crate) certificate: Option<String>,
    /// A PEM file with the private key of `certificate`. Whoever has it is the site.
    pub(crate) key: Option<String>,
}

/// HTTP cache for a terminal's clients. Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// The keys as written, for what needs no other key; their paths are joined to the file's folder.
    pub keys: HttpSection,
    /// Destination ports of cleartext HTTP. Key `ports`, default 80.
    pub ports: Vec<u16>,
    /// Limits of the cache, and use of expired responses. Keys `memory`, `disk`, `object` and `stale`.
    pub cache: CacheConfig,
    /// Sites whose TLS the terminal terminates. Table `site`, default none.
    pub sites: Vec<SiteConfig>,
    /// Destination ports of TLS connections to these sites. Key `tls_ports`, default 443.
    pub tls_ports: Vec<u16>,
}

/// HTTP exchanges of a hub for its terminals. Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubHttpConfig {
    /// The keys as written, for what needs no other key; their paths are joined to the file's folder.
    pub keys: HubHttpSection,
    /// The hub's cache, as that of a terminal; `None` stores nothing. Key `cache`, default false.
    pub cache: Option<CacheConfig>,
}

/// A site for which its owner has provided a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteConfig {
    /// Its names, in lower case. Key `hosts`.
    pub hosts: Vec<String>,
    /// Its certificate. Keys `certificate` and `key`.
    pub files: TlsFiles,
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
/// What is expected as `directory`.
const DIRECTORY: &str = "where to store it, like \"/var/cache/skyhop\"";

/// Reads the section of a terminal, whose clients' connections are intercepted as in `intercept`.
pub(crate) fn terminal(
    place: &KeyContext<'_>,
    mut keys: HttpSection,
    intercept: Option<&InterceptConfig>,
) -> Result<HttpConfig, FileError> {
    const INTERCEPTED: &str = "a section [intercept]: the connections of clients are intercepted";
    const EARLY: &str = "\"early\": a request is read before there is a connection to its server";
    let missing = || place.missing_key("intercept", INTERCEPTED);
    let answer = intercept.ok_or_else(missing)?.answer;
    place.check(answer == AnswerTiming::Early, "intercept.answer", "\"deferred\"", EARLY)?;
    let place = place.within("http");
    let sites = sites(&place, keys.site.clone())?;
    let tls_ports = tls_ports(&place, keys.tls_ports.as_deref())?;
    let ports = ports(&place, keys.ports.as_deref())?;
    let twice = ports.iter().position(|port| !sites.is_empty() && tls_ports.contains(port));
    let key = format!("ports.{}", twice.unwrap_or_default());
    place.check(twice.is_none(), &key, "a port of `tls_ports`", "ports of cleartext HTTP")?;
    let cache = keys.read(&place)?;
    Ok(HttpConfig { keys, ports, cache, sites, tls_ports })
}

/// Reads the section of a hub.
pub(crate) fn hub(
    place: &KeyContext<'_>,
    mut keys: HubHttpSection,
) -> Result<HubHttpConfig, FileError> {
    let place = place.within("http");
    let authorities = keys.authorities.clone();
    if !keys.cache && keys != (HubHttpSection { authorities, ..Default::default() }) {
        return Err(place.missing_key("cache", "true: the other keys configure the cache"));
    }
    let cache = keys.read(&place)?;
    Ok(HubHttpConfig { cache: keys.cache.then_some(cache), keys })
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

fn tls_ports(place: &KeyContext<'_>, ports: Option<&[i64]>) -> Result<Vec<u16>, FileError> {
    const EXPECTED: &str = "1 to 16 ports, like [443]";
    let ports = ports.unwrap_or(&[TLS_PORT]);
    let good = (1..=MOST_PORTS).contains(&ports.len());
    place.check(good, "tls_ports", format!("{ports:?}"), EXPECTED)?;
    let mut all = Vec::new();
    for (index, &port) in ports.iter().enumerate() {
        let is_good = (1..=65_535).contains(&port) && port != 53;
        place.check(is_good, &format!("tls_ports.{index}"), port, "a port of TLS, 1 to 65535")?;
        all.extend(u16::try_from(port));
    }
    Ok(all)
}

fn ports(place: &KeyContext<'_>, ports: Option<&[i64]>) -> Result<Vec<u16>, FileError> {
    const EXPECTED: &str = "1 to 16 ports, like [80, 8080]";
    let ports = ports.unwrap_or(&[PORT]);
    place.check(
        (1..=MOST_PORTS).contains(&ports.len()),
        "ports",
        format!("{ports:?}"),
        EXPECTED,
    )?;
    let mut good = Vec::new();
    for (index, &port) in ports.iter().enumerate() {
        let key = format!("ports.{index}");
        // Port 443 carries TLS, and port 53 belongs to the resolver.
        let is_good = (1..=65_535).contains(&port) && port != 443 && port != 53;
        place.check(is_good, &key, port, "a port of cleartext HTTP, 1 to 65535")?;
        good.extend(u16::try_from(port));
    }
    Ok(good)
}
