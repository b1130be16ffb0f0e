//! The handshake: Noise IK (`docs/slacp.md`, Session set-up).

pub(crate) mod knock;

use core::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{self, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use thiserror::Error;
use units::{BitRate, Instant};
use zeroize::Zeroizing;

use self::knock::KnockKey;
use crate::keys::crypto::{PacketCipher, PacketKey};
use crate::keys::phases::{HandshakeKeys, expand};
use crate::keys::secret::{self, Secret, WipedBox, draw};
use crate::recovery::jitter;
use crate::recovery::path::rtt::FirstRtt;
use crate::streams::flow::PeerLimits;
use crate::wire::open::OpeningFeatures;
use crate::wire::packet::{self, INITIATION_BODY, INITIATION_COOKIE, Index, MAC, Mac, VERSION};
use crate::wire::varint;
use crate::{KeyPair, PublicKey};

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";

/// The Noise prologue, which both sides must agree on. It includes the cookie, so the handshake
/// authenticates it: an old initiation cannot be replayed with a new cookie.
fn prologue(cookie: &Mac) -> Vec<u8> {
    let mut out = b"SLACP".to_vec();
    out.push(VERSION);
    out.extend_from_slice(cookie);
    out
}

/// First and maximum retransmission interval of an initiation. Some RTTs are longer, so the same
/// message is sent again and an answer to any copy is valid.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(5);
/// Jitter: intervals are longer by up to this fraction, so that no periodic fault hits them all and
/// terminals that start together drift apart.
const JITTER_DIVISOR: u32 = 4;
/// Transmissions of a message before a new one with a new ephemeral key is made.
const MAX_TRANSMISSIONS: u32 = 6;
/// Number of cookie requests honoured within these transmissions.
const MAX_COOKIES: u32 = 3;

/// The parameters of one side in the handshake (`docs/slacp.md`, Parameters).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandshakeParams {
    pub(crate) limits: PeerLimits,
    /// Maximum sending rate of this side.
    pub(crate) rate: BitRate,
    /// Name of the session that this side still has with the other.
    pub(crate) present: Option<u64>,
    /// `Some(true)` if this side wants arrival times, `Some(false)` if it only provides them,
    /// `None` if it does not support them.
    pub(crate) times: Option<bool>,
    /// AES-256-GCM is fast on this side.
    pub(crate) aes: bool,
    /// This side reports the ECN codepoints it receives.
    pub(crate) ecn: bool,
    /// This side runs SLACP as a link layer ([`Config::link_layer`]).
    ///
    /// [`Config::link_layer`]: crate::Config::link_layer
    pub(crate) link_layer: bool,
    /// This side understands LEAVING, the announcement of a stop.
    pub(crate) leaving: bool,
    /// This side understands SUCCESSOR, the announcement that another process takes over.
    pub(crate) successor: bool,
    /// From a terminal with several links: the number of this one. From a hub that allows several:
    /// the number of links that it knows.
    pub(crate) links: Option<u64>,
    /// Name of the session that this handshake adds a link to.
    pub(crate) join: Option<u64>,
    /// The succession token of the terminal's session with the process before the hub.
    pub(crate) succeeds: Option<u64>,
    /// From a terminal that can translate its packets to an address of the hub's: 1. From a hub: that
    /// address, as a number.
    pub(crate) address: Option<u64>,
}

/// A parameter of the other side must be understood and is unknown here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("parameter {parameter} must be understood and is unknown")]
pub(crate) struct UnsupportedParameter {
    pub(crate) parameter: u64,
}

/// Parameters with this bit must be understood; others may be skipped.
const MANDATORY: u64 = 0x20;

const MEMORY: u64 = 1;
const STREAM_WINDOW: u64 = 2;
const MAX_STREAMS: u64 = 3;
const RATE: u64 = 4;
const PRESENT: u64 = 5;
/// The only parameter of a refusal: the number of the one that was not understood.
const REFUSED: u64 = 6;
const TIMES: u64 = 7;
const CHANNELS: u64 = 8;
const AES: u64 = 9;
const OPENINGS: u64 = 10;
/// Supported announcements of a stop: the sum of 1 for LEAVING and 2 for SUCCESSOR.
const FAREWELLS: u64 = 12;
const ECN: u64 = 13;
const LINK_LAYER: u64 = 16;
const CONTEXTS: u64 = 17;
const DECOMPRESSORS: u64 = 18;
const LINKS: u64 = 19;
const JOIN: u64 = 20;
const DICTIONARY: u64 = 21;
/// Replaces [`CONTEXTS`] on one of several links: a peer that numbers contexts for all links
/// together must not send any.
const LINK_CONTEXTS: u64 = 22;
const SUCCEEDS: u64 = 23;
const ADDRESS: u64 = 24;

