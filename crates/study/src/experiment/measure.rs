//! One measurement: a fresh lab, one path across it, one task.
//!
//! Every measurement gets its own lab, so that no queue, connection or cached path metric survives
//! from the one before.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use lab::{Faults, Lab, Node, Preset};
use meter::{
    BulkOptions, CongestionControl, CongestionError, Directions, FlowAmount, HttpMode, PageOptions,
    ProgressCounter, RrOptions, Stop,
};
use tokio::runtime;
use units::ByteCount;

use super::default_control::default_control;
use super::entry::{MeasurementEntry, MeasurementRecord, TaskReport, Trail};
use super::figures::LinkLimit;
use super::progress::{ProgressDisplay, watched};
use crate::StudyError;
use crate::meter_server::MeterServer;
use crate::pair::GatewayPair;
use crate::plan::{
    CONNECTIONS, DOWNLOAD, OBJECT, OBJECTS, PAGE_CONNECTIONS, REPLY, REQUEST, REQUESTS, Task,
    TrafficPath, UPLOAD,
};

/// A measurement that is to run in a lab.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement<'a> {
    /// Number of the round, from 0.
    pub(crate) round: u32,
    /// The task to measure.
    pub(crate) task: Task,
    /// Path of the traffic: through the pair or as plain TCP.
    pub(crate) way: &'a TrafficPath,
    /// The link that the traffic crosses.
    pub(crate) preset: &'a Preset,
    /// Seed of the link's loss model.
    pub(crate) seed: u64,
    /// Upper bound of the link in the direction of the payload.
    pub(crate) limit: LinkLimit,
    /// Time limit for the traffic.
    pub(crate) allowance: Duration,
    /// The program that runs the gateways.
    pub(crate) program: &'a Path,
}

impl Measurement<'_> {
    /// Runs the measurement.
    ///
    /// # Errors
    /// If the lab cannot be started. A failing gateway or transfer is a result, not an error.
    pub(crate) fn run(
        &self,
        display: &dyn ProgressDisplay,
    ) -> Result<MeasurementRecord, StudyError> {
        let lab = start(self.preset, self.seed)?;
        let server = MeterServer::start(&lab, Node::Server)?;
        let crossed = self.run_traffic(&lab, server.address, display);
        warn_of(lab.faults());
        // Not the maximum, which a single pause of the machine would decide.
        let lateness = lab.lateness().quantile(0.99).as_secs_f64();
        let (entry, report, trail) = match crossed {
            Ok((report, trail)) => {
                let entry = self.entry(&report);
                let trail = cut_trail(trail, &entry);
                (entry, Some(report), trail)
            }
            Err(error) => (self.failed(error.to_string()), None, Vec::new()),
        };
        let response_seconds =
            report.as_ref().map(TaskReport::response_seconds).unwrap_or_default();
        let lateness_seconds = Some(lateness);
        Ok(MeasurementRecord {
            entry,
            seed: self.seed,
            trail,
            response_seconds,
            lateness_seconds,
            report,
        })
    }

    /// Sends the task's traffic across the link.
    fn run_traffic(
        &self,
        lab: &Lab,
        server: SocketAddr,
        display: &dyn ProgressDisplay,
    ) -> Result<(TaskReport, Trail), StudyError> {
        let progress = ProgressCounter::default();
        let key = meter::fresh_key().map_err(|cause| StudyError::Random { cause })?;
        let (report, trail) = GatewayPair::run_with_pair(lab, self.way, self.program, || {
            let bar = display.begin(self.task, self.way, self.allowance);
            watched(&*bar, &progress, || {
                lab.node(Node::Client).run(|| self.traffic(server, key, &progress))
            })
        })?;
        Ok((report?, trail))
    }

    fn failed(&self, why: String) -> MeasurementEntry {
        MeasurementEntry {
            round: self.round,
            task: self.task,
            way: self.way.clone(),
            figures: None,
            failure: Some(why),
        }
    }

    fn entry(&self, report: &TaskReport) -> MeasurementEntry {
        let failure = report.failure(self.way, self.preset.rtt());
        let figures = failure.is_none().then(|| report.figures(self.task, &self.limit));
        MeasurementEntry {
            round: self.round,
            task: self.task,
            way: self.way.clone(),
            figures,
            failure,
        }
    }

    /// Runs the task's traffic. The calling thread must be on the host `client`.
    fn traffic(
        &self,
        server: SocketAddr,
        key: u64,
        progress: &ProgressCounter,
    ) -> Result<TaskReport, StudyError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|cause| StudyError::Runtime { cause })?;
        let flow = |directions, bytes| self.flow(server, directions, bytes, key, progress);
        let page = |mode| self.page(server, mode, key, progress);
        Ok(runtime.block_on(async {
            match self.task {
                Task::Download => flow(Directions::Download, DOWNLOAD).await,
                Task::Upload => flow(Directions::Upload, UPLOAD).await,
                Task::Page => page(HttpMode::Http10).await,
                Task::PageKeepAlive => page(HttpMode::Http11).await,
                Task::Requests => self.requests(server, key, progress).await,
            }
        }))
    }

    async fn flow(
        &self,
        server: SocketAddr,
        directions: Directions,
        bytes: ByteCount,
        key: u64,
        progress: &ProgressCounter,
    ) -> TaskReport {
        let options = BulkOptions {
            directions,
            congestion_control: self.way.congestion_control().cloned(),
            limit: Some(self.allowance),
            progress: progress.clone(),
            ..BulkOptions::new(server, FlowAmount::Bytes(bytes), key)
        };
        TaskReport::Bulk(meter::bulk(&options).await)
    }

    async fn page(
        &self,
        server: SocketAddr,
        mode: HttpMode,
        key: u64,
        progress: &ProgressCounter,
    ) -> TaskReport {
        let options = PageOptions {
            server,
            mode,
            objects: vec![OBJECT; OBJECTS as usize],
            connections: PAGE_CONNECTIONS,
            congestion_control: self.way.congestion_control().cloned(),
            fresh: None,
            limit: Some(self.allowance),
            key,
            progress: progress.clone(),
            stop: Stop::default(),
        };
        TaskReport::Page(meter::page(&options).await)
    }

    async fn requests(
        &self,
        server: SocketAddr,
        key: u64,
        progress: &ProgressCounter,
    ) -> TaskReport {
        let options = RrOptions {
            server,
            connections: CONNECTIONS,
            count: REQUESTS,
            request: REQUEST,
            reply: REPLY,
            congestion_control: self.way.congestion_control().cloned(),
            limit: Some(self.allowance),
            key,
            progress: progress.clone(),
            stop: Stop::default(),
        };
        TaskReport::Rr(meter::request_reply(&options).await)
    }
}

