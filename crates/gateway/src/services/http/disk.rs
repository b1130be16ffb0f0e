//! The files of stored responses: two for each, its head (a [`ResponseRecord`]) and its body.
//!
//! A full, broken or slow disk costs speed only. A response that cannot be written stays in memory
//! or is dropped; one that cannot be read, or fails its digest, is requested again.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::Counter;
use http_cache::{EntryId, ResponseRecord};
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use units::Instant;

use crate::process::clock;

/// A response body, shared by its readers.
pub(super) type SharedBody = Arc<[u8]>;

/// Limit of queued jobs. Those beyond it are refused.
const MAX_JOBS: usize = 1024;
/// Limit of body bytes in queued jobs.
const MAX_QUEUED_BYTES: u64 = 64 << 20;
/// Time limit for reading a body from disk. Beyond it the server is asked.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause of writing after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(30);
/// Size limit of a head file, in bytes. Those that are written are shorter.
const MAX_HEAD_FILE: u64 = 256 << 10;
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const HEAD: &str = "head";
const BODY: &str = "body";
const LOCK: &str = "lock";

/// A queued operation on the directory.
enum DiskJob {
    Write(EntryId, Box<ResponseRecord>, Option<SharedBody>),
    Remove(EntryId),
    /// Stop using the directory, so that another process can.
    Leave,
}

/// Handle to a directory of stored responses. Its worker does the writing.
pub(super) struct DiskHandle {
    directory: Arc<Path>,
    jobs: Sender<DiskJob>,
    waiting: Arc<AtomicU64>,
    pub(super) errors: Arc<Counter>,
}

/// Task that writes and removes files, in the order of the jobs.
pub(super) struct DiskWorker {
    directory: Arc<Path>,
    jobs: Receiver<DiskJob>,
    waiting: Arc<AtomicU64>,
    errors: Arc<Counter>,
    paused_until: Option<Instant>,
    /// Held while the directory is in use: one gateway at a time.
    _lock: Flock<File>,
}

impl DiskHandle {
    /// Opens a directory, and creates it if missing. Returns the handle, the worker to run, and the
    /// IDs of the responses found, in ascending order.
    ///
    /// # Errors
    /// The system's error; `WouldBlock` if another gateway uses the directory.
    pub(super) fn open(directory: &Path) -> io::Result<(Self, DiskWorker, Vec<EntryId>)> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(FILE_MODE);
        // A link planted as the lock's name must not open a file elsewhere.
        let lock = options.custom_flags(libc::O_NOFOLLOW).open(directory.join(LOCK))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| io::Error::from(error))?;
        let mut found = Vec::new();
        for file in fs::read_dir(directory)? {
            found.extend(id_of(&file?.path()));
        }
        found.sort_unstable();
        // Head and body were found separately.
        found.dedup();
        let (sender, jobs) = mpsc::channel(MAX_JOBS);
        let directory: Arc<Path> = directory.into();
        let waiting: Arc<AtomicU64> = Arc::default();
        let errors: Arc<Counter> = Arc::default();
        let worker = DiskWorker {
            directory: directory.clone(),
            jobs,
            waiting: waiting.clone(),
            errors: errors.clone(),
            paused_until: None,
            _lock: lock,
        };
        Ok((Self { directory, jobs: sender, waiting, errors }, worker, found))
    }

    /// Queues the writing of a response. `body` is [`None`] if the file with it is unchanged.
    /// Returns `false` if too much is queued.
    pub(super) fn write(
        &self,
        id: EntryId,
        record: ResponseRecord,
        body: Option<SharedBody>,
    ) -> bool {
        let length = body.as_ref().map_or(0, |body| body.len() as u64);
        if self.waiting.load(Ordering::Relaxed) + length > MAX_QUEUED_BYTES {
            return false;
        }
        let taken = self.jobs.try_send(DiskJob::Write(id, Box::new(record), body)).is_ok();
        if taken {
            self.waiting.fetch_add(length, Ordering::Relaxed);
        }
        taken
    }

    /// Queues the removal of a response. With a full queue its files stay until the next start.
    pub(super) fn remove(&self, id: EntryId) {
        let _ = self.jobs.try_send(DiskJob::Remove(id));
    }

    /// Releases the directory to another process after the jobs queued so far; later ones are
    /// ignored.
    pub(super) fn leave(&self) {
        let _ = self.jobs.try_send(DiskJob::Leave);
    }

    /// Reads a response's body; [`None`] if it is missing, damaged or takes too long.
    pub(super) async fn load(&self, id: EntryId, length: u64) -> Option<SharedBody> {
        let directory = self.directory.clone();
        let loading = spawn_blocking(move || load(&directory, id, length));
        let loaded = timeout(READ_TIMEOUT, loading).await.ok()?.ok()?;
        if loaded.is_none() {
            self.errors.increment();
        }
        loaded
    }

    /// Reads the heads of these responses. Files of responses without a readable head are removed.
    pub(super) async fn records(&self, ids: Vec<EntryId>) -> Vec<(EntryId, ResponseRecord)> {
        let directory = self.directory.clone();
        let reading = spawn_blocking(move || {
            let read = ids.into_iter().filter_map(|id| match record(&directory, id) {
                Some(record) => Some((id, record)),
                None => {
                    remove(&directory, id);
                    None
                }
            });
            read.collect()
        });
        reading.await.unwrap_or_default()
    }
}