impl HandshakeParams {
    /// The cipher of a session with `peer`: AES only if it is fast on both sides.
    pub(crate) fn cipher(&self, peer: &Self) -> PacketCipher {
        // Gateways at remote sites often lack the instructions that make AES the faster one.
        if self.aes && peer.aes { PacketCipher::Aes256Gcm } else { PacketCipher::ChaCha20Poly1305 }
    }

    /// Encodes the parameters as pairs of number and value. A reader skips unknown numbers.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |name, value: u64| {
            varint::write(&mut out, name);
            varint::write(&mut out, value.min(varint::MAX));
        };
        put(MEMORY, self.limits.memory);
        put(STREAM_WINDOW, self.limits.stream_window);
        put(MAX_STREAMS, u64::from(self.limits.max_streams));
        put(CHANNELS, u64::from(self.limits.channels));
        put(OPENINGS, self.limits.openings.0);
        put(RATE, self.rate.bits_per_second());
        if let Some(present) = self.present {
            put(PRESENT, present);
        }
        if let Some(wanted) = self.times {
            put(TIMES, u64::from(wanted));
        }
        if self.aes {
            put(AES, 1);
        }
        if self.ecn {
            put(ECN, 1);
        }
        if self.link_layer {
            put(LINK_LAYER, 1);
        }
        if self.leaving || self.successor {
            put(FAREWELLS, u64::from(self.leaving) | u64::from(self.successor) << 1);
        }
        if self.limits.contexts > 0 {
            let name = if self.links.is_some() { LINK_CONTEXTS } else { CONTEXTS };
            put(name, u64::from(self.limits.contexts));
        }
        if self.limits.decompressors > 0 {
            put(DECOMPRESSORS, u64::from(self.limits.decompressors));
        }
        if self.limits.dictionary {
            put(DICTIONARY, 1);
        }
        if let Some(links) = self.links {
            put(LINKS, links);
        }
        if let Some(session) = self.join {
            put(JOIN, session);
        }
        if let Some(token) = self.succeeds {
            put(SUCCEEDS, token);
        }
        if let Some(address) = self.address {
            put(ADDRESS, address);
        }
        out
    }

    /// A peer that sends no parameters: it has no memory for streams, and no options.
    fn without_any() -> Self {
        Self {
            limits: PeerLimits::new(0, 0, 0),
            rate: BitRate::from_bits_per_second(0),
            present: None,
            times: None,
            aes: false,
            ecn: false,
            link_layer: false,
            leaving: false,
            successor: false,
            links: None,
            join: None,
            succeeds: None,
            address: None,
        }
    }

    fn decode(mut input: &[u8]) -> Result<Self, HandshakeError> {
        let mut params = Self::without_any();
        while !input.is_empty() {
            let mut number = || varint::read(&mut input).ok_or(HandshakeError::Malformed);
            let name = number()?;
            let value = number()?;
            params.set(name, value)?;
        }
        // The order of parameters is free, so the bound waits for both.
        let limits = &mut params.limits;
        limits.stream_window = limits.stream_window.min(limits.memory);
        Ok(params)
    }

    /// Sets one parameter of the peer.
    fn set(&mut self, name: u64, value: u64) -> Result<(), HandshakeError> {
        let limits = &mut self.limits;
        match name {
            MEMORY => limits.memory = value,
            STREAM_WINDOW => limits.stream_window = value,
            MAX_STREAMS => limits.max_streams = u32::try_from(value).unwrap_or(u32::MAX),
            RATE => self.rate = BitRate::from_bits_per_second(value),
            // Higher bits stand for channels that this version does not have.
            CHANNELS => limits.channels = value as u32,
            CONTEXTS | LINK_CONTEXTS => limits.contexts = at_most_u16(value),
            DECOMPRESSORS => limits.decompressors = at_most_u16(value),
            DICTIONARY => limits.dictionary = value == 1,
            OPENINGS => limits.openings = OpeningFeatures(value),
            PRESENT => self.present = Some(value),
            TIMES => self.times = Some(value == 1),
            AES => self.aes = value == 1,
            ECN => self.ecn = value == 1,
            LINK_LAYER => self.link_layer = value == 1,
            FAREWELLS => (self.leaving, self.successor) = (value & 1 != 0, value & 2 != 0),
            LINKS => self.links = Some(value),
            JOIN => self.join = Some(value),
            SUCCEEDS => self.succeeds = Some(value),
            ADDRESS => self.address = Some(value),
            REFUSED => return Err(HandshakeError::Refused { parameter: value }),
            _ if name & MANDATORY != 0 => {
                return Err(UnsupportedParameter { parameter: name }.into());
            }
            _ => {}
        }
        Ok(())
    }
}

