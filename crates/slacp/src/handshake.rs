//! Setting up a session: Noise IK (`docs/slacp.md`, Session set-up).

use core::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use thiserror::Error;
use units::{BitRate, Instant};

use crate::crypto::PacketKey;
use crate::flow::Limits;
use crate::packet::{self, Index, VERSION};
use crate::{KeyPair, PublicKey, varint};

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: [u8; 6] = [b'S', b'L', b'A', b'C', b'P', VERSION];

/// How long the initiator waits for an answer before it asks again: at first,
/// and at most. Shorter than some RTTs, so the same message is sent again.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(5);
/// Pauses are longer by up to this, so that no periodic fault meets them all.
const RETRY_JITTER: Duration = Duration::from_millis(250);
/// After so many sendings a new message with a new ephemeral key is made.
const SENDINGS: u32 = 6;

/// What each side tells the other when a session is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Params {
    pub(crate) limits: Limits,
    /// What this side sends at most.
    pub(crate) rate: BitRate,
    /// The session that this side still has with the other.
    pub(crate) present: Option<u64>,
}

const MEMORY: u64 = 1;
const STREAM_WINDOW: u64 = 2;
const MAX_STREAMS: u64 = 3;
const RATE: u64 = 4;
const PRESENT: u64 = 5;

impl Params {
    /// Pairs of name and value; unknown names are skipped by the reader.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |name, value: u64| {
            varint::write(&mut out, name);
            varint::write(&mut out, value.min(varint::MAX));
        };
        put(MEMORY, self.limits.memory);
        put(STREAM_WINDOW, self.limits.stream_window);
        put(MAX_STREAMS, u64::from(self.limits.max_streams));
        put(RATE, self.rate.bits_per_second());
        if let Some(present) = self.present {
            put(PRESENT, present);
        }
        out
    }

    fn decode(mut input: &[u8]) -> Option<Self> {
        let (mut memory, mut window, mut streams, mut rate, mut present) = (0, 0, 0, 0, None);
        while !input.is_empty() {
            let (name, value) = (varint::read(&mut input)?, varint::read(&mut input)?);
            match name {
                MEMORY => memory = value,
                STREAM_WINDOW => window = value,
                MAX_STREAMS => streams = u32::try_from(value).unwrap_or(u32::MAX),
                RATE => rate = value,
                PRESENT => present = Some(value),
                _ => {}
            }
        }
        let limits = Limits::new(memory, window, streams);
        Some(Self { limits, rate: BitRate::from_bits_per_second(rate), present })
    }
}

/// Why a handshake datagram is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum HandshakeError {
    #[error("the message is not authentic: {0}")]
    Noise(#[from] snow::Error),
    #[error("the message is authentic but malformed")]
    Malformed,
}

/// What a completed handshake gives.
pub(crate) struct Keys {
    pub(crate) send: PacketKey,
    pub(crate) recv: PacketKey,
    /// Names the session, the same on both sides.
    pub(crate) name: u64,
}

fn keys(mut state: HandshakeState, initiator: bool) -> Keys {
    let name = state.get_handshake_hash()[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b)) >> 2;
    let (first, second) = state.dangerously_get_raw_split();
    let (send, recv) = if initiator { (first, second) } else { (second, first) };
    Keys { send: PacketKey::new(&send), recv: PacketKey::new(&recv), name }
}

/// The terminal's side of a handshake under way.
pub(crate) struct Initiator {
    state: HandshakeState,
    datagram: Vec<u8>,
    pub(crate) index: Index,
    sendings: u32,
    last_sending: Instant,
    next_sending: Instant,
    jitter: Duration,
}

impl Initiator {
    pub(crate) fn new(
        now: Instant,
        identity: &KeyPair,
        hub: PublicKey,
        index: Index,
        params: &Params,
        rng: &mut ChaCha20Rng,
    ) -> Self {
        let mut state = builder(identity, rng)
            .remote_public_key(&hub.0)
            .and_then(Builder::build_initiator)
            .expect("the keys have the right length");
        let mut message = [0; 512];
        let length = state
            .write_message(&params.encode(), &mut message)
            .expect("the message fits its buffer");
        let mut datagram = packet::initiation(index);
        datagram.extend_from_slice(&message[..length]);
        let jitter = RETRY_JITTER * (rng.next_u32() >> 16) / (1 << 16);
        Self { state, datagram, index, sendings: 0, last_sending: now, next_sending: now, jitter }
    }

    /// When [`Self::poll`] next gives something.
    pub(crate) fn due(&self) -> Instant {
        self.next_sending
    }

    /// When the message was last sent. The answer may be to an earlier sending,
    /// so the time since is at most the RTT.
    pub(crate) fn last_sent(&self) -> Instant {
        self.last_sending
    }

    /// Whether the message has been sent often enough without an answer.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.sendings >= SENDINGS && now >= self.next_sending
    }

    /// The datagram, if it is time to send it (again).
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        if now < self.next_sending {
            return None;
        }
        let wait = (RETRY_FIRST * 2u32.pow(self.sendings.min(8))).min(RETRY_MOST);
        self.sendings += 1;
        self.last_sending = now;
        self.next_sending = now + wait + self.jitter;
        Some(self.datagram.clone())
    }

    /// Reads the hub's answer. On an error the handshake goes on: the answer
    /// was not the hub's.
    pub(crate) fn answer(&mut self, body: &[u8]) -> Result<Params, HandshakeError> {
        let mut payload = [0; 512];
        if body.len() > payload.len() {
            return Err(HandshakeError::Malformed);
        }
        let length = self.state.read_message(body, &mut payload)?;
        Params::decode(&payload[..length]).ok_or(HandshakeError::Malformed)
    }

    /// The keys, after [`Self::answer`] has succeeded.
    pub(crate) fn into_keys(self) -> Keys {
        keys(self.state, true)
    }
}

