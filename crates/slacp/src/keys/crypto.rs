//! Sealing and opening data packets with ChaCha20-Poly1305 (RFC 8439) or
//! AES-256-GCM (NIST SP 800-38D).

use core::ops::Range;

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::keys::secret::WipedBox;
use crate::wire::packet::TAG;

/// Size of an AES block in bytes. A partial block at the end takes a pass of its own.
pub(crate) const BLOCK: usize = 16;

/// The cipher that seals a session's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketCipher {
    ChaCha20Poly1305,
    /// Three times as fast on CPUs with AES instructions.
    Aes256Gcm,
}

impl PacketCipher {
    /// Builds the nonce of a packet as in the Noise protocol (§12.3, §12.4): four zero bytes, then
    /// the packet number, little-endian for ChaCha20, big-endian for AES.
    fn nonce(self, number: u64) -> Nonce {
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&match self {
            Self::ChaCha20Poly1305 => number.to_le_bytes(),
            Self::Aes256Gcm => number.to_be_bytes(),
        });
        Nonce::assume_unique_for_key(bytes)
    }
}

/// The key of one direction of a session, wiped when dropped. The packet number is the nonce.
pub(crate) struct PacketKey {
    key: WipedBox<LessSafeKey>,
    cipher: PacketCipher,
}

impl PacketKey {
    pub(crate) fn new(cipher: PacketCipher, key: &[u8; 32]) -> Self {
        let algorithm = match cipher {
            PacketCipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            PacketCipher::Aes256Gcm => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key).expect("the key has 32 bytes");
        Self { key: WipedBox::new(LessSafeKey::new(key)), cipher }
    }

    /// Encrypts the last packet of `buf` in place and appends the tag. Its header is at `header`,
    /// followed by its frames. The header is authenticated.
    pub(crate) fn seal(&self, number: u64, header: Range<usize>, buf: &mut Vec<u8>) {
        let (before, body) = buf.split_at_mut(header.end);
        let header = &before[header.start..];
        let tag = self
            .key
            .seal_in_place_separate_tag(self.cipher.nonce(number), Aad::from(header), body)
            .expect("a packet is shorter than 64 GiB");
        buf.extend_from_slice(tag.as_ref());
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
        let nonce = self.cipher.nonce(number);
        let opened = self.key.open_in_place(nonce, Aad::from(&*header), body).ok()?;
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_what_was_sealed_and_nothing_else() {
        for cipher in [PacketCipher::ChaCha20Poly1305, PacketCipher::Aes256Gcm] {
            let key = PacketKey::new(cipher, &[7; 32]);
            let mut sealed = b"headbody".to_vec();
            key.seal(42, 0..4, &mut sealed);
            assert_eq!(key.open(42, 4, &mut sealed.clone()), Some(&b"body"[..]));
            assert_eq!(key.open(43, 4, &mut sealed.clone()), None);
            for i in 0..sealed.len() {
                let mut forged = sealed.clone();
                forged[i] ^= 1;
                assert_eq!(key.open(42, 4, &mut forged), None, "{cipher:?}, byte {i}");
            }
            assert_eq!(key.open(42, 4, &mut []), None);
        }
    }
}
