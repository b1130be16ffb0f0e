//! An endpoint: everything that happens on one UDP socket.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use units::{BitRate, ByteCount, Instant, Machine, earliest};

use crate::gate::Gate;
use crate::handshake::Params;
use crate::hub::Hub;
use crate::knock::{Knocker, MAC};
use crate::pacer::Pacer;
use crate::packet::{self, Datagram, Header, Index};
use crate::rate::Memories;
use crate::session::{Session, Wake, ip_udp_overhead, limits, next_seed};
use crate::stats::{Stats, StreamStats};
use crate::terminal::Terminal;
use crate::{
    ChannelError, ChannelId, ChannelStats, ClassId, ClassStats, CloseReason, Config, DownReason,
    Event, Footprint, KeyPair, LogEntry, Notice, Open, PathKey, PathMemory, PublicKey, Rate,
    RateError, Read, ResetReason, SessionId, StreamError, StreamId,
};

/// How much a late wake-up may send at once to catch up. Long enough for the
/// timers of a general-purpose kernel, short enough not to build a queue.
const BURST: Duration = Duration::from_millis(4);
/// So many handshake datagrams wait for the link at most, and so many short
/// answers; further ones are dropped, as the network might.
const OUTBOX: usize = 1024;
const ANSWERS: usize = 256;

/// One side of the hop: a terminal with its hub, or a hub with its terminals.
///
/// A state machine without clock or socket (`docs/state-machines.md`). After
/// any input or command, drain in this order until `None`:
/// [`Self::poll_event`], [`Self::poll_packet`], then [`Self::poll_transmit`]; then
/// come back at [`Machine::poll_timeout`].
///
/// A terminal sets up its session by itself, and sets up another when the hub
/// has lost it. All sessions of a hub share its rate.
pub struct Endpoint {
    pub(crate) core: Core,
    role: Role,
}

enum Role {
    Hub(Box<Hub>),
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
    pub(crate) knocker: Knocker,
    pub(crate) rng: ChaCha20Rng,
    now: Instant,
    pacer: Pacer,
    sessions: BTreeMap<SessionId, Session>,
    indices: BTreeMap<Index, Owner>,
    memories: Memories,
    next_session: u64,
    /// The session that sent last: the one after it is next.
    turn: SessionId,
    events: VecDeque<(SessionId, Event)>,
    pub(crate) notices: VecDeque<Notice>,
    /// Handshake datagrams to be sent.
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Answers that anybody can provoke. They take turns with the sessions.
    answers: VecDeque<(SocketAddr, Vec<u8>)>,
    answers_turn: bool,
    /// No further session is wanted.
    pub(crate) shut: bool,
    ignored: u64,
}

impl Endpoint {
    /// A hub that serves the terminals whose keys are `allow`ed. `seed` makes
    /// its ephemeral keys: it must be unpredictable, except in tests.
    pub fn hub(config: Config, identity: KeyPair, allow: Vec<PublicKey>, seed: [u8; 32]) -> Self {
        let knocker = Knocker::new(identity.public());
        let mut core = Core::new(config, identity, knocker, seed);
        let gate = Gate::new(core.config.handshakes_per_second, &mut core.rng);
        Self { core, role: Role::Hub(Box::new(Hub::new(allow, gate))) }
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
        let core = Core::new(config, identity, Knocker::new(hub), seed);
        Self { core, role: Role::Terminal(Box::new(Terminal::new(addresses))) }
    }

    /// Takes a datagram from the network. Anything that is not authentic is
    /// counted and forgotten.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        self.core.now = now;
        let core = &mut self.core;
        let Some(kind) = packet::parse(datagram) else { return core.ignore() };
        match (kind, &mut self.role) {
            (Datagram::Data(header), _) => self.handle_data(now, from, &header, datagram),
            (Datagram::Initiation { sender }, Role::Hub(hub)) => {
                hub.handle_initiation(core, now, from, sender, datagram);
            }
            (Datagram::Foreign { sender }, Role::Hub(hub)) => {
                hub.handle_foreign(core, from, sender, datagram);
            }
            (Datagram::Response { sender, receiver, body }, Role::Terminal(terminal)) => {
                terminal.handle_response(core, now, from, sender, receiver, &datagram[body..]);
            }
            (Datagram::Cookie { receiver, cookie }, Role::Terminal(terminal)) => {
                terminal.handle_cookie(core, now, receiver, &cookie, datagram);
            }
            (Datagram::Versions { receiver }, Role::Terminal(terminal)) => {
                let theirs = &datagram[3..datagram.len() - MAC];
                terminal.handle_versions(core, receiver, theirs, datagram);
            }
            (Datagram::Unknown(header), Role::Terminal(terminal)) => {
                terminal.handle_unknown(core, now, &header, datagram);
            }
            _ => core.ignore(),
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
            (None, Role::Hub(hub)) => {
                hub.handle_unknown(&mut self.core, now, from, header, datagram.len());
            }
            _ => self.core.ignore(),
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
        if let Some(sent) = self.core.transmit_outbox(now, buf) {
            return Some(sent);
        }
        self.core.answers_turn = !self.core.answers_turn;
        if self.core.answers_turn {
            let answer = self.core.transmit_answer(now, buf);
            return answer.or_else(|| self.core.transmit_session(now, buf));
        }
        let packet = self.core.transmit_session(now, buf);
        packet.or_else(|| self.core.transmit_answer(now, buf))
    }

