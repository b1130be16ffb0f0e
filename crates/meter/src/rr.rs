//! Request/reply: K requests over C connections, each answered.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use units::ByteCount;

use crate::flow::outcome::{FlowOutcome, ProgressCounter};
use crate::flow::stop::Stop;
use crate::flow::stream::{PayloadSink, PayloadSource};
use crate::flow::{self, FlowError};
use crate::protocol::answer::ServerAnswer;
use crate::protocol::payload::{Payload, PayloadSide, flow_key};
use crate::protocol::request::{MeterRequest, RequestedWork};
use crate::sockets::SocketOptions;
use crate::sockets::congestion::CongestionControl;
use stats::SampleSummary;

/// The options of a request/reply measurement. Each connection sends its next request when the
/// reply to the previous one is complete; the connections run in parallel.
#[derive(Debug, Clone)]
pub struct RrOptions {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// Number of connections, all started at once.
    pub connections: u32,
    /// Number of requests, divided evenly among the connections.
    pub count: u32,
    /// Payload bytes of each request.
    pub request: ByteCount,
    /// Payload bytes of each reply.
    pub reply: ByteCount,
    /// Congestion control at both ends; `None` for their default.
    pub congestion_control: Option<CongestionControl>,
    /// Time limit per connection; `None` for no limit while data is moving.
    pub limit: Option<Duration>,
    /// Payload key; a new one for each run.
    pub key: u64,
    /// Counts complete replies while the requests run.
    pub progress: ProgressCounter,
    /// Ends the measurement early; the report has what was measured so far.
    pub stop: Stop,
}

impl RrOptions {
    /// The socket options of either end, since both send.
    fn sockets(&self) -> SocketOptions {
        let congestion_control = self.congestion_control.clone();
        SocketOptions { congestion_control, ..SocketOptions::default() }
    }
}

/// A request with a complete reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RrResponse {
    /// Index of the connection, from 0.
    pub connection: u32,
    /// Index of the request on that connection, from 0. The time of number 0 includes connecting.
    pub index: u32,
    /// From before the first byte of the request was sent (for number 0: from before connecting)
    /// until the last byte of the reply arrived.
    #[serde(rename = "seconds", with = "crate::json::seconds")]
    pub time: Duration,
}

/// The report on one connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RrConnectionReport {
    /// Index of the connection, from 0.
    pub connection: u32,
    /// The outcome of the connection.
    pub outcome: FlowOutcome,
    /// Number of requests it was to make.
    pub asked: u32,
    /// From before connecting until connected.
    #[serde(rename = "connect_seconds", with = "crate::json::maybe_seconds")]
    pub connect: Option<Duration>,
    /// From before connecting until the last byte of the last reply.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// The answered requests, in order.
    pub responses: Vec<RrResponse>,
}

/// The result of a request/reply measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RrReport {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// The requested congestion control; `None` for the default of each end.
    pub congestion_control: Option<CongestionControl>,
    /// Payload bytes of each request.
    pub request_bytes: u64,
    /// Payload bytes of each reply.
    pub reply_bytes: u64,
    /// Each connection, in order of its index.
    pub connections: Vec<RrConnectionReport>,
    /// The time of the slowest connection.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// Response times in seconds, over all connections; `None` if no reply was complete.
    pub response_seconds: Option<SampleSummary>,
}

impl RrReport {
    fn new(options: &RrOptions, mut connections: Vec<RrConnectionReport>) -> Self {
        // Tasks end in any order.
        connections.sort_by_key(|connection| connection.connection);
        let responses = connections.iter().flat_map(|connection| &connection.responses);
        let times: Vec<f64> = responses.map(|response| response.time.as_secs_f64()).collect();
        Self {
            server: options.server,
            congestion_control: options.congestion_control.clone(),
            request_bytes: options.request.get(),
            reply_bytes: options.reply.get(),
            total: connections.iter().map(|c| c.total).max().unwrap_or_default(),
            connections,
            response_seconds: SampleSummary::of(&times),
        }
    }

    /// Returns true if every request was answered and every connection closed in order.
    pub fn is_complete(&self) -> bool {
        self.connections.iter().all(|connection| connection.outcome.is_complete())
    }

    /// Returns the number of requests to be made, over all connections.
    pub fn asked(&self) -> u64 {
        self.connections.iter().map(|connection| u64::from(connection.asked)).sum()
    }

    /// Returns the number of requests answered, over all connections.
    pub fn answered(&self) -> u64 {
        self.connections.iter().map(|connection| connection.responses.len() as u64).sum()
    }
}

/// Runs the requests. Errors are in the report, connection by connection.
pub async fn request_reply(options: &RrOptions) -> RrReport {
    let mut tasks = JoinSet::new();
    for index in 0..options.connections {
        let asked = share(options.count, options.connections, index);
        // More connections than requests: the rest would have nothing to ask.
        if asked == 0 {
            break;
        }
        // Opened on this thread: the socket stays in its network namespace wherever the task runs.
        let socket = flow::open(options.server, &options.sockets());
        tasks.spawn(run(options.clone(), index, asked, socket));
    }
    RrReport::new(options, tasks.join_all().await)
}

