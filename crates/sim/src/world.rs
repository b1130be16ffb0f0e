//! The simulator: nodes, links, connections and applications in virtual time.

mod app;
mod below;
mod cache;
mod memory;
mod network;
mod sample;
mod script;
mod slacp;
mod socket;
mod spacing;
mod split;
#[cfg(test)]
mod tests;
mod tunnel;
mod window;
mod wires;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use link::Dice;
use pep::relay::LegSide;
use units::{Instant, Machine};

use crate::agenda::Agenda;
use crate::app::{AppNotice, AppStats};
use crate::connection::script::ScriptedConnection;
use crate::connection::socket::SimulatedSocket;
use crate::connection::split::SplitConnection;
use crate::connection::talk::AppConversation;
use crate::ids::{AppId, LinkId, NodeId};
use crate::network::packet::SimulatedPacket;
use crate::network::{LinkEntry, NodeEntry, SharedReturnLink};
use crate::probe::RunRecordings;
use crate::slab::{Slab, SlabKey};
use crate::world::slacp::{PendingStream, SlacpGateway};

pub use app::App;
pub use below::{ChargedBytes, MacBuffer};

/// The kind of an event that has come due.
#[derive(Debug, Clone, Copy)]
enum DueEvent {
    Lane(LinkId),
    /// A shared return link, by its index.
    Medium(u32),
    Socket(SlabKey),
    Gateway(NodeId),
    Split(SlabKey),
    Spacer(NodeId),
    Script(SlabKey, LegSide),
    /// The cache at the end of a conversation has finished its search for a reply.
    Cache(SlabKey),
    /// A wake-up of an application, with the number that it chose.
    App(AppId, u64),
    Sample,
}

/// Observes every packet that a node sends or receives.
pub trait PacketTap {
    /// Called when `node` has sent (`outgoing`) or received a packet.
    fn packet(&mut self, now: Instant, node: NodeId, outgoing: bool, packet: &SimulatedPacket);
}

/// A network in virtual time, which starts at [`Instant::ZERO`].
///
/// Build it (nodes, [`World::connect`], routes), add applications, and run it. The same calls with
/// the same seed give the same run, bit for bit: events of the same instant happen in the order in
/// which they were entered, and every link, connection and application has its own random numbers.
///
/// Not modelled: processing time in hosts and routers; ports (the two ends of a connection are
/// created together and know each other); fragmentation; corrupted packets.
pub struct World {
    now: Instant,
    agenda: Agenda<DueEvent>,
    seeds: Dice,
    nodes: Vec<NodeEntry>,
    lanes: Vec<LinkEntry>,
    media: Vec<SharedReturnLink>,
    sockets: Slab<SimulatedSocket>,
    talks: Slab<AppConversation>,
    scripted: Slab<ScriptedConnection>,
    splits: Slab<SplitConnection>,
    gateways: Vec<SlacpGateway>,
    /// Streams on their way to the next gateway, by the source address in their OPEN frames.
    openings: BTreeMap<SocketAddr, PendingStream>,
    /// Number of streams that gateways have opened, modulo the number of ports.
    opened: u16,
    memory: memory::HostMemory,
    /// Packets that are inside tunnels.
    tunnelled: tunnel::TunnelledPackets,
    /// Gateways to be driven, because their streams were written to or read.
    gateways_to_drive: VecDeque<NodeId>,
    /// Boxes of delivered segments, for reuse.
    #[allow(clippy::vec_box, reason = "the boxes are what is kept")]
    boxes: Vec<Box<SimulatedPacket>>,
    apps: Vec<Option<Box<dyn App>>>,
    tallies: Vec<AppStats>,
    /// When an application last finished.
    done_at: Instant,
    notices: VecDeque<(AppId, AppNotice)>,
    probe: RunRecordings,
    tap: Option<Box<dyn PacketTap>>,
    /// Number of packet arrivals at nodes: the unit in which the simulator's speed is measured.
    arrivals: u64,
    /// Number of packets for which a router had no route, or a host no socket.
    unroutable: u64,
}

impl core::fmt::Debug for World {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { now, nodes, lanes, arrivals, .. } = self;
        let nodes = nodes.len();
        let links = lanes.len();
        write!(f, "World {{ now: {now}, nodes: {nodes}, links: {links}, arrivals: {arrivals} }}")
    }
}

