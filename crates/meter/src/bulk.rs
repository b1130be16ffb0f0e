//! Bulk transfer: N flows of B bytes or T seconds, down, up or both.

mod arrange;
mod connection;

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::SockRef;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;
use units::{BitRate, ByteCount};

use crate::flow::outcome::ProgressCounter;
use crate::flow::report::FlowReport;
use crate::flow::stop::Stop;
use crate::flow::{self, FlowError};
use crate::protocol::amount::FlowAmount;
use crate::protocol::direction::{Direction, Directions};
use crate::sockets::SocketOptions;
use crate::sockets::congestion::CongestionControl;
use crate::sockets::window::ReceiveWindow;
use stats::jain_index;

/// The options of a bulk transfer.
#[derive(Debug, Clone)]
pub struct BulkOptions {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// The directions of the payload.
    pub directions: Directions,
    /// Payload of each flow: a number of bytes, or a sending time.
    pub amount: FlowAmount,
    /// Number of flows in each direction.
    pub flows: u32,
    /// Interval between the starts of flows in the same direction.
    pub spacing: Duration,
    /// Maximum sending rate of each flow's application.
    pub cap: Option<BitRate>,
    /// Congestion control of the sending sockets; `None` for their default.
    pub congestion_control: Option<CongestionControl>,
    /// `SO_SNDBUF` of the sending sockets; `None` for the kernel's auto-tuning.
    pub send_buffer: Option<ByteCount>,
    /// `SO_RCVBUF` of the receiving sockets; `None` for the kernel's auto-tuning. In an upload the
    /// server sets it once the connection is open, so the window offered until then (64 kB) limits
    /// the first flight. [`BulkOptions::window`] applies from the start.
    pub receive_buffer: Option<ByteCount>,
    /// The window advertised by the receiving sockets; `None` for the kernel's auto-tuning. In an
    /// upload the server listens on a separate port for it.
    pub window: Option<ReceiveWindow>,
    /// Time limit per flow; `None` for no limit while data is moving.
    pub limit: Option<Duration>,
    /// Payload key. A new one for each run prevents old bytes from passing for new ones.
    pub key: u64,
    /// Counts bytes at the receivers while the transfer runs.
    pub progress: ProgressCounter,
    /// Ends the measurement early; the report has what was measured so far.
    pub stop: Stop,
}

impl BulkOptions {
    /// A single download of `amount` with the kernels' default settings.
    pub fn new(server: SocketAddr, amount: FlowAmount, key: u64) -> Self {
        Self {
            server,
            directions: Directions::Download,
            amount,
            flows: 1,
            spacing: Duration::ZERO,
            cap: None,
            congestion_control: None,
            send_buffer: None,
            receive_buffer: None,
            window: None,
            limit: None,
            key,
            progress: ProgressCounter::default(),
            stop: Stop::default(),
        }
    }

    /// Options of the sending socket.
    pub(crate) fn sender(&self) -> SocketOptions {
        SocketOptions {
            congestion_control: self.congestion_control.clone(),
            send_buffer: self.send_buffer,
            receive_buffer: None,
        }
    }

    /// Makes the socket of a download advertise the requested window.
    fn set_window(&self, direction: Direction, socket: TcpSocket) -> Result<TcpSocket, FlowError> {
        if let Some(window) = self.window.filter(|_| direction == Direction::Download) {
            window.prepare(&SockRef::from(&socket))?;
        }
        Ok(socket)
    }

    /// Options of the receiving socket.
    pub(crate) fn receiver(&self) -> SocketOptions {
        SocketOptions { receive_buffer: self.receive_buffer, ..SocketOptions::default() }
    }
}

/// The result of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkReport {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// The directions of the payload.
    pub directions: Directions,
    /// Payload requested of each flow.
    pub amount: FlowAmount,
    /// The requested congestion control; `None` for the senders' default.
    pub congestion_control: Option<CongestionControl>,
    /// Each flow in order: downloads, then uploads.
    pub flows: Vec<FlowReport>,
    /// Sums over the flows of each direction.
    pub sums: Vec<DirectionSum>,
    /// Payload bytes received, over all flows.
    pub moved_bytes: u64,
    /// Completion time: from the start of the first flow to the end of the last.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// All bytes received over that time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Jain's fairness index of all flows' goodput.
    pub jain_index: Option<f64>,
}

