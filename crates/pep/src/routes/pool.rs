//! Addresses that a hub gives to terminals whose networks it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use slacp::PublicKey;

use crate::traffic::Prefix;

/// Terminals that are no longer permitted and whose addresses are remembered.
const MOST_FORMER: usize = 1_000;

/// The addresses of terminals. A terminal keeps its address while it is remembered, and mostly gets the same one
/// otherwise: the search for a free one begins at a place that its key determines.
#[derive(Debug, Clone)]
pub struct AddressPool {
    pool: Prefix,
    addresses: BTreeMap<PublicKey, Ipv4Addr>,
    taken: BTreeSet<Ipv4Addr>,
}

impl AddressPool {
    /// Creates the pool of an IPv4 prefix of at most 30 bits. What is `remembered` counts if it is in the prefix and
    /// no earlier terminal has it.
    pub fn new(pool: Prefix, remembered: impl IntoIterator<Item = (PublicKey, Ipv4Addr)>) -> Self {
        let mut all = Self { pool, addresses: BTreeMap::new(), taken: BTreeSet::new() };
        for (key, address) in remembered {
            if all.has(address) && !all.addresses.contains_key(&key) && all.taken.insert(address) {
                all.addresses.insert(key, address);
            }
        }
        all
    }

    /// The address of a terminal; `None` if none was free.
    pub fn address(&self, terminal: &PublicKey) -> Option<Ipv4Addr> {
        self.addresses.get(terminal).copied()
    }

    /// All addresses, of present and former terminals.
    pub fn addresses(&self) -> &BTreeMap<PublicKey, Ipv4Addr> {
        &self.addresses
    }

    /// Gives each of these terminals an address that is not `excluded`, at the cost of former ones if there are too
    /// few. Returns `true` if addresses have changed.
    pub fn assign(
        &mut self,
        terminals: &BTreeSet<PublicKey>,
        excluded: impl Fn(Ipv4Addr) -> bool,
    ) -> bool {
        let before = self.addresses.clone();
        self.retain(|_, address| !excluded(address));
        self.limit_former(terminals, MOST_FORMER);
        for terminal in terminals {
            if self.addresses.contains_key(terminal) {
                continue;
            }
            let mut free = self.find_free(terminal, &excluded);
            if free.is_none() {
                self.limit_former(terminals, 0);
                free = self.find_free(terminal, &excluded);
            }
            // None free: the pool is full of present terminals.
            let Some(address) = free else { break };
            self.taken.insert(address);
            self.addresses.insert(*terminal, address);
        }
        self.addresses != before
    }

    /// Forgets terminals that are not `present`, except `most` of them.
    fn limit_former(&mut self, present: &BTreeSet<PublicKey>, most: usize) {
        let mut left = most;
        self.retain(|terminal, _| {
            if present.contains(terminal) {
                return true;
            }
            let keeps = left > 0;
            left = left.saturating_sub(1);
            keeps
        });
    }

    fn retain(&mut self, mut keep: impl FnMut(&PublicKey, Ipv4Addr) -> bool) {
        self.addresses.retain(|terminal, address| keep(terminal, *address));
        self.taken = self.addresses.values().copied().collect();
    }

    fn find_free(
        &self,
        terminal: &PublicKey,
        excluded: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Ipv4Addr> {
        let count = self.count();
        let begin = terminal.0[..4].iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
        let places = (0..count).map(|step| (u64::from(begin) + u64::from(step)) % u64::from(count));
        let mut addresses = places.map(|place| self.at(place as u32));
        addresses.find(|address| !self.taken.contains(address) && !excluded(*address))
    }

    /// Number of addresses, without the first and the last one, which hosts of a subnet may take for its broadcast
    /// addresses.
    fn count(&self) -> u32 {
        u32::MAX.checked_shr(self.pool.length().into()).unwrap_or(0).saturating_sub(1).max(1)
    }

    fn at(&self, place: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first().wrapping_add(1).wrapping_add(place))
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        let offset = address.to_bits().wrapping_sub(self.first());
        (1..=self.count()).contains(&offset)
    }

    fn first(&self) -> u32 {
        match self.pool.address() {
            IpAddr::V4(first) => first.to_bits(),
            IpAddr::V6(_) => 0,
        }
    }
}

