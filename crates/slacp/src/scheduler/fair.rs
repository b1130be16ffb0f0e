//! Fair queueing of flows, sparse ones first, after the queues of RFC 8290 §4.2.
//!
//! Deficit round robin: each round a flow may send its quantum. A flow that has not used up its
//! quantum in the current round is *sparse* and goes before those with a standing backlog, so a
//! flow that needs less than its share never waits behind the others' queues. In RFC 8290 a flow
//! loses that priority by sending once; here it loses it by using up its quantum.

use std::collections::{BTreeMap, VecDeque};

/// The flows with data of one kind in one class, by key.
#[derive(Debug)]
pub(crate) struct FairQueue<K> {
    /// Bytes that a flow may send per turn.
    quantum: u32,
    /// Sparse flows. With `old`, the two lists of RFC 8290 §4.2.
    fresh: VecDeque<K>,
    old: VecDeque<K>,
    flows: BTreeMap<K, FairFlow>,
    /// Number of flows in `fresh` that have not been removed.
    sparse: u32,
    /// Number of flows that were removed and are still in a list. They are not searched for: a peer
    /// chooses which streams end, in any number, while others wait, so that work would be
    /// unbounded.
    removed: u32,
    /// Number of flows with data. A flow without data stays in `old` for one turn, so that it does
    /// not become sparse by pausing for a moment.
    backlogged: u32,
}

#[derive(Debug)]
struct FairFlow {
    /// Bytes left in its turn.
    deficit: i64,
    /// Set while it has data.
    backlogged: bool,
    /// Set until it has used up its quantum.
    sparse: bool,
    in_fresh: bool,
    in_old: bool,
    removed: bool,
}

/// Number of removed flows that may stay in the lists however short these are.
const MIN_REMOVED: usize = 16;

impl<K: Copy + Ord> FairQueue<K> {
    pub(crate) fn new(quantum: usize) -> Self {
        Self {
            // With a quantum of 0, `front` would search without end.
            quantum: quantum.max(1) as u32,
            fresh: VecDeque::new(),
            old: VecDeque::new(),
            flows: BTreeMap::new(),
            sparse: 0,
            removed: 0,
            backlogged: 0,
        }
    }

    /// Frees memory if no flow has data. Flows that only finish their turn are forgotten: after a
    /// pause, all flows are sparse.
    pub(crate) fn free_spare(&mut self) {
        if self.backlogged == 0 {
            *self = Self { quantum: self.quantum, ..Self::new(0) };
        }
    }

    /// Number of flows with data.
    pub(crate) fn len(&self) -> usize {
        self.backlogged as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backlogged == 0
    }

    /// The keys of flows with data, in ascending order.
    pub(crate) fn backlogged(&self) -> impl Iterator<Item = K> {
        self.flows.iter().filter(|(_, flow)| flow.backlogged).map(|(key, _)| *key)
    }

    /// Returns `true` if a sparse flow has data.
    pub(crate) fn has_sparse(&self) -> bool {
        self.sparse > 0
    }

    /// Number of sparse flows with data.
    pub(crate) fn sparse(&self) -> usize {
        self.sparse as usize
    }

    /// Returns `true` if the flow is sparse, or would be if it had data.
    pub(crate) fn is_sparse(&self, key: K) -> bool {
        self.flows.get(&key).is_none_or(|flow| flow.sparse || flow.removed)
    }

    /// Adds a flow that has data.
    pub(crate) fn push(&mut self, key: K) {
        let flow = self.flows.entry(key).or_insert_with(|| FairFlow {
            deficit: self.quantum.into(),
            backlogged: false,
            sparse: true,
            in_fresh: false,
            in_old: false,
            removed: false,
        });
        // A removed flow that returns starts anew, as if it had left the lists.
        if core::mem::take(&mut flow.removed) {
            self.removed -= 1;
            (flow.deficit, flow.sparse) = (self.quantum.into(), true);
        }
        if flow.backlogged {
            return;
        }
        flow.backlogged = true;
        self.backlogged += 1;
        if flow.sparse {
            self.sparse += 1;
            if !core::mem::replace(&mut flow.in_fresh, true) {
                self.fresh.push_back(key);
            }
        }
    }

    /// The flow whose turn it is, with `true` if it is sparse ([`Self::is_sparse`]).
    pub(crate) fn front(&mut self) -> Option<(K, bool)> {
        while let Some(&key) = self.fresh.front() {
            match self.flows.get_mut(&key) {
                Some(flow) if flow.removed => flow.in_fresh = false,
                _ => return Some((key, true)),
            }
            self.fresh.pop_front();
            self.forget(key);
        }
        while let Some(&key) = self.old.front() {
            match self.flows.get_mut(&key) {
                Some(flow) if flow.backlogged && flow.deficit > 0 => {
                    return Some((key, flow.sparse));
                }
                Some(flow) if flow.backlogged => {
                    // It has overdrawn its turn, and gets another quantum in the next round.
                    flow.deficit += i64::from(self.quantum);
                    self.old.push_back(key);
                }
                Some(flow) => flow.in_old = false,
                None => {}
            }
            self.old.pop_front();
            self.forget(key);
        }
        None
    }

