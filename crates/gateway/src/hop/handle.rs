//! The handle to the endpoint, or to the parts of a hub. It is handed the time, passes commands on,
//! and wakes waiting tasks.
//!
//! The driver's task and the relays share the endpoint and call it directly. They normally run on
//! one thread, so the lock is uncontended, and it is never held across an await. A hub in several
//! parts has an endpoint for each of its threads, and nobody holds two of the locks.

mod figures;
mod settings;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;

use compression::Coded;
use pep::accounting::{Direction, Tally};
use pep::forecast::Forecast;
use pep::work::WorkShares;
use slacp::{
    ChannelError, ChannelId, ClassId, Destination, Endpoint, Event, MOST_PARTS, Open, ResetReason,
    SessionId, StreamError, StreamId,
};
use tokio::sync::{Notify, watch};
use units::{ByteCount, Instant, Machine};

use super::class::LiveClasses;
use super::compression::Compression;
use super::stream::Stream;
use super::tcp::{ConnectionId, TcpLinks};

pub(super) type Key = (SessionId, StreamId);

/// A handle to the endpoint.
#[derive(Clone)]
pub(crate) struct Hop(Arc<Shared>);

struct Shared {
    parts: Vec<Part>,
    /// Assigns streams to classes.
    classes: Arc<LiveClasses>,
    /// TCP connections that carry datagrams.
    links: TcpLinks,
    /// Where to say what waits, on a link with capacity on demand.
    waiting: OnceLock<watch::Sender<Demand>>,
}

/// An endpoint, and what its driver waits for.
struct Part {
    state: Mutex<State>,
    /// Notified by anything that may make the endpoint send.
    work: Notify,
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the endpoint")
    }
}

/// Streams of a session that may wait for the main loop at once. A peer that opens and resets streams has
/// none open, and so no other limit.
const MOST_UNTAKEN: usize = 4096;

/// What to ask the modem for, on a link with capacity on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Demand {
    /// Bytes that wait in all sessions together.
    pub(crate) waiting: ByteCount,
    /// Bytes that are foreseen, beyond these.
    pub(crate) foreseen: ByteCount,
    /// Datagrams sent so far, while any are foreseen. The modem takes what has left off what it was
    /// asked for, also if it was not asked for, and must be asked again.
    sent: u64,
}

impl Demand {
    /// What two parts of a hub ask for.
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

/// The endpoint, and the tasks waiting for its streams.
pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    pub(super) streams: BTreeMap<Key, Entry>,
    /// What the streams will send next, on a link with capacity on demand.
    pub(super) forecast: Option<Forecast<Key>>,
    pub(super) compression: Compression,
    /// What sessions carry, on a hub.
    pub(super) tally: Option<Tally<SessionId>>,
    /// Sessions of which all traffic is in one class.
    forced: BTreeMap<SessionId, ClassId>,
    /// How many streams of a session the main loop has yet to take.
    untaken: BTreeMap<SessionId, usize>,
    /// How many streams ended with a session, until the main loop asks.
    pub(super) lost: BTreeMap<SessionId, usize>,
    /// What the sessions may do before the driver's next turn.
    pub(super) work: WorkShares<SessionId>,
    /// Streams that wait for that, in order.
    resting: BTreeMap<SessionId, VecDeque<StreamId>>,
    /// Streams that peers have opened and that wait for that, in order.
    opened: BTreeMap<SessionId, VecDeque<(StreamId, Open<Destination>)>>,
}

impl State {
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

    /// Counts another stream for the main loop, if it has not too many of the session to take already.
    fn announce(&mut self, session: SessionId) -> bool {
        let untaken = self.untaken.entry(session).or_default();
        let fits = *untaken < MOST_UNTAKEN;
        *untaken += usize::from(fits);
        fits
    }

    /// Counts bytes of a stream.
    pub(super) fn count(&mut self, key: Key, direction: Direction, bytes: usize) {
        if let (Some(tally), Some(entry)) = (&mut self.tally, self.streams.get(&key)) {
            tally.moved(key.0, entry.class, direction, bytes);
        }
    }

    /// Moves what is known of classes to their successors.
    fn follow_classes(&mut self, successor: impl Fn(ClassId) -> ClassId) {
        for entry in self.streams.values_mut() {
            (entry.class, entry.usual) = (successor(entry.class), successor(entry.usual));
        }
        self.forced.values_mut().for_each(|class| *class = successor(*class));
    }

