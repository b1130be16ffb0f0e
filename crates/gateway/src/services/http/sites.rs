//! Sites whose owners have given a certificate. The terminal terminates their clients' TLS, and
//! connects to the server by TLS of its own or has the hub do so. Both authenticate the server.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{HttpConfig, SiteConfig};
use pep::work::cost;
use slacp::ResetReason;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::{Accepted, Acceptor};
use tokio_rustls::{TlsAcceptor, TlsConnector, rustls};

use super::secure::{TlsConnection, TlsTransport};
use crate::network::tls;
use crate::operate::log::cause_limiter::CauseLimiter;
use crate::process::clock;
use crate::relay::dial;

/// Size limit of a ClientHello in bytes: real ones take a few thousand at most.
const MAX_HELLO: usize = 16 << 10;
/// Time limit of a TLS handshake.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The only ALPN protocol that is offered.
const PROTOCOL: &[u8] = b"http/1.1";

pub(super) struct SiteTable {
    ports: Vec<u16>,
    by_host: BTreeMap<String, TlsAcceptor>,
    /// Authenticates the sites' servers; [`None`] without sites.
    connector: Option<TlsConnector>,
    distrusted: Arc<Mutex<CauseLimiter>>,
}

/// The site that a ClientHello names.
#[derive(Clone)]
pub(super) struct TlsSite {
    /// Host name of the site, in lower case.
    pub(super) host: String,
    pub(super) acceptor: TlsAcceptor,
    pub(super) server: OriginServer,
}

/// A server that must authenticate itself by TLS.
#[derive(Clone)]
pub(super) struct OriginServer {
    pub(super) name: ServerName<'static>,
    pub(super) connector: TlsConnector,
    /// Time of the last log message about each untrusted server.
    pub(super) distrusted: Arc<Mutex<CauseLimiter>>,
}

/// Reader of a ClientHello that arrives in any number of pieces and records. It reads no byte
/// twice, however small the pieces are.
#[derive(Default)]
pub(super) struct HelloReader {
    acceptor: Acceptor,
    length: usize,
}

impl HelloReader {
    /// Looks at each byte of `first` once, and returns the ClientHello when it is complete.
    fn read(&mut self, first: &[u8]) -> io::Result<Option<Accepted>> {
        let mut rest = &first[self.length..];
        // For the test that each byte is read once.
        cost::count(rest.len());
        self.length = first.len();
        loop {
            let accepted = self.acceptor.accept().map_err(|(error, _)| io::Error::other(error))?;
            if accepted.is_some() || rest.is_empty() {
                return Ok(accepted);
            }
            self.acceptor.read_tls(&mut rest)?;
        }
    }
}

/// Classification of a connection's first bytes.
pub(super) enum HelloOutcome {
    /// More bytes are needed to tell.
    Incomplete,
    Site(Box<TlsSite>),
    /// Another site, another protocol within TLS, or no TLS.
    Other,
}

impl SiteTable {
    /// # Errors
    /// A message that names the file.
    pub(super) fn load(config: &HttpConfig) -> Result<Self, String> {
        let mut by_host = BTreeMap::new();
        for SiteConfig { hosts, files } in &config.sites {
            let acceptor = tls::acceptor_of(files, &[PROTOCOL])?;
            by_host.extend(hosts.iter().map(|host| (host.clone(), acceptor.clone())));
        }
        let is_used = !by_host.is_empty();
        let connector =
            is_used.then(|| connector(config.keys.authorities.as_deref())).transpose()?;
        Ok(Self { ports: config.tls_ports.clone(), by_host, connector, distrusted: Arc::default() })
    }

    pub(super) fn take(&self, port: u16) -> bool {
        !self.by_host.is_empty() && self.ports.contains(&port)
    }

