//! Slots for the connections of a listener, and the tasks that serve them
//! ([`pep::admission::ClientSlots`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pep::admission::{ClientSlots, SlotId};
use tokio::task::{AbortHandle, JoinSet};
use units::Instant;

use crate::process::clock;

/// Connection slots of a listener, shared among clients `K`.
#[derive(Debug)]
pub(crate) struct ConnectionSlots<K>(Arc<Mutex<SlotState<K>>>);

#[derive(Debug)]
struct SlotState<K> {
    slots: ClientSlots<K>,
    /// Abort handles of the tasks that serve the connections.
    tasks: BTreeMap<SlotId, AbortHandle>,
}

/// An acquired connection slot, released when dropped.
#[derive(Debug)]
pub(crate) struct HeldSlot<K: Ord + Clone> {
    slots: ConnectionSlots<K>,
    id: SlotId,
}

impl<K> Clone for ConnectionSlots<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord + Clone> ConnectionSlots<K> {
    /// Creates slots for `most` concurrent connections, of which one client may hold `share`.
    pub(crate) fn new(most: usize, share: usize) -> Self {
        let slots = ClientSlots::new(most, share);
        Self(Arc::new(Mutex::new(SlotState { slots, tasks: BTreeMap::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, SlotState<K>> {
        self.0.lock().expect("no thread panics while it holds the slots")
    }

    /// Acquires a slot for a client's connection, if necessary by ending a connection that gives way.
    /// `None` if no connection may give way.
    pub(crate) fn take(&self, now: Instant, client: K) -> Option<HeldSlot<K>> {
        let mut state = self.lock();
        let taken = state.slots.take(now, client)?;
        if let Some(task) = taken.evicted.and_then(|id| state.tasks.remove(&id)) {
            task.abort();
        }
        Some(HeldSlot { slots: self.clone(), id: taken.slot })
    }

    /// Serves a connection by a task that is aborted if the connection has to give way.
    pub(crate) fn serve<F>(
        &self,
        tasks: &mut JoinSet<F::Output>,
        slot: HeldSlot<K>,
        work: impl FnOnce(HeldSlot<K>) -> F,
    ) where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let id = slot.id;
        let work = work(slot);
        // Locked before spawning: a task that ends at once must release its slot after it was entered.
        let mut state = self.lock();
        state.tasks.insert(id, tasks.spawn(work));
    }

    /// Number of acquired slots, of all clients together.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.lock().slots.len()
    }
}

impl<K: Ord + Clone> HeldSlot<K> {
    /// Marks the connection as busy, or as idle from now on.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.slots.lock().slots.set_busy(clock::now(), self.id, is_busy);
    }
}

impl<K: Ord + Clone> Drop for HeldSlot<K> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        state.slots.release(self.id);
        state.tasks.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_gives_way_is_ended() {
        let (slots, mut tasks) = (ConnectionSlots::new(1, 1), JoinSet::new());
        let first = slots.take(Instant::ZERO, 1).unwrap();
        slots.serve(&mut tasks, first, async |slot| {
            pending::<()>().await;
            drop(slot);
        });
        let second = slots.take(Instant::ZERO, 2).unwrap();
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
        second.set_busy(true);
        assert!(slots.take(Instant::ZERO, 3).is_none());
        drop(second);
        assert_eq!((slots.taken(), slots.lock().tasks.len()), (0, 0));
    }
}
