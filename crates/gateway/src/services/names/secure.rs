//! DNS over TLS (RFC 7858), and the way to DNS over HTTPS ([`https`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::SecureDns;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::driver::QuestionQueue;
use super::https;
use super::tcp::{self, MessageReader, QuestionOrigin};
use crate::network::presence;
use crate::network::tls::{self, handshake};
use crate::process::error::RunError;
use slacp::client_network;

/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// ALPN protocols that are accepted. Clients of DNS over TLS need not offer any.
const DOT_ALPN: &[&[u8]] = &[b"dot"];
const DOH_ALPN: &[&[u8]] = &[https::HTTP2, b"http/1.1"];

/// Transport of DNS on a connection.
#[derive(Clone)]
pub(super) enum DnsTransport {
    /// DNS over TCP, without TLS.
    Plain,
    Tls(TlsAcceptor),
    Https(TlsAcceptor),
}

/// Checks that the certificate can be used.
///
/// # Errors
/// A message that names the file.
pub(crate) fn check(secure: &SecureDns) -> Result<(), String> {
    tls::acceptor_of(&secure.files, DOT_ALPN).map(|_| ())
}

/// Opens the listeners of DNS over TLS and HTTPS.
pub(super) async fn listen(
    secure: &SecureDns,
) -> Result<Vec<(TcpListener, DnsTransport)>, RunError> {
    let load = |protocols| {
        tls::acceptor_of(&secure.files, protocols).map_err(|problem| RunError::Dns { problem })
    };
    let dot = DnsTransport::Tls(load(DOT_ALPN)?);
    let doh = DnsTransport::Https(load(DOH_ALPN)?);
    let tls = secure.tls.iter().map(|address| (address, &dot, "TLS"));
    let https = secure.https.iter().map(|address| (address, &doh, "HTTPS"));
    let mut all = Vec::new();
    for (address, transport, name) in tls.chain(https) {
        let listener = presence::listen(*address).map_err(|cause| RunError::Dns {
            problem: format!("cannot listen on TCP {address}: {cause}"),
        })?;
        tracing::info!("names are resolved over {name} at {address}");
        all.push((listener, transport.clone()));
    }
    Ok(all)
}

/// Answers a client's questions until it closes the connection, or is idle.
pub(super) async fn serve(
    queue: Arc<QuestionQueue>,
    socket: TcpStream,
    origin: QuestionOrigin,
    transport: DnsTransport,
) {
    let (acceptor, is_https) = match transport {
        DnsTransport::Plain => {
            return tcp::answer_questions(queue, socket, origin, MessageReader::default()).await;
        }
        DnsTransport::Tls(acceptor) => (acceptor, false),
        DnsTransport::Https(acceptor) => (acceptor, true),
    };
    let client: SocketAddr = origin.client;
    let handshake = handshake::accept(&acceptor, client_network(client.ip()), socket);
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) if is_https => https::serve(queue, stream, origin).await,
        Ok(Ok(stream)) => {
            tcp::answer_questions(queue, stream, origin, MessageReader::default()).await;
        }
        Ok(Err(error)) => tracing::debug!("TLS handshake with DNS client {client} failed: {error}"),
        Err(_) => tracing::debug!("TLS handshake with DNS client {client} timed out"),
    }
}
