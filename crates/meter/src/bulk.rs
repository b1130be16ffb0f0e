//! Bulk transfer: N flows of B bytes, down or up.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use units::{BitRate, ByteCount};

use crate::answer::{Answer, Receipt};
use crate::congestion::CongestionControl;
use crate::flow::{self, FlowError};
use crate::payload::{Payload, Side, flow_key};
use crate::report::{FlowReport, Outcome, Progress};
use crate::request::{Request, Work};
use crate::stats::jain_index;
use crate::stream::{Sink, Source};

/// Which way the payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the server to the client.
    Download,
    /// From the client to the server.
    Upload,
}

/// A bulk transfer to make.
#[derive(Debug, Clone)]
pub struct BulkOptions {
    /// The meter server.
    pub server: SocketAddr,
    /// Which way the payload goes.
    pub direction: Direction,
    /// Payload of each flow.
    pub bytes: ByteCount,
    /// How many flows, all started at once.
    pub flows: u32,
    /// The congestion control of the sending sockets; `None`: their default.
    pub congestion_control: Option<CongestionControl>,
    /// How long each flow may take; `None`: as long as something moves.
    pub limit: Option<Duration>,
    /// Key of the payload. A fresh one for each run keeps old bytes from
    /// passing for new ones.
    pub key: u64,
    /// Counts the bytes at the receivers while the transfer runs.
    pub progress: Progress,
}

/// What came of a bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkReport {
    /// The meter server.
    pub server: SocketAddr,
    /// Which way the payload went.
    pub direction: Direction,
    /// The congestion control that was asked for.
    pub congestion_control: Option<CongestionControl>,
    /// Each flow, in order.
    pub flows: Vec<FlowReport>,
    /// Bytes that the receivers had, all flows together.
    pub moved_bytes: u64,
    /// The time of the slowest flow.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// All bytes moved over that time.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Jain's fairness index of the flows' goodput.
    pub jain_index: Option<f64>,
}

impl BulkReport {
    fn new(options: &BulkOptions, mut flows: Vec<FlowReport>) -> Self {
        flows.sort_by_key(|flow| flow.flow);
        let moved_bytes = flows.iter().map(|flow| flow.moved_bytes).sum();
        let total = flows.iter().map(|flow| flow.total).max().unwrap_or_default();
        let rate = |flow: &FlowReport| flow.goodput.map_or(0.0, |g| g.bits_per_second() as f64);
        let shares: Vec<f64> = flows.iter().map(rate).collect();
        Self {
            server: options.server,
            direction: options.direction,
            congestion_control: options.congestion_control.clone(),
            flows,
            moved_bytes,
            total,
            goodput: BitRate::average(ByteCount::new(moved_bytes), total),
            jain_index: jain_index(&shares),
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
    for index in 0..options.flows {
        let sender = options.congestion_control.as_ref();
        let local = sender.filter(|_| options.direction == Direction::Upload);
        let socket = flow::open(options.server, local);
        tasks.spawn(run(options.clone(), index, socket));
    }
    BulkReport::new(options, tasks.join_all().await)
}

async fn run(options: BulkOptions, index: u32, socket: Result<TcpSocket, FlowError>) -> FlowReport {
    let mut report = FlowReport::new(index, options.bytes.get());
    let start = Instant::now();
    let mut flow = Flow { options: &options, start, ended: None, report: &mut report };
    let limit = options.limit.unwrap_or(Duration::MAX);
    let outcome = Outcome::of(timeout(limit, flow.run(socket)).await);
    let ended = flow.ended.unwrap_or_else(Instant::now);
    report.close(outcome, ended - start);
    report
}

/// A running flow. It writes down what it knows as it goes, so that it can be
/// dropped at the time limit.
struct Flow<'a> {
    options: &'a BulkOptions,
    start: Instant,
    /// When the last byte or the receipt came.
    ended: Option<Instant>,
    report: &'a mut FlowReport,
}

impl Flow<'_> {
    async fn run(&mut self, socket: Result<TcpSocket, FlowError>) -> Result<(), FlowError> {
        let mut stream = flow::connect(socket?, self.options.server).await?;
        self.report.connect = Some(self.start.elapsed());
        let key = flow_key(self.options.key, self.report.flow.into());
        match self.options.direction {
            Direction::Download => self.download(&mut stream, key).await,
            Direction::Upload => self.upload(&mut stream, key).await,
        }?;
        flow::in_order(&stream)
    }

    async fn download(&mut self, stream: &mut TcpStream, key: u64) -> Result<(), FlowError> {
        let bytes = self.report.asked_bytes;
        let congestion_control = self.options.congestion_control.clone();
        let request = Request { key, congestion_control, work: Work::Download { bytes } };
        let sent = stream.write_all(&request.encode()).await;
        sent.map_err(FlowError::broken("sending the request"))?;
        flow::read_accepted(stream).await?;
        let mut sink = Sink::new(Payload::new(key, Side::Server));
        while sink.received() < bytes {
            let read = sink.read(stream, bytes).await;
            if read.map_err(FlowError::broken("receiving"))? == 0 {
                break;
            }
            self.moved(sink.received());
            self.report.receive = Some(sink.receipt().span);
        }
        self.ended = Some(Instant::now());
        flow::check(sink.receipt(), bytes)?;
        flow::read_close(stream, bytes).await
    }

    async fn upload(&mut self, stream: &mut TcpStream, key: u64) -> Result<(), FlowError> {
        let bytes = self.report.asked_bytes;
        let request = Request { key, congestion_control: None, work: Work::Upload { bytes } };
        let (mut reader, mut writer) = stream.split();
        let sending = async {
            writer.write_all(&request.encode()).await?;
            Source::new(Payload::new(key, Side::Client)).send(&mut writer, 0..bytes).await?;
            writer.shutdown().await
        };
        let receipt = both(sending, self.read_receipt(&mut reader)).await?;
        self.ended = Some(Instant::now());
        self.report.receive = Some(receipt.span);
        flow::check(receipt, bytes)?;
        flow::read_close(&mut reader, bytes).await
    }

    /// Reads the server's word of progress until its receipt.
    async fn read_receipt<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
    ) -> Result<Receipt, FlowError> {
        loop {
            match flow::read_answer(reader).await? {
                Answer::Progress { bytes } => self.moved(bytes),
                Answer::Receipt(receipt) => {
                    self.moved(receipt.bytes);
                    return Ok(receipt);
                }
                found => return Err(FlowError::Unexpected { found }),
            }
        }
    }

    /// Notes that the receiver has so many bytes.
    fn moved(&mut self, bytes: u64) {
        self.report.first_byte.get_or_insert_with(|| self.start.elapsed());
        self.options.progress.add(bytes.saturating_sub(self.report.moved_bytes));
        self.report.moved_bytes = bytes;
    }
}

/// Sends while waiting for the receipt, which may come first: a refusal.
async fn both(
    sending: impl Future<Output = io::Result<()>>,
    receipt: impl Future<Output = Result<Receipt, FlowError>>,
) -> Result<Receipt, FlowError> {
    tokio::pin!(receipt);
    let sent = tokio::select! {
        receipt = &mut receipt => return receipt,
        sent = sending => sent,
    };
    match (sent, receipt.await) {
        // A refusal also breaks the sending; it is the cause.
        (Err(_), Err(FlowError::Refused(why))) => Err(FlowError::Refused(why)),
        (sent, receipt) => sent.map_err(FlowError::broken("sending")).and(receipt),
    }
}
