//! A session that was set up according to the protocol, by a side that then seals any content.

use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use units::{BitRate, Instant, RangeSet};

use super::Choices;
use crate::keys::handshake::knock::KnockKey;
use crate::keys::handshake::{HandshakeParams, Initiator, Responder};
use crate::keys::phases::HandshakeKeys;
use crate::keys::phases::KeyPhases;
use crate::keys::secret::draw;
use crate::streams::flow::PeerLimits;
use crate::wire::open::OpeningFeatures;
use crate::wire::packet::{self, Datagram, Index, PacketHeader};
use crate::{KeyPair, PublicKey};

/// Makes authentic packets with any content and number.
pub(super) struct PacketForger {
    pub(super) phases: KeyPhases,
    /// The name of its session.
    pub(super) name: u64,
    /// The index of the session in packets of the other side.
    pub(super) index: Index,
    peer_index: Index,
    /// The limits that the other side has announced.
    pub(super) allowed: PeerLimits,
    /// One more than the highest number sealed.
    pub(super) sealed_end: u64,
    /// Numbers of the packets received from the other side.
    pub(super) received: RangeSet,
}

impl PacketForger {
    fn new(
        keys: HandshakeKeys,
        terminal: bool,
        index: Index,
        peer_index: Index,
        allowed: PeerLimits,
        rng: &mut ChaCha20Rng,
    ) -> Self {
        let name = keys.name;
        let phases = KeyPhases::new(keys, terminal, &draw(rng));
        let heard = RangeSet::default();
        Self { phases, name, index, peer_index, allowed, sealed_end: 0, received: heard }
    }

    /// Seals a packet. The receiver completes its number correctly if it is within 2³¹ of the
    /// highest one received there.
    pub(super) fn seal(&mut self, number: u64, source: bool, frames: &[u8]) -> Vec<u8> {
        let header = PacketHeader {
            receiver: self.peer_index,
            truncated: number & u64::from(u32::MAX),
            number_len: 4,
            source,
            phase: self.phases.phase(),
        };
        let mut out = Vec::with_capacity(frames.len() + PacketHeader::MAX_LEN + packet::TAG);
        header.write(&mut out);
        out.extend_from_slice(frames);
        self.phases.seal(number, 0..header.len(), &mut out);
        self.sealed_end = self.sealed_end.max(number + 1);
        out
    }

    /// Opens a packet of the other side and returns its frames.
    pub(super) fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let Some(Datagram::Data(header)) = packet::parse(datagram) else { return None };
        if header.receiver != self.index {
            return None;
        }
        let number = header.number(self.received_end());
        let frames = self.phases.open(&header, number, datagram)?;
        self.received.insert_one(number);
        Some(frames)
    }

    /// One more than the highest number of the other side's packets.
    pub(super) fn received_end(&self) -> u64 {
        self.received.last().map_or(0, |range| range.end)
    }
}

/// A terminal's handshake under way.
pub(super) struct HandshakeAttempt {
    /// Index of the adversary's key.
    pub(super) key: usize,
    pub(super) home: SocketAddr,
    identity: KeyPair,
    knock_key: KnockKey,
    params: HandshakeParams,
    rng: ChaCha20Rng,
    initiator: Initiator,
}

impl HandshakeAttempt {
    /// Begins a handshake with arbitrary parameters, perhaps for another link of the session
    /// `joined`.
    pub(super) fn new(
        now: Instant,
        (key, home): (usize, SocketAddr),
        (identity, hub): (KeyPair, PublicKey),
        joined: Option<u64>,
        choices: &mut Choices,
    ) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(choices.bits(64));
        let (mut params, index) = (arbitrary_params(choices), choices.bits(16) as Index);
        if let Some(name) = joined.filter(|_| choices.one_in(2)) {
            (params.links, params.join) = (Some(choices.below(5)), Some(name));
        }
        let knock_key = KnockKey::new(hub);
        let initiator = Initiator::new(now, &identity, &knock_key, index, &params, &mut rng);
        Self { key, home, identity, knock_key, params, rng, initiator }
    }

    /// The initiation.
    pub(super) fn datagram(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.initiator.send_now(now);
        self.initiator.poll(now)
    }

    /// Takes an answer of the hub. Returns `true` if it asks for the initiation again.
    pub(super) fn takes_cookie(&mut self, now: Instant, datagram: &[u8]) -> bool {
        let Some(Datagram::Cookie { receiver, cookie }) = packet::parse(datagram) else {
            return false;
        };
        let asked = receiver == self.initiator.index
            && self.initiator.is_answered_by(&self.knock_key, datagram);
        if asked {
            let Self { identity, knock_key, params, rng, initiator, .. } = self;
            initiator.take_cookie(now, identity, knock_key, params, &cookie, rng);
        }
        asked
    }

    /// The session, if this is the hub's answer.
    pub(super) fn complete(
        mut self: Box<Self>,
        datagram: &[u8],
    ) -> Result<PacketForger, Box<Self>> {
        let Some(Datagram::Response { sender, receiver, body }) = packet::parse(datagram) else {
            return Err(self);
        };
        if receiver != self.initiator.index {
            return Err(self);
        }
        let Ok(theirs) = self.initiator.answer(&datagram[body..]) else { return Err(self) };
        let keys = self.initiator.into_keys(theirs.cipher(&self.params));
        Ok(PacketForger::new(keys, true, receiver, sender, theirs.limits, &mut self.rng))
    }
}

/// A hub's answer to an initiation, and the session that it sets up.
pub(super) fn respond(
    identity: &KeyPair,
    initiation: &[u8],
    choices: &mut Choices,
) -> Option<(Vec<u8>, PacketForger)> {
    let Some(Datagram::Initiation { sender }) = packet::parse(initiation) else { return None };
    let mut rng = ChaCha20Rng::seed_from_u64(choices.bits(64));
    let responder = Responder::read(identity, initiation, &mut rng).ok()?;
    let theirs = responder.params.ok()?;
    let (ours, index) = (arbitrary_params(choices), choices.bits(16) as Index);
    let (answer, keys) = responder.answer(index, sender, &ours, ours.cipher(&theirs));
    Some((answer, PacketForger::new(keys, false, index, sender, theirs.limits, &mut rng)))
}

/// Arbitrary parameters, most of them generous.
fn arbitrary_params(choices: &mut Choices) -> HandshakeParams {
    let mut amount = |usual| if choices.one_in(4) { choices.extreme() } else { usual };
    let (memory, window) = (amount(1 << 40), amount(1 << 28));
    let (streams, channels) = (amount(1 << 16) as u32, amount(u64::MAX) as u32);
    let (openings, rate) = (OpeningFeatures(amount(3)), amount(10_000_000));
    let contexts = amount(256) as u16;
    let limits =
        PeerLimits { channels, contexts, openings, ..PeerLimits::new(memory, window, streams) };
    let times = if choices.one_in(3) { None } else { Some(choices.one_in(2)) };
    let present = choices.one_in(4).then(|| choices.extreme());
    let rate = BitRate::from_bits_per_second(rate);
    let ecn = choices.one_in(2);
    let links = choices.one_in(4).then(|| choices.below(6));
    let join = choices.one_in(16).then(|| choices.extreme());
    let (aes, link_layer, leaving, successor) = (true, true, true, true);
    let succeeds = choices.one_in(16).then(|| choices.extreme());
    let address = choices.one_in(16).then(|| choices.extreme());
    HandshakeParams {
        limits,
        rate,
        present,
        times,
        aes,
        ecn,
        link_layer,
        leaving,
        successor,
        links,
        join,
        succeeds,
        address,
    }
}
