//! The keys of a session and their renewal (`docs/slacp.md`, Keys). Each generation is derived from
//! a fresh X25519 exchange inside the session and from all earlier exchanges. The key phase in a
//! packet header is the lowest bit of the generation.

use core::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use ring::hkdf;
use snow::types::Dh;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::keys::crypto::{PacketCipher, PacketKey};
use crate::keys::secret::{Secret, draw, x25519};
use crate::wire::frame::Frame;
use crate::wire::packet::PacketHeader;

/// An invalid key offer of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum RekeyError {
    #[error("key generation {generation} is offered after {present}")]
    Generation { generation: u64, present: u64 },
    #[error("two keys are offered for key generation {generation}")]
    Contradiction { generation: u64 },
    #[error("the offered key is invalid")]
    Degenerate,
}

/// Usage limits of a key: the lowest limits of RFC 9001 §6.6 (`docs/slacp.md`, How much one key
/// seals). An honest peer renews its keys at half of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyLimits {
    /// Number of packets sealed. Twice the default of [`rekey_packets`], and the confidentiality
    /// limit of AES-GCM for packets of any size.
    ///
    /// [`rekey_packets`]: crate::Config::rekey_packets
    pub(crate) sealed: u64,
    /// Number of forged packets received: the integrity limit of ChaCha20-Poly1305, which is the
    /// lower one.
    pub(crate) forged: u64,
}

impl Default for KeyLimits {
    fn default() -> Self {
        Self { sealed: 1 << 23, forged: 1 << 36 }
    }
}

/// A key has reached its usage limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum KeyLimitReached {
    #[error("{sealed} packets are sealed with one key, and no new key was agreed on")]
    Sealed { sealed: u64 },
    #[error("{forged} forged packets were received under one key")]
    Forged { forged: u64 },
}

/// The result of a completed handshake.
pub(crate) struct HandshakeKeys {
    pub(crate) cipher: PacketCipher,
    pub(crate) send: PacketKey,
    pub(crate) recv: PacketKey,
    /// The session's name, the same on both sides: 62 bits of the handshake hash.
    pub(crate) name: u64,
    /// The session's succession token, the same on both sides.
    pub(crate) token: u64,
    /// Chaining key: later keys are derived from it and from fresh secrets.
    pub(crate) chain: Secret,
}

/// The keys in use and the change in progress. Only the terminal offers, so offers never cross.
pub(crate) struct KeyPhases {
    terminal: bool,
    rng: ChaCha20Rng,
    cipher: PacketCipher,
    chain: Secret,
    send: PacketKey,
    send_generation: u64,
    limits: KeyLimits,
    /// Number of packets sealed with `send`.
    sealed: u64,
    recv: PacketKey,
    /// The newest generation in which a packet was received.
    recv_generation: u64,
    /// Number of packets since that generation began which no key could open.
    forged: u64,
    other: OtherPhaseKey,
    change: KeyChange,
}

/// The receiving key of the phase that is not current.
enum OtherPhaseKey {
    None,
    Next(PacketKey),
    /// For packets sent before the key change that arrive after it.
    Previous(PacketKey),
}

enum KeyChange {
    None,
    /// The terminal has offered its key share.
    Offered(Box<dyn Dh>),
    /// The hub has answered `theirs` with its own share, and switches to `send` as soon as the
    /// terminal switches.
    Answered {
        theirs: [u8; 32],
        send: Box<PacketKey>,
    },
    /// The terminal sends with the new key and waits for the hub to switch.
    Switched,
}

impl KeyPhases {
    pub(crate) fn new(keys: HandshakeKeys, terminal: bool, seed: &Secret) -> Self {
        Self {
            terminal,
            rng: ChaCha20Rng::from_seed(**seed),
            cipher: keys.cipher,
            chain: keys.chain,
            send: keys.send,
            send_generation: 0,
            limits: KeyLimits::default(),
            sealed: 0,
            recv: keys.recv,
            recv_generation: 0,
            forged: 0,
            other: OtherPhaseKey::None,
            change: KeyChange::None,
        }
    }

    /// Replaces the default usage limits.
    pub(crate) fn limited(self, limits: KeyLimits) -> Self {
        Self { limits, ..self }
    }

    /// Seals the last packet of `buf`, whose `header` carries [`Self::phase`].
    pub(crate) fn seal(&mut self, number: u64, header: Range<usize>, buf: &mut Vec<u8>) {
        self.sealed += 1;
        self.send.seal(number, header, buf);
    }

