//! Bundles in the directory: receiving, reading, and removing them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bundles::transfer::BundleDigest;
use bundles::{BundleFate, BundleId, BundleRecord};
use os::{create_directory, sync_directory};
use thiserror::Error;

use super::header::{self, HEADER};
use super::known::{GoneBundle, GoneList};
use crate::config::whole_file::PRIVATE;

/// Limit of partial bundles kept for senders that come back.
const MAX_PARTIAL: usize = 256;

/// Reason for which a store cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    /// Another process holds the lock.
    #[error("another gateway uses {}", .0.display())]
    Locked(PathBuf),
    #[error("cannot use {}: {cause}", path.display())]
    System { path: PathBuf, cause: io::Error },
}

/// Identifies the partial file of a bundle being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartialId {
    /// Contents of a known digest: the bytes so far can be resumed.
    Digest(BundleDigest),
    /// Unknown contents, under a number unique in this process.
    New(u64),
}

impl PartialId {
    fn name(&self) -> String {
        match self {
            Self::Digest(digest) => digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::New(number) => format!("new-{number}"),
        }
    }
}

/// The directory of a store, locked by this process.
#[derive(Debug)]
pub(crate) struct BundleStore {
    directory: PathBuf,
    known: GoneList,
    open: BTreeMap<PartialId, File>,
    /// Bound of idle partial bundles, in bytes.
    partial: u64,
    _lock: File,
}

