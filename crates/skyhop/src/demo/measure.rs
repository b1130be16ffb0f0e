//! One measurement: a fresh lab, one way across it, one task.
//!
//! Every measurement gets a lab of its own, so that no queue, no connection and
//! nothing that a kernel remembers of a path is left from the one before.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use lab::{Faults, Lab, Node, Preset};
use meter::{
    Amount, BulkOptions, CongestionControl, CongestionError, Directions, Progress, RrOptions,
};
use serde::Serialize;
use tokio::runtime;

use super::display::Display;
use super::entry::{Entry, Report};
use super::figures::Limit;
use super::plan::{CONNECTIONS, DOWNLOAD, LIMIT, REPLY, REQUEST, REQUESTS, Task, UPLOAD, Way};
use super::server::Server;
use crate::meter_command::fresh_key;
use crate::pair::Pair;

/// Everything that is known about one measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Record {
    /// What it came to.
    #[serde(flatten)]
    pub(crate) entry: Entry,
    /// The seed of the link's losses.
    pub(crate) seed: u64,
    /// What the meter measured; nothing if a gateway failed.
    pub(crate) report: Option<Report>,
}

/// What is to be measured.
pub(crate) struct Measurement<'a> {
    /// In which round, from 0.
    pub(crate) round: u32,
    /// What.
    pub(crate) task: Task,
    /// How the traffic crosses the link.
    pub(crate) way: &'a Way,
    /// The link.
    pub(crate) preset: &'a Preset,
    /// The seed of the link's losses.
    pub(crate) seed: u64,
    /// What the link can carry in the direction of the payload.
    pub(crate) limit: Limit,
}

impl Measurement<'_> {
    /// Makes it.
    ///
    /// # Errors
    /// When there is no lab. A gateway or a transfer that fails is a result.
    pub(crate) fn run(&self, display: &Display) -> Result<Record> {
        let lab = Lab::start(self.preset, self.seed).context("cannot start the lab")?;
        let server = Server::start(&lab)?;
        let crossed = self.cross(&lab, server.address, display);
        warn_of(lab.faults());
        let (entry, report) = match crossed {
            Ok(report) => (self.entry(&report), Some(report)),
            Err(error) => (self.failed(format!("{error:#}")), None),
        };
        Ok(Record { entry, seed: self.seed, report })
    }

    /// Crosses the link with the task's traffic.
    fn cross(&self, lab: &Lab, server: SocketAddr, display: &Display) -> Result<Report> {
        let mut pair = match self.way {
            Way::Pair => Some(Pair::start(lab, self.preset)?),
            Way::Plain(_) => None,
        };
        let progress = Progress::default();
        let key = fresh_key()?;
        let report = display.during((self.task, self.way), &progress, || {
            lab.node(Node::Client).run(|| self.traffic(server, key, &progress))
        });
        if let Some(pair) = &mut pair {
            pair.check()?;
        }
        pair.map_or(Ok(()), Pair::stop)?;
        report
    }

    fn failed(&self, why: String) -> Entry {
        let (task, way) = (self.task, self.way.clone());
        Entry { round: self.round, task, way, figures: None, failure: Some(why) }
    }

    fn entry(&self, report: &Report) -> Entry {
        let failure = report.failure(self.way, self.preset.rtt());
        let figures = report.figures(&self.limit).filter(|_| failure.is_none());
        Entry { round: self.round, task: self.task, way: self.way.clone(), figures, failure }
    }

    /// Runs the task's traffic. The calling thread is on the host `client`.
    fn traffic(&self, server: SocketAddr, key: u64, progress: &Progress) -> Result<Report> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the client's runtime")?;
        let bulk = |directions, bytes| BulkOptions {
            directions,
            congestion_control: self.way.congestion_control().cloned(),
            limit: Some(LIMIT),
            progress: progress.clone(),
            ..BulkOptions::new(server, Amount::Bytes(bytes), key)
        };
        let requests = RrOptions {
            server,
            connections: CONNECTIONS,
            count: REQUESTS,
            request: REQUEST,
            reply: REPLY,
            congestion_control: self.way.congestion_control().cloned(),
            limit: Some(LIMIT),
            key,
            progress: progress.clone(),
        };
        Ok(runtime.block_on(async {
            match self.task {
                Task::Download => {
                    Report::Bulk(meter::bulk(&bulk(Directions::Download, DOWNLOAD)).await)
                }
                Task::Upload => Report::Bulk(meter::bulk(&bulk(Directions::Upload, UPLOAD)).await),
                Task::Requests => Report::Rr(meter::request_reply(&requests).await),
            }
        }))
    }
}

/// Whether the lab's hosts can have a congestion control.
///
/// # Errors
/// When there is no lab; the answer of the kernel is the inner result.
pub(crate) fn check(
    preset: &Preset,
    name: &CongestionControl,
) -> Result<Result<(), CongestionError>> {
    let lab = Lab::start(preset, 0).context("cannot start the lab")?;
    Ok([Node::Client, Node::Server]
        .into_iter()
        .try_for_each(|node| lab.node(node).run(|| name.check())))
}

/// A lab that loses packets of its own measures the machine, not the link.
fn warn_of(faults: Faults) {
    if faults != Faults::default() {
        tracing::warn!(?faults, "the machine was too slow for the lab: figures may be too low");
    }
}

/// The limits of both directions: forward (download, replies) and return.
pub(crate) fn limits(preset: &Preset, per: units::Probability) -> [Limit; 2] {
    let rtt: Duration = preset.rtt();
    [preset.forward.rate, preset.ret.rate].map(|rate| Limit { rate, per, rtt })
}
