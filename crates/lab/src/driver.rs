//! The real-time driver: two links on the wall clock, between two devices.
//!
//! One thread does all of it: hand over what has arrived, with the time at
//! which the device received it; send what the links deliver; sleep until a
//! packet comes or the next one is due. It never spins.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use link::{Counters, Link, Tally};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use units::{Instant, Machine, earliest};

use crate::Lateness;
use crate::clock::{self, WallClock};
use crate::port::{Port, is_ip};
use crate::priority;
use crate::ring::Frame;

/// The most packets taken from one device before the links are looked after.
const BURST: usize = 256;

/// Packets that were lost otherwise than on the link. A lab that measures
/// anything has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Came faster than the driver could take them.
    pub missed: u64,
    /// Longer than the hop's MTU.
    pub oversized: u64,
    /// Delivered by the link, refused by the kernel.
    pub refused: u64,
}

impl Faults {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.missed + self.oversized + self.refused
    }
}

/// One direction: from one device through the link to the other.
pub(crate) struct Lane {
    /// The port that packets come from, in `Driver::start`'s `ports`.
    pub(crate) from: usize,
    /// The port they go to.
    pub(crate) to: usize,
    /// What happens to them in between.
    pub(crate) link: Link<Vec<u8>>,
}

/// The state of one direction at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Gauge {
    /// What the link has counted since the start.
    pub counters: Counters,
    /// What waits in its queue.
    pub queued: Tally,
}

/// Reads the links of a running lab, from any thread.
#[derive(Clone)]
pub struct Gauges {
    shared: Arc<Shared>,
}

impl Gauges {
    /// Forward and return, at the same moment.
    pub fn read(&self) -> [Gauge; 2] {
        let state = self.shared.lock();
        let read =
            |lane: &Lane| Gauge { counters: *lane.link.counters(), queued: lane.link.queued() };
        [read(&state.lanes[0]), read(&state.lanes[1])]
    }
}

/// The running driver; it stops when dropped.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the driver's thread and its owner both use.
struct Shared {
    state: Mutex<State>,
    stop: EventFd,
}

struct State {
    lanes: [Lane; 2],
    faults: Faults,
    lateness: Lateness,
}

impl Driver {
    /// Starts the thread. `ports` were opened in `sky`.
    pub(crate) fn start(ports: [Port; 2], lanes: [Lane; 2]) -> io::Result<Self> {
        let state =
            Mutex::new(State { lanes, faults: Faults::default(), lateness: Lateness::default() });
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Arc::new(Shared { state, stop });
        let mut worker = Worker { shared: Arc::clone(&shared), ports, told: [Instant::ZERO; 2] };
        let thread = thread::Builder::new().name("skyhop-link".into()).spawn(move || {
            let _guard = AbortOnPanic;
            worker.run();
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What the link of lane `lane` has counted.
    pub(crate) fn counters(&self, lane: usize) -> Counters {
        *self.shared.lock().lanes[lane].link.counters()
    }

    /// For whoever watches the links.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges { shared: Arc::clone(&self.shared) }
    }

    /// Packets lost otherwise than on the links.
    pub(crate) fn faults(&self) -> Faults {
        self.shared.lock().faults
    }

    /// How late packets were sent.
    pub(crate) fn lateness(&self) -> Lateness {
        self.shared.lock().lateness.clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.shared.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lab whose link has stopped is worse than none: programs in it would wait
/// for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    ports: [Port; 2],
    /// The latest time that each link was handed; it never goes back.
    told: [Instant; 2],
}

impl Worker {
    fn run(&mut self) {
        priority::wake_promptly();
        let shared = Arc::clone(&self.shared);
        let mut due = Due::default();
        loop {
            let wake = {
                let mut state = shared.lock();
                // Before the look at the devices: what comes after it is not
                // seen now and must not find its link in its own future.
                let now = clock::now();
                let more = self.take_arrivals(&mut state);
                self.deliver(&mut state, &mut due, now, more);
                if more.contains(&true) { Some(Instant::ZERO) } else { state.wake() }
            };
            if self.wait(wake) {
                return;
            }
        }
    }

    /// Hands arrived packets to their links. `true` where there may be more.
    fn take_arrivals(&mut self, state: &mut State) -> [bool; 2] {
        let clocks = WallClock::read();
        let mut more = [false; 2];
        for (index, lane) in state.lanes.iter_mut().enumerate() {
            let (port, told) = (&mut self.ports[lane.from], self.told[index]);
            let mut arrivals = Arrivals { lane, clocks, told, oversized: 0, losing: false };
            let taken = (0..BURST).take_while(|_| port.receive(|frame| arrivals.take(&frame)));
            more[index] = taken.count() == BURST;
            self.told[index] = arrivals.told;
            state.faults.oversized += arrivals.oversized;
            if arrivals.losing {
                state.faults.missed += port.missed().unwrap_or(0);
            }
        }
        more
    }

    /// Tells the links the time and sends what they deliver. A link for which
    /// there are `more` packets that have arrived is told no later time than
    /// that of the last one it was handed.
    fn deliver(&mut self, state: &mut State, due: &mut Due, now: Instant, more: [bool; 2]) {
        for (index, lane) in state.lanes.iter_mut().enumerate() {
            let told = &mut self.told[index];
            *told = if more[index] { *told } else { now.max(*told) };
            lane.link.handle_timeout(*told);
            while let Some((at, packet)) = lane.link.poll_arrival(*told) {
                due.times.push(at);
                due.packets.push(packet);
            }
            state.faults.refused += self.ports[lane.to].send(&due.packets);
            due.packets.clear();
            let sent = clock::now();
            due.times.drain(..).for_each(|at| state.lateness.add(sent.saturating_since(at)));
        }
    }

    /// Sleeps until `wake` or until something arrives. `true` to stop.
    fn wait(&mut self, wake: Option<Instant>) -> bool {
        let left = wake.map(|at| TimeSpec::from_duration(clock::until(at)));
        let stop = &self.shared.stop;
        let mut fds = [stop.as_fd(), self.ports[0].as_fd(), self.ports[1].as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = ppoll(&mut fds, left, None);
        fds[0].any() == Some(true)
    }
}

/// Packets to be sent, and when they should have been; kept for their memory.
#[derive(Default)]
struct Due {
    times: Vec<Instant>,
    packets: Vec<Vec<u8>>,
}

/// Takes what has arrived for one lane.
struct Arrivals<'a> {
    lane: &'a mut Lane,
    clocks: WallClock,
    told: Instant,
    oversized: u64,
    losing: bool,
}

impl Arrivals<'_> {
    fn take(&mut self, frame: &Frame<'_>) {
        // The link has been told a time already, and no time goes back.
        self.told = self.told.max(self.clocks.instant(frame.wall));
        self.losing |= frame.losing;
        if !frame.whole {
            self.oversized += 1;
        } else if is_ip(frame.bytes) {
            self.lane.link.handle_packet(self.told, frame.bytes.to_vec());
        }
    }
}

impl State {
    /// When a link next wants to be told the time.
    fn wake(&self) -> Option<Instant> {
        let [a, b] = &self.lanes;
        earliest(a.link.poll_timeout(), b.link.poll_timeout()).map(|(at, _)| at)
    }
}
