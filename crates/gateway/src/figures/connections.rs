//! The register of live connections, for status reports and for fair sharing among clients.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use control::status::TrafficCounters;
use pep::admission::{ConnectionShares, IdleConnection, choose_evicted};
use pep::relay::LegSide;
use pep::relay::bottleneck::{DirectionEnd, DirectionMeter};
use slacp::{Destination, ResetReason, SessionId, StreamId, StreamOpening, client_network};
use tokio::sync::Notify;
use units::Instant;

use crate::figures::counters::GatewayCounters;
use crate::network::socket_options;

/// All live connections of a gateway.
#[derive(Debug)]
pub(crate) struct Register {
    entries: Mutex<RegisterEntries>,
    /// Maximum number of connections, which clients share.
    most: AtomicU64,
}

impl Default for Register {
    /// No limit until [`Self::set_limit`] sets one.
    fn default() -> Self {
        Self { entries: Mutex::default(), most: AtomicU64::new(u64::MAX) }
    }
}

#[derive(Debug, Default)]
struct RegisterEntries {
    next: u64,
    live: BTreeMap<u64, Arc<LiveConnection>>,
    shares: ConnectionShares,
}

/// The side that opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// A client on this side.
    Here,
    /// The peer; the TCP connection here then leads to the server.
    Peer {
        /// The client's address is in the peer's networks. Otherwise the peer may have made it up.
        verified: bool,
    },
}

/// A connection's entry in the register.
#[derive(Debug)]
pub(crate) struct LiveConnection {
    pub(crate) id: u64,
    /// `None` for a direct connection, whose fields for the hop describe the connection to the server.
    pub(crate) session: Option<SessionId>,
    pub(crate) open: StreamOpening<Destination>,
    pub(crate) origin: ConnectionOrigin,
    pub(crate) since: Instant,
    state: Mutex<LiveState>,
    /// Notified when the connection has to give way to others.
    evicted: Notify,
}

/// The fields of an entry that change.
#[derive(Debug, Clone)]
pub(crate) struct LiveState {
    pub(crate) stream: Option<StreamId>,
    /// The TCP socket here, while open.
    pub(crate) socket: Option<RawFd>,
    /// The socket to the server of a direct connection, while open.
    pub(crate) far_socket: Option<RawFd>,
    /// The connection towards the WAN, if it is one of skyhop's own stack.
    pub(crate) far_flow: Option<Arc<dyn FlowFigures>>,
    pub(crate) to_hop: DirectionMeter,
    pub(crate) from_hop: DirectionMeter,
}

impl LiveConnection {
    /// The unit of fair sharing: the client's IPv4 address or IPv6 /64.
    fn client(&self) -> IpAddr {
        client_network(self.open.source.ip())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().expect("no thread panics while it holds an entry")
    }

    /// Records the stream and the TCP socket of the connection.
    pub(crate) fn attach_stream(&self, stream: StreamId, socket: RawFd) {
        let mut state = self.lock();
        (state.stream, state.socket) = (Some(stream), Some(socket));
    }

    /// Records the TCP connections of client and server of a direct connection.
    pub(crate) fn attach_ends(&self, ends: [Option<DirectLeg>; 2]) {
        let mut state = self.lock();
        // A connection of skyhop's own stack is always the one towards the WAN, so the other is here.
        let near = usize::from(matches!(ends[0], Some(DirectLeg::Flow(_))));
        for (index, end) in ends.into_iter().enumerate() {
            match end {
                Some(DirectLeg::Flow(flow)) => state.far_flow = Some(flow),
                Some(DirectLeg::Socket(socket)) if index == near => state.socket = Some(socket),
                Some(DirectLeg::Socket(socket)) => state.far_socket = Some(socket),
                None => {}
            }
        }
    }

    /// Removes the TCP connections. Call before closing the sockets, whose descriptors may be reused.
    pub(crate) fn detach_sockets(&self) {
        let mut state = self.lock();
        (state.socket, state.far_socket, state.far_flow) = (None, None, None);
    }
}

/// Figures of a connection of skyhop's own stack; `None` once it has ended.
pub(crate) trait FlowFigures: std::fmt::Debug + Send + Sync {
    /// Smoothed round-trip time (RFC 6298).
    fn rtt(&self) -> Option<Duration>;

    /// Congestion window in segments, the unit of the kernel's own figure.
    fn congestion_window(&self) -> Option<u32>;
}

/// One of the two TCP connections of a direct connection.
pub(crate) enum DirectLeg {
    /// A socket of the kernel.
    Socket(RawFd),
    /// A connection of skyhop's own stack.
    Flow(Arc<dyn FlowFigures>),
}

