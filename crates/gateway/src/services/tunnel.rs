//! The tunnel carries packets that are not split (UDP, QUIC, ICMP, IPsec) over the hop's packet
//! channels, through a network device on each side.
//!
//! ```text
//!  client ── LAN ──▶ mark ─▶ rule ─▶ device ─▶ channel ═══▶ device ─▶ routing ── server
//!                   nftables        terminal                 hub
//! ```
//!
//! Packets are marked only while their session can carry them; otherwise they are routed as without
//! skyhop. Packets from the peer are written to the device, and the kernel routes them on if the
//! egress rules permit it ([`pep::egress`]). On a hub the source must be behind the sending
//! terminal, and the destination must not be behind another one unless `mesh` is on.
//!
//! A hub that does not know a terminal's networks gives it an address ([`addresses`]). The terminal translates its
//! clients to that address, and the hub what leaves its tunnel ([`table`]).

pub(crate) mod addresses;
mod admit;
mod service;
mod table;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use config::{InterceptConfig, TunnelConfig};
use control::status::GatewayStatus;
use os::netlink::netfilter::NetfilterSocket;
use pep::egress::EgressRules;
use pep::routes::PacketPaths;
use pep::traffic::{
    DEFAULT_CHANNEL, FragmentChannels, Packet, Prefix, TCP, TrafficPolicy, clamped,
};
use slacp::{ChannelId, SessionId};
use tokio::task::JoinHandle;
use units::Instant;

use crate::figures::counters::GatewayCounters;
use crate::hop::Hop;
use crate::hop::PacketSink;
use crate::hop::class::LiveClasses;
use crate::intercept::lan_routes::{LanRoutes, LanWatch, LocalInterfaces};
use crate::network::nft::policy;
use crate::network::nft::rule::{BEGUN_OUTSIDE, REFUSED};
use crate::network::tun::LONGEST_PACKET;
use crate::network::tun::port::{DevicePort, DeviceUse, RoutedDevice};
use crate::network::tun::table::DeviceTable;
use crate::process::clock;
use crate::process::error::RunError;
use crate::process::refusal::{KernelOperation, KernelRefusal};

pub(crate) use admit::Admitted;
pub(crate) use service::{HubSelection, HubTunnel, TerminalTunnel, terminal_selection};
use table::OUTSIDE;
pub(crate) use table::{Selection, Traffic, Translation};

/// Maximum packets per turn from the device.
const PACKETS_PER_TURN: usize = 32;

/// Turns of housekeeping, twice a second, within which answers to flows outside of the tunnel arrive: two seconds, more
/// than the longest way over a satellite with a queue before it.
const MOVING: u8 = 4;

/// With more sessions than this, changes of the rules are gathered until the next housekeeping:
/// each rewrites the rules of all sessions, and after a restart thousands come up within seconds.
const SESSIONS_AT_ONCE: usize = 64;

/// The tunnel of a gateway. Dropping it removes everything it installed.
pub(crate) struct Tunnel {
    port: Arc<TunnelPort>,
    reader: Option<JoinHandle<()>>,
    device: RoutedDevice,
    carries_v6: bool,
    lans: LanWatch,
    /// Packets so far of flows that have begun outside of the tunnel and should be in it.
    begun_outside: u64,
    /// Turns of housekeeping for which answers to such flows may still be under way.
    moving: u8,
    /// Set once the kernel has refused to forget such flows.
    keeps_flows: bool,
}

/// Moves packets between the device and the hop.
pub(crate) struct TunnelPort {
    device: Arc<DevicePort>,
    table: Mutex<DeviceTable<Selection>>,
    paths: Mutex<PacketPaths>,
    classes: Arc<LiveClasses>,
    fragments: Mutex<FragmentChannels>,
    counters: Arc<GatewayCounters>,
    /// Makes SYNs announce only what fits into one packet of the hop.
    clamps_mss: bool,
    /// Set while the rules lack changes of the open sessions.
    is_stale: AtomicBool,
}

