//! Memories of paths, kept between sessions (`docs/rate.md`, Start).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::IpAddr;

use units::{BitRate, Instant};

use super::constants::SLOWEST;
use crate::PublicKey;
use crate::ids::networks::network;

/// Maximum age of a memory.
const MEMORY_AGE: Duration = Duration::from_secs(86_400);
/// Maximum number of paths remembered; beyond it the oldest memory is dropped.
const PATHS: usize = 4096;

/// Identifies a path between sessions: whose session, and the network of the peer's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey {
    peer: PublicKey,
    network: IpAddr,
}

impl PathKey {
    /// The path to a peer at an address. Addresses in the same /24 (IPv4) or /48 (IPv6) are the
    /// same path.
    pub fn new(peer: PublicKey, address: IpAddr) -> Self {
        Self { peer, network: network(address.to_canonical()) }
    }

    /// The peer whose sessions use the path.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// The first address of the network. [`Self::new`] with it returns the same path.
    pub fn network(&self) -> IpAddr {
        self.network
    }
}

/// A path's rate and round-trip time, remembered between sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMemory {
    /// The rate that a session achieved.
    pub capacity: BitRate,
    /// Minimum round-trip time that the session has seen on the path.
    pub min_rtt: Duration,
    /// Time since the capacity was measured. A memory is not used after a day.
    pub age: Duration,
}

impl PathMemory {
    /// Returns `true` if a path with this RTT may be the remembered one (RFC 9959 §4.2).
    pub(super) fn fits(&self, rtt: Duration) -> bool {
        let longest = self.min_rtt * 2 + Duration::from_millis(100);
        rtt >= self.min_rtt / 2 && rtt <= longest
    }

    fn is_of_use(&self) -> bool {
        let round_trips = Duration::from_micros(10)..Duration::from_secs(100);
        self.age <= MEMORY_AGE
            && self.capacity.bits_per_second() >= SLOWEST as u64
            && round_trips.contains(&self.min_rtt)
    }
}

/// The memories of an endpoint. Those older than a day, or with impossible values, are ignored.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    paths: BTreeMap<PathKey, DatedMemory>,
}

/// A memory, and the time at which its age was correct.
#[derive(Debug, Clone, Copy)]
struct DatedMemory {
    memory: PathMemory,
    since: Instant,
}

impl DatedMemory {
    /// The memory with its age as of `now`.
    fn aged(&self, now: Instant) -> PathMemory {
        let passed = now.saturating_since(self.since);
        PathMemory { age: self.memory.age.saturating_add(passed), ..self.memory }
    }
}

impl Memories {
    /// Remembers a path, unless something newer is known of it.
    pub(crate) fn enter(&mut self, now: Instant, path: PathKey, memory: PathMemory) {
        let newer = self.get(now, &path).is_some_and(|known| known.age < memory.age);
        if newer || !memory.is_of_use() {
            return;
        }
        self.paths.insert(path, DatedMemory { memory, since: now });
        if self.paths.len() > PATHS {
            let oldest = self.all(now).max_by_key(|(_, memory)| memory.age);
            oldest.map(|(path, _)| path).inspect(|path| _ = self.paths.remove(path));
        }
    }

    pub(crate) fn get(&self, now: Instant, path: &PathKey) -> Option<PathMemory> {
        self.paths.get(path).map(|known| known.aged(now)).filter(PathMemory::is_of_use)
    }

    /// All memories, sorted by key.
    pub(crate) fn all(&self, now: Instant) -> impl Iterator<Item = (PathKey, PathMemory)> {
        self.paths.iter().map(move |(path, known)| (*path, known.aged(now)))
    }

    /// Those of [`Self::all`] that can be used.
    pub(crate) fn useful(&self, now: Instant) -> impl Iterator<Item = (PathKey, PathMemory)> {
        self.all(now).filter(|(_, memory)| memory.is_of_use())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn path(n: u16) -> PathKey {
        let [high, low] = n.to_be_bytes();
        PathKey::new(PublicKey([1; 32]), IpAddr::from([10, high, low, 7]))
    }

    fn memory(mbit: u64, age: u64) -> PathMemory {
        let min_rtt = Duration::from_millis(600);
        PathMemory { capacity: BitRate::from_mbit(mbit), min_rtt, age: Duration::from_secs(age) }
    }

    #[test]
    fn a_path_is_a_peer_and_a_network() {
        let key = |ip: &str| PathKey::new(PublicKey([1; 32]), ip.parse().unwrap());
        assert_eq!(key("192.0.2.1"), key("192.0.2.200"));
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.200"));
        assert_ne!(key("192.0.2.1"), key("192.0.3.1"));
        assert_eq!(key("2001:db8:1:2::3"), key("2001:db8:1:ffff::"));
        assert_ne!(key("2001:db8:1::"), key("2001:db8:2::"));
        assert_ne!(key("::1"), PathKey::new(PublicKey([2; 32]), "::1".parse().unwrap()));
        let known = key("192.0.2.77");
        assert_eq!(PathKey::new(known.peer(), known.network()), known);
    }

    #[test]
    fn memories_age_and_newer_ones_win() {
        let mut memories = Memories::default();
        memories.enter(at(0), path(1), memory(50, 100));
        memories.enter(at(10), path(1), memory(5, 200));
        assert_eq!(memories.get(at(20), &path(1)), Some(memory(50, 120)));
        memories.enter(at(10), path(1), memory(5, 20));
        assert_eq!(memories.get(at(20), &path(1)), Some(memory(5, 30)));
        assert_eq!(memories.get(at(86_400), &path(1)), None);
        memories.enter(at(86_400), path(1), memory(7, 300));
        assert_eq!(
            memories.get(at(86_400), &path(1)),
            Some(memory(7, 300)),
            "a dead one gives way"
        );
    }

    #[test]
    fn what_no_path_can_be_is_not_remembered() {
        let mut memories = Memories::default();
        let none = PathMemory { capacity: BitRate::from_bits_per_second(0), ..memory(1, 0) };
        let quick = PathMemory { min_rtt: Duration::ZERO, ..memory(1, 0) };
        let eternal = PathMemory { min_rtt: Duration::MAX, ..memory(1, 0) };
        let old = PathMemory { age: Duration::MAX, ..memory(1, 0) };
        for bad in [none, quick, eternal, old] {
            memories.enter(at(1), path(1), bad);
        }
        assert_eq!(memories.all(at(1)).count(), 0);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut memories = Memories::default();
        for n in 0..=PATHS as u16 {
            memories.enter(at(1), path(n), memory(50, if n == 99 { 1000 } else { 5 }));
        }
        assert_eq!(memories.all(at(1)).count(), PATHS);
        assert_eq!(memories.get(at(1), &path(99)), None);
    }
}