fn at_most_u16(value: u64) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Reasons to reject a handshake datagram.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum HandshakeError {
    #[error("the message is not authentic: {0}")]
    Noise(#[from] snow::Error),
    #[error("the message is authentic but malformed")]
    Malformed,
    #[error(transparent)]
    Unsupported(#[from] UnsupportedParameter),
    #[error("the hub does not know parameter {parameter}")]
    Refused { parameter: u64 },
}

impl HandshakeError {
    /// Returns `true` if the message is authentic and the two sides cannot work together.
    pub(crate) fn is_incompatible(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Unsupported(_))
    }
}

/// Derives the session's name and keys from a completed handshake.
fn keys(
    mut state: WipedBox<HandshakeState>,
    initiator: bool,
    cipher: PacketCipher,
) -> HandshakeKeys {
    let name = first_62_bits(state.get_handshake_hash());
    let hash = state.get_handshake_hash().to_vec();
    let (first, second) = state.dangerously_get_raw_split();
    let first = Secret::new(first);
    let second = Secret::new(second);
    let both = Zeroizing::new([*first, *second].concat());
    let [chain] = expand(&hash, &both, b"SLACP chain");
    let [token] = expand(&*chain, &[], b"SLACP succession");
    let token = first_62_bits(&*token);
    // Noise's split gives the initiator's sending key first.
    let (send, recv) = if initiator { (first, second) } else { (second, first) };
    let [send, recv] = [&send, &recv].map(|key| PacketKey::new(cipher, key));
    HandshakeKeys { cipher, send, recv, name, token, chain }
}

/// The largest number that a varint holds has 62 bits.
fn first_62_bits(secret: &[u8]) -> u64 {
    secret[..8].iter().fold(0, |n, b| n << 8 | u64::from(*b)) >> 2
}

/// The terminal's side of a handshake in progress.
pub(crate) struct Initiator {
    state: WipedBox<HandshakeState>,
    datagram: Vec<u8>,
    knock: Mac,
    pub(crate) index: Index,
    transmissions: u32,
    max_transmissions: u32,
    cookies: u32,
    /// Time of the first transmission of this message, and the number of its transmissions.
    first_sending: Instant,
    copies: u32,
    next_sending: Instant,
    /// Jitter of a one-second interval; longer intervals have as much more.
    jitter: Duration,
}

impl Initiator {
    pub(crate) fn new(
        now: Instant,
        identity: &KeyPair,
        hub: &KnockKey,
        index: Index,
        params: &HandshakeParams,
        rng: &mut ChaCha20Rng,
    ) -> Self {
        // The cookie is zero until the hub asks for one.
        let message =
            InitiationMessage::new(identity, hub, index, &params.encode(), &[0; MAC], rng);
        let InitiationMessage { state, datagram, knock } = message;
        // Drawn once: each pause is longer by the same random fraction.
        let longer = jitter::part_of(Duration::from_secs(1) / JITTER_DIVISOR, rng);
        Self {
            state,
            datagram,
            knock,
            index,
            transmissions: 0,
            max_transmissions: MAX_TRANSMISSIONS,
            cookies: 0,
            first_sending: now,
            copies: 0,
            next_sending: now,
            jitter: longer,
        }
    }

    /// Returns whether a short answer from the hub belongs to this message.
    pub(crate) fn is_answered_by(&self, hub: &KnockKey, answer: &[u8]) -> bool {
        hub.is_answer(answer, Some(&self.knock))
    }

    /// Rebuilds the message with a cookie from the hub, to be sent at once, unless the hub has
    /// asked several times already. The hub has answered, so the intervals restart.
    pub(crate) fn take_cookie(
        &mut self,
        now: Instant,
        identity: &KeyPair,
        hub: &KnockKey,
        params: &HandshakeParams,
        cookie: &Mac,
        rng: &mut ChaCha20Rng,
    ) {
        if self.cookies >= MAX_COOKIES {
            return;
        }
        let message =
            InitiationMessage::new(identity, hub, self.index, &params.encode(), cookie, rng);
        InitiationMessage { state: self.state, datagram: self.datagram, knock: self.knock } =
            message;
        self.cookies += 1;
        // The pauses restart: terminals that start together are up sooner (`docs/decisions.md`).
        self.copies = 0;
        self.next_sending = now;
    }

    /// The time at which [`Self::poll`] returns the message next.
    pub(crate) fn due(&self) -> Instant {
        self.next_sending
    }

    /// Limits the transmissions until the message is stale.
    pub(crate) fn send_at_most(&mut self, times: u32) {
        self.max_transmissions = times;
    }

    /// Makes [`Self::poll`] return the message at once.
    pub(crate) fn send_now(&mut self, now: Instant) {
        self.next_sending = self.next_sending.min(now);
    }

    /// The RTT, or its bound, that an answer arriving `now` implies.
    pub(crate) fn first_rtt(&self, now: Instant) -> FirstRtt {
        FirstRtt::new(now.saturating_since(self.first_sending), self.copies)
    }

    /// Returns whether the message was sent at least `times` times and the next transmission is
    /// due.
    pub(crate) fn was_sent(&self, now: Instant, times: u32) -> bool {
        self.transmissions >= times && now >= self.next_sending
    }

    /// Returns whether all transmissions of the message have remained unanswered.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.transmissions >= self.max_transmissions && now >= self.next_sending
    }

    /// Returns the datagram if it is due, and schedules the next transmission.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        if now < self.next_sending {
            return None;
        }
        let wait = (RETRY_FIRST * 2u32.pow(self.copies.min(8))).min(RETRY_MOST);
        self.transmissions += 1;
        // A message with a new cookie has an RTT measurement of its own.
        if self.copies == 0 {
            self.first_sending = now;
        }
        self.copies += 1;
        self.next_sending = now + wait + self.jitter.mul_f64(wait.as_secs_f64());
        Some(self.datagram.clone())
    }

    /// Reads the hub's answer. After [`HandshakeError::Noise`] the handshake goes on, because the
    /// answer was not from the hub.
    pub(crate) fn answer(&mut self, body: &[u8]) -> Result<HandshakeParams, HandshakeError> {
        // A Noise message has at most 512 bytes (`docs/slacp.md`, Session set-up).
        let mut payload = [0; 512];
        if body.len() > payload.len() {
            return Err(HandshakeError::Malformed);
        }
        let length = self.state.read_message(body, &mut payload)?;
        HandshakeParams::decode(&payload[..length])
    }

    /// Derives the session's keys, after [`Self::answer`] has succeeded.
    pub(crate) fn into_keys(self, cipher: PacketCipher) -> HandshakeKeys {
        keys(self.state, true, cipher)
    }
}

