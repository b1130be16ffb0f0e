//! Cleartext HTTP: a terminal answers its clients' requests from a cache ([`Http`]).
//!
//! [`pep::http`] decides; here are the sockets and files. A [`conversation`] is a client's connection:
//! its requests are answered, or sent on over an [`upstream`]. What is no HTTP that we understand
//! becomes a relayed connection like any other, with all that has been read of it.

mod answer;
mod conversation;
mod disk;
mod exchange;
pub(crate) mod hub;
mod pool;
mod push;
mod pushed;
mod record;
mod refresh;
mod upstream;
mod wire;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use pep::config::HttpConfig;
use pep::http::{Cache, EntryId, FileOutput, Promises, Record};
use slacp::{Destination, Open};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use units::ByteCount;

use self::conversation::Conversation;
use self::disk::{Bytes, Disk, Worker};
use self::record::Recorded;
use crate::names::Route;
use crate::names::carry::Through;
use crate::operate::counters::Counter;
use crate::operate::status::HttpStatus;

/// Heads that are read at once at the start.
const BATCH: usize = 256;

/// Part of the cache's memory that responses may take, besides, which were pushed and not asked for yet.
const PROMISED_PART: u64 = 4;

/// What all conversations share.
pub(crate) struct Shared {
    config: HttpConfig,
    cache: Mutex<Cache<Bytes>>,
    disk: Option<Disk>,
    through: Through,
    route: watch::Receiver<Route>,
    counters: HttpCounters,
    recorded: Recorded,
    promises: Mutex<Promises<Bytes>>,
    /// Tells of everything that was pushed, or will not be.
    came: Notify,
}

/// What is counted beside the cache.
#[derive(Debug, Default)]
struct HttpCounters {
    /// Connections that were no HTTP, or not ours to handle.
    plain: Counter,
}

/// A terminal's cache. Dropping it ends what it does on its own; connections end with the gateway.
pub(crate) struct Http {
    shared: Arc<Shared>,
    route: watch::Sender<Route>,
    tasks: Vec<AbortHandle>,
}

impl Drop for Http {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Http {
    /// Starts with what an earlier process has left on disk. Connections go `through`.
    pub(crate) fn start(config: HttpConfig, through: Through) -> Self {
        let opened = config.directory.as_deref().and_then(open);
        let mut settings = config.cache.clone();
        if opened.is_none() {
            settings.limits.disk = ByteCount::new(0);
        }
        let most = config.cache.limits.memory.get() / PROMISED_PART;
        let promises = Mutex::new(Promises::new(ByteCount::new(most)));
        let (sender, route) = watch::channel(Route::default());
        let (disk, work) = match opened {
            Some((disk, worker, found)) => (Some(disk), Some((worker, found))),
            None => (None, None),
        };
        let cache = Mutex::new(Cache::new(settings));
        let shared = Arc::new(Shared {
            config,
            cache,
            disk,
            through,
            route,
            counters: HttpCounters::default(),
            recorded: Recorded::default(),
            promises,
            came: Notify::new(),
        });
        let tasks = work.map_or_else(Vec::new, |work| shared.use_disk(work));
        Self { shared, route: sender, tasks }
    }

    /// What conversations share, for connections that come in by another way.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Sets how requests reach their servers.
    pub(crate) fn set(&self, route: Route) {
        self.route.send_if_modified(|current| std::mem::replace(current, route) != route);
    }

    /// Whether connections to this port are handled.
    pub(crate) fn takes(&self, port: u16) -> bool {
        self.shared.config.takes(port)
    }

    /// Ports whose connections are to be taken although the hub cannot be reached; none without
    /// anything to serve.
    pub(crate) fn offline_ports(&self) -> &[u16] {
        let serves = self.shared.config.offline && !self.shared.lock().store().is_empty();
        if serves { &self.shared.config.ports } else { &[] }
    }

    pub(crate) fn status(&self) -> HttpStatus {
        let errors = self.shared.disk.as_ref().map_or(0, |disk| disk.errors.get());
        let stats = self.shared.lock().stats();
        let promises = self.shared.promises().stats();
        let plain = self.shared.counters.plain.get();
        HttpStatus::of_terminal(&stats, &promises, (plain, errors))
    }
}

impl Shared {
    /// Whether connections to this port are handled.
    pub(crate) fn takes(&self, port: u16) -> bool {
        self.config.takes(port)
    }

