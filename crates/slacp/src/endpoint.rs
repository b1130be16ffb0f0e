//! An endpoint: everything that happens on one UDP socket.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use units::{ByteCount, Instant, Machine, earliest};

use crate::handshake::Params;
use crate::hub::Hub;
use crate::pacer::Pacer;
use crate::packet::{self, Datagram, Header, Index};
use crate::session::{Session, Wake, ip_udp_overhead, limits};
use crate::stats::Stats;
use crate::terminal::Terminal;
use crate::{
    Config, Event, KeyPair, Open, PublicKey, Read, ResetReason, SessionId, StreamError, StreamId,
};

/// How much a late wake-up may send at once to catch up. Long enough for the
/// timers of a general-purpose kernel, short enough not to build a queue.
const BURST: Duration = Duration::from_millis(4);

/// One side of the hop: a terminal with its hub, or a hub with its terminals.
///
/// A state machine without clock or socket (`docs/state-machines.md`). After
/// any input or command, drain in this order until `None`:
/// [`Self::poll_event`], then [`Self::poll_transmit`]; then come back at
/// [`Machine::poll_timeout`].
///
/// A terminal sets up its session by itself, and sets up another when the hub
/// has lost it. All sessions of a hub share its rate.
pub struct Endpoint {
    pub(crate) core: Core,
    role: Role,
}

enum Role {
    Hub(Hub),
    Terminal(Box<Terminal>),
}

/// What a packet of a known number belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Session(SessionId),
    /// A session that the hub has answered for and that is not used yet.
    Tentative(PublicKey),
    /// The terminal's handshake under way.
    Initiator,
}

/// What hubs and terminals have in common.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) identity: KeyPair,
    pub(crate) rng: ChaCha20Rng,
    now: Instant,
    pacer: Pacer,
    sessions: BTreeMap<SessionId, Session>,
    indices: BTreeMap<Index, Owner>,
    next_session: u64,
    /// The session that sent last: the one after it is next.
    turn: SessionId,
    events: VecDeque<(SessionId, Event)>,
    /// Handshake datagrams to be sent.
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    ignored: u64,
}

impl Endpoint {
    /// A hub that serves the terminals whose keys are `allow`ed. `seed` makes
    /// its ephemeral keys: it must be unpredictable, except in tests.
    pub fn hub(config: Config, identity: KeyPair, allow: Vec<PublicKey>, seed: [u8; 32]) -> Self {
        let core = Core::new(config, identity, seed);
        Self { core, role: Role::Hub(Hub::new(allow)) }
    }

    /// A terminal of the hub with the key `hub`, which is at one of `addresses`;
    /// they are tried in turn. `seed` as for [`Self::hub`].
    pub fn terminal(
        config: Config,
        identity: KeyPair,
        hub: PublicKey,
        addresses: Vec<SocketAddr>,
        seed: [u8; 32],
    ) -> Self {
        let core = Core::new(config, identity, seed);
        Self { core, role: Role::Terminal(Box::new(Terminal::new(hub, addresses))) }
    }

