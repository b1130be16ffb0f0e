//! The gateway's interface to DLEP.

use std::future::pending;
use std::io;
use std::sync::Arc;

use config::DlepConfig;
use control::status::{DlepDestination, DlepStatus};
use pep::dlep::{DestinationRow, DlepPhase, DlepReport};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use units::Instant;

use super::driver::DlepDriver;
use crate::hop::CapacityDemand;

/// A running DLEP router; stops when dropped.
#[derive(Debug)]
pub(crate) struct DlepClient {
    report: watch::Receiver<DlepReport>,
    stop: Arc<Notify>,
    /// Queue lengths to request capacity for; `None` unless the link gives capacity on demand.
    waiting: Option<watch::Sender<CapacityDemand>>,
    _task: JoinSet<()>,
}

impl DlepClient {
    /// Starts looking for a modem.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn start(config: DlepConfig) -> io::Result<Self> {
        let (sender, report) = watch::channel(DlepReport::default());
        let stop = Arc::new(Notify::new());
        let (waiting, to_ask_for) = watch::channel(CapacityDemand::default());
        let waiting = config.on_demand.then_some(waiting);
        let driver = DlepDriver::new(config, sender, to_ask_for, stop.clone())?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(error) = driver.run().await {
                tracing::error!("DLEP stopped: {error}");
            }
        });
        Ok(Self { report, stop, waiting, _task: task })
    }

    /// Takes the channel for queue lengths, if capacity is to be requested.
    pub(crate) fn waiting(&mut self) -> Option<watch::Sender<CapacityDemand>> {
        self.waiting.take()
    }

    pub(crate) fn report(&self) -> DlepReport {
        self.report.borrow().clone()
    }

    /// Returns the latest report if it changed since the last call.
    pub(crate) fn take_report(&mut self) -> Option<DlepReport> {
        let has_changed = self.report.has_changed().unwrap_or(false);
        has_changed.then(|| self.report.borrow_and_update().clone())
    }

    /// Waits for a new report. Cancel-safe.
    pub(crate) async fn changed(&self) {
        // Waiting on a copy does not mark the report as seen.
        if self.report.clone().changed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Asks the driver to end the session with the modem in order, which takes a moment.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// The state for the status.
    pub(crate) fn status(&self, now: Instant) -> DlepStatus {
        let report = self.report();
        let row = |row: DestinationRow| DlepDestination {
            mac: row.mac,
            up: row.up,
            rate_bit_s: row.rate.map(|rate| rate.bits_per_second()),
            networks: row.networks,
        };
        DlepStatus {
            state: report.phase.as_str().to_owned(),
            since_s: now.saturating_since(report.since).as_secs_f64(),
            modem: report.modem.map(|modem| modem.to_string()),
            peer_type: (report.phase == DlepPhase::Up).then_some(report.peer_type),
            rate_bit_s: report.base.default_rate().map(|rate| rate.bits_per_second()),
            destinations: report.base.rows().map(row).collect(),
            sessions: report.sessions,
            trouble: report.trouble,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A client without a driver, and what would come from one.
    fn client() -> (watch::Sender<DlepReport>, DlepClient) {
        let (sender, report) = watch::channel(DlepReport::default());
        (sender, DlepClient { report, stop: Arc::default(), waiting: None, _task: JoinSet::new() })
    }

    #[tokio::test]
    async fn each_report_is_news_once_however_often_it_is_waited_for() {
        let (sender, mut client) = client();
        assert!(client.take_report().is_none());
        let report = DlepReport { sessions: 3, ..DlepReport::default() };
        sender.send(report).unwrap();
        for _ in 0..2 {
            client.changed().await;
        }
        assert_eq!(client.take_report().map(|report| report.sessions), Some(3));
        assert!(client.take_report().is_none());
        assert_eq!(client.report().sessions, 3, "the status shows it further on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_driver_that_has_ended_is_no_news() {
        let (sender, mut client) = client();
        drop(sender);
        let wait = client.changed();
        assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_err());
        assert!(client.take_report().is_none());
    }

    #[test]
    fn the_modem_s_own_description_is_shown_only_while_it_is_up() {
        let (sender, client) = client();
        let now = Instant::ZERO + Duration::from_secs(9);
        for (phase, shown) in [(DlepPhase::Up, true), (DlepPhase::Ending, false)] {
            let since = Instant::ZERO + Duration::from_secs(2);
            let modem = Some(([192, 0, 2, 1], 854).into());
            let peer_type = "a modem".to_owned();
            sender.send_replace(DlepReport {
                phase,
                since,
                modem,
                peer_type,
                ..DlepReport::default()
            });
            let status = client.status(now);
            assert_eq!((status.state.as_str(), status.since_s), (phase.as_str(), 7.0));
            assert_eq!(status.peer_type.is_some(), shown);
            assert_eq!(status.modem.as_deref(), Some("192.0.2.1:854"));
        }
    }
}
