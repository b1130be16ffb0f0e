//! Bundle agent of a node: takes bundles, forwards each, and forgets it when the next node has it.

mod index;
mod joining;
mod routes;

use core::time::Duration;
use std::collections::BTreeMap;

use shaping::TokenBucket;
use thiserror::Error;
use units::{ByteCount, Instant, Machine, earliest};

use self::index::{BundleIndex, BundleStage, StoredBundle};
use self::joining::FragmentGroups;
pub use self::joining::FragmentJoin;
pub use self::routes::{
    AgentConfig, AgentLimits, BundleRefusal, BundleRoute, NeighbourConfig, PeerId,
};
use super::endpoint::BundleEndpoint;
use super::format::{BundleId, BundleSummary, FragmentPosition};
use super::report::report;
use super::report_request::ReportedEvent;

/// First and longest pause after a node could not be reached, or had no room; pauses double.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Pause before a bundle is sent again that the next node does not accept.
const UNWANTED_PAUSE: Duration = Duration::from_secs(300);
/// Pause before another attempt to remove a file, which can fail while an arriving bundle fills the disk.
const REMOVAL_PAUSE: Duration = Duration::from_secs(2);
/// Pause before another attempt to join parts, for which all of them are read.
const JOIN_PAUSE: Duration = Duration::from_secs(10);
/// Limits on status reports. Bundles decide where their reports go, and could flood a third party.
const REPORTS_PER_SECOND: u32 = 10;
const REPORTS_AT_ONCE: u32 = 100;

/// A bundle in the store as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleRecord {
    /// Its identity.
    pub id: BundleId,
    /// The endpoint that created it.
    pub source: BundleEndpoint,
    /// The endpoint that it is addressed to.
    pub destination: BundleEndpoint,
    /// Time of storage, in milliseconds since 1970.
    pub arrived: u64,
    /// Expiry, in milliseconds since 1970.
    pub expires: u64,
    /// Bytes in the store.
    pub length: u64,
    /// Its position in a larger bundle, if it is a fragment.
    pub part: Option<FragmentRecord>,
}

/// A fragment of a larger bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentRecord {
    /// Identity of the larger bundle.
    pub whole: BundleId,
    /// Position of these bytes in the whole payload.
    pub place: FragmentPosition,
    /// Bytes of payload that the fragment carries.
    pub length: u64,
}

impl BundleRecord {
    /// The record of a bundle that arrives at `now`, in milliseconds since 1970.
    fn new(bundle: &BundleSummary, now: u64) -> Self {
        Self {
            id: bundle.id,
            source: bundle.source.clone(),
            destination: bundle.destination.clone(),
            arrived: now,
            expires: bundle.expires(now),
            length: bundle.length,
            part: FragmentRecord::of(bundle),
        }
    }
}

/// Reason why a bundle is no longer in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleFate {
    /// The next node has stored it.
    Forwarded,
    /// A service of this node has taken it.
    Delivered,
    /// Its lifetime ended while it waited.
    Expired,
}

/// State of a bundle as shown to users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleState {
    /// It waits to be forwarded, or is being sent.
    Waiting,
    /// It waits for its service on this node.
    Arrived,
    /// It is no longer in the store.
    Gone(BundleFate),
}

/// The party that hands over a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleOrigin {
    /// A program on this machine with access to the control socket.
    Here,
    /// Another node.
    Peer(PeerId),
}

/// Identifies a bundle that is arriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IncomingTicket(u64);

/// Decision about a bundle that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferDecision<T> {
    /// It is taken, and the owner goes on with this.
    Take(T),
    /// It has been received before: the sender may forget it.
    Duplicate,
}

/// Reason why a bundle that was being sent comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnReason {
    /// The node could not be reached, or the connection was lost.
    Lost,
    /// The node has no room at present.
    NoRoom,
    /// The node does not accept this bundle.
    Unwanted,
}