    /// Classifies a connection by all its bytes so far; `hello` carries the progress from call to
    /// call.
    pub(super) fn classify(&self, hello: &mut HelloReader, first: &[u8]) -> HelloOutcome {
        let accepted = match hello.read(first) {
            Ok(Some(accepted)) => accepted,
            Ok(None) if first.len() < MAX_HELLO => return HelloOutcome::Incomplete,
            Ok(None) | Err(_) => return HelloOutcome::Other,
        };
        let hello = accepted.client_hello();
        // Names are compared without regard to case (RFC 4343); the configured ones are in lower
        // case.
        let host = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        // A client that offers other protocols only gets its connection relayed to the server.
        let speaks = hello.alpn().is_none_or(|mut offered| offered.any(|name| name == PROTOCOL));
        self.site(host)
            .filter(|_| speaks)
            .map_or(HelloOutcome::Other, |site| HelloOutcome::Site(Box::new(site)))
    }

    fn site(&self, host: String) -> Option<TlsSite> {
        let acceptor = self.by_host.get(&host)?.clone();
        let name = ServerName::try_from(host.clone()).ok()?;
        let connector = self.connector.clone()?;
        let distrusted = self.distrusted.clone();
        Some(TlsSite { host, acceptor, server: OriginServer { name, connector, distrusted } })
    }
}

/// A connector that authenticates servers by the authorities in a file, or by the system's.
///
/// # Errors
/// A message if the file, or the system's store, cannot be used.
pub(super) fn connector(authorities: Option<&Path>) -> Result<TlsConnector, String> {
    tls::verifying_connector(authorities, None, &[PROTOCOL])
}

impl OriginServer {
    /// Connects TLS to this server over a transport.
    pub(super) async fn connect(&self, under: TlsTransport) -> Result<TlsConnection, ResetReason> {
        let connected = TlsConnection::connect(&self.connector, self.name.clone(), under);
        match timeout(HANDSHAKE_TIMEOUT, connected).await {
            Ok(Ok(secure)) => Ok(secure),
            Ok(Err(error)) => {
                self.log_failure(&error);
                Err(dial::reset_reason(&error))
            }
            Err(_) => Err(ResetReason::TimedOut),
        }
    }

    /// Logs a failed handshake, at level warn if the server is untrusted: then none of its clients'
    /// requests succeed.
    fn log_failure(&self, error: &io::Error) {
        let name = self.name.to_str();
        let mut distrusted = self.distrusted.lock().expect("nobody panics while holding the list");
        if is_distrust(error) && distrusted.is_due(clock::now(), &name) {
            tracing::warn!(
                "cannot verify the certificate of {name}, its clients' requests fail: {error}"
            );
        } else {
            tracing::debug!("TLS with {name} failed: {error}");
        }
    }
}

