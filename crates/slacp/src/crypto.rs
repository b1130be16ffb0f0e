//! Sealing and opening data packets with ChaCha20-Poly1305 (RFC 8439).

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::packet::TAG;

/// The key of one direction of a session. A packet's number is its nonce, as
/// in the Noise protocol (§5.1: four zero bytes, then the counter, here for
/// ChaChaPoly little-endian).
pub(crate) struct PacketKey(LessSafeKey);

impl PacketKey {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts `packet[header_len..]` in place and appends the tag. The header
    /// is authenticated.
    pub(crate) fn seal(&self, number: u64, header_len: usize, packet: &mut Vec<u8>) {
        let (header, body) = packet.split_at_mut(header_len);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce(number), Aad::from(&*header), body)
            .expect("a packet is shorter than 64 GiB");
        packet.extend_from_slice(tag.as_ref());
        debug_assert_eq!(tag.as_ref().len(), TAG);
    }

    /// Decrypts `packet[header_len..]` in place; `None` if it is not authentic.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        header_len: usize,
        packet: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let (header, body) = packet.split_at_mut_checked(header_len)?;
        let opened = self.0.open_in_place(nonce(number), Aad::from(&*header), body).ok()?;
        Some(opened)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_was_sealed_and_nothing_else() {
        let key = PacketKey::new(&[7; 32]);
        let mut sealed = b"headbody".to_vec();
        key.seal(42, 4, &mut sealed);
        assert_eq!(key.open(42, 4, &mut sealed.clone()), Some(&b"body"[..]));
        assert_eq!(key.open(43, 4, &mut sealed.clone()), None);
        for i in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[i] ^= 1;
            assert_eq!(key.open(42, 4, &mut forged), None, "byte {i}");
        }
        assert_eq!(key.open(42, 4, &mut []), None);
    }
}
