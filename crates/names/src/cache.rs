//! Cache of the hub's replies, bounded in number and bytes. When it is full, the client whose entries take
//! the most gives up its least recently used one, so that one client cannot displace the entries of others.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use units::{ByteCount, Instant};

use super::lifetime::ReplyLifetime;
use super::question::QuestionKey;

/// Memory of an entry beyond its key and reply, in bytes: the nodes of five trees.
const OVERHEAD: usize = 400;
/// Shortest time before its expiry at which an entry is prefetched: a few round trips.
const LEAST_LEAD: Duration = Duration::from_secs(2);
const MOST_LEAD: Duration = Duration::from_secs(60);

/// Limits of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Memory of all entries, with their overhead.
    pub bytes: ByteCount,
    /// Number of entries, whatever their size.
    pub entries: usize,
}

/// A cached reply.
#[derive(Debug, Clone)]
pub(super) struct CacheEntry {
    /// The reply in wire format, as the hub sent it.
    pub(super) reply: Box<[u8]>,
    pub(super) stored: Instant,
    pub(super) expires: Instant,
    /// `true` for an answer about the name, positive or negative; `false` for a failure.
    pub(super) is_answer: bool,
    /// Until then the reply is not asked for again, because the last attempt failed (RFC 8767 §5).
    pub(super) recheck: Instant,
    /// `true` if it was used since it arrived: only then is it prefetched.
    pub(super) used: bool,
    owner: IpAddr,
    /// Position in the order of use.
    mark: u64,
    /// Time of the prefetch; [`None`] if it is not worth one, or was taken by [`ReplyCache::take_due`].
    due: Option<Instant>,
}

impl CacheEntry {
    /// An entry that arrives now, counted for `owner`.
    pub(super) fn new(now: Instant, reply: &[u8], lifetime: &ReplyLifetime, owner: IpAddr) -> Self {
        let ReplyLifetime { fresh, is_answer } = *lifetime;
        let lead = (fresh / 10).clamp(LEAST_LEAD, MOST_LEAD);
        let due = (is_answer && fresh > 2 * lead).then(|| now + (fresh - lead));
        Self {
            reply: reply.into(),
            stored: now,
            expires: now + fresh,
            is_answer,
            recheck: now,
            used: false,
            owner,
            mark: 0,
            due,
        }
    }

    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        now < self.expires
    }

    pub(super) fn owner(&self) -> IpAddr {
        self.owner
    }
}

/// Usage of one client.
#[derive(Debug, Default)]
struct OwnerEntries {
    bytes: u64,
    /// Positions of its entries in the order of use.
    marks: BTreeSet<u64>,
}

#[derive(Debug)]
pub(super) struct ReplyCache {
    limits: CacheLimits,
    entries: BTreeMap<QuestionKey, CacheEntry>,
    /// Keys by position in the order of use.
    order: BTreeMap<u64, QuestionKey>,
    owners: BTreeMap<IpAddr, OwnerEntries>,
    /// Clients by the bytes that their entries take.
    largest: BTreeSet<(u64, IpAddr)>,
    /// Entries to prefetch, by time.
    dues: BTreeSet<(Instant, QuestionKey)>,
    next_mark: u64,
    bytes: u64,
}

impl ReplyCache {
    pub(super) fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            order: BTreeMap::new(),
            owners: BTreeMap::new(),
            largest: BTreeSet::new(),
            dues: BTreeSet::new(),
            next_mark: 0,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory of the entries, with their overhead.
    pub(super) fn bytes(&self) -> ByteCount {
        ByteCount::new(self.bytes)
    }

    /// Looks up an entry without marking it as used.
    pub(super) fn peek(&self, key: &QuestionKey) -> Option<&CacheEntry> {
        self.entries.get(key)
    }

    /// Looks up an entry and marks it as the most recently used.
    pub(super) fn touch(&mut self, key: &QuestionKey) -> Option<&mut CacheEntry> {
        let entry = self.entries.get_mut(key)?;
        let owner = self.owners.get_mut(&entry.owner)?;
        owner.marks.remove(&entry.mark);
        self.order.remove(&entry.mark);
        entry.mark = self.next_mark;
        self.next_mark += 1;
        owner.marks.insert(entry.mark);
        self.order.insert(entry.mark, key.clone());
        Some(entry)
    }

    /// Stores a reply in place of an earlier one. A reply that exceeds the limits by itself is dropped.
    pub(super) fn put(&mut self, key: &QuestionKey, mut entry: CacheEntry) {
        // Also if the new reply is too large to keep: the old one is outdated.
        self.remove(key);
        let bytes = size(key, &entry);
        if bytes > self.limits.bytes.get() || self.limits.entries == 0 {
            return;
        }
        while self.bytes + bytes > self.limits.bytes.get() || self.len() >= self.limits.entries {
            self.evict();
        }
        entry.mark = self.next_mark;
        self.next_mark += 1;
        self.bytes += bytes;
        self.grow(entry.owner, |owner| {
            owner.bytes += bytes;
            owner.marks.insert(entry.mark);
        });
        self.order.insert(entry.mark, key.clone());
        self.dues.extend(entry.due.map(|due| (due, key.clone())));
        self.entries.insert(key.clone(), entry);
    }

