//! Section `[dns]` of a terminal and of a hub.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::Path;

use config::{DnsConfig, HubDnsConfig, SecureDns, TlsFiles};
use names::{CacheLimits, NamesConfig, PoolConfig};
use pep::traffic::{IpFamily, Prefix};
use units::{ByteCount, format_duration};

use super::raw::sections;
use super::raw::values::{AddressWithPort, DnsAnswer};
use super::{hop, number};
use crate::FileError;
use crate::place::{KeyContext, quoted};
use crate::text::{Text, Time};

const CACHE: ByteCount = ByteCount::new(16_000_000);
/// Bytes of the cache per entry. An answer with records takes at least this many.
const BYTES_PER_ENTRY: u64 = 500;
const STALE: Duration = Duration::from_secs(24 * 3600);
const LONGEST_STALE: Duration = Duration::from_secs(168 * 3600);
const POOL_TIME: Duration = Duration::from_secs(3600);
const POOL_TIMES: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(24 * 3600);
/// The range for benchmarks of RFC 2544, which is not routed globally (RFC 6890), and a unique local
/// prefix (RFC 4193) whose global identifier was drawn once for skyhop.
const POOL: [&str; 2] = ["198.18.0.0/15", "fd7a:5be2:91c4:53::/64"];
const PREFETCH: i64 = 1;
const QUESTIONS: i64 = 128;

/// Reads the section of a terminal; `intercepts` is true if connections of clients are intercepted.
pub(super) fn terminal(
    place: &KeyContext<'_>,
    raw: sections::Dns,
    intercepts: bool,
) -> Result<DnsConfig, FileError> {
    const ASKED: &str =
        "true, with a section [intercept], or `listen`, `tls` or `https`: clients cannot ask";
    let place = place.within("dns");
    let intercept = raw.intercept.unwrap_or(intercepts);
    let secure = secure(&place, &raw)?;
    let is_deaf = raw.listen.is_empty() && secure.is_none();
    if (intercept && !intercepts) || (!intercept && is_deaf) {
        return Err(place.wrong_value("intercept", intercept, ASKED));
    }
    let pool = pool(&place, &raw, intercepts)?;
    let listen: Vec<_> = raw.listen.into_iter().map(|address| address.0.0).collect();
    let clients: Vec<Prefix> = raw.clients.into_iter().map(|prefix| prefix.0).collect();
    let within_tls = secure.iter().flat_map(|secure| secure.tls.iter().chain(&secure.https));
    // Without a list of clients, only this machine may ask.
    if clients.is_empty()
        && listen.iter().chain(within_tls).any(|address| !address.ip().to_canonical().is_loopback())
    {
        return Err(place.missing_key("clients", "those who may ask, like [\"10.1.0.0/16\"]"));
    }
    let bytes = hop::size(&place, "cache", raw.cache)?.unwrap_or(CACHE);
    let entries = (bytes.get() / BYTES_PER_ENTRY) as usize;
    let prefetch = number(&place, "prefetch", raw.prefetch, 0..=1000, " per second")?;
    let stales = Duration::ZERO..=LONGEST_STALE;
    Ok(DnsConfig {
        names: NamesConfig {
            cache: CacheLimits { bytes, entries },
            stale: time(&place, "stale", raw.stale, STALE, stales, "0 s to 168 h")?,
            prefetch: prefetch.unwrap_or(PREFETCH) as u32,
            real: raw.real.into_iter().map(|domain| domain.0).collect(),
            pool,
        },
        intercept,
        bypass: raw.bypass.into_iter().map(|prefix| prefix.0).collect(),
        listen,
        secure,
        clients,
        servers: raw.servers.into_iter().map(|server| server.0.0).collect(),
    })
}

/// Reads the listeners for DNS over TLS and HTTPS.
fn secure(place: &KeyContext<'_>, raw: &sections::Dns) -> Result<Option<SecureDns>, FileError> {
    let all = |given: &[Text<AddressWithPort>]| {
        given.iter().map(|address| address.0.0).collect::<Vec<_>>()
    };
    let tls = all(&raw.tls);
    let https = all(&raw.https);
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

/// Reads the section of a hub.
pub(super) fn hub(
    place: &KeyContext<'_>,
    raw: sections::HubDns,
) -> Result<HubDnsConfig, FileError> {
    let place = place.within("dns");
    let questions = number(&place, "questions", raw.questions, 1..=512, "")?;
    Ok(HubDnsConfig {
        servers: raw.servers.into_iter().map(|server| server.0.0).collect(),
        questions: questions.unwrap_or(QUESTIONS) as usize,
    })
}

/// Reads the pool of addresses for instant answers.
fn pool(
    place: &KeyContext<'_>,
    raw: &sections::Dns,
    intercepts: bool,
) -> Result<Option<PoolConfig>, FileError> {
    let instant = raw.answer == Some(DnsAnswer::Instant);
    const REAL: &str =
        "\"real\", or a section [intercept]: connections to the pool are intercepted";
    place.check(!instant || intercepts, "answer", "\"instant\"", REAL)?;
    let usual = || POOL.iter().filter_map(|text| text.parse().ok()).collect();
    let given = |pool: &Vec<Text<Prefix>>| pool.iter().map(|prefix| prefix.0).collect();
    let prefixes: Vec<Prefix> = raw.pool.as_ref().map_or_else(usual, given);
    for (index, prefix) in prefixes.iter().enumerate() {
        let key = format!("pool.{index}");
        let (version, longest) = match prefix.address() {
            std::net::IpAddr::V4(_) => (IpFamily::V4, 24),
            std::net::IpAddr::V6(_) => (IpFamily::V6, 120),
        };
        let expected = "at least 256 addresses: /8 to /24, or /8 to /120 of IPv6";
        place.check((8..=longest).contains(&prefix.length()), &key, quoted(prefix), expected)?;
        let is_first =
            !prefixes[..index].iter().any(|earlier| IpFamily::of(earlier.address()) == version);
        place.check(is_first, &key, quoted(prefix), "one prefix of each IP version")?;
    }
    let has_v4 = prefixes.iter().any(|prefix| prefix.address().is_ipv4());
    place.check(has_v4, "pool", "none of IPv4", "a prefix of IPv4, which every client has")?;
    let expected = "1 min to 24 h";
    let time = time(place, "pool_time", raw.pool_time, POOL_TIME, POOL_TIMES, expected)?;
    Ok(instant.then_some(PoolConfig { prefixes, time }))
}

/// Reads a time within a range; `expected` describes the range.
fn time(
    place: &KeyContext<'_>,
    key: &str,
    time: Option<Text<Time>>,
    usual: Duration,
    range: RangeInclusive<Duration>,
    expected: &str,
) -> Result<Duration, FileError> {
    let time = time.map_or(usual, |time| time.0.0);
    place.check(range.contains(&time), key, quoted(format_duration(time)), expected).map(|()| time)
}