    /// Charges the flow returned by [`Self::front`] for `bytes`. `more` says that it has more data.
    pub(crate) fn charge_front(&mut self, key: K, bytes: usize, more: bool) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.deficit -= bytes as i64;
        let spent = flow.deficit <= 0;
        if spent {
            flow.deficit += i64::from(self.quantum);
            flow.sparse = false;
        }
        if !more && flow.backlogged {
            flow.backlogged = false;
            self.backlogged -= 1;
        }
        if !spent && more {
            return;
        }
        // A flow that has run empty moves to `old`, too, or a short pause would make it sparse
        // again.
        if core::mem::take(&mut flow.in_fresh) {
            self.fresh.pop_front();
            self.sparse -= 1;
        } else if flow.in_old && self.old.front() == Some(&key) {
            flow.in_old = false;
            self.old.pop_front();
        }
        if !core::mem::replace(&mut flow.in_old, true) {
            self.old.push_back(key);
        }
    }

    /// Removes a flow, whether it has data or not. It may stay in the lists for a while.
    pub(crate) fn remove(&mut self, key: K) {
        let Some(flow) = self.flows.get_mut(&key).filter(|flow| !flow.removed) else { return };
        self.backlogged -= u32::from(core::mem::take(&mut flow.backlogged));
        self.sparse -= u32::from(flow.in_fresh);
        flow.removed = true;
        self.removed += 1;
        self.forget(key);
        if self.removed as usize > MIN_REMOVED + self.flows.len() / 2 {
            self.sweep();
        }
    }

    /// Forgets a flow if it has no data and is in no list.
    fn forget(&mut self, key: K) {
        let is_gone = |flow: &FairFlow| !flow.backlogged && !flow.in_fresh && !flow.in_old;
        if self.flows.get(&key).is_some_and(is_gone) {
            self.removed -= u32::from(self.flows.remove(&key).is_some_and(|flow| flow.removed));
        }
    }

    /// Takes removed flows out of the lists. They are more than half of all flows, so their
    /// additions pay for the work.
    fn sweep(&mut self) {
        let stays = |key: &K| self.flows.get(key).is_some_and(|flow| !flow.removed);
        self.fresh.retain(stays);
        self.old.retain(stays);
        self.flows.retain(|_, flow| !flow.removed);
        self.removed = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends `bytes` of the front flow, which has `more`.
    fn step(queue: &mut FairQueue<u8>, bytes: usize, more: bool) -> Option<u8> {
        let (key, _) = queue.front()?;
        queue.charge_front(key, bytes, more);
        Some(key)
    }

    #[test]
    fn greedy_flows_share_bytes_not_turns() {
        let mut queue = FairQueue::new(1500);
        queue.push(0u8);
        queue.push(1);
        let mut sent = [0; 2];
        for _ in 0..10_000 {
            let (key, _) = queue.front().unwrap();
            let bytes = [1500, 200][usize::from(key)];
            queue.charge_front(key, bytes, true);
            sent[usize::from(key)] += bytes;
        }
        assert!(sent[0].abs_diff(sent[1]) <= 1700, "{sent:?}");
    }

    #[test]
    fn a_sparse_flow_overtakes_until_its_quantum_is_spent() {
        let mut queue = FairQueue::new(1500);
        (0..5).for_each(|key| queue.push(key));
        (0..5).for_each(|_| _ = step(&mut queue, 1500, true));
        queue.push(9);
        assert!(queue.has_sparse());
        assert_eq!(step(&mut queue, 1000, true), Some(9));
        assert_eq!(step(&mut queue, 1000, true), Some(9));
        assert!(!queue.has_sparse());
        let turns: Vec<_> = (0..5).filter_map(|_| step(&mut queue, 1500, true)).collect();
        assert_eq!(turns, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_flow_of_small_pieces_is_sparse_until_it_had_its_share_of_the_round() {
        let mut queue = FairQueue::new(1500);
        (0..5).for_each(|key| queue.push(key));
        (0..5).for_each(|_| _ = step(&mut queue, 1500, true));
        let mut early = 0;
        for _ in 0..20 {
            queue.push(9);
            let key = step(&mut queue, 200, false).unwrap();
            if key != 9 {
                break;
            }
            early += 200;
        }
        assert_eq!(early, 1600);
    }

    #[test]
    fn a_pause_of_a_moment_does_not_make_a_greedy_flow_sparse() {
        let mut queue = FairQueue::new(1500);
        queue.push(1);
        queue.push(2);
        step(&mut queue, 1500, true);
        step(&mut queue, 1500, false);
        queue.push(2);
        assert!(!queue.has_sparse());
        assert_eq!(step(&mut queue, 1500, true), Some(1));
    }

    #[test]
    fn flows_that_were_removed_take_little_memory_though_nothing_is_sent() {
        let mut queue = FairQueue::new(1500);
        queue.push(0);
        for key in 1..100_000 {
            queue.push(key);
            queue.remove(key);
            assert!(queue.flows.len() + queue.fresh.len() + queue.old.len() < 5 * MIN_REMOVED);
        }
        assert_eq!((queue.len(), queue.front()), (1, Some((0, true))));
    }

    proptest! {
        #[test]
        fn every_flow_with_something_is_counted_and_found(
            steps in prop::collection::vec((0u8..8, 0u8..4, 1usize..4000), 1..200)
        ) {
            let mut queue = FairQueue::new(1500);
            let mut plain = std::collections::BTreeSet::new();
            for (key, what, bytes) in steps {
                match what {
                    0 => { queue.push(key); plain.insert(key); }
                    1 => { queue.remove(key); plain.remove(&key); }
                    more => {
                        if let Some((front, sparse)) = queue.front() {
                            prop_assert!(plain.contains(&front));
                            prop_assert_eq!(queue.is_sparse(front), sparse);
                            queue.charge_front(front, bytes, more == 2);
                            if more != 2 { plain.remove(&front); }
                        }
                    }
                }
                prop_assert_eq!(queue.len(), plain.len());
                prop_assert_eq!(queue.front().is_none(), plain.is_empty());
                let removed = queue.flows.values().filter(|flow| flow.removed).count();
                let fresh = queue.flows.values().filter(|flow| flow.in_fresh && !flow.removed);
                prop_assert_eq!((queue.removed as usize, queue.sparse()), (removed, fresh.count()));
            }
        }
    }
}