    pub(super) fn remove(&mut self, key: &QuestionKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        let bytes = size(key, &entry);
        self.bytes -= bytes;
        self.order.remove(&entry.mark);
        if let Some(due) = entry.due {
            self.dues.remove(&(due, key.clone()));
        }
        self.grow(entry.owner, |owner| {
            owner.bytes -= bytes;
            owner.marks.remove(&entry.mark);
        });
    }

    /// Time of the next prefetch.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// Takes an entry whose prefetch is due. Each is returned once.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<QuestionKey> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.dues.pop_first()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.due = None;
        }
        Some(key)
    }

    fn evict(&mut self) {
        let Some((_, largest)) = self.largest.last() else { return };
        let oldest = self.owners.get(largest).and_then(|owner| owner.marks.first());
        let Some(key) = oldest.and_then(|mark| self.order.get(mark)).cloned() else { return };
        self.remove(&key);
    }

    /// Changes the usage of an owner and keeps the indices consistent.
    fn grow(&mut self, of: IpAddr, change: impl FnOnce(&mut OwnerEntries)) {
        let owner = self.owners.entry(of).or_default();
        self.largest.remove(&(owner.bytes, of));
        change(owner);
        if owner.marks.is_empty() {
            debug_assert_eq!(owner.bytes, 0, "bytes without entries");
            self.owners.remove(&of);
        } else {
            self.largest.insert((owner.bytes, of));
        }
    }
}

fn size(key: &QuestionKey, entry: &CacheEntry) -> u64 {
    (4 * key.bytes() + entry.reply.len() + OVERHEAD) as u64
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng, SeedableRng};

    use super::*;

    fn key(number: u32) -> QuestionKey {
        let name = number.to_be_bytes().into();
        QuestionKey { name, kind: 1, dnssec_ok: false, checking_disabled: false }
    }

    fn client(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn entry(now: Instant, size: usize, owner: IpAddr) -> CacheEntry {
        let lifetime = ReplyLifetime { fresh: Duration::from_secs(300), is_answer: true };
        CacheEntry::new(now, &vec![0; size], &lifetime, owner)
    }

    fn cache(bytes: u64, entries: usize) -> ReplyCache {
        ReplyCache::new(CacheLimits { bytes: ByteCount::new(bytes), entries })
    }

    #[test]
    fn whoever_fills_the_cache_gives_way_to_others() {
        let mut cache = cache(100_000, 1000);
        cache.put(&key(0), entry(Instant::ZERO, 100, client(1)));
        for number in 1..2000 {
            cache.put(&key(number), entry(Instant::ZERO, 100, client(2)));
        }
        assert!(cache.peek(&key(0)).is_some(), "the other client's own");
        assert!(cache.peek(&key(1)).is_none() && cache.peek(&key(1999)).is_some());
    }

    #[test]
    fn what_is_used_stays_longest() {
        let mut cache = cache(1_000_000, 3);
        (0..3).for_each(|it| cache.put(&key(it), entry(Instant::ZERO, 100, client(1))));
        cache.touch(&key(0));
        cache.put(&key(3), entry(Instant::ZERO, 100, client(1)));
        let kept: Vec<_> = (0..4).filter(|it| cache.peek(&key(*it)).is_some()).collect();
        assert_eq!(kept, [0, 2, 3]);
    }

    #[test]
    fn bounds_and_accounts_hold_whatever_comes() {
        for seed in 0..50 {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let mut cache = cache(20_000, 30);
            for _ in 0..2000 {
                let [which, size, owner, action] = [60, 1500, 5, 4].map(|n| rng.next_u32() % n);
                match action {
                    0 => cache.remove(&key(which)),
                    1 => drop(cache.touch(&key(which))),
                    _ => {
                        let entry = entry(Instant::ZERO, size as usize, client(owner as u8));
                        cache.put(&key(which), entry);
                    }
                }
                let held: u64 = cache.entries.iter().map(|(key, it)| size_of(key, it)).sum();
                assert_eq!(cache.bytes, held, "seed {seed}");
                assert!(held <= 20_000 && cache.len() <= 30, "seed {seed}");
                assert_eq!(cache.order.len(), cache.len());
                assert_eq!(cache.largest.len(), cache.owners.len());
                assert!(cache.dues.len() <= cache.len());
            }
        }
    }

    fn size_of(key: &QuestionKey, entry: &CacheEntry) -> u64 {
        size(key, entry)
    }
}
