//! A session that was set up according to the protocol, by a side that then seals any content.

use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use units::{BitRate, Instant, RangeSet};

use super::Choices;
use crate::handshake::knock::KnockKey;
use crate::handshake::{Initiator, Params, Responder};
use crate::keys::phases::Keys;
use crate::keys::phases::Phases;
use crate::keys::secret::draw;
use crate::streams::flow::Limits;
use crate::wire::open::Openings;
use crate::wire::packet::{self, Datagram, Header, Index};
use crate::{KeyPair, PublicKey};

/// Makes authentic packets with any content and number.
pub(super) struct Forger {
    pub(super) phases: Phases,
    /// The name of its session.
    pub(super) name: u64,
    /// The index of the session in packets of the other side.
    pub(super) index: Index,
    peer_index: Index,
    /// The limits that the other side has announced.
    pub(super) allowed: Limits,
    /// One more than the highest number sealed.
    pub(super) sealed_end: u64,
    /// Numbers of the packets received from the other side.
    pub(super) heard: RangeSet,
}

impl Forger {
    fn new(
        keys: Keys,
        terminal: bool,
        index: Index,
        peer_index: Index,
        allowed: Limits,
        rng: &mut ChaCha20Rng,
    ) -> Self {
        let name = keys.name;
        let phases = Phases::new(keys, terminal, &draw(rng));
        let heard = RangeSet::default();
        Self { phases, name, index, peer_index, allowed, sealed_end: 0, heard }
    }

    /// Seals a packet. The receiver completes its number correctly if it is within 2³¹ of the
    /// highest one received there.
    pub(super) fn seal(&mut self, number: u64, source: bool, frames: &[u8]) -> Vec<u8> {
        let header = Header {
            receiver: self.peer_index,
            truncated: number & u64::from(u32::MAX),
            number_len: 4,
            source,
            phase: self.phases.phase(),
        };
        let mut out = Vec::with_capacity(frames.len() + Header::MAX_LEN + packet::TAG);
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
        let number = header.number(self.heard_end());
        let frames = self.phases.open(&header, number, datagram)?;
        self.heard.insert_one(number);
        Some(frames)
    }

    /// One more than the highest number of the other side's packets.
    pub(super) fn heard_end(&self) -> u64 {
        self.heard.last().map_or(0, |range| range.end)
    }
}

/// A terminal's handshake under way.
pub(super) struct Opening {
    /// Index of the adversary's key.
    pub(super) key: usize,
    pub(super) home: SocketAddr,
    identity: KeyPair,
    knock_key: KnockKey,
    params: Params,
    rng: ChaCha20Rng,
    initiator: Initiator,
}

impl Opening {
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
        let (mut params, index) = (promises(choices), choices.bits(16) as Index);
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
    pub(super) fn complete(mut self: Box<Self>, datagram: &[u8]) -> Result<Forger, Box<Self>> {
        let Some(Datagram::Response { sender, receiver, body }) = packet::parse(datagram) else {
            return Err(self);
        };
        if receiver != self.initiator.index {
            return Err(self);
        }
        let Ok(theirs) = self.initiator.answer(&datagram[body..]) else { return Err(self) };
        let keys = self.initiator.into_keys(theirs.cipher(&self.params));
        Ok(Forger::new(keys, true, receiver, sender, theirs.limits, &mut self.rng))
    }
}

/// A hub's answer to an initiation, and the session that it sets up.
pub(super) fn respond(
    identity: &KeyPair,
    initiation: &[u8],
    choices: &mut Choices,
) -> Option<(Vec<u8>, Forger)> {
    let Some(Datagram::Initiation { sender }) = packet::parse(initiation) else { return None };
    let mut rng = ChaCha20Rng::seed_from_u64(choices.bits(64));
    let responder = Responder::read(identity, initiation, &mut rng).ok()?;
    let theirs = responder.params.ok()?;
    let (ours, index) = (promises(choices), choices.bits(16) as Index);
    let (answer, keys) = responder.answer(index, sender, &ours, ours.cipher(&theirs));
    Some((answer, Forger::new(keys, false, index, sender, theirs.limits, &mut rng)))
}

/// Arbitrary parameters, most of them generous.
fn promises(choices: &mut Choices) -> Params {
    let mut amount = |usual| if choices.one_in(4) { choices.extreme() } else { usual };
    let (memory, window) = (amount(1 << 40), amount(1 << 28));
    let (streams, channels) = (amount(1 << 16) as u32, amount(u64::MAX) as u32);
    let (openings, rate) = (Openings(amount(3)), amount(10_000_000));
    let contexts = amount(256) as u16;
    let limits = Limits { channels, contexts, openings, ..Limits::new(memory, window, streams) };
    let times = if choices.one_in(3) { None } else { Some(choices.one_in(2)) };
    let present = choices.one_in(4).then(|| choices.extreme());
    let rate = BitRate::from_bits_per_second(rate);
    let ecn = choices.one_in(2);
    let links = choices.one_in(4).then(|| choices.below(6));
    let join = choices.one_in(16).then(|| choices.extreme());
    let (aes, link_layer, leaving, successor) = (true, true, true, true);
    let succeeds = choices.one_in(16).then(|| choices.extreme());
    Params {
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
    }
}
