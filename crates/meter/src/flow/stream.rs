//! Sends and checks payload on a socket.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;
use units::BitRate;

use super::pacer::Pacer;
use crate::protocol::amount::FlowAmount;
use crate::protocol::answer::Receipt;
use crate::protocol::frame::{self, HEAD_LEN};
use crate::protocol::payload::Payload;
use crate::sockets::patience::with_idle_limit;

/// Maximum size of one read or write, in bytes.
const BLOCK: usize = 64 * 1024;
/// Block size of a flow limited by time. Small, because the last block is completed even after the
/// time is over.
const TIMED_BLOCK: usize = 16 * 1024;

/// Maximum unsent data in the kernel for a flow limited by time, because that is still sent after
/// the time is over.
const TIMED_UNSENT: u32 = 128 * 1024;

/// Keeps a flow limited by time from filling its socket's buffer, by `TCP_NOTSENT_LOWAT`.
pub(crate) fn bound_unsent(stream: &TcpStream, plan: &SendPlan) -> io::Result<()> {
    match plan.amount {
        FlowAmount::Bytes(_) => Ok(()),
        FlowAmount::Time(_) => SockRef::from(stream).set_tcp_notsent_lowat(TIMED_UNSENT),
    }
}

/// A sender of payload with a reusable buffer.
pub(crate) struct PayloadSource {
    payload: Payload,
    buffer: Vec<u8>,
}

impl PayloadSource {
    pub(crate) fn new(payload: Payload) -> Self {
        Self { payload, buffer: vec![0; HEAD_LEN + BLOCK] }
    }

    /// Sends `amount`, no faster than `cap`, raw or in blocks with heads ([`frame`]). Counts the
    /// payload in `sent` as it goes.
    pub(crate) async fn send_amount<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut W,
        plan: &SendPlan,
        sent: &mut u64,
    ) -> io::Result<()> {
        let start = Instant::now();
        let mut pacer = Pacer::new(plan.cap);
        while let Some(room) = plan.room(*sent, start.elapsed()) {
            let length = pacer.block(room);
            self.send_block(writer, *sent, length, plan.framed).await?;
            *sent += length as u64;
            let next = pacer.sent(start.elapsed(), length);
            if let Some(next) = next {
                sleep(plan.latest(next).saturating_sub(start.elapsed())).await;
            }
        }
        if plan.framed {
            // The connection stays open for the sender's figures, so its end cannot mark that of the payload.
            with_idle_limit(writer.write_all(&frame::head(0))).await?;
        }
        Ok(())
    }

    async fn send_block<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut W,
        at: u64,
        length: usize,
        framed: bool,
    ) -> io::Result<()> {
        let block = &mut self.buffer[..HEAD_LEN + length];
        block[..HEAD_LEN].copy_from_slice(&frame::head(length));
        self.payload.fill(at, &mut block[HEAD_LEN..]);
        // The buffer always has a head in front, so that the payload is never moved.
        let from = if framed { 0 } else { HEAD_LEN };
        with_idle_limit(writer.write_all(&block[from..])).await
    }

    /// Sends the given range of the stream.
    pub(crate) async fn send<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut W,
        range: Range<u64>,
    ) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(BLOCK as u64) as usize;
            self.send_block(writer, at, length, false).await?;
            at += length as u64;
        }
        Ok(())
    }
}

/// The amount that a flow sends, its rate and its framing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendPlan {
    pub(crate) amount: FlowAmount,
    /// Maximum rate of the application's writes; `None` for no cap.
    pub(crate) cap: Option<BitRate>,
    /// Set to send in blocks with heads ([`crate::protocol::frame`]).
    pub(crate) framed: bool,
}

impl SendPlan {
    /// Returns the number of bytes that may be sent at once after `sent` bytes and `elapsed` time;
    /// `None` at the end.
    fn room(&self, sent: u64, elapsed: Duration) -> Option<usize> {
        match self.amount {
            FlowAmount::Bytes(bytes) => {
                let left = bytes.get().saturating_sub(sent);
                (left > 0).then(|| left.min(BLOCK as u64) as usize)
            }
            FlowAmount::Time(time) => (elapsed < time).then_some(TIMED_BLOCK),
        }
    }

    /// Returns the time of the next write: a flow limited by time does not wait beyond its end.
    fn latest(&self, next: Duration) -> Duration {
        match self.amount {
            FlowAmount::Bytes(_) => next,
            FlowAmount::Time(time) => next.min(time),
        }
    }
}

/// A receiver of payload that checks every byte.
pub(crate) struct PayloadSink {
    payload: Payload,
    buffer: Vec<u8>,
    received: u64,
    first_wrong: Option<u64>,
    times: Option<(Instant, Instant)>,
}

impl PayloadSink {
    pub(crate) fn new(payload: Payload) -> Self {
        Self { payload, buffer: vec![0; BLOCK], received: 0, first_wrong: None, times: None }
    }

    /// Number of bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// A summary of the stream so far.
    pub(crate) fn receipt(&self) -> Receipt {
        let span = self.times.map_or(Duration::ZERO, |(first, last)| last - first);
        Receipt { bytes: self.received, first_wrong: self.first_wrong, span }
    }

    /// Reads once, at most up to stream offset `end`. Returns the number of bytes, 0 at the end of
    /// the stream. Some bytes before `end` must still be missing.
    pub(crate) async fn read<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        end: u64,
    ) -> io::Result<usize> {
        let room = end.saturating_sub(self.received).min(BLOCK as u64) as usize;
        let count = with_idle_limit(reader.read(&mut self.buffer[..room])).await?;
        if count == 0 {
            return Ok(0);
        }
        let now = Instant::now();
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        // Only the first difference is reported, so the rest need not be checked.
        if self.first_wrong.is_none() {
            self.first_wrong = self.payload.first_difference(self.received, &self.buffer[..count]);
        }
        self.received += count as u64;
        Ok(count)
    }

    /// Reads up to stream offset `end`. Returns false if the stream ended earlier.
    pub(crate) async fn read_to<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        end: u64,
    ) -> io::Result<bool> {
        while self.received < end {
            if self.read(reader, end).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Reads the end of the stream. Returns false if a byte came instead.
pub(crate) async fn read_end<R: AsyncRead + Unpin>(reader: &mut R) -> io::Result<bool> {
    Ok(with_idle_limit(reader.read(&mut [0])).await? == 0)
}
