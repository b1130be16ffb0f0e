//! Gets one status a second for all viewers of the page, and gives each its messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use control::dashboard::{
    ConnectionInterest, DashboardState, ShownConnections, ViewerMessages, ViewerQuery,
    hide_destinations,
};
use control::status::GatewayStatus;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use units::Instant;

use super::{ask, ask_connections};
use crate::operate::control_socket::ControlCall;
use crate::process::clock;

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
struct LiveSnapshot {
    dashboard: DashboardState,
    /// Connections that viewers want to see, with the number of viewers; see [`ConnectionInterest`].
    wanted: BTreeMap<ConnectionInterest, usize>,
}

impl LiveStatus {
    pub(super) fn new(origin: Instant, hide_destinations: bool) -> Arc<Self> {
        let state =
            LiveSnapshot { dashboard: DashboardState::new(origin), wanted: BTreeMap::new() };
        Arc::new(Self {
            state: Mutex::new(state),
            ticks: watch::Sender::new(0),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            hide_destinations,
        })
    }

    fn lock(&self) -> MutexGuard<'_, LiveSnapshot> {
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
            connections.values_mut().for_each(|shown| hide_destinations(&mut shown.most_moved));
        }
        self.lock().dashboard.record(now, status, connections);
        self.ticks.send_modify(|tick| *tick += 1);
    }

    /// Admits a viewer with this query; `None` if there are too many.
    pub(super) fn admit(self: &Arc<Self>, query: ViewerQuery) -> Option<Viewer> {
        // The permit comes first: a viewer that is refused leaves no interest behind.
        let permit = self.viewers.clone().try_acquire_owned().ok()?;
        let mut state = self.lock();
        let messages = ViewerMessages::new(query, &state.dashboard);
        if let Some(interest) = messages.interest() {
            *state.wanted.entry(interest.clone()).or_default() += 1;
        }
        drop(state);
        let live = self.clone();
        Some(Viewer { live, ticks: self.ticks.subscribe(), seen: 0, messages, _permit: permit })
    }
}

/// A viewer. A slow one misses statuses: nothing is queued for it.
#[derive(Debug)]
pub(super) struct Viewer {
    live: Arc<LiveStatus>,
    ticks: watch::Receiver<u64>,
    seen: u64,
    messages: ViewerMessages,
    _permit: OwnedSemaphorePermit,
}

impl Viewer {
    /// Waits for a status that this viewer has not seen, and returns the message about it; `None` after the
    /// last one.
    pub(super) async fn next(&mut self) -> Option<String> {
        let seen = self.seen;
        self.seen = *self.ticks.wait_for(|tick| *tick != seen).await.ok()?;
        Some(self.messages.next(&self.live.lock().dashboard))
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let Some(interest) = self.messages.interest() else { return };
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
    use control::Role;
    use control::status::ConnectionStatus;
    use serde_json::Value;

    use super::*;

    fn live() -> Arc<LiveStatus> {
        LiveStatus::new(Instant::ZERO, true)
    }

    #[tokio::test]
    async fn a_slow_viewer_sees_the_last_status_and_nothing_queues() {
        let live = live();
        let mut viewer = live.admit(ViewerQuery::default()).unwrap();
        for second in 1..=3 {
            let version = second.to_string();
            let status = GatewayStatus { version, ..GatewayStatus::default() };
            live.publish(Instant::ZERO + second * TICK, status, BTreeMap::new());
        }
        let message: Value = serde_json::from_str(&viewer.next().await.unwrap()).unwrap();
        assert_eq!((&message["gateway"]["version"], &message["t"]), (&"3".into(), &3.into()));
        let again = tokio::time::timeout(Duration::ZERO, viewer.next()).await;
        assert!(again.is_err(), "it waits for another");
    }

    /// A solo gateway, all of whose connections are shown to each viewer.
    fn solo() -> Arc<LiveStatus> {
        let live = live();
        let status = GatewayStatus { role: Role::Solo, ..GatewayStatus::default() };
        let destination = "192.0.2.9:443".to_owned();
        let connection = ConnectionStatus { destination, ..ConnectionStatus::default() };
        let found = ShownConnections { most_moved: vec![connection], total: 1 };
        live.publish(Instant::ZERO, status, [(None, found)].into());
        live
    }

    #[tokio::test]
    async fn viewers_are_bounded_and_leave_no_interest_behind() {
        let live = solo();
        let admit = || live.admit(ViewerQuery::default());
        let mut viewers: Vec<_> = (0..MAX_VIEWERS).map(|_| admit().unwrap()).collect();
        assert!(admit().is_none());
        assert_eq!(live.lock().wanted[&None], MAX_VIEWERS);
        viewers.pop();
        assert!(admit().is_some());
        drop(viewers);
        assert!(live.lock().wanted.is_empty());
    }

    #[tokio::test]
    async fn hidden_destinations_are_not_even_kept() {
        let live = solo();
        let state = format!("{:?}", live.lock().dashboard);
        assert!(state.contains("hidden") && !state.contains("192.0.2.9"), "{state}");
        let message = live.admit(ViewerQuery::default()).unwrap().next().await.unwrap();
        assert!(message.contains("hidden"), "{message}");
    }
}