    /// Ends a session and all its streams at once, and tells the peer why.
    /// [`Event::Down`] follows. A terminal then sets up another.
    ///
    /// # Errors
    /// [`StreamError::NoSession`].
    pub fn close(
        &mut self,
        now: Instant,
        session: SessionId,
        reason: CloseReason,
    ) -> Result<(), StreamError> {
        self.core.now = now;
        self.session(session)?.close(now, reason);
        self.core.bury();
        Ok(())
    }

    /// Closes all sessions and takes part in no further handshake. The peers
    /// have been told three times after 150 ms.
    pub fn shut_down(&mut self, now: Instant) {
        self.core.now = now;
        self.core.shut = true;
        let usable = self.core.sessions.values_mut().filter(|session| session.is_usable());
        usable.for_each(|session| session.close(now, CloseReason::Shutdown));
        self.core.bury();
    }

    /// What has happened that belongs to no session.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.core.notices.pop_front()
    }

    /// What the endpoint remembers at present.
    pub fn footprint(&self) -> Footprint {
        let handshakes = match &self.role {
            Role::Hub(hub) => hub.handshakes(),
            Role::Terminal(terminal) => terminal.handshakes(),
        };
        let waiting = self.core.outbox.len() + self.core.answers.len();
        Footprint { sessions: self.core.sessions.len(), handshakes, waiting }
    }

    /// The next packet that came on a packet channel.
    pub fn poll_packet(&mut self) -> Option<(SessionId, ChannelId, Vec<u8>)> {
        let mut sessions = self.core.sessions.iter_mut();
        sessions.find_map(|(id, session)| {
            let (channel, packet) = session.inbound.poll()?;
            Some((*id, channel, packet))
        })
    }

    /// The next event of the sessions' event logs, the oldest first; see
    /// [`Config::event_log`]. Those of a session that ends are gone with it.
    pub fn poll_log(&mut self) -> Option<LogEntry> {
        let oldest = |(id, session): (&SessionId, &Session)| Some((session.log.oldest()?, *id));
        let (_, id) = self.core.sessions.iter().filter_map(oldest).min()?;
        let (time, event) = self.core.sessions.get_mut(&id)?.log.poll()?;
        Some(LogEntry { time, session: id, event })
    }

    /// What a packet channel of a session has counted.
    pub fn channel_stats(&self, session: SessionId, channel: ChannelId) -> Option<ChannelStats> {
        self.core.sessions.get(&session)?.channel_stats(channel)
    }

    /// What a class of a session has counted.
    pub fn class_stats(&self, session: SessionId, class: ClassId) -> Option<ClassStats> {
        self.core.sessions.get(&session)?.class_stats(class)
    }

    /// What is known of a stream; `None` once it is over.
    pub fn stream_stats(&self, session: SessionId, stream: StreamId) -> Option<StreamStats> {
        self.core.session(session)?.streams.stats(stream)
    }

    /// What a session has counted.
    pub fn stats(&self, session: SessionId) -> Option<Stats> {
        self.core.session(session).map(Session::stats)
    }

    /// Sets the rate of a session, as its modem tells it, for the time that it
    /// is `valid_for`; then the configured one holds again. Takes effect at
    /// once. At rate 0 nothing but probes is sent.
    ///
    /// # Errors
    /// [`RateError`].
    pub fn set_rate(
        &mut self,
        now: Instant,
        session: SessionId,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        self.core.now = now;
        let known = self.core.sessions.get_mut(&session).ok_or(RateError::NoSession)?;
        known.set_rate(now, rate, valid_for)?;
        self.core.follow_rate(now);
        Ok(())
    }

    /// Sets where the rate comes from. Sessions whose rate is fixed, or told, take
    /// another of the same kind at once; the others keep theirs and only those that
    /// are set up from now on have it. Whether all have taken it.
    pub fn configure_rate(&mut self, now: Instant, rate: Rate) -> bool {
        self.core.now = now;
        let usable = self.core.sessions.values_mut().filter(|session| session.is_usable());
        let mut all = true;
        for session in usable {
            all &= session.configure_rate(now, &rate);
        }
        self.core.config.rate = rate;
        self.core.follow_rate(now);
        all
    }

    /// Sets which terminals a hub serves. The sessions of others end
    /// ([`CloseReason::Prohibited`]). Does nothing to a terminal.
    pub fn set_allowed(&mut self, now: Instant, allow: Vec<PublicKey>) {
        self.core.now = now;
        if let Role::Hub(hub) = &mut self.role {
            hub.set_allowed(&mut self.core, now, allow);
        }
        self.core.bury();
    }

    /// What is worth remembering of a session's path; `None` if its rate is not
    /// measured ([`Rate::Auto`]), or not yet.
    pub fn path_memory(&self, now: Instant, session: SessionId) -> Option<PathMemory> {
        self.core.sessions.get(&session)?.path_memory(now)
    }

    /// What is remembered of all paths, those of present sessions included, one
    /// memory each in the order of the keys: to be kept by the owner, and given
    /// to [`Self::remember`] after a restart with the ages that they have then.
    pub fn memories(&self, now: Instant) -> Vec<(PathKey, PathMemory)> {
        let mut all: BTreeMap<PathKey, PathMemory> = self.core.memories.useful(now).collect();
        for session in self.core.sessions.values() {
            all.extend(session.path_memory(now).map(|memory| (session.path_key(), memory)));
        }
        all.into_iter().collect()
    }

    /// Takes what was remembered of a path, for sessions that begin or move
    /// there from now on, unless it knows something newer. An endpoint remembers
    /// by itself what its own sessions have learnt. At most 4,096 paths are kept,
    /// none for more than a day, and nothing that no path can be.
    pub fn remember(&mut self, now: Instant, path: PathKey, memory: PathMemory) {
        self.core.memories.enter(now, path, memory);
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

    /// Puts a stream in a class; it is in [`ClassId::DEFAULT`] until then.
    ///
    /// # Errors
    /// [`StreamError::NoSession`], [`StreamError::NoStream`],
    /// [`StreamError::NoClass`].
    pub fn classify(
        &mut self,
        session: SessionId,
        stream: StreamId,
        class: ClassId,
    ) -> Result<(), StreamError> {
        self.session(session)?.streams.classify(stream, class)
    }

    /// Sends an IP packet on a packet channel, or drops it when the channel's
    /// queue is full of others of its flow.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn send_packet(
        &mut self,
        now: Instant,
        session: SessionId,
        channel: ChannelId,
        packet: &[u8],
    ) -> Result<(), ChannelError> {
        self.core.now = now;
        let session = self.core.sessions.get_mut(&session).ok_or(ChannelError::NoSession)?;
        session.send_packet(now, channel, packet)
    }

    /// Whether a session's peer takes packets on a channel.
    pub fn peer_receives(&self, session: SessionId, channel: ChannelId) -> bool {
        self.core.session(session).is_some_and(|session| session.peer_receives(channel))
    }

    fn session(&mut self, id: SessionId) -> Result<&mut Session, StreamError> {
        let session = self.core.sessions.get_mut(&id).filter(|session| session.is_usable());
        session.ok_or(StreamError::NoSession)
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
        self.core.follow_paths(now);
        self.core.follow_rate(now);
        self.core.bury();
        match &mut self.role {
            Role::Hub(hub) => hub.handle_timeout(&mut self.core, now),
            Role::Terminal(terminal) => terminal.handle_timeout(&mut self.core, now),
        }
    }
}

