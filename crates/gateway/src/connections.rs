//! The register of live connections, for status reports.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pep::relay::Side;
use slacp::{Destination, Open, SessionId, StreamId};
use units::Instant;

use crate::clock;
use crate::counters::Counters;

/// Time constant of the estimate of who holds a direction up.
const MEMORY: Duration = Duration::from_secs(2);
/// A direction that has moved nothing for this long is idle.
const IDLE: Duration = Duration::from_secs(3);

/// All live connections of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Register(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    live: BTreeMap<u64, Arc<Entry>>,
}

/// Which side opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client on this side.
    Here,
    /// The peer; the TCP connection here then leads to the server.
    Peer {
        /// Whether the client's address is in the peer's networks. If not, the peer may have made
        /// it up.
        verified: bool,
    },
}

/// A connection's entry in the register.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// `None` for a direct connection; its fields for the hop then describe the connection to the
    /// server.
    pub(crate) session: Option<SessionId>,
    pub(crate) open: Open<Destination>,
    pub(crate) origin: Origin,
    pub(crate) since: Instant,
    moving: Mutex<Moving>,
}

/// The fields that change while it lives.
#[derive(Debug, Clone)]
pub(crate) struct Moving {
    pub(crate) stream: Option<StreamId>,
    /// The TCP socket, while open.
    pub(crate) socket: Option<RawFd>,
    /// The socket to the server, if there is no hop.
    pub(crate) far_socket: Option<RawFd>,
    pub(crate) to_hop: Direction,
    pub(crate) from_hop: Direction,
}

/// One direction of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Direction {
    pub(crate) bytes: u64,
    /// Which side it waits for, and since when.
    waits: Waits,
    since: Instant,
    moved: Instant,
    /// Recent share of the time spent waiting for the TCP connection, 0 to 1.
    for_socket: f64,
}

/// What a direction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The TCP connection here: for data, or for room.
    Socket,
    /// The stream: for room, or for data.
    Stream,
}

/// What has recently held a direction up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Nothing has moved for a while.
    Idle,
    /// Mostly this.
    By(Waits),
}

impl Direction {
    fn new(now: Instant, waits: Waits) -> Self {
        Self { bytes: 0, waits, since: now, moved: now, for_socket: 0.5 }
    }

    /// Records what the direction waits for from now on.
    pub(crate) fn wait(&mut self, now: Instant, waits: Waits) {
        let past = now.saturating_since(self.since).as_secs_f64();
        let kept = (-past / MEMORY.as_secs_f64()).exp();
        let now_for_socket = f64::from(u8::from(self.waits == Waits::Socket));
        self.for_socket = self.for_socket * kept + now_for_socket * (1.0 - kept);
        (self.waits, self.since) = (waits, now);
    }

    fn moved(&mut self, now: Instant, bytes: usize) {
        self.bytes += bytes as u64;
        self.moved = now;
    }

    /// What has held the direction up.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let mut seen = self.clone();
        seen.wait(now, self.waits);
        if self.bytes == 0 || now.saturating_since(self.moved) > IDLE {
            return Held::Idle;
        }
        Held::By(if seen.for_socket > 0.5 { Waits::Socket } else { Waits::Stream })
    }
}

impl Entry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Moving> {
        self.moving.lock().expect("nobody panics while holding an entry")
    }

    /// Attaches its stream and its TCP socket.
    pub(crate) fn carries(&self, stream: StreamId, socket: RawFd) {
        let mut moving = self.lock();
        (moving.stream, moving.socket) = (Some(stream), Some(socket));
    }

    /// Attaches the sockets of its client and its server.
    pub(crate) fn joins(&self, client: RawFd, server: RawFd) {
        let mut moving = self.lock();
        (moving.socket, moving.far_socket) = (Some(client), Some(server));
    }

    /// Call before the sockets are closed: their descriptors may be reused.
    pub(crate) fn socket_ends(&self) {
        let mut moving = self.lock();
        (moving.socket, moving.far_socket) = (None, None);
    }
}

/// Keeps an entry in the register while the connection lives.
pub(crate) struct Registered<'a> {
    counters: &'a Counters,
    entry: Arc<Entry>,
}

impl<'a> Registered<'a> {
    /// Registers a connection until dropped.
    pub(crate) fn new(
        counters: &'a Counters,
        session: SessionId,
        open: impl Into<Open<Destination>>,
        origin: Origin,
    ) -> Self {
        Self { counters, entry: counters.live.enter(Some(session), open.into(), origin) }
    }