/// Sums over the flows of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionSum {
    /// The direction that the sums are for.
    pub direction: Direction,
    /// Payload bytes received, over the flows of this direction.
    pub moved_bytes: u64,
    /// From the start of the transfer to the end of the last of these flows.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// These bytes over that time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Jain's fairness index of these flows' goodput.
    pub jain_index: Option<f64>,
    /// Segments retransmitted by the senders' kernels; `None` if none of them has reported.
    pub retransmitted_segments: Option<u64>,
}

impl DirectionSum {
    fn of(direction: Direction, flows: &[FlowReport]) -> Self {
        let flows = || flows.iter().filter(|flow| flow.direction == direction);
        let moved_bytes = flows().map(|flow| flow.moved_bytes).sum();
        let total = flows().map(|flow| flow.start + flow.total).max().unwrap_or_default();
        // Without a report of a sender, retransmissions are unknown, not zero.
        let sent = flows().filter_map(|flow| flow.sender.as_ref());
        Self {
            direction,
            moved_bytes,
            total,
            goodput: BitRate::average(ByteCount::new(moved_bytes), total),
            jain_index: fairness(flows()),
            retransmitted_segments: sent
                .map(|sender| sender.retransmitted_segments)
                .reduce(u64::saturating_add),
        }
    }
}

fn fairness<'a>(flows: impl Iterator<Item = &'a FlowReport>) -> Option<f64> {
    let rate = |flow: &FlowReport| flow.goodput.map_or(0.0, |g| g.bits_per_second() as f64);
    jain_index(&flows.map(rate).collect::<Vec<f64>>())
}

impl BulkReport {
    fn new(options: &BulkOptions, mut flows: Vec<FlowReport>) -> Self {
        // Tasks end in any order.
        flows.sort_by_key(|flow| flow.flow);
        let moved_bytes = flows.iter().map(|flow| flow.moved_bytes).sum();
        let total = flows.iter().map(|flow| flow.start + flow.total).max().unwrap_or_default();
        let sum = |direction: &Direction| DirectionSum::of(*direction, &flows);
        Self {
            server: options.server,
            directions: options.directions,
            amount: options.amount,
            congestion_control: options.congestion_control.clone(),
            sums: options.directions.each().iter().map(sum).collect(),
            moved_bytes,
            total,
            goodput: BitRate::average(ByteCount::new(moved_bytes), total),
            jain_index: fairness(flows.iter()),
            flows,
        }
    }

    /// Returns true if every flow completed and was verified.
    pub fn is_complete(&self) -> bool {
        self.flows.iter().all(|flow| flow.outcome.is_complete())
    }
}

/// Runs a bulk transfer. Errors are in the report, flow by flow.
pub async fn bulk(options: &BulkOptions) -> BulkReport {
    let mut tasks = JoinSet::new();
    // Arranging takes a round trip per upload, which must not count as part of the transfer.
    let mut arranged = arrange::arrange_uploads(options).await;
    let begin = Instant::now();
    let mut index = 0;
    for &direction in options.directions.each() {
        for nth in 0..options.flows {
            let report = FlowReport::new(index, direction, options.amount.bytes());
            let start = begin + options.spacing.saturating_mul(nth);
            let local = match direction {
                Direction::Download => options.receiver(),
                Direction::Upload => options.sender(),
            };
            // Opened on this thread: the socket stays in its network namespace wherever the task
            // runs.
            let socket = flow::open(options.server, &local);
            let socket = socket.and_then(|socket| options.set_window(direction, socket));
            let arranged = match direction {
                // The ports are equivalent, so any of them will do.
                Direction::Upload => arranged.pop(),
                Direction::Download => None,
            };
            let flow = connection::run(options.clone(), report, begin, start, socket, arranged);
            tasks.spawn(flow);
            index += 1;
        }
    }
    BulkReport::new(options, tasks.join_all().await)
}