    /// Takes a datagram from the network. Anything that is not authentic is
    /// counted and forgotten.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        self.core.now = now;
        match (packet::parse(datagram), &mut self.role) {
            (Some(Datagram::Data(header)), _) => self.handle_data(now, from, &header, datagram),
            (Some(Datagram::Initiation { sender, body }), Role::Hub(hub)) => {
                hub.handle_initiation(&mut self.core, now, from, sender, &datagram[body..]);
            }
            (Some(Datagram::Response { sender, receiver, body }), Role::Terminal(terminal)) => {
                let body = &datagram[body..];
                terminal.handle_response(&mut self.core, now, from, sender, receiver, body);
            }
            _ => self.core.ignored += 1,
        }
    }

    fn handle_data(
        &mut self,
        now: Instant,
        from: SocketAddr,
        header: &Header,
        datagram: &mut [u8],
    ) {
        match (self.core.indices.get(&header.receiver).copied(), &mut self.role) {
            (Some(Owner::Session(id)), _) => {
                if let Some(session) = self.core.sessions.get_mut(&id) {
                    session.handle_packet(now, from, header, datagram);
                }
            }
            (Some(Owner::Tentative(peer)), Role::Hub(hub)) => {
                hub.handle_first_data(&mut self.core, now, from, peer, header, datagram);
            }
            _ => self.core.ignored += 1,
        }
        self.core.bury();
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<(SessionId, Event)> {
        if let Some(event) = self.core.events.pop_front() {
            return Some(event);
        }
        let sessions = &mut self.core.sessions;
        sessions.iter_mut().find_map(|(id, session)| Some((*id, session.poll_event()?)))
    }

    /// Puts the next datagram to be sent now in `buf`, which is emptied first,
    /// and says where to. `None` while the pacer holds the link, or there is
    /// nothing to send: [`Machine::poll_timeout`] says when to ask again.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        self.core.now = now;
        buf.clear();
        if self.core.pacer.ready_at() > now {
            return None;
        }
        if let Some((to, datagram)) = self.core.outbox.pop_front() {
            buf.extend_from_slice(&datagram);
            let size = buf.len() + ip_udp_overhead(to);
            self.core.pacer.sent(now, ByteCount::new(size as u64));
            return Some(to);
        }
        self.core.transmit_session(now, buf)
    }

    /// What a session has counted.
    pub fn stats(&self, session: SessionId) -> Option<Stats> {
        self.core.sessions.get(&session).map(Session::stats)
    }

    /// How many datagrams came that no session, and no handshake, knew.
    pub fn ignored(&self) -> u64 {
        self.core.ignored
    }
}

/// Commands on streams.
impl Endpoint {
    /// Opens a stream. It may be written to at once.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::TooMany`].
    pub fn open(
        &mut self,
        now: Instant,
        session: SessionId,
        open: Open,
    ) -> Result<StreamId, StreamError> {
        self.core.now = now;
        self.session(session)?.streams.open(open)
    }

    /// Tells the opener that the destination is connected.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn accept(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        self.session(session)?.streams.accept(stream)
    }

    /// Writes as many bytes as there is room for; if that is not all,
    /// [`Event::Writable`] follows.
    ///
    /// # Errors
    /// [`StreamError`], except `TooMany`.
    pub fn write(
        &mut self,
        session: SessionId,
        stream: StreamId,
        data: &[u8],
    ) -> Result<usize, StreamError> {
        self.session(session)?.streams.write(stream, data)
    }

    /// Reads the next bytes. [`Event::Readable`] follows only after this has
    /// said [`Read::Blocked`].
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn read(
        &mut self,
        session: SessionId,
        stream: StreamId,
        buf: &mut [u8],
    ) -> Result<Read, StreamError> {
        self.session(session)?.streams.read(stream, buf)
    }

    /// Ends this side's direction after the bytes written so far.
    ///
    /// # Errors
    /// [`StreamError`], except `TooMany`.
    pub fn finish(&mut self, session: SessionId, stream: StreamId) -> Result<(), StreamError> {
        self.session(session)?.streams.finish(stream)
    }

    /// Ends both directions at once and forgets the stream; the peer hears
    /// why.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`].
    pub fn reset(
        &mut self,
        session: SessionId,
        stream: StreamId,
        reason: ResetReason,
    ) -> Result<(), StreamError> {
        self.session(session)?.streams.reset(stream, reason)
    }

    fn session(&mut self, id: SessionId) -> Result<&mut Session, StreamError> {
        self.core.sessions.get_mut(&id).ok_or(StreamError::NoSession)
    }
}

