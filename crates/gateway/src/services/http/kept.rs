//! What a gateway keeps of responses: the cache, its files, and what is on its way into it.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use http_cache::{Cache, CacheConfig, CacheStats, EntryId, FileOutput, Flights, Record};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use units::ByteCount;

use super::disk::{Bytes, Disk, Worker};
use super::flight::Flight;
use super::record::Recorded;

/// Heads that are read at once at the start.
const BATCH: usize = 256;
/// Validations at once for which nobody waits. Beyond it, what has expired is used as it is.
pub(super) const MOST_REFRESHES: usize = 64;

/// Stored responses, and those that are being stored.
pub(super) struct Kept {
    cache: Mutex<Cache<Bytes>>,
    disk: Option<Disk>,
    pub(super) recorded: Recorded,
    pub(super) flights: Mutex<Flights<Arc<Flight>>>,
    /// For validations for which nobody waits. Clients bring them about, and may leave at once.
    pub(super) refreshes: Semaphore,
}

impl Kept {
    /// Starts with what an earlier process has left in a directory. The tasks follow the cache with its
    /// files until they are aborted.
    pub(super) fn start(
        mut config: CacheConfig,
        directory: Option<&Path>,
    ) -> (Arc<Self>, Vec<AbortHandle>) {
        let opened = directory.and_then(open);
        if opened.is_none() {
            config.limits.disk = ByteCount::new(0);
        }
        let (disk, work) = match opened {
            Some((disk, worker, found)) => (Some(disk), Some((worker, found))),
            None => (None, None),
        };
        let recorded = Recorded::new(config.limits.memory);
        let (cache, flights) = (Mutex::new(Cache::new(config)), Mutex::default());
        let refreshes = Semaphore::new(MOST_REFRESHES);
        let kept = Arc::new(Self { cache, disk, recorded, flights, refreshes });
        let tasks = work.map_or_else(Vec::new, |work| kept.use_disk(work));
        (kept, tasks)
    }

    /// Has the disk follow the cache, and takes back what is on it.
    fn use_disk(self: &Arc<Self>, (worker, found): (Worker, Vec<EntryId>)) -> Vec<AbortHandle> {
        if let Some(last) = found.last() {
            self.lock().store().reserve(*last);
        }
        // Not `self`, which would keep the sender of its jobs alive for ever.
        let kept = Arc::downgrade(self);
        let lost = move |id| {
            if let Some(kept) = kept.upgrade() {
                kept.change(|cache| cache.store().lost(id));
            }
        };
        let restored = restore(self.clone(), found);
        vec![tokio::spawn(worker.run(lost)).abort_handle(), tokio::spawn(restored).abort_handle()]
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Cache<Bytes>> {
        self.cache.lock().expect("nobody panics while holding the cache")
    }

    /// Leaves the files to another process.
    pub(super) fn leave_disk(&self) {
        self.disk.iter().for_each(Disk::leave);
    }

    /// What the cache has done, and how often the disk has failed.
    pub(super) fn stats(&self) -> (CacheStats, u64) {
        let errors = self.disk.as_ref().map_or(0, |disk| disk.errors.get());
        (self.lock().stats(), errors)
    }

    /// Changes the cache, and has the files follow.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Cache<Bytes>) -> R) -> R {
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
    pub(super) async fn body(&self, id: EntryId) -> Option<Bytes> {
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
async fn restore(kept: Arc<Kept>, found: Vec<EntryId>) {
    let Some(disk) = &kept.disk else { return };
    // The latest first: if there is no room for all, what was stored last is more likely to be of use.
    for batch in found.rchunks(BATCH) {
        let records = disk.records(batch.to_vec()).await;
        for (id, record) in records.into_iter().rev() {
            let Record { key, stored, length, owner, .. } = record;
            if !kept.change(|cache| cache.store().restore(id, key, stored, length, owner)) {
                disk.remove(id);
            }
        }
    }
}
