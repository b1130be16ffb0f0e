//! Which streams are compressed, and what that has saved.

use std::collections::BTreeMap;
use std::convert::Infallible;

use compression::{Coded, Decoder, DecoderPool, Encoder, Got, Malformed, Slots, Volume};
use slacp::{Endpoint, Read, SessionId, StreamId};

use super::handle::Key;

/// Directions that this gateway compresses at a time, in all sessions: 80 MB of contexts.
const MOST_ENCODERS: usize = 256;

/// The compressed streams of a hop.
pub(super) struct Compression {
    encoders: Slots,
    sessions: BTreeMap<SessionId, Session>,
    totals: Totals,
}

/// What a session compresses and decompresses.
struct Session {
    encoders: Slots,
    decoders: DecoderPool,
}

/// Sums over all compressed streams so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Streams opened by either side.
    pub(crate) streams: u64,
    pub(crate) sent: Volume,
    pub(crate) received: Volume,
    /// Streams reset because what the peer sent was malformed.
    pub(crate) malformed: u64,
}

impl Totals {
    /// The sums of two parts of a hub.
    pub(super) fn plus(self, other: Self) -> Self {
        let add = |one: Volume, other: Volume| Volume {
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
        let encoders = Slots::new(MOST_ENCODERS);
        Self { encoders, sessions: BTreeMap::new(), totals: Totals::default() }
    }
}

impl Compression {
    /// The coder of a new stream; `None` if its data is sent as it is. `compresses` says whether this
    /// side's direction may be compressed.
    pub(super) fn coder(
        &mut self,
        endpoint: &Endpoint,
        (session, stream): Key,
        compresses: bool,
    ) -> Option<Box<Coded>> {
        if !endpoint.is_compressed(session, stream) {
            return None;
        }
        self.totals.streams += 1;
        let of_session = self.sessions.entry(session).or_insert_with(|| Session {
            encoders: self.encoders.within(endpoint.peer_decompressors(session).into()),
            // The peer counts a stream until it is closed, which may be before its last data is read.
            decoders: DecoderPool::new(2 * usize::from(endpoint.decompressors())),
        });
        let encoders = if compresses { of_session.encoders.clone() } else { Slots::new(0) };
        let encoder = Encoder::new(encoders).with_dictionary(endpoint.peer_has_dictionary(session));
        let decoder = Decoder::new(of_session.decoders.clone());
        Some(Box::new(Coded::new(encoder, decoder)))
    }

    /// Forgets a session that has ended.
    pub(super) fn lose(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Writes data to a stream; returns how much was taken.
    pub(super) fn write(
        &mut self,
        coded: &mut Coded,
        data: &[u8],
        mut send: impl FnMut(&[u8]) -> usize,
    ) -> usize {
        let before = coded.sent;
        let written = coded.write(data, |bytes| Ok::<_, Infallible>(send(bytes)));
        add(&mut self.totals.sent, before, coded.sent);
        let Ok(written) = written;
        written
    }

    /// Writes what precedes the end of a stream's direction; whether that was all.
    pub(super) fn finish(
        &mut self,
        coded: &mut Coded,
        mut send: impl FnMut(&[u8]) -> usize,
    ) -> bool {
        let before = coded.sent;
        let finished = coded.finish(|bytes| Ok::<_, Infallible>(send(bytes)));
        add(&mut self.totals.sent, before, coded.sent);
        let Ok(finished) = finished;
        finished
    }

    /// Reads data from a stream.
    ///
    /// # Errors
    /// The peer's data is malformed.
    pub(super) fn read(
        &mut self,
        coded: &mut Coded,
        buffer: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> Read,
    ) -> Result<Got, Malformed> {
        let before = coded.received;
        let got = coded.read(buffer, |part| {
            Ok(match receive(part) {
                Read::Data(count) => Got::Data(count),
                Read::Blocked => Got::Nothing,
                Read::End => Got::End,
            })
        });
        add(&mut self.totals.received, before, coded.received);
        self.totals.malformed += u64::from(got.is_err());
        got
    }
}

fn add(total: &mut Volume, before: Volume, now: Volume) {
    total.plain += now.plain - before.plain;
    total.coded += now.coded - before.coded;
}

/// Writes to a stream; returns how much it has taken: nothing if it is gone, which an event tells.
pub(super) fn send(endpoint: &mut Endpoint, key: (SessionId, StreamId), bytes: &[u8]) -> usize {
    endpoint.write(key.0, key.1, bytes).unwrap_or(0)
}
