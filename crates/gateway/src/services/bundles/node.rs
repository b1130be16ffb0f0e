//! Drives the agent: hands it the time and events, and carries out its outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bundles::{
    Agent, BundleFate, BundleId, BundleOrigin, BundleRecord, BundleRefusal, BundleSummary,
    FileName, FragmentJoin, FragmentJoiner, OfferDecision, PartsError, PeerId, ReportedEvent,
    ReturnReason, StatusReport, forwarded, parts, read, read_report,
};
use config::BundlesConfig;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use slacp::SessionId;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use units::Machine;

use super::secure::PeerTls;
use super::store::{BundleStore, StoreError, StoreHandle};
use super::tcpcl::SessionTable;
use super::{hop, warnings::BundleWarnings};
use crate::config::keys::random_bytes;
use crate::hop::Hop;
use crate::process::clock;
use crate::process::error::RunError;
use crate::process::runtime::log_panic;

/// Interval of the search for expired bundles and for files for the inbox.
const TICK: Duration = Duration::from_secs(1);
/// Pause after a failure of the inbox.
const INBOX_PAUSE: Duration = Duration::from_secs(10);
/// The store's size divided by this bounds the partial bundles kept on disk.
const PARTIAL_DIVISOR: u64 = 8;
/// Limit of bundles whose crossed parts are remembered for the next try.
const MAX_CROSSED: usize = 64;

/// Current path to a peer.
#[derive(Clone)]
pub(super) enum PeerLink {
    Hop(Hop, SessionId),
    /// A TCPCLv4 session: the queue of its bundles, and the largest bundle that the peer accepts,
    /// in bytes.
    Tcp(mpsc::Sender<OutgoingBundle>, u64),
}

/// A bundle for a TCPCLv4 session. `done` gets the outcome, and is dropped if the session ends
/// before.
pub(super) struct OutgoingBundle {
    pub(super) bytes: Vec<u8>,
    pub(super) done: oneshot::Sender<Result<(), ReturnReason>>,
}

/// A bundle, or a part of one, on its way to a peer.
pub(super) struct OutgoingTransfer {
    pub(super) id: BundleId,
    /// The peer may have some of it from an earlier try, and is asked first.
    pub(super) asks: bool,
    pub(super) bytes: Vec<u8>,
}

impl PeerLink {
    /// The largest bundle that the peer is known to accept, in bytes.
    fn largest(&self) -> u64 {
        match self {
            Self::Hop(..) => u64::MAX,
            Self::Tcp(_, largest) => *largest,
        }
    }
}

/// A bundle node: the agent, its store, and the links to its peers.
pub(super) struct BundleNode {
    pub(super) config: BundlesConfig,
    pub(super) secure: Option<PeerTls>,
    agent: Mutex<Agent>,
    pub(super) store: StoreHandle,
    links: Mutex<BTreeMap<PeerId, PeerLink>>,
    /// Bundles sent at least once by this process.
    tried: Mutex<BTreeSet<BundleId>>,
    /// Bounds the transfers to each peer, of bundles or parts, to its window: it accepts twice as
    /// many.
    transfer_permits: Vec<Semaphore>,
    /// For each bundle being sent in parts, the parts that the next node has stored.
    crossed_parts: Mutex<BTreeMap<BundleId, BTreeSet<BundleId>>>,
    started: u64,
    work: Notify,
    /// Notified whenever a bundle has left the store.
    gone: Notify,
    next: AtomicU64,
    pub(super) sessions: SessionTable,
    pub(super) warnings: BundleWarnings,
}

pub(super) fn random() -> u64 {
    // A gateway does not start without random numbers.
    let bytes: [u8; 32] = random_bytes().unwrap_or_default();
    u64::from_be_bytes(std::array::from_fn(|place| bytes[place]))
}

fn happening(fate: BundleFate) -> ReportedEvent {
    match fate {
        BundleFate::Forwarded => ReportedEvent::Forwarded,
        BundleFate::Delivered => ReportedEvent::Delivered,
        BundleFate::Expired => ReportedEvent::Expired,
    }
}

/// Parts of a bundle, with their identities.
type BundleParts = Vec<(BundleId, Vec<u8>)>;

/// A bundle as it is sent to a peer.
enum PreparedBundle {
    Whole(Vec<u8>),
    Parts(BundleParts),
}

