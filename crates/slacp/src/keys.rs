//! Static keys, the handshake, session keys, and key renewal.

pub(crate) mod crypto;
pub(crate) mod handshake;
pub(crate) mod key;
pub(crate) mod phases;
#[allow(unsafe_code, reason = "wipes the values of other crates")]
pub(crate) mod secret;
