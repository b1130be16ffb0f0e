//! Secrets in memory: wiped after use, and not recoverable from the later state of a random
//! generator (`docs/slacp.md`, Keys).
//!
//! Not covered are copies that the compiler leaves on the stack when a value moves, and those that
//! the primitives of `snow` and `ring` leave there.

use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Random};
use zeroize::{Zeroize, Zeroizing};

/// 32 secret bytes, wiped when dropped.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// Draws a secret, then rekeys the generator from its own output (fast key erasure). Its later
/// state reveals only secrets that are drawn afterwards.
pub(crate) fn draw(rng: &mut ChaCha20Rng) -> Secret {
    let mut secret = Secret::default();
    let mut next = Secret::default();
    rng.fill_bytes(&mut *secret);
    rng.fill_bytes(&mut *next);
    *rng = ChaCha20Rng::from_seed(*next);
    secret
}

/// A value of another crate that holds secrets. Its own bytes are wiped after it has been dropped;
/// memory that it points to is not.
pub(crate) struct WipedBox<T>(Box<MaybeUninit<T>>);

impl<T> WipedBox<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Box::new(MaybeUninit::new(value)))
    }
}

impl<T> Deref for WipedBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it is initialised by `new` until `drop`.
        unsafe { self.0.assume_init_ref() }
    }
}

impl<T> DerefMut for WipedBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: it is initialised by `new` until `drop`.
        unsafe { self.0.assume_init_mut() }
    }
}

impl<T> Drop for WipedBox<T> {
    fn drop(&mut self) {
        // SAFETY: it is initialised, and nobody uses it after this.
        unsafe { end(&mut self.0) }
    }
}

/// Drops a value and wipes its bytes.
///
/// # Safety
/// The value must be initialised and must not be used afterwards.
unsafe fn end<T>(place: &mut MaybeUninit<T>) {
    // SAFETY: the caller's promise.
    unsafe { place.assume_init_drop() };
    place.zeroize();
}

/// X25519 from `snow` with a private key that is wiped when dropped.
pub(crate) fn x25519() -> Box<dyn Dh> {
    let dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519);
    Box::new(WipedDh(dh.expect("the Curve25519 feature of snow is on")))
}

/// A cipher from `snow` with a key that is wiped when dropped.
pub(crate) fn cipher(choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
    Some(Box::new(WipedCipher(DefaultResolver.resolve_cipher(choice)?)))
}

struct WipedDh(Box<dyn Dh>);

impl Drop for WipedDh {
    fn drop(&mut self) {
        // `snow` does not wipe its keys when dropped; setting another one overwrites the bytes.
        self.0.set(&[0; 32]);
    }
}

impl Dh for WipedDh {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn pub_len(&self) -> usize {
        self.0.pub_len()
    }

    fn priv_len(&self) -> usize {
        self.0.priv_len()
    }

    fn set(&mut self, privkey: &[u8]) {
        self.0.set(privkey);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        self.0.generate(rng)
    }

    fn pubkey(&self) -> &[u8] {
        self.0.pubkey()
    }

    fn privkey(&self) -> &[u8] {
        self.0.privkey()
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        self.0.dh(pubkey, out)
    }
}

struct WipedCipher(Box<dyn Cipher>);

impl Drop for WipedCipher {
    fn drop(&mut self) {
        self.0.set(&[0; 32]);
    }
}

impl Cipher for WipedCipher {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0.set(key);
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        self.0.encrypt(nonce, authtext, plaintext, out)
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        self.0.decrypt(nonce, authtext, ciphertext, out)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn the_bytes_of_a_wiped_value_are_zero_and_it_was_dropped() {
        let counted = Rc::new(());
        let mut place = MaybeUninit::new((Rc::clone(&counted), [0xaa_u8; 32], 7_u64));
        // SAFETY: it is initialised, and only its bytes are looked at below.
        unsafe { end(&mut place) };
        assert_eq!(Rc::strong_count(&counted), 1);
        let length = size_of_val(&place);
        // SAFETY: all of its bytes have been written.
        let bytes = unsafe { core::slice::from_raw_parts(place.as_ptr().cast::<u8>(), length) };
        assert!(bytes.iter().all(|byte| *byte == 0), "{bytes:?}");
        drop(WipedBox::new(Rc::clone(&counted)));
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn a_generator_does_not_tell_what_it_gave() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let drawn: Vec<Secret> = (0..3).map(|_| draw(&mut rng)).collect();
        assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2]);
        // An attacker with the generator's state can rewind it to its beginning.
        rng.set_word_pos(0);
        let mut told = [0; 4096];
        rng.fill_bytes(&mut told);
        assert!(drawn.iter().all(|secret| told.windows(32).all(|bytes| bytes != &secret[..])));
    }

    /// Remembers the last key it was given.
    struct Witness(Arc<Mutex<Vec<u8>>>);

    impl Cipher for Witness {
        fn name(&self) -> &'static str {
            "witness"
        }

        fn set(&mut self, key: &[u8; 32]) {
            *self.0.lock().unwrap() = key.to_vec();
        }

        fn encrypt(&self, _: u64, _: &[u8], _: &[u8], _: &mut [u8]) -> usize {
            0
        }

        fn decrypt(&self, _: u64, _: &[u8], _: &[u8], _: &mut [u8]) -> Result<usize, snow::Error> {
            Ok(0)
        }
    }

    #[test]
    fn a_ciphers_key_is_replaced_by_zeros() {
        let key = Arc::new(Mutex::new(Vec::new()));
        let mut cipher = WipedCipher(Box::new(Witness(Arc::clone(&key))));
        cipher.set(&[5; 32]);
        assert_eq!(*key.lock().unwrap(), [5; 32]);
        drop(cipher);
        assert_eq!(*key.lock().unwrap(), [0; 32]);
    }
}