/// The hub's side, after the first message and before its answer.
pub(crate) struct Responder {
    state: HandshakeState,
    pub(crate) peer: PublicKey,
    pub(crate) params: Params,
}

impl Responder {
    /// Reads a first message. Costs two Diffie–Hellman operations and keeps
    /// nothing.
    pub(crate) fn read(
        identity: &KeyPair,
        body: &[u8],
        rng: &mut ChaCha20Rng,
    ) -> Result<Self, HandshakeError> {
        let mut state =
            builder(identity, rng).build_responder().expect("the key has the right length");
        let mut payload = [0; 512];
        if body.len() > payload.len() {
            return Err(HandshakeError::Malformed);
        }
        let length = state.read_message(body, &mut payload)?;
        let params = Params::decode(&payload[..length]).ok_or(HandshakeError::Malformed)?;
        let mut peer = [0; 32];
        let key = state.get_remote_static().filter(|key| key.len() == peer.len());
        peer.copy_from_slice(key.ok_or(HandshakeError::Malformed)?);
        Ok(Self { state, peer: PublicKey(peer), params })
    }

    /// The answer, and the keys of the session.
    pub(crate) fn answer(
        mut self,
        index: Index,
        peer_index: Index,
        params: &Params,
    ) -> (Vec<u8>, Keys) {
        let mut message = [0; 512];
        let length = self
            .state
            .write_message(&params.encode(), &mut message)
            .expect("the message fits its buffer");
        let mut datagram = packet::response(index, peer_index);
        datagram.extend_from_slice(&message[..length]);
        (datagram, keys(self.state, false))
    }
}

fn builder<'a>(identity: &'a KeyPair, rng: &mut ChaCha20Rng) -> Builder<'a> {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    let pattern = PATTERN.parse().expect("the pattern is one that snow knows");
    Builder::with_resolver(pattern, Box::new(SeededResolver { seed }))
        .prologue(&PROLOGUE)
        .and_then(|builder| builder.local_private_key(identity.private()))
        .expect("each is set once")
}

/// The default primitives, with random numbers from a seed.
struct SeededResolver {
    seed: [u8; 32],
}

impl CryptoResolver for SeededResolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(ChaCha20Rng::from_seed(self.seed))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct SeededRandom(ChaCha20Rng);

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(present: Option<u64>) -> Params {
        Params { limits: Limits::new(1000, 500, 7), rate: BitRate::from_mbit(3), present }
    }

    fn identity(seed: u8) -> KeyPair {
        KeyPair::from_private([seed; 32])
    }

    /// Of terminal 2, to hub 3.
    fn initiator(rng: &mut ChaCha20Rng) -> Initiator {
        let hub = identity(3).public();
        Initiator::new(Instant::ZERO, &identity(2), hub, 7, &params(None), rng)
    }

    #[test]
    fn both_sides_learn_each_other_and_share_keys() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let (terminal, hub) = (identity(2), identity(3));
        let mut initiator =
            Initiator::new(Instant::ZERO, &terminal, hub.public(), 7, &params(Some(5)), &mut rng);
        let first = initiator.poll(Instant::ZERO).unwrap();
        let responder = Responder::read(&hub, &first[4..], &mut rng).unwrap();
        assert_eq!(responder.peer, terminal.public());
        assert_eq!(responder.params, params(Some(5)));
        let (second, hub_keys) = responder.answer(9, 7, &params(None));

        let mut forged = second[6..].to_vec();
        forged[3] ^= 1;
        assert!(initiator.answer(&forged).is_err());
        assert_eq!(initiator.answer(&second[6..]).unwrap(), params(None));
        let keys = initiator.into_keys();
        assert_eq!(keys.name, hub_keys.name);
        let mut packet = b"hdata".to_vec();
        keys.send.seal(0, 1, &mut packet);
        assert_eq!(hub_keys.recv.open(0, 1, &mut packet.clone()), Some(&b"data"[..]));
        assert_eq!(hub_keys.send.open(0, 1, &mut packet), None);
    }

    #[test]
    fn the_wrong_hub_cannot_read_the_first_message() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let mut initiator = initiator(&mut rng);
        let first = initiator.poll(Instant::ZERO).unwrap();
        assert!(Responder::read(&identity(4), &first[4..], &mut rng).is_err());
        for length in 0..first.len() - 4 {
            assert!(Responder::read(&identity(3), &first[4..4 + length], &mut rng).is_err());
        }
    }

    #[test]
    fn the_message_is_sent_again_with_growing_pauses() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let mut initiator = initiator(&mut rng);
        let mut at = Vec::new();
        while !initiator.is_stale(initiator.due()) {
            at.push(initiator.due().saturating_since(Instant::ZERO));
            assert!(initiator.poll(initiator.due()).is_some());
        }
        let pauses: Vec<u64> = at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
    }
}
