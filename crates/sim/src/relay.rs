//! A split connection at a gateway: what comes from one segment goes into the
//! other.

use std::sync::Arc;

use tcp::{ByteRange, Payload as _};

use crate::path::Path;
use crate::slab::Key;

/// One end of a segment, at the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegEnd {
    Tcp(Key),
    Stream(slacp::SessionId, slacp::StreamId),
}

/// One direction through the gateway.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carry {
    /// Read and not written yet: a slow segment leaves it here, so that the
    /// other one is read no further and its window shuts.
    pub(crate) held: ByteRange,
    /// Bytes read so far.
    pub(crate) position: u64,
    /// The end was read; and passed on.
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
    /// The gateway's place on the path.
    pub(crate) at: usize,
    /// The connection that it is part of.
    pub(crate) talk: Key,
    /// Towards the client, towards the server.
    pub(crate) legs: [Option<LegEnd>; 2],
    /// From the client, from the server.
    pub(crate) carries: [Carry; 2],
    /// The segment towards the client is connected; that to the server is
    /// opened then.
    pub(crate) ready: bool,
    /// What is over on each side.
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