/// Returns `true` if the handshake failed because of the server's certificate.
fn is_distrust(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use config::TlsFiles;
    use http_cache::{CacheConfig, StoreLimits};
    use tempfile::TempDir;
    use tokio_rustls::rustls::ClientConnection;
    use units::ByteCount;

    use super::*;
    use crate::config::whole_file::{self, PRIVATE};
    use config::HttpSection;

    const HOST: &str = "mirror.example";

    /// A certificate that is its own authority, and sites with it.
    fn sites() -> (TempDir, SiteTable, PathBuf) {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["certificate", "key"].map(|name| folder.path().join(name));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        let pem = made.signing_key.serialize_pem();
        whole_file::replace(&key, pem.as_bytes(), PRIVATE).unwrap();
        let size = ByteCount::new(100_000);
        let limits = StoreLimits { memory: size, disk: ByteCount::new(0), object: size };
        let files = TlsFiles { certificate: certificate.clone(), key };
        let mut keys = HttpSection::default();
        keys.authorities = Some(certificate.clone());
        let config = HttpConfig {
            keys,
            ports: vec![80],
            cache: CacheConfig { limits, stale: Duration::ZERO },
            sites: vec![SiteConfig { hosts: vec![HOST.to_owned()], files }],
            tls_ports: vec![443],
        };
        let sites = SiteTable::load(&config).unwrap();
        (folder, sites, certificate)
    }

    /// A client's first bytes.
    fn hello(authorities: &Path, host: &str, protocols: &[&[u8]]) -> Vec<u8> {
        let connector = tls::verifying_connector(Some(authorities), None, protocols).unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut client = ClientConnection::new(connector.config().clone(), name).unwrap();
        let mut said = Vec::new();
        client.write_tls(&mut said).unwrap();
        said
    }

    fn met(sites: &SiteTable, first: &[u8]) -> &'static str {
        match sites.classify(&mut HelloReader::default(), first) {
            HelloOutcome::Incomplete => "incomplete",
            HelloOutcome::Site(site) => {
                assert_eq!(site.host, HOST);
                "site"
            }
            HelloOutcome::Other => "other",
        }
    }

    /// Each byte of the handshake message in a record of its own.
    fn in_small_records(hello: &[u8]) -> Vec<u8> {
        let version = [hello[1], hello[2]];
        let record = |byte: &u8| [0x16, version[0], version[1], 0, 1, *byte];
        hello[5..].iter().flat_map(record).collect()
    }

    #[test]
    fn a_hello_is_read_in_any_pieces_and_only_for_our_hosts() {
        let (_folder, sites, authorities) = sites();
        assert!(sites.take(443) && !sites.take(80));
        let ours = hello(&authorities, HOST, &[b"h2", b"http/1.1"]);
        for cut in 0..ours.len() {
            assert_eq!(met(&sites, &ours[..cut]), "incomplete", "{cut}");
        }
        assert_eq!(met(&sites, &ours), "site");
        assert_eq!(met(&sites, &in_small_records(&ours)), "site");
        assert_eq!(met(&sites, &hello(&authorities, "Mirror.Example", &[])), "site");
        for (host, protocols) in [
            ("other.example", &[][..]),
            ("a.mirror.example", &[]),
            ("192.0.2.1", &[]),
            (HOST, &[&b"h2"[..]]),
            (HOST, &[b"imap"]),
        ] {
            assert_eq!(met(&sites, &hello(&authorities, host, protocols)), "other", "{host}");
        }
    }

    #[test]
    fn a_hello_in_single_bytes_costs_no_more_than_at_once() {
        let (_folder, sites, authorities) = sites();
        let ours = hello(&authorities, HOST, &[]);
        // The longest: its server would be sent all of it.
        let mut longest = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
        longest.resize(MAX_HELLO, 7);
        for (first, end) in
            [(&ours, "site"), (&in_small_records(&ours), "site"), (&longest, "other")]
        {
            let mut hello = HelloReader::default();
            let (seen, cost) = cost::of(|| {
                let each =
                    (1..=first.len()).map(|length| sites.classify(&mut hello, &first[..length]));
                each.filter(|met| !matches!(met, HelloOutcome::Incomplete)).count()
            });
            assert_eq!((seen, cost), (1, first.len() as u64));
            assert_eq!(met(&sites, first), end);
        }
    }

    #[test]
    fn what_is_no_hello_is_others() {
        let (_folder, sites, authorities) = sites();
        for first in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"SSH-2.0-x\r\n",
            &[0x16, 3, 1, 0xff, 0xff, 1],
            &[0x15, 3, 3, 0, 2, 2, 40],
            &[0; 100],
        ] {
            assert_eq!(met(&sites, first), "other", "{first:?}");
        }
        // Whatever bytes are changed, nothing panics, and it is one of these.
        let ours = hello(&authorities, HOST, &[]);
        for at in 0..ours.len() {
            for change in [1, 0x80, 0xff] {
                let mut hostile = ours.clone();
                hostile[at] ^= change;
                let _ = met(&sites, &hostile);
            }
        }
        // A message that is never complete: its length says more than is read.
        let mut endless = vec![0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
        endless.resize(5 + 0x4000, 7);
        let records = std::iter::repeat_n(&endless, 8).flatten().copied().collect::<Vec<_>>();
        assert_eq!(met(&sites, &records), "other");
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let (folder, _, _) = sites();
        let none = folder.path().join("none");
        std::fs::write(&none, "").unwrap();
        let said = connector(Some(&none)).err().unwrap();
        assert!(said.contains("none has no certificate of an authority"), "{said}");
        let said = connector(Some(&folder.path().join("missing"))).err().unwrap();
        assert!(said.contains("missing: cannot read it"), "{said}");
    }
}
