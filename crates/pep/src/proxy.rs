//! Handshake of the proxy: SOCKS5 and HTTP CONNECT on one port.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod handshake;
mod http;
mod socks;

pub use handshake::{HandshakeStep, ProxyHandshake, ProxyProtocol, ProxyRequest};
