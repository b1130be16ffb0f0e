//! Data shared by all viewers of the page: one status a second, its history, and the viewers'
//! interests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use units::Instant;

use super::{ask, ask_connections};
use crate::clock;
use crate::figures::status::{ConnectionStatus, GatewayStatus};
use crate::operate::control::ControlCall;
use crate::operate::history::GatewayHistory;

/// Maximum number of concurrent viewers.
pub(super) const MAX_VIEWERS: usize = 32;
/// Maximum connections shown of a session: those that have moved the most bytes.
pub(super) const MAX_SHOWN: usize = 50;
const TICK: Duration = Duration::from_secs(1);

/// Data shared by the viewers.
#[derive(Debug)]
pub(super) struct LiveStatus {
    state: Mutex<LiveSnapshot>,
    /// Number of the last status; 0 before the first.
    ticks: watch::Sender<u64>,
    viewers: Arc<Semaphore>,
    pub(super) hide_destinations: bool,
}

#[derive(Debug)]
pub(super) struct LiveSnapshot {
    pub(super) history: GatewayHistory,
    pub(super) status: GatewayStatus,
    /// Second of the status on the history's clock.
    pub(super) second: u64,
    /// Connections that viewers want to see, with the number of viewers; see [`ConnectionInterest`].
    wanted: BTreeMap<ConnectionInterest, usize>,
    pub(super) connections: BTreeMap<ConnectionInterest, ShownConnections>,
}

/// Connections with the peer of this name; with all peers, if `None`.
pub(super) type ConnectionInterest = Option<String>;

/// Some connections, and the number of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ShownConnections {
    pub(super) most_moved: Vec<ConnectionStatus>,
    pub(super) total: u64,
}

impl LiveStatus {
    pub(super) fn new(origin: Instant, hide_destinations: bool) -> Arc<Self> {
        let state = LiveSnapshot {
            history: GatewayHistory::new(origin),
            status: GatewayStatus::default(),
            second: 0,
            wanted: BTreeMap::new(),
            connections: BTreeMap::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            ticks: watch::Sender::new(0),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            hide_destinations,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LiveSnapshot> {
        self.state.lock().expect("nobody panics while holding the state")
    }

    /// Requests a status every second, until the gateway ends.
    pub(super) async fn follow(self: Arc<Self>, calls: mpsc::Sender<ControlCall>) {
        let mut ticks = interval(TICK);
        // After a stall one status is enough.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Ok(status) = ask(&calls, false).await else { return };
            // Copied: the lock must not be held across the requests.
            let wanted: Vec<ConnectionInterest> = self.lock().wanted.keys().cloned().collect();
            let mut connections = BTreeMap::new();
            for interest in wanted {
                let Ok(found) = ask_connections(&calls, interest.clone()).await else { return };
                connections.insert(interest, found);
            }
            self.publish(clock::now(), status, connections);
        }
    }

    /// Records a status and wakes the viewers.
    pub(super) fn publish(
        &self,
        now: Instant,
        status: GatewayStatus,
        mut connections: BTreeMap<ConnectionInterest, ShownConnections>,
    ) {
        if self.hide_destinations {
            connections.values_mut().for_each(|shown| hide(&mut shown.most_moved));
        }
        let mut state = self.lock();
        state.history.record(now, &status);
        state.second = state.history.second(now);
        (state.status, state.connections) = (status, connections);
        drop(state);
        self.ticks.send_modify(|tick| *tick += 1);
    }

    /// Admits a viewer; `None` if there are too many.
    pub(super) fn admit(
        self: &Arc<Self>,
        interest: Option<ConnectionInterest>,
    ) -> Option<ViewerSlot> {
        // The permit comes first: a viewer that is refused leaves no interest behind.
        let permit = self.viewers.clone().try_acquire_owned().ok()?;
        if let Some(interest) = &interest {
            *self.lock().wanted.entry(interest.clone()).or_default() += 1;
        }
        let live = self.clone();
        Some(ViewerSlot { live, ticks: self.ticks.subscribe(), seen: 0, interest, _permit: permit })
    }
}

/// Hides the destinations of connections.
pub(super) fn hide(connections: &mut [ConnectionStatus]) {
    connections.iter_mut().for_each(|each| "hidden".clone_into(&mut each.destination));
}

/// A viewer's slot. A slow viewer misses statuses: nothing is queued for it.
#[derive(Debug)]
pub(super) struct ViewerSlot {
    live: Arc<LiveStatus>,
    ticks: watch::Receiver<u64>,
    seen: u64,
    pub(super) interest: Option<ConnectionInterest>,
    _permit: OwnedSemaphorePermit,
}

impl ViewerSlot {
    /// Waits for a status that this viewer has not seen; `None` after the last one.
    pub(super) async fn next(&mut self) -> Option<MutexGuard<'_, LiveSnapshot>> {
        let seen = self.seen;
        self.seen = *self.ticks.wait_for(|tick| *tick != seen).await.ok()?;
        Some(self.live.lock())
    }
}

impl Drop for ViewerSlot {
    fn drop(&mut self) {
        let Some(interest) = &self.interest else { return };
        let wanted = &mut self.live.lock().wanted;
        if let Some(viewers) = wanted.get_mut(interest) {
            *viewers -= 1;
            if *viewers == 0 {
                wanted.remove(interest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Arc<LiveStatus> {
        LiveStatus::new(Instant::ZERO, true)
    }

    #[tokio::test]
    async fn a_slow_viewer_sees_the_last_status_and_nothing_queues() {
        let live = live();
        let mut seat = live.admit(None).unwrap();
        for second in 1..=3 {
            let version = second.to_string();
            let status = GatewayStatus { version, ..GatewayStatus::default() };
            live.publish(Instant::ZERO + second * TICK, status, BTreeMap::new());
        }
        let seen = seat.next().await.map(|state| (state.status.version.clone(), state.second));
        assert_eq!(seen, Some(("3".to_owned(), 3)));
        let again = tokio::time::timeout(Duration::ZERO, seat.next()).await;
        assert!(again.is_err(), "it waits for another");
    }

    #[tokio::test]
    async fn viewers_are_bounded_and_leave_no_interest_behind() {
        let live = live();
        let ship = || Some(Some("ship".to_owned()));
        let mut seats: Vec<_> = (0..MAX_VIEWERS).map(|_| live.admit(ship()).unwrap()).collect();
        assert!(live.admit(None).is_none());
        assert_eq!(live.lock().wanted[&Some("ship".to_owned())], MAX_VIEWERS);
        seats.pop();
        assert!(live.admit(None).is_some());
        drop(seats);
        assert!(live.lock().wanted.is_empty());
    }

    #[tokio::test]
    async fn hidden_destinations_are_not_even_kept() {
        let live = live();
        let destination = "192.0.2.9:443".to_owned();
        let connection = ConnectionStatus { destination, ..ConnectionStatus::default() };
        let found = ShownConnections { most_moved: vec![connection], total: 1 };
        live.publish(Instant::ZERO, GatewayStatus::default(), [(None, found)].into());
        assert_eq!(live.lock().connections[&None].most_moved[0].destination, "hidden");
    }
}