    /// Returns an error if a key has reached its usage limit.
    pub(crate) fn check(&self) -> Result<(), KeyLimitReached> {
        let Self { sealed, forged, limits, .. } = *self;
        if sealed >= limits.sealed {
            return Err(KeyLimitReached::Sealed { sealed });
        }
        if forged >= limits.forged { Err(KeyLimitReached::Forged { forged }) } else { Ok(()) }
    }

    /// Returns whether a key has reached half of a usage limit.
    pub(crate) fn are_due_for_renewal(&self) -> bool {
        self.sealed >= self.limits.sealed / 2 || self.forged >= self.limits.forged / 2
    }

    /// The key phase for outgoing packets.
    pub(crate) fn phase(&self) -> bool {
        self.send_generation % 2 == 1
    }

    /// Number of key renewals so far.
    pub(crate) fn generation(&self) -> u64 {
        self.recv_generation
    }

    /// Decrypts a packet; `None` if it is not authentic. The first packet of a new phase completes
    /// the change, after which [`Self::holds_previous`] is true.
    pub(crate) fn open<'a>(
        &mut self,
        header: &PacketHeader,
        number: u64,
        packet: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let frames = self.try_open(header, number, packet);
        self.forged += u64::from(frames.is_none());
        frames
    }

    fn try_open<'a>(
        &mut self,
        header: &PacketHeader,
        number: u64,
        packet: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        if header.phase == (self.recv_generation % 2 == 1) {
            return self.recv.open(number, header.len(), packet);
        }
        match &self.other {
            OtherPhaseKey::None => None,
            OtherPhaseKey::Previous(key) => key.open(number, header.len(), packet),
            OtherPhaseKey::Next(key) => {
                // A forged phase bit must change nothing: only an authentic packet completes the
                // change.
                let frames = key.open(number, header.len(), packet)?;
                self.complete();
                Some(frames)
            }
        }
    }

    /// Completes the change, because the peer uses the next key.
    fn complete(&mut self) {
        if let OtherPhaseKey::Next(next) = core::mem::replace(&mut self.other, OtherPhaseKey::None)
        {
            self.other = OtherPhaseKey::Previous(core::mem::replace(&mut self.recv, next));
            self.recv_generation += 1;
            self.forged = 0;
        }
        if let KeyChange::Answered { send, .. } =
            core::mem::replace(&mut self.change, KeyChange::None)
        {
            self.switch(*send, self.recv_generation);
        }
    }

    fn switch(&mut self, send: PacketKey, generation: u64) {
        self.send = send;
        self.send_generation = generation;
        // Usage limits hold for each key.
        self.sealed = 0;
    }

    /// Returns whether packets of the previous phase can still be opened.
    pub(crate) fn holds_previous(&self) -> bool {
        matches!(self.other, OtherPhaseKey::Previous(_))
    }

    /// Forgets the previous receiving key. After that, recorded packets of its phase cannot be
    /// decrypted here.
    pub(crate) fn drop_previous(&mut self) {
        if self.holds_previous() {
            self.other = OtherPhaseKey::None;
        }
    }

    /// Returns whether this side may offer new keys now.
    pub(crate) fn may_offer(&self) -> bool {
        // The phase bit distinguishes two generations, so the previous key must be gone first.
        self.terminal
            && matches!((&self.change, &self.other), (KeyChange::None, OtherPhaseKey::None))
    }

    /// Starts a key change, if [`Self::may_offer`].
    pub(crate) fn offer(&mut self) -> Option<Frame<'static>> {
        if !self.may_offer() {
            return None;
        }
        let dh = self.ephemeral();
        let key = public(dh.as_ref());
        self.change = KeyChange::Offered(dh);
        Some(Frame::Rekey { generation: self.recv_generation + 1, key })
    }

    /// Handles the peer's key share; returns the answer, if any.
    pub(crate) fn on_rekey(
        &mut self,
        generation: u64,
        key: [u8; 32],
    ) -> Result<Option<Frame<'static>>, RekeyError> {
        let present = self.recv_generation;
        // A repeated REKEY: control frames are sent again until acknowledged.
        if generation <= present {
            return Ok(None);
        }
        if generation != present + 1 {
            return Err(RekeyError::Generation { generation, present });
        }
        match core::mem::replace(&mut self.change, KeyChange::None) {
            KeyChange::None if !self.terminal => self.answer(generation, key).map(Some),
            // The terminal sends with the new key from here on, and the hub follows with its first
            // packet.
            KeyChange::Offered(ours) => {
                let [up, down] = self.derive(ours.as_ref(), &key, &public(ours.as_ref()), &key)?;
                self.switch(up, generation);
                self.other = OtherPhaseKey::Next(down);
                self.change = KeyChange::Switched;
                Ok(None)
            }
            KeyChange::Answered { theirs, .. } if theirs != key => {
                Err(RekeyError::Contradiction { generation })
            }
            KeyChange::None => Err(RekeyError::Generation { generation, present }),
            // A repeated REKEY of the change in progress.
            under_way => {
                self.change = under_way;
                Ok(None)
            }
        }
    }

    fn answer(&mut self, generation: u64, theirs: [u8; 32]) -> Result<Frame<'static>, RekeyError> {
        let ours = self.ephemeral();
        let key = public(ours.as_ref());
        let [up, down] = self.derive(ours.as_ref(), &theirs, &theirs, &key)?;
        // Either phase is accepted from here on, while sending stays in the old one.
        self.other = OtherPhaseKey::Next(up);
        self.change = KeyChange::Answered { theirs, send: Box::new(down) };
        Ok(Frame::Rekey { generation, key })
    }

    fn ephemeral(&mut self) -> Box<dyn Dh> {
        let mut dh = x25519();
        dh.set(&*draw(&mut self.rng));
        dh
    }

    /// Derives the next keys, terminal to hub and hub to terminal, from the exchange and the chain.
    /// `up` and `down` are the public keys of terminal and hub.
    fn derive(
        &mut self,
        ours: &dyn Dh,
        theirs: &[u8; 32],
        up: &[u8; 32],
        down: &[u8; 32],
    ) -> Result<[PacketKey; 2], RekeyError> {
        let mut secret = Secret::default();
        ours.dh(theirs, &mut *secret).map_err(|_| RekeyError::Degenerate)?;
        // A public key of small order would make the secret predictable (RFC 7748 §6.1).
        if *secret == [0; 32] {
            return Err(RekeyError::Degenerate);
        }
        let input = Zeroizing::new([*secret, *up, *down].concat());
        let [up, down, chain] = expand(&*self.chain, &input, b"SLACP keys");
        self.chain = chain;
        Ok([&up, &down].map(|key| PacketKey::new(self.cipher, key)))
    }
}