/// An initiation and the Noise state that belongs to it.
pub(crate) struct InitiationMessage {
    state: WipedBox<HandshakeState>,
    pub(crate) datagram: Vec<u8>,
    knock: Mac,
}

impl InitiationMessage {
    pub(crate) fn new(
        identity: &KeyPair,
        hub: &KnockKey,
        index: Index,
        params: &[u8],
        cookie: &Mac,
        rng: &mut ChaCha20Rng,
    ) -> Self {
        let prologue = prologue(cookie);
        let mut state = builder(identity, &prologue, rng)
            .remote_public_key(&hub.hub.0)
            .and_then(Builder::build_initiator)
            .map(WipedBox::new)
            .expect("the keys have the right length");
        let mut message = [0; 512];
        let length =
            state.write_message(params, &mut message).expect("the message fits its buffer");
        let mut datagram = packet::initiation(index, cookie);
        datagram.extend_from_slice(&message[..length]);
        let knock = hub.seal(&mut datagram);
        Self { state, datagram, knock }
    }
}

/// The hub's side, between the initiation and its answer.
pub(crate) struct Responder {
    state: WipedBox<HandshakeState>,
    pub(crate) peer: PublicKey,
    pub(crate) params: Result<HandshakeParams, UnsupportedParameter>,
}

