//! What a gateway counts while it runs; told in its log at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use slacp::ResetReason;

use crate::connections::Register;
use crate::refusals::Refusals;
use crate::tcp::Keepalive;

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

/// How much there is at present.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// There are `count` more until what this returns is dropped.
    pub(crate) fn hold(&self, count: usize) -> Share<'_> {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
        Share { gauge: self, count: count as u64 }
    }
}

/// A part of a [`Gauge`].
pub(crate) struct Share<'g> {
    gauge: &'g Gauge,
    count: u64,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.gauge.0.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// Everything that one gateway counts, and what its connections have in common.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Of each connection's TCP.
    pub(crate) keepalive: Keepalive,
    /// Where connections pass by for a while.
    pub(crate) refusals: Refusals,
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
    /// Connections that went straight to their servers, without a hop.
    pub(crate) straight: Counter,
    /// Bytes of these from clients to servers.
    pub(crate) bytes_up: Counter,
    /// Bytes of these from servers to clients.
    pub(crate) bytes_down: Counter,
    /// Times that something was marked as urgent, which nobody is told.
    pub(crate) urgent: Counter,
    /// Bytes that are in pipes at present.
    pub(crate) in_pipes: Gauge,
    /// Packets of the tunnel sent over the hop.
    pub(crate) packets_to_hop: Counter,
    /// Packets from the hop that the kernel was given to route on.
    pub(crate) packets_from_hop: Counter,
    /// Packets from the hop whose source is not behind their terminal, or that may not
    /// go where they want.
    pub(crate) packets_foreign: Counter,
    /// Packets of the tunnel that nobody could take.
    pub(crate) packets_dropped: Counter,
    /// Datagrams handed to the kernel.
    pub(crate) datagrams_sent: Counter,
    /// Datagrams received.
    pub(crate) datagrams_received: Counter,
    /// Datagrams that the kernel refused because they exceed the MTU.
    pub(crate) too_large: Counter,
    /// Other errors of the UDP socket.
    pub(crate) socket_errors: Counter,
    /// Times that two machines were found to use one key.
    pub(crate) shared_keys: Counter,
    /// Times that no connection could be accepted for want of descriptors or
    /// memory.
    pub(crate) exhausted: Counter,
    /// Why connections were reset or failed.
    pub(crate) reasons: Reasons,
    /// The connections alive.
    pub(crate) live: Register,
}

/// Counts by reason.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<BTreeMap<ResetReason, u64>>);

impl Reasons {
    pub(crate) fn count(&self, reason: ResetReason) {
        *self.0.lock().expect("nobody panics while counting").entry(reason).or_default() += 1;
    }

    /// How many there were for this reason.
    pub(crate) fn of(&self, reason: ResetReason) -> u64 {
        self.0.lock().expect("nobody panics while counting").get(&reason).copied().unwrap_or(0)
    }

    /// Those that there were, by the name of the reason.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let counts = self.0.lock().expect("nobody panics while counting");
        counts.iter().map(|(reason, count)| (name(*reason).to_owned(), *count)).collect()
    }
}

/// One word for a reason.
fn name(reason: ResetReason) -> &'static str {
    match reason {
        ResetReason::Reset => "reset",
        ResetReason::Refused => "refused",
        ResetReason::Unreachable => "unreachable",
        ResetReason::TimedOut => "timed-out",
        ResetReason::Limit => "limit",
        ResetReason::Prohibited => "prohibited",
        ResetReason::SessionLost => "session-lost",
        _ => "other",
    }
}

impl Counters {
    /// What a gateway without a hop has counted.
    pub(crate) fn straight_only(&self) -> impl fmt::Display {
        format!(
            "connections {} (closed {}, reset {}, failed {}), bytes up {}, down {}, exhausted {}",
            self.connections,
            self.closed,
            self.reset,
            self.failed,
            self.bytes_up,
            self.bytes_down,
            self.exhausted
        )
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "connections {} (closed {}, reset {}, failed {}), bytes to hop {}, from hop {}, \
             straight {}, bytes up {}, down {}, packets to hop {}, from hop {}, foreign {}, dropped {}, \
             datagrams sent {}, received {}, too large {}, socket errors {}, shared keys {}, exhausted {}",
            self.connections,
            self.closed,
            self.reset,
            self.failed,
            self.bytes_to_hop,
            self.bytes_from_hop,
            self.straight,
            self.bytes_up,
            self.bytes_down,
            self.packets_to_hop,
            self.packets_from_hop,
            self.packets_foreign,
            self.packets_dropped,
            self.datagrams_sent,
            self.datagrams_received,
            self.too_large,
            self.socket_errors,
            self.shared_keys,
            self.exhausted
        )
    }
}
