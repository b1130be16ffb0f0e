//! Tells the interception of destinations that refused connections, which then pass unaccelerated
//! for a while ([`RefusedDestinations`]).

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use pep::admission::RefusedDestinations;
use slacp::ResetReason;
use tokio::sync::{Notify, oneshot};
use units::Instant;

use crate::clock;

/// The refusals of one gateway. Connections report them; the intake lets their destinations pass.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    shared: Mutex<Shared>,
    /// Notified of each new refusal.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Shared {
    destinations: RefusedDestinations,
    /// Wait until the intake has been updated.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Refusals {
    /// Reports that an answered client could not be connected to `destination`. Returns once the
    /// next connection would pass unaccelerated, so that the client may be reset; at once if none
    /// will.
    pub(crate) async fn report(&self, now: Instant, destination: SocketAddr, reason: ResetReason) {
        let known = {
            let mut shared = self.lock();
            if !shared.destinations.remember(now, destination, reason) {
                return;
            }
            let (sender, known) = oneshot::channel();
            shared.waiting.push(sender);
            known
        };
        self.changed.notify_one();
        // Fails if interception has ended.
        let _ = known.await;
    }

    /// From now on an intake acts on refusals.
    pub(crate) fn enable(&self) {
        self.lock().destinations.enable();
    }

    /// Waits until [`Self::take_change`] may have news.
    pub(crate) async fn changed(&self) {
        let end = self.lock().destinations.next_end();
        tokio::select! {
            () = self.changed.notified() => {}
            () = clock::sleep_until(end) => {}
        }
    }

    /// The destinations to let pass, if they have changed.
    pub(crate) fn take_change(&self, now: Instant) -> Option<Vec<SocketAddr>> {
        self.lock().destinations.take_change(now)
    }

    /// The interception table now has what was taken last.
    pub(crate) fn set(&self) {
        self.lock().waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nobody panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn port(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[tokio::test]
    async fn everyone_who_waits_goes_on_with_the_next_table() {
        let refusals = Refusals::default();
        refusals.enable();
        let report = |number| refusals.report(NOW, port(number), ResetReason::Unreachable);
        let make = async {
            refusals.changed().await;
            assert_eq!(refusals.take_change(NOW), Some(vec![port(1), port(2)]));
            refusals.set();
        };
        tokio::join!(report(1), report(2), report(1), make);
        // It passes already: there is nothing to wait for.
        report(2).await;
        assert_eq!(refusals.take_change(NOW), None);
    }

    #[tokio::test]
    async fn a_destination_is_intercepted_again_after_its_time() {
        let refusals = Refusals::default();
        refusals.enable();
        let make = async {
            refusals.changed().await;
            refusals.take_change(NOW).unwrap();
            refusals.set();
        };
        tokio::join!(refusals.report(NOW, port(1), ResetReason::Refused), make);
        let later = NOW + std::time::Duration::from_secs(5);
        assert_eq!(refusals.take_change(later), Some(vec![]));
        assert_eq!(refusals.take_change(later), None);
    }

    #[tokio::test]
    async fn an_announcement_waits_only_for_the_table() {
        let refusals = Refusals::default();
        refusals.report(NOW, port(1), ResetReason::Refused).await;
        assert_eq!(refusals.take_change(NOW), None, "nobody would let it pass by");
        refusals.enable();
        refusals.report(NOW, port(1), ResetReason::Limit).await;
        assert_eq!(refusals.take_change(NOW), None);
        let make = async {
            refusals.changed().await;
            assert_eq!(refusals.take_change(NOW), Some(vec![port(2)]));
            refusals.set();
        };
        tokio::join!(refusals.report(NOW, port(2), ResetReason::Refused), make);
    }
}