    /// Registers a direct connection.
    pub(crate) fn straight(counters: &'a Counters, open: impl Into<Open<Destination>>) -> Self {
        Self { counters, entry: counters.live.enter(None, open.into(), Origin::Here) }
    }

    /// Counts bytes that have moved from the leg `from` to the other.
    pub(crate) fn moved(&self, from: Side, bytes: usize) {
        let Counters { bytes_to_hop, bytes_from_hop, bytes_up, bytes_down, .. } = self.counters;
        let (counter, leaves) = match (self.session, from) {
            (None, Side::Client) => (bytes_up, true),
            (None, Side::Server) => (bytes_down, false),
            (Some(_), _) if from == self.here() => (bytes_to_hop, true),
            (Some(_), _) => (bytes_from_hop, false),
        };
        counter.add(bytes as u64);
        self.direction(&mut self.lock(), leaves).moved(clock::now(), bytes);
    }

    /// Records that the direction from the leg `from` waits for the leg `on`.
    pub(crate) fn blocked(&self, from: Side, on: Side) {
        let here = self.here();
        let waits = if on == here { Waits::Socket } else { Waits::Stream };
        self.direction(&mut self.lock(), from == here).wait(clock::now(), waits);
    }

    /// The side of the TCP connection here; of a direct connection, the client's.
    fn here(&self) -> Side {
        match self.origin {
            Origin::Here => Side::Client,
            Origin::Peer { .. } => Side::Server,
        }
    }

    /// The direction that leaves the TCP connection here, or the opposite one.
    fn direction<'m>(&self, moving: &'m mut Moving, leaves: bool) -> &'m mut Direction {
        if leaves { &mut moving.to_hop } else { &mut moving.from_hop }
    }
}

impl std::ops::Deref for Registered<'_> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.counters.live.lock().live.remove(&self.entry.id);
    }
}

impl Register {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("nobody panics while holding the register")
    }

    fn enter(
        &self,
        session: Option<SessionId>,
        open: Open<Destination>,
        origin: Origin,
    ) -> Arc<Entry> {
        let now = clock::now();
        let mut entries = self.lock();
        let id = entries.next;
        entries.next += 1;
        let moving = Moving {
            stream: None,
            socket: None,
            far_socket: None,
            to_hop: Direction::new(now, Waits::Socket),
            from_hop: Direction::new(now, Waits::Stream),
        };
        let moving = Mutex::new(moving);
        let entry = Arc::new(Entry { id, session, open, origin, since: now, moving });
        entries.live.insert(id, entry.clone());
        entry
    }

    /// Number of live connections.
    pub(crate) fn count(&self) -> usize {
        self.lock().live.len()
    }

    /// All live connections, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().live.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn more_is_counted_than_fits_in_32_bits() {
        let counters = Counters::default();
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
        let open = Open { destination: address, source: address, dscp: None };
        let entry = Registered::straight(&counters, open);
        for side in Side::BOTH {
            (0..3).for_each(|_| entry.moved(side, u32::MAX as usize));
        }
        let most = 3 * u64::from(u32::MAX);
        assert_eq!([&counters.bytes_up, &counters.bytes_down].map(|it| it.get()), [most; 2]);
        let moving = entry.lock().clone();
        assert_eq!([moving.to_hop.bytes, moving.from_hop.bytes], [most; 2]);
    }

    #[test]
    fn who_held_a_direction_up_is_who_it_waited_for_most_of_late() {
        let mut direction = Direction::new(at(0), Waits::Socket);
        assert_eq!(direction.held(at(1000)), Held::Idle);
        // A client that sends continuously is held up by the stream.
        for step in 0..200 {
            direction.wait(at(step * 50), Waits::Socket);
            direction.moved(at(step * 50), 1000);
            direction.wait(at(step * 50 + 5), Waits::Stream);
        }
        assert_eq!(direction.held(at(10_000)), Held::By(Waits::Stream));
        // Later it sends only now and then.
        for step in 200..400 {
            direction.wait(at(step * 50), Waits::Stream);
            direction.moved(at(step * 50), 1000);
            direction.wait(at(step * 50 + 5), Waits::Socket);
        }
        assert_eq!(direction.held(at(20_000)), Held::By(Waits::Socket));
        assert_eq!(direction.held(at(24_000)), Held::Idle);
        assert_eq!(direction.bytes, 400_000);
    }
}