impl LiveState {
    /// Time of the last data, in either direction.
    fn last_moved(&self) -> Instant {
        self.to_hop.last_moved().max(self.from_hop.last_moved())
    }

    /// Smoothed round-trip time towards the server, or the WAN.
    pub(crate) fn far_rtt(&self) -> Option<Duration> {
        let of_flow = self.far_flow.as_ref().and_then(|flow| flow.rtt());
        of_flow.or_else(|| self.far_socket.and_then(socket_options::rtt))
    }

    /// Congestion window towards the server, or the WAN, in segments.
    pub(crate) fn far_window(&self) -> Option<u32> {
        let of_flow = self.far_flow.as_ref().and_then(|flow| flow.congestion_window());
        of_flow.or_else(|| self.far_socket.and_then(socket_options::congestion_window))
    }
}

/// Keeps an entry in the register while the connection lives.
pub(crate) struct Registered<'a> {
    counters: &'a GatewayCounters,
    entry: Arc<LiveConnection>,
}

impl<'a> Registered<'a> {
    /// Registers a connection until dropped.
    pub(crate) fn new(
        now: Instant,
        counters: &'a GatewayCounters,
        session: SessionId,
        open: impl Into<StreamOpening<Destination>>,
        origin: ConnectionOrigin,
    ) -> Self {
        Self { counters, entry: counters.live.enter(now, Some(session), open.into(), origin) }
    }

    /// Registers a direct connection, which has no session, until dropped.
    pub(crate) fn direct(
        now: Instant,
        counters: &'a GatewayCounters,
        open: impl Into<StreamOpening<Destination>>,
    ) -> Self {
        Self {
            counters,
            entry: counters.live.enter(now, None, open.into(), ConnectionOrigin::Here),
        }
    }

    /// Runs the connection's work until it is done, or dropped because the connection gives way.
    pub(crate) async fn run_until_evicted(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            () = self.evicted.notified() => {
                self.counters.traffic.reset.increment();
                tracing::debug!(
                    destination = %self.open.destination, source = %self.open.source,
                    "closed an idle connection to make room for others"
                );
            }
        }
    }

    /// Returns whether the connection had to give way since the last call.
    #[cfg(test)]
    pub(crate) fn was_evicted(&self) -> bool {
        let mut work = Box::pin(self.run_until_evicted(std::future::pending()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        work.as_mut().poll(&mut context).is_ready()
    }

    /// Counts the reason why the connection of a client here was reset.
    pub(crate) fn count_refusal(&self, now: Instant, reason: ResetReason) {
        self.counters.count_refusal(now, self.open.source.ip(), reason);
    }

    /// Counts bytes moved from the leg `from` to the other.
    pub(crate) fn moved(&self, now: Instant, from: LegSide, bytes: usize) {
        let TrafficCounters { to_hop_bytes, from_hop_bytes, up_bytes, down_bytes, .. } =
            &self.counters.traffic;
        // The hop's counters are as seen from the TCP connection here, which is the client's on a terminal and
        // the server's on a hub.
        let (counter, leaves) = match (self.session, from) {
            (None, LegSide::Client) => (up_bytes, true),
            (None, LegSide::Server) => (down_bytes, false),
            (Some(_), _) if from == self.here() => (to_hop_bytes, true),
            (Some(_), _) => (from_hop_bytes, false),
        };
        counter.add(bytes as u64);
        self.direction(&mut self.lock(), leaves).moved(now, bytes);
    }

    /// Records that the direction from the leg `from` waits for the leg `on`.
    pub(crate) fn blocked(&self, now: Instant, from: LegSide, on: LegSide) {
        let here = self.here();
        let waits_for = if on == here { DirectionEnd::Socket } else { DirectionEnd::Stream };
        self.direction(&mut self.lock(), from == here).wait(now, waits_for);
    }

    /// The side of the TCP connection here. A direct connection counts as the client's.
    fn here(&self) -> LegSide {
        match self.origin {
            ConnectionOrigin::Here => LegSide::Client,
            ConnectionOrigin::Peer { .. } => LegSide::Server,
        }
    }

    /// Selects the meter of the direction that leaves the TCP connection here, or of the opposite one.
    fn direction<'m>(&self, state: &'m mut LiveState, leaves: bool) -> &'m mut DirectionMeter {
        if leaves { &mut state.to_hop } else { &mut state.from_hop }
    }
}

/// Counts a client's new connection until its task has entered it in the register, since many may arrive
/// before the first of these tasks runs.
pub(crate) struct ArrivingConnection {
    counters: Arc<GatewayCounters>,
    client: IpAddr,
}

