//! Captures both ends of each link to files while the lab runs.
//!
//! A separate thread empties a [`Tap`] at each end, so the driver never waits for it. Packets that
//! arrive faster than the disk can write are dropped and counted.

use core::time::Duration;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};

use os::packet::Tap;
use report::pcapng::{self, WrittenPacket};
use thiserror::Error;

use crate::preset::PresetLinks as _;
use crate::topology::crossing::Crossing;
use crate::{LAN_DEVICE, Lab, Node};

/// Interval at which the taps are emptied. Their rings hold 50 ms at 150,000 packets a second.
const TICK: Duration = Duration::from_millis(5);

/// The reason why a capture failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file cannot be created or written.
    #[error("cannot write the capture {}: {cause}", path.display())]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
    /// The device cannot be captured.
    #[error("cannot capture on {node}: {cause}")]
    Tap {
        /// The host of the device.
        node: Node,
        /// The error of the packet socket.
        cause: io::Error,
    },
}

/// The result of a capture.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CaptureSummary {
    /// Packets written, over all ends.
    pub written: u64,
    /// Packets that were not captured because the rings were full.
    pub dropped: u64,
    /// The error that ended the capture early, if any.
    pub error: Option<CaptureError>,
}

/// A running capture. Dropping it ends it.
pub struct LabCapture {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<CaptureSummary>>,
}

impl LabCapture {
    /// Captures all packets on the links of `lab`, with one file in `directory` for each end of a
    /// link. The directory is created if necessary. The files are `terminal.pcapng`, `hub.pcapng`,
    /// `terminal2.pcapng` and so on, and for a terrestrial link `hub-lan0.pcapng` and
    /// `server.pcapng`.
    ///
    /// # Errors
    /// If a file cannot be created or a device cannot be captured.
    pub fn start(lab: &Lab, directory: &Path) -> Result<Self, CaptureError> {
        let file_error = |path: &Path| {
            let path = path.to_owned();
            |cause| CaptureError::File { path, cause }
        };
        std::fs::create_dir_all(directory).map_err(file_error(directory))?;
        let side = |crossing: Crossing| {
            let Crossing { from: node, device, mtu, .. } = crossing;
            let path = directory.join(file_name(node, device));
            let file = BufWriter::new(File::create(&path).map_err(file_error(&path))?);
            // A snap length of zero keeps packets whole.
            let file = pcapng::CaptureWriter::begin(file, device, 0).map_err(file_error(&path))?;
            let tap = lab.node(node).run(|| Tap::open(device, mtu));
            let tap = tap.map_err(|cause| CaptureError::Tap { node, cause })?;
            Ok(CaptureSide { tap, file, path, written: 0, last: 0 })
        };
        let sides = lab.preset().extent().crossings().into_iter().map(side);
        // All devices are open before this returns, so the captures begin with the first packet.
        let sides = sides.collect::<Result<Vec<_>, _>>()?;
        let (stop, stopped) = channel();
        let body = move || run(sides, &stopped);
        let thread = thread::Builder::new().name("skyhop-capture".into()).spawn(body);
        let thread = thread.map_err(|cause| CaptureError::Tap { node: Node::Hub, cause })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Ends the capture and returns its result.
    pub fn finish(mut self) -> CaptureSummary {
        self.stop()
    }

    fn stop(&mut self) -> CaptureSummary {
        // The thread ends when this end of its channel is gone.
        drop(self.stop.take());
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for LabCapture {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A router has two devices; the file of the one on the hop has the plain name.
fn file_name(node: Node, device: &str) -> String {
    if (node, device) == (Node::Hub, LAN_DEVICE) {
        return format!("{node}-{device}.pcapng");
    }
    format!("{node}.pcapng")
}

/// One end of a link.
struct CaptureSide {
    tap: Tap,
    file: pcapng::CaptureWriter<BufWriter<File>>,
    path: PathBuf,
    written: u64,
    /// The time of the last packet, in nanoseconds since 1970.
    last: u64,
}

impl CaptureSide {
    /// Writes the packets captured since the last call.
    fn drain(&mut self) -> Result<(), CaptureError> {
        let mut done = Ok(());
        self.tap.drain(|frame| {
            // After an error the ring is still emptied, but nothing more is written.
            if done.is_ok() {
                let bytes = frame.bytes;
                let wall = frame.wall;
                let outgoing = frame.outgoing;
                self.last = wall;
                done =
                    self.file.write(&WrittenPacket { bytes, length: bytes.len(), wall, outgoing });
                self.written += u64::from(done.is_ok());
            }
        });
        done.map_err(|cause| CaptureError::File { path: self.path.clone(), cause })
    }

    /// Completes the file with what was not captured, if anything.
    fn finish(&mut self) -> Result<(), CaptureError> {
        let written = match self.tap.missed() {
            0 => Ok(()),
            dropped => self.file.write_dropped(self.last, dropped),
        };
        let flushed = written.and_then(|()| self.file.flush());
        flushed.map_err(|cause| CaptureError::File { path: self.path.clone(), cause })
    }
}

fn run(mut sides: Vec<CaptureSide>, stopped: &Receiver<()>) -> CaptureSummary {
    let mut error = None;
    while error.is_none() && stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        error = sides.iter_mut().find_map(|side| side.drain().err());
    }
    // Once more, for the packets since the last tick.
    let last = |side: &mut CaptureSide| side.drain().and_then(|()| side.finish()).err();
    let error = error.or_else(|| sides.iter_mut().filter_map(last).next());
    let written = sides.iter().map(|side| side.written).sum();
    let dropped = sides.iter_mut().map(|side| side.tap.missed()).sum();
    CaptureSummary { written, dropped, error }
}