impl Responder {
    /// Reads an initiation whose knock has been checked. Takes two Diffie–Hellman operations and
    /// keeps no state.
    pub(crate) fn read(
        identity: &KeyPair,
        initiation: &[u8],
        rng: &mut ChaCha20Rng,
    ) -> Result<Self, HandshakeError> {
        let cookie = cookie_of(initiation).ok_or(HandshakeError::Malformed)?;
        let body = &initiation[INITIATION_BODY..initiation.len() - MAC];
        let prologue = prologue(cookie);
        let mut state = builder(identity, &prologue, rng)
            .build_responder()
            .map(WipedBox::new)
            .expect("the key has the right length");
        let mut payload = [0; 512];
        if body.len() > payload.len() {
            return Err(HandshakeError::Malformed);
        }
        let length = state.read_message(body, &mut payload)?;
        let params = match HandshakeParams::decode(&payload[..length]) {
            // Authentic, so the hub answers with a refusal, for which it needs the state.
            Err(HandshakeError::Unsupported(unsupported)) => Err(unsupported),
            params => Ok(params?),
        };
        let mut peer = [0; 32];
        let key = state.get_remote_static().filter(|key| key.len() == peer.len());
        peer.copy_from_slice(key.ok_or(HandshakeError::Malformed)?);
        Ok(Self { state, peer: PublicKey(peer), params })
    }

    /// Builds the answer, and the keys of the session with this `cipher`.
    pub(crate) fn answer(
        self,
        index: Index,
        peer_index: Index,
        params: &HandshakeParams,
        cipher: PacketCipher,
    ) -> (Vec<u8>, HandshakeKeys) {
        let (datagram, state) = self.respond(packet::response(index, peer_index), &params.encode());
        (datagram, keys(state, false, cipher))
    }

    /// Builds the refusal of an initiation with a required parameter that is unknown here. Keeps no
    /// state.
    pub(crate) fn refusal(self, peer_index: Index, unsupported: UnsupportedParameter) -> Vec<u8> {
        let mut payload = Vec::new();
        varint::write(&mut payload, REFUSED);
        varint::write(&mut payload, unsupported.parameter);
        // Index 0 marks an answer that sets up no session.
        self.respond(packet::response(packet::NO_INDEX, peer_index), &payload).0
    }

    fn respond(
        mut self,
        mut datagram: Vec<u8>,
        payload: &[u8],
    ) -> (Vec<u8>, WipedBox<HandshakeState>) {
        let mut message = [0; 512];
        let length =
            self.state.write_message(payload, &mut message).expect("the message fits its buffer");
        datagram.extend_from_slice(&message[..length]);
        (datagram, self.state)
    }
}

/// The cookie field of an initiation, all zero without a cookie; `None` if the initiation is too
/// short.
pub(crate) fn cookie_of(initiation: &[u8]) -> Option<&Mac> {
    let long_enough = initiation.len() >= INITIATION_BODY + MAC;
    long_enough.then(|| initiation[INITIATION_COOKIE].first_chunk()).flatten()
}

/// A Noise builder with this side's static key, seeded random numbers, and keys that are wiped.
pub(crate) fn builder<'a>(
    identity: &'a KeyPair,
    prologue: &'a [u8],
    rng: &mut ChaCha20Rng,
) -> Builder<'a> {
    let seed = draw(rng);
    let pattern = PATTERN.parse().expect("the pattern is one that snow knows");
    Builder::with_resolver(pattern, Box::new(SeededResolver { seed }))
        .prologue(prologue)
        .and_then(|builder| builder.local_private_key(identity.private()))
        .expect("each is set once")
}

/// snow's default primitives, but with random numbers from a seed and keys that are wiped.
struct SeededResolver {
    seed: Secret,
}

impl CryptoResolver for SeededResolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(WipedBox::new(ChaCha20Rng::from_seed(*self.seed)))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        (*choice == DHChoice::Curve25519).then(secret::x25519)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn types::Cipher>> {
        secret::cipher(choice)
    }
}

struct SeededRandom(WipedBox<ChaCha20Rng>);

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
