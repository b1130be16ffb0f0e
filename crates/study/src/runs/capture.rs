//! Writes simulated packets to a capture.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use report::pcapng::{self, Packet as Captured};
use sim::{NodeId, Packet, Run, Tap};
use thiserror::Error;
use units::Instant;

/// Bytes kept of each packet: all headers, also those of a tunnel. Simulated payload is zeros.
const SNAP_LENGTH: usize = 192;

/// The place where packets are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
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
pub(super) struct Capture {
    path: PathBuf,
    file: Rc<RefCell<Inner>>,
}

struct Inner {
    file: pcapng::Capture<BufWriter<File>>,
    /// First write error; nothing is written after it.
    failed: Option<io::Error>,
}

/// Observes a set of nodes.
struct Nodes {
    nodes: Vec<NodeId>,
    file: Rc<RefCell<Inner>>,
}

impl Tap for Nodes {
    fn packet(&mut self, now: Instant, node: NodeId, outgoing: bool, packet: &Packet) {
        let Inner { file, failed } = &mut *self.file.borrow_mut();
        if failed.is_none() && self.nodes.contains(&node) {
            let whole = packet.to_bytes();
            let bytes = &whole[..whole.len().min(SNAP_LENGTH)];
            let (length, wall) = (whole.len(), now.as_nanos());
            *failed = file.write(&Captured { bytes, length, wall, outgoing }).err();
        }
    }
}

impl Capture {
    /// Starts capturing a run into the file at `path`.
    pub(super) fn start(path: &Path, at: At, run: &mut Run) -> Result<Self, CaptureError> {
        let failed = CaptureError::at(path);
        let file = BufWriter::new(File::create(path).map_err(&failed)?);
        let (nodes, name) = match at {
            At::Server => (run.servers(), "server"),
            At::Client => (run.clients(), "client"),
            At::Hub => (vec![run.hop()[0]], "hub"),
            At::Terminal => (vec![run.hop()[1]], "terminal"),
        };
        let begun = pcapng::Capture::begin(file, name, SNAP_LENGTH as u32);
        let file = Rc::new(RefCell::new(Inner { file: begun.map_err(&failed)?, failed: None }));
        run.world.set_tap(Box::new(Nodes { nodes, file: Rc::clone(&file) }));
        Ok(Self { path: path.to_owned(), file })
    }

    /// Ends the capture and completes the file.
    pub(super) fn end(self, run: &mut Run) -> Result<(), CaptureError> {
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
