//! Slots for work of limited concurrency, shared fairly among clients ([`FairSlots`]), so that a client with
//! much work does not delay the others.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use pep::admission::{FairSlots, SlotOutcome, SlotShare};
use slacp::ResetReason;
use tokio::sync::oneshot;

/// Slots for clients, which are grouped by `G`: by terminal, or all in one group.
#[derive(Clone)]
pub(crate) struct WorkSlots<G: Ord + Clone>(Arc<WorkSlotsShared<G>>);

/// A client that asks for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotAsker<G> {
    /// Its terminal, or `()` where all clients are one group.
    pub(crate) group: G,
    /// The client's address, or its network.
    pub(crate) client: IpAddr,
    /// The numbers of slots that the client and its group may use at once.
    pub(crate) share: SlotShare,
}

impl SlotAsker<()> {
    /// Creates the asker of a client where all clients are one group.
    pub(crate) fn ungrouped(client: IpAddr, share: SlotShare) -> Self {
        Self { group: (), client, share }
    }
}

type SlotQueue<G> = FairSlots<G, IpAddr, oneshot::Sender<WorkSlot<G>>>;

struct WorkSlotsShared<G: Ord + Clone>(Mutex<SlotQueue<G>>);

impl<G: Ord + Clone> WorkSlotsShared<G> {
    fn fair_slots(&self) -> MutexGuard<'_, SlotQueue<G>> {
        self.0.lock().expect("no thread panics while it holds the slots")
    }
}

/// An acquired slot, released when dropped.
pub(crate) struct WorkSlot<G: Ord + Clone> {
    shared: Arc<WorkSlotsShared<G>>,
    asker: (G, IpAddr),
}

impl<G: Ord + Clone> Drop for WorkSlot<G> {
    fn drop(&mut self) {
        let next = self.shared.fair_slots().done(&self.asker.0, &self.asker.1);
        if let Some((asker, waiting)) = next {
            // If the waiting client has given up, the slot is dropped here and goes to the next.
            let _ = waiting.send(Self { shared: self.shared.clone(), asker });
        }
    }
}

impl<G: Ord + Clone> WorkSlots<G> {
    /// Creates slots for work of which at most `most` runs at a time.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(WorkSlotsShared(Mutex::new(FairSlots::new(most)))))
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// [`ResetReason::Limit`] if too many requests of the client, or of the group, wait.
    pub(crate) async fn acquire(&self, asker: SlotAsker<G>) -> Result<WorkSlot<G>, ResetReason> {
        let SlotAsker { group, client, share } = asker;
        let asker = (group, client);
        let (sender, receiver) = oneshot::channel();
        let turn = {
            let mut fair_slots = self.0.fair_slots();
            // Clients that have given up must not hold places in the queue.
            fair_slots.forget(oneshot::Sender::is_closed);
            fair_slots.request(asker.0.clone(), asker.1, share, sender)
        };
        match turn {
            SlotOutcome::Granted(_) => Ok(WorkSlot { shared: self.0.clone(), asker }),
            SlotOutcome::Queued => receiver.await.map_err(|_| ResetReason::Limit),
            SlotOutcome::Rejected(_) => Err(ResetReason::Limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_turn_given_up_passes_to_the_next() {
        let turns = WorkSlots::new(1);
        let take = |client| {
            turns.acquire(SlotAsker::ungrouped([10, 0, 0, client].into(), SlotShare::each(1)))
        };
        let first = take(1).await;
        let (mut gone, mut next) = (Box::pin(take(2)), Box::pin(take(3)));
        assert!(timeout(Duration::ZERO, &mut gone).await.is_err());
        assert!(timeout(Duration::ZERO, &mut next).await.is_err());
        drop(first);
        // It gets its turn but does not take it.
        drop(gone);
        assert!(next.await.is_ok());
    }
}