fn public(dh: &dyn Dh) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(dh.pubkey());
    key
}

/// Derives `N` secrets with HKDF-SHA256 (RFC 5869).
pub(crate) fn expand<const N: usize>(salt: &[u8], input: &[u8], info: &[u8]) -> [Secret; N] {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut out = Zeroizing::new([[0; 32]; N]);
    let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(input);
    pseudorandom
        .expand(&[info], Length(32 * N))
        .and_then(|material| material.fill(out.as_flattened_mut()))
        .expect("the length is below 255 hashes");
    core::array::from_fn(|n| Secret::new(out[n]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (KeyPhases, KeyPhases) {
        pair_with(KeyLimits::default())
    }

    fn pair_with(limits: KeyLimits) -> (KeyPhases, KeyPhases) {
        let key = |byte| PacketKey::new(PacketCipher::Aes256Gcm, &[byte; 32]);
        let keys = |send, recv| HandshakeKeys {
            cipher: PacketCipher::Aes256Gcm,
            send: key(send),
            recv: key(recv),
            name: 1,
            token: 2,
            chain: Secret::new([3; 32]),
        };
        (
            KeyPhases::new(keys(1, 2), true, &Secret::new([4; 32])).limited(limits),
            KeyPhases::new(keys(2, 1), false, &Secret::new([5; 32])).limited(limits),
        )
    }

    fn sealed(from: &mut KeyPhases, number: u64) -> (PacketHeader, Vec<u8>) {
        let header = PacketHeader { phase: from.phase(), ..PacketHeader::new(1, number, 0, false) };
        let mut packet = Vec::new();
        header.write(&mut packet);
        packet.extend_from_slice(b"frames");
        from.seal(number, 0..header.len(), &mut packet);
        (header, packet)
    }

    fn opens(to: &mut KeyPhases, number: u64, sealed: &(PacketHeader, Vec<u8>)) -> bool {
        to.open(&sealed.0, number, &mut sealed.1.clone()) == Some(&b"frames"[..])
    }

    fn half(frame: Option<Frame<'static>>) -> (u64, [u8; 32]) {
        match frame {
            Some(Frame::Rekey { generation, key }) => (generation, key),
            other => panic!("no half: {other:?}"),
        }
    }

    #[test]
    fn both_phases_are_open_while_the_keys_change() {
        let (mut terminal, mut hub) = pair();
        for generation in 1..10 {
            let old_up = sealed(&mut terminal, 10);
            let old_down = sealed(&mut hub, 11);
            let offer = half(terminal.offer());
            assert_eq!((offer.0, terminal.offer()), (generation, None));
            let answer = half(hub.on_rekey(offer.0, offer.1).unwrap());
            // Both shares may arrive again at any time.
            assert_eq!(hub.on_rekey(offer.0, offer.1), Ok(None));
            assert_eq!(hub.phase(), terminal.phase(), "nobody uses the new keys yet");
            assert_eq!(terminal.on_rekey(answer.0, answer.1), Ok(None));
            assert_eq!(terminal.on_rekey(answer.0, answer.1), Ok(None));
            let (new_up, late_down) = (sealed(&mut terminal, 12), sealed(&mut hub, 13));
            assert!(opens(&mut hub, 12, &new_up) && opens(&mut hub, 10, &old_up));
            assert!(opens(&mut terminal, 13, &late_down) && opens(&mut terminal, 11, &old_down));
            let new_down = sealed(&mut hub, 14);
            assert_ne!(new_down.0.phase, late_down.0.phase);
            assert!(opens(&mut terminal, 14, &new_down) && opens(&mut terminal, 13, &late_down));
            assert!(!terminal.may_offer(), "the previous key is still there");
            for side in [&mut terminal, &mut hub] {
                assert_eq!(side.generation(), generation);
                side.drop_previous();
            }
            assert!(!opens(&mut hub, 10, &old_up) && !opens(&mut terminal, 11, &old_down));
            assert_eq!(hub.on_rekey(offer.0, offer.1), Ok(None));
        }
    }

    #[test]
    fn senseless_offers_are_refused() {
        let (mut terminal, mut hub) = pair();
        let error = RekeyError::Generation { generation: 2, present: 0 };
        assert_eq!(hub.on_rekey(2, [9; 32]), Err(error));
        assert_eq!(hub.on_rekey(1, [0; 32]), Err(RekeyError::Degenerate));
        let error = RekeyError::Generation { generation: 1, present: 0 };
        assert_eq!(terminal.on_rekey(1, [9; 32]), Err(error), "nothing was offered");
        let (_, mut hub) = pair();
        assert!(hub.on_rekey(1, [9; 32]).is_ok());
        assert_eq!(hub.on_rekey(1, [8; 32]), Err(RekeyError::Contradiction { generation: 1 }));
    }

    #[test]
    fn a_key_wears_out_and_the_next_one_is_fresh() {
        let (mut terminal, mut hub) = pair_with(KeyLimits { sealed: 10, forged: 10 });
        for number in 0..9 {
            assert_eq!((terminal.are_due_for_renewal(), terminal.check()), (number >= 5, Ok(())));
            sealed(&mut terminal, number);
            let (header, mut packet) = sealed(&mut hub, 0);
            hub.switch(PacketKey::new(PacketCipher::Aes256Gcm, &[2; 32]), 0);
            packet[9] ^= 1;
            assert_eq!(terminal.open(&header, number, &mut packet), None);
        }
        sealed(&mut terminal, 9);
        assert_eq!(terminal.check(), Err(KeyLimitReached::Sealed { sealed: 10 }));
        let offer = half(terminal.offer());
        let answer = half(hub.on_rekey(offer.0, offer.1).unwrap());
        terminal.on_rekey(answer.0, answer.1).unwrap();
        assert_eq!((terminal.sealed, terminal.forged), (0, 9), "a key for each direction");
        let up = sealed(&mut terminal, 10);
        assert!(opens(&mut hub, 10, &up));
        let mut forged = sealed(&mut hub, 11);
        forged.1[9] ^= 1;
        assert!(!opens(&mut terminal, 11, &forged));
        assert_eq!(terminal.check(), Err(KeyLimitReached::Forged { forged: 10 }));
        let down = sealed(&mut hub, 12);
        assert!(opens(&mut terminal, 12, &down));
        assert_eq!((terminal.check(), terminal.forged), (Ok(()), 0));
    }

    #[test]
    fn the_limits_of_a_key_are_those_of_rfc_9001_for_packets_of_any_size() {
        let KeyLimits { sealed, forged } = KeyLimits::default();
        assert!(sealed <= 1 << 23 && forged <= 1 << 36, "{sealed}, {forged}");
        let config = crate::Config::new(units::BitRate::from_mbit(1));
        assert!(config.rekey_packets <= sealed / 2, "an honest peer never comes near");
    }

    #[test]
    fn a_corrupted_packet_of_the_next_phase_changes_nothing() {
        let (mut terminal, mut hub) = pair();
        let offer = half(terminal.offer());
        let answer = half(hub.on_rekey(offer.0, offer.1).unwrap());
        terminal.on_rekey(answer.0, answer.1).unwrap();
        let (header, packet) = sealed(&mut terminal, 12);
        for place in 0..packet.len() {
            let mut forged = packet.clone();
            forged[place] ^= 1;
            assert_eq!(hub.open(&header, 12, &mut forged), None);
        }
        assert_eq!(hub.generation(), 0);
    }
}