/// The first of these `routes` of a machine that leads to addresses of `wanted`. Default routes, whole or in halves
/// as some VPNs write them, do not count: they lead to what no other route leads to.
pub fn conflicting_route(
    wanted: Prefix,
    routes: impl IntoIterator<Item = Prefix>,
) -> Option<Prefix> {
    routes.into_iter().find(|route| route.length() > 1 && route.overlaps(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> PublicKey {
        PublicKey([seed; 32])
    }

    fn keys(seeds: std::ops::Range<u8>) -> BTreeSet<PublicKey> {
        seeds.map(key).collect()
    }

    fn pool(text: &str) -> AddressPool {
        AddressPool::new(text.parse().unwrap(), [])
    }

    fn address(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn terminals_get_addresses_of_their_own_and_keep_them() {
        let mut first = pool("10.213.0.0/16");
        assert!(first.assign(&keys(1..100), |_| false));
        let own: BTreeSet<Ipv4Addr> = first.addresses().values().copied().collect();
        assert_eq!(own.len(), 99);
        assert!(own.iter().all(|own| own.octets()[..2] == [10, 213]));
        assert!(!first.assign(&keys(1..100), |_| false), "nothing has changed");
        // Another process with what the first has stored, whatever terminals have come and gone.
        let stored = first.addresses().clone();
        let mut second = AddressPool::new("10.213.0.0/16".parse().unwrap(), stored);
        second.assign(&keys(50..120), |_| false);
        for seed in 1..100 {
            assert_eq!(second.address(&key(seed)), first.address(&key(seed)));
        }
    }

    #[test]
    fn without_memory_a_key_finds_the_same_place() {
        let [mut all, mut one] = [(); 2].map(|()| pool("10.213.0.0/16"));
        all.assign(&keys(1..20), |_| false);
        one.assign(&keys(7..8), |_| false);
        assert_eq!(all.address(&key(7)), one.address(&key(7)));
    }

    #[test]
    fn a_small_pool_has_no_subnet_and_broadcast_addresses_and_forgets_former_terminals() {
        let mut pool = pool("192.168.7.0/29");
        pool.assign(&keys(1..7), |_| false);
        let own: Vec<u8> = pool.taken.iter().map(|own| own.octets()[3]).collect();
        assert_eq!(own, [1, 2, 3, 4, 5, 6]);
        let before = pool.address(&key(2));
        assert!(pool.assign(&keys(2..8), |_| false));
        assert!(pool.address(&key(7)).is_some() && pool.address(&key(1)).is_none());
        assert_eq!(pool.address(&key(2)), before);
        pool.assign(&keys(2..20), |_| false);
        assert_eq!(pool.addresses().len(), 6, "the others get none");
    }

    #[test]
    fn the_smallest_pool_and_the_largest_work() {
        let mut smallest = pool("10.0.0.4/30");
        smallest.assign(&keys(1..9), |_| false);
        let own: Vec<Ipv4Addr> = smallest.taken.iter().copied().collect();
        assert_eq!(own, ["10.0.0.5", "10.0.0.6"].map(address));
        let mut largest = pool("10.0.0.0/8");
        largest.assign(&keys(1..9), |_| false);
        assert_eq!(largest.addresses().len(), 8);
    }

    #[test]
    fn addresses_of_networks_and_foreign_memories_are_not_used() {
        let foreign = [
            (key(1), address("10.0.0.1")),
            (key(2), address("192.168.7.0")),
            (key(3), address("192.168.7.7")),
            (key(4), address("192.168.7.2")),
            (key(5), address("192.168.7.2")),
        ];
        let mut pool = AddressPool::new("192.168.7.0/29".parse().unwrap(), foreign);
        assert_eq!(pool.addresses().len(), 1);
        assert_eq!(pool.address(&key(4)), Some(address("192.168.7.2")));
        pool.assign(&keys(1..7), |own| own.octets()[3] < 4);
        assert_eq!(pool.taken, ["192.168.7.4", "192.168.7.5", "192.168.7.6"].map(address).into());
    }

    #[test]
    fn former_terminals_are_remembered_in_bounded_number() {
        let remembered = (0..2_000_u32).map(|number| {
            let mut seed = [0; 32];
            seed[..4].copy_from_slice(&number.to_be_bytes());
            (PublicKey(seed), Ipv4Addr::from_bits(0x0ad5_0001 + number))
        });
        let mut pool = AddressPool::new("10.213.0.0/16".parse().unwrap(), remembered);
        pool.assign(&BTreeSet::new(), |_| false);
        assert_eq!(pool.addresses().len(), MOST_FORMER);
    }

    #[test]
    fn routes_to_the_pool_are_found_and_default_routes_are_not() {
        let conflict = |routes: &[&str]| {
            let routes = routes.iter().map(|route| route.parse().unwrap());
            let found = conflicting_route("10.213.0.0/16".parse().unwrap(), routes);
            found.map(|route| route.to_string())
        };
        let others = ["0.0.0.0/0", "0.0.0.0/1", "::/0", "10.212.0.0/16", "192.168.0.0/16"];
        assert_eq!(conflict(&others), None);
        for route in ["10.0.0.0/8", "10.213.0.0/16", "10.213.4.1/32"] {
            assert_eq!(conflict(&[&others[..], &[route]].concat()).as_deref(), Some(route));
        }
    }
}
