//! Map from address prefixes to values, for a hub that finds the terminal of an address among ten thousand.

use core::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::prefix::Prefix;

/// A map from prefixes to values. A search costs O(log n) for each prefix length in use; networks of
/// terminals have few different lengths.
#[derive(Debug, Clone)]
pub struct PrefixMap<V> {
    /// By length, the longest first, then by first address.
    lengths: BTreeMap<Reverse<u8>, BTreeMap<IpAddr, V>>,
}

impl<V> Default for PrefixMap<V> {
    fn default() -> Self {
        Self { lengths: BTreeMap::new() }
    }
}

impl<V> PrefixMap<V> {
    /// The value of exactly this prefix; inserts a default value if it has none.
    pub fn entry(&mut self, prefix: Prefix) -> &mut V
    where
        V: Default,
    {
        let same_length = self.lengths.entry(Reverse(prefix.length())).or_default();
        same_length.entry(prefix.address()).or_default()
    }

    /// Sets the value of exactly this prefix; returns the previous one.
    pub fn insert(&mut self, prefix: Prefix, value: V) -> Option<V> {
        let same_length = self.lengths.entry(Reverse(prefix.length())).or_default();
        same_length.insert(prefix.address(), value)
    }

    /// Removes exactly this prefix; returns its value.
    pub fn remove(&mut self, prefix: Prefix) -> Option<V> {
        let same_length = self.lengths.get_mut(&Reverse(prefix.length()))?;
        let removed = same_length.remove(&prefix.address());
        if same_length.is_empty() {
            self.lengths.remove(&Reverse(prefix.length()));
        }
        removed
    }

    /// The values of all prefixes that contain `address`, the longest prefix first.
    pub fn containing(&self, address: IpAddr) -> impl Iterator<Item = &V> {
        self.lengths.iter().filter_map(move |(Reverse(length), same_length)| {
            same_length.get(&Prefix::around(address, *length)?.address())
        })
    }

    /// A prefix that has an address in common with `prefix`, and its value.
    pub fn overlapping(&self, prefix: Prefix) -> Option<(Prefix, &V)> {
        self.lengths.iter().find_map(|(Reverse(length), same_length)| {
            let (address, value) = if *length <= prefix.length() {
                same_length.get_key_value(&Prefix::around(prefix.address(), *length)?.address())?
            } else {
                // The first network at or after the prefix is the first that can lie inside it.
                let next = same_length.range(prefix.address()..).next();
                next.filter(|(address, _)| prefix.contains(**address))?
            };
            Some((Prefix::around(*address, *length)?, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// Few bits, so that prefixes often overlap.
    fn prefixes() -> impl Strategy<Value = Prefix> {
        let v4 = (0u32..64, 24u8..=32).prop_map(|(bits, length)| {
            Prefix::around(Ipv4Addr::from_bits(bits << 2).into(), length).unwrap()
        });
        let v6 = (0u128..64, 120u8..=128).prop_map(|(bits, length)| {
            Prefix::around(Ipv6Addr::from_bits(bits << 2).into(), length).unwrap()
        });
        prop_oneof![v4, v6, Just(Prefix::ALL_V4)]
    }

    proptest! {
        #[test]
        fn finds_what_asking_every_prefix_finds(
            known in prop::collection::vec(prefixes(), 0..40),
            gone in prop::collection::vec(prefixes(), 0..10),
            asked in prefixes(),
        ) {
            let mut map = PrefixMap::default();
            let mut list: Vec<Prefix> = Vec::new();
            for prefix in known {
                if map.insert(prefix, prefix).is_none() {
                    list.push(prefix);
                }
            }
            for prefix in gone {
                prop_assert_eq!(map.remove(prefix).is_some(), list.contains(&prefix));
                list.retain(|other| *other != prefix);
            }
            let found: Vec<Prefix> = map.containing(asked.address()).copied().collect();
            list.sort_by_key(|prefix| Reverse(prefix.length()));
            list.retain(|prefix| prefix.overlaps(asked));
            let overlapping = map.overlapping(asked);
            prop_assert_eq!(overlapping.is_some(), !list.is_empty());
            prop_assert!(overlapping.is_none_or(|(prefix, value)| prefix == *value && list.contains(value)));
            list.retain(|prefix| prefix.contains(asked.address()));
            prop_assert_eq!(found, list);
        }
    }
}