impl BundleStore {
    /// Opens a directory, and creates it if missing. Returns the bundles in it, and those gone
    /// whose lifetimes end after `now`, in milliseconds since 1970. At most `partial` bytes of idle
    /// partial bundles are kept.
    pub(crate) fn open(
        directory: &Path,
        now: u64,
        partial: u64,
    ) -> Result<(Self, Vec<BundleRecord>, Vec<GoneBundle>), StoreError> {
        let failed = |cause| StoreError::System { path: directory.to_owned(), cause };
        for part in ["held", "partial", "named"] {
            create_directory(&directory.join(part), 0o700).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(PRIVATE);
        let lock = lock.open(directory.join("lock")).map_err(failed)?;
        // The kernel releases it when the process ends, however that happens.
        if lock.try_lock().is_err() {
            return Err(StoreError::Locked(directory.to_owned()));
        }
        let (known, entries) = GoneList::open(&directory.join("known"), now).map_err(failed)?;
        let open = BTreeMap::new();
        let mut store = Self { directory: directory.to_owned(), known, open, partial, _lock: lock };
        let records = store.records().map_err(failed)?;
        store.tidy(&records).map_err(failed)?;
        Ok((store, records, entries))
    }

    fn held(&self, id: &BundleId) -> PathBuf {
        self.directory.join("held").join(id.to_string())
    }

    fn spooled(&self, spool: &PartialId) -> PathBuf {
        self.directory.join("partial").join(spool.name())
    }

    pub(super) fn mark(&self, id: &BundleId) -> PathBuf {
        self.directory.join("named").join(id.to_string())
    }

    /// Lists the bundles in the store. A damaged file is left alone for the operator to examine.
    fn records(&self) -> io::Result<Vec<BundleRecord>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(self.directory.join("held"))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(BundleId::from_hex);
            match record(&path) {
                Ok(Some(record)) if name == Some(record.id) => records.push(record),
                Ok(_) => tracing::error!("{} is damaged, ignored", path.display()),
                Err(error) => tracing::error!("cannot read {}: {error}", path.display()),
            }
        }
        Ok(records)
    }

    /// Removes marks without a bundle, partial files that cannot be resumed, and the oldest others.
    fn tidy(&mut self, records: &[BundleRecord]) -> io::Result<()> {
        // A power cut between the removal of a bundle and that of its mark leaves the mark.
        for entry in fs::read_dir(self.directory.join("named"))? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(BundleId::from_hex);
            if !id.is_some_and(|id| records.iter().any(|record| record.id == id)) {
                fs::remove_file(entry.path())?;
            }
        }
        for entry in fs::read_dir(self.directory.join("partial"))? {
            let entry = entry?;
            // Without a digest it cannot be resumed.
            if entry.file_name().to_string_lossy().starts_with("new-") {
                fs::remove_file(entry.path())?;
            }
        }
        self.trim(self.partial)
    }

    /// Removes the oldest idle partial bundles beyond `most` bytes.
    fn trim(&mut self, most: u64) -> io::Result<()> {
        let mut idle: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(self.directory.join("partial"))? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if !self.open.keys().any(|spool| *spool.name() == *entry.file_name()) {
                idle.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        // The newest first: the oldest are beyond the bounds.
        idle.sort_by(|a, b| b.cmp(a));
        let mut bytes = 0;
        for (place, (_, length, path)) in idle.iter().enumerate() {
            bytes += length;
            if bytes > most || place >= MAX_PARTIAL {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Begins to receive a bundle. Returns the number of its bytes from an earlier try, 0 unless it
    /// is to be `resumed`.
    pub(crate) fn begin(&mut self, spool: PartialId, resumed: bool) -> io::Result<u64> {
        let path = self.spooled(&spool);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).mode(PRIVATE);
        let mut file = options.truncate(!resumed).open(path)?;
        let length = file.metadata()?.len().max(HEADER as u64);
        // The header is written last, when the record is known.
        file.set_len(length)?;
        file.seek(SeekFrom::End(0))?;
        self.open.insert(spool, file);
        Ok(length - HEADER as u64)
    }

    fn spool(&mut self, spool: &PartialId) -> io::Result<&mut File> {
        self.open.get_mut(spool).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Appends to a bundle being received. If the disk is full, idle partial bundles are removed:
    /// complete ones need the space.
    pub(crate) fn append(&mut self, spool: PartialId, bytes: &[u8]) -> io::Result<()> {
        let added = self.spool(&spool)?.write_all(bytes);
        if added.is_err() {
            self.trim(0)?;
        }
        added
    }

    /// Reads all bytes received of a bundle.
    pub(crate) fn whole(&mut self, spool: PartialId) -> io::Result<Vec<u8>> {
        let file = self.spool(&spool)?;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(HEADER as u64))?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Stores a received bundle durably. `other` has its bytes if they differ from those received.
    pub(crate) fn keep(
        &mut self,
        spool: PartialId,
        record: &BundleRecord,
        other: Option<&[u8]>,
    ) -> io::Result<()> {
        let from = self.spooled(&spool);
        let to = self.held(&record.id);
        let file = self.spool(&spool)?;
        file.write_all_at(&header::write(record), 0)?;
        if let Some(bytes) = other {
            file.write_all_at(bytes, HEADER as u64)?;
        }
        file.set_len(HEADER as u64 + record.length)?;
        // On the disk before the rename: `held` has complete bundles only.
        file.sync_all()?;
        fs::rename(from, &to)?;
        // Without this, a power cut may undo the rename.
        sync_directory(&to)?;
        self.open.remove(&spool);
        Ok(())
    }

    /// Stores a bundle made here durably; `number` must be unique.
    pub(crate) fn put(
        &mut self,
        number: u64,
        record: &BundleRecord,
        bytes: &[u8],
    ) -> io::Result<()> {
        let spool = PartialId::New(number);
        self.begin(spool, false)?;
        let kept = self.append(spool, bytes).and_then(|()| self.keep(spool, record, None));
        if kept.is_err() {
            self.abandon(spool, false)?;
        }
        kept
    }

    /// Ends receiving without a bundle. `useful` keeps the bytes for the next try, if they can be
    /// resumed.
    pub(crate) fn abandon(&mut self, spool: PartialId, useful: bool) -> io::Result<()> {
        if self.open.remove(&spool).is_none() {
            return Ok(());
        }
        if useful && matches!(spool, PartialId::Digest(_)) {
            return self.trim(self.partial);
        }
        fs::remove_file(self.spooled(&spool))
    }

    /// Reads the bytes of a bundle.
    pub(crate) fn read(&self, id: &BundleId) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.held(id))?;
        file.seek(SeekFrom::Start(HEADER as u64))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a range of a bundle's bytes.
    pub(crate) fn read_part(&self, id: &BundleId, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let file = File::open(self.held(id))?;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, HEADER as u64 + offset)?;
        Ok(bytes)
    }

    /// Removes a bundle. Its fate is on the disk when this returns, even if the file could not be
    /// removed.
    pub(crate) fn remove(&mut self, record: &BundleRecord, fate: BundleFate) -> io::Result<()> {
        // First: a power cut between the two must not let the bundle arrive twice.
        self.known.add(&(record.id, fate, record.expires))?;
        for path in [self.held(&record.id), self.mark(&record.id)] {
            // Only files for the inbox have a mark, and an earlier attempt may have removed the bundle.
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns `true` if [`Self::remember`] is due, with `needed` bundles to remember.
    pub(crate) fn is_long(&self, needed: usize) -> bool {
        self.known.is_long(needed)
    }

    /// Rewrites the list of gone bundles.
    pub(crate) fn remember(&mut self, entries: &[GoneBundle]) -> io::Result<()> {
        self.known.replace(entries.iter().copied())
    }
}

/// Reads a file's header; [`None`] if it is damaged, or does not fit the file's length.
fn record(path: &Path) -> io::Result<Option<BundleRecord>> {
    let mut file = File::open(path)?;
    let mut bytes = [0; HEADER];
    match file.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = file.metadata()?.len();
    Ok(header::read(&bytes).filter(|record| length == HEADER as u64 + record.length))
}
