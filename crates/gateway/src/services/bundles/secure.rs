//! TLS of TCPCLv4 sessions (RFC 9174 §4.4).
//!
//! Both sides show a certificate by an authority that the other trusts, for the name or address by
//! which the other knows them (DNS-ID and IPADDR-ID of RFC 9174 §4.4.4). Node identities in
//! certificates (NODE-ID) are not read.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bundles::PeerId;
use bundles::tcpcl::{CONTACT, ConnectionRole, SessionEvent, TcpclConnection};
use config::BundlesTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::network::tls;
use crate::network::tls::handshake::{self, EarlyStream};
use crate::process::clock;
use slacp::client_network;

/// Time limit of the contact headers, and of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Certificates, authorities, and the names expected of peers.
pub(super) struct PeerTls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    names: Vec<Option<String>>,
}

/// Evidence of a peer's identity: its certificate and address.
pub(super) struct PeerCertificate {
    certificate: CertificateDer<'static>,
    address: IpAddr,
}

/// Checks that the certificates can be used.
///
/// # Errors
/// A message that names the file.
pub(crate) fn check(config: &BundlesTls) -> Result<(), String> {
    PeerTls::load(config).map(|_| ())
}

impl PeerTls {
    pub(super) fn load(config: &BundlesTls) -> Result<Self, String> {
        let BundlesTls { files, authorities, names } = config;
        Ok(Self {
            acceptor: tls::acceptor_verifying(files, authorities)?,
            connector: tls::verifying_connector(Some(authorities), Some(files), &[])?,
            names: names.clone(),
        })
    }

    /// The name or address that the certificate of a peer at this address must be for.
    fn name(&self, peer: PeerId, address: IpAddr) -> io::Result<ServerName<'static>> {
        match self.names.get(peer.0).and_then(Option::as_ref) {
            Some(name) => tls::server_name(name),
            None => Ok(ServerName::IpAddress(address.into())),
        }
    }

    /// Returns `true` if the certificate shown is this peer's.
    pub(super) fn is_certified(&self, peer: PeerId, shown: &PeerCertificate) -> bool {
        let is_for = |name| {
            let certificate = ParsedCertificate::try_from(&shown.certificate);
            certificate.and_then(|certificate| verify_server_name(&certificate, &name)).is_ok()
        };
        self.name(peer, shown.address).is_ok_and(is_for)
    }

    /// Exchanges the contact headers of a session, and starts TLS.
    ///
    /// # Errors
    /// The reason for which the session ends.
    pub(super) async fn negotiate(
        &self,
        mut socket: TcpStream,
        session: &mut TcpclConnection,
        role: ConnectionRole,
        expected: Option<PeerId>,
    ) -> Result<(TlsStream<EarlyStream<TcpStream>>, PeerCertificate), String> {
        let failed = |error: io::Error| error.to_string();
        // A socket for both IP versions shows IPv4 addresses as mapped ones.
        let address = socket.peer_addr().map_err(failed)?.ip().to_canonical();
        within(exchange_contact_headers(&mut socket, session)).await?;
        match session.poll_event() {
            Some(SessionEvent::Tls) => {}
            Some(SessionEvent::Finished(end)) => return Err(end.to_string()),
            _ => return Err("no contact header from the peer".to_owned()),
        }
        // The roles of TLS follow those of TCPCL (RFC 9174 §4.4): the active side is the client.
        let handshake = async {
            Ok(match role {
                ConnectionRole::Active => {
                    let peer = expected.ok_or(io::ErrorKind::InvalidInput)?;
                    let name = self.name(peer, address)?;
                    let through = EarlyStream::unread(socket);
                    TlsStream::Client(self.connector.connect(name, through).await?)
                }
                ConnectionRole::Passive => {
                    let client = client_network(address);
                    TlsStream::Server(handshake::accept(&self.acceptor, client, socket).await?)
                }
            })
        };
        let stream = within(handshake).await.map_err(|error| format!("TLS failed: {error}"))?;
        let certificates = stream.get_ref().1.peer_certificates();
        let certificate = certificates.and_then(|all| all.first());
        let certificate = certificate.ok_or("TLS failed: no certificate")?.clone().into_owned();
        // What came before TLS was not authenticated, and does not count within it.
        session.handle_tls_established(clock::now());
        Ok((stream, PeerCertificate { certificate, address }))
    }
}

/// Exchanges contact headers. Reads exactly the peer's header: the bytes after it belong to TLS.
async fn exchange_contact_headers(
    socket: &mut TcpStream,
    session: &mut TcpclConnection,
) -> io::Result<()> {
    socket.write_all(&session.take_output()).await?;
    let mut header = [0; CONTACT];
    socket.read_exact(&mut header).await?;
    session.handle_bytes(clock::now(), &header);
    socket.write_all(&session.take_output()).await
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    match timeout(HANDSHAKE_TIMEOUT, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("the peer is silent".to_owned()),
    }
}
