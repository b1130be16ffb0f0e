//! A queue of work that is fair among networks.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// Maximum length of the queue of one network, and of all together.
const MOST_OF_NETWORK: usize = 64;
const MOST: usize = 1024;

/// A queue in which networks take turns. The work of one network is done in order.
pub(super) struct FairQueue<T> {
    waiting: BTreeMap<IpAddr, VecDeque<T>>,
    /// The networks with waiting work, in the order of their turns.
    turns: VecDeque<IpAddr>,
    len: usize,
}

impl<T> FairQueue<T> {
    pub(super) const fn new() -> Self {
        Self { waiting: BTreeMap::new(), turns: VecDeque::new(), len: 0 }
    }

    /// Adds work; false if the queue, or the network's part of it, is full. Other networks cannot use up a
    /// network's part, only the whole queue.
    pub(super) fn push(&mut self, network: IpAddr, work: T) -> bool {
        if self.len >= MOST {
            return false;
        }
        let waiting = self.waiting.entry(network).or_default();
        // A limit per second would keep out 4,000 terminals behind one address after a hub's restart.
        if waiting.len() >= MOST_OF_NETWORK {
            return false;
        }
        if waiting.is_empty() {
            self.turns.push_back(network);
        }
        waiting.push_back(work);
        self.len += 1;
        true
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let network = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&network)?;
        let work = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&network);
        } else {
            self.turns.push_back(network);
        }
        self.len -= 1;
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn a_network_that_floods_delays_itself() {
        let mut queue = FairQueue::new();
        let taken = (0..1000).filter(|_| queue.push(network(1), 1)).count();
        assert_eq!(taken, MOST_OF_NETWORK);
        assert!(queue.push(network(2), 2) && queue.push(network(2), 2));
        let order: Vec<u8> = (0..4).filter_map(|_| queue.pop()).collect();
        assert_eq!(order, [1, 2, 1, 2]);
    }

    #[test]
    fn it_is_bounded_and_forgets_those_who_no_longer_wait() {
        let mut queue = FairQueue::new();
        let taken = (0..200).flat_map(|n| (0..20).map(move |_| n));
        assert_eq!(taken.filter(|n| queue.push(network(*n), ())).count(), MOST);
        assert_eq!((0..).take_while(|_| queue.pop().is_some()).count(), MOST);
        assert!(queue.waiting.is_empty() && queue.turns.is_empty() && queue.len == 0);
    }
}