impl ArrivingConnection {
    /// Counts a connection of the client at this address until dropped.
    pub(crate) fn new(counters: Arc<GatewayCounters>, client: IpAddr) -> Self {
        let client = client_network(client);
        counters.live.lock().shares.enter(client);
        Self { counters, client }
    }
}

impl Drop for ArrivingConnection {
    fn drop(&mut self) {
        self.counters.live.lock().shares.leave(self.client);
    }
}

impl std::ops::Deref for Registered<'_> {
    type Target = LiveConnection;

    fn deref(&self) -> &LiveConnection {
        &self.entry
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut entries = self.counters.live.lock();
        if entries.live.remove(&self.entry.id).is_some() {
            entries.shares.leave(self.entry.client());
        }
    }
}

impl Register {
    fn lock(&self) -> MutexGuard<'_, RegisterEntries> {
        self.entries.lock().expect("no thread panics while it holds the register")
    }

    fn enter(
        &self,
        now: Instant,
        session: Option<SessionId>,
        open: StreamOpening<Destination>,
        origin: ConnectionOrigin,
    ) -> Arc<LiveConnection> {
        let mut entries = self.lock();
        let id = entries.next;
        entries.next += 1;
        let state = LiveState {
            stream: None,
            socket: None,
            far_socket: None,
            far_flow: None,
            to_hop: DirectionMeter::new(now, DirectionEnd::Socket),
            from_hop: DirectionMeter::new(now, DirectionEnd::Stream),
        };
        let state = Mutex::new(state);
        let evicted = Notify::new();
        let entry =
            Arc::new(LiveConnection { id, session, open, origin, since: now, state, evicted });
        entries.live.insert(id, entry.clone());
        entries.shares.enter(entry.client());
        entry
    }

    /// Sets the maximum number of connections, which clients share.
    pub(crate) fn set_limit(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Number of connections, including those that are not in the register yet.
    #[cfg(test)]
    pub(crate) fn arrived(&self) -> u64 {
        self.lock().shares.count()
    }

    /// Returns whether a client at this address may have another connection. At its share, its own oldest
    /// idle connection gives way.
    pub(crate) fn admits(&self, now: Instant, client: IpAddr) -> bool {
        let client = client_network(client);
        let most = self.most.load(Ordering::Relaxed);
        self.lock().shares.admits(client, most) || self.evict_idle(now, Some(client), 1) > 0
    }

    /// Returns whether a client at this address holds most of the connections while other clients have some.
    pub(crate) fn is_dominated_by(&self, client: IpAddr) -> bool {
        self.lock().shares.is_dominated_by(client_network(client))
    }

    /// Closes up to `count` connections that have been idle for long, of one client or of all, to make room
    /// for others. Returns their number.
    pub(crate) fn evict_idle(&self, now: Instant, of: Option<IpAddr>, count: usize) -> usize {
        let entries = self.lock();
        let of_client =
            |entry: &&Arc<LiveConnection>| of.is_none_or(|client| entry.client() == client);
        let idle = entries.live.values().filter(of_client).filter_map(|entry| {
            let state = entry.lock();
            // Without a socket, a connection is being established or is carried elsewhere.
            let since = state.socket.map(|_| state.last_moved())?;
            Some(IdleConnection { id: entry.id, client: entry.client(), since })
        });
        let chosen = choose_evicted(now, idle, count);
        for entry in chosen.iter().filter_map(|id| entries.live.get(id)) {
            // Marked as active, so that it is not chosen again before its task runs.
            entry.lock().to_hop.moved(now, 0);
            // Kept until the task waits for it, if it does not yet.
            entry.evicted.notify_one();
        }
        chosen.len()
    }

    /// Number of registered connections, without those that are still arriving.
    pub(crate) fn count(&self) -> usize {
        self.lock().live.len()
    }

    /// Returns all live connections, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<LiveConnection>> {
        self.lock().live.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testkit::Hops;
    use control::Counter;

    fn open() -> StreamOpening {
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
        StreamOpening { destination: address, source: address, dscp: None }
    }

    fn open_of(client: [u8; 4]) -> StreamOpening {
        StreamOpening { source: (client, 4000).into(), ..open() }
    }

    #[test]
    fn a_client_with_its_share_of_the_connections_displaces_its_own_idle_ones_only() {
        let counters = GatewayCounters::default();
        counters.live.set_limit(16);
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let [greedy, other] = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let mut held = Vec::new();
        while counters.live.admits(at(0), greedy.into()) {
            let entry = Registered::direct(at(0), &counters, open_of(greedy));
            entry.attach_ends([5, 6].map(|socket| Some(DirectLeg::Socket(socket))));
            held.push(entry);
        }
        assert_eq!(held.len(), 14);
        assert!(counters.live.admits(at(0), other.into()));
        held[0].moved(at(30), LegSide::Client, 1);
        assert!(counters.live.admits(at(61), greedy.into()), "one gives way");
        let ended: Vec<bool> = held.iter().map(Registered::was_evicted).collect();
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 1);
        assert!(!ended[0], "it carried something");
    }

    #[test]
    fn a_connection_is_registered_while_it_lives_under_a_number_of_its_own() {
        let counters = GatewayCounters::default();
        let [first, second] =
            [(); 2].map(|()| Registered::direct(Instant::ZERO, &counters, open()));
        drop(first);
        let third = Registered::direct(Instant::ZERO, &counters, open());
        let ids: Vec<u64> = counters.live.all().iter().map(|entry| entry.id).collect();
        assert_eq!((ids, counters.live.count()), (vec![second.id, third.id], 2));
        assert_eq!(third.id, 2, "the number of the first is not used again");
        drop((second, third));
        assert_eq!(counters.live.count(), 0);
    }

    /// The hop's counters are as seen from the TCP connection here: it is the client's on the
    /// terminal, and the server's on the hub.
    #[test]
    fn bytes_count_towards_the_hop_or_from_it_whoever_opened_the_connection() {
        let [session, _] = Hops::new().sessions;
        for (origin, outward) in [
            (ConnectionOrigin::Here, LegSide::Client),
            (ConnectionOrigin::Peer { verified: true }, LegSide::Server),
        ] {
            let counters = GatewayCounters::default();
            let entry = Registered::new(Instant::ZERO, &counters, session, open(), origin);
            entry.moved(Instant::ZERO, outward, 30);
            entry.moved(Instant::ZERO, outward.other(), 7);
            let counted = [&counters.traffic.to_hop_bytes, &counters.traffic.from_hop_bytes]
                .map(Counter::get);
            assert_eq!(counted, [30, 7], "{origin:?}");
            let state = entry.lock().clone();
            assert_eq!([state.to_hop.bytes, state.from_hop.bytes], [30, 7], "{origin:?}");
            assert_eq!(
                [&counters.traffic.up_bytes, &counters.traffic.down_bytes].map(Counter::get),
                [0, 0]
            );
        }
    }

    #[test]
    fn each_direction_waits_for_the_end_that_holds_it_up() {
        let [session, _] = Hops::new().sessions;
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        for (origin, here) in [
            (ConnectionOrigin::Here, LegSide::Client),
            (ConnectionOrigin::Peer { verified: false }, LegSide::Server),
        ] {
            let counters = GatewayCounters::default();
            let entry = Registered::new(at(0), &counters, session, open(), origin);
            // A host that reads slowly and sends fast: each direction waits for the far side of it.
            for (from, on) in [(here, here.other()), (here.other(), here)] {
                entry.blocked(at(1), from, on);
                entry.moved(at(10), from, 1);
            }
            let state = entry.lock().clone();
            assert_eq!(state.to_hop.bottleneck(at(11)), Some(DirectionEnd::Stream), "{origin:?}");
            assert_eq!(state.from_hop.bottleneck(at(11)), Some(DirectionEnd::Socket), "{origin:?}");
        }
    }

    #[test]
    fn sockets_are_forgotten_before_they_close() {
        let counters = GatewayCounters::default();
        let entry = Registered::direct(Instant::ZERO, &counters, open());
        entry.attach_ends([5, 6].map(|socket| Some(DirectLeg::Socket(socket))));
        let sockets = || {
            let state = entry.lock();
            [state.socket, state.far_socket]
        };
        assert_eq!(sockets(), [Some(5), Some(6)]);
        entry.detach_sockets();
        assert_eq!(sockets(), [None, None]);
    }

    #[test]
    fn more_is_counted_than_fits_in_32_bits() {
        let counters = GatewayCounters::default();
        let entry = Registered::direct(Instant::ZERO, &counters, open());
        for side in LegSide::BOTH {
            (0..3).for_each(|_| entry.moved(Instant::ZERO, side, u32::MAX as usize));
        }
        let most = 3 * u64::from(u32::MAX);
        assert_eq!(
            [&counters.traffic.up_bytes, &counters.traffic.down_bytes].map(Counter::get),
            [most; 2]
        );
        let state = entry.lock().clone();
        assert_eq!([state.to_hop.bytes, state.from_hop.bytes], [most; 2]);
    }
}
