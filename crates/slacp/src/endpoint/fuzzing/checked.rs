//! An endpoint that is checked at every step against the limits of what a peer may cause.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use units::{Instant, Machine};

use super::adversary::is_claimed;
use crate::recovery::fec::{FecBlock, FecDecoder, PendingRepair, encode};
use crate::wire::frame::RepairFrame;
use crate::{Destination, Ecn, Endpoint, EndpointFootprint, Event, SessionId, StreamOpening, Wake};

/// Maximum ratio of the bytes sent to an unproven address to those received from it (RFC 9000
/// §8.1).
const AMPLIFICATION: u64 = 3;
/// Maximum number of turns at one time without input or output. One of them may have been asked for
/// a moment too early.
const IDLE_TURNS: u32 = 2;
/// Turns in a second for all timers of a session. The shortest, 3 ms, is that of tails
/// (`planner.rs`).
const TIMER_TURNS: u64 = 400;

/// Maximum ratio of the memory allocated to the memory counted: maps are half empty after
/// insertions in order, vectors double, and do not give back what they no longer need.
const SLACK: usize = 3;
/// Memory that a session takes without counting it, in bytes: 64 lanes on each of four channels
/// with half a kilobyte each, a kilobyte for each of 32 streams, the capacity that the queues of
/// events and of frames keep, a thousand entries each, and the session itself.
const FIXED: usize = 4 * 64 * 512 + 32 * 1024 + 2 * 1024 * 100 + 36_000;

/// Limits of the statistics of a session.
#[derive(Debug, Clone, Copy)]
pub struct FigureLimits {
    /// Maximum number of bytes of streams in each direction.
    pub memory: u64,
    /// Maximum number of live streams.
    pub streams: usize,
}

/// Maximum memory of an endpoint, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct MemoryBound {
    /// Memory without sessions.
    pub base: usize,
    /// Memory for each session, and for each handshake under way.
    pub session: usize,
    /// Memory for each session of an honest peer, instead of `session`.
    pub honest: usize,
}

/// Allocates the tables of the erasure code. They take some megabytes, belong to the process, and
/// must not count for the endpoint that first needs them.
fn fill_tables() {
    let block = FecBlock { base: 0, stride: 1, count: 2 };
    let pending = encode(block, 1, |_| b"source");
    let mut decoder = FecDecoder::new(100);
    decoder.store(0, b"source");
    let PendingRepair { repairs, index, shard, .. } = &pending[0];
    let (repairs, index) = (*repairs, *index);
    let repair = RepairFrame { distance: 2, stride: 1, count: 2, repairs, index, shard };
    decoder.repair(2, &repair);
}

/// An endpoint with checks around each call.
pub struct CheckedEndpoint {
    endpoint: Endpoint,
    /// Returns the number of bytes allocated and not freed in this thread.
    live: fn() -> isize,
    bound: MemoryBound,
    held: isize,
    /// Number of sessions of honest peers.
    pub honest: usize,
    /// Maximum memory held so far, as a fraction of the bound.
    pub most: f64,
    /// Maximum memory held so far, as a fraction of the memory that its statistics explain.
    pub most_uncounted: f64,
    /// Bytes received from, and sent to, addresses that the adversary only claims.
    claimed: BTreeMap<SocketAddr, [u64; 2]>,
    /// The present second. `work` and `turns` count from its beginning.
    second: u64,
    /// Number of datagrams received and sent.
    work: u64,
    /// Number of calls of [`Self::wake`].
    turns: u64,
    /// Number of turns at one time without input or output.
    idle: u32,
    last_turn: Instant,
}

impl CheckedEndpoint {
    /// Checks the endpoint that `make` makes. `live` returns the memory in use, in bytes, or always
    /// 0 if it is not known.
    pub fn new(live: fn() -> isize, bound: MemoryBound, make: impl FnOnce() -> Endpoint) -> Self {
        fill_tables();
        let before = live();
        let endpoint = make();
        Self {
            endpoint,
            live,
            bound,
            held: live() - before,
            honest: 0,
            most: 0.0,
            most_uncounted: 0.0,
            claimed: BTreeMap::new(),
            second: 0,
            work: 0,
            turns: 0,
            idle: 0,
            last_turn: Instant::ZERO,
        }
    }

    /// Memory held by the endpoint, in bytes.
    pub fn held(&self) -> isize {
        self.held
    }

    /// The endpoint, for reading.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Calls the endpoint. The result must not own memory that was allocated for the endpoint.
    pub fn with<R>(&mut self, call: impl FnOnce(&mut Endpoint) -> R) -> R {
        let before = (self.live)();
        let result = call(&mut self.endpoint);
        self.held += (self.live)() - before;
        self.check_memory();
        result
    }

