//! Destinations that refused connections ([`RefusedDestinations`]) and clients at their share of connections
//! ([`PassingClients`]). Interception lets both pass unaccelerated for a while.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};

use pep::admission::{PassingClients, RefusedDestinations};
use slacp::{ResetReason, client_network};
use tokio::sync::{Notify, oneshot};
use units::Instant;

use crate::process::clock;

/// Destinations and clients that pass unaccelerated, whatever the policies say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PassExemptions {
    pub(crate) destinations: Vec<SocketAddr>,
    pub(crate) clients: Vec<IpAddr>,
}

/// The refusals seen by a gateway. Connections report them; the intake lets their destinations pass.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    shared: Mutex<RefusalState>,
    /// Notified of each new refusal.
    changed: Notify,
}

#[derive(Debug, Default)]
struct RefusalState {
    destinations: RefusedDestinations,
    clients: PassingClients,
    /// The exemptions last taken by the intake.
    passing: PassExemptions,
    /// Dropped when the rules have been updated, which wakes the reporting connections.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Refusals {
    /// Reports that an answered client could not be connected to `destination`. Returns once the client's
    /// next connection would pass unaccelerated, so that the client may be reset; at once if the destination
    /// is not exempted, or already is.
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
        // Nothing is sent: the sender is dropped, by `set` or when interception ends.
        let _ = known.await;
    }

    /// Lets new connections of a client at this address pass for a while.
    pub(crate) fn pass_client(&self, now: Instant, client: IpAddr) {
        if self.lock().clients.pass(now, client_network(client)) {
            self.changed.notify_one();
        }
    }

    /// Makes refusals count, once an intake acts on them.
    pub(crate) fn enable(&self) {
        self.lock().destinations.enable();
    }

    /// Waits until [`Self::take_change`] may return a change.
    pub(crate) async fn changed(&self) {
        let end = {
            let shared = self.lock();
            shared.destinations.next_end().into_iter().chain(shared.clients.next_end()).min()
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = clock::sleep_until(end) => {}
        }
    }

    /// Returns the destinations and clients to let pass, if they have changed.
    pub(crate) fn take_change(&self, now: Instant) -> Option<PassExemptions> {
        let mut shared = self.lock();
        let destinations = shared.destinations.take_change(now);
        let clients = shared.clients.take_change(now);
        if destinations.is_none() && clients.is_none() {
            return None;
        }
        // The half that has not changed keeps its last value.
        let passing = &mut shared.passing;
        passing.destinations = destinations.unwrap_or_else(|| mem::take(&mut passing.destinations));
        passing.clients = clients.unwrap_or_else(|| mem::take(&mut passing.clients));
        Some(passing.clone())
    }

    /// Notes that the rules contain the change taken last, and wakes the connections that wait for it.
    pub(crate) fn mark_applied(&self) {
        self.lock().waiting.clear();
    }

    fn lock(&self) -> MutexGuard<'_, RefusalState> {
        self.shared.lock().expect("no thread panics while it holds it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn port(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    /// That these destinations pass.
    fn passing(ports: &[u16]) -> Option<PassExemptions> {
        let destinations = ports.iter().map(|number| port(*number)).collect();
        Some(PassExemptions { destinations, clients: Vec::new() })
    }

    #[tokio::test]
    async fn a_client_with_its_share_passes_beside_the_destinations_that_refuse() {
        let refusals = Refusals::default();
        refusals.pass_client(NOW, "2001:db8::1".parse().unwrap());
        refusals.changed().await;
        let clients: Vec<IpAddr> = vec!["2001:db8::".parse().unwrap()];
        let alone = PassExemptions { destinations: Vec::new(), clients: clients.clone() };
        assert_eq!(refusals.take_change(NOW), Some(alone));
        refusals.enable();
        let take = async {
            refusals.changed().await;
            let both = PassExemptions { destinations: vec![port(1)], clients };
            assert_eq!(refusals.take_change(NOW), Some(both));
            refusals.mark_applied();
        };
        tokio::join!(refusals.report(NOW, port(1), ResetReason::Refused), take);
    }

    #[tokio::test]
    async fn everyone_who_waits_goes_on_with_the_next_table() {
        let refusals = Refusals::default();
        refusals.enable();
        let report = |number| refusals.report(NOW, port(number), ResetReason::Unreachable);
        let make = async {
            refusals.changed().await;
            assert_eq!(refusals.take_change(NOW), passing(&[1, 2]));
            refusals.mark_applied();
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
            refusals.mark_applied();
        };
        tokio::join!(refusals.report(NOW, port(1), ResetReason::Refused), make);
        let later = NOW + std::time::Duration::from_secs(5);
        assert_eq!(refusals.take_change(later), passing(&[]));
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
            assert_eq!(refusals.take_change(NOW), passing(&[2]));
            refusals.mark_applied();
        };
        tokio::join!(refusals.report(NOW, port(2), ResetReason::Refused), make);
    }
}
