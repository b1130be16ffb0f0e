//! Writes simulated packets to a capture.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use lab::pcapng::{Packet as Captured, Writer};
use sim::scenario::Run;
use sim::{NodeId, Packet, Tap};
use units::Instant;

use super::At;

/// A capture in progress.
pub(super) struct Capture {
    path: PathBuf,
    file: Rc<RefCell<Inner>>,
}

struct Inner {
    writer: Writer<BufWriter<File>>,
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
        let mut inner = self.file.borrow_mut();
        if inner.failed.is_none() && self.nodes.contains(&node) {
            let bytes = packet.to_bytes();
            let captured = Captured { bytes: &bytes, wall: now.as_nanos(), outgoing };
            let written = inner.writer.packet(&captured);
            inner.failed = written.err();
        }
    }
}

/// Starts capturing a run.
pub(super) fn start(path: &Path, at: At, run: &mut Run) -> Result<Capture> {
    let file = File::create(path).with_context(|| cannot(path))?;
    let (nodes, name) = match at {
        At::Server => (run.servers(), "server"),
        At::Client => (run.clients(), "client"),
        At::Hub => (vec![run.hop()[0]], "hub"),
        At::Terminal => (vec![run.hop()[1]], "terminal"),
    };
    let writer = Writer::new(BufWriter::new(file), name).with_context(|| cannot(path))?;
    let file = Rc::new(RefCell::new(Inner { writer, failed: None }));
    run.world.set_tap(Box::new(Nodes { nodes, file: Rc::clone(&file) }));
    Ok(Capture { path: path.to_owned(), file })
}

impl Capture {
    /// Finishes the file.
    pub(super) fn end(self, run: &mut Run) -> Result<()> {
        drop(run.world.take_tap());
        let mut inner = self.file.borrow_mut();
        let failed = inner.failed.take();
        let flushed = failed.map_or_else(|| inner.writer.flush(), Err);
        flushed.with_context(|| cannot(&self.path))
    }
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
