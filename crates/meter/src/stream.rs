//! Sending and checking payload on a socket.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::answer::Receipt;
use crate::payload::Payload;

/// How much is written or read at once.
const BLOCK: usize = 64 * 1024;
/// How long a peer may do nothing at all. Longer than the ten minutes of outage
/// that a satellite link must survive.
const IDLE_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Waits for one read or write, but not for ever.
pub(crate) async fn patiently<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(IDLE_LIMIT, step).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing moved for 15 minutes")),
    }
}

/// A sender of payload with the buffer that it uses again and again.
pub(crate) struct Source {
    payload: Payload,
    buffer: Vec<u8>,
}

impl Source {
    pub(crate) fn new(payload: Payload) -> Self {
        Self { payload, buffer: vec![0; BLOCK] }
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
            let block = &mut self.buffer[..length];
            self.payload.fill(at, block);
            patiently(writer.write_all(block)).await?;
            at += length as u64;
        }
        Ok(())
    }
}

/// A receiver of payload that checks every byte.
pub(crate) struct Sink {
    payload: Payload,
    buffer: Vec<u8>,
    received: u64,
    first_wrong: Option<u64>,
    times: Option<(Instant, Instant)>,
}

impl Sink {
    pub(crate) fn new(payload: Payload) -> Self {
        Self { payload, buffer: vec![0; BLOCK], received: 0, first_wrong: None, times: None }
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// What has been seen of the stream so far.
    pub(crate) fn receipt(&self) -> Receipt {
        let span = self.times.map_or(Duration::ZERO, |(first, last)| last - first);
        Receipt { bytes: self.received, first_wrong: self.first_wrong, span }
    }

    /// Reads once, at most up to stream offset `end`. Returns how many bytes
    /// came, 0 at the end of the stream. The bytes before `end` must not all
    /// have been received already.
    pub(crate) async fn read<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        end: u64,
    ) -> io::Result<usize> {
        let room = end.saturating_sub(self.received).min(BLOCK as u64) as usize;
        let count = patiently(reader.read(&mut self.buffer[..room])).await?;
        if count == 0 {
            return Ok(0);
        }
        let now = Instant::now();
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        if self.first_wrong.is_none() {
            self.first_wrong = self.payload.first_difference(self.received, &self.buffer[..count]);
        }
        self.received += count as u64;
        Ok(count)
    }

    /// Reads up to stream offset `end`. Returns false if the stream ended before.
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
    Ok(patiently(reader.read(&mut [0])).await? == 0)
}
