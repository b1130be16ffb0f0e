//! The handle to the endpoint, or to the parts of a hub. It passes commands and the time on, and wakes
//! waiting tasks.
//!
//! The driver's task and the relays share the endpoint and call it directly. They normally run on
//! one thread, so the lock is uncontended, and it is never held across an await. A hub in several
//! parts has an endpoint for each of its threads; no thread holds two of the locks at once.

mod figures;
mod settings;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;

use compression::CodedStream;
use pep::accounting::{TrafficDirection, UsageTally};
use pep::rates::forecast::MessageForecast;
use pep::work::WorkShares;
use slacp::{
    ChannelError, ChannelId, ClassId, Destination, Endpoint, Event, MAX_PARTS, ResetReason,
    SessionId, StreamError, StreamId, StreamOpening,
};
use tokio::sync::{Notify, watch};
use units::{ByteCount, Instant, Machine};

use super::class::LiveClasses;
use super::compression::Compression;
use super::stream::SessionStream;
use super::tcp::{ConnectionId, TcpLinks};

/// Identifies a stream among those of all sessions.
pub(super) type StreamKey = (SessionId, StreamId);

/// A handle to the endpoint.
#[derive(Clone)]
pub(crate) struct Hop(Arc<HopShared>);

struct HopShared {
    parts: Vec<HopPart>,
    /// Assigns streams to classes by port and code point.
    classes: Arc<LiveClasses>,
    /// TCP connections that carry datagrams.
    links: TcpLinks,
    /// Publishes the demand, on a link with capacity on demand.
    demand: OnceLock<watch::Sender<CapacityDemand>>,
}

/// An endpoint with the notification of its driver.
struct HopPart {
    state: Mutex<PartState>,
    /// Notified by anything that may make the endpoint send.
    work: Notify,
}

impl HopPart {
    fn lock(&self) -> MutexGuard<'_, PartState> {
        self.state.lock().expect("no thread panics while it holds the endpoint")
    }
}

/// Maximum opened streams of a session that the main loop has not taken yet. The limit of open streams
/// does not apply to a peer that resets each stream after opening it.
const MOST_UNTAKEN: usize = 4096;

/// Capacity to request from the modem, on a link with capacity on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CapacityDemand {
    /// Bytes queued in all sessions together.
    pub(crate) waiting: ByteCount,
    /// Bytes that are forecast beyond these.
    pub(crate) foreseen: ByteCount,
    /// Datagrams sent so far; 0 without a forecast. The modem deducts everything that leaves from the
    /// request, even data that the request did not cover, so a change must trigger a new request.
    sent: u64,
}

impl CapacityDemand {
    /// Sum of the demands of two parts of a hub.
    fn plus(self, other: Self) -> Self {
        Self {
            waiting: add(self.waiting, other.waiting),
            foreseen: add(self.foreseen, other.foreseen),
            sent: self.sent.max(other.sent),
        }
    }
}

fn add(one: ByteCount, other: ByteCount) -> ByteCount {
    ByteCount::new(one.get().saturating_add(other.get()))
}

/// The endpoint of a part, and the tasks waiting for its streams.
pub(crate) struct PartState {
    pub(crate) endpoint: Endpoint,
    pub(super) streams: BTreeMap<StreamKey, StreamEntry>,
    /// Forecast of the streams' next data, on a link with capacity on demand.
    pub(super) forecast: Option<MessageForecast<StreamKey>>,
    pub(super) compression: Compression,
    /// Traffic of the sessions for accounting, on a hub.
    pub(super) tally: Option<UsageTally<SessionId>>,
    /// Sessions whose traffic is all in one class.
    forced: BTreeMap<SessionId, ClassId>,
    /// Number of opened streams per session that the main loop has not taken yet.
    untaken: BTreeMap<SessionId, usize>,
    /// Number of streams that ended with a session, until [`Hop::take_lost`].
    pub(super) lost: BTreeMap<SessionId, usize>,
    /// Processing shares of the sessions until the driver's next turn.
    pub(super) work: WorkShares<SessionId>,
    /// Streams that wait for the next turn, in order.
    resting: BTreeMap<SessionId, VecDeque<StreamId>>,
    /// Streams opened by peers that wait for the next turn, in order.
    opened: BTreeMap<SessionId, VecDeque<(StreamId, StreamOpening<Destination>)>>,
}

