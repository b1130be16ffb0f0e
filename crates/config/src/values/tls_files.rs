//! Certificate and key files for TLS.

use std::path::PathBuf;

/// A certificate, and the key that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the certificate, then the chain to its authority.
    pub certificate: PathBuf,
    /// PEM: the private key.
    pub key: PathBuf,
}