/// Returns the number of requests that connection `index` makes, of `count` in all.
fn share(count: u32, connections: u32, index: u32) -> u32 {
    count / connections + u32::from(index < count % connections)
}

async fn run(
    options: RrOptions,
    index: u32,
    asked: u32,
    socket: Result<TcpSocket, FlowError>,
) -> RrConnectionReport {
    let mut report = RrConnectionReport {
        connection: index,
        outcome: FlowOutcome::Unfinished,
        asked,
        connect: None,
        total: Duration::ZERO,
        responses: Vec::new(),
    };
    let start = Instant::now();
    let mut connection =
        RrConnection { options: &options, start, ended: None, report: &mut report };
    let limit = options.limit.unwrap_or(Duration::MAX);
    let outcome = FlowOutcome::of(options.stop.limited(limit, connection.run(socket)).await);
    let ended = connection.ended.unwrap_or_else(Instant::now);
    report.outcome = outcome;
    report.total = ended - start;
    report
}

/// A running connection. It records its state continuously, so that it can be dropped at the time
/// limit.
struct RrConnection<'a> {
    options: &'a RrOptions,
    start: Instant,
    /// Completion time of the last reply.
    ended: Option<Instant>,
    report: &'a mut RrConnectionReport,
}

impl RrConnection<'_> {
    async fn run(&mut self, socket: Result<TcpSocket, FlowError>) -> Result<(), FlowError> {
        let mut stream = flow::connect(socket?, self.options.server).await?;
        self.report.connect = Some(self.start.elapsed());
        let key = flow_key(self.options.key, self.report.connection.into());
        self.begin(&mut stream, key).await?;
        let mut source = PayloadSource::new(Payload::new(key, PayloadSide::Client));
        let mut sink = PayloadSink::new(Payload::new(key, PayloadSide::Server));
        let mut since = self.start;
        for index in 0..self.report.asked {
            self.send_request(&mut stream, &mut source, index).await?;
            // The server accepts once, before its first reply.
            if index == 0 {
                flow::read_accepted(&mut stream).await?;
            }
            self.read_reply(&mut stream, &mut sink, index).await?;
            let now = Instant::now();
            let connection = self.report.connection;
            self.report.responses.push(RrResponse { connection, index, time: now - since });
            self.options.progress.add(1);
            // The next request leaves at once, so its time begins with this reply.
            since = now;
        }
        // The time ends with the last reply, not with the close.
        self.ended = Some(since);
        self.close(&mut stream).await?;
        flow::disable_reset_on_drop(&stream)
    }

    async fn begin(&self, stream: &mut TcpStream, key: u64) -> Result<(), FlowError> {
        let work = RequestedWork::RequestReply {
            request: self.options.request.get(),
            reply: self.options.reply.get(),
            count: self.report.asked,
        };
        let request = MeterRequest { key, sockets: self.options.sockets(), work };
        let sent = stream.write_all(&request.encode()).await;
        sent.map_err(FlowError::broken("sending the request"))
    }

    async fn send_request(
        &self,
        stream: &mut TcpStream,
        source: &mut PayloadSource,
        index: u32,
    ) -> Result<(), FlowError> {
        let (from, to) = message_range(self.options.request, index);
        source.send(stream, from..to).await.map_err(FlowError::broken("sending a request"))
    }

    async fn read_reply(
        &self,
        stream: &mut TcpStream,
        sink: &mut PayloadSink,
        index: u32,
    ) -> Result<(), FlowError> {
        let (_, end) = message_range(self.options.reply, index);
        let read = sink.read_to(stream, end).await;
        // A stream that ends early shows in the receipt.
        read.map_err(FlowError::broken("waiting for a reply"))?;
        flow::check(sink.receipt(), end)
    }

    /// Half-closes and checks that the requests arrived unchanged.
    async fn close(&self, stream: &mut TcpStream) -> Result<(), FlowError> {
        stream.shutdown().await.map_err(FlowError::broken("closing"))?;
        // Does not underflow: a connection without requests is never opened.
        let (_, requests) = message_range(self.options.request, self.report.asked - 1);
        let (_, replies) = message_range(self.options.reply, self.report.asked - 1);
        match flow::read_answer(stream).await? {
            ServerAnswer::Receipt(receipt) => flow::check(receipt, requests)?,
            found => return Err(FlowError::Unexpected { found }),
        }
        flow::read_close(stream, replies).await
    }
}

/// Returns the range of message number `index` in the stream. Saturates; the server rejects
/// requests that do not fit.
fn message_range(size: ByteCount, index: u32) -> (u64, u64) {
    let from = size.get().saturating_mul(index.into());
    (from, from.saturating_add(size.get()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_request_has_its_connection(count in 0u32..1000, connections in 1u32..100) {
            let shares = (0..connections).map(|index| share(count, connections, index));
            let shares: Vec<u32> = shares.collect();
            prop_assert_eq!(shares.iter().sum::<u32>(), count);
            prop_assert!(shares[0] - shares[shares.len() - 1] <= 1);
        }
    }
}