/// Counters of an agent since its start, and the present contents of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AgentStats {
    /// Bundles in the store.
    pub waiting: usize,
    /// Bytes of these bundles.
    pub bytes: ByteCount,
    /// Storage time of the oldest one, in milliseconds since 1970.
    pub oldest: Option<u64>,
    /// Bundles accepted and stored.
    pub taken: u64,
    /// Bundles that the next node has stored.
    pub forwarded: u64,
    /// Bundles delivered to services of this node.
    pub delivered: u64,
    /// Bundles whose lifetime ended.
    pub expired: u64,
    /// Bundles that had been received before.
    pub duplicates: u64,
    /// Bundles refused, for whatever reason.
    pub refused: u64,
    /// Bundles joined from fragments.
    pub joined: u64,
    /// Status reports sent.
    pub reports: u64,
    /// Identities of past bundles that are remembered.
    pub remembered: usize,
}

/// Why an [`Agent`] asks to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentWake {
    /// A node may be tried again.
    Peer,
    /// A bundle may be tried again, or fragments may be joined.
    Bundle,
}

/// The bundle is not in the store, or not in the state that the call requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no such bundle is here")]
pub struct NoSuchBundle;

#[derive(Debug)]
struct BundleArrival {
    from: BundleOrigin,
    id: Option<BundleId>,
    /// Bytes reserved in the store.
    length: u64,
    /// Its next hop, once that is known.
    place: Option<BundleRoute>,
}

#[derive(Debug, Default)]
struct PeerState {
    up: bool,
    /// Time before which it is not tried.
    paused: Option<Instant>,
    /// Length of the next pause.
    pause: Option<Duration>,
    sending: usize,
    sending_bytes: u64,
}

/// State machine of the bundle agent.
///
/// Inputs: [`Agent::begin`], [`Agent::offer`], [`Agent::stored`] or [`Agent::abandon`] for arriving bundles;
/// [`Agent::set_peer`]; [`Agent::acknowledged`] or [`Agent::returned`] for bundles from [`Agent::poll_send`];
/// [`Agent::removed`] or [`Agent::not_removed`] for those from [`Agent::poll_remove`]; [`Agent::joined`] or
/// [`Agent::not_joined`] for those from [`Agent::poll_join`]; [`Agent::handle_delivered`] or
/// [`Agent::handle_not_delivered`] for those from [`Agent::take_arrived`]. After each, drain all `poll_*`, in
/// any order. The wall-clock time is passed in where the lifetime of bundles depends on it.
///
/// Promises to others follow the disk: a bundle may be acknowledged only after [`Agent::stored`], and its
/// file is removed only when its identity is remembered.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    index: BundleIndex,
    incoming: BTreeMap<IncomingTicket, BundleArrival>,
    next_ticket: u64,
    peers: Vec<PeerState>,
    groups: FragmentGroups,
    reporting: TokenBucket,
    stats: AgentStats,
}

impl Agent {
    /// Creates an agent whose store holds `records`. `known` are past bundles to remember: identity, fate,
    /// and expiry in milliseconds since 1970. Neither is checked against the limits.
    pub fn new(
        config: AgentConfig,
        records: Vec<BundleRecord>,
        known: Vec<(BundleId, BundleFate, u64)>,
    ) -> Self {
        let peers = config.peers.iter().map(|_| PeerState::default()).collect();
        let mut agent = Self {
            config,
            index: BundleIndex::default(),
            incoming: BTreeMap::new(),
            next_ticket: 0,
            peers,
            groups: FragmentGroups::default(),
            reporting: TokenBucket::new(REPORTS_PER_SECOND, REPORTS_AT_ONCE),
            stats: AgentStats::default(),
        };
        for (id, fate, expires) in known {
            agent.index.remember(id, fate, expires);
        }
        let mut records = records;
        // Restores the order of arrival, in which bundles are sent.
        records.sort_by_key(|record| (record.arrived, record.id));
        for record in records {
            match agent.index.fate(&record.id) {
                // The process ended after noting the bundle's end, before removing its file.
                Some(fate) => {
                    agent.index.insert(record, BundleRoute::Here, BundleStage::Leaving(fate));
                }
                None => agent.place(record),
            }
        }
        agent
    }

