//! Storage of responses, and eviction when memory or disk are full.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use units::ByteCount;

use super::head::RequestHead;
use super::policy::StoredResponse;

/// Memory of an entry beyond its head and body, in bytes.
const OVERHEAD: usize = 400;
/// Block size of the disk, in bytes: files are counted in multiples of it.
const BLOCK: u64 = 4096;
/// Most responses stored for one key (`Vary`).
const MOST_VARIANTS: usize = 16;

/// Key of a stored response. It contains the destination of the client's connection, so that a response of
/// a client's own server cannot be stored for another host (cache poisoning).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey {
    /// Address or name of the server, with its port.
    pub destination: String,
    /// The `Host` field in lower case.
    pub host: String,
    /// The request target, with its query.
    pub target: String,
}

impl CacheKey {
    fn size(&self) -> usize {
        self.destination.len() + self.host.len() + self.target.len()
    }
}

/// Identifies an entry of the store, and its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(pub u64);

/// Bounds of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Memory for heads and bodies.
    pub memory: ByteCount,
    /// Disk space for files; zero without a disk.
    pub disk: ByteCount,
    /// The longest body that is stored.
    pub object: ByteCount,
}

/// File operations of the store, to be carried out in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOutput<B> {
    /// Write the head of an entry, and its body if given.
    Write(EntryId, Option<B>),
    /// Remove the files of an entry.
    Remove(EntryId),
}

#[derive(Debug)]
struct StoreEntry<B> {
    key: CacheKey,
    stored: StoredResponse,
    /// Length of the body, in bytes.
    length: u64,
    owner: IpAddr,
    /// Position in the order of use.
    mark: u64,
    /// The body, if it is in memory.
    body: Option<B>,
    on_disk: bool,
    /// `true` while a background request revalidates the entry.
    revalidating: bool,
}

impl<B> StoreEntry<B> {
    /// An entry whose body is neither in memory nor on disk.
    fn new(key: CacheKey, stored: StoredResponse, length: u64, owner: IpAddr) -> Self {
        Self {
            key,
            stored,
            length,
            owner,
            mark: 0,
            body: None,
            on_disk: false,
            revalidating: false,
        }
    }

    fn head_size(&self) -> u64 {
        (OVERHEAD + self.key.size() + self.stored.size()) as u64
    }

    /// Disk space of the two files.
    fn file_size(&self) -> u64 {
        self.head_size().next_multiple_of(BLOCK) + self.length.next_multiple_of(BLOCK)
    }
}

/// Stored responses by key. Bodies of type `B` are in memory, on disk, or both.
#[derive(Debug)]
pub struct ResponseStore<B> {
    limits: StoreLimits,
    entries: BTreeMap<EntryId, StoreEntry<B>>,
    by_key: BTreeMap<CacheKey, Vec<EntryId>>,
    /// Usage by heads, by bodies in memory, and by files.
    heads: OwnerUsage,
    bodies: OwnerUsage,
    on_disk: OwnerUsage,
    next: u64,
    clock: u64,
    outputs: VecDeque<FileOutput<B>>,
}

