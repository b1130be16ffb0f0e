//! Public keys as base64 text, the form in configurations and on the command line.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use slacp::PublicKey;
use thiserror::Error;

/// The text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {KEY_FORM}")]
pub struct KeyTextError;

/// Format of a key, for error messages.
pub const KEY_FORM: &str = "32 bytes in base64 (44 characters), as `skyhop keygen` prints";

/// Parses a public key from base64.
///
/// # Errors
/// If the text is not 32 bytes of base64.
pub fn parse_public_key(text: &str) -> Result<PublicKey, KeyTextError> {
    let bytes = STANDARD.decode(text.trim()).map_err(|_| KeyTextError)?;
    bytes.try_into().map(PublicKey).map_err(|_| KeyTextError)
}

/// A public key as base64 text.
pub fn format_public_key(key: &PublicKey) -> String {
    STANDARD.encode(key.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_keys_read_back_and_others_are_refused() {
        let text = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";
        assert_eq!(format_public_key(&parse_public_key(text).unwrap()), text);
        for bad in ["", "AAAA", "not base64!", &format!("{text}A")] {
            assert_eq!(parse_public_key(bad), Err(KeyTextError), "{bad:?}");
        }
    }
}
