//! Addresses that stand for names: a client gets one at once, and the name crosses the hop with the
//! opening of its connection to it.
//!
//! Name and address stay together for a time after the last use, so that a client that keeps the
//! address longer than its TTL says still gets there. When all addresses are taken, the client with
//! the most gives up the one that it has not used for longest, if it asks for another; others get
//! none, and wait for the real answer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use slacp::HostName;
use units::Instant;

use crate::traffic::{Prefix, Version};

/// The most names that have addresses at a time: about 8 MB.
const MOST_NAMES: u32 = 32_768;
/// The share of the names that one client may have.
const SHARE: u32 = 4;

/// Which addresses stand for names, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// At most one prefix of each version, not longer than /24 or /120. Key `pool`.
    pub prefixes: Vec<Prefix>,
    /// How long a name keeps its address after the last use. Key `pool_time`, default 1 h.
    pub time: Duration,
}

impl PoolConfig {
    /// The prefix of a version.
    pub fn of(&self, version: Version) -> Option<Prefix> {
        self.prefixes.iter().copied().find(|it| Version::of(it.address()) == version)
    }
}

/// The addresses of names.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    /// Numbers that may be used, from 1 on: the host parts of the addresses.
    size: u32,
    /// The highest number used so far.
    highest: u32,
    free: Vec<u32>,
    names: BTreeMap<Box<str>, u32>,
    places: BTreeMap<u32, Held>,
    /// Numbers in the order of their use.
    order: BTreeSet<(Instant, u32)>,
    clients: BTreeMap<IpAddr, BTreeSet<(Instant, u32)>>,
}

/// A name that has an address.
#[derive(Debug)]
struct Held {
    name: HostName,
    used: Instant,
    client: IpAddr,
}

impl Pool {
    /// A pool of which no address is used yet.
    pub fn new(config: PoolConfig) -> Self {
        let hosts = |prefix: &Prefix| {
            let bits = if prefix.address().is_ipv4() { 32 } else { 128 } - prefix.length();
            // Without the first and the last, which have meanings of their own (RFC 1122 §3.2.1.3).
            1_u32.checked_shl(bits.into()).map_or(u32::MAX, |hosts| hosts.saturating_sub(2))
        };
        let size = config.prefixes.iter().map(hosts).min().unwrap_or(0).min(MOST_NAMES);
        Self {
            config,
            size,
            highest: 0,
            free: Vec::new(),
            names: BTreeMap::new(),
            places: BTreeMap::new(),
            order: BTreeSet::new(),
            clients: BTreeMap::new(),
        }
    }

    /// Names that have addresses.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no name has an address.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether names have addresses of this version.
    pub fn has(&self, version: Version) -> bool {
        self.config.of(version).is_some()
    }

    /// The number of a name's addresses; [`None`] if all are taken.
    pub(super) fn number(&mut self, now: Instant, client: IpAddr, name: &HostName) -> Option<u32> {
        self.expire(now);
        if let Some(number) = self.names.get(name.as_str()).copied() {
            self.touch(now, number);
            return Some(number);
        }
        let number = self.take(client)?;
        self.names.insert(name.as_str().into(), number);
        self.places.insert(number, Held { name: name.clone(), used: now, client });
        self.order.insert((now, number));
        self.clients.entry(client).or_default().insert((now, number));
        Some(number)
    }

    /// The address with this number.
    pub(super) fn address(&self, version: Version, number: u32) -> Option<IpAddr> {
        Some(match self.config.of(version)?.address() {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | number).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | u128::from(number)).into(),
        })
    }

    /// The name that an address stands for, which this uses.
    pub fn name(&mut self, now: Instant, address: IpAddr) -> Option<HostName> {
        self.expire(now);
        let prefix = self.config.of(Version::of(address)).filter(|it| it.contains(address))?;
        let number = match (address, prefix.address()) {
            (IpAddr::V4(it), IpAddr::V4(first)) => it.to_bits() ^ first.to_bits(),
            (IpAddr::V6(it), IpAddr::V6(first)) => {
                u32::try_from(it.to_bits() ^ first.to_bits()).ok()?
            }
            _ => return None,
        };
        self.touch(now, number);
        self.places.get(&number).map(|held| held.name.clone())
    }

    fn touch(&mut self, now: Instant, number: u32) {
        let Some(held) = self.places.get_mut(&number) else { return };
        let before = (held.used, number);
        held.used = now;
        self.order.remove(&before);
        self.order.insert((now, number));
        if let Some(of_client) = self.clients.get_mut(&held.client) {
            of_client.remove(&before);
            of_client.insert((now, number));
        }
    }

    /// A number for another name of this client.
    fn take(&mut self, client: IpAddr) -> Option<u32> {
        let of_client = self.clients.get(&client);
        let share = (self.size / SHARE).max(1) as usize;
        if of_client.is_some_and(|it| it.len() >= share) {
            let oldest = of_client.and_then(|it| it.first()).map(|(_, number)| *number)?;
            self.remove(oldest);
        }
        self.free.pop().or_else(|| {
            let unused = (self.highest < self.size).then_some(self.highest + 1)?;
            self.highest = unused;
            Some(unused)
        })
    }

    fn expire(&mut self, now: Instant) {
        while let Some((used, number)) = self.order.first().copied()
            && now.saturating_since(used) >= self.config.time
        {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(held) = self.places.remove(&number) else { return };
        self.names.remove(held.name.as_str());
        self.order.remove(&(held.used, number));
        if let Some(of_client) = self.clients.get_mut(&held.client) {
            of_client.remove(&(held.used, number));
            if of_client.is_empty() {
                self.clients.remove(&held.client);
            }
        }
        self.free.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(prefixes: &[&str]) -> Pool {
        let prefixes = prefixes.iter().map(|it| it.parse().unwrap()).collect();
        Pool::new(PoolConfig { prefixes, time: Duration::from_secs(60) })
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
        for (version, text) in [(Version::V4, "198.18.0.1"), (Version::V6, "fd00:53::1")] {
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
        let address = pool.address(Version::V4, number).unwrap();
        assert_eq!(pool.name(at(59), address), Some(name(1)));
        assert_eq!(pool.name(at(118), address), Some(name(1)));
        assert_eq!(pool.name(at(178), address), None);
        assert!(pool.is_empty() && pool.names.is_empty() && pool.clients.is_empty());
    }

    #[test]
    fn a_client_that_takes_all_leaves_others_theirs() {
        let mut pool = pool(&["198.18.0.0/24"]);
        for number in 0..1000 {
            assert!(pool.number(at(1), client(1), &name(number)).is_some());
        }
        assert_eq!(pool.len(), 254 / 4);
        assert!(pool.number(at(1), client(2), &name(5000)).is_some());
        let held: Vec<u32> = pool.places.keys().copied().collect();
        assert!(held.iter().all(|number| (1..=254).contains(number)), "{held:?}");
        assert!(pool.names.contains_key("name-999.example"));
        assert!(!pool.names.contains_key("name-0.example"));
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
