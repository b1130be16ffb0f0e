//! What is stored, and what gives way when memory or disk are full.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use units::ByteCount;

use super::head::RequestHead;
use super::policy::Stored;

/// What an entry takes beyond its head and body, in bytes.
const OVERHEAD: usize = 400;
/// What files take on a disk, in bytes: a multiple of this.
const BLOCK: u64 = 4096;
/// The most responses with one key, which different requests select.
const MOST_VARIANTS: usize = 16;

/// What a response is stored for. The destination is that of the client's connection: nobody can store
/// an answer of a server of theirs for a host that is somebody else's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Address or name, and port, of the server.
    pub destination: String,
    /// The `Host` field, in lower case.
    pub host: String,
    /// The target of the request.
    pub target: String,
}

impl Key {
    fn size(&self) -> usize {
        self.destination.len() + self.host.len() + self.target.len()
    }
}

/// A response in the store; also names its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(pub u64);

/// Bounds of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// The most memory.
    pub memory: ByteCount,
    /// The most bytes of files; zero without a disk.
    pub disk: ByteCount,
    /// The longest body that is stored.
    pub object: ByteCount,
}

/// What the store wants done with files, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOutput<B> {
    /// Write the head of an entry, with its body unless that is there already.
    Write(EntryId, Option<B>),
    /// Remove an entry's files.
    Remove(EntryId),
}

#[derive(Debug)]
struct Entry<B> {
    key: Key,
    stored: Stored,
    /// Of the body, in bytes.
    length: u64,
    owner: IpAddr,
    /// Its place in the order of use.
    mark: u64,
    /// The body, if it is in memory.
    body: Option<B>,
    on_disk: bool,
    /// Whether it is being validated while it is used.
    revalidating: bool,
}

impl<B> Entry<B> {
    fn head_size(&self) -> u64 {
        (OVERHEAD + self.key.size() + self.stored.size()) as u64
    }

    /// What its two files take.
    fn file_size(&self) -> u64 {
        self.head_size().next_multiple_of(BLOCK) + self.length.next_multiple_of(BLOCK)
    }
}

/// Responses by key. Bodies (`B`) are in memory, on disk, or both.
#[derive(Debug)]
pub struct Store<B> {
    limits: StoreLimits,
    entries: BTreeMap<EntryId, Entry<B>>,
    by_key: BTreeMap<Key, Vec<EntryId>>,
    /// The heads of all entries, bodies in memory, and files.
    heads: Queue,
    bodies: Queue,
    on_disk: Queue,
    next: u64,
    clock: u64,
    outputs: VecDeque<FileOutput<B>>,
}

