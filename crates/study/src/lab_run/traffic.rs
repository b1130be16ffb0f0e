//! Applications on the kernel's TCP, by the meter.

use std::thread;
use std::time::Duration;

use meter::{
    BulkOptions, CongestionControl, Directions, FlowAmount, FlowOutcome, HttpMode, PageOptions,
    ProgressCounter, RrOptions, Stop,
};
use os::clock;
use scenario::{FetchMethod, FlowTraffic, ScenarioFlow};
use sim::{AppStats, WorkUnit};
use tokio::runtime;
use tokio::time::sleep;
use units::{ByteCount, Instant};

use super::hosts::HostTcp;
use super::{CaseInLab, LabRunError, limits};

/// Time for which caches may use objects, in seconds: longer than any case takes.
const FRESH: u32 = 86_400;
/// Size of a transfer that ends by its time: more than any can move.
const ENDLESS: ByteCount = ByteCount::new(1 << 50);

impl CaseInLab<'_> {
    /// Runs one application of a flow on the kernel's TCP, or its datagrams.
    pub(super) fn application(
        &self,
        flow: &ScenarioFlow,
        number: u32,
    ) -> Result<AppStats, LabRunError> {
        if let FlowTraffic::Udp { .. } = &flow.traffic {
            return self.datagrams(flow, number);
        }
        let HostTcp::Kernel(controls) = limits::hosts_of(self.case, flow) else {
            return Ok(AppStats::default());
        };
        self.run_application(flow, number, controls, Self::start(flow, number))
    }

    /// Fills the caches on the path with the pages that flows will load. Takes as long as the pages
    /// do.
    pub(super) fn fill_caches(&self) -> Result<(), LabRunError> {
        let pages =
            self.case.flows.iter().filter(|flow| matches!(flow.traffic, FlowTraffic::Page { .. }));
        for flow in pages {
            let HostTcp::Kernel(controls) = limits::hosts_of(self.case, flow) else { continue };
            // On another thread, because `run_application` moves its thread to the client's host.
            let warming = thread::scope(|scope| {
                let all = scope.spawn(|| self.run_application(flow, 0, controls, Duration::ZERO));
                all.join().map_err(|_| LabRunError::Panicked)?
            })?;
            if !warming.done {
                let what = "it did not load while the cache was filled".to_owned();
                return Err(LabRunError::Wrong { flow: flow.name.clone(), what });
            }
        }
        Ok(())
    }

    fn run_application(
        &self,
        flow: &ScenarioFlow,
        number: u32,
        controls: [CongestionControl; 2],
        start: Duration,
    ) -> Result<AppStats, LabRunError> {
        // The key is part of an object's URL, so filling and measuring must use the same one.
        let key = self.cached.map_or_else(meter::fresh_key, Ok)?;
        let client = self.lab.node(self.client(number)).clone();
        client.enter()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let one = Application { stage: self, flow, controls, key, start };
        runtime.block_on(one.run())
    }
}

/// One application on the kernel's TCP.
struct Application<'a> {
    stage: &'a CaseInLab<'a>,
    flow: &'a ScenarioFlow,
    /// Congestion controls of the client and of the server.
    controls: [CongestionControl; 2],
    key: u64,
    start: Duration,
}