impl Core {
    fn new(config: Config, identity: KeyPair, knocker: Knocker, seed: [u8; 32]) -> Self {
        Self {
            pacer: Pacer::new(config.rate.initial(), BURST),
            config,
            identity,
            knocker,
            rng: ChaCha20Rng::from_seed(seed),
            now: Instant::ZERO,
            sessions: BTreeMap::new(),
            indices: BTreeMap::new(),
            memories: Memories::default(),
            next_session: 0,
            turn: SessionId(0),
            events: VecDeque::new(),
            notices: VecDeque::new(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            answers_turn: false,
            shut: false,
            ignored: 0,
        }
    }

    /// What this side tells in a handshake.
    pub(crate) fn params(&self, present: Option<u64>) -> Params {
        let rate: &Rate = &self.config.rate;
        let times = Some(rate.is_measured());
        let (limits, aes) = (limits(&self.config), self.config.aes);
        Params { limits, rate: rate.initial(), present, times, aes }
    }

    /// The seed of a session's ephemeral keys.
    pub(crate) fn seed(&mut self) -> [u8; 32] {
        next_seed(&mut self.rng)
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
        if self.outbox.len() < OUTBOX {
            self.outbox.push_back((to, datagram));
        }
    }

    /// [`Self::send_later`] for what anybody can provoke.
    pub(crate) fn answer_later(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        if self.answers.len() < ANSWERS {
            self.answers.push_back((to, datagram));
        }
    }

    fn transmit_outbox(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        let (to, datagram) = self.outbox.pop_front()?;
        Some(self.transmit_alone(now, to, &datagram, buf))
    }

    fn transmit_answer(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        let (to, datagram) = self.answers.pop_front()?;
        Some(self.transmit_alone(now, to, &datagram, buf))
    }

    fn transmit_alone(
        &mut self,
        now: Instant,
        to: SocketAddr,
        datagram: &[u8],
        buf: &mut Vec<u8>,
    ) -> SocketAddr {
        buf.extend_from_slice(datagram);
        let size = buf.len() + ip_udp_overhead(to);
        self.pacer.sent(now, ByteCount::new(size as u64));
        to
    }

    pub(crate) fn ignore(&mut self) {
        self.ignored += 1;
    }

    /// The session, unless it is over.
    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).filter(|session| session.is_usable())
    }

    /// Puts a session to use that packets with `index` belong to.
    pub(crate) fn establish(&mut self, index: Index, mut session: Session) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.indices.insert(index, Owner::Session(id));
        let up = Event::Up { peer: session.peer.key, address: session.peer.address };
        if let Some(memory) = self.memories.get(self.now, &session.path_key()) {
            session.remember(memory);
        }
        self.sessions.insert(id, session);
        self.events.push_back((id, up));
        id
    }

    /// Ends a session and tells the peer why.
    pub(crate) fn close(&mut self, now: Instant, id: SessionId, reason: CloseReason) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|session| session.is_usable()) {
            session.close(now, reason);
        }
    }

    /// Ends a session that the peer has replaced, with all its streams.
    pub(crate) fn replace(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.is_usable() {
            self.events.push_back((id, Event::Down(DownReason::Replaced)));
        }
        self.forget(id);
    }

    fn forget(&mut self, id: SessionId) {
        let (now, session) = (self.now, self.sessions.remove(&id));
        let memory = session.and_then(|s| Some((s.path_key(), s.path_memory(now)?)));
        if let Some((path, memory)) = memory {
            self.memories.enter(now, path, memory);
        }
        self.indices.retain(|_, owner| *owner != Owner::Session(id));
    }

    /// Has the pacer hold what was sent last to the present rate of its session.
    fn follow_rate(&mut self, now: Instant) {
        if let Some(rate) = self.sessions.get(&self.turn).and_then(Session::shared_rate) {
            self.pacer.set_rate(now, rate);
        }
    }

    /// Keeps what sessions have learnt of the paths they have left, and tells
    /// them what is remembered of their new ones.
    fn follow_paths(&mut self, now: Instant) {
        for session in self.sessions.values_mut() {
            let Some((left, memory)) = session.take_left() else { continue };
            if let Some(memory) = memory {
                self.memories.enter(now, left, memory);
            }
            if let Some(memory) = self.memories.get(now, &session.path_key()) {
                session.remember(memory);
            }
        }
    }

    /// Tells of the sessions that are over, and forgets those that have told
    /// their peers.
    fn bury(&mut self) {
        for (id, session) in &mut self.sessions {
            let down = session.take_end().map(|why| (*id, Event::Down(why)));
            self.events.extend(down);
        }
        let over: Vec<SessionId> =
            self.sessions.iter().filter(|(_, s)| s.is_over()).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.forget(id));
    }

    fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let link_free = self.pacer.ready_at();
        let waiting = !self.outbox.is_empty() || !self.answers.is_empty();
        let outbox = waiting.then_some((link_free, Wake::Pacing));
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
            if let Some((to, size)) = session.transmit(now, buf) {
                if let Some(rate) = session.shared_rate() {
                    self.pacer.set_rate(now, rate);
                    self.pacer.sent(now, size);
                }
                self.turn = id;
                return Some(to);
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

#[cfg(test)]
mod tests;