    /// Counts a packet that was carried whole.
    pub(super) fn count_packet(
        &mut self,
        session: SessionId,
        class: ClassId,
        direction: Direction,
        bytes: usize,
    ) {
        if let Some(tally) = &mut self.tally {
            tally.packet(session, class, direction, bytes);
        }
    }
}

/// State of an open stream.
#[derive(Default)]
pub(super) struct Entry {
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
    pub(super) coded: Option<Box<Coded>>,
    /// The class of its traffic, and the one that it has unless all of the session's is in one.
    class: ClassId,
    usual: ClassId,
    /// Whether it is among those that wait for the driver's next turn.
    rests: bool,
}

impl Entry {
    fn set_reset(&mut self, reason: ResetReason) {
        self.reset.get_or_insert(reason);
        for waker in [&mut self.reader, &mut self.writer, &mut self.watcher] {
            wake(waker);
        }
    }
}

/// An event for the gateway's main loop.
pub(crate) enum HopEvent {
    /// A session event.
    Session(SessionId, Event),
    /// The peer opened a stream.
    Opened(Stream, Open<Destination>),
    /// The TCP connection to this address, which carried datagrams, has ended.
    TcpEnded(ConnectionId),
}

/// The streams of a session.
fn streams_of(
    streams: &mut BTreeMap<Key, Entry>,
    session: SessionId,
) -> impl Iterator<Item = (StreamId, &mut Entry)> {
    let of_session = streams.iter_mut().filter(move |((its, _), _)| *its == session);
    of_session.map(|((_, stream), entry)| (*stream, entry))
}

impl Shared {
    /// The class and the channel of a packet for which the classes choose `channel`.
    fn class_of_packet(
        &self,
        state: &State,
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
    /// A handle to the parts of a hub, in order, or to the one endpoint of anything else.
    pub(crate) fn new(endpoints: Vec<Endpoint>, classes: Arc<LiveClasses>) -> Self {
        debug_assert!((1..=MOST_PARTS.into()).contains(&endpoints.len()));
        let part = |endpoint| Part { state: Mutex::new(State::new(endpoint)), work: Notify::new() };
        let parts = endpoints.into_iter().map(part).collect();
        let (waiting, links) = (OnceLock::new(), TcpLinks::new());
        Self(Arc::new(Shared { parts, classes, links, waiting }))
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> u8 {
        // There are at most as many as slacp permits.
        self.0.parts.len() as u8
    }

    /// The TCP connections that carry datagrams where UDP is blocked.
    pub(crate) fn links(&self) -> &TcpLinks {
        &self.0.links
    }

    /// The endpoint of a part, for its driver.
    pub(crate) fn part(&self, number: u8) -> MutexGuard<'_, State> {
        self.0.parts[usize::from(number)].lock()
    }

    /// The endpoint that has a session.
    pub(crate) fn lock(&self, session: SessionId) -> MutexGuard<'_, State> {
        self.part(session.part(self.parts()))
    }

    /// The endpoints of all parts, one after the other.
    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, State>> {
        self.0.parts.iter().map(Part::lock)
    }

    /// Foresees from now on what streams will send next.
    pub(crate) fn foresee(&self) {
        self.each().for_each(|mut state| _ = state.forecast.get_or_insert_default());
    }

    /// Says from now on what waits in all sessions together, and what is foreseen.
    pub(crate) fn follow_waiting(&self, to: watch::Sender<Demand>) {
        // There is one modem, which follows once.
        let _ = self.0.waiting.set(to);
    }

    /// Says what waits, if it has changed and somebody wants to know. `sent` datagrams have left.
    pub(super) fn say_waiting(&self, now: Instant, sent: u64) {
        let Some(to) = self.0.waiting.get() else { return };
        let demand = self.demand_after(now, sent);
        to.send_if_modified(|last| std::mem::replace(last, demand) != demand);
    }

    /// Counts a packet that came from the peer and was delivered.
    pub(super) fn count_delivered(
        &self,
        state: &mut State,
        session: SessionId,
        channel: ChannelId,
        bytes: usize,
    ) {
        let (class, _) = self.0.class_of_packet(state, session, channel);
        state.count_packet(session, class, Direction::From, bytes);
    }