impl PartState {
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            streams: BTreeMap::new(),
            forecast: None,
            compression: Compression::default(),
            tally: None,
            forced: BTreeMap::new(),
            untaken: BTreeMap::new(),
            lost: BTreeMap::new(),
            work: WorkShares::default(),
            resting: BTreeMap::new(),
            opened: BTreeMap::new(),
        }
    }

    /// Counts another opened stream for the main loop; false at the session's limit.
    fn announce(&mut self, session: SessionId) -> bool {
        let untaken = self.untaken.entry(session).or_default();
        let fits = *untaken < MOST_UNTAKEN;
        *untaken += usize::from(fits);
        fits
    }

    /// Adds bytes of a stream to the accounts.
    pub(super) fn count(&mut self, key: StreamKey, direction: TrafficDirection, bytes: usize) {
        if let (Some(tally), Some(entry)) = (&mut self.tally, self.streams.get(&key)) {
            tally.moved(key.0, entry.class, direction, bytes);
        }
    }

    /// Replaces class ids by those of their successors, after a reload.
    fn follow_classes(&mut self, successor: impl Fn(ClassId) -> ClassId) {
        for entry in self.streams.values_mut() {
            entry.class = successor(entry.class);
            entry.default_class = successor(entry.default_class);
        }
        self.forced.values_mut().for_each(|class| *class = successor(*class));
    }

    /// Adds a packet of a packet channel to the accounts.
    pub(super) fn count_packet(
        &mut self,
        session: SessionId,
        class: ClassId,
        direction: TrafficDirection,
        bytes: usize,
    ) {
        if let Some(tally) = &mut self.tally {
            tally.packet(session, class, direction, bytes);
        }
    }
}

/// State of an open stream.
#[derive(Default)]
pub(super) struct StreamEntry {
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// Waits for the stream to be accepted or reset.
    pub(super) watcher: Option<Waker>,
    /// The peer has connected the stream to its destination.
    pub(super) accepted: bool,
    /// We have finished our direction.
    pub(super) finished: bool,
    /// The peer has finished its direction and we have read everything.
    pub(super) ended: bool,
    /// The stream was reset and is gone.
    pub(super) reset: Option<ResetReason>,
    /// Compresses and decompresses its data, if both sides have agreed on that.
    pub(super) coder: Option<Box<CodedStream>>,
    /// The current class, and the class by port and code point, which returns when the session's forced
    /// class ends.
    class: ClassId,
    default_class: ClassId,
    /// Set while the stream waits for the driver's next turn.
    is_resting: bool,
}

impl StreamEntry {
    fn set_reset(&mut self, reason: ResetReason) {
        self.reset.get_or_insert(reason);
        for waker in [&mut self.reader, &mut self.writer, &mut self.watcher] {
            wake(waker);
        }
    }
}

/// An event for the gateway's main loop.
pub(crate) enum HopEvent {
    /// An event of a session that concerns no stream.
    Session(SessionId, Event),
    /// The peer opened a stream.
    Opened(SessionStream, StreamOpening<Destination>),
    /// A TCP connection that carried datagrams has ended.
    TcpEnded(ConnectionId),
}

/// Iterates over the streams of a session with their entries.
fn streams_of(
    streams: &mut BTreeMap<StreamKey, StreamEntry>,
    session: SessionId,
) -> impl Iterator<Item = (StreamId, &mut StreamEntry)> {
    let of_session = streams.iter_mut().filter(move |((its, _), _)| *its == session);
    of_session.map(|((_, stream), entry)| (*stream, entry))
}

impl HopShared {
    /// Returns the class and channel of a packet for which the classes chose `channel`. They differ from
    /// that choice if the session has a forced class.
    fn class_of_packet(
        &self,
        state: &PartState,
        session: SessionId,
        channel: ChannelId,
    ) -> (ClassId, ChannelId) {
        let classes = self.classes.read();
        match state.forced.get(&session) {
            Some(class) => (*class, classes.channel_of(*class)),
            None => (classes.class_of(channel), channel),
        }
    }
}

impl Hop {
    /// Creates a handle to the endpoints of a hub's parts, in order, or to a single endpoint.
    pub(crate) fn new(endpoints: Vec<Endpoint>, classes: Arc<LiveClasses>) -> Self {
        debug_assert!((1..=MAX_PARTS.into()).contains(&endpoints.len()));
        let part =
            |endpoint| HopPart { state: Mutex::new(PartState::new(endpoint)), work: Notify::new() };
        let parts = endpoints.into_iter().map(part).collect();
        let links = TcpLinks::new();
        Self(Arc::new(HopShared { parts, classes, links, demand: OnceLock::new() }))
    }

