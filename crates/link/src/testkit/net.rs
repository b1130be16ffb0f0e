//! Peers, the links between them, and the driver of both.

#[cfg(test)]
mod tests;

use core::time::Duration;

use units::{Instant, Machine};

use super::lane::Lane;
use super::{Clock, Mangle, Mangled, Reason, Stalled, Waiting};
use crate::{Dice, LinkConfig, PacketCounters};

/// Size of the IPv4 and UDP headers of a datagram, in bytes.
pub const UDP_IPV4_OVERHEAD: usize = 28;
/// Size of the IPv6 and UDP headers of a datagram, in bytes.
pub const UDP_IPV6_OVERHEAD: usize = 48;

/// Number of rounds at one instant that counts as a livelock. Each round passes at least one input
/// to a machine, so this is far more than the busiest instant of a sensible test.
const LIVELOCK_ROUNDS: u32 = 100_000;

/// A state machine that exchanges datagrams with others.
pub trait Peer: Machine {
    /// Handles a datagram from peer number `from`.
    fn receive(&mut self, now: Instant, from: usize, datagram: Vec<u8>);

    /// Returns the next datagram to send now, and the number of its recipient. Called until it
    /// returns `None`, before the clock moves on.
    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)>;
}

/// Peers joined by links, in virtual time from [`Instant::ZERO`]. The same peers, seed and calls
/// give the same run.
///
/// A peer is identified by its index in the vector passed to [`Net::new`]. A datagram to a peer
/// without a link to it is a mistake in the test and panics.
#[derive(Debug)]
pub struct Net<P> {
    clock: Clock,
    peers: Vec<P>,
    lanes: Vec<Lane>,
    /// Index into `lanes` of the lane from `a` to `b`, at `a · peers + b`.
    routes: Vec<Option<usize>>,
    overhead: usize,
    seeds: Dice,
    /// Rounds since the clock last moved.
    rounds: u32,
}

impl<P: Peer> Net<P> {
    /// Peers without any links. Each link gets its own seed derived from `seed`, in order of
    /// creation.
    pub fn new(peers: Vec<P>, seed: u64) -> Self {
        Self {
            clock: Clock::new(),
            routes: vec![None; peers.len() * peers.len()],
            peers,
            lanes: Vec::new(),
            overhead: UDP_IPV4_OVERHEAD,
            seeds: Dice::new(seed),
            rounds: 0,
        }
    }

    /// Sets the size of a datagram's headers on the links in bytes. Default [`UDP_IPV4_OVERHEAD`].
    pub fn set_overhead(&mut self, bytes: usize) {
        self.overhead = bytes;
    }

    /// Creates the link from peer `from` to peer `to`. Replaces an existing one and its contents.
    ///
    /// # Panics
    /// If there is no such peer.
    pub fn connect(&mut self, from: usize, to: usize, config: LinkConfig) {
        let lane = Lane::new(from, to, config, self.seeds.bits());
        let route = self.route(from, to);
        match self.routes[route] {
            Some(index) => self.lanes[index] = lane,
            None => {
                self.routes[route] = Some(self.lanes.len());
                self.lanes.push(lane);
            }
        }
    }

    /// Creates identical links in both directions.
    ///
    /// # Panics
    /// If there is no such peer.
    pub fn join(&mut self, a: usize, b: usize, config: LinkConfig) {
        self.connect(a, b, config.clone());
        self.connect(b, a, config);
    }