    /// Has the disk follow the cache, and takes back what is on it.
    fn use_disk(self: &Arc<Self>, (worker, found): (Worker, Vec<EntryId>)) -> Vec<AbortHandle> {
        if let Some(last) = found.last() {
            self.lock().store().reserve(*last);
        }
        // Not `self`, which would keep the sender of its jobs alive for ever.
        let cache = Arc::downgrade(self);
        let lost = move |id| {
            if let Some(shared) = cache.upgrade() {
                shared.change(|cache| cache.store().lost(id));
            }
        };
        let restored = restore(self.clone(), found);
        vec![tokio::spawn(worker.run(lost)).abort_handle(), tokio::spawn(restored).abort_handle()]
    }

    fn lock(&self) -> MutexGuard<'_, Cache<Bytes>> {
        self.cache.lock().expect("nobody panics while holding the cache")
    }

    fn promises(&self) -> MutexGuard<'_, Promises<Bytes>> {
        self.promises.lock().expect("nobody panics while holding the promises")
    }

    /// Changes the cache, and has the files follow.
    fn change<R>(&self, change: impl FnOnce(&mut Cache<Bytes>) -> R) -> R {
        let mut cache = self.lock();
        let result = change(&mut cache);
        while let Some(output) = cache.poll_output() {
            let Some(disk) = &self.disk else { continue };
            match output {
                FileOutput::Write(id, body) => {
                    let record = record(&mut cache, id);
                    // What has gone since is removed next.
                    if record.is_some_and(|record| !disk.write(id, record, body)) {
                        cache.store().lost(id);
                        disk.remove(id);
                    }
                }
                FileOutput::Remove(id) => disk.remove(id),
            }
        }
        result
    }

    /// The body of a stored response, from memory or disk.
    async fn body(&self, id: EntryId) -> Option<Bytes> {
        let length = {
            let mut cache = self.lock();
            let (_, body, length) = cache.store().get(id)?;
            match body {
                Some(body) => return Some(body.clone()),
                None => length,
            }
        };
        match self.disk.as_ref()?.load(id, length).await {
            Some(body) => {
                self.change(|cache| cache.store().loaded(id, body.clone()));
                Some(body)
            }
            None => {
                self.change(|cache| cache.store().lost(id));
                self.disk.as_ref()?.remove(id);
                None
            }
        }
    }
}

/// The disk for a directory; without it, responses are kept in memory.
fn open(directory: &Path) -> Option<(Disk, Worker, Vec<EntryId>)> {
    let failed = |error: &io::Error| {
        let directory = directory.display();
        tracing::warn!("HTTP responses are kept in memory only: {directory}: {error}");
    };
    Disk::open(directory).inspect_err(failed).ok()
}

fn record(cache: &mut Cache<Bytes>, id: EntryId) -> Option<Record> {
    let (key, owner) = cache.store().origin(id)?;
    let (key, owner) = (key.clone(), owner);
    let (stored, _, length) = cache.store().get(id)?;
    Some(Record { key, stored: stored.clone(), length, digest: String::new(), owner })
}

/// Takes back what an earlier process has stored, as far as it fits.
async fn restore(shared: Arc<Shared>, found: Vec<EntryId>) {
    let Some(disk) = &shared.disk else { return };
    // The latest first: if there is no room for all, what was stored last is more likely to be of use.
    for batch in found.rchunks(BATCH) {
        let records = disk.records(batch.to_vec()).await;
        for (id, record) in records.into_iter().rev() {
            let Record { key, stored, length, owner, .. } = record;
            if !shared.change(|cache| cache.store().restore(id, key, stored, length, owner)) {
                disk.remove(id);
            }
        }
    }
}

pub(crate) use self::pushed::pushed;

/// Serves a client's connection, of which nothing has been read.
pub(crate) async fn serve(shared: Arc<Shared>, socket: TcpStream, open: Open<Destination>) {
    Conversation::new(shared, socket, open).run().await;
}
