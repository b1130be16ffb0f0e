//! Applications: their notifications and their statistics.

use core::time::Duration;

use units::Instant;

use crate::network::packet::AppDatagram;
use crate::slab::SlabKey;

/// A notification to an application.
#[derive(Debug, Clone, Copy)]
pub enum AppNotice {
    /// The application was added. Always comes first.
    Start,
    /// A wake-up set by [`crate::World::wake_at`], with its number.
    Wake(u64),
    /// The client's end of a connection is open.
    Connected(SlabKey),
    /// A request has arrived at the server, on a connection that reports requests
    /// ([`crate::World::report_requests`]).
    RequestArrived(SlabKey),
    /// The reply to a request has arrived or, if it asks for none, the request itself.
    ExchangeDone(SlabKey),
    /// A connection has ended on both sides.
    Ended {
        /// Key that [`crate::World::open`] returned for the connection; it is no longer valid.
        talk: SlabKey,
        /// True if all data arrived, in both directions.
        whole: bool,
    },
    /// A datagram has arrived.
    Datagram(AppDatagram),
}

/// Statistics of an application.
#[derive(Debug, Clone, Default)]
pub struct AppStats {
    /// Bytes read by the application, at either end.
    pub bytes: u64,
    /// When the application read the first byte.
    pub first: Option<Instant>,
    /// When the application read the last byte.
    pub last: Option<Instant>,
    /// When the application began, which goodput counts from.
    pub began: Instant,
    /// Finished transfers, replies or pages, in order.
    pub work_units: Vec<WorkUnit>,
    /// Number of connections opened.
    pub connections: u64,
    /// Number of failures: connections that were aborted or ended with data missing, and names that
    /// could not be resolved.
    pub failures: u64,
    /// Number of datagrams sent, and number that arrived.
    pub datagrams: [u64; 2],
    /// One-way delays of the datagrams that arrived, in order of arrival.
    pub delays: Vec<Duration>,
    /// True once the application has finished.
    pub done: bool,
}

impl AppStats {
    pub(crate) fn delivered(&mut self, now: Instant, bytes: u64) {
        self.bytes += bytes;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Bits per second from the start to the last byte.
    pub fn goodput(&self) -> Option<f64> {
        let time = self.last?.saturating_since(self.began).as_secs_f64();
        // All bytes may have arrived at the start.
        (time > 0.0).then(|| self.bytes as f64 * 8.0 / time)
    }
}

/// A unit of work with a beginning and an end: a transfer, a reply, a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkUnit {
    /// When it began.
    pub begin: Instant,
    /// When it was complete.
    pub end: Instant,
    /// Bytes of payload, without headers of TCP and IP.
    pub bytes: u64,
}

impl WorkUnit {
    /// Time from begin to end.
    pub fn time(&self) -> Duration {
        self.end.saturating_since(self.begin)
    }
}
