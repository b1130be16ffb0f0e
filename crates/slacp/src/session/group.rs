//! State that hubs and terminals share: their sessions, and the order of sending.

mod aggregates;
mod link;
mod probing;
mod schedule;
mod share;
mod table;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use units::{ByteCount, Instant, earliest};

use self::aggregates::AggregateTable;
use self::link::LinkPacer;
pub use self::link::use_link;
use self::probing::ProbingQueue;
pub(crate) use self::schedule::STEPS;
use self::table::{DepartedPacket, SessionTable};
use crate::keys::handshake::{HandshakeParams, Initiator};
use crate::keys::secret::{Secret, draw};
use crate::rate::{AggregateId, Allowance, Ledger, Memories, Switch};
use crate::recovery::path::fade::FadedSessions;
use crate::scheduler::control_dscp;
use crate::session::{PacketEnvelope, Session, SessionPath, Wake, ip_udp_overhead, limits};
use crate::wire::ecn::Ecn;
use crate::wire::packet::{Index, NO_INDEX};
use crate::wire::parts::{HubPart, InitiationHandover};
use crate::{
    CloseReason, Config, DownReason, EndpointNotice, Event, KeyPair, PathMemory, PublicKey, Rate,
    SessionId, SessionShare, StopAnnouncement,
};

/// Maximum number of handshake datagrams that wait for the link, and of short answers: enough for a
/// thousand terminals that start together. Further ones are dropped, as the network might do. The
/// same for initiations on their way to other parts of the hub.
const OUTBOX: usize = 1024;
const ANSWERS: usize = 1024;
/// Random draws before the index space is taken to be full. With a million sessions, all eight
/// draws are in use with a probability of 2⁻⁹⁶.
const INDEX_DRAWS: usize = 8;

/// The owner of a receiver index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexOwner {
    Session(SessionId),
    /// A further link of a session, by its number.
    Link(SessionId, u8),
    /// A session that the hub has answered and the terminal has not used yet.
    Tentative(PublicKey),
    /// A further link that the hub has answered and the terminal has not used yet.
    Joining(PublicKey),
    /// A terminal's handshake in progress.
    Initiator,
}

/// The state that hubs and terminals share.
pub(crate) struct EndpointCore {
    pub(crate) config: Config,
    pub(crate) identity: KeyPair,
    pub(crate) rng: ChaCha20Rng,
    pub(crate) now: Instant,
    /// ECN codepoints of the datagram being handled, and of the one that left last.
    pub(crate) ecn_received: Ecn,
    pub(crate) ecn_sent: Ecn,
    /// DSCP of the datagram that left last.
    pub(crate) dscp_sent: u8,
    /// Link of the datagram that left last.
    pub(crate) link_sent: u8,
    /// The packet that left last, if it was a session's.
    pub(crate) departed: Option<DepartedPacket>,
    /// The datagram that left last carried no new data.
    pub(crate) control_sent: bool,
    pub(crate) link: LinkPacer,
    pub(crate) sessions: SessionTable,
    pub(crate) indices: BTreeMap<Index, IndexOwner>,
    pub(crate) memories: Memories,
    /// Bytes and padding sent to each peer in earlier sessions.
    ledger: Ledger,
    /// The queue of sessions that measure their paths with padding.
    probing: ProbingQueue,
    /// The sessions that share a link, and its measurements.
    pub(crate) aggregates: AggregateTable,
    /// Sessions in a fade; their probes share one budget.
    faded: FadedSessions,
    part: HubPart,
    next_session: u64,
    /// The session that sent last. The pacer runs at its rate.
    sent_last: SessionId,
    pub(crate) events: VecDeque<(SessionId, Event)>,
    pub(crate) notices: VecDeque<EndpointNotice>,
    /// Handshake datagrams to be sent: destination, link, contents.
    pub(crate) outbox: VecDeque<(SocketAddr, u8, Vec<u8>)>,
    /// Answers that anyone can provoke. They take turns with the sessions' packets.
    pub(crate) answers: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(crate) answers_turn: bool,
    /// Initiations for other parts of the hub.
    pub(crate) handovers: VecDeque<InitiationHandover>,
    /// Set by shutdown: no new session is accepted.
    pub(crate) shut: bool,
    /// The announcement to peers that this side is about to stop.
    pub(crate) leaving: Option<StopAnnouncement>,
    /// Datagrams that matched no session and no handshake.
    pub(crate) ignored: u64,
}

