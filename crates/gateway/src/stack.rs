//! skyhop's own TCP on the WAN side of a solo gateway: the stack of crate `tcp` on a network device.
//!
//! ```text
//!  client ── kernel ── relay ── stack ── device ── routing ── WAN ── server
//!                                          ▲                   │
//!                                          └── mark ◀─ table ──┘
//! ```
//!
//! The kernel routes the stack's packets like those of another host behind this one. It never answers
//! packets for the stack, because they are routed into the device: the nftables table recognises its
//! connections ([`table`]), and a rule by packet mark routes them.

mod driver;
mod flow;
mod mtu;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use config::StackConfig;
use control::status::StackStatus;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use os::netlink::RouteSocket;
use pep::traffic::{IpFamily, TrafficPolicy};
use tcp::{Stack, StackLimits};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

pub(crate) use self::driver::IncomingFlow;
use self::driver::{INCOMING, StackDriver, StackShared};
pub(crate) use self::flow::StackFlow;
use self::table::WanSelection;
use crate::figures::counters::GatewayCounters;
use crate::network::presence;
use crate::network::routing;
use crate::network::tun::port::{DeviceUse, RoutedDevice};
use crate::network::tun::table::{DeviceRules, DeviceTable};
use crate::process::clock;
use crate::process::error::RunError;
use crate::process::refusal::{KernelOperation, KernelRefusal};

/// Addresses of the stack for connections without a client's address. They never leave this machine: the
/// first is from a prefix reserved for that (RFC 7335), the second a unique local address (RFC 4193).
const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 5);
const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd73, 0x6b79, 0x686f, 0x7077, 0, 0, 0, 5);
/// Maximum connections if the configuration sets no limit.
const CONNECTIONS: usize = 16_384;

fn address(version: IpFamily) -> IpAddr {
    match version {
        IpFamily::V4 => ADDRESS_V4.into(),
        IpFamily::V6 => ADDRESS_V6.into(),
    }
}

/// The stack in service. Dropping it resets its connections and removes everything it installed.
pub(crate) struct WanStack {
    shared: Arc<StackShared>,
    table: DeviceTable<WanSelection>,
    device: RoutedDevice,
    driver: JoinHandle<io::Error>,
    incoming: mpsc::Receiver<IncomingFlow>,
}

/// Handle to open connections of the stack.
#[derive(Clone)]
pub(crate) struct StackCaller(Arc<StackShared>);

/// An event of the stack.
pub(crate) enum StackEvent {
    /// A connection request from a host on the WAN side.
    Incoming(IncomingFlow),
    /// The stack has failed for good.
    Failed(RunError),
}

impl WanStack {
    /// Installs the device, the rules and the routes. Accepts no connections yet.
    ///
    /// # Errors
    /// If privileges or kernel features are missing, or a device of that name exists.
    pub(crate) fn install(
        config: &StackConfig,
        policies: &[TrafficPolicy],
        most: Option<u64>,
        counters: Arc<GatewayCounters>,
    ) -> Result<Self, RunError> {
        presence::warn_of_interfaces("wan.interfaces", &config.interfaces);
        let name = &config.device.name;
        let (device, table, without_v6) = RoutedDevice::install(
            DeviceUse::Stack,
            &config.device,
            selection(config, policies),
            None,
        )?;
        let own = routing::for_versions(&IpFamily::BOTH, |version| {
            route_to_stack(device.index(), version)
                .map_err(KernelRefusal::wrap(KernelOperation::Route(version)))
        });
        let own = own.map_err(|refusal| RunError::Stack { name: name.clone(), refusal })?;
        let without_v6 = without_v6.or(own);
        if let Some(refusal) = &without_v6 {
            tracing::warn!("the stack has only IPv4: {refusal}; {}", refusal.later_advice());
        }
        warn_without_forwarding();
        let flows = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(CONNECTIONS);
        let stack = Stack::new(StackLimits { flows, incoming: INCOMING });
        let port = device.port();
        tracing::info!("{name}: {}, {}", port.device().kind(), config.tcp.controller);
        let mtu = config.device.mtu;
        let shared = Arc::new(StackShared::new(port, stack, config.tcp.clone(), mtu, counters));
        let (sender, incoming) = mpsc::channel(INCOMING);
        let driver = StackDriver::new(shared.clone(), sender).map_err(RunError::System)?;
        let driver = tokio::spawn(driver.run());
        Ok(Self { shared, table, device, driver, incoming })
    }

    /// Returns a handle to open connections.
    pub(crate) fn caller(&self) -> StackCaller {
        StackCaller(self.shared.clone())
    }

    /// Waits for the next event. Cancel-safe.
    pub(crate) async fn next(&mut self) -> StackEvent {
        tokio::select! {
            Some(incoming) = self.incoming.recv() => StackEvent::Incoming(incoming),
            ended = &mut self.driver => StackEvent::Failed(failure(ended)),
        }
    }

