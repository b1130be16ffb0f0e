//! Placeholder addresses: a client gets one for a name at once, and the name crosses the hop in the message
//! that opens its connection.
//!
//! A name keeps its address for a time after the last use, so that a client that remembers the address
//! beyond its TTL still reaches the right host. Until then no other name gets the address. A client with
//! its share of the addresses gets no more, and no client does while all are taken: their questions wait
//! for real answers. A freed address goes to the back of the queue.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pep::traffic::{IpFamily, Prefix};
use slacp::HostName;
use units::Instant;

/// Most names with addresses at a time: about 8 MB.
const MOST_NAMES: u32 = 32_768;
/// One client may have this fraction of the names: a quarter.
const SHARE: u32 = 4;

/// Placeholder addresses, and how long they stay assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// At most one prefix of each IP version, not longer than /24 or /120. Key `pool`.
    pub prefixes: Vec<Prefix>,
    /// Time that a name keeps its address after the last use. Key `pool_time`, default 1 h.
    pub time: Duration,
}

impl PoolConfig {
    /// The prefix of an IP version.
    pub fn of(&self, version: IpFamily) -> Option<Prefix> {
        self.prefixes.iter().copied().find(|prefix| IpFamily::of(prefix.address()) == version)
    }
}

/// Assignments of placeholder addresses to names.
#[derive(Debug)]
pub struct AddressPool {
    config: PoolConfig,
    /// Number of usable addresses. An address is its prefix and a number from 1 to this.
    size: u32,
    /// The highest number assigned so far.
    highest: u32,
    /// Freed numbers, the most recently freed at the back.
    free: VecDeque<u32>,
    names: BTreeMap<Box<str>, u32>,
    assignments: BTreeMap<u32, PoolAssignment>,
    /// Numbers by time of the last use.
    order: BTreeSet<(Instant, u32)>,
    /// Number of names assigned for each client.
    clients: BTreeMap<IpAddr, u32>,
}

/// The assignment of a number.
#[derive(Debug)]
struct PoolAssignment {
    name: HostName,
    used: Instant,
    client: IpAddr,
}

impl AddressPool {
    /// Creates a pool without assignments.
    pub fn new(config: PoolConfig) -> Self {
        let hosts = |prefix: &Prefix| {
            let bits = if prefix.address().is_ipv4() { 32 } else { 128 } - prefix.length();
            // The first and last address of a subnet are reserved (RFC 1122 §3.2.1.3).
            1_u32.checked_shl(bits.into()).map_or(u32::MAX, |hosts| hosts.saturating_sub(2))
        };
        let size = config.prefixes.iter().map(hosts).min().unwrap_or(0).min(MOST_NAMES);
        Self {
            config,
            size,
            highest: 0,
            free: VecDeque::new(),
            names: BTreeMap::new(),
            assignments: BTreeMap::new(),
            order: BTreeSet::new(),
            clients: BTreeMap::new(),
        }
    }

    /// Number of names with addresses.
    pub fn len(&self) -> usize {
        self.assignments.len()
    }

    /// Returns `true` if no name has an address.
    pub fn is_empty(&self) -> bool {
        self.assignments.is_empty()
    }

    /// Returns `true` if the pool has addresses of this IP version.
    pub fn has(&self, version: IpFamily) -> bool {
        self.config.of(version).is_some()
    }

    /// Returns the number assigned to a name, or assigns one; [`None`] if all are taken or the client has
    /// its share.
    pub(super) fn number(&mut self, now: Instant, client: IpAddr, name: &HostName) -> Option<u32> {
        self.expire(now);
        if let Some(number) = self.names.get(name.as_str()).copied() {
            self.touch(now, number);
            return Some(number);
        }
        let number = self.allocate(client)?;
        self.names.insert(name.as_str().into(), number);
        self.assignments.insert(number, PoolAssignment { name: name.clone(), used: now, client });
        self.order.insert((now, number));
        *self.clients.entry(client).or_default() += 1;
        Some(number)
    }

