//! The client's side of a flow of a bulk transfer.

use std::future::Future;
use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::tcp::WriteHalf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::arrange::ArrangedUpload;
use crate::bulk::{BulkOptions, Direction};
use crate::flow::download;
use crate::flow::outcome::FlowOutcome;
use crate::flow::report::FlowReport;
use crate::flow::stop::EarlyEnd;
use crate::flow::stream::{self, PayloadSource, SendPlan};
use crate::flow::{self, FlowError};
use crate::protocol::answer::{Receipt, ServerAnswer};
use crate::protocol::payload::{Payload, PayloadSide, flow_key};
use crate::protocol::request::{MeterRequest, RequestedWork};
use crate::sockets::sender::{self, RttMean, SenderReport};

/// Time limit for both ends to close after all payload has arrived.
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

/// Runs the flow at `start`, in a transfer that began at `begin`.
pub(crate) async fn run(
    options: BulkOptions,
    mut report: FlowReport,
    begin: Instant,
    start: Instant,
    socket: Result<TcpSocket, FlowError>,
    arranged: Option<ArrangedUpload>,
) -> FlowReport {
    if options.stop.limited(Duration::MAX, sleep_until(start)).await.is_err() {
        // Interrupted before its time came.
        report.start = start.min(Instant::now()).max(begin) - begin;
        report.close(FlowOutcome::Interrupted, Duration::ZERO);
        return report;
    }
    let start = start.max(begin);
    report.start = start - begin;
    let mut flow = BulkFlow { options: &options, start, ended: None, report: &mut report };
    // The limit is for the payload; closing has one of its own.
    let limit = options.limit.unwrap_or(Duration::MAX);
    let outcome = match options.stop.limited(limit, flow.run(socket, arranged.as_ref())).await {
        Ok(Ok(stream)) => match options.stop.limited(CLOSE_LIMIT, flow.close(stream)).await {
            Err(EarlyEnd::Limit) => {
                FlowOutcome::Failed { error: "the server did not close".to_owned() }
            }
            parted => FlowOutcome::of(parted),
        },
        ended => FlowOutcome::of(ended.map(|ended| ended.map(drop))),
    };
    // The time ends with the payload, not with the close.
    let ended = flow.ended.unwrap_or_else(Instant::now);
    report.close(outcome, ended - start);
    report
}

/// A running flow. It records its state continuously, so that it can be dropped at the time limit.
struct BulkFlow<'a> {
    options: &'a BulkOptions,
    start: Instant,
    /// Arrival time of the last byte (download) or of the receipt (upload).
    ended: Option<Instant>,
    report: &'a mut FlowReport,
}