    /// Hands a datagram to the endpoint.
    pub fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        self.work += 1;
        self.idle = 0;
        if is_claimed(from) {
            self.claimed.entry(from).or_default()[0] += datagram.len() as u64;
        }
        // Any codepoint, as a path may set it.
        let ecn = Ecn::from_bits(datagram.last().copied().unwrap_or(0));
        self.with(|endpoint| endpoint.handle_datagram_with_ecn(now, from, ecn, datagram));
    }

    /// The next datagram to be sent.
    ///
    /// # Panics
    /// If an unproven address gets more than three times the bytes that came from it.
    pub fn transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<SocketAddr> {
        // Grown here, the buffer would count as the endpoint's.
        buf.reserve(2_000);
        let to = self.with(|endpoint| endpoint.poll_transmit(now, buf))?;
        self.work += 1;
        self.idle = 0;
        if let Some([came, went]) = self.claimed.get_mut(&to) {
            *went += buf.len() as u64;
            assert!(*went <= *came * AMPLIFICATION, "{to} got {went} bytes for {came}");
        }
        Some(to)
    }

    /// Lets the endpoint handle its timeouts.
    ///
    /// # Panics
    /// If the endpoint is woken in vain, or too often.
    pub fn wake(&mut self, now: Instant) {
        self.idle = if now == self.last_turn { self.idle + 1 } else { 0 };
        self.last_turn = now;
        let due = || self.endpoint.poll_timeout();
        assert!(self.idle <= IDLE_TURNS, "woken in vain at {now}: {:?}", due());
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            (self.second, self.turns, self.work) = (second, 0, 0);
        }
        self.turns += 1;
        let EndpointFootprint { sessions, handshakes, .. } = self.endpoint.footprint();
        let peers = (1 + sessions + handshakes) as u64;
        let most = 2 * self.work + TIMER_TURNS * peers;
        assert!(self.turns <= most, "{} turns in a second at {now}: {:?}", self.turns, due());
        self.with(|endpoint| endpoint.handle_timeout(now));
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<(SessionId, Event)> {
        let event = self.with(Endpoint::poll_event)?;
        // The only memory that leaves with an event.
        if let Event::Opened {
            open: StreamOpening { destination: Destination::Name(name, _), .. },
            ..
        } = &event.1
        {
            self.held -= name.as_str().len() as isize;
        }
        Some(event)
    }

    /// The next time at which to call [`Self::wake`].
    pub fn poll_timeout(&self) -> Option<(Instant, Wake)> {
        self.endpoint.poll_timeout()
    }

    /// Checks the memory held against the bound.
    ///
    /// # Panics
    /// If the endpoint holds more.
    fn check_memory(&mut self) {
        let EndpointFootprint { sessions, handshakes, .. } = self.endpoint.footprint();
        let MemoryBound { base, session, honest } = self.bound;
        let hostile = (sessions + handshakes).saturating_sub(self.honest);
        let bound = base + hostile * session + self.honest * honest;
        self.most = self.most.max(self.held as f64 / bound as f64);
        assert!(
            self.held <= bound as isize,
            "{} bytes are held, {bound} allowed for {sessions} sessions and {handshakes} handshakes",
            self.held
        );
    }

    /// Checks the statistics of the sessions against their limits, and the memory held against the
    /// memory that they explain. `sessions` are all that the owner knows of.
    ///
    /// # Panics
    /// If a limit is exceeded, or if more memory is held than is explained.
    pub fn check_figures(
        &mut self,
        sessions: impl Iterator<Item = SessionId> + Clone,
        limits: &FigureLimits,
    ) {
        let EndpointFootprint { sessions: all, handshakes, .. } = self.endpoint.footprint();
        let mut counted = self.bound.base;
        let mut known = 0;
        for stats in sessions.clone().filter_map(|id| self.endpoint.stats(id)) {
            let (to_send, to_read) = (stats.held_to_send.get(), stats.held_to_read.get());
            let memory = limits.memory;
            assert!(to_send <= memory && to_read <= memory, "{to_send} to send, {to_read} to read");
            assert!(stats.held.get() <= 5 * memory, "{} held in all", stats.held);
            assert!(stats.streams <= limits.streams, "{} streams", stats.streams);
            assert!(stats.ce_reported <= stats.ect_sent, "{} marked", stats.ce_reported);
            counted += SLACK * stats.held.get() as usize + FIXED;
            known += 1;
        }
        counted += (all + handshakes).saturating_sub(known) * self.bound.session;
        self.most_uncounted = self.most_uncounted.max(self.held as f64 / counted as f64);
        let stats = || sessions.filter_map(|id| self.endpoint.stats(id)).collect::<Vec<_>>();
        let explained = self.held <= counted as isize;
        assert!(explained, "{} bytes held, {counted} explained: {:?}", self.held, stats());
    }
}
