//! Sections `[dns]` of a terminal and of a hub.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use names::{CacheLimits, Domain, NamesConfig, PoolConfig};
use pep::traffic::{IpFamily, Prefix};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::TextList;
use crate::intercept::serves;
use crate::values::bounded::{HOUR, Interval, MINUTE, Memory, Number};
use crate::values::tls_files::TlsFiles;
use crate::values::{AddressWithPort, DnsAnswer, ResolverAddress};

/// Resolution of the names of a terminal's clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Dns")]
pub struct DnsSection {
    /// Answer queries of intercepted clients to any resolver. Default: true with `[intercept]`.
    pub(crate) intercept: Option<bool>,
    /// Resolvers (prefixes) whose queries are not intercepted.
    #[serde(default)]
    pub bypass: TextList<Prefix>,
    /// Addresses, UDP and TCP, at which clients may ask, such as `["10.1.0.1:53"]`.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.1:53"]]))]
    pub listen: TextList<SocketAddr, AddressWithPort>,
    /// Addresses at which clients may ask [over TLS](names.md#within-tls) (DoT), such as `["10.1.0.1:853"]`.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.1:853"]]))]
    pub(crate) tls: TextList<SocketAddr, AddressWithPort>,
    /// Addresses at which clients may ask [over HTTPS](names.md#within-tls) (DoH), with the path `/dns-query`.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.1:443"]]))]
    pub(crate) https: TextList<SocketAddr, AddressWithPort>,
    /// With `tls` or `https`: a PEM file with the certificate, and its chain, for the name or address by which
    /// clients know this machine.
    #[schemars(extend("examples" = ["dns.pem"]))]
    pub(crate) certificate: Option<String>,
    /// With `tls` or `https`: a PEM file with the private key of `certificate`.
    #[schemars(extend("examples" = ["dns.key"]))]
    pub(crate) key: Option<String>,
    /// Clients (prefixes) that may ask at `listen`, `tls` and `https`. Required if one of these is not a loopback
    /// address. Default: this machine.
    #[serde(default)]
    pub(crate) clients: TextList<Prefix>,
    /// On a terminal: resolvers for queries at `listen`, `tls` and `https` while the hub cannot be reached, as
    /// addresses, with a port unless it is 53. Default: those of `/etc/resolv.conf`.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.53"]]))]
    pub servers: TextList<SocketAddr, ResolverAddress>,
    /// Keep browsers and systems that look for an encrypted resolver by themselves with this one, unless their user
    /// has chosen another. It costs [privacy](names.md#browsers-with-a-resolver-of-their-own).
    #[serde(default)]
    pub(crate) canary: bool,
    /// The answer to a new name: its `"real"` address, after a round trip, or `"instant"`, at once an address of
    /// `pool`, to which [only TCP works](names.md#what-it-breaks). Instant needs `[intercept]`.
    #[serde(default)]
    pub(crate) answer: DnsAnswer,
    /// With `"instant"`: domains whose names get real answers.
    #[serde(default)]
    #[schemars(extend("examples" = [["corp.example"]]))]
    pub(crate) real: TextList<Domain>,
    /// With `"instant"`: an IPv4 prefix and optionally an IPv6 prefix, each of 256 addresses to a /8, whose
    /// addresses stand for names. They must not be in use elsewhere, and clients must route them to the terminal.
    #[schemars(extend("default" = ["198.18.0.0/15", "fd7a:5be2:91c4:53::/64"]))]
    pub(crate) pool: Option<TextList<Prefix>>,
    /// With `"instant"`: how long a name keeps its address after the last use. At most 32,768 names have one at a
    /// time, at most a quarter of the pool for one client.
    #[serde(default)]
    pub(crate) pool_time: Interval<{ MINUTE }, { 24 * HOUR }, { HOUR }>,
    /// The most memory of the cache of answers.
    #[serde(default)]
    pub(crate) cache: Memory<16_000_000>,
    /// Time for which an expired answer may be used while there is no other; 0 s for never.
    #[serde(default)]
    pub(crate) stale: Interval<0, { 168 * HOUR }, { 24 * HOUR }>,
    /// The most answers per second that are fetched again before they expire, if they are in use; 0 for none.
    /// Each costs a query and an answer on the hop.
    #[serde(default)]
    pub(crate) prefetch: Number<0, 1000, 1>,
}

/// Resolution of names that terminals ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HubDns")]
pub struct HubDnsSection {
    /// On a hub: resolvers to ask, then also for the names of clients' connections, as addresses, with a port
    /// unless it is 53. Default: those of `/etc/resolv.conf`.
    #[serde(default)]
    #[schemars(extend("examples" = [["192.0.2.53"]]))]
    pub servers: TextList<SocketAddr, ResolverAddress>,
    /// Queries of one terminal that are resolved at the same time; three quarters of them for one client. As many
    /// of each client wait.
    #[serde(default)]
    pub questions: Number<1, 512, 128>,
}

/// Name resolution for a terminal's clients. Section `[dns]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsConfig {
    /// The keys as written, for what needs no other key.
    pub keys: DnsSection,
    /// The cache and the pool of addresses.
    pub names: NamesConfig,
    /// Answers clients' questions to any resolver, if connections are intercepted. Key `intercept`, default
    /// true with section `[intercept]`.
    pub intercept: bool,
    /// Listeners over TLS. Keys `tls`, `https`, `certificate`, `key`; default none.
    pub secure: Option<SecureDns>,
}

