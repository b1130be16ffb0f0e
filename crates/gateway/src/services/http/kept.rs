//! A gateway's stored responses: the cache, its files, and the responses in flight.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use http_cache::{
    CacheConfig, CacheStats, EntryId, FileOutput, InFlightRequests, ResponseRecord, SharedCache,
};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use units::ByteCount;

use super::disk::{DiskHandle, DiskWorker, SharedBody};
use super::flight::SharedResponse;
use super::record::RecordingMemory;

/// Heads read from disk per step at the start.
const BATCH: usize = 256;
/// Limit of concurrent background validations. Beyond it stale responses are used unvalidated.
pub(super) const MAX_REFRESHES: usize = 64;

/// The cache, its disk, and the responses being received.
pub(super) struct ResponseCache {
    cache: Mutex<SharedCache<SharedBody>>,
    disk: Option<DiskHandle>,
    pub(super) recorded: RecordingMemory,
    pub(super) flights: Mutex<InFlightRequests<Arc<SharedResponse>>>,
    /// Permits for background validations. Clients cause them, and may leave at once.
    pub(super) refreshes: Semaphore,
}

impl ResponseCache {
    /// Starts the cache with the responses that an earlier process left in `directory`. The tasks
    /// returned move data between cache and files until they are aborted.
    pub(super) fn start(
        mut config: CacheConfig,
        directory: Option<&Path>,
    ) -> (Arc<Self>, Vec<AbortHandle>) {
        let opened = directory.and_then(open);
        // The cache must not count on a disk that it does not have.
        if opened.is_none() {
            config.limits.disk = ByteCount::new(0);
        }
        let (disk, work) = match opened {
            Some((disk, worker, found)) => (Some(disk), Some((worker, found))),
            None => (None, None),
        };
        let recorded = RecordingMemory::new(config.limits.memory);
        let kept = Arc::new(Self {
            cache: Mutex::new(SharedCache::new(config)),
            disk,
            recorded,
            flights: Mutex::default(),
            refreshes: Semaphore::new(MAX_REFRESHES),
        });
        let tasks = work.map_or_else(Vec::new, |(worker, found)| kept.use_disk(worker, found));
        (kept, tasks)
    }

    /// Starts the disk's worker and the restoring of what was found.
    fn use_disk(self: &Arc<Self>, worker: DiskWorker, found: Vec<EntryId>) -> Vec<AbortHandle> {
        // New entries must not take the names of files that are yet to be restored.
        if let Some(last) = found.last() {
            self.lock().store().reserve(*last);
        }
        // A weak reference: with a strong one the worker would keep the sender of its own jobs
        // alive, and never end.
        let kept = Arc::downgrade(self);
        let lost = move |id| {
            if let Some(kept) = kept.upgrade() {
                kept.change(|cache| cache.store().handle_lost_files(id));
            }
        };
        let restored = restore(self.clone(), found);
        vec![tokio::spawn(worker.run(lost)).abort_handle(), tokio::spawn(restored).abort_handle()]
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SharedCache<SharedBody>> {
        self.cache.lock().expect("nobody panics while holding the cache")
    }

    /// Releases the directory to another process.
    pub(super) fn leave_disk(&self) {
        self.disk.iter().for_each(DiskHandle::leave);
    }

    /// The cache's statistics, and the number of disk errors.
    pub(super) fn stats(&self) -> (CacheStats, u64) {
        let errors = self.disk.as_ref().map_or(0, |disk| disk.errors.get());
        (self.lock().stats(), errors)
    }

    /// Changes the cache, and queues the file operations that follow from it.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut SharedCache<SharedBody>) -> R) -> R {
        let mut cache = self.lock();
        let result = change(&mut cache);
        while let Some(output) = cache.poll_output() {
            let Some(disk) = &self.disk else { continue };
            match output {
                FileOutput::Write(id, body) => {
                    let record = record(&mut cache, id);
                    // An entry that is gone by now has its removal further on in the queue.
                    if record.is_some_and(|record| !disk.write(id, record, body)) {
                        cache.store().handle_lost_files(id);
                        disk.remove(id);
                    }
                }
                FileOutput::Remove(id) => disk.remove(id),
            }
        }
        result
    }

    /// Reads the body of a stored response from memory or disk.
    pub(super) async fn body(&self, id: EntryId) -> Option<SharedBody> {
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
                self.change(|cache| cache.store().handle_loaded_body(id, body.clone()));
                Some(body)
            }
            None => {
                self.change(|cache| cache.store().handle_lost_files(id));
                self.disk.as_ref()?.remove(id);
                None
            }
        }
    }
}

/// Opens the disk; without one, responses are kept in memory.
fn open(directory: &Path) -> Option<(DiskHandle, DiskWorker, Vec<EntryId>)> {
    let failed = |error: &io::Error| {
        let directory = directory.display();
        tracing::warn!("HTTP cache in memory only: cannot use {directory}: {error}");
    };
    DiskHandle::open(directory).inspect_err(failed).ok()
}

fn record(cache: &mut SharedCache<SharedBody>, id: EntryId) -> Option<ResponseRecord> {
    let (key, owner) = cache.store().origin(id)?;
    let key = key.clone();
    let (stored, _, length) = cache.store().get(id)?;
    Some(ResponseRecord { key, stored: stored.clone(), length, digest: String::new(), owner })
}

/// Restores what an earlier process has stored, as far as it fits.
async fn restore(kept: Arc<ResponseCache>, found: Vec<EntryId>) {
    let Some(disk) = &kept.disk else { return };
    // Latest first: if not all fit, the last ones stored are more likely to be used.
    for batch in found.rchunks(BATCH) {
        let records = disk.records(batch.to_vec()).await;
        for (id, record) in records.into_iter().rev() {
            let ResponseRecord { key, stored, length, owner, .. } = record;
            if !kept.change(|cache| cache.store().restore(id, key, stored, length, owner)) {
                disk.remove(id);
            }
        }
    }
}
