//! A compressed stream whose owner reads and writes plain data.

use std::mem;

use pep::work::inbox::Inbox;

use super::decoder::MOST_WORK;
use super::{Decoder, Encoder, MalformedStream};

/// Bytes read from the stream at once.
const READ: usize = 4 << 10;

/// Bytes of one direction, before and after compression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamVolume {
    /// Bytes that the owner has written or read.
    pub plain: u64,
    /// Bytes that have crossed the hop.
    pub coded: u64,
}

/// Both directions of a stream. The owner passes in functions that write to the stream and read from it,
/// which never block.
pub struct CodedStream {
    encoder: Encoder,
    /// Encoded bytes that the stream has not accepted yet.
    unsent: Inbox,
    /// The number of the owner's bytes in `unsent`.
    encoded: usize,
    decoder: Decoder,
    /// Bytes read from the stream that are not decoded yet.
    unread: Inbox,
    /// Volume sent so far, before and after compression.
    pub sent: StreamVolume,
    /// Volume received so far, before and after decompression.
    pub received: StreamVolume,
}

/// Result of reading from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamRead {
    /// This many bytes, at least one.
    Data(usize),
    /// No data has arrived yet.
    Nothing,
    /// Nothing yet, but bytes wait to be decoded: the owner calls again after others had their turn.
    Later,
    /// The end of the data.
    End,
}

impl CodedStream {
    /// Starts a stream on which nothing was sent or received.
    pub fn new(encoder: Encoder, decoder: Decoder) -> Self {
        Self {
            encoder,
            unsent: Inbox::default(),
            encoded: 0,
            decoder,
            unread: Inbox::default(),
            sent: StreamVolume::default(),
            received: StreamVolume::default(),
        }
    }

    /// Writes data; returns the number of bytes accepted. If that is 0, the stream has no room: the owner
    /// calls again with the same data.
    ///
    /// # Errors
    /// Those of `send`, which returns the number of bytes that it has accepted.
    pub fn write<E>(
        &mut self,
        data: &[u8],
        mut send: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if self.encoder.is_rest() && self.unsent.is_empty() {
            // Uncompressed to the end, so the data needs no copy.
            let taken = send(data)?;
            self.count_sent(taken, taken);
            return Ok(taken);
        }
        if self.encoded == 0 {
            debug_assert!(self.unsent.is_empty(), "what was encoded was sent");
            self.encoded = self.encoder.encode(data, self.unsent.room());
            self.count_sent(self.encoded, self.unsent.len());
        }
        // The owner keeps its data until all of the encoded form is sent.
        Ok(if self.flush(&mut send)? { mem::take(&mut self.encoded) } else { 0 })
    }

    fn count_sent(&mut self, plain: usize, coded: usize) {
        self.sent.plain += plain as u64;
        self.sent.coded += coded as u64;
    }

    /// Writes encoded bytes; returns `true` if all of them were accepted.
    fn flush<E>(&mut self, send: &mut impl FnMut(&[u8]) -> Result<usize, E>) -> Result<bool, E> {
        while !self.unsent.is_empty() {
            let taken = send(self.unsent.unused())?;
            if taken == 0 {
                return Ok(false);
            }
            self.unsent.consume(taken);
        }
        Ok(true)
    }

    /// Writes what must precede the end of this direction. Returns `true` if the stream may be finished;
    /// otherwise it has no room, and the owner calls again.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn finish<E>(
        &mut self,
        mut send: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<bool, E> {
        let before = self.unsent.len();
        self.encoder.finish(self.unsent.room());
        self.count_sent(0, self.unsent.len() - before);
        self.flush(&mut send)
    }

    /// Reads data into `buffer`, which must not be empty.
    ///
    /// # Errors
    /// Those of `receive`, and [`MalformedStream`].
    pub fn read<E: From<MalformedStream>>(
        &mut self,
        buffer: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> Result<StreamRead, E>,
    ) -> Result<StreamRead, E> {
        let until = self.work() + MOST_WORK;
        loop {
            if self.decoder.is_rest() && self.unread.is_empty() {
                // Uncompressed to the end, so the data goes straight to the owner.
                let got = receive(buffer)?;
                if let StreamRead::Data(count) = got {
                    self.count_received(count, count);
                }
                return Ok(got);
            }
            let mut rest = self.unread.unused();
            let count = self.decoder.decode(&mut rest, buffer)?;
            let used = self.unread.len() - rest.len();
            self.unread.consume(used);
            self.count_received(count, used);
            if count > 0 {
                return Ok(StreamRead::Data(count));
            }
            // Empty frames of a few bytes cost work and yield nothing, so the work of a call is bounded.
            if !self.unread.is_empty() || self.work() >= until {
                return Ok(StreamRead::Later);
            }
            let mut piece = [0; READ];
            let got = receive(&mut piece);
            if let Ok(StreamRead::Data(count)) = got {
                self.unread.push(&piece[..count]);
            }
            match got? {
                StreamRead::Data(_) => {}
                nothing @ (StreamRead::Nothing | StreamRead::Later) => return Ok(nothing),
                StreamRead::End => {
                    self.decoder.end()?;
                    return Ok(StreamRead::End);
                }
            }
        }
    }

    /// The work of decoding so far, in [units](Decoder::work).
    pub fn work(&self) -> u64 {
        self.decoder.work()
    }

    fn count_received(&mut self, plain: usize, coded: usize) {
        self.received.plain += plain as u64;
        self.received.coded += coded as u64;
    }
}
