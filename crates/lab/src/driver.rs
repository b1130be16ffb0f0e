//! The real-time driver: runs links on the wall clock, between devices.
//!
//! One thread repeats three steps: pass arrived packets to their links, with the time at which the
//! device received them; send what the links deliver; sleep until a packet arrives or the next
//! delivery is due. It never spins.
//!
//! Each port has a *lane*: the link that packets from the port enter, and the exit of the packets
//! that the link delivers. A lane's link is its own, or a part of the return link that terminals share
//! ([`carrier`], [`shared_return`]).

pub(crate) mod carrier;
pub(crate) mod lateness;
pub(crate) mod shared_return;

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use link::dama::{Dama, Frames};
use link::{PacketCounters, Tally};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use os::clock::{self, WallClock};
use os::packet::{PacketPort, RingFrame, is_ip};
use os::priority;
use units::{BitRate, ByteCount, Instant, Machine};

use self::carrier::{ChangeableLink, LinkCarrier, SharedGauge};
use self::shared_return::SharedReturn;
use crate::topology::exit::LinkExit;
use crate::{Lateness, LinkName, ReturnRecord};

/// Maximum number of packets taken from one device before the links are served.
const BURST: usize = 256;

/// Numbers of packets lost other than on a link. A valid measurement has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Arrived faster than the driver could take them.
    pub missed: u64,
    /// Longer than the MTU of the device they came from.
    pub oversized: u64,
    /// Delivered by the link but refused by the kernel.
    pub refused: u64,
    /// Delivered by the forward link, but for an address of no terminal.
    pub astray: u64,
}

impl Faults {
    /// The sum of all faults.
    pub fn total(&self) -> u64 {
        self.missed + self.oversized + self.refused + self.astray
    }
}

/// One direction, from a port through the link to another port.
pub(crate) struct LinkLane {
    /// The port that packets come from.
    pub(crate) port: PacketPort,
    /// The link that these packets enter.
    pub(crate) carrier: LinkCarrier,
    /// The name of the link.
    pub(crate) name: LinkName,
    /// The exit of packets that the link delivers.
    pub(crate) exit: LinkExit,
}

/// A snapshot of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkGauge {
    /// Direction that the figures are of.
    pub link: LinkName,
    /// The link's counters since the start.
    pub counters: PacketCounters,
    /// Packets and bytes that wait in its queue.
    pub queued: Tally,
    /// Maximum number of packets that ever waited in its queue.
    pub peak_queue: u64,
    /// The terminal's state, if it shares the return link with others.
    pub shared: Option<SharedGauge>,
}

impl LinkGauge {
    /// Creates the snapshot of a link that has not carried anything.
    pub fn new(link: LinkName) -> Self {
        let counters = PacketCounters::default();
        let queued = Tally::default();
        Self { link, counters, queued, peak_queue: 0, shared: None }
    }
}

/// Reads the links of a running lab from any thread.
#[derive(Clone)]
pub struct GaugeReader {
    shared: Arc<SharedDriver>,
}

impl GaugeReader {
    /// Reads all links at the same moment: forward, return, the return links of further terminals,
    /// the two of the terrestrial part.
    pub fn read(&self) -> Vec<LinkGauge> {
        let state = self.shared.lock();
        let dama = state.shared.as_ref().map(SharedReturn::read);
        let read = |track: &LinkTrack| {
            let (queued, counters, shared) = track.carrier.read(dama);
            let peak_queue = track.peak_queue;
            LinkGauge { link: track.name, counters, queued, peak_queue, shared }
        };
        state.tracks.iter().map(read).collect()
    }
}

/// The modem of a terminal on a shared return link, as seen from its gateway. Usable from any
/// thread.
#[derive(Clone)]
pub struct ReturnModem {
    shared: Arc<SharedDriver>,
    terminal: usize,
}

/// The state that a modem on a shared return link can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModemState {
    /// The rate of IP packets that the slots granted from now on carry ([`Dama::granted`]).
    pub granted: BitRate,
    /// Cells that wait in its MAC buffers.
    pub mac_cells: u32,
    /// Packets and bytes that wait in its IP queues.
    pub queued: Tally,
}