    /// Starts or stops accepting connections from the WAN side.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn accept(&mut self, accepts: bool) -> Result<(), RunError> {
        if *self.table.scope() == accepts {
            return Ok(());
        }
        self.table.set_scope(accepts).map_err(RunError::nftables)
    }

    /// Applies reloaded settings to new connections. Device and MTU stay.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn configure(
        &mut self,
        config: &StackConfig,
        policies: &[TrafficPolicy],
    ) -> Result<(), RunError> {
        presence::warn_of_interfaces("wan.interfaces", &config.interfaces);
        let set = self.table.update(|rules| *rules = selection(config, policies));
        set.map_err(RunError::nftables)?;
        self.shared.lock().config = config.tcp.clone();
        Ok(())
    }

    /// Sends the resets of the last connections, then removes everything.
    pub(crate) fn stop(self) {
        // Dropping aborts the driver, which would not send them any more.
        self.shared.send_now(clock::now());
    }

    /// Replaces a device that was removed, and restores the routes that the kernel removed when IPv6 was
    /// switched off. The connections go on: what was lost meanwhile is retransmitted.
    pub(crate) fn follow_routes(&mut self) {
        self.device.renew();
        // Fails without the device.
        let _ = self.device.restore_routes();
        for version in IpFamily::BOTH {
            // Also fails without IPv6, which was reported at the start.
            let _ = route_to_stack(self.device.index(), version);
        }
    }

    /// Number of connections decided by each policy.
    pub(crate) fn counts(&self) -> std::collections::BTreeMap<String, u64> {
        self.table.counts().unwrap_or_default()
    }

    /// Bytes held by its connections.
    pub(crate) fn held(&self) -> u64 {
        self.shared.lock().stack.held()
    }

    /// Returns the counters of the stack.
    pub(crate) fn status(&self) -> StackStatus {
        let state = self.shared.lock();
        let counts = state.stack.counts();
        StackStatus {
            controller: state.config.controller.to_string(),
            connections: state.stack.owned(),
            held_bytes: state.stack.held(),
            opened: counts.opened,
            accepted: counts.accepted,
            snack: counts.snack,
            sack: counts.sack,
            ignored: counts.ignored,
            retransmissions: counts.retransmissions,
            unsent: self.shared.unsent.get(),
        }
    }
}

impl Drop for WanStack {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl StackCaller {
    /// Connects to `destination` from `source`, or from the stack's own address, with this DSCP.
    ///
    /// # Errors
    /// As connect(2); `TimedOut` after `timeout`.
    pub(crate) async fn connect(
        &self,
        destination: SocketAddr,
        source: Option<IpAddr>,
        dscp: Option<u8>,
        timeout: Duration,
    ) -> io::Result<StackFlow> {
        let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
        // IPv6 sockets report IPv4 addresses in mapped form; on the wire both ends are IPv4.
        let source = source.map(|source| source.to_canonical());
        let own = address(IpFamily::of(destination.ip()));
        let source = source.unwrap_or(own);
        let flow = self.0.connect(clock::now(), source, destination, dscp)?;
        match tokio::time::timeout(timeout, flow.connected()).await {
            Ok(connected) => connected.map(|()| flow),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Waits for the next event of an optional stack; for ever without a stack.
pub(crate) async fn next(stack: &mut Option<WanStack>) -> StackEvent {
    match stack {
        Some(stack) => stack.next().await,
        None => std::future::pending().await,
    }
}

fn failure(ended: Result<io::Error, JoinError>) -> RunError {
    match ended {
        Ok(error) => RunError::Socket(error),
        Err(error) => RunError::Task(error),
    }
}

fn selection(config: &StackConfig, policies: &[TrafficPolicy]) -> WanSelection {
    WanSelection { interfaces: config.interfaces.clone(), policies: policies.to_vec() }
}

/// Routes the stack's own address to its device. The kernel removes the route with the device.
fn route_to_stack(device: u32, version: IpFamily) -> io::Result<()> {
    RouteSocket::open()?.ensure(RouteNetlinkMessage::NewRoute(own_route(device, version)))
}

fn own_route(device: u32, version: IpFamily) -> RouteMessage {
    let mut route = routing::route_of_kind(RouteType::Unicast, version);
    let (to, length) = match version {
        IpFamily::V4 => (RouteAddress::Inet(ADDRESS_V4), 32),
        IpFamily::V6 => (RouteAddress::Inet6(ADDRESS_V6), 128),
    };
    route.header.destination_prefix_length = length;
    route.header.table = libc::RT_TABLE_MAIN;
    route.attributes = vec![RouteAttribute::Destination(to), RouteAttribute::Oif(device)];
    route
}

/// Warns of settings that keep packets from passing between the stack and the WAN.
fn warn_without_forwarding() {
    for lack in missing_settings() {
        tracing::warn!("{lack}");
    }
}

/// Describes the settings that this machine lacks to route the stack's packets.
pub(crate) fn missing_settings() -> Vec<String> {
    const SWITCHES: [(&str, &str); 2] = [
        ("IPv4", "/proc/sys/net/ipv4/ip_forward"),
        ("IPv6", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ];
    let off = |path: &str| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0");
    let lack = |(version, path): (&str, &str)| {
        let key = path.trim_start_matches("/proc/sys/").replace('/', ".");
        format!("{version} packets of the stack are not forwarded: `sysctl -w {key}=1`")
    };
    let barriers = crate::intercept::firewall::forward_barriers();
    let lacking = SWITCHES.into_iter().filter(|(_, path)| off(path)).map(lack);
    lacking.chain(barriers).collect()
}

/// Formats the routes, rules and table of the stack, in nft and ip syntax.
pub(crate) fn print(config: &StackConfig, policies: &[TrafficPolicy]) -> String {
    let device = &config.device.name;
    let own = IpFamily::BOTH.map(|version| {
        let family = if version == IpFamily::V4 { "" } else { "-6 " };
        format!("# ip {family}route add {} dev {device}\n", address(version))
    });
    own.concat() + &selection(config, policies).print(&true, device)
}
