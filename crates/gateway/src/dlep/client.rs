//! The gateway's interface to DLEP.

use std::io;
use std::sync::Arc;

use pep::config::DlepConfig;
use pep::dlep::{Phase, Report, Row};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use units::Instant;

use super::driver::Driver;
use crate::operate::status::{DlepDestination, DlepStatus};

/// A running DLEP router; stops when dropped.
#[derive(Debug)]
pub(crate) struct Client {
    report: watch::Receiver<Report>,
    stop: Arc<Notify>,
    _task: JoinSet<()>,
}

impl Client {
    /// Starts looking for a modem.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn start(config: DlepConfig) -> io::Result<Self> {
        let (sender, report) = watch::channel(Report::default());
        let stop = Arc::new(Notify::new());
        let driver = Driver::new(config, sender, stop.clone())?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(error) = driver.run().await {
                tracing::error!("DLEP has ended: {error}");
            }
        });
        Ok(Self { report, stop, _task: task })
    }

    /// The latest report.
    pub(crate) fn report(&self) -> Report {
        self.report.borrow().clone()
    }

    /// The latest report, if it changed since the last call.
    pub(crate) fn news(&mut self) -> Option<Report> {
        let has_changed = self.report.has_changed().unwrap_or(false);
        has_changed.then(|| self.report.borrow_and_update().clone())
    }

    /// Ends the session with the modem in order. Takes a moment.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// The state for the status.
    pub(crate) fn status(&self, now: Instant) -> DlepStatus {
        let report = self.report();
        let row = |row: Row| DlepDestination {
            mac: row.mac,
            up: row.up,
            rate_bit_s: row.rate.map(|rate| rate.bits_per_second()),
            networks: row.networks,
        };
        DlepStatus {
            state: report.phase.as_str().to_owned(),
            since_s: now.saturating_since(report.since).as_secs_f64(),
            modem: report.modem.map(|modem| modem.to_string()),
            peer_type: (report.phase == Phase::Up).then_some(report.peer_type),
            rate_bit_s: report.base.default_rate().map(|rate| rate.bits_per_second()),
            destinations: report.base.rows().map(row).collect(),
            sessions: report.sessions,
            trouble: report.trouble,
        }
    }
}

/// Waits for a new report. Cancel-safe.
pub(crate) async fn changed(client: Option<&mut Client>) {
    match client {
        // Waiting on a copy does not mark the report as seen.
        Some(client) => {
            if client.report.clone().changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}