impl EndpointCore {
    pub(crate) fn new(config: Config, identity: KeyPair, seed: [u8; 32]) -> Self {
        Self {
            link: LinkPacer::new(config.rate.initial(), config.burst),
            sessions: SessionTable::new(),
            config,
            identity,
            rng: ChaCha20Rng::from_seed(*Secret::new(seed)),
            now: Instant::ZERO,
            ecn_received: Ecn::NotEct,
            ecn_sent: Ecn::NotEct,
            dscp_sent: 0,
            link_sent: 0,
            departed: None,
            control_sent: true,
            indices: BTreeMap::new(),
            memories: Memories::default(),
            ledger: Ledger::default(),
            probing: ProbingQueue::default(),
            aggregates: AggregateTable::default(),
            faded: FadedSessions::default(),
            part: HubPart::WHOLE,
            next_session: 0,
            sent_last: SessionId(0),
            events: VecDeque::new(),
            notices: VecDeque::new(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            answers_turn: false,
            handovers: VecDeque::new(),
            shut: false,
            leaving: None,
            ignored: 0,
        }
    }

    /// Makes this endpoint one part of a hub.
    pub(crate) fn set_part(&mut self, part: HubPart) {
        self.part = part;
        (self.next_session, _) = part.sessions();
    }

    /// This side's handshake parameters. `present` names the session that it still has with the
    /// peer.
    pub(crate) fn params(&self, present: Option<u64>) -> HandshakeParams {
        let rate: &Rate = &self.config.rate;
        let times = Some(rate.is_measured());
        let (limits, aes, ecn) = (limits(&self.config), self.config.aes, self.config.ecn);
        let link_layer = self.config.link_layer;
        let (rate, links, join, succeeds) = (rate.initial(), None, None, None);
        let (leaving, successor) = (true, true);
        let address = self.config.takes_address.then_some(1);
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

    /// Returns whether sessions may have several links. A link layer is one link.
    pub(crate) fn has_links(&self) -> bool {
        self.config.links.len() > 1 && !self.config.link_layer
    }

    /// The configuration of one link, with the rate of that link.
    pub(crate) fn link_config(&self, link: u8) -> Cow<'_, Config> {
        match self.config.links.get(usize::from(link)) {
            Some(rate) if self.has_links() => {
                Cow::Owned(Config { rate: rate.clone(), ..self.config.clone() })
            }
            _ => Cow::Borrowed(&self.config),
        }
    }

    /// This side's handshake parameters on one link; `present` is as for [`Self::params`].
    pub(crate) fn link_params(&self, link: u8, present: Option<u64>) -> HandshakeParams {
        let params = self.params(present);
        match self.config.links.get(usize::from(link)) {
            Some(rate) if self.has_links() => {
                let (rate, times) = (rate.initial(), Some(rate.is_measured()));
                HandshakeParams { rate, times, links: Some(link.into()), ..params }
            }
            _ => params,
        }
    }

    /// Returns whether to give a handshake up: after two transmissions if it can be tried on
    /// another link.
    pub(crate) fn is_stale(&self, handshake: &Initiator, now: Instant) -> bool {
        let sendings = if self.has_links() { 2 } else { u32::MAX };
        handshake.is_stale(now) || handshake.was_sent(now, sendings)
    }

    /// Draws a seed for a session's ephemeral keys.
    pub(crate) fn seed(&mut self) -> Secret {
        draw(&mut self.rng)
    }

    /// Reserves an unused receiver index; `None` if the draws found none.
    pub(crate) fn claim_index(&mut self, owner: IndexOwner) -> Option<Index> {
        let share = self.config.index_share;
        // Rounding an index to the part may take it out of the share.
        let is_free = |index: &Index| {
            *index != NO_INDEX && share.contains(*index) && !self.indices.contains_key(index)
        };
        let mut draws =
            (0..INDEX_DRAWS).filter_map(|_| self.part.index(share.index_for(self.rng.next_u32())));
        let index = draws.find(is_free)?;
        self.indices.insert(index, owner);
        Some(index)
    }

    pub(crate) fn release_index(&mut self, index: Index) {
        self.indices.remove(&index);
    }

    pub(crate) fn queue_datagram(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        self.queue_datagram_on(0, to, datagram);
    }

    /// [`Self::queue_datagram`] on a link of a terminal.
    pub(crate) fn queue_datagram_on(&mut self, link: u8, to: SocketAddr, datagram: Vec<u8>) {
        if self.outbox.len() < OUTBOX {
            self.outbox.push_back((to, link, datagram));
        }
    }

    /// Returns whether there is room for an answer that anyone can provoke. Checked before the
    /// answer is built, which costs more.
    pub(crate) fn has_answer_room(&self) -> bool {
        self.answers.len() < ANSWERS
    }

    /// [`Self::queue_datagram`] for answers that anyone can provoke.
    pub(crate) fn queue_answer(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        if self.has_answer_room() {
            self.answers.push_back((to, datagram));
        }
    }

    pub(crate) fn transmit_outbox(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let (to, link, datagram) = self.outbox.pop_front()?;
        let to = self.transmit_alone(now, to, &datagram, buf);
        self.link_sent = link;
        Some(to)
    }

    pub(crate) fn transmit_answer(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
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
        (self.ecn_sent, self.control_sent) = (Ecn::NotEct, true);
        (self.link_sent, self.departed) = (0, None);
        self.dscp_sent = control_dscp(&self.config.classes);
        buf.extend_from_slice(datagram);
        let size = datagram.len() + ip_udp_overhead(to);
        // The pacer may still run at the reported rate of the session that sent last.
        self.link.set_rate(now, self.config.rate.initial());
        self.link.sent(now, ByteCount::new(size as u64));
        to
    }

    /// Passes an initiation on to another part of the hub.
    pub(crate) fn hand_over(
        &mut self,
        part: u8,
        from: SocketAddr,
        datagram: &[u8],
        is_repeated: bool,
    ) {
        if self.handovers.len() < OUTBOX {
            let datagram = datagram.to_vec();
            self.handovers.push_back(InitiationHandover { part, from, datagram, is_repeated });
        }
    }

    /// Counts a datagram that was dropped.
    pub(crate) fn count_ignored(&mut self) {
        self.ignored += 1;
    }

    /// Returns whether no new session is accepted: this side stops, or another process accepts
    /// them.
    pub(crate) fn refuses_sessions(&self) -> bool {
        self.shut || self.leaving == Some(StopAnnouncement::Successor)
    }

    /// The session with this identifier, unless it is over.
    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id).filter(|session| session.is_usable())
    }

    /// Puts a session into use, whose received packets carry `index`.
    pub(crate) fn establish(&mut self, index: Index, mut session: Session) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += self.part.sessions().1;
        self.indices.insert(index, IndexOwner::Session(id));
        session.share_probes(&self.faded);
        session.set_portion(self.link.portion());
        let up = Event::Up { peer: session.peer.key, address: session.address() };
        if let Some(memory) = self.memories.get(self.now, &session.path_key()) {
            session.remember(memory);
        }
        let spent = self.ledger.of(&session.peer.key);
        session.set_allowance(Allowance::new(self.config.padding_share, spent));
        // A peer that arrives after the announcement must hear of it, too.
        self.leaving.into_iter().for_each(|farewell| session.announce(farewell));
        let alone = self.aggregates.add(self.now, id, &mut session, SessionShare::default());
        self.sessions.insert(id, index, session);
        // The first member of an aggregate measures the link for all.
        if self.config.rate.probes() && alone {
            self.probing.enqueue(id);
        }
        self.events.push_back((id, up));
        id
    }

    /// Puts a further link of a session into use: a path that [joins](SessionPath::join) it.
    /// Replaces an earlier one on the same link.
    pub(crate) fn join(&mut self, id: SessionId, mut path: SessionPath) {
        path.share_probes(&self.faded);
        let portion = self.link.portion();
        let now = self.now;
        if let Some(session) = self.sessions.get_mut(id) {
            let owner = path.link().map(|link| IndexOwner::Link(id, link));
            self.indices.extend(path.index().zip(owner));
            let old = session.join(now, path);
            session.set_portion(portion);
            old.map(|old| self.indices.remove(&old));
        }
    }

    /// Closes a session and tells the peer why.
    pub(crate) fn close(&mut self, now: Instant, id: SessionId, reason: CloseReason) {
        let usable = self.session(id).is_some();
        if let Some(session) = self.sessions.get_mut(id).filter(|_| usable) {
            session.close(now, reason);
        }
    }

    /// Sends a PING to a session's peer, on all links.
    pub(crate) fn ping(&mut self, id: SessionId) {
        self.with(id, Session::ping_all_links);
    }

    /// Marks a session as changed outside of an input of its own, and settles it.
    pub(crate) fn touch(&mut self, id: SessionId) {
        self.with(id, |_| ());
    }

    /// Ends a session that the peer has replaced, with all its streams.
    pub(crate) fn replace(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        // A session that was already closing has reported its end.
        if session.is_usable() {
            self.events.push_back((id, Event::Down(DownReason::Replaced)));
        }
        self.forget(id);
    }

    /// Stores the path measurements of a session that goes on, for the next one on the same path.
    pub(crate) fn store_path_memory(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else { return };
        if let Some(memory) = session.path_memory(self.now) {
            self.memories.enter(self.now, session.path_key(), memory);
        }
    }

    /// Removes a session and its indices, and keeps its path measurements.
    fn forget(&mut self, id: SessionId) {
        let Some((index, session)) = self.sessions.remove(self.now, id) else { return };
        self.aggregates.remove(id);
        self.indices.remove(&index);
        for index in session.link_indices() {
            self.indices.remove(&index);
        }
        // Padding is counted per peer, so that a peer that comes and goes gets one share in all.
        session.spent().inspect(|spent| self.ledger.enter(session.peer.key, *spent));
        if let Some(memory) = session.path_memory(self.now) {
            self.memories.enter(self.now, session.path_key(), memory);
        }
    }

    /// Makes the pacer time the packet sent last by its session's current rate.
    pub(crate) fn update_pacer_rate(&mut self, now: Instant) {
        if let Some(rate) = self.sessions.get(self.sent_last).and_then(Session::shared_rate) {
            self.link.set_rate(now, rate);
        }
    }

    /// Runs a function on a session if it exists.
    pub(crate) fn with<T>(
        &mut self,
        id: SessionId,
        what: impl FnOnce(&mut Session) -> T,
    ) -> Option<T> {
        let result = what(self.sessions.get_mut(id)?);
        self.settle();
        Some(result)
    }

    /// Handles state changes of the touched sessions and updates their index entries. Every input
    /// and command, or a [`crate::DatagramRun`], ends with this.
    pub(crate) fn settle(&mut self) {
        // First, because all members of an aggregate that are compared must measure their rates.
        self.handle_switches();
        self.probing.grant_turns(&mut self.sessions);
        self.aggregates.compare_due(self.now, &mut self.sessions);
        let touched = self.sessions.take_touched();
        for id in &touched {
            self.settle_one(*id);
        }
        self.sessions.give_back(touched);
    }

    /// Handles touched sessions that have switched between a measured and a reported rate.
    fn handle_switches(&mut self) {
        let mut index = 0;
        while let Some(id) = self.sessions.touched(index) {
            index += 1;
            let Some(session) = self.sessions.get_mut(id) else { continue };
            match session.take_switch() {
                Some(Switch::Reported { measured }) => {
                    let path = session.path_key();
                    measured.inspect(|memory| self.memories.enter(self.now, path, *memory));
                    self.aggregates.leave(id);
                }
                Some(Switch::Measured { link }) => self.measure_again(id, link),
                None => {}
            }
        }
    }

    /// Lets a session measure its path after a modem's report has ended. `link` is the reported
    /// rate.
    fn measure_again(&mut self, id: SessionId, link: Option<PathMemory>) {
        let share = self.sessions.share(id).unwrap_or_default();
        let Some(session) = self.sessions.get_mut(id) else { return };
        let memory = link.or_else(|| self.memories.get(self.now, &session.path_key()));
        // One member of an aggregate measures the link for all, so it needs no share of its own.
        let together = self.aggregates.has_peer(&session.peer.key);
        let remembers = session.auto().is_some_and(|auto| auto.remembers());
        if let Some(memory) = memory.filter(|_| together || !remembers) {
            session.remember(memory);
        }
        let alone = self.aggregates.add(self.now, id, session, share);
        if self.config.rate.probes() && alone {
            self.probing.enqueue(id);
        }
    }

    /// Sets the terminals that share a link, also for existing sessions.
    pub(crate) fn set_aggregates(&mut self, aggregates: BTreeMap<PublicKey, AggregateId>) {
        self.aggregates.set(self.now, aggregates, &mut self.sessions);
        self.settle();
    }

    /// Takes the end and the path changes of one session, and updates its index entries.
    fn settle_one(&mut self, id: SessionId) {
        // The session counts as touched until it is rescheduled.
        let Some(session) = self.sessions.get_mut(id) else { return };
        let down = session.take_end().map(|why| (id, Event::Down(why)));
        self.events.extend(down);
        if let Some((left, memory)) = session.take_former_path() {
            if let Some(memory) = memory {
                self.memories.enter(self.now, left, memory);
            }
            // Like a session that starts on the new path.
            if let Some(memory) = self.memories.get(self.now, &session.path_key()) {
                session.remember(memory);
            }
        }
        // The session has finished closing.
        if session.is_over() {
            return self.forget(id);
        }
        self.sessions.reschedule(self.now, id);
    }

    pub(crate) fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        let link_free = self.link.ready_at();
        let waiting = !self.outbox.is_empty() || !self.answers.is_empty();
        let outbox = waiting.then_some((link_free, Wake::Pacing));
        earliest(outbox, self.sessions.poll_timeout(link_free))
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for id in self.sessions.due(now) {
            if let Some(session) = self.sessions.get_mut(id) {
                session.handle_timeout(now);
            }
        }
        // A report may have expired: what the last packet owes the link takes as long as the new
        // rate says.
        self.update_pacer_rate(now);
        self.settle();
    }

    /// Appends one packet of the next session that has one. The caller settles.
    pub(crate) fn transmit_session(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<SocketAddr> {
        let departure = self.sessions.transmit(now, buf);
        if departure.as_ref().is_none_or(|departure| !departure.may_repeat) {
            self.settle();
        }
        let DepartedPacket { session, envelope, rate, .. } = departure?;
        let PacketEnvelope { to, size, ecn, dscp, is_control, link } = envelope;
        (self.link_sent, self.departed) = (link, departure);
        (self.ecn_sent, self.dscp_sent, self.control_sent) = (ecn, dscp, is_control);
        if let Some(rate) = rate {
            // At rate 0 only probes leave; they are spaced at the last rate.
            self.link.set_rate(now, rate);
            self.link.sent(now, size);
        }
        self.sent_last = session;
        Some(to)
    }

    /// Appends at most `most` more packets like the one that left last; returns their number.
    pub(crate) fn transmit_more(&mut self, now: Instant, buf: &mut Vec<u8>, most: usize) -> usize {
        // Handshakes and answers have their turns before further packets of the session.
        let others_wait = !self.outbox.is_empty() || !self.answers.is_empty();
        let Some(last) = self.departed.filter(|_| !others_wait) else { return 0 };
        self.sessions.transmit_more(now, buf, &last, (&mut self.link, most))
    }
}