impl World {
    /// Creates an empty world. All random numbers derive from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            agenda: Agenda::new(),
            seeds: Dice::new(seed),
            nodes: Vec::new(),
            lanes: Vec::new(),
            media: Vec::new(),
            sockets: Slab::new(),
            talks: Slab::new(),
            scripted: Slab::new(),
            splits: Slab::new(),
            gateways: Vec::new(),
            openings: BTreeMap::new(),
            opened: 0,
            memory: memory::HostMemory::default(),
            tunnelled: tunnel::TunnelledPackets::default(),
            gateways_to_drive: VecDeque::new(),
            boxes: Vec::new(),
            apps: Vec::new(),
            tallies: Vec::new(),
            done_at: Instant::ZERO,
            notices: VecDeque::new(),
            probe: RunRecordings::default(),
            tap: None,
            arrivals: 0,
            unroutable: 0,
        }
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of packet arrivals at nodes so far.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Returns the number of packets without a route or a connection.
    pub fn strays(&self) -> u64 {
        self.unroutable
    }

    /// Passes every packet at every node to `tap` from now on.
    pub fn set_tap(&mut self, tap: Box<dyn PacketTap>) {
        self.tap = Some(tap);
    }

    /// Removes and returns the tap.
    pub fn take_tap(&mut self) -> Option<Box<dyn PacketTap>> {
        self.tap.take()
    }

    /// Runs all events due by `end`, and moves the clock there.
    pub fn run_until(&mut self, end: Instant) {
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// Like [`World::run_until`], but stops within a second after the last application has finished.
    /// Returns true if all have.
    pub fn run_until_done(&mut self, end: Instant) -> bool {
        while self.now < end && !self.is_done() {
            // Looked at once a second, because it visits all applications.
            let next = self.now + Duration::from_secs(1);
            self.run_until(next.min(end));
        }
        self.is_done()
    }

    /// Returns true once every application has finished.
    pub fn is_done(&self) -> bool {
        self.tallies.iter().all(|tally| tally.done)
    }

    /// Returns the time from the start until the last application finished, or until now.
    pub fn busy_time(&self) -> Duration {
        let end = if self.is_done() { self.done_at } else { self.now };
        end.saturating_since(Instant::ZERO)
    }

    /// Runs this many events, whatever their time.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn run_events(&mut self, count: u32) {
        for _ in 0..count {
            self.step(Instant::MAX);
        }
    }

    /// Runs one event if it is due by `end`; returns false otherwise.
    fn step(&mut self, end: Instant) -> bool {
        let Some((at, ticket, due)) = self.agenda.pop_due(end) else { return false };
        self.now = at;
        match due {
            DueEvent::Lane(lane) => self.wake_lane(lane, ticket),
            DueEvent::Medium(medium) => self.wake_medium(medium, ticket),
            DueEvent::Socket(key) => {
                if let Some(socket) = self.sockets.get_mut(key)
                    && socket.alarm.ring(ticket)
                {
                    wake(socket, at);
                    self.service(key);
                }
            }
            DueEvent::Gateway(node) => self.wake_gateway(node, ticket),
            DueEvent::Split(split) => self.wake_split(split, ticket),
            DueEvent::Spacer(node) => self.wake_spacer(node, ticket),
            DueEvent::Script(key, side) => self.wake_script(key, side, ticket),
            DueEvent::Cache(key) => self.finish_search(key),
            DueEvent::App(app, wish) => self.notices.push_back((app, AppNotice::Wake(wish))),
            DueEvent::Sample => self.sample(),
        }
        self.settle();
        true
    }

    /// Delivers all notifications and drives all gateways until nothing is left to do at this moment.
    #[inline]
    fn settle(&mut self) {
        // Checked inline: after most events there is nothing to do.
        while !self.notices.is_empty() || !self.gateways_to_drive.is_empty() {
            self.deliver_notices();
            if let Some(node) = self.gateways_to_drive.pop_front() {
                self.drive_gateway(node);
            }
        }
    }
}

/// Handles a socket's alarm, which may ring early; then nothing happens.
fn wake(socket: &mut SimulatedSocket, now: Instant) {
    if socket.tcp.poll_timeout().is_some_and(|(at, _)| at <= now) {
        socket.tcp.handle_timeout(now);
    }
}