impl<B: Clone> Store<B> {
    /// An empty store.
    pub fn new(limits: StoreLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            by_key: BTreeMap::new(),
            heads: Queue::default(),
            bodies: Queue::default(),
            on_disk: Queue::default(),
            next: 0,
            clock: 0,
            outputs: VecDeque::new(),
        }
    }

    /// The longest body that fits: no more than half of memory or disk, so that nothing empties the store.
    pub fn longest(&self) -> u64 {
        let room = self.limits.memory.get().max(self.limits.disk.get()) / 2;
        self.limits.object.get().min(room)
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        self.heads.bytes + self.bodies.bytes
    }

    /// Bytes of files.
    pub fn disk(&self) -> u64 {
        self.on_disk.bytes
    }

    /// Responses.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The next wish about files.
    pub fn poll_output(&mut self) -> Option<FileOutput<B>> {
        self.outputs.pop_front()
    }

    /// The response that a request selects: of several, the latest. It counts as used.
    pub fn select(&mut self, key: &Key, request: &RequestHead) -> Option<EntryId> {
        let ids = self.by_key.get(key)?;
        let of = |id: &EntryId| &self.entries[id].stored;
        let selected = ids.iter().filter(|id| of(id).is_selected_by(request));
        let id = *selected.max_by_key(|id| (of(id).received, **id))?;
        self.touch(id);
        Some(id)
    }

    /// The response, its body if in memory, and the length of that.
    pub fn get(&self, id: EntryId) -> Option<(&Stored, Option<&B>, u64)> {
        let entry = self.entries.get(&id)?;
        Some((&entry.stored, entry.body.as_ref(), entry.length))
    }

    /// The key of a response, and the client that asked.
    pub fn origin(&self, id: EntryId) -> Option<(&Key, IpAddr)> {
        let entry = self.entries.get(&id)?;
        Some((&entry.key, entry.owner))
    }

    /// Leaves the names up to this one to files that are there already.
    pub fn reserve(&mut self, last: EntryId) {
        self.next = self.next.max(last.0.saturating_add(1));
    }

    /// Stores a response in place of those that the same request selects. `owner` is the client that
    /// asked. Returns whether it fits.
    pub fn insert(
        &mut self,
        key: Key,
        request: &RequestHead,
        stored: Stored,
        (body, length): (B, u64),
        owner: IpAddr,
    ) -> bool {
        let old = self.by_key.get(&key).map_or(&[][..], Vec::as_slice);
        let replaced = old.iter().filter(|id| self.entries[id].stored.is_selected_by(request));
        let mut replaced: Vec<EntryId> = replaced.copied().collect();
        if let Some(excess) = (old.len() + 1 - replaced.len()).checked_sub(MOST_VARIANTS) {
            let others = old.iter().filter(|id| !replaced.contains(id)).take(excess);
            let others: Vec<EntryId> = others.copied().collect();
            replaced.extend(others);
        }
        replaced.into_iter().for_each(|id| self.remove(id));
        if length > self.longest()
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
        self.admit(id, key, stored, (Some(body), length), (owner, on_disk));
        self.make_room();
        self.entries.contains_key(&id)
    }

    /// Takes back a response whose files were found at the start. Returns whether it is welcome: if not,
    /// they are to be removed.
    pub fn restore(
        &mut self,
        id: EntryId,
        key: Key,
        stored: Stored,
        length: u64,
        owner: IpAddr,
    ) -> bool {
        let variants = self.by_key.get(&key).map_or(0, Vec::len);
        if self.entries.contains_key(&id) || length > self.longest() || variants >= MOST_VARIANTS {
            return false;
        }
        self.reserve(id);
        self.admit(id, key, stored, (None, length), (owner, true));
        self.make_room();
        self.entries.contains_key(&id)
    }

    fn admit(
        &mut self,
        id: EntryId,
        key: Key,
        stored: Stored,
        (body, length): (Option<B>, u64),
        (owner, on_disk): (IpAddr, bool),
    ) {
        self.by_key.entry(key.clone()).or_default().push(id);
        self.clock += 1;
        let mark = self.clock;
        let entry = Entry { key, stored, length, owner, mark, body, on_disk, revalidating: false };
        self.weigh(id, &entry);
        self.entries.insert(id, entry);
    }

    /// Counts an entry for its owner.
    fn weigh(&mut self, id: EntryId, entry: &Entry<B>) {
        let (owner, mark) = (entry.owner, entry.mark);
        self.heads.add(owner, mark, id, entry.head_size());
        if entry.body.is_some() {
            self.bodies.add(owner, mark, id, entry.length);
        }
        if entry.on_disk {
            self.on_disk.add(owner, mark, id, entry.file_size());
        }
    }

    /// The opposite.
    fn unweigh(&mut self, entry: &Entry<B>) {
        let (owner, mark) = (entry.owner, entry.mark);
        self.heads.take(owner, mark, entry.head_size());
        if entry.body.is_some() {
            self.bodies.take(owner, mark, entry.length);
        }
        if entry.on_disk {
            self.on_disk.take(owner, mark, entry.file_size());
        }
    }

    /// Sets whether an entry is being validated; returns whether it was.
    pub fn set_revalidating(&mut self, id: EntryId, revalidating: bool) -> bool {
        let entry = self.entries.get_mut(&id);
        entry.is_some_and(|entry| std::mem::replace(&mut entry.revalidating, revalidating))
    }

    /// Changes the head of a response.
    pub fn update(&mut self, id: EntryId, change: impl FnOnce(&mut Stored)) {
        let Some(mut entry) = self.take(id) else { return };
        change(&mut entry.stored);
        let Entry { key, stored, length, owner, body, on_disk, .. } = entry;
        if on_disk {
            self.outputs.push_back(FileOutput::Write(id, None));
        }
        self.admit(id, key, stored, (body, length), (owner, on_disk));
        self.make_room();
    }

    /// A body has been read from its file: it is in memory from now on.
    pub fn loaded(&mut self, id: EntryId, body: B) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.body.is_none()) else {
            return;
        };
        entry.body = Some(body);
        self.bodies.add(entry.owner, entry.mark, id, entry.length);
        self.make_room();
    }

    /// The files of a response could not be written or read.
    pub fn lost(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.on_disk) else { return };
        entry.on_disk = false;
        self.on_disk.take(entry.owner, entry.mark, entry.file_size());
        if entry.body.is_none() {
            self.remove(id);
        }
    }

    /// Removes all responses with a key (RFC 9111 §4.4).
    pub fn invalidate(&mut self, key: &Key) {
        let ids = self.by_key.get(key).cloned().unwrap_or_default();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Removes a response.
    pub fn remove(&mut self, id: EntryId) {
        if self.take(id).is_some_and(|entry| entry.on_disk) {
            self.outputs.push_back(FileOutput::Remove(id));
        }
    }

    fn take(&mut self, id: EntryId) -> Option<Entry<B>> {
        let entry = self.entries.remove(&id)?;
        self.unweigh(&entry);
        if let Some(ids) = self.by_key.get_mut(&entry.key) {
            ids.retain(|it| *it != id);
            if ids.is_empty() {
                self.by_key.remove(&entry.key);
            }
        }
        Some(entry)
    }

    fn touch(&mut self, id: EntryId) {
        let Some(mut entry) = self.entries.remove(&id) else { return };
        self.unweigh(&entry);
        self.clock += 1;
        entry.mark = self.clock;
        self.weigh(id, &entry);
        self.entries.insert(id, entry);
    }

    /// What gives way in memory: of the owner whose heads and bodies take the most, the oldest body, or
    /// the oldest head if there are none.
    fn victim(&self) -> Option<EntryId> {
        let taken = |owner: &IpAddr| self.heads.of(owner) + self.bodies.of(owner);
        let owner = self.heads.owners.keys().copied().max_by_key(taken)?;
        self.bodies.oldest(&owner).or_else(|| self.heads.oldest(&owner))
    }

    /// Lets go of what is too much. What is on disk needs no memory but its head.
    fn make_room(&mut self) {
        while self.disk() > self.limits.disk.get() {
            let Some(id) = self.on_disk.victim() else { break };
            let Some(entry) = self.entries.get(&id) else { break };
            if entry.body.is_some() {
                self.outputs.push_back(FileOutput::Remove(id));
            }
            match entry.body.is_some() {
                true => self.lost(id),
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

/// Entries in the order of their use, of each owner. The owner whose entries take the most gives one up:
/// nobody can fill the store for others.
#[derive(Debug, Default)]
struct Queue {
    owners: BTreeMap<IpAddr, (u64, BTreeMap<u64, EntryId>)>,
    bytes: u64,
}

impl Queue {
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

    /// The bytes of an owner.
    fn of(&self, owner: &IpAddr) -> u64 {
        self.owners.get(owner).map_or(0, |(bytes, _)| *bytes)
    }

    /// The entry of an owner that was not used for the longest time.
    fn oldest(&self, owner: &IpAddr) -> Option<EntryId> {
        self.owners.get(owner)?.1.values().next().copied()
    }
}