    /// Puts all traffic of a session in the class of this name; `None` leaves it to the classes.
    pub(crate) fn force_class(&self, session: SessionId, name: Option<&str>) {
        let class = name.and_then(|name| self.0.classes.read().id_of(name));
        let mut state = self.lock(session);
        let before = match class {
            Some(class) => state.forced.insert(session, class),
            None => state.forced.remove(&session),
        };
        if before == class {
            return;
        }
        let State { endpoint, streams, .. } = &mut *state;
        for (stream, entry) in streams_of(streams, session) {
            entry.class = class.unwrap_or(entry.usual);
            // Fails only for a stream that is already gone.
            let _ = endpoint.classify(session, stream, entry.class);
        }
        drop(state);
        self.notify_driver(session);
    }

    /// Resets all streams of a session; the peer and the connections here learn the reason.
    pub(crate) fn end_streams(&self, session: SessionId, reason: ResetReason) {
        let mut state = self.lock(session);
        let State { endpoint, streams, .. } = &mut *state;
        for (stream, entry) in streams_of(streams, session) {
            // Fails only for a stream that is already gone.
            let _ = endpoint.reset(session, stream, reason);
            entry.set_reset(reason);
        }
        drop(state);
        self.notify_driver(session);
    }

    /// Gives a command to the endpoints of all parts.
    fn command(&self, mut what: impl FnMut(&mut Endpoint)) {
        self.each().for_each(|mut state| what(&mut state.endpoint));
        self.notify_drivers();
    }

    /// Makes the driver look whether the endpoint with this session has something to send.
    pub(super) fn notify_driver(&self, session: SessionId) {
        self.0.parts[usize::from(session.part(self.parts()))].work.notify_one();
    }

    fn notify_drivers(&self) {
        self.0.parts.iter().for_each(|part| part.work.notify_one());
    }

    /// Waits for a command to a part given since the last call.
    pub(crate) async fn work(&self, part: u8) {
        self.0.parts[usize::from(part)].work.notified().await;
    }

    /// Opens a stream without waiting: data may follow before the peer has answered.
    ///
    /// # Errors
    /// If there is no session, or no room for another stream.
    pub(crate) fn open(
        &self,
        now: Instant,
        session: SessionId,
        open: impl Into<Open<Destination>>,
    ) -> Result<Stream, StreamError> {
        let (mut state, open) = (self.lock(session), open.into());
        let (port, dscp) = (open.destination.port(), open.dscp);
        let stream = match self.0.classes.read().compresses(port, dscp) {
            true => state.endpoint.open_compressed(now, session, open)?,
            false => state.endpoint.open(now, session, open)?,
        };
        self.hold(&mut state, (session, stream), port, dscp);
        Ok(Stream::new(self.clone(), (session, stream)))
    }

    /// Whether the session has room for another stream.
    pub(crate) fn has_room(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.has_room(session)
    }

