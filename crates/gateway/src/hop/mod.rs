//! The hop as seen by the rest of the gateway: streams to read and write, and events. The endpoint
//! decides; this module only wakes waiting tasks.
//!
//! The driver's task and the relays share the endpoint and call it directly. They normally run on
//! one thread, so the lock is uncontended, and it is never held across an await.
//!
//! [`driver`] moves the datagrams between endpoint and socket ([`udp`]), [`peers`] follows the
//! sessions and their rates, and [`path_store`] keeps what was learnt about paths.

pub(crate) mod class;
pub(crate) mod driver;
pub(crate) mod path_store;
pub(crate) mod peers;
pub(crate) mod sources;
pub(crate) mod udp;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pep::traffic::{Classes, Definition};
use slacp::{
    ChannelError, ChannelId, ClassId, Destination, Endpoint, Event, LogEntry, Open, PathKey,
    PathMemory, PublicKey, Rate, RateError, Read, ResetReason, SessionId, Stats, StreamError,
    StreamId, StreamStats,
};
use tokio::sync::Notify;
use units::{BitRate, ByteCount};

use self::class::LiveClasses;
use crate::clock;
use crate::operate::status::{ChannelStatus, ClassStatus};

type Key = (SessionId, StreamId);

/// A handle to the endpoint.
#[derive(Clone)]
pub(crate) struct Hop(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Assigns streams to classes.
    classes: Arc<LiveClasses>,
    /// Notified by anything that may make the endpoint send.
    work: Notify,
}

/// The endpoint, and the tasks waiting for its streams.
pub(crate) struct State {
    pub(crate) endpoint: Endpoint,
    streams: BTreeMap<Key, Entry>,
}

/// State of an open stream.
#[derive(Default)]
struct Entry {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waits for the stream to be accepted or reset.
    watcher: Option<Waker>,
    /// The peer has connected the stream to its destination.
    accepted: bool,
    /// We have finished our direction.
    finished: bool,
    /// The peer has finished its direction and we have read everything.
    ended: bool,
    /// The stream was reset and is gone.
    reset: Option<ResetReason>,
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
}

/// A stream. Dropping it before both directions have ended resets it: an aborted connection must
/// not look like a finished one.
pub(crate) struct Stream {
    hop: Hop,
    key: Key,
}

impl Hop {
    pub(crate) fn new(endpoint: Endpoint, classes: Arc<LiveClasses>) -> Self {
        let state = Mutex::new(State { endpoint, streams: BTreeMap::new() });
        Self(Arc::new(Shared { state, classes, work: Notify::new() }))
    }