impl Tunnel {
    /// Installs the device, unless another process has given us `shared`, the rules and the routes; takes
    /// no packets yet. With `mesh`, packets may pass between sessions.
    ///
    /// # Errors
    /// If privileges or kernel features are missing, or a device of that name exists.
    pub(crate) fn install(
        config: &TunnelConfig,
        selection: Selection,
        mesh: bool,
        classes: Arc<LiveClasses>,
        counters: Arc<GatewayCounters>,
        shared: Option<OwnedFd>,
    ) -> Result<Self, RunError> {
        let lans = LanWatch::start(selection.traffic.interfaces(), LocalInterfaces::AllInterfaces);
        let translation = selection.translation;
        let (mut device, table, without_v6) =
            RoutedDevice::install(DeviceUse::Tunnel, config, selection, shared)?;
        lead_pool(&mut device, translation)?;
        if let Some(refusal) = &without_v6 {
            warn_of(refusal);
        }
        let kind = device.port().device().kind();
        tracing::info!("tunnel {}: {kind}, MTU {}", config.name, config.mtu);
        let port = Arc::new(TunnelPort {
            device: device.port(),
            table: Mutex::new(table),
            paths: Mutex::new(PacketPaths::new(mesh)),
            classes,
            fragments: Mutex::default(),
            counters,
            clamps_mss: config.clamp_mss,
            is_stale: AtomicBool::new(false),
        });
        Ok(Self {
            port,
            reader: None,
            device,
            carries_v6: without_v6.is_none(),
            lans,
            begun_outside: 0,
            moving: 0,
            keeps_flows: false,
        })
    }