    /// Mangles what arrives from `from` at `to` from now on.
    ///
    /// # Panics
    /// If the two are not connected.
    pub fn mangle(&mut self, from: usize, to: usize, mangle: Mangle) {
        self.lane_mut(from, to).mangler.settings = mangle;
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the peers, by their numbers.
    pub fn peers(&self) -> &[P] {
        &self.peers
    }

    /// Returns the peers, to run commands on them or to replace one by a restarted one.
    pub fn peers_mut(&mut self) -> &mut [P] {
        &mut self.peers
    }

    /// Returns the counters of the link from `from` to `to`.
    ///
    /// # Panics
    /// If the two are not connected.
    pub fn counters(&self, from: usize, to: usize) -> &PacketCounters {
        self.lane(from, to).link.counters()
    }

    /// Returns the counters of the mangling between `from` and `to`.
    ///
    /// # Panics
    /// If the two are not connected.
    pub fn mangled(&self, from: usize, to: usize) -> Mangled {
        self.lane(from, to).mangler.counters
    }

    /// Runs until `condition` holds; returns the time. The condition is evaluated at the start and
    /// after every round, and may run commands on the peers.
    ///
    /// # Errors
    /// If the deadline is reached, nothing will ever happen again, or time stands still. The clock
    /// then shows when that was noticed.
    pub fn run_until(
        &mut self,
        mut condition: impl FnMut(&mut [P]) -> bool,
        deadline: Instant,
    ) -> Result<Instant, Stalled> {
        self.drive_until(|_, peers| condition(peers), deadline)
    }

    /// [`Net::run_until`] with a condition that also receives the time.
    ///
    /// # Errors
    /// Those of [`Net::run_until`].
    pub fn drive_until(
        &mut self,
        mut condition: impl FnMut(Instant, &mut [P]) -> bool,
        deadline: Instant,
    ) -> Result<Instant, Stalled> {
        self.rounds = 0;
        while !condition(self.now(), &mut self.peers) {
            self.round(deadline).map_err(|reason| self.stalled(reason))?;
        }
        Ok(self.now())
    }

    /// Runs for `time`, whatever happens.
    ///
    /// # Errors
    /// If time stands still.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Stalled> {
        let end = self.now() + time;
        let Err(stalled) = self.run_until(|_| false, end) else { return Ok(()) };
        if matches!(stalled.reason, Reason::Livelock { .. }) {
            return Err(stalled);
        }
        self.clock.advance_to(end);
        Ok(())
    }

    /// Sends what the peers have to send, moves the clock to the next event, and processes it.
    fn round(&mut self, deadline: Instant) -> Result<(), Reason> {
        self.transmit()?;
        let next = self.next_timeout().ok_or(Reason::Idle)?;
        if next > deadline {
            self.clock.advance_to(deadline);
            return Err(Reason::Deadline);
        }
        if self.clock.advance_to(next) {
            self.rounds = 0;
        }
        self.count_round()?;
        self.deliver();
        self.wake();
        Ok(())
    }

    fn transmit(&mut self) -> Result<(), Reason> {
        let now = self.now();
        for from in 0..self.peers.len() {
            while let Some((to, datagram)) = self.peers[from].transmit(now) {
                let overhead = self.overhead;
                self.lane_mut(from, to).send(now, datagram, overhead);
                self.count_round()?;
            }
        }
        Ok(())
    }

    fn next_timeout(&self) -> Option<Instant> {
        let lanes = self.lanes.iter().filter_map(|lane| Some(lane.poll_timeout()?.0));
        let peers = self.peers.iter().filter_map(|peer| Some(peer.poll_timeout()?.0));
        lanes.chain(peers).min()
    }

    fn count_round(&mut self) -> Result<(), Reason> {
        self.rounds += 1;
        if self.rounds > LIVELOCK_ROUNDS {
            return Err(Reason::Livelock { rounds: self.rounds });
        }
        Ok(())
    }

    fn deliver(&mut self) {
        let now = self.clock.now();
        for lane in &mut self.lanes {
            while let Some(datagram) = lane.poll_delivery(now) {
                self.peers[lane.to].receive(now, lane.from, datagram);
            }
        }
    }

    fn wake(&mut self) {
        let now = self.clock.now();
        for peer in &mut self.peers {
            if peer.poll_timeout().is_some_and(|(at, _)| at <= now) {
                peer.handle_timeout(now);
            }
        }
    }

    fn stalled(&self, reason: Reason) -> Stalled {
        let lanes = self.lanes.iter().map(|lane| Waiting {
            machine: format!("link {} -> {}", lane.from, lane.to),
            next: lane.poll_timeout().map(|(at, wake)| (at, format!("{wake:?}"))),
        });
        let peers = self.peers.iter().enumerate().map(|(index, peer)| Waiting {
            machine: format!("peer {index}"),
            next: peer.poll_timeout().map(|(at, wake)| (at, format!("{wake:?}"))),
        });
        Stalled { now: self.now(), reason, machines: lanes.chain(peers).collect() }
    }

    fn route(&self, from: usize, to: usize) -> usize {
        let count = self.peers.len();
        assert!(from < count && to < count, "no peers {from} and {to} among {count}");
        from * count + to
    }

    fn lane_index(&self, from: usize, to: usize) -> usize {
        match self.routes[self.route(from, to)] {
            Some(index) => index,
            None => panic!("peer {from} has no link to peer {to}"),
        }
    }

    fn lane(&self, from: usize, to: usize) -> &Lane {
        &self.lanes[self.lane_index(from, to)]
    }

    fn lane_mut(&mut self, from: usize, to: usize) -> &mut Lane {
        let index = self.lane_index(from, to);
        &mut self.lanes[index]
    }
}
