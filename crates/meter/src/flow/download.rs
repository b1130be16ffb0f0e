//! The receiving side of a download, on any stream.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::stream::PayloadSink;
use crate::flow::{self, FlowError};
use crate::protocol::answer::{Receipt, ServerAnswer};
use crate::protocol::frame;
use crate::protocol::payload::{Payload, PayloadSide};
use crate::protocol::request::{MeterRequest, RequestedWork};
use crate::sockets::sender::SenderReport;

/// Runs a whole download, from the request to the end of both directions. Counts the payload in
/// `moved` as it arrives.
pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    request: &MeterRequest,
    moved: &mut u64,
) -> Result<SenderReport, FlowError> {
    let asked = match request.work {
        RequestedWork::Download { amount, .. } => amount.bytes(),
        _ => None,
    };
    receive_payload(stream, request, asked, |_, sink| {
        *moved = sink.received();
        Ok(())
    })
    .await?;
    finish(stream, *moved).await
}

/// Sends the request, then receives and checks the payload: exactly `asked` bytes if given. Calls
/// `arrived` after each read.
pub(crate) async fn receive_payload<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    request: &MeterRequest,
    asked: Option<u64>,
    mut arrived: impl FnMut(&S, &PayloadSink) -> Result<(), FlowError>,
) -> Result<(), FlowError> {
    let sent = stream.write_all(&request.encode()).await;
    sent.map_err(FlowError::broken("sending the request"))?;
    flow::read_accepted(stream).await?;
    let mut sink = PayloadSink::new(Payload::new(request.key, PayloadSide::Server));
    let mut end: u64 = 0;
    let whole = loop {
        let head = frame::read_head(stream).await.map_err(FlowError::broken("receiving"))?;
        let Some(length) = head else { break false };
        // An empty block marks the end (see `frame`).
        if length == 0 {
            break true;
        }
        end = end.saturating_add(length.into());
        if let Some(asked) = asked.filter(|asked| end > *asked) {
            return Err(FlowError::TooLong { asked });
        }
        if !receive_block(stream, &mut sink, end, &mut arrived).await? {
            break false;
        }
    };
    flow::check(sink.receipt(), asked.unwrap_or(end))?;
    // A stream limited by time must announce its end.
    if !whole && asked.is_none() {
        return Err(FlowError::Truncated { received: end, asked: end });
    }
    Ok(())
}

/// Reads up to stream offset `end`. Returns false if the stream ended earlier.
async fn receive_block<S: AsyncRead + Unpin>(
    stream: &mut S,
    sink: &mut PayloadSink,
    end: u64,
    arrived: &mut impl FnMut(&S, &PayloadSink) -> Result<(), FlowError>,
) -> Result<bool, FlowError> {
    while sink.received() < end {
        let read = sink.read(stream, end).await;
        if read.map_err(FlowError::broken("receiving"))? == 0 {
            return Ok(false);
        }
        arrived(stream, sink)?;
    }
    Ok(true)
}

/// Half-closes, reads the server's figures, which must agree with the `moved` bytes, and waits for
/// the end.
pub(crate) async fn finish<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    moved: u64,
) -> Result<SenderReport, FlowError> {
    stream.shutdown().await.map_err(FlowError::broken("closing"))?;
    let sender = match flow::read_answer(stream).await? {
        ServerAnswer::Sent(sender) => sender,
        found => return Err(FlowError::Unexpected { found }),
    };
    // The contents were verified on arrival; this compares the lengths.
    let receipt = Receipt { bytes: moved, first_wrong: None, span: Default::default() };
    flow::check(receipt, sender.sent_bytes)?;
    flow::read_close(stream, moved).await?;
    Ok(sender)
}