fn start(preset: &Preset, seed: u64) -> Result<Lab, StudyError> {
    Lab::start(preset, seed).map_err(|cause| StudyError::Lab { cause })
}

/// Drops the samples after the last byte, while both ends only close.
fn cut_trail(mut trail: Trail, entry: &MeasurementEntry) -> Trail {
    if let Some(figures) = entry.figures.filter(|figures| figures.complete) {
        trail.retain(|(at, _)| *at < figures.seconds);
        trail.push((figures.seconds, figures.done));
    }
    trail
}

/// Queries the hosts of a lab.
pub(crate) struct LabHosts(Lab);

impl LabHosts {
    /// Starts a lab to inspect.
    ///
    /// # Errors
    /// If the lab cannot be started.
    pub(crate) fn start(preset: &Preset) -> Result<Self, StudyError> {
        // No packet crosses this lab, so any seed will do.
        start(preset, 0).map(Self)
    }

    /// Default congestion control of the hosts, if the kernel reports it.
    pub(crate) fn default_congestion_control(&self) -> Option<CongestionControl> {
        default_control(&self.0, Node::Server)
    }

    /// Checks that the hosts can use a congestion control.
    ///
    /// # Errors
    /// The kernel's reason for refusing it.
    pub(crate) fn check(&self, name: &CongestionControl) -> Result<(), CongestionError> {
        let hosts = [Node::Client, Node::Server].into_iter();
        hosts.map(|node| self.0.node(node)).try_for_each(|host| host.run(|| name.check()))
    }
}

/// Warns if the lab itself dropped packets: then it measured the machine, not the link.
fn warn_of(faults: Faults) {
    if faults != Faults::default() {
        tracing::warn!(?faults, "this machine was too slow for the lab: figures may be too low");
    }
}

/// Returns the upper bounds of both directions: forward (download, replies), then return.
pub(crate) fn limits(preset: &Preset, per: units::Probability) -> [LinkLimit; 2] {
    let rtt: Duration = preset.rtt();
    let links = [&preset.forward, &preset.ret];
    links.map(|link| LinkLimit { rate: link.peak_rate(preset.mtu), per, rtt })
}
