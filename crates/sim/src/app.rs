//! Applications: their notifications and their statistics.

use core::time::Duration;

use units::Instant;

use crate::packet::Datagram;
use crate::slab::Key;

/// A notification to an application.
#[derive(Debug, Clone, Copy)]
pub enum Notice {
    /// The application was added. Always comes first.
    Start,
    /// A wake-up set by [`crate::World::wake_at`], with its number.
    Wake(u64),
    /// The client's end of a connection is open.
    Connected(Key),
    /// A request has arrived at the server, on a connection that tells it
    /// ([`crate::World::tell_requests`]).
    Asked(Key),
    /// A request was answered or, if it asks for no reply, has arrived.
    Turn(Key),
    /// A connection has ended on both sides.
    Over {
        /// Which.
        talk: Key,
        /// Whether everything arrived, in both directions.
        whole: bool,
    },
    /// A datagram has arrived.
    Datagram(Datagram),
}

/// Statistics of an application.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Bytes read by the application, at either end.
    pub bytes: u64,
    /// When the first of them was read.
    pub first: Option<Instant>,
    /// When the last of them was read.
    pub last: Option<Instant>,
    /// When the application began.
    pub began: Instant,
    /// Finished transfers, replies or pages, in order.
    pub deeds: Vec<Deed>,
    /// Connections opened.
    pub connections: u64,
    /// Connections that did not end well.
    pub broken: u64,
    /// Datagrams sent and arrived.
    pub datagrams: [u64; 2],
    /// One-way delays of the datagrams that arrived, in order of arrival.
    pub delays: Vec<Duration>,
    /// Whether the application has finished.
    pub done: bool,
}

impl Tally {
    pub(crate) fn delivered(&mut self, now: Instant, bytes: u64) {
        self.bytes += bytes;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Bits per second from the start to the last byte.
    pub fn goodput(&self) -> Option<f64> {
        let time = self.last?.saturating_since(self.began).as_secs_f64();
        (time > 0.0).then(|| self.bytes as f64 * 8.0 / time)
    }
}

/// A unit of work with a beginning and an end: a transfer, a reply, a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deed {
    /// When it began.
    pub begin: Instant,
    /// When it was complete.
    pub end: Instant,
    /// Bytes of payload.
    pub bytes: u64,
}

impl Deed {
    /// Its duration.
    pub fn time(&self) -> Duration {
        self.end.saturating_since(self.begin)
    }
}