    /// The device for another process.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.port.device.device().share()
    }

    pub(crate) fn name(&self) -> &str {
        self.device.name()
    }

    /// Stops reading the device, which another process reads from now on. Packets from sessions are still
    /// written to it.
    pub(crate) fn stop_reading(&mut self) {
        self.reader.take().into_iter().for_each(|reader| reader.abort());
    }

    /// Replaces a device that was removed, restores the routes that the kernel removed when IPv6 was switched
    /// off, follows the routes to clients, and applies the gathered changes of the open sessions.
    pub(crate) fn housekeep(&mut self) {
        if self.device.renew() {
            self.port.take();
        }
        if self.port.is_stale.swap(false, Ordering::Relaxed) {
            self.port.take();
        }
        self.follow_routes();
        self.follow_flows();
        if self.lans.follow()
            && let Err(error) =
                self.port.table().update(|rules| rules.set_lans(self.lans.routes().clone()))
        {
            tracing::warn!("{}", KernelRefusal::wrap(KernelOperation::Nftables)(error));
        }
    }

    fn follow_routes(&mut self) {
        // Without the device, whose reader reports the failure, there is nothing to route to.
        let Ok(without_v6) = self.device.restore_routes() else { return };
        match (&without_v6, self.carries_v6) {
            (Some(refusal), true) => warn_of(refusal),
            (None, false) => tracing::info!("the tunnel carries IPv6 too"),
            _ => {}
        }
        self.carries_v6 = without_v6.is_none();
    }

    /// Makes the kernel forget flows that have begun outside of the tunnel and should be in it: their translation, or
    /// that they have none, does not change otherwise.
    fn follow_flows(&mut self) {
        if self.device.address().is_none() || self.keeps_flows {
            return;
        }
        let count = self.counts().get(BEGUN_OUTSIDE).copied().unwrap_or(0);
        if std::mem::replace(&mut self.begun_outside, count) == count {
            return self.set_moving(self.moving.saturating_sub(1));
        }
        self.set_moving(MOVING);
        let forgotten = NetfilterSocket::open()
            .and_then(|kernel| kernel.forget_connections(OUTSIDE.value, OUTSIDE.mask));
        if let Err(error) = forgotten {
            self.keeps_flows = true;
            tracing::warn!(
                "traffic that has begun outside of the tunnel stays there: the kernel does not \
                 forget connections (nf_conntrack_netlink): {error}"
            );
        }
    }

    fn set_moving(&mut self, turns: u8) {
        let before = std::mem::replace(&mut self.moving, turns);
        if (before > 0) == (turns > 0) {
            return;
        }
        let updated = self.port.table().update(|rules| rules.is_moving = turns > 0);
        if let Err(error) = updated {
            tracing::warn!("{}", KernelRefusal::wrap(KernelOperation::Nftables)(error));
        }
    }

    /// Translates clients to this address from now on, or to none.
    ///
    /// # Errors
    /// The reason for which that is impossible.
    pub(crate) fn translate(&mut self, address: Option<Ipv4Addr>) -> Result<(), String> {
        if address == self.device.address() {
            return Ok(());
        }
        let index = self.device.index();
        address.map_or(Ok(()), |address| addresses::check_own(address, index))?;
        self.device.set_address(address).map_err(|refusal| refusal.to_string())?;
        let translation = address.map(|_| Translation::ToDevice);
        let updated = self.port.table().update(|rules| rules.translation = translation);
        updated.map_err(|error| {
            // Untranslated packets would not be accepted, so the tunnel must not count as prepared; nor must later
            // changes of the rules try the same again.
            let _ = self.device.set_address(None);
            let _ = self.port.table().update(|rules| rules.translation = None);
            KernelRefusal::wrap(KernelOperation::Nftables)(error).to_string()
        })?;
        if let Some(address) = address {
            tracing::info!("the tunnel translates clients' IPv4 traffic to {address}");
        }
        Ok(())
    }

    /// Applies new interfaces and policies.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn configure(&mut self, mut selection: Selection) -> Result<(), RunError> {
        selection.is_moving = self.moving > 0;
        let pool = selection.translation;
        self.lans.follow_interfaces(selection.traffic.interfaces());
        let configured = self.port.table().update(|rules| {
            // A terminal's follows its hub. A hub's stays for sessions that have begun with an address.
            selection.translation = selection.translation.or(rules.translation);
            *rules = selection;
        });
        configured.map_err(RunError::nftables)?;
        // Last: without it, housekeeping tries again, but the new rules must hold.
        lead_pool(&mut self.device, pool)
    }

    /// Adds the tunnel's counters, and what its table has counted for the policies.
    fn add_status(&self, status: &mut GatewayStatus) {
        let counts = self.counts();
        let prohibited = counts.get(REFUSED).copied().unwrap_or(0);
        status.tunnel = Some(self.port.counters.tunnel.status(prohibited));
        policy::add_counts(&mut status.policies, &counts);
    }

    /// Connections and packets decided by each policy, and the number of prohibited packets.
    fn counts(&self) -> BTreeMap<String, u64> {
        self.port.table().counts().unwrap_or_else(|error| {
            tracing::debug!("cannot read the policies' counters: {error}");
            BTreeMap::new()
        })
    }

    /// The port to which the driver delivers packets.
    pub(crate) fn port(&self) -> Arc<TunnelPort> {
        self.port.clone()
    }

    /// Starts sending packets from the device over `hop`.
    pub(crate) fn start(&mut self, hop: Hop) {
        let port = self.port.clone();
        self.reader = Some(tokio::spawn(async move { port.read(&hop).await }));
    }

    /// Adds a session whose peer has `networks` behind it. Returns whether the peer accepts
    /// packets.
    pub(crate) fn add(&self, hop: &Hop, session: SessionId, networks: Vec<Prefix>) -> bool {
        let agreed = hop.peer_receives(session, DEFAULT_CHANNEL);
        if agreed {
            self.port.paths().add(session, networks);
            self.set_open(session, true);
        }
        agreed
    }

    /// Returns `true` if a session was added and not removed.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.port.paths().has(session)
    }

    /// Opens or closes a session for packets.
    pub(crate) fn set_open(&self, session: SessionId, open: bool) {
        if self.port.paths().set_open(session, open) {
            self.port.sessions_changed();
        }
    }

    /// Removes a session that has ended.
    pub(crate) fn remove(&self, session: SessionId) {
        if self.port.paths().remove(session) {
            self.port.sessions_changed();
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.port.close();
        self.stop_reading();
    }
}

