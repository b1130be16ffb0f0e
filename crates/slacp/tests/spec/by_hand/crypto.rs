//! The key derivation and encryption of `docs/slacp.md`.

use ring::{aead, hmac};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};

/// HMAC-SHA256.
pub fn mac(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

/// HKDF-SHA256 (RFC 5869 §2).
pub fn hkdf(salt: &[u8], input: &[u8], info: &[u8], length: usize) -> Vec<u8> {
    let pseudorandom = mac(salt, input);
    let (mut out, mut block) = (Vec::new(), Vec::new());
    for count in 1.. {
        block = mac(&pseudorandom, &[&block, info, &[count]].concat());
        out.extend_from_slice(&block);
        if out.len() >= length {
            break;
        }
    }
    out.truncate(length);
    out
}

/// The shared secret of a private and a public key, and the public key of the private one.
pub fn x25519(private: &[u8], public: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).unwrap();
    dh.set(private);
    let mut secret = vec![0; 32];
    dh.dh(public, &mut secret).unwrap();
    (secret, dh.pubkey().to_vec())
}

/// The symmetric state of a Noise handshake (Noise Protocol Framework §5.2) with
/// ChaChaPoly and BLAKE2s.
pub struct Noise {
    pub hash: [u8; 32],
    chaining_key: [u8; 32],
    key: [u8; 32],
}

impl Noise {
    fn blake2s(parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s).unwrap();
        parts.iter().for_each(|part| hash.input(part));
        let mut out = [0; 32];
        hash.result(&mut out);
        out
    }

    fn new(prologue: &[u8], hub: &[u8]) -> Self {
        let name = Self::blake2s(&[b"Noise_IK_25519_ChaChaPoly_BLAKE2s"]);
        let mut noise = Self { hash: name, chaining_key: name, key: [0; 32] };
        noise.mix(prologue);
        noise.mix(hub);
        noise
    }

    fn mix(&mut self, data: &[u8]) {
        self.hash = Self::blake2s(&[&self.hash, data]);
    }

    pub fn derive(&self, input: &[u8]) -> [[u8; 32]; 2] {
        let mut hash = DefaultResolver.resolve_hash(&HashChoice::Blake2s).unwrap();
        let (mut one, mut two) = ([0; 32], [0; 32]);
        hash.hkdf(&self.chaining_key, input, 2, &mut one, &mut two, &mut []);
        [one, two]
    }

    /// Mixes in the shared secret of two keys.
    fn agree(&mut self, private: &[u8], public: &[u8]) {
        [self.chaining_key, self.key] = self.derive(&x25519(private, public).0);
    }

    /// Each key of this pattern seals once, so the nonce is zero.
    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).unwrap();
        cipher.set(&self.key);
        let mut out = vec![0; plain.len() + 16];
        cipher.encrypt(0, &self.hash, plain, &mut out);
        self.mix(&out);
        out
    }

    fn open(&mut self, sealed: &[u8]) -> Vec<u8> {
        let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).unwrap();
        cipher.set(&self.key);
        let mut out = vec![0; sealed.len() - 16];
        cipher.decrypt(0, &self.hash, sealed, &mut out).expect("an authentic message");
        self.mix(sealed);
        out
    }
}

/// The public key of a private key.
pub fn public(private: &[u8]) -> Vec<u8> {
    x25519(private, &[9; 32]).1
}

/// The first message of a terminal's handshake.
pub fn first_message(
    prologue: &[u8],
    [terminal, ephemeral]: [&[u8]; 2],
    hub: &[u8],
    payload: &[u8],
) -> (Vec<u8>, Noise) {
    let mut noise = Noise::new(prologue, hub);
    let fresh = public(ephemeral);
    noise.mix(&fresh);
    noise.agree(ephemeral, hub);
    let sealed = noise.seal(&public(terminal));
    noise.agree(terminal, hub);
    let payload = noise.seal(payload);
    ([fresh, sealed, payload].concat(), noise)
}

/// The payload of the second message, opened by the terminal.
pub fn read_second(noise: &mut Noise, [terminal, ephemeral]: [&[u8]; 2], second: &[u8]) -> Vec<u8> {
    let (fresh, sealed) = second.split_at(32);
    noise.mix(fresh);
    noise.agree(ephemeral, fresh);
    noise.agree(terminal, fresh);
    noise.open(sealed)
}

/// The terminal's key and the payload of a first message, opened by the hub.
pub fn read_first(prologue: &[u8], hub: &[u8], first: &[u8]) -> (Vec<u8>, Vec<u8>, Noise) {
    let mut noise = Noise::new(prologue, &public(hub));
    let (fresh, rest) = first.split_at(32);
    noise.mix(fresh);
    noise.agree(hub, fresh);
    let (sealed, payload) = rest.split_at(48);
    let terminal = noise.open(sealed);
    noise.agree(hub, &terminal);
    let payload = noise.open(payload);
    (terminal, payload, noise)
}

/// The second message, to a terminal with these keys.
pub fn second_message(
    noise: &mut Noise,
    [terminal, fresh]: [&[u8]; 2],
    ephemeral: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let answer = public(ephemeral);
    noise.mix(&answer);
    noise.agree(ephemeral, fresh);
    noise.agree(ephemeral, terminal);
    [answer, noise.seal(payload)].concat()
}

/// The two messages of a handshake, and the resulting state.
pub fn noise_ik(
    prologue: &[u8],
    terminal: [&[u8]; 2],
    [hub, ephemeral]: [&[u8]; 2],
    [first, second]: [&[u8]; 2],
) -> (Vec<u8>, Vec<u8>, Noise) {
    let (first, mut noise) = first_message(prologue, terminal, &public(hub), first);
    let keys = [&public(terminal[0])[..], &first[..32]];
    let second = second_message(&mut noise, keys, ephemeral, second);
    (first, second, noise)
}

fn aead_key(cipher: &str, key: &[u8], number: u64) -> (aead::LessSafeKey, aead::Nonce) {
    let (algorithm, counter) = match cipher {
        "AES-256-GCM" => (&aead::AES_256_GCM, number.to_be_bytes()),
        _ => (&aead::CHACHA20_POLY1305, number.to_le_bytes()),
    };
    let nonce = [&[0; 4], &counter[..]].concat().try_into().unwrap();
    let key = aead::LessSafeKey::new(aead::UnboundKey::new(algorithm, key).unwrap());
    (key, aead::Nonce::assume_unique_for_key(nonce))
}

/// The frames of a packet, if it is authentic.
pub fn open(
    cipher: &str,
    key: &[u8],
    number: u64,
    packet: &[u8],
    header: usize,
) -> Option<Vec<u8>> {
    let (key, nonce) = aead_key(cipher, key, number);
    let (header, sealed) = packet.split_at(header);
    let mut sealed = sealed.to_vec();
    let opened = key.open_in_place(nonce, aead::Aad::from(header), &mut sealed).ok()?;
    Some(opened.to_vec())
}

/// A packet: its header and its sealed frames.
pub fn seal(cipher: &str, key: &[u8], number: u64, header: &[u8], frames: &[u8]) -> Vec<u8> {
    let (key, nonce) = aead_key(cipher, key, number);
    let mut sealed = frames.to_vec();
    key.seal_in_place_append_tag(nonce, aead::Aad::from(header), &mut sealed).unwrap();
    [header, &sealed].concat()
}