impl ReturnModem {
    /// Returns the grants of the next `horizon`, and the queues.
    pub fn state(&self, horizon: Duration) -> Option<ModemState> {
        self.with(|dama, terminal, now| ModemState {
            granted: dama.granted(now, terminal, horizon),
            mac_cells: dama.mac_cells(terminal),
            queued: dama.queued(terminal),
        })
    }

    /// Returns the frame structure of the link.
    pub fn frames(&self) -> Option<Frames> {
        self.with(|dama, _, _| *dama.frames())
    }

    /// Reports the bytes that wait in front of the modem ([`Dama::set_backlog`]), and those
    /// expected soon ([`Dama::set_foreseen`]).
    pub fn set_backlog(&self, waiting: ByteCount, foreseen: ByteCount) {
        self.with(|dama, terminal, now| {
            dama.set_backlog(now, terminal, waiting);
            dama.set_foreseen(now, terminal, foreseen);
        });
        self.shared.wake_thread();
    }

    fn with<T>(&self, act: impl FnOnce(&mut Dama<Vec<u8>>, usize, Instant) -> T) -> Option<T> {
        let mut state = self.shared.lock();
        let shared = state.shared.as_mut()?;
        let now = shared.advance(clock::now());
        Some(act(shared.dama(), self.terminal, now))
    }
}