    /// Number of parts; 1 unless a hub has workers.
    pub(crate) fn parts(&self) -> u8 {
        // At most `MOST_PARTS`, which is a `u8`.
        self.0.parts.len() as u8
    }

    /// The TCP connections that carry datagrams where UDP is blocked.
    pub(crate) fn links(&self) -> &TcpLinks {
        &self.0.links
    }

    /// Locks the endpoint of a part, for its driver.
    pub(crate) fn part(&self, number: u8) -> MutexGuard<'_, PartState> {
        self.0.parts[usize::from(number)].lock()
    }

    /// Locks the endpoint that has a session.
    pub(crate) fn lock(&self, session: SessionId) -> MutexGuard<'_, PartState> {
        self.part(session.part(self.parts()))
    }

    /// Locks the endpoints of all parts, one after the other.
    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, PartState>> {
        self.0.parts.iter().map(HopPart::lock)
    }

    /// Enables the forecast of what streams send next.
    pub(crate) fn enable_forecast(&self) {
        self.each().for_each(|mut state| _ = state.forecast.get_or_insert_default());
    }

    /// Publishes the demand of all sessions together to `to` from now on.
    pub(crate) fn publish_demand_to(&self, to: watch::Sender<CapacityDemand>) {
        // There is one modem, whose client calls this once.
        let _ = self.0.demand.set(to);
    }

    /// Publishes the demand if it has changed. `sent`: datagrams sent so far.
    pub(super) fn publish_demand(&self, now: Instant, sent: u64) {
        let Some(to) = self.0.demand.get() else { return };
        let demand = self.demand_after(now, sent);
        to.send_if_modified(|last| std::mem::replace(last, demand) != demand);
    }

    /// Adds a packet that was received from the peer and delivered to the accounts.
    pub(super) fn count_delivered(
        &self,
        state: &mut PartState,
        session: SessionId,
        channel: ChannelId,
        bytes: usize,
    ) {
        let (class, _) = self.0.class_of_packet(state, session, channel);
        state.count_packet(session, class, TrafficDirection::From, bytes);
    }

    /// Puts all traffic of a session into the class of this name; `None` restores the classes by port and
    /// code point. An unknown name counts as `None`.
    pub(crate) fn force_class(&self, session: SessionId, name: Option<&str>) {
        let class = name.and_then(|name| self.0.classes.read().id_of(name));
        let mut state = self.lock(session);
        let before = match class {
            Some(class) => state.forced.insert(session, class),
            None => state.forced.remove(&session),
        };
        // Called whenever limits are applied, which seldom changes the class.
        if before == class {
            return;
        }
        let PartState { endpoint, streams, .. } = &mut *state;
        for (stream, entry) in streams_of(streams, session) {
            entry.class = class.unwrap_or(entry.default_class);
            // Fails only for a stream that is already gone.
            let _ = endpoint.classify(session, stream, entry.class);
        }
        drop(state);
        self.notify_driver(session);
    }

    /// Resets all streams of a session. The peer and the local relays learn the reason.
    pub(crate) fn reset_streams(&self, session: SessionId, reason: ResetReason) {
        let mut state = self.lock(session);
        let PartState { endpoint, streams, .. } = &mut *state;
        for (stream, entry) in streams_of(streams, session) {
            // Fails only for a stream that is already gone.
            let _ = endpoint.reset(session, stream, reason);
            entry.set_reset(reason);
        }
        drop(state);
        self.notify_driver(session);
    }

    /// Applies a command to the endpoints of all parts and wakes their drivers.
    fn command(&self, mut what: impl FnMut(&mut Endpoint)) {
        self.each().for_each(|mut state| what(&mut state.endpoint));
        self.notify_drivers();
    }

    /// Wakes the driver of a session's endpoint, which may have something to send.
    pub(super) fn notify_driver(&self, session: SessionId) {
        self.0.parts[usize::from(session.part(self.parts()))].work.notify_one();
    }

    fn notify_drivers(&self) {
        self.0.parts.iter().for_each(|part| part.work.notify_one());
    }

    /// Waits until a part's driver has been notified since the last call.
    pub(crate) async fn work_notified(&self, part: u8) {
        self.0.parts[usize::from(part)].work.notified().await;
    }

    /// Opens a stream without waiting for the peer. Data may be written at once.
    ///
    /// # Errors
    /// If there is no session, or no room for another stream.
    pub(crate) fn open(
        &self,
        now: Instant,
        session: SessionId,
        open: impl Into<StreamOpening<Destination>>,
    ) -> Result<SessionStream, StreamError> {
        let open = open.into();
        let port = open.destination.port();
        let dscp = open.dscp;
        let mut state = self.lock(session);
        let stream = match self.0.classes.read().compresses(port, dscp) {
            true => state.endpoint.open_compressed(now, session, open)?,
            false => state.endpoint.open(now, session, open)?,
        };
        self.add_stream(&mut state, (session, stream), port, dscp);
        Ok(SessionStream::new(self.clone(), (session, stream)))
    }

    /// Returns whether [`Self::open`] would find room for another stream.
    pub(crate) fn has_room(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.has_room(session)
    }

    /// Queues an IP packet on a packet channel.
    ///
    /// # Errors
    /// If there is no session, or the peer accepts no packets.
    pub(crate) fn send_packet(
        &self,
        now: Instant,
        session: SessionId,
        channel: ChannelId,
        packet: &[u8],
    ) -> Result<(), ChannelError> {
        let mut state = self.lock(session);
        let (class, channel) = self.0.class_of_packet(&state, session, channel);
        state.endpoint.send_packet(now, session, channel, packet)?;
        state.count_packet(session, class, TrafficDirection::To, packet.len());
        drop(state);
        self.notify_driver(session);
        Ok(())
    }

    /// Returns whether the peer of any session has this address.
    pub(crate) fn has_peer_at(&self, address: IpAddr) -> bool {
        self.each().any(|state| state.endpoint.has_peer_at(address))
    }

    /// Returns whether the peer opens connections to host names.
    pub(crate) fn peer_resolves(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_resolves(session)
    }

    /// Returns whether the peer answers DNS queries.
    pub(crate) fn peer_answers(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_answers(session)
    }

    /// Returns whether the peer supports HTTP exchanges.
    pub(crate) fn peer_exchanges(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_exchanges(session)
    }

    /// Returns whether the peer accepts bundles.
    pub(crate) fn peer_takes_bundles(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_takes_bundles(session)
    }

    /// Returns the length of the longest IP packet that is certain to fit into one packet of the hop.
    pub(crate) fn longest_whole_packet(&self, session: SessionId) -> Option<usize> {
        self.lock(session).endpoint.longest_whole_packet(session)
    }

    /// Returns the source address that the hub of a terminal's session expects in packets, if it gives one.
    pub(crate) fn packet_address(&self, session: SessionId) -> Option<Ipv4Addr> {
        self.lock(session).endpoint.packet_address(session)
    }

    /// Returns whether the peer accepts packets on this channel.
    pub(crate) fn peer_receives(&self, session: SessionId, channel: ChannelId) -> bool {
        self.lock(session).endpoint.peer_receives(session, channel)
    }

    /// Adds the entry of a new stream: its class, coder and account.
    fn add_stream(&self, state: &mut PartState, key: StreamKey, port: u16, dscp: Option<u8>) {
        let classes = self.0.classes.read();
        let usual = classes.of_connection(port, dscp);
        let compresses = classes.compresses(port, dscp);
        let class = state.forced.get(&key.0).copied().unwrap_or(usual);
        // Fails only for a stream that is already gone.
        let _ = state.endpoint.classify(key.0, key.1, class);
        let coded = state.compression.coder(&state.endpoint, key, compresses);
        state.streams.insert(
            key,
            StreamEntry { coder: coded, class, default_class: usual, ..StreamEntry::default() },
        );
        if let Some(tally) = &mut state.tally {
            tally.opened(key.0, class);
        }
        self.notify_driver(key.0);
    }

    /// Notes that the main loop has taken a stream that the peer opened.
    pub(crate) fn taken(&self, stream: &SessionStream) {
        let mut state = self.lock(stream.session());
        if let Some(untaken) = state.untaken.get_mut(&stream.session()) {
            *untaken -= 1;
            if *untaken == 0 {
                state.untaken.remove(&stream.session());
            }
        }
    }

    /// Handles events of the endpoint, waking the tasks that wait for them, up to the first one for the
    /// main loop, which it returns.
    pub(crate) fn take_event(&self, state: &mut PartState) -> Option<HopEvent> {
        // Streams that have waited for this turn come before new ones.
        if let Some(opened) = self.next_opened(state) {
            return Some(opened);
        }
        while let Some((session, event)) = state.endpoint.poll_event() {
            if let Some(event) = self.handle_event(state, session, event) {
                return Some(event);
            }
        }
        None
    }

    /// Handles an event of the endpoint. Returns the event for the main loop, if there is one.
    fn handle_event(
        &self,
        state: &mut PartState,
        session: SessionId,
        event: Event,
    ) -> Option<HopEvent> {
        match event {
            // Streams that the peer opens and resets at once must not fill the main loop's queue.
            Event::Opened { stream, .. } if !state.announce(session) => {
                // Fails only for a stream that is already gone.
                let _ = state.endpoint.reset(session, stream, ResetReason::Limit);
            }
            Event::Opened { stream, open } => {
                self.add_stream(state, (session, stream), open.destination.port(), open.dscp);
                state.opened.entry(session).or_default().push_back((stream, open));
                return self.next_opened(state);
            }
            Event::Readable(stream) => state.wake((session, stream), |entry| &mut entry.reader),
            Event::Writable(stream) => state.wake((session, stream), |entry| &mut entry.writer),
            Event::Reset { stream, reason } => {
                if let Some(entry) = state.streams.get_mut(&(session, stream)) {
                    entry.set_reset(reason);
                }
            }
            Event::Accepted(stream) => {
                if let Some(entry) = state.streams.get_mut(&(session, stream)) {
                    entry.accepted = true;
                    wake(&mut entry.watcher);
                }
            }
            Event::Closed(_) => {}
            Event::Up { peer, .. } => {
                state.tally.iter_mut().for_each(|tally| tally.begin(session, peer));
                return Some(HopEvent::Session(session, event));
            }
            Event::Down(_) => {
                state.end_session(session);
                return Some(HopEvent::Session(session, event));
            }
            event => return Some(HopEvent::Session(session, event)),
        }
        None
    }
}