    fn place(&mut self, record: BundleRecord) {
        // A bundle without a route stays in the store, since the configuration may get the route back.
        let place = self.config.route(&record.destination, None).unwrap_or(BundleRoute::Nowhere);
        self.keep_part(&record, place);
        self.index.insert(record, place, BundleStage::Waiting);
    }

    /// The configuration that the agent was created with.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Returns the counters and the present contents.
    pub fn stats(&self) -> AgentStats {
        AgentStats {
            waiting: self.index.len(),
            bytes: ByteCount::new(self.index.bytes()),
            oldest: self.index.oldest(),
            remembered: self.index.remembered(),
            ..self.stats
        }
    }

    /// The bundles in the store with their states, the oldest first.
    pub fn list(&self) -> impl Iterator<Item = (&BundleRecord, BundleState)> {
        self.index.list()
    }

    /// State of a bundle, if it is known.
    pub fn whereabouts(&self, id: &BundleId) -> Option<BundleState> {
        self.index.whereabouts(id)
    }

    /// Starts to receive a bundle of at most `length` bytes; `id` is its identity, if that is known in
    /// advance.
    ///
    /// # Errors
    /// The reason why it is refused, for now or for good.
    pub fn begin(
        &mut self,
        from: BundleOrigin,
        id: Option<BundleId>,
        length: u64,
    ) -> Result<OfferDecision<IncomingTicket>, BundleRefusal> {
        if id.is_some_and(|id| self.index.knows(&id)) {
            self.stats.duplicates += 1;
            return Ok(OfferDecision::Duplicate);
        }
        // Without an identity a duplicate is found only when it has arrived (`offer`).
        let room = self.check_room(from, id, length);
        self.stats.refused += u64::from(room.is_err());
        room?;
        let ticket = IncomingTicket(self.next_ticket);
        self.next_ticket += 1;
        self.incoming.insert(ticket, BundleArrival { from, id, length, place: None });
        Ok(OfferDecision::Take(ticket))
    }

    /// Checks whether a bundle may arrive now.
    fn check_room(
        &self,
        from: BundleOrigin,
        id: Option<BundleId>,
        length: u64,
    ) -> Result<(), BundleRefusal> {
        let AgentLimits { largest, bytes, bundles, remembered, window, .. } = &self.config.limits;
        if length > largest.get() {
            return Err(BundleRefusal::TooLarge);
        }
        let mut reserved = 0;
        let mut from_it = 0;
        let mut of_it = 0;
        for other in self.incoming.values() {
            if id.is_some() && other.id == id {
                return Err(BundleRefusal::Busy);
            }
            reserved += other.length;
            if other.from == from {
                (from_it, of_it) = (from_it + 1, of_it + other.length);
            }
        }
        // Bytes that one node announces and perhaps never sends leave room for others.
        if from_it > 0 && of_it + length > bytes.get() / 4 {
            return Err(BundleRefusal::Busy);
        }
        // Twice the window, because the sender no longer counts bundles whose acknowledgement is under way.
        if from_it >= 2 * window {
            return Err(BundleRefusal::Busy);
        }
        let count = self.index.len() + self.incoming.len();
        if self.index.bytes() + reserved + length > bytes.get() || count >= *bundles {
            return Err(BundleRefusal::Full);
        }
        // Every bundle in the store will have to be remembered.
        if count + self.index.remembered() >= *remembered {
            return Err(BundleRefusal::Memory);
        }
        Ok(())
    }

