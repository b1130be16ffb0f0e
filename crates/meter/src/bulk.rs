//! Bulk transfer: N flows of B bytes or T seconds, down, up or both.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::SockRef;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;
use units::{BitRate, ByteCount};

use crate::amount::Amount;
use crate::bulk_arrange;
use crate::bulk_flow;
use crate::congestion::CongestionControl;
use crate::flow::{self, FlowError};
use crate::flow_report::FlowReport;
use crate::report::Progress;
use crate::sockets::SocketOptions;
use crate::window::Window;
use stats::jain_index;

/// Which way a flow's payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
}

/// Which flows a bulk transfer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// Downloads only.
    Download,
    /// Uploads only.
    Upload,
    /// As many of the one as of the other, at the same time.
    Both,
}

impl Directions {
    /// Each direction.
    pub fn each(self) -> &'static [Direction] {
        match self {
            Self::Download => &[Direction::Download],
            Self::Upload => &[Direction::Upload],
            Self::Both => &[Direction::Download, Direction::Upload],
        }
    }
}

/// A bulk transfer to make.
#[derive(Debug, Clone)]
pub struct BulkOptions {
    /// The meter server.
    pub server: SocketAddr,
    /// Which way the payload goes.
    pub directions: Directions,
    /// Payload of each flow.
    pub amount: Amount,
    /// How many flows in each direction.
    pub flows: u32,
    /// From the start of one flow to the start of the next in its direction.
    pub spacing: Duration,
    /// The most that the application of each flow sends in a time.
    pub cap: Option<BitRate>,
    /// The congestion control of the sending sockets; `None`: their default.
    pub congestion_control: Option<CongestionControl>,
    /// `SO_SNDBUF` of the sending sockets; `None`: the kernel's own tuning.
    pub send_buffer: Option<ByteCount>,
    /// `SO_RCVBUF` of the receiving sockets; `None`: the kernel's own tuning.
    /// In an upload the server sets it when the connection is open: the window
    /// that it offered until then (64 kB) stays for the first flight.
    /// [`BulkOptions::window`] holds from the start.
    pub receive_buffer: Option<ByteCount>,
    /// The window that the receiving sockets advertise; `None`: the kernel's own
    /// tuning. In an upload the server listens on a port of its own for it.
    pub window: Option<Window>,
    /// How long each flow may take; `None`: as long as something moves.
    pub limit: Option<Duration>,
    /// Key of the payload. A fresh one for each run keeps old bytes from
    /// passing for new ones.
    pub key: u64,
    /// Counts the bytes at the receivers while the transfer runs.
    pub progress: Progress,
}

impl BulkOptions {
    /// One download of `amount` with everything else as the kernels have it.
    pub fn new(server: SocketAddr, amount: Amount, key: u64) -> Self {
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
            progress: Progress::default(),
        }
    }

    /// What the socket that sends is to have.
    pub(crate) fn sender(&self) -> SocketOptions {
        SocketOptions {
            congestion_control: self.congestion_control.clone(),
            send_buffer: self.send_buffer,
            receive_buffer: None,
        }
    }

    /// Lets the socket of a download advertise the window asked for.
    fn prepare(&self, direction: Direction, socket: TcpSocket) -> Result<TcpSocket, FlowError> {
        if let Some(window) = self.window.filter(|_| direction == Direction::Download) {
            window.prepare(&SockRef::from(&socket))?;
        }
        Ok(socket)
    }

    /// What the socket that receives is to have.
    pub(crate) fn receiver(&self) -> SocketOptions {
        SocketOptions { receive_buffer: self.receive_buffer, ..SocketOptions::default() }
    }
}

/// What came of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkReport {
    /// The meter server.
    pub server: SocketAddr,
    /// Which way the payload went.
    pub directions: Directions,
    /// Payload of each flow.
    pub amount: Amount,
    /// The congestion control that was asked for.
    pub congestion_control: Option<CongestionControl>,
    /// Each flow, in order: the downloads, then the uploads.
    pub flows: Vec<FlowReport>,
    /// The flows of each direction together.
    pub sums: Vec<DirectionSum>,
    /// Bytes that the receivers had, all flows together.
    pub moved_bytes: u64,
    /// Completion time: from the start of the first flow to the end of the last.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// All bytes moved over that time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Jain's fairness index of all flows' goodput.
    pub jain_index: Option<f64>,
}

/// The flows of one direction together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionSum {
    /// Which way.
    pub direction: Direction,
    /// Bytes that the receivers had.
    pub moved_bytes: u64,
    /// From the start of the transfer to the end of the last of these flows.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// These bytes over that time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Jain's fairness index of these flows' goodput.
    pub jain_index: Option<f64>,
    /// Segments that the senders' kernels retransmitted, as far as they said.
    pub retransmitted_segments: u64,
}

impl DirectionSum {
    fn of(direction: Direction, flows: &[FlowReport]) -> Self {
        let flows = || flows.iter().filter(|flow| flow.direction == direction);
        let moved_bytes = flows().map(|flow| flow.moved_bytes).sum();
        let total = flows().map(|flow| flow.start + flow.total).max().unwrap_or_default();
        let sent = flows().filter_map(|flow| flow.sender.as_ref());
        Self {
            direction,
            moved_bytes,
            total,
            goodput: BitRate::average(ByteCount::new(moved_bytes), total),
            jain_index: fairness(flows()),
            retransmitted_segments: sent.map(|sender| sender.retransmitted_segments).sum(),
        }
    }
}

fn fairness<'a>(flows: impl Iterator<Item = &'a FlowReport>) -> Option<f64> {
    let rate = |flow: &FlowReport| flow.goodput.map_or(0.0, |g| g.bits_per_second() as f64);
    jain_index(&flows.map(rate).collect::<Vec<f64>>())
}

impl BulkReport {
    fn new(options: &BulkOptions, mut flows: Vec<FlowReport>) -> Self {
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

    /// Whether every flow completed.
    pub fn is_complete(&self) -> bool {
        self.flows.iter().all(|flow| flow.outcome.is_complete())
    }
}

/// Makes a bulk transfer. What goes wrong is in the report, flow by flow.
pub async fn bulk(options: &BulkOptions) -> BulkReport {
    let mut tasks = JoinSet::new();
    let mut arranged = bulk_arrange::uploads(options).await;
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
            let socket = flow::open(options.server, &local);
            let socket = socket.and_then(|socket| options.prepare(direction, socket));
            let arranged = match direction {
                Direction::Upload => arranged.pop(),
                Direction::Download => None,
            };
            let flow = bulk_flow::run(options.clone(), report, begin, start, socket, arranged);
            tasks.spawn(flow);
            index += 1;
        }
    }
    BulkReport::new(options, tasks.join_all().await)
}
