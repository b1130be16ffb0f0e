//! Compression of streams: the limits of encoders and decoders, and the bytes saved.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::convert::Infallible;

use compression::{
    CodedStream, ContextSlots, Decoder, DecoderPool, Encoder, MalformedStream, StreamRead,
    StreamVolume,
};
use slacp::{Endpoint, ReadOutcome, SessionId};

use super::handle::StreamKey;

/// Maximum encoders of all sessions together: 80 MB of contexts.
const MOST_ENCODERS: usize = 256;

/// The compressed streams of a hop.
pub(super) struct Compression {
    encoders: ContextSlots,
    sessions: BTreeMap<SessionId, SessionCoders>,
    totals: CompressionTotals,
}

/// Encoders and decoders of a session.
struct SessionCoders {
    encoders: ContextSlots,
    decoders: DecoderPool,
}

/// Sums over all compressed streams so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CompressionTotals {
    /// Streams opened by either side.
    pub(crate) streams: u64,
    pub(crate) sent: StreamVolume,
    pub(crate) received: StreamVolume,
    /// Streams reset because the peer's data was malformed.
    pub(crate) malformed: u64,
}

impl CompressionTotals {
    /// Adds the sums of two parts of a hub.
    pub(super) fn plus(self, other: Self) -> Self {
        let add = |one: StreamVolume, other: StreamVolume| StreamVolume {
            plain: one.plain + other.plain,
            coded: one.coded + other.coded,
        };
        Self {
            streams: self.streams + other.streams,
            sent: add(self.sent, other.sent),
            received: add(self.received, other.received),
            malformed: self.malformed + other.malformed,
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        let encoders = ContextSlots::new(MOST_ENCODERS);
        Self { encoders, sessions: BTreeMap::new(), totals: CompressionTotals::default() }
    }
}

impl Compression {
    /// Creates the coder of a new stream; `None` for an uncompressed stream. `compresses`: this side may
    /// compress its direction.
    pub(super) fn coder(
        &mut self,
        endpoint: &Endpoint,
        key: StreamKey,
        compresses: bool,
    ) -> Option<Box<CodedStream>> {
        let (session, stream) = key;
        if !endpoint.is_compressed(session, stream) {
            return None;
        }
        self.totals.streams += 1;
        let of_session = self.sessions.entry(session).or_insert_with(|| SessionCoders {
            // No more directions at a time than the peer is willing to decompress.
            encoders: self.encoders.within(endpoint.peer_decompressors(session).into()),
            // The peer counts a stream until it is closed, which may be before its last data is read.
            decoders: DecoderPool::new(2 * usize::from(endpoint.decompressors())),
        });
        // Without a slot, the encoder passes everything on uncompressed.
        let encoders = if compresses { of_session.encoders.clone() } else { ContextSlots::new(0) };
        let encoder = Encoder::new(encoders).with_dictionary(endpoint.peer_has_dictionary(session));
        let decoder = Decoder::new(of_session.decoders.clone());
        Some(Box::new(CodedStream::new(encoder, decoder)))
    }

    /// Removes the coders of a session that has ended.
    pub(super) fn lose(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub(super) fn totals(&self) -> CompressionTotals {
        self.totals
    }

    /// Compresses data into a stream. Returns the number of bytes consumed.
    pub(super) fn write(
        &mut self,
        coded: &mut CodedStream,
        data: &[u8],
        mut send: impl FnMut(&[u8]) -> usize,
    ) -> usize {
        let before = coded.sent;
        let written = coded.write(data, |bytes| Ok::<_, Infallible>(send(bytes)));
        add(&mut self.totals.sent, before, coded.sent);
        let Ok(written) = written;
        written
    }

    /// Writes the last compressed bytes before the end of a stream's direction. Returns false if some did
    /// not fit.
    pub(super) fn finish(
        &mut self,
        coded: &mut CodedStream,
        mut send: impl FnMut(&[u8]) -> usize,
    ) -> bool {
        let before = coded.sent;
        let finished = coded.finish(|bytes| Ok::<_, Infallible>(send(bytes)));
        add(&mut self.totals.sent, before, coded.sent);
        let Ok(finished) = finished;
        finished
    }

    /// Decompresses data of a stream into `buffer`.
    ///
    /// # Errors
    /// If the peer's data is malformed.
    pub(super) fn read(
        &mut self,
        coded: &mut CodedStream,
        buffer: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> ReadOutcome,
    ) -> Result<StreamRead, MalformedStream> {
        let before = coded.received;
        let got = coded.read(buffer, |part| {
            Ok(match receive(part) {
                ReadOutcome::Data(count) => StreamRead::Data(count),
                ReadOutcome::Blocked => StreamRead::Nothing,
                ReadOutcome::End => StreamRead::End,
            })
        });
        add(&mut self.totals.received, before, coded.received);
        self.totals.malformed += u64::from(got.is_err());
        got
    }
}

fn add(total: &mut StreamVolume, before: StreamVolume, now: StreamVolume) {
    total.plain += now.plain - before.plain;
    total.coded += now.coded - before.coded;
}

/// Writes to a stream. Returns the number of bytes accepted; 0 if the stream is gone, of which an event
/// follows.
pub(super) fn send(endpoint: &mut Endpoint, key: StreamKey, bytes: &[u8]) -> usize {
    endpoint.write(key.0, key.1, bytes).unwrap_or(0)
}