    /// Handles the summary of a bundle that has arrived. `now` is in milliseconds since 1970. If the bundle
    /// is taken, the owner stores it and calls [`Self::stored`], even if its sender is gone.
    ///
    /// # Errors
    /// The reason why it is refused. The ticket ends then, and with [`OfferDecision::Duplicate`].
    pub fn offer(
        &mut self,
        ticket: IncomingTicket,
        now: u64,
        bundle: &BundleSummary,
    ) -> Result<OfferDecision<BundleRecord>, BundleRefusal> {
        let Some(incoming) = self.incoming.get_mut(&ticket) else {
            return Err(BundleRefusal::Busy);
        };
        if self.index.knows(&bundle.id) {
            self.incoming.remove(&ticket);
            self.stats.duplicates += 1;
            return Ok(OfferDecision::Duplicate);
        }
        // From now on the same bundle is refused if it arrives by another way.
        let said = incoming.id.replace(bundle.id);
        let from = incoming.from;
        let checked = self.check_arrived(ticket, from, said, now, bundle);
        match (checked, self.incoming.get_mut(&ticket)) {
            (Ok(Some(place)), Some(incoming)) => {
                (incoming.place, incoming.length) = (Some(place), bundle.length);
                Ok(OfferDecision::Take(BundleRecord::new(bundle, now)))
            }
            (Ok(None), _) => {
                self.incoming.remove(&ticket);
                self.stats.duplicates += 1;
                Ok(OfferDecision::Duplicate)
            }
            (checked, _) => {
                self.incoming.remove(&ticket);
                self.stats.refused += 1;
                Err(checked.err().unwrap_or(BundleRefusal::Busy))
            }
        }
    }

    /// Checks a bundle that has arrived and finds its next hop; [`None`] for a fragment without new bytes.
    /// `said` is the identity that was announced.
    fn check_arrived(
        &self,
        ticket: IncomingTicket,
        from: BundleOrigin,
        said: Option<BundleId>,
        now: u64,
        bundle: &BundleSummary,
    ) -> Result<Option<BundleRoute>, BundleRefusal> {
        if said.is_some_and(|said| said != bundle.id) {
            return Err(BundleRefusal::Malformed);
        }
        let is_twin = |(other, arrival): (&IncomingTicket, &BundleArrival)| {
            *other != ticket && arrival.id == Some(bundle.id)
        };
        if self.incoming.iter().any(is_twin) || self.is_joining(&bundle.id) {
            return Err(BundleRefusal::Busy);
        }
        let place = self.config.check(from, bundle, now)?;
        self.check_share(place, bundle.length)?;
        Ok(self.is_new_part(place, bundle)?.then_some(place))
    }

    /// Checks whether there is room for a bundle to `place`: a quarter of the store stays free for other
    /// places. Otherwise two nodes, full of bundles for each other, would wait for ever.
    fn check_share(&self, place: BundleRoute, length: u64) -> Result<(), BundleRefusal> {
        let AgentLimits { bytes, bundles, .. } = self.config.limits;
        let (mut count, mut taken) = self.index.share(place);
        for other in self.incoming.values().filter(|arrival| arrival.place == Some(place)) {
            (count, taken) = (count + 1, taken + other.length);
        }
        let fits = taken + length <= bytes.get() - bytes.get() / 4 && count < bundles - bundles / 4;
        fits.then_some(()).ok_or(BundleRefusal::Full)
    }

    /// Records that the disk has a bundle: it may be acknowledged now.
    pub fn stored(&mut self, ticket: IncomingTicket, record: BundleRecord) {
        let known = self.incoming.remove(&ticket);
        debug_assert!(known.is_some(), "what is stored was taken");
        debug_assert!(!self.index.knows(&record.id), "each is stored once");
        self.stats.taken += 1;
        self.place(record);
    }

    /// Ends the arrival of a bundle that does not come after all, or could not be stored.
    pub fn abandon(&mut self, ticket: IncomingTicket) {
        self.incoming.remove(&ticket);
    }

    /// Records that a node has become reachable or unreachable. Bundles being sent to it come back by
    /// [`Self::returned`].
    pub fn set_peer(&mut self, peer: PeerId, up: bool) {
        let Some(peer) = self.peers.get_mut(peer.0) else { return };
        if up && !peer.up {
            (peer.paused, peer.pause) = (None, None);
        }
        peer.up = up;
    }

    /// Returns `true` if a node can be reached.
    pub fn is_up(&self, peer: PeerId) -> bool {
        self.peers.get(peer.0).is_some_and(|peer| peer.up)
    }

