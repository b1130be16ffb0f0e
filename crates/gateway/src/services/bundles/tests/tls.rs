//! Nodes that talk within TLS, and others that cannot show the right certificate.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use bundles::tcpcl::CONTACT;
use config::{BundlesTls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::config::whole_file::{self, PRIVATE};
use crate::network::tls;

const HERE: &str = "127.0.0.1";
const SENSOR: &str = "sensor.example";

/// An authority, and files with certificates by it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut wanted = CertificateParams::new([]).unwrap();
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = wanted.self_signed(&key).unwrap().pem();
        std::fs::write(folder.path().join("authority"), certificate).unwrap();
        Self { issuer: Issuer::new(wanted, key), folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("authority")
    }

    /// A certificate for a name or an address.
    fn certify(&self, name: &str) -> TlsFiles {
        let at = |kind| self.folder.path().join(format!("{name}-{kind}"));
        let files = TlsFiles { certificate: at("certificate"), key: at("key") };
        let (wanted, key) = (CertificateParams::new([name.to_owned()]), KeyPair::generate());
        let (wanted, key) = (wanted.unwrap(), key.unwrap());
        let certificate = wanted.signed_by(&key, &self.issuer).unwrap().pem();
        std::fs::write(&files.certificate, certificate).unwrap();
        whole_file::replace(&files.key, key.serialize_pem().as_bytes(), PRIVATE).unwrap();
        files
    }

    /// What a node needs that is known as `own` and has one peer.
    fn tls(&self, own: &str, peer: Option<&str>) -> Option<BundlesTls> {
        let (files, names) = (self.certify(own), vec![peer.map(str::to_owned)]);
        Some(BundlesTls { files, authorities: self.file(), names })
    }
}

/// A node to which `ipn:2.0` may connect as `sensor.example`.
async fn secured(authority: &Authority, store: &Path) -> (BundleService, SocketAddr) {
    listening_with(store, |config| config.tls = authority.tls(HERE, Some(SENSOR))).await
}

/// Connects as one who trusts `server` and shows a certificate by `own` for a name. [`None`] if the
/// handshake fails.
async fn connected(
    address: SocketAddr,
    server: &Authority,
    own: &TlsFiles,
) -> Option<TlsStream<TcpStream>> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let offer = ContactHeader { can_tls: true, ..ContactHeader::OURS }.encode();
    socket.write_all(&offer).await.unwrap();
    let mut told = [0; CONTACT];
    socket.read_exact(&mut told).await.unwrap();
    assert_eq!(told, offer);
    let connector = tls::verifying_connector(Some(&server.file()), Some(own), &[]).unwrap();
    connector.connect(tls::server_name(HERE).unwrap(), socket).await.ok()
}

/// What is said to one who says who it is, and then that it ends.
async fn told_within(stream: Option<TlsStream<TcpStream>>, node: &str) -> Vec<u8> {
    let mut told = Vec::new();
    let Some(mut stream) = stream else { return told };
    let term = TcpclMessage::SessTerm { reply: false, reason: TermReason::Unknown };
    let said = with(greeting(node)[CONTACT..].to_vec(), &term, b"");
    // It may be refused by now.
    let _ = stream.write_all(&said).await;
    let reading = stream.read_to_end(&mut told);
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("the connection ends");
    told
}

#[tokio::test]
async fn nodes_with_certificates_exchange_bundles_within_tls() {
    let (authority, stores) = (Authority::new(), [(); 2].map(|()| tempfile::tempdir().unwrap()));
    let (first, address) = secured(&authority, stores[0].path()).await;
    let mut second =
        config("ipn:2.0", stores[1].path(), &[("ipn:1.0", NodeReach::Connect(address))]);
    // The peer is known by its address.
    second.tls = authority.tls(SENSOR, None);
    let second = BundleService::start(second).await.unwrap().unwrap();
    let large: Vec<u8> = (0..500_000u32).map(|number| (number / 7) as u8).collect();
    send(&second, "ipn:1.7", &large, (clock::unix_millis(), 1)).await.unwrap();
    assert!(until(async || take(&first, "7").await).await == large);
    send(&first, "ipn:2.5", b"back", (clock::unix_millis(), 2)).await.unwrap();
    assert_eq!(until(async || take(&second, "5").await).await, b"back");
}

/// SESS_INIT begins with its type, 7; SESS_TERM is 5, flags, and the reason, here 4: contact failure.
#[tokio::test]
async fn who_cannot_prove_to_be_the_peer_is_no_peer() {
    let (authority, other) = (Authority::new(), Authority::new());
    let store = tempfile::tempdir().unwrap();
    let (_node, address) = secured(&authority, store.path()).await;
    let (good, wrong, foreign) =
        (authority.certify(SENSOR), authority.certify("other.example"), other.certify(SENSOR));

    let said = told_within(connected(address, &authority, &good).await, "ipn:2.0").await;
    assert!(said.first() == Some(&7), "it is the peer: {said:?}");
    let said = told_within(connected(address, &authority, &wrong).await, "ipn:2.0").await;
    assert!(said.starts_with(&[5, 0, 4]), "another's certificate: {said:?}");
    let said = told_within(connected(address, &authority, &foreign).await, "ipn:2.0").await;
    assert_eq!(said, b"", "another authority");
    assert!(connected(address, &other, &good).await.is_none(), "it does not trust us");

    // Without TLS, and with something said before it.
    let said = told(address, &greeting("ipn:2.0")).await;
    assert!(said.ends_with(&[5, 0, 4]), "no TLS: {said:?}");
    let early = [&[b'd', b't', b'n', b'!', 4, 1][..], &greeting("ipn:2.0")[CONTACT..]].concat();
    let said = told(address, &early).await;
    assert!(!said.get(CONTACT..).unwrap_or_default().starts_with(&[7]), "no session: {said:?}");
}

#[tokio::test]
async fn a_node_without_its_files_does_not_start() {
    let (authority, store) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut config = config("ipn:1.0", store.path(), &[("ipn:2.0", NodeReach::Listen)]);
    config.listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    config.tls = authority.tls(HERE, None);
    std::fs::write(authority.file(), "nothing\n").unwrap();
    let Err(error) = BundleService::start(config).await else { panic!("it starts") };
    assert!(error.to_string().contains("authority has no certificate"), "{error}");
}