/// The running driver. Dropping it stops it.
pub(crate) struct LinkDriver {
    shared: Arc<SharedDriver>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the driver's thread and its owner.
struct SharedDriver {
    state: Mutex<DriverState>,
    /// Wakes the thread from its wait.
    wake_event: EventFd,
}

struct DriverState {
    tracks: Vec<LinkTrack>,
    shared: Option<SharedReturn>,
    faults: Faults,
    lateness: Lateness,
    stopping: bool,
}

/// The part of a lane that other threads may access.
struct LinkTrack {
    name: LinkName,
    carrier: LinkCarrier,
    /// The latest time passed to the link, if it is one of its own; never decreases.
    advanced_to: Instant,
    /// Maximum number of packets that ever waited in its queue.
    peak_queue: u64,
}

impl LinkDriver {
    /// Starts the thread. The lanes' ports must have been opened in `sky`.
    /// `shared` is the return link of the lanes that have none of their own.
    pub(crate) fn start(lanes: Vec<LinkLane>, shared: Option<Dama<Vec<u8>>>) -> io::Result<Self> {
        let mut tracks = Vec::new();
        let mut ports = Vec::new();
        let mut exits = Vec::new();
        for LinkLane { port, carrier, name, exit } in lanes {
            tracks.push(LinkTrack { name, carrier, advanced_to: Instant::ZERO, peak_queue: 0 });
            ports.push(port);
            exits.push(exit);
        }
        let faults = Faults::default();
        let lateness = Lateness::default();
        let shared = shared.map(SharedReturn::new);
        let state = Mutex::new(DriverState { tracks, shared, faults, lateness, stopping: false });
        let nudge = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Arc::new(SharedDriver { state, wake_event: nudge });
        let more = vec![false; ports.len()];
        let mut worker = DriverThread { shared: Arc::clone(&shared), ports, exits, more };
        let thread = thread::Builder::new().name("skyhop-link".into()).spawn(move || {
            let _guard = AbortOnPanic;
            worker.run();
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns a handle to read the links.
    pub(crate) fn gauges(&self) -> GaugeReader {
        GaugeReader { shared: Arc::clone(&self.shared) }
    }

    /// Returns the modem of terminal number `terminal`, if the terminals share a return link.
    pub(crate) fn modem(&self, terminal: usize) -> Option<ReturnModem> {
        let shared = Arc::clone(&self.shared);
        let has =
            shared.lock().shared.as_ref().is_some_and(|link| terminal < link.read().terminals());
        has.then_some(ReturnModem { shared, terminal })
    }

    /// Changes the links while they run. `change` is called for each link at the same moment, with
    /// its name and the time.
    pub(crate) fn change(
        &self,
        mut change: impl FnMut(LinkName, &mut ChangeableLink<'_>, Instant),
    ) {
        let mut state = self.shared.lock();
        let now = clock::now();
        let DriverState { tracks, shared, .. } = &mut *state;
        for track in tracks {
            match (&mut track.carrier, &mut *shared) {
                (LinkCarrier::Own(link), _) => {
                    track.advanced_to = track.advanced_to.max(now);
                    change(track.name, &mut ChangeableLink::Own(link), track.advanced_to);
                }
                (LinkCarrier::Shared(terminal), Some(shared)) => {
                    let told = shared.advance(now);
                    change(track.name, &mut ChangeableLink::Shared(shared.dama(), *terminal), told);
                }
                (LinkCarrier::Shared(_), None) => {}
            }
        }
        drop(state);
        // The next packet may now be due earlier than the thread expects.
        self.shared.wake_thread();
    }

    /// Starts recording the events of the shared return link, if there is one.
    pub(crate) fn record(&self) {
        if let Some(shared) = &mut self.shared.lock().shared {
            shared.record();
        }
    }

    /// Returns the record so far; `None` without a shared return link.
    pub(crate) fn recorded(&self) -> Option<ReturnRecord> {
        self.shared.lock().shared.as_ref()?.recorded().cloned()
    }

    /// Returns the numbers of packets lost other than on the links.
    pub(crate) fn faults(&self) -> Faults {
        self.shared.lock().faults
    }

    /// Returns the lateness of sent packets.
    pub(crate) fn lateness(&self) -> Lateness {
        self.shared.lock().lateness.clone()
    }
}

impl Drop for LinkDriver {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake_thread();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SharedDriver {
    fn lock(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_thread(&self) {
        // It fails only after 2^64 wake-ups that the thread has not seen.
        let _ = self.wake_event.write(1);
    }
}

/// Aborts the process on panic: programs in a lab whose link has stopped would wait for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

struct DriverThread {
    shared: Arc<SharedDriver>,
    /// The ports, in the order of the tracks, like the exits.
    ports: Vec<PacketPort>,
    exits: Vec<LinkExit>,
    /// Set for ports at which more packets may have arrived than were taken.
    more: Vec<bool>,
}

impl DriverThread {
    fn run(&mut self) {
        priority::wake_promptly();
        let shared = Arc::clone(&self.shared);
        let mut due = DueBatch::default();
        loop {
            let wake = {
                let mut state = shared.lock();
                if state.stopping {
                    return;
                }
                // Read before looking at the devices: a packet that arrives later is not seen now,
                // and must not be in its link's future.
                let now = clock::now();
                self.take_arrivals(&mut state);
                self.deliver(&mut state, &mut due, now);
                if self.more.contains(&true) { Some(Instant::ZERO) } else { state.next_timeout() }
            };
            self.wait(wake);
        }
    }

    /// Passes arrived packets to their links.
    fn take_arrivals(&mut self, state: &mut DriverState) {
        // Frames are stamped by the wall clock, links run by the monotonic one.
        let clocks = WallClock::read();
        let shared = &mut state.shared;
        let tracks = state.tracks.iter_mut().zip(&mut self.ports).zip(&mut self.more);
        for ((track, port), more) in tracks {
            let shared = shared.as_mut();
            let mut arrivals = ArrivalTaker { track, shared, clocks, oversized: 0, losing: false };
            let taken = (0..BURST).take_while(|_| port.receive(|frame| arrivals.take(&frame)));
            *more = taken.count() == BURST;
            state.faults.oversized += arrivals.oversized;
            // The kernel is asked only if a frame reports a loss.
            if arrivals.losing {
                state.faults.missed += port.missed().unwrap_or(0);
            }
        }
    }

    /// Advances the links to the current time and sends what they deliver. A link with more arrived
    /// packets waiting is advanced only to the time of the last one it took.
    fn deliver(&mut self, state: &mut DriverState, due: &mut DueBatch, now: Instant) {
        for (index, more) in self.more.iter().enumerate() {
            let track = &mut state.tracks[index];
            let LinkCarrier::Own(link) = &mut track.carrier else { continue };
            if !more {
                track.advanced_to = now.max(track.advanced_to);
            }
            link.handle_timeout(track.advanced_to);
            while let Some((at, packet)) = link.poll_arrival(track.advanced_to) {
                due.times.push(at);
                due.packets.push(packet);
            }
            self.send(state, due, index);
        }
        self.deliver_shared(state, due, now);
    }

    /// Advances the return link that terminals share. All packets that arrive on it leave by the
    /// exit of its first terminal.
    fn deliver_shared(&mut self, state: &mut DriverState, due: &mut DueBatch, now: Instant) {
        let Some(shared) = &mut state.shared else { return };
        let is_shared = |track: &LinkTrack| matches!(track.carrier, LinkCarrier::Shared(_));
        // The link's time must not pass packets that still wait in a terminal's ring.
        let has_more =
            state.tracks.iter().zip(&self.more).any(|(track, more)| is_shared(track) && *more);
        if !has_more {
            shared.advance(now);
        }
        shared.take_arrivals(|at, packet| {
            due.times.push(at);
            due.packets.push(packet);
        });
        if let Some(first) = state.tracks.iter().position(is_shared) {
            self.send(state, due, first);
        }
    }

    /// Sends the due packets by the exit of a lane.
    fn send(&self, state: &mut DriverState, due: &mut DueBatch, lane: usize) {
        if due.packets.is_empty() {
            return;
        }
        let sent = self.exits[lane].send(&due.packets, &self.ports);
        state.faults.refused += sent.refused;
        state.faults.astray += sent.astray;
        due.packets.clear();
        // After sending, whose time is a part of the lateness.
        let sent = clock::now();
        due.times.drain(..).for_each(|at| state.lateness.add(sent.saturating_since(at)));
    }

    /// Sleeps until `wake`, an arrival or a wake-up.
    fn wait(&self, wake: Option<Instant>) {
        let left = wake.map(|at| TimeSpec::from_duration(clock::until(at)));
        let fds = self.ports.iter().map(AsFd::as_fd).chain([self.shared.wake_event.as_fd()]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = ppoll(&mut fds, left, None);
        if fds.last().and_then(PollFd::any) == Some(true) {
            // Resets the counter, or every later wait would return at once.
            let _ = self.shared.wake_event.read();
        }
    }
}

/// Packets to send and their due times; kept to reuse the allocations.
#[derive(Default)]
struct DueBatch {
    times: Vec<Instant>,
    packets: Vec<Vec<u8>>,
}

/// Takes arrived packets for one link.
struct ArrivalTaker<'a> {
    track: &'a mut LinkTrack,
    shared: Option<&'a mut SharedReturn>,
    clocks: WallClock,
    oversized: u64,
    losing: bool,
}

impl ArrivalTaker<'_> {
    fn take(&mut self, frame: &RingFrame<'_>) {
        self.losing |= frame.losing;
        if !frame.whole {
            self.oversized += 1;
        } else if is_ip(frame.bytes) {
            self.pass(self.clocks.instant(frame.wall), frame.bytes.to_vec());
        }
    }

    /// Passes a packet to its link, whose time never goes back.
    fn pass(&mut self, arrived: Instant, packet: Vec<u8>) {
        let waiting = match (&mut self.track.carrier, &mut self.shared) {
            (LinkCarrier::Own(link), _) => {
                self.track.advanced_to = self.track.advanced_to.max(arrived);
                link.handle_packet(self.track.advanced_to, packet);
                link.queued()
            }
            (LinkCarrier::Shared(terminal), Some(shared)) => {
                shared.pass(arrived, *terminal, packet);
                shared.read().queued(*terminal)
            }
            (LinkCarrier::Shared(_), None) => return,
        };
        self.track.peak_queue = self.track.peak_queue.max(waiting.packets);
    }
}

impl DriverState {
    /// Returns the time at which a link next needs to be advanced.
    fn next_timeout(&self) -> Option<Instant> {
        let own = self.tracks.iter().filter_map(|track| match &track.carrier {
            LinkCarrier::Own(link) => link.poll_timeout().map(|(at, _)| at),
            LinkCarrier::Shared(_) => None,
        });
        let shared = self.shared.as_ref().and_then(|shared| shared.read().poll_timeout());
        own.chain(shared.map(|(at, _)| at)).min()
    }
}

#[cfg(test)]
mod tests;
