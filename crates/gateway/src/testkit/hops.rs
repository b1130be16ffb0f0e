//! A hub and a terminal whose datagrams arrive at once, in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use pep::traffic::{ClassDefinition, TrafficClasses};
use slacp::{Config, Endpoint, Event, KeyPair, PublicKey, SessionId, StreamOpening};
use units::{BitRate, Instant, Machine as _};

use crate::hop::class::LiveClasses;
use crate::hop::{Hop, HopEvent, SessionStream};

/// A hub and a terminal with a session between them.
pub(crate) struct Hops {
    pub(crate) now: Instant,
    /// The hub and the terminal.
    pub(crate) hops: [Hop; 2],
    /// Each side's name for the session.
    pub(crate) sessions: [SessionId; 2],
    /// The event with which the session came up at each side.
    pub(crate) ups: [Event; 2],
}

/// The key pair of the hub (0) or the terminal (1).
fn identity(side: usize) -> KeyPair {
    KeyPair::from_private([side as u8 + 7; 32])
}

pub(crate) fn address(side: usize) -> SocketAddr {
    ([192, 0, 2, side as u8 + 1], 5258).into()
}

impl Hops {
    /// A pair at a fixed rate.
    pub(crate) fn new() -> Self {
        Self::with(Config::new(BitRate::from_mbit(100)))
    }

    /// A pair whose streams are compressed, as far as these sides (the hub and the terminal) do it.
    pub(crate) fn compressing(compress: [bool; 2]) -> Self {
        let mut config = Config::new(BitRate::from_mbit(100));
        config.decompressors = 2;
        let definition = |compress_streams| ClassDefinition {
            compress_streams,
            ..ClassDefinition::new(pep::traffic::DEFAULT_CLASS)
        };
        let classes = compress.map(|compress| {
            let mut link = config.clone();
            let classes = TrafficClasses::install(vec![definition(compress)], false, &mut link);
            Arc::new(LiveClasses::new(classes.expect("the class is right")))
        });
        Self::with_classes(config, classes)
    }

    /// A pair with these settings on both sides.
    pub(crate) fn with(config: Config) -> Self {
        Self::with_classes(config, [Arc::default(), Arc::default()])
    }

    fn with_classes(config: Config, classes: [Arc<LiveClasses>; 2]) -> Self {
        let [hub, terminal] = [identity(0), identity(1)];
        let (hub_key, allow) = (hub.public(), vec![terminal.public()]);
        let hub = Endpoint::hub(config.clone(), hub, allow, [1; 32]);
        let terminal = Endpoint::terminal(config, terminal, hub_key, vec![address(0)], [2; 32]);
        let [of_hub, of_terminal] = classes;
        let hops = [Hop::new(vec![hub], of_hub), Hop::new(vec![terminal], of_terminal)];
        let mut now = Instant::ZERO;
        let mut ups = [None, None];
        while ups.iter().any(Option::is_none) {
            for (side, event) in exchange(&mut now, &hops).into_iter().enumerate() {
                ups[side] = ups[side].take().or_else(|| event.into_iter().find_map(up));
            }
        }
        let [hub, terminal] = ups.map(|up| up.expect("both are up"));
        Self { now, hops, sessions: [hub.0, terminal.0], ups: [hub.1, terminal.1] }
    }

    /// Lets a millisecond pass; returns what each side's main loop would handle.
    pub(crate) fn run(&mut self) -> [Vec<HopEvent>; 2] {
        exchange(&mut self.now, &self.hops)
    }

    /// Lets a millisecond pass, without a turn of either side's driver.
    pub(crate) fn carry(&mut self) {
        carry(&mut self.now, &self.hops);
    }

    /// Lets much time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.run();
        }
    }

    /// The public key of the hub (0) or the terminal (1).
    pub(crate) fn key(side: usize) -> PublicKey {
        identity(side).public()
    }

    /// Opens a stream at the terminal: that end, and the hub's.
    pub(crate) fn open(&mut self) -> [SessionStream; 2] {
        let (near, far) = self.try_open();
        [near, far.expect("the hub hears of the stream")]
    }

    /// The same; without the hub's end if it hears of none.
    pub(crate) fn try_open(&mut self) -> (SessionStream, Option<SessionStream>) {
        let (source, destination) = (([10, 0, 0, 1], 40_000).into(), ([10, 9, 0, 1], 80).into());
        let open: StreamOpening = StreamOpening { destination, source, dscp: None };
        let [_, terminal] = &self.hops;
        let near = terminal.open(self.now, self.sessions[1], open).unwrap();
        let [events, _] = self.run();
        let far = events.into_iter().find_map(|event| match event {
            HopEvent::Opened(stream, told) => {
                assert_eq!(told, open.into());
                Some(stream)
            }
            HopEvent::Session(..) | HopEvent::TcpEnded(_) => None,
        });
        (near, far)
    }
}

fn up(event: HopEvent) -> Option<(SessionId, Event)> {
    match event {
        HopEvent::Session(session, up @ Event::Up { .. }) => Some((session, up)),
        _ => None,
    }
}

/// Lets a millisecond pass, in which all datagrams arrive.
fn carry(now: &mut Instant, hops: &[Hop; 2]) {
    *now += Duration::from_millis(1);
    let mut datagram = Vec::new();
    let mut has_moved = true;
    hops.iter().for_each(|hop| hop.part(0).endpoint.handle_timeout(*now));
    while std::mem::take(&mut has_moved) {
        for side in [0, 1] {
            while let Some(to) = hops[side].part(0).endpoint.poll_transmit(*now, &mut datagram) {
                assert_eq!(to, address(1 - side));
                let mut other = hops[1 - side].part(0);
                other.endpoint.handle_datagram(*now, address(side), &mut datagram);
                has_moved = true;
            }
        }
    }
}

/// The same, and lets each side's driver have as many turns as it wants: work takes no time here.
fn exchange(now: &mut Instant, hops: &[Hop; 2]) -> [Vec<HopEvent>; 2] {
    carry(now, hops);
    hops.each_ref().map(|hop| {
        let mut events = Vec::new();
        loop {
            hop.begin_turn(0);
            let mut state = hop.part(0);
            events.extend(std::iter::from_fn(|| hop.take_event(&mut state)));
            if !state.wants_turn() {
                return events;
            }
        }
    })
}

/// Counts how often a task is woken.
#[derive(Debug, Default)]
pub(crate) struct Alarm(AtomicUsize);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Alarm {
    /// Number of wake-ups since the last call.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }

    /// Polls with a context that wakes this.
    pub(crate) fn poll<T>(self: &Arc<Self>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }
}