impl DiskWorker {
    /// Runs the queued jobs until the directory is released or the handle is dropped. Calls `lost`
    /// for each response that could not be written.
    pub(super) async fn run(mut self, lost: impl Fn(EntryId)) {
        while let Some(job) = self.jobs.recv().await {
            let directory = self.directory.clone();
            match job {
                DiskJob::Write(id, record, body) => {
                    let length = body.as_ref().map_or(0, |body| body.len() as u64);
                    if !self.write(directory, id, record, body).await {
                        lost(id);
                    }
                    self.waiting.fetch_sub(length, Ordering::Relaxed);
                }
                DiskJob::Remove(id) => {
                    let _ = spawn_blocking(move || remove(&directory, id)).await;
                }
                DiskJob::Leave => return,
            }
        }
    }

    async fn write(
        &mut self,
        directory: Arc<Path>,
        id: EntryId,
        record: Box<ResponseRecord>,
        body: Option<SharedBody>,
    ) -> bool {
        if self.paused_until.is_some_and(|until| clock::now() < until) {
            // An incomplete or outdated response must not be found at the next start.
            let _ = spawn_blocking(move || remove(&directory, id)).await;
            return false;
        }
        let writing = spawn_blocking(move || {
            let written = write(&directory, id, *record, body.as_deref());
            if written.is_err() {
                remove(&directory, id);
            }
            written
        });
        match writing.await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => {
                let directory = self.directory.display();
                tracing::warn!("HTTP cache: cannot write to {directory}, pausing writes: {error}");
            }
            Err(error) => tracing::error!("HTTP cache: writing a response failed: {error}"),
        }
        self.errors.increment();
        self.paused_until = Some(clock::now() + FAILURE_PAUSE);
        false
    }
}

fn path(directory: &Path, id: EntryId, kind: &str) -> PathBuf {
    directory.join(format!("{:016x}.{kind}", id.0))
}

/// Returns the response to which a file belongs, judged by its name.
fn id_of(path: &Path) -> Option<EntryId> {
    let kind = path.extension()?.to_str()?;
    let name = path.file_stem()?.to_str()?;
    // Other files in the directory are not ours to remove.
    let ours = name.len() == 16 && [HEAD, BODY].contains(&kind);
    u64::from_str_radix(name, 16).ok().filter(|_| ours).map(EntryId)
}

fn write(
    directory: &Path,
    id: EntryId,
    mut record: ResponseRecord,
    body: Option<&[u8]>,
) -> io::Result<()> {
    match body {
        Some(body) => {
            record.digest = digest(body);
            // The process may end before the head is written: then the digest in the old head shows that the
            // body is another one.
            create(&path(directory, id, BODY), body)?;
        }
        None => {
            // The body is unchanged, and so is its digest.
            let missing = || io::Error::from(io::ErrorKind::NotFound);
            record.digest = self::record(directory, id).ok_or_else(missing)?.digest;
        }
    }
    // A reader finds either the old head or the new one.
    let new = path(directory, id, "new");
    create(&new, &record.encode())?;
    fs::rename(new, path(directory, id, HEAD))
}

/// Not synced: the digest reveals what a power failure has damaged.
fn create(path: &Path, contents: &[u8]) -> io::Result<()> {
    // With `create_new`, this also keeps a link of that name from being followed.
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE).open(path)?.write_all(contents)
}

fn remove(directory: &Path, id: EntryId) {
    for kind in [HEAD, BODY, "new"] {
        let _ = fs::remove_file(path(directory, id, kind));
    }
}

