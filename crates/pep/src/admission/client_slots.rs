//! Slots for the connections of a listener. When all are taken, the client with most connections gives up
//! its longest idle one, so that no client shuts others out. No I/O, no clock.

use std::collections::BTreeMap;

use units::Instant;

/// Identifies a slot that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotId(u64);

/// Slots of clients identified by `K`.
#[derive(Debug)]
pub struct ClientSlots<K> {
    /// Number of slots in total, and of one client.
    most: usize,
    share: usize,
    slots: BTreeMap<SlotId, ClientSlot<K>>,
    next: u64,
}

#[derive(Debug)]
struct ClientSlot<K> {
    client: K,
    /// Start of the idle time; `None` while the connection is busy.
    idle_since: Option<Instant>,
}

/// Result of taking a slot.
#[derive(Debug, PartialEq, Eq)]
pub struct TakenSlot {
    /// The slot that was taken.
    pub slot: SlotId,
    /// The slot whose connection must be closed for it; it is free already.
    pub evicted: Option<SlotId>,
}

impl<K: Ord + Clone> ClientSlots<K> {
    /// Creates `most` slots, of which one client may have `share`.
    pub fn new(most: usize, share: usize) -> Self {
        Self { most, share, slots: BTreeMap::new(), next: 0 }
    }

    /// Takes a slot for a new connection, which is idle at first. `None` if no connection can be evicted. A
    /// client at its share evicts only its own connections, any other also those of clients with at least
    /// as many.
    pub fn take(&mut self, now: Instant, client: K) -> Option<TakenSlot> {
        let mut counts = BTreeMap::<&K, usize>::new();
        self.slots.values().for_each(|slot| *counts.entry(&slot.client).or_default() += 1);
        let held = counts.get(&client).copied().unwrap_or(0);
        let evicted = if held >= self.share || self.slots.len() >= self.most {
            let may_give_way = |slot: &ClientSlot<K>| {
                slot.client == client || held < self.share && counts[&slot.client] >= held
            };
            let idle = self.slots.iter().filter(|(_, slot)| may_give_way(slot));
            let idle = idle.filter_map(|(id, slot)| {
                Some((counts[&slot.client], std::cmp::Reverse(slot.idle_since?), *id))
            });
            // The client with most connections first; of its connections the one that has been idle longest.
            Some(idle.max_by_key(|(count, since, _)| (*count, *since))?.2)
        } else {
            None
        };
        evicted.into_iter().for_each(|id| self.release(id));
        let slot = SlotId(self.next);
        self.next += 1;
        self.slots.insert(slot, ClientSlot { client, idle_since: Some(now) });
        Some(TakenSlot { slot, evicted })
    }

    /// Marks a connection as busy, or as idle from now on.
    pub fn set_busy(&mut self, now: Instant, slot: SlotId, is_busy: bool) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.idle_since = (!is_busy).then_some(now);
        }
    }

    /// Frees a slot, if it is not free already.
    pub fn release(&mut self, slot: SlotId) {
        self.slots.remove(&slot);
    }

    /// Number of slots taken, by all clients together.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns `true` if no slot is taken.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn silent_connections_of_one_client_give_way_to_others() {
        let mut slots = ClientSlots::new(4, 4);
        let silent: Vec<SlotId> =
            (0..4).map(|second| slots.take(at(second), "many").unwrap().slot).collect();
        let other = slots.take(at(10), "few").unwrap();
        assert_eq!(other.evicted, Some(silent[0]), "the oldest");
        // The greedy client's next one takes the place of its own.
        assert_eq!(slots.take(at(11), "many").unwrap().evicted, Some(silent[1]));
        assert_eq!(slots.len(), 4);
    }

    #[test]
    fn of_clients_with_one_each_the_longest_idle_gives_way() {
        let mut slots = ClientSlots::new(3, 3);
        let ids: Vec<SlotId> =
            (0..3).map(|client| slots.take(at(client), client).unwrap().slot).collect();
        slots.set_busy(at(3), ids[0], true);
        slots.set_busy(at(4), ids[1], true);
        slots.set_busy(at(5), ids[1], false);
        assert_eq!(slots.take(at(6), 7).unwrap().evicted, Some(ids[2]));
    }

    #[test]
    fn busy_connections_stay() {
        let mut slots = ClientSlots::new(2, 2);
        let ids = [1, 1].map(|client| slots.take(at(0), client).unwrap().slot);
        ids.iter().for_each(|id| slots.set_busy(at(0), *id, true));
        assert_eq!(slots.take(at(1), 2), None);
        slots.release(ids[0]);
        slots.release(ids[0]);
        assert_eq!(slots.take(at(1), 2).unwrap().evicted, None);
    }

    #[test]
    fn a_client_with_its_share_displaces_only_itself() {
        let mut slots = ClientSlots::new(10, 2);
        let ids = [0, 1].map(|second| slots.take(at(second), 1).unwrap().slot);
        slots.take(at(0), 2).unwrap();
        assert_eq!(slots.take(at(2), 1).unwrap().evicted, Some(ids[0]));
        slots.set_busy(at(3), ids[1], true);
        let newest = slots.take(at(3), 1).unwrap();
        slots.set_busy(at(3), newest.slot, true);
        assert_eq!(slots.take(at(4), 1), None);
        assert_eq!(slots.len(), 3);
    }
}