    /// The address of an IP version with this number.
    pub(super) fn address(&self, version: IpFamily, number: u32) -> Option<IpAddr> {
        Some(match self.config.of(version)?.address() {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | number).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | u128::from(number)).into(),
        })
    }

    /// Returns the name that an address stands for, and marks it as used.
    pub fn name(&mut self, now: Instant, address: IpAddr) -> Option<HostName> {
        self.expire(now);
        let prefix =
            self.config.of(IpFamily::of(address)).filter(|prefix| prefix.contains(address))?;
        // The host bits of the prefix are 0, so XOR leaves the number.
        let number = match (address, prefix.address()) {
            (IpAddr::V4(address), IpAddr::V4(first)) => address.to_bits() ^ first.to_bits(),
            (IpAddr::V6(address), IpAddr::V6(first)) => {
                u32::try_from(address.to_bits() ^ first.to_bits()).ok()?
            }
            _ => return None,
        };
        self.touch(now, number);
        self.assignments.get(&number).map(|held| held.name.clone())
    }

    fn touch(&mut self, now: Instant, number: u32) {
        let Some(held) = self.assignments.get_mut(&number) else { return };
        self.order.remove(&(held.used, number));
        self.order.insert((now, number));
        held.used = now;
    }

    /// Chooses the number for a new name of this client: an unused one, or the one freed longest ago.
    fn allocate(&mut self, client: IpAddr) -> Option<u32> {
        let share = (self.size / SHARE).max(1);
        if self.clients.get(&client).is_some_and(|count| *count >= share) {
            return None;
        }
        if self.highest < self.size {
            self.highest += 1;
            return Some(self.highest);
        }
        self.free.pop_front()
    }

    fn expire(&mut self, now: Instant) {
        while let Some((used, number)) = self.order.first().copied()
            && now.saturating_since(used) >= self.config.time
        {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(held) = self.assignments.remove(&number) else { return };
        self.names.remove(held.name.as_str());
        self.order.remove(&(held.used, number));
        if let Some(count) = self.clients.get_mut(&held.client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&held.client);
            }
        }
        self.free.push_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(prefixes: &[&str]) -> AddressPool {
        let prefixes = prefixes.iter().map(|it| it.parse().unwrap()).collect();
        AddressPool::new(PoolConfig { prefixes, time: Duration::from_secs(60) })
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn name(number: u32) -> HostName {
        HostName::new(&format!("name-{number}.example")).unwrap()
    }

    fn client(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn a_name_has_one_address_of_each_version_and_leads_back() {
        let mut pool = pool(&["198.18.0.0/15", "fd00:53::/64"]);
        let number = pool.number(at(0), client(1), &name(1)).unwrap();
        assert_eq!(pool.number(at(1), client(2), &name(1)), Some(number));
        for (version, text) in [(IpFamily::V4, "198.18.0.1"), (IpFamily::V6, "fd00:53::1")] {
            let address = pool.address(version, number).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(pool.name(at(2), address), Some(name(1)));
        }
        for none in ["198.18.0.2", "198.20.0.1", "fd00:53::1:0:0:1", "fd00:54::1"] {
            assert_eq!(pool.name(at(2), none.parse().unwrap()), None, "{none}");
        }
    }

    #[test]
    fn a_name_keeps_its_address_for_a_time_after_the_last_use() {
        let mut pool = pool(&["198.18.0.0/15"]);
        let number = pool.number(at(0), client(1), &name(1)).unwrap();
        let address = pool.address(IpFamily::V4, number).unwrap();
        assert_eq!(pool.name(at(59), address), Some(name(1)));
        assert_eq!(pool.name(at(118), address), Some(name(1)));
        assert_eq!(pool.name(at(178), address), None);
        assert!(pool.is_empty() && pool.names.is_empty() && pool.clients.is_empty());
    }

    #[test]
    fn a_client_that_takes_all_leaves_others_theirs() {
        let mut pool = pool(&["198.18.0.0/24"]);
        let given: Vec<bool> = (0..1000)
            .map(|number| pool.number(at(1), client(1), &name(number)).is_some())
            .collect();
        assert!(given[..254 / 4].iter().all(|it| *it) && !given[254 / 4..].contains(&true));
        assert_eq!(pool.len(), 254 / 4);
        assert!(pool.number(at(1), client(2), &name(5000)).is_some());
        let held: Vec<u32> = pool.assignments.keys().copied().collect();
        assert!(held.iter().all(|number| (1..=254).contains(number)), "{held:?}");
        assert!(pool.number(at(61), client(1), &name(6000)).is_some(), "its names have expired");
    }

    /// However much the client asks for that was the first to ask for the name.
    #[test]
    fn a_client_cannot_take_an_address_from_another_that_uses_it() {
        let mut pool = pool(&["198.18.0.0/24"]);
        let shared = pool.number(at(0), client(1), &name(0)).unwrap();
        assert_eq!(pool.number(at(0), client(2), &name(0)), Some(shared));
        for number in 1..1000 {
            pool.number(at(1), client(1), &name(number));
        }
        let address = pool.address(IpFamily::V4, shared).unwrap();
        assert_eq!(pool.name(at(2), address), Some(name(0)));
        assert_eq!(pool.number(at(2), client(1), &name(0)), Some(shared), "it still has its own");
    }

    #[test]
    fn an_address_that_is_free_again_is_the_last_to_be_given() {
        // Six addresses, of which each client may have one.
        let mut pool = pool(&["198.18.0.0/29"]);
        let mut give = |s, it: u8| pool.number(at(s), client(it), &name(it.into()));
        let first = [0, 60, 61, 62, 63, 64].into_iter().zip(1..).map(|(at, it)| give(at, it));
        let first: Vec<_> = first.collect();
        assert_eq!(first, (1..=6).map(Some).collect::<Vec<_>>(), "none twice");
        let again = [64, 119, 120, 123, 123].into_iter().zip(7..).map(|(at, it)| give(at, it));
        let again: Vec<_> = again.collect();
        assert_eq!(again, [Some(1), None, Some(2), Some(3), Some(4)], "the longest unused first");
    }

    #[test]
    fn without_a_free_address_there_is_none() {
        let mut pool = pool(&["198.18.0.0/24"]);
        for it in 0..5 {
            for number in 0..60 {
                pool.number(at(1), client(it), &name(u32::from(it) * 100 + number));
            }
        }
        assert_eq!(pool.len(), 254);
        assert_eq!(pool.number(at(2), client(9), &name(999)), None);
        assert!(pool.number(at(62), client(9), &name(999)).is_some());
    }
}