impl TunnelPort {
    fn paths(&self) -> MutexGuard<'_, PacketPaths> {
        self.paths.lock().expect("nobody panics while holding the paths")
    }

    fn table(&self) -> MutexGuard<'_, DeviceTable<Selection>> {
        self.table.lock().expect("nobody panics while holding the table")
    }

    /// Updates the table now or with the next housekeeping.
    fn sessions_changed(&self) {
        if self.paths().count() > SESSIONS_AT_ONCE {
            self.is_stale.store(true, Ordering::Relaxed);
        } else {
            self.take();
        }
    }

    /// Updates the table, so that the kernel marks packets for the open sessions while there is a device.
    fn take(&self) {
        let has_failed = self.device.device().has_failed();
        let networks = if has_failed { Vec::new() } else { self.paths().open_networks() };
        if let Err(error) = self.table().set_scope(networks) {
            tracing::warn!("cannot update the tunnel's rules: {error}");
        }
    }

    /// Lets all packets pass unaccelerated from here on.
    fn close(&self) {
        self.paths().close_all();
        self.take();
    }

    /// Sends packets from the device to their sessions. After the device has failed, packets pass unaccelerated
    /// until it is replaced.
    async fn read(&self, hop: &Hop) {
        let mut buffer = vec![0; LONGEST_PACKET];
        loop {
            let send = |packet: &[u8]| self.send(hop, packet);
            match self.device.take_turn(&mut buffer, PACKETS_PER_TURN, send).await {
                // The device may have packets without end: other tasks get their turn.
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!("the tunnel has failed, packets pass unaccelerated: {error}");
                    self.device.device().fail();
                    self.take();
                }
            }
        }
    }

    /// Sends a packet to the session that its destination is behind.
    fn send(&self, hop: &Hop, bytes: &[u8]) {
        let now = clock::now();
        let packet = Packet::parse(bytes).filter(Packet::is_routable);
        let sent = packet.and_then(|packet| {
            let session = self.paths().to(packet.destination)?;
            let channel = self.channel(now, &packet);
            let clamped = self.clamp(hop, session, &packet, bytes);
            let bytes = clamped.as_deref().unwrap_or(bytes);
            hop.send_packet(now, session, channel, bytes).ok()
        });
        match sent {
            Some(()) => self.counters.tunnel.to_hop.increment(),
            None => self.counters.tunnel.dropped.increment(),
        }
    }

    fn channel(&self, now: Instant, packet: &Packet) -> ChannelId {
        let own = self.classes.read().of_packet(packet);
        let mut fragments = self.fragments.lock().expect("nobody panics while holding fragments");
        fragments.channel(now, packet, own)
    }

    /// A copy of a SYN that announces no longer segments than fit into one packet of the hop, if it
    /// does. The other gateway's packets are about as long as ours.
    fn clamp(
        &self,
        hop: &Hop,
        session: SessionId,
        packet: &Packet,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        if !self.clamps_mss || packet.protocol != TCP {
            return None;
        }
        clamped(bytes, || hop.longest_whole_packet(session))
    }
}

impl PacketSink for TunnelPort {
    fn deliver(&self, session: SessionId, bytes: &[u8]) -> bool {
        let Some(packet) = Packet::parse(bytes).filter(Packet::is_routable) else {
            self.counters.tunnel.dropped.increment();
            return false;
        };
        // A terminal sends from its own networks only, and to those of others only with `mesh`.
        if !self.paths().permits(session, packet.source, packet.destination) {
            tracing::debug!(source = %packet.source, destination = %packet.destination, "not \
                                                                                         permitted");
            self.counters.tunnel.foreign.increment();
            return false;
        }
        match self.device.device().send(bytes) {
            Ok(()) => {
                self.counters.tunnel.from_hop.increment();
                true
            }
            Err(error) => {
                tracing::debug!("cannot write to the tunnel's device: {error}");
                self.counters.tunnel.dropped.increment();
                false
            }
        }
    }
}

