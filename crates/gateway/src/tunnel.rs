//! The tunnel: packets that are not split (UDP, QUIC, ICMP, IPsec) cross the hop
//! on the packet channels of SLACP, by way of a network device on each side.
//!
//! ```text
//!  client ── LAN ──▶ mark ─▶ rule ─▶ device ─▶ channel ═══▶ device ─▶ routing ── server
//!                   nftables        terminal                 hub
//! ```
//!
//! Packets are marked only while the session they would go to can carry them;
//! else they pass as they would without skyhop. What the peer sends is written
//! to the device, and the kernel routes it on if the other side may send it there
//! ([`crate::egress`]); on a hub its source must be behind the terminal that it comes
//! from, and its destination not behind another unless there is a mesh.

mod admit;
mod device;
mod link;
mod paths;
mod route;
mod table;
mod tun;
mod veth;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use slacp::SessionId;
use tokio::task::JoinHandle;

use crate::class::{DEFAULT_CHANNEL, LiveClasses};
use crate::config::{InterceptConfig, TunnelConfig};
use crate::counters::Counters;
use crate::egress::Egress;
use crate::error::RunError;
use crate::hop::Hop;
use crate::packet::Packet;
use crate::policy::Policy;
use crate::prefix::Prefix;
use crate::refusal::{Operation, Refusal};
use crate::rule::REFUSED;
use crate::status::TunnelStatus;
use device::Device;
use paths::Paths;
use route::{Place, Route};
use table::Table;

pub(crate) use admit::Admitted;
pub(crate) use table::{Selection, Traffic};

/// The longest IP packet.
const LONGEST_PACKET: usize = 65_535;
/// Packets taken from the device before anything else gets its turn.
const PACKETS_PER_TURN: usize = 32;

/// The tunnel of a gateway. Dropping it leaves the machine as it was.
pub(crate) struct Tunnel {
    port: Arc<Port>,
    reader: Option<JoinHandle<()>>,
    route: Route,
    carries_v6: bool,
}

/// Where packets come from and go to.
pub(crate) struct Port {
    device: Device,
    table: Mutex<Table>,
    paths: Mutex<Paths>,
    classes: Arc<LiveClasses>,
    counters: Arc<Counters>,
}

impl Tunnel {
    /// Makes the device, the rules and the routes; nothing is taken yet. With `mesh`
    /// packets may go from one session to another.
    ///
    /// # Errors
    /// For want of privilege, or of kernel features, or if there is a device of
    /// that name.
    pub(crate) fn install(
        config: &TunnelConfig,
        selection: Selection,
        mesh: bool,
        classes: Arc<LiveClasses>,
        counters: Arc<Counters>,
    ) -> Result<Self, RunError> {
        let device = Device::open(config).map_err(|it| RunError::device(&config.name, it))?;
        let refused = |refusal| RunError::Tunnel { name: config.name.clone(), refusal };
        let table = Table::claim(selection, &config.name);
        let table = table.map_err(Refusal::of(Operation::Nftables)).map_err(refused)?;
        let index = link::index(&config.name).map_err(RunError::System)?;
        let (route, without_v6) = Route::install(table.place(), index).map_err(refused)?;
        if let Some(refusal) = &without_v6 {
            warn_of(refusal);
        }
        tracing::info!("tunnel {}: {}, MTU {}", config.name, device.kind(), config.mtu);
        let paths = Mutex::new(Paths::new(mesh));
        let table = Mutex::new(table);
        let port = Arc::new(Port { device, table, paths, classes, counters });
        Ok(Self { port, reader: None, route, carries_v6: without_v6.is_none() })
    }

    /// Puts back the routes that the kernel removes where IPv6 goes off, once it is on.
    pub(crate) fn follow_routes(&mut self) {
        // Without the device, whose reader tells of that, there is nothing to route to.
        let Ok(without_v6) = self.route.restore() else { return };
        match (&without_v6, self.carries_v6) {
            (Some(refusal), true) => warn_of(refusal),
            (None, false) => tracing::info!("the tunnel carries IPv6, too"),
            _ => {}
        }
        self.carries_v6 = without_v6.is_none();
    }