    /// The endpoint, for the driver.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody panics while holding the endpoint")
    }

    /// Ends all sessions; the peers learn of it within 150 ms.
    pub(crate) fn shut_down(&self) {
        self.lock().endpoint.shut_down(clock::now());
        self.0.work.notify_one();
    }

    /// Sets a session's rate, as reported by its modem.
    ///
    /// # Errors
    /// As [`Endpoint::set_rate`].
    pub(crate) fn set_rate(
        &self,
        session: SessionId,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        let accepted = self.lock().endpoint.set_rate(clock::now(), session, rate, valid_for);
        self.0.work.notify_one();
        accepted
    }

    /// Sets the source of the rate. Returns whether all sessions accepted it.
    pub(crate) fn configure_rate(&self, rate: Rate) -> bool {
        let taken = self.lock().endpoint.configure_rate(clock::now(), rate);
        self.0.work.notify_one();
        taken
    }

    /// Replaces the classes; `packets` gives them channels. Existing traffic stays in the class of
    /// the same name, or moves to the default one.
    ///
    /// # Errors
    /// What is wrong with a class; then nothing changes.
    pub(crate) fn configure_classes(&self, given: &Classes, packets: bool) -> Result<(), String> {
        let before = self.0.classes.read().clone();
        // Only its classes and channels are used.
        let mut link = slacp::Config::new(BitRate::from_bits_per_second(0));
        let classes = before
            .succeeded_by(given.definitions(), packets, &mut link)
            .map_err(|(name, error)| format!("class {name:?}: {error}"))?;
        let successor = |id| classes.successor(&before, id);
        self.lock().endpoint.configure_classes(clock::now(), &link, successor);
        self.0.classes.set(classes);
        self.0.work.notify_one();
        Ok(())
    }

    /// Traffic of each class in a session.
    pub(crate) fn class_status(&self, session: SessionId) -> Vec<ClassStatus> {
        let state = self.lock();
        let row = |(class, id): (&Definition, ClassId)| {
            let stats = state.endpoint.class_stats(session, id)?;
            Some(ClassStatus {
                name: class.name.clone(),
                weight: class.share.weight,
                guaranteed_bit_s: class.share.guaranteed.map(BitRate::bits_per_second),
                maximum_bit_s: class.share.maximum.map(BitRate::bits_per_second),
                sent_bytes: stats.bytes_sent,
                guaranteed_sent_bytes: stats.guaranteed_bytes_sent,
                waiting_bytes: stats.waiting.get(),
            })
        };
        self.0.classes.read().all().filter_map(row).collect()
    }

    /// Traffic on a session's packet channels: those of our classes, and those on which anything
    /// arrived.
    pub(crate) fn channel_status(&self, session: SessionId) -> Vec<ChannelStatus> {
        let (state, classes) = (self.lock(), self.0.classes.read());
        let row = |channel: ChannelId| {
            let stats = state.endpoint.channel_stats(session, channel)?;
            let class = classes.on_channel(channel).map(str::to_owned);
            let used = class.is_some() || stats.received > 0 || stats.offered > 0;
            used.then(|| ChannelStatus {
                channel: channel.number(),
                class,
                ..ChannelStatus::from(&stats)
            })
        };
        (0..).map_while(ChannelId::new).filter_map(row).collect()
    }

    /// Sets the terminals to serve.
    pub(crate) fn set_allowed(&self, allow: Vec<PublicKey>) {
        self.lock().endpoint.set_allowed(clock::now(), allow);
        self.0.work.notify_one();
    }

    /// Sets the memory limit of these terminals, from their next session on.
    pub(crate) fn set_memory(&self, memory: BTreeMap<PublicKey, ByteCount>) {
        self.lock().endpoint.set_memory(memory);
    }

    /// Sets a session's share of the rate relative to the others. Ignored for a session that has
    /// ended.
    pub(crate) fn set_weight(&self, session: SessionId, weight: u32) {
        let _ = self.lock().endpoint.set_weight(session, weight);
    }

    /// What was learnt about paths.
    pub(crate) fn memories(&self) -> Vec<(PathKey, PathMemory)> {
        self.lock().endpoint.memories(clock::now())
    }

    /// Restores what an earlier gateway learnt about paths.
    pub(crate) fn remember(&self, memories: Vec<(PathKey, PathMemory)>) {
        let (mut state, now) = (self.lock(), clock::now());
        for (path, memory) in memories {
            state.endpoint.remember(now, path, memory);
        }
    }

    /// Counters of a session.
    pub(crate) fn stats(&self, session: SessionId) -> Option<Stats> {
        self.lock().endpoint.stats(session)
    }

    /// Makes a session record up to `noted` events from now on, and takes up to `taken` recorded
    /// ones, in order of time.
    pub(crate) fn events(&self, session: SessionId, noted: usize, taken: usize) -> Vec<LogEntry> {
        let mut state = self.lock();
        // A session that has ended records nothing.
        let _ = state.endpoint.set_event_log(session, noted);
        let events = std::iter::from_fn(|| state.endpoint.poll_session_log(session));
        events.take(taken).collect()
    }

    /// Statistics of a stream.
    pub(crate) fn stream_stats(&self, session: SessionId, stream: StreamId) -> Option<StreamStats> {
        self.lock().endpoint.stream_stats(session, stream)
    }

    /// Datagrams that belonged to no session.
    pub(crate) fn ignored(&self) -> u64 {
        self.lock().endpoint.ignored()
    }

    /// Waits for a command given since the last call.
    pub(crate) async fn work(&self) {
        self.0.work.notified().await;
    }

    /// Opens a stream without waiting: data may follow before the peer has answered.
    ///
    /// # Errors
    /// If there is no session, or no room for another stream.
    pub(crate) fn open(
        &self,
        session: SessionId,
        open: impl Into<Open<Destination>>,
    ) -> Result<Stream, StreamError> {
        let (mut state, open) = (self.lock(), open.into());
        let (port, dscp) = (open.destination.port(), open.dscp);
        let stream = state.endpoint.open(clock::now(), session, open)?;
        Ok(self.hold(&mut state, (session, stream), port, dscp))
    }

    /// Whether the session has room for another stream.
    pub(crate) fn has_room(&self, session: SessionId) -> bool {
        self.lock().endpoint.has_room(session)
    }

    /// Sends an IP packet.
    ///
    /// # Errors
    /// If there is no session, or the peer accepts no packets.
    pub(crate) fn send_packet(
        &self,
        session: SessionId,
        channel: ChannelId,
        packet: &[u8],
    ) -> Result<(), ChannelError> {
        self.lock().endpoint.send_packet(clock::now(), session, channel, packet)?;
        self.0.work.notify_one();
        Ok(())
    }

    /// Whether the peer resolves names.
    pub(crate) fn peer_resolves(&self, session: SessionId) -> bool {
        self.lock().endpoint.peer_resolves(session)
    }

    /// Whether the peer accepts packets on this channel.
    pub(crate) fn peer_receives(&self, session: SessionId, channel: ChannelId) -> bool {
        self.lock().endpoint.peer_receives(session, channel)
    }

    fn hold(&self, state: &mut State, key: Key, port: u16, dscp: Option<u8>) -> Stream {
        let class = self.0.classes.read().of_connection(port, dscp);
        // Fails only for a stream that is already gone.
        let _ = state.endpoint.classify(key.0, key.1, class);
        state.streams.insert(key, Entry::default());
        self.0.work.notify_one();
        Stream { hop: self.clone(), key }
    }

    /// Takes an event from the endpoint: wakes waiting tasks, and returns what the main loop must
    /// handle.
    pub(crate) fn take_event(&self, state: &mut State) -> Option<HopEvent> {
        while let Some((session, event)) = state.endpoint.poll_event() {
            match event {
                Event::Opened { stream, open } => {
                    let (key, port) = ((session, stream), open.destination.port());
                    let stream = self.hold(state, key, port, open.dscp);
                    return Some(HopEvent::Opened(stream, open));
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
    fn wake(&mut self, key: Key, waker: impl FnOnce(&mut Entry) -> &mut Option<Waker>) {
        if let Some(entry) = self.streams.get_mut(&key) {
            wake(waker(entry));
        }
    }

    fn lose(&mut self, session: SessionId) {
        for ((_, _), entry) in self.streams.iter_mut().filter(|((s, _), _)| *s == session) {
            entry.set_reset(ResetReason::SessionLost);
        }
    }

    fn entry(&mut self, key: Key) -> (&mut Endpoint, &mut Entry) {
        let entry = self.streams.get_mut(&key).expect("an entry lives as long as its stream");
        (&mut self.endpoint, entry)
    }
}

impl Stream {
    /// The stream's id in its session.
    pub(crate) fn id(&self) -> StreamId {
        self.key.1
    }

    /// Reads available data into `buffer`. Never returns [`Read::Blocked`].
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<Read, ResetReason>> {
        let mut state = self.hop.lock();
        let (endpoint, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        if entry.ended {
            return Poll::Ready(Ok(Read::End));
        }
        // If the endpoint no longer knows the stream, it was reset; a pending event has the reason.
        let read = endpoint.read(self.key.0, self.key.1, buffer).unwrap_or(Read::Blocked);
        match read {
            Read::Blocked => {
                wait(&mut entry.reader, context);
                return Poll::Pending;
            }
            Read::End => entry.ended = true,
            Read::Data(_) => {}
        }
        // The peer may be waiting for the credit that this has freed.
        self.hop.0.work.notify_one();
        Poll::Ready(Ok(read))
    }

    /// Writes as much of `data` as the stream accepts, at least one byte.
    pub(crate) fn poll_write(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, ResetReason>> {
        let mut state = self.hop.lock();
        let (endpoint, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Poll::Ready(Err(reason));
        }
        let taken = endpoint.write(self.key.0, self.key.1, data).unwrap_or(0);
        if taken == 0 {
            wait(&mut entry.writer, context);
            return Poll::Pending;
        }
        self.hop.0.work.notify_one();
        Poll::Ready(Ok(taken))
    }

    /// Finishes our direction.
    pub(crate) fn finish(&self) -> Result<(), ResetReason> {
        let mut state = self.hop.lock();
        let (endpoint, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Err(reason);
        }
        endpoint.finish(self.key.0, self.key.1).map_err(|error| lost(&error))?;
        entry.finished = true;
        self.hop.0.work.notify_one();
        Ok(())
    }

    /// Tells the peer that the stream is connected to its destination.
    pub(crate) fn accept(&self) -> Result<(), ResetReason> {
        let mut state = self.hop.lock();
        let (endpoint, entry) = state.entry(self.key);
        if let Some(reason) = entry.reset {
            return Err(reason);
        }
        endpoint.accept(self.key.0, self.key.1).map_err(|error| lost(&error))?;
        self.hop.0.work.notify_one();
        Ok(())
    }

    /// The session of the stream.
    pub(crate) fn session(&self) -> SessionId {
        self.key.0
    }

    /// Waits until the peer has connected the stream to its destination.
    ///
    /// # Errors
    /// The reason if it could not.
    pub(crate) async fn accepted(&self) -> Result<(), ResetReason> {
        poll_fn(|context| self.poll_accepted(context)).await
    }

    /// Like [`Self::accepted`].
    pub(crate) fn poll_accepted(&self, context: &Context<'_>) -> Poll<Result<(), ResetReason>> {
        let mut state = self.hop.lock();
        let (_, entry) = state.entry(self.key);
        match entry.reset {
            Some(reason) => return Poll::Ready(Err(reason)),
            None if entry.accepted => return Poll::Ready(Ok(())),
            None => wait(&mut entry.watcher, context),
        }
        Poll::Pending
    }

    /// Whether the peer has connected the stream to its destination.
    pub(crate) fn is_accepted(&self) -> bool {
        self.hop.lock().entry(self.key).1.accepted
    }

    /// Waits until the peer resets the stream or the session is lost; otherwise for ever.
    pub(crate) async fn reset_by_peer(&self) -> ResetReason {
        poll_fn(|context| self.poll_reset(context)).await
    }

    /// Like [`Self::reset_by_peer`].
    pub(crate) fn poll_reset(&self, context: &Context<'_>) -> Poll<ResetReason> {
        let mut state = self.hop.lock();
        let (_, entry) = state.entry(self.key);
        match entry.reset {
            Some(reason) => Poll::Ready(reason),
            None => {
                wait(&mut entry.watcher, context);
                Poll::Pending
            }
        }
    }

    /// Resets both directions with a reason for the peer.
    pub(crate) fn reset(self, reason: ResetReason) {
        self.abandon(reason);
    }

    fn abandon(&self, reason: ResetReason) {
        let mut state = self.hop.lock();
        let (endpoint, entry) = state.entry(self.key);
        if entry.reset.is_some() || (entry.finished && entry.ended) {
            return;
        }
        // Fails only for a stream that is already gone.
        let _ = endpoint.reset(self.key.0, self.key.1, reason);
        entry.reset = Some(reason);
        self.hop.0.work.notify_one();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.abandon(ResetReason::Reset);
        self.hop.lock().streams.remove(&self.key);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn wait(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(present) => present.clone_from(context.waker()),
        None => *waker = Some(context.waker().clone()),
    }
}

/// The reason when the endpoint has already forgotten the stream, before its event arrives.
fn lost(error: &StreamError) -> ResetReason {
    match error {
        StreamError::NoSession => ResetReason::SessionLost,
        _ => ResetReason::Reset,
    }
}