/// Sizes that decide whether a bundle is cut for a peer, in bytes.
#[derive(Clone, Copy)]
struct PartLimits {
    /// Size above which a bundle goes in parts, if any.
    preferred: Option<u64>,
    /// The largest bundle that the link accepts.
    largest: u64,
}

/// Cuts a bundle into parts if it is larger than preferred.
fn fragment(bytes: Vec<u8>, limits: PartLimits) -> Result<PreparedBundle, PartsError> {
    let length = bytes.len() as u64;
    let Some(limit) = limits.preferred.filter(|limit| length > *limit) else {
        return Ok(PreparedBundle::Whole(bytes));
    };
    match parts(&bytes, limit) {
        Ok(parts) => Ok(PreparedBundle::Parts(parts)),
        // A bundle that cannot be cut still fits the link: the limit is a preference.
        Err(_) if length <= limits.largest => Ok(PreparedBundle::Whole(bytes)),
        Err(why) => Err(why),
    }
}

enum TaskOutcome {
    Nothing,
    /// The inbox cannot be written now.
    InboxFails,
}

impl BundleNode {
    /// Opens the store. [`None`] if the disk fails: the gateway goes on without bundles.
    pub(super) fn open(config: BundlesConfig) -> Result<Option<Arc<Self>>, RunError> {
        let bundles = |problem: String| RunError::Bundles { problem };
        if let Some(inbox) = config.keys.inbox.as_ref().filter(|inbox| !inbox.is_dir()) {
            return Err(bundles(format!("`inbox`: {} is not a directory", inbox.display())));
        }
        let secure = config.tls.as_ref().map(PeerTls::load).transpose().map_err(bundles)?;
        let now = clock::unix_millis();
        let partial = config.agent.limits.bytes.get() / PARTIAL_DIVISOR;
        let (store, records, known) = match BundleStore::open(&config.store, now, partial) {
            Ok(opened) => opened,
            Err(error @ StoreError::System { .. }) => {
                tracing::error!("bundles are disabled until the gateway restarts: {error}");
                return Ok(None);
            }
            Err(error) => return Err(bundles(format!("`store`: {error}"))),
        };
        let count = records.len();
        let window = config.agent.limits.window;
        let transfer_permits = config.agent.peers.iter().map(|_| Semaphore::new(window)).collect();
        let agent = Agent::new(config.agent.clone(), records, known);
        let store = StoreHandle::start(store).map_err(RunError::System)?;
        tracing::info!("bundles: node {}, {count} in the store", config.agent.node);
        Ok(Some(Arc::new(Self {
            config,
            secure,
            agent: Mutex::new(agent),
            store,
            links: Mutex::default(),
            tried: Mutex::default(),
            transfer_permits,
            crossed_parts: Mutex::default(),
            started: now,
            work: Notify::new(),
            gone: Notify::new(),
            next: AtomicU64::new(0),
            sessions: SessionTable::default(),
            warnings: BundleWarnings::default(),
        })))
    }