    /// Takes what other interfaces or policies say from now on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn configure(&self, selection: Selection) -> Result<(), RunError> {
        let configured = self.port.table().configure(selection);
        configured.map_err(Refusal::of(Operation::Nftables)).map_err(RunError::Interception)
    }

    /// What became of packets, as our table (`counts`) and we have counted.
    pub(crate) fn status(&self, counts: &BTreeMap<String, u64>) -> TunnelStatus {
        let counters = &self.port.counters;
        TunnelStatus {
            to_hop: counters.packets_to_hop.get(),
            from_hop: counters.packets_from_hop.get(),
            prohibited: counts.get(REFUSED).copied().unwrap_or(0),
            foreign: counters.packets_foreign.get(),
            dropped: counters.packets_dropped.get(),
        }
    }

    /// How many connections and packets each policy has decided about, and how many
    /// packets were refused.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.port.table().counts().unwrap_or_else(|error| {
            tracing::debug!("no counts of policies: {error}");
            BTreeMap::new()
        })
    }

    /// Where the driver delivers packets.
    pub(crate) fn port(&self) -> Arc<Port> {
        self.port.clone()
    }

    /// Sends what comes from the device over `hop` from now on.
    pub(crate) fn start(&mut self, hop: Hop) {
        let port = self.port.clone();
        self.reader = Some(tokio::spawn(async move { port.read(&hop).await }));
    }

    /// A session is up whose peer has `networks` behind it. Whether it takes
    /// packets.
    pub(crate) fn add(&self, hop: &Hop, session: SessionId, networks: Vec<Prefix>) -> bool {
        let agreed = hop.peer_receives(session, DEFAULT_CHANNEL);
        if agreed {
            self.port.paths().add(session, networks);
            self.set_open(session, true);
        }
        agreed
    }

    /// Whether packets are to go to a session that takes them.
    pub(crate) fn set_open(&self, session: SessionId, open: bool) {
        if self.port.paths().set_open(session, open) {
            self.port.take();
        }
    }

    /// A session is over.
    pub(crate) fn remove(&self, session: SessionId) {
        if self.port.paths().remove(session) {
            self.port.take();
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.port.close();
        if let Some(reader) = self.reader.take() {
            reader.abort();
        }
    }
}

impl Port {
    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().expect("nobody panics while holding the paths")
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("nobody panics while holding the table")
    }

    /// Has the kernel mark what is for the sessions that are open.
    fn take(&self) {
        let networks = self.paths().open_networks();
        if let Err(error) = self.table().take(networks) {
            tracing::warn!("cannot change what goes through the tunnel: {error}");
        }
    }

    /// From here on everything passes by.
    fn close(&self) {
        self.paths().close_all();
        self.take();
    }

    /// Sends packets of the device to their sessions until the device fails; then
    /// packets pass by.
    async fn read(&self, hop: &Hop) {
        let mut buffer = vec![0; LONGEST_PACKET];
        loop {
            for _ in 0..PACKETS_PER_TURN {
                match self.device.receive(&mut buffer).await {
                    Ok(length) => self.send(hop, &buffer[..length]),
                    Err(error) => {
                        tracing::warn!("the tunnel ends, packets pass unaccelerated: {error}");
                        return self.close();
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends a packet to the session that its destination is behind.
    fn send(&self, hop: &Hop, bytes: &[u8]) {
        let packet = Packet::parse(bytes).filter(Packet::is_routable);
        let sent = packet.and_then(|packet| {
            let session = self.paths().to(packet.destination)?;
            let channel = self.classes.read().of_packet(&packet);
            hop.send_packet(session, channel, bytes).ok()
        });
        match sent {
            Some(()) => self.counters.packets_to_hop.increment(),
            None => self.counters.packets_dropped.increment(),
        }
    }

    /// Takes a packet that came over the hop, and has the kernel route it on.
    pub(crate) fn deliver(&self, session: SessionId, bytes: &[u8]) {
        let Some(packet) = Packet::parse(bytes).filter(Packet::is_routable) else {
            return self.counters.packets_dropped.increment();
        };
        if !self.paths().permits(session, packet.source, packet.destination) {
            tracing::debug!(source = %packet.source, destination = %packet.destination, "not permitted");
            return self.counters.packets_foreign.increment();
        }
        match self.device.send(bytes) {
            Ok(()) => self.counters.packets_from_hop.increment(),
            Err(error) => {
                tracing::debug!("the tunnel's device takes no packet: {error}");
                self.counters.packets_dropped.increment();
            }
        }
    }
}

fn warn_of(refusal: &Refusal) {
    tracing::warn!("the tunnel carries IPv4 alone: {refusal}; {}", refusal.later());
}

/// What a terminal lets through its tunnel.
pub(crate) fn of_clients(
    intercept: &InterceptConfig,
    policies: &[Policy],
    accept: &Egress,
) -> Selection {
    let (interfaces, own) = (intercept.interfaces.clone(), intercept.own_traffic);
    Selection {
        traffic: Traffic::OfClients { interfaces, own },
        policies: policies.to_vec(),
        admitted: Admitted::from_anyone(accept),
        counts_connections: false,
    }
}

/// Every address, of either version: what is behind a hub.
pub(crate) fn everywhere() -> Vec<Prefix> {
    vec![Prefix::ALL_V4, Prefix::ALL_V6]
}

/// The table, rules and routes of a tunnel while everything is open, in the
/// syntax of nft and ip, for people to read.
pub(crate) fn print(config: &TunnelConfig, selection: &Selection, networks: &[Prefix]) -> String {
    let place = Place(0);
    let routes = route::display(place, &config.name);
    format!("{routes}{}\n", selection.display(networks, &config.name, place))
}