    /// Returns the next bundle to send and its node: the oldest one for a node that can be reached, within
    /// the node's window.
    pub fn poll_send(&mut self) -> Option<(PeerId, BundleRecord)> {
        let AgentLimits { window, window_bytes, .. } = self.config.limits;
        for (number, peer) in self.peers.iter_mut().enumerate() {
            if !peer.up || peer.paused.is_some() || peer.sending >= window {
                continue;
            }
            let id = PeerId(number);
            let Some(record) = self.index.first_for(id) else { continue };
            let bytes = peer.sending_bytes + record.length;
            // A bundle larger than the window must still be sendable, alone.
            if peer.sending > 0 && bytes > window_bytes.get() {
                continue;
            }
            (peer.sending, peer.sending_bytes) = (peer.sending + 1, bytes);
            let record = record.clone();
            self.index.set(&record.id, BundleStage::Sending(id));
            return Some((id, record));
        }
        None
    }

    /// Records that the next node has stored a bundle.
    pub fn acknowledged(&mut self, id: &BundleId) {
        let Some(PeerId(number)) = self.end_sending(id) else { return };
        // The node accepts bundles again, so its next pause is a short one.
        (self.peers[number].paused, self.peers[number].pause) = (None, None);
        self.leave(id, BundleFate::Forwarded);
    }

    /// Handles a bundle that could not be sent; it will be sent again.
    pub fn returned(&mut self, now: Instant, id: &BundleId, why: ReturnReason) {
        let Some(number) = self.end_sending(id) else { return };
        // Other bundles to the node are not affected.
        if why == ReturnReason::Unwanted {
            return self.index.set(id, BundleStage::Paused(now + UNWANTED_PAUSE));
        }
        let peer = &mut self.peers[number.0];
        if peer.paused.is_none() {
            let pause = peer.pause.unwrap_or(RETRY_PAUSES.0);
            peer.paused = Some(now + pause);
            peer.pause = Some((pause * 2).min(RETRY_PAUSES.1));
        }
        if why == ReturnReason::NoRoom {
            // There may be room for other bundles, which are tried first.
            self.index.set(id, BundleStage::Paused(now + RETRY_PAUSES.1));
            if self.index.first_for(number).is_some() {
                return;
            }
        }
        self.index.set(id, BundleStage::Waiting);
    }

    /// Ends the sending of a bundle. Returns the node that it was being sent to.
    fn end_sending(&mut self, id: &BundleId) -> Option<PeerId> {
        let held = self.index.get(id)?;
        let BundleStage::Sending(number) = held.state else { return None };
        let length = held.record.length;
        let peer = self.peers.get_mut(number.0)?;
        debug_assert!(peer.sending > 0 && peer.sending_bytes >= length, "each ends once");
        (peer.sending, peer.sending_bytes) = (peer.sending - 1, peer.sending_bytes - length);
        Some(number)
    }

    /// Builds a status report about another bundle, if that bundle requests it and this node sends reports.
    /// `number` distinguishes it from other reports; `wall` is in milliseconds since 1970. The owner hands
    /// the report in like a bundle of its own; if that fails, there is no report.
    pub fn report(
        &mut self,
        now: Instant,
        wall: u64,
        about: &BundleSummary,
        what: ReportedEvent,
        number: u64,
    ) -> Option<Vec<u8>> {
        let asked = about.reports.as_ref().is_some_and(|request| request.asks(what));
        if !self.config.reports || !asked || !self.reporting.take(now) {
            return None;
        }
        self.stats.reports += 1;
        report(about, what, &self.config.node, wall, number)
    }

    /// Returns the oldest bundle for a service of this node, or for the node itself (`None`), that is not
    /// being delivered. It is not returned again before [`Self::handle_delivered`] or [`Self::handle_not_delivered`].
    pub fn take_arrived(&mut self, service: Option<&str>) -> Option<BundleRecord> {
        let record = self.index.first_here(service)?.clone();
        self.index.set(&record.id, BundleStage::Delivering);
        Some(record)
    }

    /// Returns `true` if a bundle waits for a service of this node.
    pub fn has_arrived(&self, service: Option<&str>) -> bool {
        self.index.first_here(service).is_some()
    }