    pub(super) fn agent(&self) -> MutexGuard<'_, Agent> {
        self.agent.lock().expect("nobody panics while holding the agent")
    }

    /// Wakes the driver up after a change of the agent.
    pub(super) fn notify(&self) {
        self.work.notify_one();
    }

    /// Returns a number that is unique in this process.
    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets the link to a peer, and whether the peer can be reached now.
    pub(super) fn set_link(&self, peer: PeerId, link: Option<PeerLink>, up: bool) {
        let mut links = self.links.lock().expect("nobody panics while holding the links");
        let up = up && link.is_some();
        // The link first: the agent may send over it as soon as the peer is up.
        match link {
            Some(link) => drop(links.insert(peer, link)),
            None => drop(links.remove(&peer)),
        }
        self.agent().set_peer(peer, up);
        drop(links);
        self.notify();
    }

    fn link(&self, peer: PeerId) -> Option<PeerLink> {
        self.links.lock().expect("nobody panics while holding the links").get(&peer).cloned()
    }

    /// Returns `true` if the peer may have part of a bundle from an earlier try, also one of an
    /// earlier process.
    fn was_tried(&self, record: &BundleRecord) -> bool {
        let mut tried = self.tried.lock().expect("nobody panics while holding the list");
        !tried.insert(record.id) || record.arrived < self.started
    }

    /// Runs the driver until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut tick = tokio::time::interval(TICK);
        let mut inbox_at = clock::now();
        loop {
            self.start_tasks(&mut tasks, inbox_at <= clock::now());
            let until = self.agent().poll_timeout().map(|(until, _)| until);
            tokio::select! {
                () = self.work.notified() => {}
                _ = tick.tick() => self.agent().expire(clock::unix_millis()),
                () = clock::sleep_until(until) => {}
                Some(done) = tasks.join_next() => match done {
                    Ok(TaskOutcome::Nothing) => {}
                    Ok(TaskOutcome::InboxFails) => inbox_at = clock::now() + INBOX_PAUSE,
                    Err(error) => log_panic(Err(error)),
                },
            }
            self.agent().handle_timeout(clock::now());
        }
    }

    /// Starts a task for each of the agent's outputs.
    fn start_tasks(self: &Arc<Self>, tasks: &mut JoinSet<TaskOutcome>, inbox: bool) {
        // Not `while let`, whose scrutinee would hold the agent's lock in the body.
        loop {
            let Some((peer, record)) = self.agent().poll_send() else { break };
            let node = self.clone();
            tasks.spawn(async move { node.send(peer, record).await });
        }
        loop {
            let Some((record, fate)) = self.agent().poll_remove() else { break };
            let node = self.clone();
            tasks.spawn(async move { node.remove(record, fate).await });
        }
        // Bundles for the node itself are status reports.
        loop {
            let Some(record) = self.agent().take_arrived(None) else { break };
            let node = self.clone();
            tasks.spawn(async move { node.log_report(record).await });
        }
        if let Some(join) = self.agent().poll_join() {
            let node = self.clone();
            tasks.spawn(async move { node.join(join).await });
        }
        let Some(directory) = self.config.keys.inbox.clone().filter(|_| inbox) else { return };
        loop {
            let arrived = self.agent().take_arrived(Some(self.config.file_service()));
            let Some(record) = arrived else { break };
            let node = self.clone();
            let directory = directory.clone();
            tasks.spawn(async move { node.deliver(directory, record).await });
        }
    }

    async fn send(self: Arc<Self>, peer: PeerId, record: BundleRecord) -> TaskOutcome {
        let id = record.id;
        let returned = |why| {
            self.agent().returned(clock::now(), &id, why);
            TaskOutcome::Nothing
        };
        let Some(link) = self.link(peer) else { return returned(ReturnReason::Lost) };
        let prepared = match self.prepare(&record, self.part_limits(peer, &link)).await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.warnings.disk("read a bundle", &error);
                return returned(ReturnReason::Unwanted);
            }
        };
        // Asking costs a round trip, so only if there may be something to resume.
        let asks = self.was_tried(&record);
        let sent = match prepared {
            Ok(PreparedBundle::Whole(bytes)) => {
                self.send_over(peer, &link, OutgoingTransfer { id, asks, bytes }).await
            }
            Ok(PreparedBundle::Parts(parts)) => self.send_parts(peer, &link, id, asks, parts).await,
            Err(why) => {
                self.warnings.unwanted(&self.name(BundleOrigin::Peer(peer)), &why.to_string());
                Err(ReturnReason::Unwanted)
            }
        };
        match sent {
            Ok(()) => self.agent().acknowledged(&id),
            Err(why) => drop(returned(why)),
        }
        self.notify();
        TaskOutcome::Nothing
    }

    /// Reads a bundle from the store as it is to be sent.
    async fn prepare(
        &self,
        record: &BundleRecord,
        limits: PartLimits,
    ) -> io::Result<Result<PreparedBundle, PartsError>> {
        let id = record.id;
        let node = self.config.agent.node.clone();
        let waited = Duration::from_millis(clock::unix_millis().saturating_sub(record.arrived));
        // Rewriting and cutting a large bundle takes long: the store's thread does it. Parts are made at each
        // try, so that the disk never holds a bundle twice.
        let prepared = self.store.run(move |store| {
            let bytes = forwarded(&store.read(&id)?, &node, waited);
            Ok(fragment(bytes, limits))
        });
        prepared.await
    }

    fn part_limits(&self, peer: PeerId, link: &PeerLink) -> PartLimits {
        let largest = link.largest();
        let limit = self.config.fragment.get(peer.0).copied().flatten();
        PartLimits { preferred: limit.map(|limit| limit.get().min(largest)), largest }
    }

    /// Sends a bundle or a part.
    async fn send_over(
        &self,
        peer: PeerId,
        link: &PeerLink,
        outgoing: OutgoingTransfer,
    ) -> Result<(), ReturnReason> {
        let _turn = self.transfer_permits.get(peer.0).ok_or(ReturnReason::Lost)?.acquire().await;
        match link {
            PeerLink::Hop(hop, session) => hop::send(self, peer, hop, *session, outgoing).await,
            PeerLink::Tcp(session, _) => {
                let (done, outcome) = oneshot::channel();
                let bundle = OutgoingBundle { bytes: outgoing.bytes, done };
                session.send(bundle).await.map_err(|_| ReturnReason::Lost)?;
                outcome.await.unwrap_or(Err(ReturnReason::Lost))
            }
        }
    }

    /// Sends the parts of a bundle, a window of them at once, except those that have crossed
    /// before.
    async fn send_parts(
        &self,
        peer: PeerId,
        link: &PeerLink,
        whole: BundleId,
        asks: bool,
        parts: BundleParts,
    ) -> Result<(), ReturnReason> {
        let has = self.crossed_parts().get(&whole).cloned().unwrap_or_default();
        let left = parts.into_iter().filter(|(part, _)| !has.contains(part));
        let sent = left.map(|(part, bytes)| async move {
            self.send_over(peer, link, OutgoingTransfer { id: part, asks, bytes }).await?;
            let mut passed = self.crossed_parts();
            // Forgetting them costs another crossing only.
            if passed.len() >= MAX_CROSSED && !passed.contains_key(&whole) {
                passed.pop_first();
            }
            passed.entry(whole).or_default().insert(part);
            Ok(())
        });
        let window = self.config.agent.limits.window;
        stream::iter(sent).buffer_unordered(window).try_collect::<()>().await
    }

    fn crossed_parts(&self) -> MutexGuard<'_, BTreeMap<BundleId, BTreeSet<BundleId>>> {
        self.crossed_parts.lock().expect("nobody panics while holding the list")
    }

    /// Waits until the disk has noted that a bundle is gone.
    pub(super) async fn until_gone(&self, id: &BundleId) {
        loop {
            // Registered before the check, so that no notification is missed between the two.
            let gone = self.gone.notified();
            if !self.agent().holds(id) {
                return;
            }
            gone.await;
        }
    }

    async fn remove(self: Arc<Self>, record: BundleRecord, fate: BundleFate) -> TaskOutcome {
        let id = record.id;
        self.tried.lock().expect("nobody panics while holding the list").remove(&id);
        self.crossed_parts().remove(&id);
        // Parts are not delivered: the joined bundle will be.
        // Before the removal, since the report is made of the stored bundle.
        if record.part.is_none() || fate != BundleFate::Delivered {
            self.send_stored_report(id, happening(fate)).await;
        }
        match self.store.run(move |store| store.remove(&record, fate)).await {
            Ok(()) => {
                self.agent().removed(&id);
                self.gone.notify_waiters();
            }
            Err(error) => {
                self.warnings.disk("remove a bundle", &error);
                self.agent().not_removed(clock::now(), &id);
            }
        }
        self.compact_gone_list().await;
        TaskOutcome::Nothing
    }

    /// Rewrites the list of gone bundles once most of its lines are obsolete.
    async fn compact_gone_list(&self) {
        let needed = self.agent().stats().remembered;
        let long = self.store.run(move |store| Ok(store.is_long(needed))).await;
        if !long.unwrap_or(false) {
            return;
        }
        let entries: Vec<_> =
            self.agent().remembered().map(|(id, fate, until)| (*id, fate, until)).collect();
        if let Err(error) = self.store.run(move |store| store.remember(&entries)).await {
            self.warnings.disk("write which bundles are gone", &error);
        }
    }

    /// Puts a bundle's payload into the inbox as a file.
    async fn deliver(self: Arc<Self>, inbox: PathBuf, record: BundleRecord) -> TaskOutcome {
        let id = record.id;
        let delivered = self.store.run(move |store| {
            let bytes = store.read(&id)?;
            let (summary, _) = read(&bytes).map_err(io::Error::other)?;
            let unnamed = || FileName::new(&format!("{id}.bundle")).expect("it is a good one");
            let name = summary.file_name.unwrap_or_else(unnamed);
            store.deliver(&inbox, &id, &name, &bytes[summary.payload])
        });
        // Fails only if the bundle is not being delivered.
        let outcome = match delivered.await {
            Ok(()) => {
                let _ = self.agent().handle_delivered(&id);
                TaskOutcome::Nothing
            }
            Err(error) => {
                self.warnings.disk("write to the inbox", &error);
                let _ = self.agent().handle_not_delivered(&id);
                TaskOutcome::InboxFails
            }
        };
        self.notify();
        outcome
    }

    /// Joins the parts of a bundle, and stores the whole.
    async fn join(self: Arc<Self>, join: FragmentJoin) -> TaskOutcome {
        let wanted = join.parts.clone();
        let number = self.next_number();
        // Decoding and joining takes long for a large bundle: the store's thread does it.
        let joined = self.store.run(move |store| {
            let mut joiner = FragmentJoiner::default();
            for id in &wanted {
                joiner.add(store.read(id)?).map_err(io::Error::other)?;
            }
            let bytes = joiner.finish().map_err(io::Error::other)?;
            let summary = read(&bytes).map_err(io::Error::other)?.0;
            Ok((summary, bytes))
        });
        let stored = match joined.await {
            Ok((summary, bytes)) => {
                let offered = self.agent().offer_joined(&join, clock::unix_millis(), &summary);
                let Some(record) = offered else { return self.done() };
                let kept = record.clone();
                let stored = self.store.run(move |store| store.put(number, &kept, &bytes)).await;
                stored.map(|()| record)
            }
            Err(error) => Err(error),
        };
        match stored {
            Ok(record) => self.agent().joined(&join, record),
            Err(error) => {
                self.warnings.disk("join the parts of a bundle", &error);
                self.agent().not_joined(clock::now(), &join);
            }
        }
        self.done()
    }

    fn done(&self) -> TaskOutcome {
        self.notify();
        TaskOutcome::Nothing
    }

    /// Sends a status report about a bundle if it asks for one (RFC 9171 §6.1).
    pub(super) fn send_report(self: &Arc<Self>, about: &BundleSummary, what: ReportedEvent) {
        let report = self.agent().report(clock::now(), clock::unix_millis(), about, what, random());
        let Some(bytes) = report else { return };
        let node = self.clone();
        tokio::spawn(async move {
            if let Ok(OfferDecision::Take((incoming, _))) =
                node.begin(BundleOrigin::Here, None, bytes.len() as u64, false).await
            {
                // A report without a route is dropped; the refusal is logged.
                let _ = incoming.finish_as(|_| bytes).await;
            }
        });
    }

    /// Sends a status report about a bundle in the store.
    async fn send_stored_report(self: &Arc<Self>, id: BundleId, what: ReportedEvent) {
        if !self.agent().config().reports {
            return;
        }
        let read = self.store.run(move |store| read(&store.read(&id)?).map_err(io::Error::other));
        if let Ok((summary, _)) = read.await {
            self.send_report(&summary, what);
        }
    }

    /// Logs another node's status report about a bundle of this node.
    async fn log_report(self: Arc<Self>, record: BundleRecord) -> TaskOutcome {
        let id = record.id;
        let payload = self.store.run(move |store| {
            let bytes = store.read(&id)?;
            let (summary, _) = read(&bytes).map_err(io::Error::other)?;
            Ok(bytes[summary.payload].to_vec())
        });
        let report = payload.await.ok().and_then(|payload| read_report(&payload));
        if let Some(StatusReport { id, source, happenings }) = report {
            let from = record.source.node();
            self.warnings.report(&format!("{source}: {id} {}, says {from}", happenings.join(", ")));
        }
        // Fails only if the bundle is not being delivered.
        let _ = self.agent().handle_delivered(&id);
        self.notify();
        TaskOutcome::Nothing
    }

    /// Logs the refusal of a bundle.
    pub(super) fn refused(&self, from: &str, why: BundleRefusal) {
        self.warnings.refusal(from, why);
    }
}