impl Machine for Endpoint {
    type Wake = Wake;

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let handshake = match &self.role {
            Role::Hub(hub) => hub.poll_timeout(),
            Role::Terminal(terminal) => terminal.poll_timeout(&self.core),
        };
        let handshake = handshake.map(|time| (time, Wake::Handshake));
        earliest(handshake, self.core.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.core.now = now;
        for session in self.core.sessions.values_mut() {
            session.handle_timeout(now);
        }
        self.core.bury();
        match &mut self.role {
            Role::Hub(hub) => hub.handle_timeout(&mut self.core, now),
            Role::Terminal(terminal) => terminal.handle_timeout(&mut self.core, now),
        }
    }
}

impl Core {
    fn new(config: Config, identity: KeyPair, seed: [u8; 32]) -> Self {
        Self {
            pacer: Pacer::new(config.rate, BURST),
            config,
            identity,
            rng: ChaCha20Rng::from_seed(seed),
            now: Instant::ZERO,
            sessions: BTreeMap::new(),
            indices: BTreeMap::new(),
            next_session: 0,
            turn: SessionId(0),
            events: VecDeque::new(),
            outbox: VecDeque::new(),
            ignored: 0,
        }
    }

    /// What this side tells in a handshake.
    pub(crate) fn params(&self, present: Option<u64>) -> Params {
        Params { limits: limits(&self.config), rate: self.config.rate, present }
    }

    /// A number for packets to come, not in use.
    pub(crate) fn claim_index(&mut self, owner: Owner) -> Option<Index> {
        if self.indices.len() > usize::from(Index::MAX) / 2 {
            return None;
        }
        loop {
            let index = self.rng.next_u32() as Index;
            if let std::collections::btree_map::Entry::Vacant(entry) = self.indices.entry(index) {
                entry.insert(owner);
                return Some(index);
            }
        }
    }

    pub(crate) fn release_index(&mut self, index: Index) {
        self.indices.remove(&index);
    }

    pub(crate) fn send_later(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        self.outbox.push_back((to, datagram));
    }

    pub(crate) fn ignore(&mut self) {
        self.ignored += 1;
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Puts a session to use that packets with `index` belong to.
    pub(crate) fn establish(&mut self, index: Index, session: Session) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.indices.insert(index, Owner::Session(id));
        let up = Event::Up { peer: session.peer.key, address: session.peer.address };
        self.sessions.insert(id, session);
        self.events.push_back((id, up));
        id
    }

    /// Ends a session, with all its streams.
    pub(crate) fn end(&mut self, id: SessionId) {
        if self.sessions.remove(&id).is_some() {
            self.indices.retain(|_, owner| *owner != Owner::Session(id));
            self.events.push_back((id, Event::Down));
        }
    }

    /// Ends the sessions that are over.
    fn bury(&mut self) {
        let over: Vec<SessionId> =
            self.sessions.iter().filter(|(_, s)| s.is_over()).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.end(id));
    }

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let link_free = self.pacer.ready_at();
        let outbox = (!self.outbox.is_empty()).then_some((link_free, Wake::Pacing));
        self.sessions.values().fold(outbox, |soonest, session| {
            let send = session.send_time().map(|(time, wake)| (time.max(link_free), wake));
            earliest(soonest, earliest(send, session.poll_timeout()))
        })
    }

    /// One packet of the next session that has one.
    fn transmit_session(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        let mut id = self.turn;
        for _ in 0..self.sessions.len() {
            id = self.session_after(id)?;
            let session = self.sessions.get_mut(&id)?;
            if session.send_time().is_none_or(|(time, _)| time > now) {
                continue;
            }
            if let Some(size) = session.transmit(now, buf) {
                self.pacer.sent(now, size);
                self.turn = id;
                return Some(session.peer.address);
            }
        }
        None
    }

    /// The session that comes after `id` when they take turns.
    fn session_after(&self, id: SessionId) -> Option<SessionId> {
        let after = (Bound::Excluded(id), Bound::Unbounded);
        let next = self.sessions.range(after).next().or_else(|| self.sessions.first_key_value());
        next.map(|(id, _)| *id)
    }
}