impl<B: Clone> ResponseStore<B> {
    /// Creates an empty store with these bounds.
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            by_key: BTreeMap::new(),
            heads: OwnerUsage::default(),
            bodies: OwnerUsage::default(),
            on_disk: OwnerUsage::default(),
            next: 0,
            clock: 0,
            outputs: VecDeque::new(),
        }
    }

    /// The longest body that is stored: at most half of memory or disk, so that one response never empties
    /// the store.
    pub fn longest_body(&self) -> u64 {
        let room = self.limits.memory.get().max(self.limits.disk.get()) / 2;
        self.limits.object.get().min(room)
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        self.heads.bytes + self.bodies.bytes
    }

    /// Disk space in use by files, in bytes.
    pub fn disk(&self) -> u64 {
        self.on_disk.bytes
    }

    /// Number of stored responses, in memory or on disk.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the next file operation.
    pub fn poll_output(&mut self) -> Option<FileOutput<B>> {
        self.outputs.pop_front()
    }

    /// Finds the response that matches a request, the latest if there are several, and marks it as used.
    pub fn select(&mut self, key: &CacheKey, request: &RequestHead) -> Option<EntryId> {
        let ids = self.by_key.get(key)?;
        let of = |id: &EntryId| &self.entries[id].stored;
        let selected = ids.iter().filter(|id| of(id).is_selected_by(request));
        let id = *selected.max_by_key(|id| (of(id).received, **id))?;
        self.touch(id);
        Some(id)
    }

    /// The response, its body if that is in memory, and the length of the body in bytes.
    pub fn get(&self, id: EntryId) -> Option<(&StoredResponse, Option<&B>, u64)> {
        let entry = self.entries.get(&id)?;
        Some((&entry.stored, entry.body.as_ref(), entry.length))
    }

    /// The key of a response, and the client on whose account it is stored.
    pub fn origin(&self, id: EntryId) -> Option<(&CacheKey, IpAddr)> {
        let entry = self.entries.get(&id)?;
        Some((&entry.key, entry.owner))
    }

    /// Reserves the identifiers up to `last` for files that exist already.
    pub fn reserve(&mut self, last: EntryId) {
        self.next = self.next.max(last.0.saturating_add(1));
    }

    /// Stores a response in place of those that match the same request. `owner` is the client on whose
    /// account it is stored. Returns `false` if it does not fit.
    pub fn insert(
        &mut self,
        key: CacheKey,
        request: &RequestHead,
        stored: StoredResponse,
        body: B,
        length: u64,
        owner: IpAddr,
    ) -> bool {
        let old = self.by_key.get(&key).map_or(&[][..], Vec::as_slice);
        let replaced = old.iter().filter(|id| self.entries[id].stored.is_selected_by(request));
        let mut replaced: Vec<EntryId> = replaced.copied().collect();
        // `by_key` is in the order of storage, so the variants stored longest ago give way.
        if let Some(excess) = (old.len() + 1 - replaced.len()).checked_sub(MOST_VARIANTS) {
            let others = old.iter().filter(|id| !replaced.contains(id)).take(excess);
            let others: Vec<EntryId> = others.copied().collect();
            replaced.extend(others);
        }
        // Also if the new response does not fit: these are outdated.
        replaced.into_iter().for_each(|id| self.remove(id));
        if length > self.longest_body()
            || stored.size() as u64 + key.size() as u64 > self.limits.memory.get() / 8
        {
            return false;
        }
        let id = EntryId(self.next);
        self.next += 1;
        let on_disk = self.limits.disk.get() > 0;
        if on_disk {
            self.outputs.push_back(FileOutput::Write(id, Some(body.clone())));
        }
        let body = Some(body);
        self.admit(id, StoreEntry { body, on_disk, ..StoreEntry::new(key, stored, length, owner) });
        self.make_room();
        self.entries.contains_key(&id)
    }

    /// Restores a response whose files were found at the start. Returns `false` if it is not accepted: the
    /// caller removes its files.
    pub fn restore(
        &mut self,
        id: EntryId,
        key: CacheKey,
        stored: StoredResponse,
        length: u64,
        owner: IpAddr,
    ) -> bool {
        let variants = self.by_key.get(&key).map_or(0, Vec::len);
        if self.entries.contains_key(&id)
            || length > self.longest_body()
            || variants >= MOST_VARIANTS
        {
            return false;
        }
        self.reserve(id);
        self.admit(id, StoreEntry { on_disk: true, ..StoreEntry::new(key, stored, length, owner) });
        self.make_room();
        self.entries.contains_key(&id)
    }

    /// Adds an entry as the one used last.
    fn admit(&mut self, id: EntryId, mut entry: StoreEntry<B>) {
        self.by_key.entry(entry.key.clone()).or_default().push(id);
        self.clock += 1;
        entry.mark = self.clock;
        self.count_entry(id, &entry);
        self.entries.insert(id, entry);
    }

    /// Adds an entry to the usage of its owner.
    fn count_entry(&mut self, id: EntryId, entry: &StoreEntry<B>) {
        let owner = entry.owner;
        let mark = entry.mark;
        self.heads.add(owner, mark, id, entry.head_size());
        if entry.body.is_some() {
            self.bodies.add(owner, mark, id, entry.length);
        }
        if entry.on_disk {
            self.on_disk.add(owner, mark, id, entry.file_size());
        }
    }

    /// Removes an entry from the usage of its owner.
    fn discount_entry(&mut self, entry: &StoreEntry<B>) {
        let owner = entry.owner;
        let mark = entry.mark;
        self.heads.take(owner, mark, entry.head_size());
        if entry.body.is_some() {
            self.bodies.take(owner, mark, entry.length);
        }
        if entry.on_disk {
            self.on_disk.take(owner, mark, entry.file_size());
        }
    }

    /// Sets whether a background request revalidates the entry; returns the previous value.
    pub fn set_revalidating(&mut self, id: EntryId, revalidating: bool) -> bool {
        let entry = self.entries.get_mut(&id);
        entry.is_some_and(|entry| std::mem::replace(&mut entry.revalidating, revalidating))
    }

    /// Changes the head of a response, in memory and on disk.
    pub fn update(&mut self, id: EntryId, change: impl FnOnce(&mut StoredResponse)) {
        let Some(mut entry) = self.take(id) else { return };
        change(&mut entry.stored);
        let StoreEntry { key, stored, length, owner, body, on_disk, .. } = entry;
        if on_disk {
            self.outputs.push_back(FileOutput::Write(id, None));
        }
        let entry = StoreEntry::new(key, stored, length, owner);
        self.admit(id, StoreEntry { body, on_disk, ..entry });
        self.make_room();
    }

    /// Keeps a body that was read from its file in memory.
    pub fn handle_loaded_body(&mut self, id: EntryId, body: B) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.body.is_none()) else {
            return;
        };
        entry.body = Some(body);
        self.bodies.add(entry.owner, entry.mark, id, entry.length);
        self.make_room();
    }

    /// Handles files of a response that could not be written or read. Without the body the entry is
    /// removed.
    pub fn handle_lost_files(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.on_disk) else { return };
        entry.on_disk = false;
        self.on_disk.take(entry.owner, entry.mark, entry.file_size());
        if entry.body.is_none() {
            self.remove(id);
        }
    }

    /// Removes all responses for a key (RFC 9111 §4.4).
    pub fn invalidate(&mut self, key: &CacheKey) {
        let ids = self.by_key.get(key).cloned().unwrap_or_default();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Removes a response and its files.
    pub fn remove(&mut self, id: EntryId) {
        if self.take(id).is_some_and(|entry| entry.on_disk) {
            self.outputs.push_back(FileOutput::Remove(id));
        }
    }

    fn take(&mut self, id: EntryId) -> Option<StoreEntry<B>> {
        let entry = self.entries.remove(&id)?;
        self.discount_entry(&entry);
        if let Some(ids) = self.by_key.get_mut(&entry.key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_key.remove(&entry.key);
            }
        }
        Some(entry)
    }

    fn touch(&mut self, id: EntryId) {
        let Some(mut entry) = self.entries.remove(&id) else { return };
        self.discount_entry(&entry);
        self.clock += 1;
        entry.mark = self.clock;
        self.count_entry(id, &entry);
        self.entries.insert(id, entry);
    }

    /// Chooses the entry to evict from memory: of the owner whose heads and bodies take the most, the least
    /// recently used body, or the least recently used head if it has no body in memory.
    fn victim(&self) -> Option<EntryId> {
        let taken = |owner: &IpAddr| self.heads.of(owner) + self.bodies.of(owner);
        let owner = self.heads.owners.keys().copied().max_by_key(taken)?;
        self.bodies.oldest(&owner).or_else(|| self.heads.oldest(&owner))
    }

    /// Evicts entries until the limits hold. In memory an entry on disk gives up its body only.
    fn make_room(&mut self) {
        while self.disk() > self.limits.disk.get() {
            let Some(id) = self.on_disk.victim() else { break };
            let Some(entry) = self.entries.get(&id) else { break };
            // The body in memory stays usable without its files.
            if entry.body.is_some() {
                self.outputs.push_back(FileOutput::Remove(id));
            }
            match entry.body.is_some() {
                true => self.handle_lost_files(id),
                false => self.remove(id),
            }
        }
        while self.memory() > self.limits.memory.get() {
            let Some(id) = self.victim() else { break };
            let Some(entry) = self.entries.get_mut(&id) else { break };
            if entry.on_disk && entry.body.take().is_some() {
                self.bodies.take(entry.owner, entry.mark, entry.length);
            } else {
                self.remove(id);
            }
        }
        debug_assert!(
            self.memory() <= self.limits.memory.get() && self.disk() <= self.limits.disk.get()
        );
    }
}