impl PartState {
    fn demand(&mut self, now: Instant, sent: u64) -> CapacityDemand {
        let waiting = self.endpoint.waiting();
        let foreseen = self.forecast.as_mut().map_or_else(ByteCount::default, |forecast| {
            forecast.handle_timeout(now);
            forecast.foreseen(waiting)
        });
        // Without a forecast, the count would only trigger needless updates.
        let sent = if foreseen == ByteCount::default() { 0 } else { sent };
        CapacityDemand { waiting, foreseen, sent }
    }

    /// Time of the forecast's next expiry.
    pub(super) fn forecast_ends(&self) -> Option<Instant> {
        Some(self.forecast.as_ref()?.poll_timeout()?.0)
    }

    fn wake(&mut self, key: StreamKey, waker: impl FnOnce(&mut StreamEntry) -> &mut Option<Waker>) {
        if let Some(entry) = self.streams.get_mut(&key) {
            wake(waker(entry));
        }
    }

    /// Forgets an ended session. Its streams stay until their owners drop them.
    fn end_session(&mut self, session: SessionId) {
        self.tally.iter_mut().for_each(|tally| tally.end(session));
        self.forced.remove(&session);
        self.untaken.remove(&session);
        // First the streams that were never handed out, which do not count as lost.
        self.drop_opened(session);
        self.remove_session(session);
    }

    fn remove_session(&mut self, session: SessionId) {
        self.compression.lose(session);
        self.work.remove(session);
        self.resting.remove(&session);
        let mut lost = 0;
        for ((_, _), entry) in self.streams.iter_mut().filter(|((s, _), _)| *s == session) {
            let is_over = entry.reset.is_some() || entry.finished && entry.ended;
            lost += usize::from(!is_over);
            // Its queue was dropped above. It may rest again: the decoder may still hold data to read.
            entry.is_resting = false;
            entry.set_reset(ResetReason::SessionLost);
        }
        self.lost.insert(session, lost);
    }

    pub(super) fn entry(&mut self, key: StreamKey) -> (&mut Endpoint, &mut StreamEntry) {
        let (endpoint, entry, _) = self.parts(key);
        (endpoint, entry)
    }

    pub(super) fn parts(
        &mut self,
        key: StreamKey,
    ) -> (&mut Endpoint, &mut StreamEntry, &mut Compression) {
        let entry = self.streams.get_mut(&key).expect("an entry lives as long as its stream");
        (&mut self.endpoint, entry, &mut self.compression)
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
