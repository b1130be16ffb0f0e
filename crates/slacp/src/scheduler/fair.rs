//! Fair queueing of flows, sparse ones first, after the queues of RFC 8290 §4.2.
//!
//! Deficit round robin: each round a flow may send its quantum. A flow that has not used up its
//! quantum in the current round goes before those with a standing backlog, so a flow that needs
//! less than its share never waits behind the others' queues. In RFC 8290 a flow loses that
//! priority by sending once; here it loses it by using up its quantum.

use std::collections::BTreeMap;

use super::{RemovableQueue, Ticket};

/// Flows with data, by name.
#[derive(Debug)]
pub(crate) struct FairQueue<K> {
    /// Bytes a flow may send per turn.
    quantum: i64,
    fresh: RemovableQueue<K>,
    old: RemovableQueue<K>,
    flows: BTreeMap<K, Flow>,
    /// Number of flows with data. Others stay in `old` for one turn, so that a flow does not become
    /// fresh by pausing for a moment.
    backlogged: usize,
}

#[derive(Debug)]
struct Flow {
    /// Bytes left in its turn.
    deficit: i64,
    backlogged: bool,
    /// Whether it has not used up its quantum since it joined.
    sparse: bool,
    in_fresh: Option<Ticket>,
    in_old: Option<Ticket>,
}

impl<K: Copy + Ord> FairQueue<K> {
    pub(crate) fn new(quantum: usize) -> Self {
        Self {
            quantum: quantum.max(1) as i64,
            fresh: RemovableQueue::default(),
            old: RemovableQueue::default(),
            flows: BTreeMap::new(),
            backlogged: 0,
        }
    }

    /// Frees what is not in use. Flows that only finish their turn are forgotten: after a pause, all
    /// are fresh.
    pub(crate) fn free_spare(&mut self) {
        if self.backlogged == 0 {
            *self = Self { quantum: self.quantum, ..Self::new(0) };
        }
    }

    /// Number of flows with data.
    pub(crate) fn len(&self) -> usize {
        self.backlogged
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.backlogged == 0
    }

    /// Flows with data, by name.
    pub(crate) fn backlogged(&self) -> impl Iterator<Item = K> {
        self.flows.iter().filter(|(_, flow)| flow.backlogged).map(|(key, _)| *key)
    }

    /// Whether the next flow was quiet until now.
    pub(crate) fn has_sparse(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Number of flows that were quiet until now.
    pub(crate) fn sparse(&self) -> usize {
        self.fresh.len()
    }

    /// Whether the flow has not used up its quantum since it was quiet.
    pub(crate) fn is_sparse(&self, key: K) -> bool {
        self.flows.get(&key).is_none_or(|flow| flow.sparse)
    }

    /// Adds a flow that has data.
    pub(crate) fn push(&mut self, key: K) {
        let flow = self.flows.entry(key).or_insert(Flow {
            deficit: self.quantum,
            backlogged: false,
            sparse: true,
            in_fresh: None,
            in_old: None,
        });
        if flow.backlogged {
            return;
        }
        flow.backlogged = true;
        self.backlogged += 1;
        if flow.sparse {
            flow.in_fresh = Some(self.fresh.push_back(key));
        }
    }

    /// The flow whose turn it is, and whether it is sparse ([`Self::is_sparse`]).
    pub(crate) fn front(&mut self) -> Option<(K, bool)> {
        if let Some(key) = self.fresh.front() {
            return Some((key, true));
        }
        while let Some(key) = self.old.front() {
            match self.flows.get_mut(&key) {
                Some(flow) if flow.backlogged && flow.deficit > 0 => {
                    return Some((key, flow.sparse));
                }
                Some(flow) if flow.backlogged => {
                    flow.deficit += self.quantum;
                    flow.in_old = Some(self.old.push_back(key));
                }
                Some(_) => _ = self.flows.remove(&key),
                None => {}
            }
            self.old.pop_front();
        }
        None
    }

    /// Charges [`Self::front`], which is `key`, for `bytes`; `more` if it still has data.
    pub(crate) fn sent(&mut self, key: K, bytes: usize, more: bool) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.deficit -= bytes as i64;
        let spent = flow.deficit <= 0;
        if spent {
            flow.deficit += self.quantum;
            flow.sparse = false;
        }
        if !more && flow.backlogged {
            flow.backlogged = false;
            self.backlogged -= 1;
        }
        if !spent && more {
            return;
        }
        if flow.in_fresh.is_some() {
            self.fresh.remove(flow.in_fresh.take());
        } else if self.old.front() == Some(key) {
            self.old.remove(flow.in_old.take());
        }
        if flow.in_old.is_none() {
            flow.in_old = Some(self.old.push_back(key));
        }
    }

    /// Removes a flow.
    pub(crate) fn remove(&mut self, key: K) {
        let Some(flow) = self.flows.remove(&key) else { return };
        self.backlogged -= usize::from(flow.backlogged);
        self.fresh.remove(flow.in_fresh);
        self.old.remove(flow.in_old);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends `bytes` of the front flow, which has `more`.
    fn step(queue: &mut FairQueue<u8>, bytes: usize, more: bool) -> Option<u8> {
        let (key, _) = queue.front()?;
        queue.sent(key, bytes, more);
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
            queue.sent(key, bytes, true);
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
                            queue.sent(front, bytes, more == 2);
                            if more != 2 { plain.remove(&front); }
                        }
                    }
                }
                prop_assert_eq!(queue.len(), plain.len());
                prop_assert_eq!(queue.front().is_none(), plain.is_empty());
            }
        }
    }
}
