//! TLS around the hop's TCP connections, for networks that let nothing else pass on port 443.
//!
//! It is no security boundary: SLACP authenticates both sides and encrypts everything inside. So a
//! terminal accepts any certificate, also that of a proxy that intercepts TLS.
//!
//! The gateway's other TLS servers and clients are configured here, too; those clients verify servers.
//! Handshakes have a thread of their own ([`handshake`]).

pub(crate) mod handshake;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use config::TlsFiles;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::config::keys::private_pem;

/// The first byte of a TLS connection: a handshake record (RFC 8446 §5.1).
pub(crate) const FIRST: u8 = 0x16;

/// Creates the acceptor of a hub's TCP port.
///
/// # Errors
/// The file that cannot be used, and why.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    acceptor_of(files, &[])
}

/// Creates the acceptor of a server that speaks these protocols (ALPN).
///
/// # Errors
/// The file that cannot be used, and why.
pub(crate) fn acceptor_of(files: &TlsFiles, protocols: &[&[u8]]) -> Result<TlsAcceptor, String> {
    accepting(files, WebPkiClientVerifier::no_client_auth(), protocols)
}

/// Creates the acceptor of a server whose clients must show a certificate of one of the authorities in a
/// file (PEM).
///
/// # Errors
/// The file that cannot be used, and why.
pub(crate) fn acceptor_verifying(
    files: &TlsFiles,
    authorities: &Path,
) -> Result<TlsAcceptor, String> {
    let roots = Arc::new(roots(Some(authorities))?);
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
    let clients = clients.map_err(|error| format!("{}: {error}", authorities.display()))?;
    accepting(files, clients, &[])
}

fn accepting(
    files: &TlsFiles,
    clients: Arc<dyn ClientCertVerifier>,
    protocols: &[&[u8]],
) -> Result<TlsAcceptor, String> {
    let (chain, key) = identity(files)?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_client_cert_verifier(clients).with_single_cert(chain, key)
        });
    let mut config = config.map_err(|error| key_mismatch(files, &error))?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Reads a certificate chain and its private key (PEM).
fn identity(
    files: &TlsFiles,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let said = |path: &Path, why: String| format!("{}: {why}", path.display());
    let open = |path: &Path| {
        let file = File::open(path).map_err(|error| said(path, format!("cannot read it: {error}")));
        file.map(BufReader::new)
    };
    let chain = CertificateDer::pem_reader_iter(open(&files.certificate)?);
    let chain: Vec<_> = chain
        .collect::<Result<_, _>>()
        .map_err(|error| said(&files.certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(said(&files.certificate, "it holds no certificate (PEM)".to_owned()));
    }
    let key = private_pem(&files.key).map_err(|error| said(&files.key, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| said(&files.key, format!("it holds no private key (PEM): {error}")))?;
    Ok((chain, key))
}

/// Describes the error of a key that does not belong to its certificate.
fn key_mismatch(files: &TlsFiles, error: &Error) -> String {
    format!("{}: {error}", files.key.display())
}

/// Creates the connector of a terminal, which accepts any certificate.
pub(crate) fn connector() -> io::Result<TlsConnector> {
    let provider = provider();
    // SLACP authenticates both sides inside, so any certificate will do, also that of a proxy.
    let any = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(any)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Creates a connector that verifies servers, by the authorities in a file (PEM) or by the system's. It
/// shows the certificate `own` to servers that ask, and speaks these protocols (ALPN).
///
/// # Errors
/// The file that cannot be used, and why; or that the system has no authorities.
pub(crate) fn verifying_connector(
    authorities: Option<&Path>,
    own: Option<&TlsFiles>,
    protocols: &[&[u8]],
) -> Result<TlsConnector, String> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = config.with_root_certificates(roots(authorities)?);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = identity(files)?;
            config.with_client_auth_cert(chain, key).map_err(|error| key_mismatch(files, &error))?
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Reads the authorities in a file, or the system's.
fn roots(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = match authorities {
        Some(path) => {
            let said = |why: String| format!("{}: {why}", path.display());
            let file =
                File::open(path).map_err(|error| said(format!("cannot read it: {error}")))?;
            let found = CertificateDer::pem_reader_iter(BufReader::new(file));
            found.collect::<Result<Vec<_>, _>>().map_err(|error| said(error.to_string()))?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    // Systems carry certificates that rustls cannot parse; one usable authority is enough.
    let (good, _) = roots.add_parsable_certificates(found);
    if good == 0 {
        let place =
            authorities.map_or_else(|| "this system".to_owned(), |path| path.display().to_string());
        return Err(format!("{place} has no certificate of an authority to verify others by"));
    }
    Ok(roots)
}

/// Parses the name or address of a server.
///
/// # Errors
/// `InvalidInput` if it is neither.
pub(crate) fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts every certificate whose private key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
