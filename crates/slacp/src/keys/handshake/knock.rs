//! Cheap authentication of datagrams outside of sessions (`docs/slacp.md`, Session set-up). It
//! proves only knowledge of the hub's public key, which is enough to stay silent towards scanners
//! and to trust the hub's short answers.

use core::cell::Cell;

use ring::hmac;

use crate::PublicKey;
use crate::wire::packet::{self, Echo, Index, MAC, Mac};

/// Computes and checks the knocks of a hub's terminals and the tags of the hub's answers.
pub(crate) struct KnockKey {
    /// The hub's public key, from which this key is derived.
    pub(crate) hub: PublicKey,
    key: hmac::Key,
    hashes: Cell<u64>,
}

impl KnockKey {
    pub(crate) fn new(hub: PublicKey) -> Self {
        let mut secret = b"SLACP knock".to_vec();
        secret.extend_from_slice(&hub.0);
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        Self { hub, key, hashes: Cell::new(0) }
    }

    /// Number of hashes computed so far.
    pub(crate) fn hashes(&self) -> u64 {
        self.hashes.get()
    }

    /// Appends the knock to an initiation and returns it.
    pub(crate) fn seal(&self, initiation: &mut Vec<u8>) -> Mac {
        let knock = self.hash(&[initiation]);
        initiation.extend_from_slice(&knock);
        knock
    }

    /// Returns the knock at the end of an initiation of any version; `None` if it is wrong.
    pub(crate) fn check(&self, initiation: &[u8]) -> Option<Mac> {
        let (message, knock) = initiation.split_last_chunk::<MAC>()?;
        same(&self.hash(&[message]), knock).then_some(*knock)
    }

    /// Appends the tag to an answer to the initiation with this `knock`, or to no initiation. Only
    /// somebody who has seen the initiation can forge an answer to it.
    pub(crate) fn seal_answer(&self, mut answer: Vec<u8>, knock: Option<&Mac>) -> Vec<u8> {
        let tag = self.answer_tag(&answer, knock);
        answer.extend_from_slice(&tag);
        answer
    }

    /// Returns whether an answer belongs to the initiation with this `knock`, or to no initiation.
    pub(crate) fn is_answer(&self, answer: &[u8], knock: Option<&Mac>) -> bool {
        let Some((head, tag)) = answer.split_last_chunk::<MAC>() else { return false };
        same(&self.answer_tag(head, knock), tag)
    }

    fn answer_tag(&self, answer: &[u8], knock: Option<&Mac>) -> Mac {
        self.hash(&[answer, knock.map_or(&[], |knock| knock)])
    }

    fn hash(&self, parts: &[&[u8]]) -> Mac {
        self.hashes.set(self.hashes.get() + 1);
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        truncate(context.sign())
    }

    /// Builds a *cookie* answer, which asks for the initiation with `knock` again, with the cookie.
    pub(crate) fn cookie_request(&self, receiver: Index, cookie: &Mac, knock: &Mac) -> Vec<u8> {
        self.seal_answer(packet::cookie_request(receiver, cookie), Some(knock))
    }

    /// Builds a *versions* answer with the versions spoken here.
    pub(crate) fn versions(&self, echo: Echo, knock: &Mac) -> Vec<u8> {
        self.seal_answer(packet::versions(echo, &[packet::VERSION]), Some(knock))
    }
}

/// The first 16 bytes of an HMAC.
pub(crate) fn truncate(tag: hmac::Tag) -> Mac {
    let mut mac = [0; MAC];
    mac.copy_from_slice(&tag.as_ref()[..MAC]);
    mac
}

/// Compares two tags in constant time, so that the time reveals no matching prefix.
pub(crate) fn same(one: &Mac, other: &Mac) -> bool {
    let difference = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    // Keeps the compiler from ending the loop at the first difference.
    core::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyPair;
    use crate::wire::packet::Datagram;

    #[test]
    fn a_knock_is_made_for_one_hub_and_one_message() {
        let (ours, other) = (KnockKey::new(PublicKey([1; 32])), KnockKey::new(PublicKey([2; 32])));
        let mut message = b"initiation".to_vec();
        let knock = ours.seal(&mut message);
        assert_eq!(ours.check(&message), Some(knock));
        assert_eq!(other.check(&message), None);
        for i in 0..message.len() {
            let mut forged = message.clone();
            forged[i] ^= 1;
            assert_eq!(ours.check(&forged), None, "byte {i}");
            assert_eq!(ours.check(&message[..i]), None);
        }
    }

    /// Recorded from version 1 (`tests/vectors/version-1.toml`).
    #[test]
    fn the_refusal_of_a_hub_of_version_1_is_understood() {
        let initiation = recorded("initiation_2");
        let answer = recorded("answered_with_1");
        let hub = KnockKey::new(KeyPair::from_private([1; 32]).public());
        let knock = hub.check(&initiation).unwrap();
        assert!(hub.is_answer(&answer, Some(&knock)));
        let Some(Datagram::Initiation { sender }) = packet::parse(&initiation) else { panic!() };
        let echo = packet::echo_of(sender);
        assert_eq!(packet::parse(&answer), Some(Datagram::Versions { echo }));
        assert_eq!(packet::spoken(&answer), [1]);
    }

    fn recorded(name: &str) -> Vec<u8> {
        let lines = include_str!("../../../tests/vectors/version-1.toml").lines();
        let value = lines.filter_map(|line| line.split_once(" = ")).find(|(key, _)| *key == name);
        let hex = value.unwrap().1.trim_matches('"').as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        hex.chunks(2).map(byte).collect()
    }

    #[test]
    fn an_answer_is_made_for_one_initiation() {
        let ours = KnockKey::new(PublicKey([1; 32]));
        let answer = ours.cookie_request(7, &[3; MAC], &[4; MAC]);
        assert!(ours.is_answer(&answer, Some(&[4; MAC])));
        assert!(!ours.is_answer(&answer, Some(&[5; MAC])));
        assert!(!ours.is_answer(&answer, None));
        assert!(!KnockKey::new(PublicKey([2; 32])).is_answer(&answer, Some(&[4; MAC])));
    }
}