impl Application<'_> {
    async fn run(&self) -> Result<AppStats, LabRunError> {
        sleep(clock::until(self.stage.origin + self.start)).await;
        match &self.flow.traffic {
            FlowTraffic::Bulk { direction, amount } => {
                self.bulk(limits::is_up(*direction), *amount).await
            }
            FlowTraffic::Request { request, reply, repeat, .. } => {
                self.requests([*request, *reply], *repeat).await
            }
            FlowTraffic::Page { method, request, objects, think, repeat, .. } => {
                self.pages(*method, *request, objects, *repeat, *think).await
            }
            // can_run refuses these; datagrams have no connection.
            FlowTraffic::Users { .. }
            | FlowTraffic::Ftp { .. }
            | FlowTraffic::Mail { .. }
            | FlowTraffic::Bundles { .. }
            | FlowTraffic::Udp { .. } => Ok(AppStats::default()),
        }
    }

    /// Creates the tally of an application that begins at its start time.
    fn tally(&self) -> AppStats {
        AppStats { began: at(self.start), ..AppStats::default() }
    }

    /// Returns the part of the case's time that is left.
    fn left(&self, begun: Duration) -> Duration {
        self.stage.case.time.saturating_sub(begun)
    }

    async fn bulk(&self, up: bool, amount: scenario::FlowSize) -> Result<AppStats, LabRunError> {
        // The client learns later what has arrived at the server.
        let lag = if up { self.stage.downlink_delay() } else { Duration::ZERO };
        let left = self.left(self.start);
        let (bytes, time) = match amount {
            scenario::FlowSize::Bytes(bytes) => (bytes, left),
            scenario::FlowSize::Time(time) => (ENDLESS, time.min(left)),
        };
        let [client, server] = &self.controls;
        let options = BulkOptions {
            directions: if up { Directions::Upload } else { Directions::Download },
            // The sender's, because only it has data to control.
            congestion_control: Some(if up { client } else { server }.clone()),
            limit: Some(time + lag),
            ..BulkOptions::new(self.stage.server, FlowAmount::Bytes(bytes), self.key)
        };
        let report = meter::bulk(&options).await;
        let mut tally = self.tally();
        tally.bytes = report.moved_bytes;
        let took = report.total.saturating_sub(lag);
        tally.last = Some(at(self.start + took));
        let outcomes = report.flows.iter().map(|flow| &flow.outcome);
        let complete = self.count_outcomes(outcomes, &mut tally)?;
        let by_time = matches!(amount, scenario::FlowSize::Time(time) if time <= left);
        if complete || (by_time && tally.failures == 0) {
            let end = at(self.start + if by_time { time } else { took });
            tally.work_units.push(WorkUnit { begin: tally.began, end, bytes: tally.bytes });
            tally.done = true;
        }
        Ok(tally)
    }

    async fn requests(&self, sizes: [u64; 2], repeat: u64) -> Result<AppStats, LabRunError> {
        let [request, reply] = sizes.map(ByteCount::new);
        let options = RrOptions {
            server: self.stage.server,
            connections: 1,
            count: u32::try_from(repeat).unwrap_or(u32::MAX),
            request,
            reply,
            congestion_control: Some(self.controls[1].clone()),
            limit: Some(self.left(self.start)),
            key: self.key,
            progress: ProgressCounter::default(),
            stop: Stop::default(),
        };
        let report = meter::request_reply(&options).await;
        let mut tally = self.tally();
        // `can_run` permits no pause between requests, so each begins where the one before it ended.
        let mut begin = self.start;
        let bytes = sizes[0] + sizes[1];
        for response in report.connections.iter().flat_map(|connection| &connection.responses) {
            let end = begin + response.time;
            tally.work_units.push(WorkUnit { begin: at(begin), end: at(end), bytes });
            begin = end;
        }
        tally.bytes = bytes * tally.work_units.len() as u64;
        tally.last = tally.work_units.last().map(|deed| deed.end);
        let outcomes = report.connections.iter().map(|connection| &connection.outcome);
        tally.done = self.count_outcomes(outcomes, &mut tally)?;
        Ok(tally)
    }

    async fn pages(
        &self,
        method: FetchMethod,
        request: u64,
        objects: &[u64],
        repeat: u64,
        think: Duration,
    ) -> Result<AppStats, LabRunError> {
        let mut tally = self.tally();
        let bytes: u64 = objects.iter().sum();
        for page in 0..repeat {
            let begun = clock::now().saturating_since(self.stage.origin);
            let Some(took) = self.page(method, objects, begun, &mut tally).await? else {
                return Ok(tally);
            };
            let end = at(begun + took);
            tally.work_units.push(WorkUnit { begin: at(begun), end, bytes });
            tally.bytes += bytes + request * objects.len() as u64;
            tally.last = Some(end);
            if page + 1 < repeat {
                sleep(think).await;
            }
        }
        tally.done = true;
        Ok(tally)
    }

    /// Loads the document and then the rest; returns the time it took, if the page is complete.
    async fn page(
        &self,
        method: FetchMethod,
        objects: &[u64],
        begun: Duration,
        tally: &mut AppStats,
    ) -> Result<Option<Duration>, LabRunError> {
        // With one kept connection the order of the objects is that of their arrival anyway.
        let (document, rest) = match method {
            FetchMethod::Http10(_) => objects.split_at(1),
            _ => (objects, &[][..]),
        };
        let mut took = Duration::ZERO;
        let mut key = self.key;
        for part in [document, rest].into_iter().filter(|part| !part.is_empty()) {
            let options = PageOptions {
                server: self.stage.server,
                mode: mode(method),
                objects: part.iter().copied().map(ByteCount::new).collect(),
                connections: method.connections(),
                congestion_control: Some(self.controls[1].clone()),
                fresh: self.stage.cached.map(|_| FRESH),
                limit: Some(self.left(begun + took)),
                key,
                progress: ProgressCounter::default(),
                stop: Stop::default(),
            };
            // A terminal would have an object in its cache the second time.
            key = key.wrapping_add(1);
            let report = meter::page(&options).await;
            took += report.total;
            let outcomes = report.objects.iter().map(|object| &object.outcome);
            if !self.count_outcomes(outcomes, tally)? {
                return Ok(None);
            }
        }
        Ok(Some(took))
    }

    /// Returns true if everything is complete. Counts connections that broke; wrong bytes are an
    /// error.
    fn count_outcomes<'o>(
        &self,
        outcomes: impl Iterator<Item = &'o FlowOutcome>,
        tally: &mut AppStats,
    ) -> Result<bool, LabRunError> {
        let mut complete = true;
        for outcome in outcomes {
            complete &= outcome.is_complete();
            match outcome {
                FlowOutcome::Complete | FlowOutcome::Unfinished => {}
                FlowOutcome::Corrupt { offset } => {
                    let what = format!("byte {offset} differs from the one sent");
                    return Err(LabRunError::Wrong { flow: self.flow.name.clone(), what });
                }
                other => {
                    tracing::warn!(flow = self.flow.name, ?other, "a connection broke");
                    tally.failures += 1;
                }
            }
        }
        Ok(complete)
    }
}

fn mode(method: FetchMethod) -> HttpMode {
    match method {
        FetchMethod::Http10(_) => HttpMode::Http10,
        FetchMethod::KeepAlive(_) => HttpMode::Http11,
        FetchMethod::Pipelining(_) => HttpMode::Http11Pipelined,
    }
}

/// Returns a time after the time zero of the case.
pub(super) fn at(after: Duration) -> Instant {
    Instant::ZERO + after
}
