//! Static key pairs, which identify gateways.

use crate::PublicKey;
use crate::keys::secret::{Secret, x25519};

/// A Curve25519 key pair. The private key is wiped when dropped.
#[derive(Clone)]
pub struct KeyPair {
    private: Secret,
    public: PublicKey,
}

impl KeyPair {
    /// The key pair of a private key: any 32 bytes from a good random source.
    pub fn from_private(private: [u8; 32]) -> Self {
        let private = Secret::new(private);
        let mut dh = x25519();
        dh.set(&*private);
        let mut public = [0; 32];
        public.copy_from_slice(dh.pubkey());
        Self { private, public: PublicKey(public) }
    }

    /// The public key, by which others identify this gateway.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(crate) fn private(&self) -> &[u8; 32] {
        &self.private
    }
}

impl core::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748 §6.1, Alice's keys.
    #[test]
    fn public_key_of_rfc_7748() {
        let private = hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let public = hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        assert_eq!(KeyPair::from_private(private).public(), PublicKey(public));
    }

    fn hex(text: &str) -> [u8; 32] {
        core::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
    }
}
