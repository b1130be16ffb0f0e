//! Turns for work of which only so much is done at once, shared fairly among those who ask for it
//! ([`FairSlots`]): one with much to do does not delay the others.

use std::sync::{Arc, Mutex, MutexGuard};

use pep::admission::{FairSlots, SlotOutcome};
use slacp::ResetReason;
use tokio::sync::oneshot;

/// Turns of askers that are told apart by `K`.
#[derive(Clone)]
pub(crate) struct Turns<K: Ord + Clone>(Arc<Shared<K>>);

struct Shared<K: Ord + Clone>(Mutex<FairSlots<K, oneshot::Sender<Turn<K>>>>);

impl<K: Ord + Clone> Shared<K> {
    fn fair_slots(&self) -> MutexGuard<'_, FairSlots<K, oneshot::Sender<Turn<K>>>> {
        self.0.lock().expect("nobody panics while holding the slots")
    }
}

/// A turn, until dropped.
pub(crate) struct Turn<K: Ord + Clone> {
    shared: Arc<Shared<K>>,
    asker: K,
}

impl<K: Ord + Clone> Drop for Turn<K> {
    fn drop(&mut self) {
        let next = self.shared.fair_slots().done(&self.asker);
        if let Some((asker, waiting)) = next {
            // If the waiting asker has gone, the turn drops and passes to the next.
            let _ = waiting.send(Self { shared: self.shared.clone(), asker });
        }
    }
}

impl<K: Ord + Clone> Turns<K> {
    /// Turns of which `most` are taken at once.
    pub(crate) fn of(most: usize) -> Self {
        Self(Arc::new(Shared(Mutex::new(FairSlots::new(most)))))
    }

    /// Waits for a turn of `asker`, which may have at most `share` of them.
    ///
    /// # Errors
    /// [`ResetReason::Limit`] if as many of the asker wait.
    pub(crate) async fn take(&self, asker: K, share: usize) -> Result<Turn<K>, ResetReason> {
        let (sender, receiver) = oneshot::channel();
        let turn = {
            let mut fair_slots = self.0.fair_slots();
            fair_slots.forget(oneshot::Sender::is_closed);
            fair_slots.request(asker.clone(), share, sender)
        };
        match turn {
            SlotOutcome::Granted(_) => Ok(Turn { shared: self.0.clone(), asker }),
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
        let turns = Turns::of(1);
        let first = turns.take(1, 1).await;
        let (mut gone, mut next) = (Box::pin(turns.take(2, 1)), Box::pin(turns.take(3, 1)));
        assert!(timeout(Duration::ZERO, &mut gone).await.is_err());
        assert!(timeout(Duration::ZERO, &mut next).await.is_err());
        drop(first);
        // It gets its turn but does not take it.
        drop(gone);
        assert!(next.await.is_ok());
    }
}