impl BulkFlow<'_> {
    /// Connects and moves the payload: the part of the flow that is timed.
    async fn run(
        &mut self,
        socket: Result<TcpSocket, FlowError>,
        arranged: Option<&ArrangedUpload>,
    ) -> Result<TcpStream, FlowError> {
        let server = match arranged {
            Some(Ok((server, _))) => *server,
            Some(Err(error)) => return Err(FlowError::Arrange { error: error.to_string() }),
            None => self.options.server,
        };
        let mut stream = flow::connect(socket?, server).await?;
        self.report.connect = Some(self.start.elapsed());
        self.report.client = stream.local_addr().ok();
        match self.report.direction {
            Direction::Download => self.download(&mut stream).await,
            Direction::Upload => self.upload(&mut stream).await,
        }?;
        Ok(stream)
    }

    fn key(&self) -> u64 {
        flow_key(self.options.key, self.report.flow.into())
    }

    async fn download(&mut self, stream: &mut TcpStream) -> Result<(), FlowError> {
        let work = RequestedWork::Download { amount: self.options.amount, cap: self.options.cap };
        let request = MeterRequest { key: self.key(), sockets: self.options.sender(), work };
        let asked = self.report.asked_bytes;
        download::receive_payload(stream, &request, asked, |stream, sink| {
            // The kernel overwrites the clamp, so it is set at each read.
            if let Some(window) = self.options.window {
                let held = window.hold(&SockRef::from(stream));
                held.map_err(FlowError::broken("holding the window"))?;
            }
            self.record_progress(sink.received());
            self.report.receive = Some(sink.receipt().span);
            Ok(())
        })
        .await?;
        self.ended = Some(Instant::now());
        Ok(())
    }

    async fn upload(&mut self, stream: &mut TcpStream) -> Result<(), FlowError> {
        let amount = self.options.amount;
        let plan = SendPlan { amount, cap: self.options.cap, framed: false };
        stream::bound_unsent(stream, &plan).map_err(FlowError::broken("preparing"))?;
        let key = self.key();
        let work = RequestedWork::Upload { amount };
        let request = MeterRequest { key, sockets: self.options.receiver(), work };
        // Sampled through a descriptor of its own, since the stream is in use until the receipt
        // arrives.
        let socket =
            sender::duplicate_descriptor(stream).map_err(FlowError::broken("preparing"))?;
        let (mut reader, mut writer) = stream.split();
        let mut sent = 0;
        let mut mean = RttMean::default();
        let sending = send(&mut writer, &request, &plan, &mut sent);
        let receipt = tokio::select! {
            receipt = send_until_receipt(sending, self.read_receipt(&mut reader)) => receipt?,
            never = mean.watch(&socket) => match never {},
        };
        self.ended = Some(Instant::now());
        self.report.receive = Some(receipt.span);
        self.report.sender = SenderReport::of(stream, sent, mean).ok();
        // With a time limit, everything that was sent must arrive.
        flow::check(receipt, amount.bytes().unwrap_or(sent))
    }

    /// Reads the server's progress answers until its receipt.
    async fn read_receipt<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
    ) -> Result<Receipt, FlowError> {
        loop {
            match flow::read_answer(reader).await? {
                ServerAnswer::Progress { bytes } => self.record_progress(bytes),
                ServerAnswer::Receipt(receipt) => {
                    self.record_progress(receipt.bytes);
                    return Ok(receipt);
                }
                found => return Err(FlowError::Unexpected { found }),
            }
        }
    }

    /// Closes both ends, and reads the server's figures of a download.
    async fn close(&mut self, mut stream: TcpStream) -> Result<(), FlowError> {
        let moved = self.report.moved_bytes;
        match self.report.direction {
            Direction::Download => {
                self.report.sender = Some(download::finish(&mut stream, moved).await?);
            }
            Direction::Upload => flow::read_close(&mut stream, moved).await?,
        }
        flow::disable_reset_on_drop(&stream)
    }

    /// Records that the receiver has `bytes` by now.
    fn record_progress(&mut self, bytes: u64) {
        self.report.first_byte.get_or_insert_with(|| self.start.elapsed());
        self.options.progress.add(bytes.saturating_sub(self.report.moved_bytes));
        self.report.moved_bytes = bytes;
    }
}

/// Sends the request and the payload, then half-closes.
async fn send(
    writer: &mut WriteHalf<'_>,
    request: &MeterRequest,
    plan: &SendPlan,
    sent: &mut u64,
) -> io::Result<()> {
    writer.write_all(&request.encode()).await?;
    let payload = Payload::new(request.key, PayloadSide::Client);
    PayloadSource::new(payload).send_amount(writer, plan, sent).await?;
    writer.shutdown().await
}

/// Sends while waiting for the receipt, which may come first if the server refuses.
async fn send_until_receipt(
    sending: impl Future<Output = io::Result<()>>,
    receipt: impl Future<Output = Result<Receipt, FlowError>>,
) -> Result<Receipt, FlowError> {
    tokio::pin!(receipt);
    let sent = tokio::select! {
        receipt = &mut receipt => return receipt,
        sent = sending => sent,
    };
    match (sent, receipt.await) {
        // A refusal also breaks the sending, so it is the cause.
        (Err(_), Err(FlowError::Refused(why))) => Err(FlowError::Refused(why)),
        (sent, receipt) => sent.map_err(FlowError::broken("sending")).and(receipt),
    }
}
