//! What a gateway counts while it runs; told in its log at the end.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Everything that one gateway counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections carried, of either side.
    pub(crate) connections: Counter,
    /// Connections that both sides ended cleanly.
    pub(crate) closed: Counter,
    /// Connections that were reset by a peer or by us.
    pub(crate) reset: Counter,
    /// Connections that could not be opened at the far end.
    pub(crate) failed: Counter,
    /// Bytes from TCP connections onto the hop.
    pub(crate) bytes_to_hop: Counter,
    /// Bytes from the hop to TCP connections.
    pub(crate) bytes_from_hop: Counter,
    /// Datagrams handed to the kernel.
    pub(crate) datagrams_sent: Counter,
    /// Datagrams received.
    pub(crate) datagrams_received: Counter,
    /// Datagrams that the kernel refused because they exceed the MTU.
    pub(crate) too_large: Counter,
    /// Other errors of the UDP socket.
    pub(crate) socket_errors: Counter,
    /// Times that no connection could be accepted for want of descriptors or
    /// memory.
    pub(crate) exhausted: Counter,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "connections {} (closed {}, reset {}, failed {}), bytes to hop {}, from hop {}, \
             datagrams sent {}, received {}, too large {}, socket errors {}, exhausted {}",
            self.connections,
            self.closed,
            self.reset,
            self.failed,
            self.bytes_to_hop,
            self.bytes_from_hop,
            self.datagrams_sent,
            self.datagrams_received,
            self.too_large,
            self.socket_errors,
            self.exhausted
        )
    }
}