/// Entries of each owner in the order of use. The owner that takes the most is evicted first, so that one
/// client cannot displace the entries of others.
#[derive(Debug, Default)]
struct OwnerUsage {
    owners: BTreeMap<IpAddr, (u64, BTreeMap<u64, EntryId>)>,
    bytes: u64,
}

impl OwnerUsage {
    fn add(&mut self, owner: IpAddr, mark: u64, id: EntryId, bytes: u64) {
        let (total, entries) = self.owners.entry(owner).or_default();
        entries.insert(mark, id);
        *total += bytes;
        self.bytes += bytes;
    }

    fn take(&mut self, owner: IpAddr, mark: u64, bytes: u64) {
        let Some((total, entries)) = self.owners.get_mut(&owner) else { return };
        if entries.remove(&mark).is_none() {
            return;
        }
        *total -= bytes;
        self.bytes -= bytes;
        if entries.is_empty() {
            self.owners.remove(&owner);
        }
    }

    fn victim(&self) -> Option<EntryId> {
        let (_, entries) = self.owners.values().max_by_key(|(bytes, _)| *bytes)?;
        entries.values().next().copied()
    }

    /// Bytes counted for an owner.
    fn of(&self, owner: &IpAddr) -> u64 {
        self.owners.get(owner).map_or(0, |(bytes, _)| *bytes)
    }

    /// The least recently used entry of an owner.
    fn oldest(&self, owner: &IpAddr) -> Option<EntryId> {
        self.owners.get(owner)?.1.values().next().copied()
    }
}