/// DNS listeners over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureDns {
    /// Addresses for DNS over TLS (RFC 7858). Key `tls`.
    pub tls: Vec<SocketAddr>,
    /// Addresses for DNS over HTTPS (RFC 8484). Key `https`.
    pub https: Vec<SocketAddr>,
    /// The certificate for the names or addresses by which clients know this machine.
    pub files: TlsFiles,
}

impl DnsConfig {
    /// Returns `true` if a client may ask at an address of this machine.
    pub fn serves(&self, client: IpAddr) -> bool {
        serves(&self.keys.clients, client)
    }
}

/// Bytes of the cache per entry. An answer with records takes at least this many.
const BYTES_PER_ENTRY: u64 = 500;
/// The range for benchmarks of RFC 2544, which is not routed globally (RFC 6890), and a unique local
/// prefix (RFC 4193) whose global identifier was drawn once for skyhop.
const POOL: [&str; 2] = ["198.18.0.0/15", "fd7a:5be2:91c4:53::/64"];

/// Reads the section of a terminal; `intercepts` is true if connections of clients are intercepted.
pub(crate) fn terminal(
    place: &KeyContext<'_>,
    keys: DnsSection,
    intercepts: bool,
) -> Result<DnsConfig, FileError> {
    const ASKED: &str =
        "true, with a section [intercept], or `listen`, `tls` or `https`: clients cannot ask";
    let place = place.within("dns");
    let intercept = keys.intercept.unwrap_or(intercepts);
    let secure = secure(&place, &keys)?;
    let is_deaf = keys.listen.is_empty() && secure.is_none();
    if (intercept && !intercepts) || (!intercept && is_deaf) {
        return Err(place.wrong_value("intercept", intercept, ASKED));
    }
    let pool = pool(&place, &keys, intercepts)?;
    // Without a list of clients, only this machine may ask.
    let mut asked = keys.listen.iter().chain(&*keys.tls).chain(&*keys.https);
    if keys.clients.is_empty() && asked.any(|at| !at.ip().to_canonical().is_loopback()) {
        return Err(place.missing_key("clients", "those who may ask, like [\"10.1.0.0/16\"]"));
    }
    let bytes = keys.cache.get();
    let entries = (bytes.get() / BYTES_PER_ENTRY) as usize;
    let names = NamesConfig {
        cache: CacheLimits { bytes, entries },
        stale: keys.stale.get(),
        prefetch: keys.prefetch.get(),
        real: keys.real.to_vec(),
        pool,
        canary: keys.canary,
        hides_http_3: false,
    };
    Ok(DnsConfig { keys, names, intercept, secure })
}

/// Reads the listeners for DNS over TLS and HTTPS.
fn secure(place: &KeyContext<'_>, raw: &DnsSection) -> Result<Option<SecureDns>, FileError> {
    let [tls, https] = [raw.tls.to_vec(), raw.https.to_vec()];
    let file = |path: &String| place.folder().locate(Path::new(path));
    let files = [("certificate", &raw.certificate), ("key", &raw.key)];
    if tls.is_empty() && https.is_empty() {
        return files
            .into_iter()
            .try_for_each(|(key, given)| {
                let expected = "nothing without `tls` or `https`";
                let value = given.as_deref().unwrap_or_default();
                place.check(given.is_none(), key, quoted(value), expected)
            })
            .map(|()| None);
    }
    let [certificate, key] = files.map(|(key, given)| {
        given.as_ref().map(file).ok_or_else(|| place.missing_key(key, "a PEM file"))
    });
    let files = TlsFiles { certificate: certificate?, key: key? };
    Ok(Some(SecureDns { tls, https, files }))
}

/// Reads the pool of addresses for instant answers.
fn pool(
    place: &KeyContext<'_>,
    raw: &DnsSection,
    intercepts: bool,
) -> Result<Option<PoolConfig>, FileError> {
    let instant = raw.answer == DnsAnswer::Instant;
    const REAL: &str =
        "\"real\", or a section [intercept]: connections to the pool are intercepted";
    place.check(!instant || intercepts, "answer", "\"instant\"", REAL)?;
    let usual = || POOL.iter().filter_map(|text| text.parse().ok()).collect();
    let prefixes: Vec<Prefix> = raw.pool.as_ref().map_or_else(usual, |pool| pool.to_vec());
    for (index, prefix) in prefixes.iter().enumerate() {
        let key = format!("pool.{index}");
        let (version, longest) = match prefix.address() {
            IpAddr::V4(_) => (IpFamily::V4, 24),
            IpAddr::V6(_) => (IpFamily::V6, 120),
        };
        let expected = "at least 256 addresses: /8 to /24, or /8 to /120 of IPv6";
        place.check((8..=longest).contains(&prefix.length()), &key, quoted(prefix), expected)?;
        let is_first =
            !prefixes[..index].iter().any(|earlier| IpFamily::of(earlier.address()) == version);
        place.check(is_first, &key, quoted(prefix), "one prefix of each IP version")?;
    }
    let has_v4 = prefixes.iter().any(|prefix| prefix.address().is_ipv4());
    place.check(has_v4, "pool", "none of IPv4", "a prefix of IPv4, which every client has")?;
    Ok(instant.then_some(PoolConfig { prefixes, time: raw.pool_time.get() }))
}
