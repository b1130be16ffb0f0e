//! Places for clients' connections with questions: the number is limited, and each client's share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::proxy::client_network;

/// TCP connections of clients at once, also within TLS.
pub(super) const MOST_CONNECTIONS: usize = 1024;
/// The share of them that one client may have: an eighth.
const SHARE: usize = MOST_CONNECTIONS / 8;

/// Which places are taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of_clients: BTreeMap<IpAddr, usize>,
}

/// A place of a client, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    client: IpAddr,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().expect("nobody panics while holding the places")
    }

    /// A place for a client at this address; [`None`] if all are taken, or its share.
    pub(super) fn take(&self, client: IpAddr) -> Option<Place> {
        let client = client_network(client);
        let mut taken = self.lock();
        let of_client = taken.of_clients.get(&client).copied().unwrap_or(0);
        if taken.all >= MOST_CONNECTIONS || of_client >= SHARE {
            return None;
        }
        taken.all += 1;
        taken.of_clients.insert(client, of_client + 1);
        Some(Place { places: self.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        if let Some(count) = taken.of_clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.of_clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Places {
        pub(in crate::names) fn are_free(&self) -> bool {
            let taken = self.lock();
            taken.all == 0 && taken.of_clients.is_empty()
        }
    }

    /// As many places as a client at this address gets.
    fn fill(places: &Places, client: &str) -> Vec<Place> {
        let client = client.parse().unwrap();
        std::iter::from_fn(|| places.take(client)).collect()
    }

    #[test]
    fn a_client_that_takes_all_places_leaves_others_theirs() {
        let places = Places::default();
        let held = fill(&places, "10.0.0.1");
        assert_eq!(held.len(), 128);
        assert!(fill(&places, "::ffff:10.0.0.1").is_empty(), "the same client");
        // A client chooses its addresses within its network.
        let by_ipv6 = fill(&places, "2001:db8::1");
        assert_eq!(by_ipv6.len(), 128);
        assert!(fill(&places, "2001:db8::2").is_empty(), "the same client");
        assert_eq!(fill(&places, "10.0.0.2").len(), 128);
        drop((held, by_ipv6));
        assert!(places.are_free());
    }

    #[test]
    fn places_are_bounded_and_those_of_connections_that_have_ended_are_free() {
        let places = Places::default();
        let mut held: Vec<_> =
            (0..8).map(|number| fill(&places, &format!("10.0.0.{number}"))).collect();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), MOST_CONNECTIONS);
        assert!(fill(&places, "10.0.1.1").is_empty());
        held[3].pop();
        assert_eq!(fill(&places, "10.0.1.1").len(), 1);
        drop(held);
        assert!(places.are_free());
    }
}