/// Leads a hub's packets for its pool into the device.
///
/// # Errors
/// The kernel's refusal.
fn lead_pool(device: &mut RoutedDevice, translation: Option<Translation>) -> Result<(), RunError> {
    let Some(Translation::Of(pool)) = translation else { return Ok(()) };
    device.lead_subnet(pool);
    let name = device.name().to_owned();
    let restored = device.restore_routes();
    restored.map(drop).map_err(|refusal| RunError::Tunnel { name, refusal })
}

fn warn_of(refusal: &KernelRefusal) {
    tracing::warn!("the tunnel carries only IPv4: {refusal}; {}", refusal.later_advice());
}

/// The selection of a terminal's tunnel.
pub(crate) fn of_clients(
    intercept: &InterceptConfig,
    policies: &[TrafficPolicy],
    accept: &EgressRules,
) -> Selection {
    let interfaces = intercept.interfaces.clone();
    let lans = LanRoutes::of(&interfaces, LocalInterfaces::AllInterfaces);
    Selection {
        traffic: Traffic::OfClients { interfaces, own: intercept.own_traffic, lans },
        policies: policies.to_vec(),
        admitted: Admitted::from_anyone(accept),
        counts_connections: false,
        translation: None,
        is_moving: false,
    }
}

/// Every address of both versions: what is behind a hub.
pub(crate) fn everywhere() -> Vec<Prefix> {
    vec![Prefix::ALL_V4, Prefix::ALL_V6]
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use config::TunnelDevice;
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::{LinkFlags, LinkMessage};
    use netlink_packet_route::route::{RouteAttribute, RouteMessage};
    use nix::net::if_::if_nametoindex;
    use os::netlink::RouteSocket;
    use pep::traffic::{ClassDefinition, PortRange, TrafficClasses, TrafficSelector};
    use tokio::time::timeout;

    use super::*;
    use crate::network::namespace_slot::NamespaceSlot;
    use crate::testkit::{Hops, give_address, in_namespace};

    const THEIRS: &str = "10.2.0.0/16";
    /// A port with a class, and so a channel, of its own.
    const VOICE: u16 = 5060;

    /// A UDP datagram from one address to another.
    fn packet(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0];
        packet.extend(from.into_iter().chain(to));
        packet.extend([0x30, 0x39, 0, 53, 0, 8, 0, 0]);
        packet
    }

    /// Runs `work` with a hub's tunnel for one terminal, whose network is [`THEIRS`].
    fn with_tunnel(work: impl FnOnce(&mut Hops, &Tunnel) + Send + 'static) {
        with_tunnel_to_change(async move |hops, tunnel| work(hops, tunnel));
    }

    fn with_tunnel_to_change(work: impl AsyncFnOnce(&mut Hops, &mut Tunnel) + Send + 'static) {
        with_tunnel_on(TunnelDevice::Auto, work);
    }

    fn with_tunnel_on(
        device: TunnelDevice,
        work: impl AsyncFnOnce(&mut Hops, &mut Tunnel) + Send + 'static,
    ) {
        in_namespace(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut link = slacp::Config::new(units::BitRate::from_mbit(10));
                let ports = vec![PortRange { protocol: None, first: VOICE, last: VOICE }];
                let traffic = TrafficSelector { ports, ..TrafficSelector::default() };
                let voice = ClassDefinition { traffic, ..ClassDefinition::new("voice") };
                let classes = TrafficClasses::install(vec![voice], true, &mut link);
                let classes = Arc::new(LiveClasses::new(classes.unwrap()));
                let mut hops = Hops::with(link);
                let name = "test0".to_owned();
                let config = TunnelConfig { name, device, mtu: 1400, pool: None, clamp_mss: true };
                let selection = Selection {
                    traffic: Traffic::ToTerminals { hop: 5900 },
                    policies: vec![],
                    admitted: Admitted::from_anyone(&EgressRules::everywhere()),
                    counts_connections: false,
                    translation: None,
                    is_moving: false,
                };
                let mut tunnel =
                    Tunnel::install(&config, selection, false, classes, Arc::default(), None)
                        .unwrap();
                work(&mut hops, &mut tunnel).await;
            });
        });
    }

    /// Lets other tasks run until this holds.
    async fn until(holds: impl Fn() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), waiting).await.expect("the reader did nothing");
    }

    fn counts(tunnel: &Tunnel) -> [u64; 4] {
        let status = tunnel.port.counters.tunnel.status(0);
        [status.to_hop, status.from_hop, status.foreign, status.dropped]
    }

    #[test]
    fn a_packet_goes_to_the_session_that_its_destination_is_behind() {
        with_tunnel(|hops, tunnel| {
            let (hub, session) = (hops.hops[0].clone(), hops.sessions[0]);
            let [there, elsewhere] =
                [[10, 2, 0, 9], [10, 3, 0, 9]].map(|to| packet([10, 1, 0, 1], to));
            tunnel.port.send(&hub, &there);
            assert_eq!(counts(tunnel), [0, 0, 0, 1], "nobody is there yet");
            assert!(tunnel.add(&hub, session, vec![THEIRS.parse().unwrap()]));
            for bytes in
                [&there, &elsewhere, &vec![0x45; 7], &packet([10, 1, 0, 1], [224, 0, 0, 1])]
            {
                tunnel.port.send(&hub, bytes);
            }
            assert_eq!(counts(tunnel), [1, 0, 0, 4]);
            // While the terminal does not answer, packets are not taken, and those on their way are
            // lost.
            tunnel.set_open(session, false);
            tunnel.port.send(&hub, &there);
            assert_eq!(counts(tunnel), [1, 0, 0, 5]);
            tunnel.set_open(session, true);
            tunnel.port.send(&hub, &there);
            tunnel.remove(session);
            tunnel.port.send(&hub, &there);
            assert_eq!(counts(tunnel), [2, 0, 0, 6]);
        });
    }

    #[test]
    fn a_packet_from_a_terminal_comes_from_its_own_network_or_not_at_all() {
        with_tunnel(|hops, tunnel| {
            let (hub, session) = (hops.hops[0].clone(), hops.sessions[0]);
            assert!(tunnel.add(&hub, session, vec![THEIRS.parse().unwrap()]));
            let [own, forged] =
                [[10, 2, 0, 9], [10, 1, 0, 9]].map(|from| packet(from, [10, 1, 0, 1]));
            tunnel.port.deliver(session, &own);
            assert_eq!(counts(tunnel), [0, 1, 0, 0]);
            tunnel.port.deliver(session, &forged);
            assert_eq!(counts(tunnel), [0, 1, 1, 0]);
            for bytes in [&[][..], &[0x45; 7], &packet([10, 2, 0, 9], [127, 0, 0, 1])] {
                tunnel.port.deliver(session, bytes);
            }
            assert_eq!(counts(tunnel)[1..3], [1, 1]);
            assert_eq!(counts(tunnel)[3], 3);
        });
    }

    #[test]
    fn later_fragments_of_a_packet_take_the_channel_of_the_first() {
        with_tunnel(|_, tunnel| {
            // Flags and offset (RFC 791 §3.1): more fragments follow, or this is the last.
            let [first, last] = [[0x20, 0], [0, 1]].map(|part| {
                let mut bytes = packet([10, 1, 0, 1], [10, 2, 0, 9]);
                bytes[6..8].copy_from_slice(&part);
                bytes[22..24].copy_from_slice(&VOICE.to_be_bytes());
                bytes
            });
            let channel = |bytes: &[u8]| {
                let packet = Packet::parse(bytes).unwrap();
                tunnel.port.channel(clock::now(), &packet)
            };
            assert_eq!(channel(&last), DEFAULT_CHANNEL, "its first one has not come");
            let voice = channel(&first);
            assert_ne!(voice, DEFAULT_CHANNEL);
            assert_eq!(channel(&last), voice);
        });
    }

    /// A socket of this machine whose packets the table would have marked for the tunnel.
    fn client_of(tunnel: &Tunnel) -> UdpSocket {
        give_address("lo", [10, 1, 0, 1].into());
        let socket = UdpSocket::bind("10.1.0.1:0").unwrap();
        let mark = tunnel.port.table().slot().mark().value;
        socket2::SockRef::from(&socket).set_mark(mark).unwrap();
        socket
    }

    #[test]
    fn a_device_that_was_down_carries_packets_again() {
        for device in [TunnelDevice::Auto, TunnelDevice::Veth] {
            with_tunnel_on(device, async |hops, tunnel| {
                let (hub, session) = (hops.hops[0].clone(), hops.sessions[0]);
                assert!(tunnel.add(&hub, session, vec![THEIRS.parse().unwrap()]));
                tunnel.start(hub);
                let socket = client_of(tunnel);
                let mut kernel = RouteSocket::open().unwrap();
                let mut link = LinkMessage::default();
                link.header.index = if_nametoindex("test0").unwrap();
                link.header.change_mask = LinkFlags::Up;
                kernel.request(RouteNetlinkMessage::SetLink(link), 0).unwrap();
                tokio::task::yield_now().await;
                tunnel.housekeep();
                assert!(socket.send_to(b"nowhere", "10.2.0.9:9").is_err());
                kernel.bring_up("test0", Some(1400), false).unwrap();
                tunnel.housekeep();
                socket.send_to(b"into the device", "10.2.0.9:9").unwrap();
                until(|| counts(tunnel)[0] == 1).await;
            });
        }
    }

    #[test]
    fn a_device_that_is_removed_is_made_anew() {
        with_tunnel_to_change(async |hops, tunnel| {
            let (hub, session) = (hops.hops[0].clone(), hops.sessions[0]);
            assert!(tunnel.add(&hub, session, vec![THEIRS.parse().unwrap()]));
            tunnel.start(hub);
            let socket = client_of(tunnel);
            for (sent, is_noticed) in [(1, false), (2, true)] {
                let before = if_nametoindex("test0").unwrap();
                let mut link = LinkMessage::default();
                link.header.index = before;
                let mut kernel = RouteSocket::open().unwrap();
                assert!(kernel.remove(RouteNetlinkMessage::DelLink(link)).unwrap());
                if is_noticed {
                    until(|| tunnel.port.device.device().has_failed()).await;
                }
                tunnel.housekeep();
                let after = if_nametoindex("test0").unwrap();
                assert!(after != before && !tunnel.port.device.device().has_failed());
                let into_it = |route: &RouteMessage| {
                    route.attributes.contains(&RouteAttribute::Oif(after))
                        && route.header.destination_prefix_length == 0
                };
                assert!(kernel.routes().unwrap().iter().any(into_it));
                socket.send_to(b"into the new device", "10.2.0.9:9").unwrap();
                until(|| counts(tunnel)[0] == sent).await;
            }
        });
    }

    #[test]
    fn the_name_of_an_interface_that_exists_is_an_error_of_its_own() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let config = |name: &str| TunnelConfig {
                name: name.to_owned(),
                device: TunnelDevice::Auto,
                mtu: 1400,
                pool: None,
                clamp_mss: true,
            };
            runtime.unwrap().block_on(async {
                let install = || {
                    let intercept = InterceptConfig::nowhere();
                    let selection = of_clients(&intercept, &[], &EgressRules::nowhere());
                    let (classes, counters) = (Arc::default(), Arc::default());
                    Tunnel::install(&config("test0"), selection, false, classes, counters, None)
                };
                let _first = install().unwrap();
                assert!(matches!(install(), Err(RunError::TunnelExists { .. })));
            });
        });
    }
}