fn record(directory: &Path, id: EntryId) -> Option<ResponseRecord> {
    let head = path(directory, id, HEAD);
    // A link may lead out of the directory.
    let length = fs::symlink_metadata(&head).ok().filter(fs::Metadata::is_file)?.len();
    let bytes = if length <= MAX_HEAD_FILE { fs::read(head).ok()? } else { return None };
    let record = ResponseRecord::decode(&bytes)?;
    let body = fs::symlink_metadata(path(directory, id, BODY)).ok()?;
    // The digest is compared when the body is read.
    (body.is_file() && body.len() == record.length).then_some(record)
}

fn load(directory: &Path, id: EntryId, length: u64) -> Option<SharedBody> {
    let record = record(directory, id).filter(|record| record.length == length)?;
    let body = fs::read(path(directory, id, BODY)).ok()?;
    (digest(&body) == record.digest).then(|| body.into())
}

fn digest(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http_cache::{CacheKey, RequestHead, ResponseHead, StoredResponse};
    use tokio::task::JoinHandle;
    use units::UnixTime;

    use super::*;

    const FIRST: EntryId = EntryId(1);

    fn record(length: u64) -> ResponseRecord {
        let (destination, host, target) = ("192.0.2.1:80".into(), "a".into(), "/".into());
        let key = CacheKey { destination, host, target };
        let fields = http_cache::HeaderFields::default();
        let request = RequestHead { method: "GET".into(), target: "/".into(), minor: 1, fields };
        let now = UnixTime::from_seconds(1_800_000_000);
        let stored = StoredResponse::new(&request, &ResponseHead::own(200, "OK"), now, now);
        ResponseRecord {
            key,
            stored,
            length,
            digest: String::new(),
            owner: IpAddr::from([10, 0, 0, 1]),
        }
    }

    /// A directory whose worker runs; what it reports as lost.
    fn open(directory: &Path) -> (DiskHandle, Arc<std::sync::Mutex<Vec<EntryId>>>, JoinHandle<()>) {
        let (disk, worker, _) = DiskHandle::open(directory).unwrap();
        let lost: Arc<std::sync::Mutex<Vec<EntryId>>> = Arc::default();
        let reported = lost.clone();
        let running = tokio::spawn(worker.run(move |id| reported.lock().unwrap().push(id)));
        (disk, lost, running)
    }

    async fn written(disk: &DiskHandle, body: &[u8]) {
        assert!(disk.write(FIRST, record(body.len() as u64), Some(body.into())));
        while disk.waiting.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_written_is_there_for_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let (disk, lost, running) = open(directory.path());
        written(&disk, b"hello").await;
        assert_eq!(disk.load(FIRST, 5).await.as_deref(), Some(&b"hello"[..]));
        assert_eq!(disk.load(FIRST, 6).await, None, "another length");
        assert!(DiskHandle::open(directory.path()).is_err(), "it is in use");
        drop(disk);
        running.await.unwrap();
        let (disk, _, found) = DiskHandle::open(directory.path()).unwrap();
        assert_eq!(found, [FIRST]);
        let records = disk.records(found).await;
        assert_eq!(
            (records[0].0, records[0].1.length, &records[0].1.key.target[..]),
            (FIRST, 5, "/")
        );
        assert!(lost.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_not_what_was_written_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let (disk, ..) = open(directory.path());
        written(&disk, b"hello").await;
        fs::write(path(directory.path(), FIRST, BODY), b"hullo").unwrap();
        assert_eq!(disk.load(FIRST, 5).await, None);
        fs::write(path(directory.path(), FIRST, BODY), b"hell").unwrap();
        assert!(disk.records(vec![FIRST]).await.is_empty());
        assert!(!path(directory.path(), FIRST, HEAD).exists(), "it is removed");
        assert_eq!(disk.errors.get(), 1);
    }

    #[tokio::test]
    async fn files_of_others_stay_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let others = directory.path().join("notes.head");
        fs::write(&others, b"mine").unwrap();
        let secret = directory.path().join("secret");
        fs::write(&secret, b"hello").unwrap();
        std::os::unix::fs::symlink(&secret, path(directory.path(), FIRST, BODY)).unwrap();
        let (disk, ..) = open(directory.path());
        written(&disk, b"hello").await;
        assert_eq!(
            (fs::read(&secret).unwrap(), fs::read(&others).unwrap()),
            (b"hello".into(), b"mine".into())
        );
        assert_eq!(disk.load(FIRST, 5).await.as_deref(), Some(&b"hello"[..]));
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_left_alone_for_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("cache");
        let (disk, lost, _) = open(&place);
        fs::rename(&place, directory.path().join("gone")).unwrap();
        written(&disk, b"hello").await;
        written(&disk, b"again").await;
        assert_eq!((lost.lock().unwrap().len(), disk.errors.get()), (2, 1));
    }
}
