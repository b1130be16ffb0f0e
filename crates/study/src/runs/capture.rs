//! Writes simulated packets to a capture.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use report::pcapng::{self, WrittenPacket as Captured};
use sim::{NodeId, PacketTap, SimulatedPacket, SimulationRun};
use thiserror::Error;
use units::Instant;

/// Bytes kept of each packet: all headers, also those of a tunnel. Simulated payload is zeros.
const SNAP_LENGTH: usize = 192;

/// The place where packets are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturePoint {
    /// At all servers.
    Server,
    /// At all clients.
    Client,
    /// At the gateway of the hub.
    Hub,
    /// At the first terminal's gateway.
    Terminal,
}

/// A capture that could not be written.
#[derive(Debug, Error)]
#[error("cannot write {}: {cause}", path.display())]
pub struct CaptureError {
    path: PathBuf,
    cause: io::Error,
}

/// A capture of a simulation that is running.
pub(super) struct SimCapture {
    path: PathBuf,
    file: Rc<RefCell<CaptureFile>>,
}

struct CaptureFile {
    file: pcapng::CaptureWriter<BufWriter<File>>,
    /// First write error; nothing is written after it.
    failed: Option<io::Error>,
}

/// Observes a set of nodes.
struct NodeTap {
    nodes: Vec<NodeId>,
    file: Rc<RefCell<CaptureFile>>,
}

impl PacketTap for NodeTap {
    fn packet(&mut self, now: Instant, node: NodeId, outgoing: bool, packet: &SimulatedPacket) {
        let CaptureFile { file, failed } = &mut *self.file.borrow_mut();
        if failed.is_none() && self.nodes.contains(&node) {
            let whole = packet.to_bytes();
            let bytes = &whole[..whole.len().min(SNAP_LENGTH)];
            let length = whole.len();
            let wall = now.as_nanos();
            *failed = file.write(&Captured { bytes, length, wall, outgoing }).err();
        }
    }
}

impl SimCapture {
    /// Starts capturing a run into the file at `path`.
    pub(super) fn start(
        path: &Path,
        at: CapturePoint,
        run: &mut SimulationRun,
    ) -> Result<Self, CaptureError> {
        let failed = CaptureError::at(path);
        let file = BufWriter::new(File::create(path).map_err(&failed)?);
        let (nodes, name) = match at {
            CapturePoint::Server => (run.servers(), "server"),
            CapturePoint::Client => (run.clients(), "client"),
            CapturePoint::Hub => (vec![run.hop()[0]], "hub"),
            CapturePoint::Terminal => (vec![run.hop()[1]], "terminal"),
        };
        let begun = pcapng::CaptureWriter::begin(file, name, SNAP_LENGTH as u32);
        let file =
            Rc::new(RefCell::new(CaptureFile { file: begun.map_err(&failed)?, failed: None }));
        run.world.set_tap(Box::new(NodeTap { nodes, file: Rc::clone(&file) }));
        Ok(Self { path: path.to_owned(), file })
    }

    /// Ends the capture and completes the file.
    pub(super) fn finish(self, run: &mut SimulationRun) -> Result<(), CaptureError> {
        // The tap shares the file; without it nothing is written after the flush.
        drop(run.world.take_tap());
        let mut inner = self.file.borrow_mut();
        let failed = inner.failed.take();
        let flushed = failed.map_or_else(|| inner.file.flush(), Err);
        flushed.map_err(CaptureError::at(&self.path))
    }
}

impl CaptureError {
    fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| Self { path: path.to_owned(), cause }
    }
}