    /// Sends an IP packet.
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
        state.count_packet(session, class, Direction::To, packet.len());
        drop(state);
        self.notify_driver(session);
        Ok(())
    }

    /// Whether a gateway with a session has this address.
    pub(crate) fn has_peer_at(&self, address: IpAddr) -> bool {
        self.each().any(|state| state.endpoint.has_peer_at(address))
    }

    /// Whether the peer resolves names.
    pub(crate) fn peer_resolves(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_resolves(session)
    }

    /// Whether the peer answers DNS questions.
    pub(crate) fn peer_answers(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_answers(session)
    }

    /// Whether the peer has HTTP exchanges.
    pub(crate) fn peer_exchanges(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_exchanges(session)
    }

    /// Whether the peer takes bundles.
    pub(crate) fn peer_takes_bundles(&self, session: SessionId) -> bool {
        self.lock(session).endpoint.peer_takes_bundles(session)
    }

    /// The longest packet of a packet channel that is surely sent in one packet of the hop.
    pub(crate) fn longest_whole_packet(&self, session: SessionId) -> Option<usize> {
        self.lock(session).endpoint.longest_whole_packet(session)
    }

    /// Whether the peer accepts packets on this channel.
    pub(crate) fn peer_receives(&self, session: SessionId, channel: ChannelId) -> bool {
        self.lock(session).endpoint.peer_receives(session, channel)
    }

    fn hold(&self, state: &mut State, key: Key, port: u16, dscp: Option<u8>) {
        let classes = self.0.classes.read();
        let usual = classes.of_connection(port, dscp);
        let compresses = classes.compresses(port, dscp);
        let class = state.forced.get(&key.0).copied().unwrap_or(usual);
        // Fails only for a stream that is already gone.
        let _ = state.endpoint.classify(key.0, key.1, class);
        let coded = state.compression.coder(&state.endpoint, key, compresses);
        state.streams.insert(key, Entry { coded, class, usual, ..Entry::default() });
        if let Some(tally) = &mut state.tally {
            tally.opened(key.0, class);
        }
        self.notify_driver(key.0);
    }

    /// The main loop has taken a stream that the peer opened.
    pub(crate) fn taken(&self, stream: &Stream) {
        let mut state = self.lock(stream.session());
        if let Some(untaken) = state.untaken.get_mut(&stream.session()) {
            *untaken -= 1;
            if *untaken == 0 {
                state.untaken.remove(&stream.session());
            }
        }
    }

    /// Takes an event from the endpoint: wakes waiting tasks, and returns what the main loop must
    /// handle.
    pub(crate) fn take_event(&self, state: &mut State) -> Option<HopEvent> {
        if let Some(opened) = self.next_opened(state) {
            return Some(opened);
        }
        while let Some((session, event)) = state.endpoint.poll_event() {
            match &event {
                Event::Up { peer, .. } => {
                    state.tally.iter_mut().for_each(|tally| tally.begin(session, *peer));
                }
                Event::Down(_) => {
                    state.tally.iter_mut().for_each(|tally| tally.end(session));
                    state.forced.remove(&session);
                    state.untaken.remove(&session);
                }
                _ => {}
            }
            match event {
                Event::Opened { stream, .. } if !state.announce(session) => {
                    // Fails only for a stream that is already gone.
                    let _ = state.endpoint.reset(session, stream, ResetReason::Limit);
                }
                Event::Opened { stream, open } => {
                    let (key, port) = ((session, stream), open.destination.port());
                    self.hold(state, key, port, open.dscp);
                    state.opened.entry(session).or_default().push_back((stream, open));
                    if let Some(opened) = self.next_opened(state) {
                        return Some(opened);
                    }
                }
                Event::Readable(stream) => state.wake((session, stream), |e| &mut e.reader),
                Event::Writable(stream) => state.wake((session, stream), |e| &mut e.writer),
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
                Event::Down(_) => {
                    state.forget_opened(session);
                    state.lose(session);
                    return Some(HopEvent::Session(session, event));
                }
                event => return Some(HopEvent::Session(session, event)),
            }
        }
        None
    }
}

impl State {
    fn demand(&mut self, now: Instant, sent: u64) -> Demand {
        let waiting = self.endpoint.waiting();
        let foreseen = self.forecast.as_mut().map_or_else(ByteCount::default, |forecast| {
            forecast.handle_timeout(now);
            forecast.foreseen(waiting)
        });
        let sent = if foreseen == ByteCount::default() { 0 } else { sent };
        Demand { waiting, foreseen, sent }
    }

    /// When a forecast ends.
    pub(super) fn forecast_ends(&self) -> Option<Instant> {
        Some(self.forecast.as_ref()?.poll_timeout()?.0)
    }

    fn wake(&mut self, key: Key, waker: impl FnOnce(&mut Entry) -> &mut Option<Waker>) {
        if let Some(entry) = self.streams.get_mut(&key) {
            wake(waker(entry));
        }
    }

    fn lose(&mut self, session: SessionId) {
        self.compression.lose(session);
        self.work.remove(session);
        self.resting.remove(&session);
        let mut lost = 0;
        for ((_, _), entry) in self.streams.iter_mut().filter(|((s, _), _)| *s == session) {
            let is_over = entry.reset.is_some() || entry.finished && entry.ended;
            lost += usize::from(!is_over);
            // It is no longer among those that wait, but may have to again for what its decoder holds.
            entry.rests = false;
            entry.set_reset(ResetReason::SessionLost);
        }
        self.lost.insert(session, lost);
    }

    pub(super) fn entry(&mut self, key: Key) -> (&mut Endpoint, &mut Entry) {
        let (endpoint, entry, _) = self.parts(key);
        (endpoint, entry)
    }

    pub(super) fn parts(&mut self, key: Key) -> (&mut Endpoint, &mut Entry, &mut Compression) {
        let entry = self.streams.get_mut(&key).expect("an entry lives as long as its stream");
        (&mut self.endpoint, entry, &mut self.compression)
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