    /// Records that a bundle from [`Self::take_arrived`] was delivered.
    ///
    /// # Errors
    /// If it is not being delivered.
    pub fn handle_delivered(&mut self, id: &BundleId) -> Result<(), NoSuchBundle> {
        self.delivering(id)?;
        self.leave(id, BundleFate::Delivered);
        Ok(())
    }

    /// Puts back a bundle from [`Self::take_arrived`] that could not be delivered.
    ///
    /// # Errors
    /// If it is not being delivered.
    pub fn handle_not_delivered(&mut self, id: &BundleId) -> Result<(), NoSuchBundle> {
        self.delivering(id)?;
        self.index.set(id, BundleStage::Waiting);
        Ok(())
    }

    fn delivering(&self, id: &BundleId) -> Result<&StoredBundle, NoSuchBundle> {
        let held = self.index.get(id).filter(|held| held.state == BundleStage::Delivering);
        held.ok_or(NoSuchBundle)
    }

    fn leave(&mut self, id: &BundleId, fate: BundleFate) {
        let count = match fate {
            BundleFate::Forwarded => &mut self.stats.forwarded,
            BundleFate::Delivered => &mut self.stats.delivered,
            BundleFate::Expired => &mut self.stats.expired,
        };
        *count += 1;
        // A fragment that leaves no longer waits to be joined.
        if let Some(StoredBundle { record: BundleRecord { part: Some(part), .. }, .. }) =
            self.index.get(id)
        {
            self.groups.remove(*id, part);
        }
        self.index.set(id, BundleStage::Leaving(fate));
    }

    /// Returns the next bundle to remove from the disk, and its fate, to be remembered there until it
    /// expires.
    pub fn poll_remove(&mut self) -> Option<(BundleRecord, BundleFate)> {
        let (record, fate) = self.index.first_leaving()?;
        let record = record.clone();
        self.index.set(&record.id, BundleStage::Removing(fate));
        Some((record, fate))
    }

    /// Records that the disk remembers this bundle and has removed its file.
    pub fn removed(&mut self, id: &BundleId) {
        if let Some(held) = self.index.take(id)
            && let BundleStage::Removing(fate) = held.state
        {
            self.index.remember(*id, fate, held.record.expires);
        }
    }

    /// Handles a bundle that could not be removed; it is tried again later.
    pub fn not_removed(&mut self, now: Instant, id: &BundleId) {
        if let Some(BundleStage::Removing(fate)) = self.index.get(id).map(|held| held.state) {
            self.index.set(id, BundleStage::Stuck(now + REMOVAL_PAUSE, fate));
        }
    }

    /// Returns `true` if a bundle is in the store, including one that is being removed.
    pub fn holds(&self, id: &BundleId) -> bool {
        self.index.get(id).is_some()
    }

    /// Drops bundles whose lifetime has ended, and forgets past ones that can no longer be repeated. `wall`
    /// is in milliseconds since 1970.
    pub fn expire(&mut self, wall: u64) {
        self.index.forget(wall);
        for id in self.index.expired(wall) {
            self.leave(&id, BundleFate::Expired);
        }
    }

    /// All identities that must be remembered, for an owner that rewrites the list. It includes those being
    /// removed, which the disk may have noted already.
    pub fn remembered(&self) -> impl Iterator<Item = (&BundleId, BundleFate, u64)> {
        self.index.all_remembered()
    }
}

impl Machine for Agent {
    type Wake = AgentWake;

    fn poll_timeout(&self) -> Option<(Instant, AgentWake)> {
        let peers = self.peers.iter().filter(|peer| peer.up).filter_map(|peer| peer.paused).min();
        let later = [self.index.first_paused(), self.groups.first_later()];
        let bundles = later.into_iter().flatten().min();
        earliest(peers.map(|at| (at, AgentWake::Peer)), bundles.map(|at| (at, AgentWake::Bundle)))
    }

    fn handle_timeout(&mut self, now: Instant) {
        for peer in &mut self.peers {
            peer.paused.take_if(|until| *until <= now);
        }
        self.index.unpause(now);
        self.groups.handle_timeout(now);
    }
}
