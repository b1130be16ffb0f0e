//! One transfer from `server` to the kernel's client, with either sender.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use lab::{CaptureError, LAN_DEVICE, Lab, LabCapture, NetNs, Node, Preset, StartError, TestObject};
use meter::http::head::get;
use meter::{CongestionControl, CongestionError};
use os::station::{Station, StationError, spare_addresses};
use socket2::SockRef;
use tcp::Config;
use thiserror::Error;
use units::{BitRate, ByteCount};

use crate::endpoint::{self, head_of};

const PORT: u16 = 8080;

/// The reason why a transfer failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The lab cannot be started.
    #[error(transparent)]
    Lab(#[from] StartError),
    /// The packets cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The capture does not have all packets.
    #[error("the capture lacks {dropped} packets: the machine is too slow")]
    Dropped {
        /// Packets that were not captured.
        dropped: u64,
    },
    /// Our endpoint cannot be started.
    #[error(transparent)]
    Station(#[from] StationError),
    /// The kernel lacks the congestion control.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// A socket or a device failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The server's host has no IPv4 address.
    #[error("the server has no IPv4 address")]
    NoAddress,
    /// Bytes were changed on the way.
    #[error("received bytes differ from those sent")]
    Different,
    /// The stream goes on after the object.
    #[error("received more bytes than were sent")]
    TooLong,
    /// The server's thread ended before it listened.
    #[error("the server ended")]
    Ended,
    /// The server panicked, which is a bug.
    #[error("the server panicked")]
    Panicked,
}

type Result<T> = core::result::Result<T, TransferError>;

/// The TCP implementation that sends.
#[derive(Clone)]
pub(super) enum SendingTcp {
    Kernel(CongestionControl),
    Ours(Box<Config>),
}

/// A transfer: its object and its link.
pub(super) struct SenderTransfer<'a> {
    pub(super) preset: &'a Preset,
    pub(super) seed: u64,
    pub(super) object: TestObject,
    /// Directory for the captured packets.
    pub(super) pcap: Option<PathBuf>,
}

impl SendingTcp {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Ours(_) => "skyhop",
        }
    }
}

impl SenderTransfer<'_> {
    /// Runs the transfer in its own lab. Returns the goodput in Mbit/s, from the first SYN to the
    /// last byte.
    pub(super) fn run(&self, sender: SendingTcp) -> Result<f64> {
        let object = self.object;
        let lab = Lab::start(self.preset, self.seed)?;
        let capture = self.pcap.as_deref().map(|dir| LabCapture::start(&lab, dir)).transpose()?;
        // Room for one, so that the server need not wait until its address is read.
        let (ready, started) = sync_channel(1);
        let place = lab.node(Node::Server).clone();
        let server = thread::Builder::new().spawn(move || serve(&place, sender, object, &ready))?;
        let Ok(address) = started.recv() else {
            let ended = server.join().map_err(|_| TransferError::Panicked)?;
            return Err(ended.err().unwrap_or(TransferError::Ended));
        };
        let begun = Instant::now();
        let stream = lab.node(Node::Client).run(|| TcpStream::connect(address))?;
        fetch(stream, object)?;
        let time = begun.elapsed();
        server.join().map_err(|_| TransferError::Panicked)??;
        if let Some(captured) = capture.map(LabCapture::finish) {
            if let Some(error) = captured.error {
                return Err(error.into());
            }
            if captured.dropped > 0 {
                return Err(TransferError::Dropped { dropped: captured.dropped });
            }
        }
        let goodput = BitRate::average(ByteCount::new(object.size().get()), time);
        Ok(goodput.map_or(f64::NAN, |rate| rate.bits_per_second() as f64 / 1e6))
    }
}

/// Fetches the object and verifies it.
fn fetch(mut stream: TcpStream, object: TestObject) -> Result<()> {
    let size = object.size().get();
    let request = get(&format!("/{size}B"), "1.1", "server", false);
    stream.write_all(request.as_bytes())?;
    read_head(&mut stream)?;
    let mut got = Vec::new();
    for chunk in object.chunks() {
        got.resize(chunk.len(), 0);
        stream.read_exact(&mut got)?;
        if got != chunk {
            return Err(TransferError::Different);
        }
    }
    // Our endpoint closes only once everything is acknowledged.
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(TransferError::TooLong),
    }
}

fn read_head(stream: &mut TcpStream) -> Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    // Byte by byte, so that nothing of the body is taken along.
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend_from_slice(&byte);
    }
    Ok(())
}

/// Serves one connection on `server`; returns the listening address.
fn serve(
    place: &NetNs,
    sender: SendingTcp,
    object: TestObject,
    ready: &SyncSender<SocketAddr>,
) -> Result<()> {
    place.enter()?;
    match sender {
        SendingTcp::Kernel(congestion) => serve_by_kernel(&congestion, object, ready),
        SendingTcp::Ours(config) => {
            let addresses = spare_addresses(LAN_DEVICE)?;
            let mut station = Station::open(LAN_DEVICE, &addresses)?;
            let own = addresses.iter().find(|own| own.is_ipv4());
            let own = own.ok_or(TransferError::NoAddress)?;
            let _ = ready.send(SocketAddr::new(*own, PORT));
            Ok(endpoint::serve(&mut station, *config, PORT, Some(1), |_| {})?)
        }
    }
}

fn serve_by_kernel(
    congestion: &CongestionControl,
    object: TestObject,
    ready: &SyncSender<SocketAddr>,
) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    congestion.apply(&SockRef::from(&listener))?;
    let _ = ready.send(SocketAddr::from((Node::Server.address4(), PORT)));
    let (mut stream, _) = listener.accept()?;
    read_head(&mut stream)?;
    // Writes head and data together, like our endpoint: a separate segment for the head would shift
    // the link's losses to other data packets.
    let mut waiting = head_of(object).into_bytes();
    for chunk in object.chunks() {
        waiting.extend_from_slice(&chunk);
        stream.write_all(&waiting)?;
        waiting.clear();
    }
    stream.write_all(&waiting)?;
    Ok(())
}
