//! Relays of split connections at a gateway: data from one segment goes into the other.

use std::sync::Arc;

use tcp::{ByteRange, Payload as _};

use crate::path::Path;
use crate::slab::Key;

/// The gateway's end of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegEnd {
    Tcp(Key),
    Stream(slacp::SessionId, slacp::StreamId),
}

/// One direction through the gateway.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carry {
    /// Data read but not yet written. While a slow segment leaves data here, the other is not read
    /// and its window closes.
    pub(crate) held: ByteRange,
    /// Number of bytes read so far.
    pub(crate) position: u64,
    /// Whether the end was read, and whether it was passed on.
    pub(crate) ended: bool,
    pub(crate) passed: bool,
}

impl Carry {
    pub(crate) fn is_through(&self) -> bool {
        self.passed && self.held.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) path: Arc<Path>,
    /// The gateway's index on the path.
    pub(crate) at: usize,
    /// The connection it is part of.
    pub(crate) talk: Key,
    /// The segments towards the client and towards the server.
    pub(crate) legs: [Option<LegEnd>; 2],
    /// The directions from the client and from the server.
    pub(crate) carries: [Carry; 2],
    /// Whether the segment towards the client is connected. The one towards the server is opened
    /// then.
    pub(crate) ready: bool,
    /// Which sides have ended.
    pub(crate) over: [bool; 2],
}

impl Relay {
    pub(crate) fn new(path: &Arc<Path>, at: usize, talk: Key) -> Self {
        Self {
            path: Arc::clone(path),
            at,
            talk,
            legs: [None; 2],
            carries: [Carry::default(), Carry::default()],
            ready: false,
            over: [false; 2],
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.over == [true; 2] && self.carries.iter().all(Carry::is_through)
    }
}
