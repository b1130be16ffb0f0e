//! The demo's upload over a return link with capacity on demand: how long it takes as plain TCP and
//! through the pair, and which slots the terminal was granted.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use lab::{Lab, Node, Preset, allocation_picture};
use meter::{BulkOptions, BulkReport, Directions, FlowAmount};
use report::SvgPicture;
use serde::Serialize;
use tokio::runtime;
use units::ByteCount;

use super::entry::TaskReport;
use crate::StudyError;
use crate::meter_server::MeterServer;
use crate::pair::GatewayPair;
use crate::plan::TrafficPath;

/// Name of the link's preset. A terminal has no capacity until it asks.
pub const PRESET: &str = "vsat-dama-vbdc";
/// Payload of the upload, in bytes.
pub const UPLOAD: ByteCount = ByteCount::new(50_000);
/// Time limit for the upload. Plain TCP takes about half of it.
const LIMIT: Duration = Duration::from_secs(25);

/// An upload over the link.
#[derive(Serialize)]
pub struct OnDemandUpload {
    /// Path of the traffic: through the pair or as plain TCP.
    pub way: TrafficPath,
    /// Seconds until the last byte had arrived; `None` if it did not.
    pub seconds: Option<f64>,
    /// The reason why it did not.
    pub failure: Option<String>,
    /// A picture of the granted slots and of the queue.
    #[serde(skip)]
    pub allocation: SvgPicture,
}

/// Uploads over the link of `preset` by each way, at the same time and each in a lab of its own.
/// `program` is skyhop's own.
///
/// # Errors
/// If a lab cannot be started. A gateway or an upload that fails is a result.
pub(crate) fn run_uploads(
    preset: &Preset,
    ways: &[&TrafficPath],
    seed: u64,
    program: &Path,
) -> Result<Vec<OnDemandUpload>, StudyError> {
    thread::scope(|scope| {
        let start = |way| scope.spawn(move || run(preset, way, seed, program));
        let running: Vec<_> = ways.iter().map(|way| start(*way)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(StudyError::Panicked)))
            .collect()
    })
}

fn run(
    preset: &Preset,
    way: &TrafficPath,
    seed: u64,
    program: &Path,
) -> Result<OnDemandUpload, StudyError> {
    let lab = Lab::start(preset, seed).map_err(|cause| StudyError::Lab { cause })?;
    let server = MeterServer::start(&lab, Node::Server)?;
    let time = match carry(&lab, server.address, way, program) {
        Ok(report) => time(report, way, preset.rtt()),
        Err(error) => Err(error.to_string()),
    };
    let record = lab.recorded_return().unwrap_or_default();
    let allocation = allocation_picture(&record, lab.origin());
    let (seconds, failure) =
        time.map_or_else(|error| (None, Some(error)), |time| (Some(time), None));
    Ok(OnDemandUpload { way: way.clone(), seconds, failure, allocation })
}

/// Runs the upload, through a pair of its own if that is its way.
fn carry(
    lab: &Lab,
    server: SocketAddr,
    way: &TrafficPath,
    program: &Path,
) -> Result<BulkReport, StudyError> {
    let key = meter::fresh_key().map_err(|cause| StudyError::Random { cause })?;
    let options = BulkOptions {
        directions: Directions::Upload,
        congestion_control: way.congestion_control().cloned(),
        limit: Some(LIMIT),
        ..BulkOptions::new(server, FlowAmount::Bytes(UPLOAD), key)
    };
    GatewayPair::run_with_pair(lab, way, program, || {
        // Only now, so that the picture begins with the upload and not with the pair's set-up.
        lab.record_return();
        lab.node(Node::Client).run(|| {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|cause| StudyError::Runtime { cause })?;
            Ok(runtime.block_on(meter::bulk(&options)))
        })
    })?
}

/// Returns the time of a complete upload in seconds, or the failure.
fn time(report: BulkReport, way: &TrafficPath, rtt: Duration) -> Result<f64, String> {
    let seconds = report.total.as_secs_f64();
    let moved = report.moved_bytes;
    match TaskReport::Bulk(report).failure(way, rtt) {
        Some(failure) => Err(failure),
        None if moved < UPLOAD.get() => Err(format!("not finished in {} s", LIMIT.as_secs())),
        None => Ok(seconds),
    }
}

impl OnDemandUpload {
    /// Returns the time in words: `8.1 s with skyhop`.
    pub(crate) fn in_short(&self) -> String {
        match (self.seconds, &self.failure) {
            (Some(seconds), _) => format!("{seconds:.1} s with {}", self.way),
            (None, failure) => {
                format!("{} failed ({})", self.way, failure.as_deref().unwrap_or("no reason"))
            }
        }
    }
}

/// Returns all times in a sentence.
pub(crate) fn in_short(crossings: &[OnDemandUpload]) -> String {
    let each: Vec<_> = crossings.iter().map(OnDemandUpload::in_short).collect();
    format!("Upload of {UPLOAD} with capacity on demand ({PRESET}): {}.", each.join(", "))
}
