//! The part that hub and terminal share: the endpoint with its driver, and the relayed connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pep::egress::{EgressRefusal, EgressRules};
use pep::routes::SourceAddresses;
use slacp::{Destination, Endpoint, ResetReason, SessionId, StreamOpening};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinError, JoinSet};
use units::Instant;

use crate::figures::connections::ArrivingConnection;
use crate::figures::counters::GatewayCounters;
use crate::hop::PacketSink;
use crate::hop::class::LiveClasses;
use crate::hop::driver::{DrivenPart, HopDriver};
use crate::hop::exchange::PartExchange;
use crate::hop::peers::PeerTable;
use crate::hop::sockets::HopSockets;
use crate::hop::udp::UdpLink;
use crate::hop::{Hop, HopEvent, SessionStream};
use crate::intercept::ClientArrival;
use crate::intercept::listener::AcceptedConnection;
use crate::intercept::own::OwnAddresses;
use crate::operate::GatewayView;
use crate::process::clock;
use crate::process::error::RunError;
use crate::process::runtime::log_panic;
use crate::relay;
use crate::relay::terms::{Admission, DialPolicy};
use crate::roles::workers::{Workers, adopt};
use crate::services::{Surroundings, Uplink};

/// Time for the last packets of connections when a gateway stops.
const LAST_PACKETS: Duration = Duration::from_millis(300);
/// Time for telling the peer that the session is over.
const FAREWELL: Duration = Duration::from_millis(200);

/// The classes and counters of traffic, and the destination of its packets.
#[derive(Default)]
pub(crate) struct TrafficContext {
    pub(crate) classes: Arc<LiveClasses>,
    pub(crate) counters: Arc<GatewayCounters>,
    pub(crate) tunnel: Option<Arc<dyn PacketSink>>,
}

/// The side of the hop, which decides how peers are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Hub,
    Terminal,
}

/// The running hop of a hub or terminal, with the connections over it.
pub(crate) struct Gateway {
    hop: Hop,
    events: UnboundedReceiver<HopEvent>,
    drivers: JoinSet<io::Error>,
    relays: JoinSet<()>,
    /// Dropped last, when everything that runs on them has ended.
    workers: Workers,
    own: OwnAddresses,
    policy: DialPolicy,
    counters: Arc<GatewayCounters>,
}

/// An event for the role's main loop.
pub(crate) enum Report {
    /// An event of the hop.
    Hop(HopEvent),
    /// The gateway cannot go on.
    Failed(RunError),
}

impl Gateway {
    /// Starts driving each of `endpoints` over its sockets, on its worker.
    pub(crate) fn start(
        side: Side,
        endpoints: Vec<Endpoint>,
        sockets: Vec<HopSockets>,
        workers: Workers,
        policy: DialPolicy,
        own: OwnAddresses,
        context: TrafficContext,
    ) -> Result<Self, RunError> {
        let TrafficContext { classes, counters, tunnel } = context;
        let hop = Hop::new(endpoints, classes);
        let (sender, events) = unbounded_channel();
        let mut exchanges = match hop.parts() {
            // A single part has nothing to exchange.
            1 => Vec::new(),
            parts => PartExchange::among(parts),
        }
        .into_iter();
        let mut drivers = JoinSet::new();
        for (part, sockets) in (0..).zip(sockets) {
            let sources = match side {
                Side::Hub => SourceAddresses::as_addressed(),
                Side::Terminal => SourceAddresses::Routed,
            };
            let driven = DrivenPart { hop: hop.clone(), number: part, exchange: exchanges.next() };
            let worker = workers.of(part);
            // The driver's timer belongs to the runtime that it is created in.
            let _guard = worker.enter();
            let events = sender.clone();
            let counters = counters.clone();
            let driver = HopDriver::new(driven, sockets, sources, events, counters, tunnel.clone());
            let mut driver = driver.map_err(RunError::System)?;
            drivers.spawn_on(async move { driver.run().await }, worker);
        }
        Ok(Self { hop, events, drivers, relays: JoinSet::new(), workers, own, policy, counters })
    }

    /// Runs work for a session on its worker.
    fn spawn(&mut self, session: SessionId, work: impl Future<Output = ()> + Send + 'static) {
        let worker = self.workers.of(session.part(self.hop.parts()));
        self.relays.spawn_on(work, worker);
    }

    /// Changes the time limit for connecting on the peer's behalf.
    pub(crate) fn set_connect_timeout(&mut self, timeout: Duration) {
        self.policy.timeout = timeout;
    }

    pub(crate) fn hop(&self) -> &Hop {
        &self.hop
    }

    /// The parts of the gateway that its services may use; the role adds its own.
    pub(crate) fn surroundings<'a>(
        &'a mut self,
        now: Instant,
        peers: &'a mut PeerTable,
    ) -> Surroundings<'a> {
        let Self { hop, counters, relays, .. } = self;
        Surroundings {
            now,
            hop: Some(hop),
            counters,
            relays,
            peers,
            uplink: Uplink::default(),
            hub: None,
            keys: None,
        }
    }

    /// Settings of connections made on the peer's behalf.
    pub(crate) fn dial_policy(&self) -> DialPolicy {
        self.policy
    }

    /// The gateway as its operators see it.
    pub(crate) fn view(&self) -> GatewayView<'_> {
        GatewayView { hop: Some(&self.hop), counters: &self.counters }
    }

    pub(crate) fn counters(&self) -> Arc<GatewayCounters> {
        self.counters.clone()
    }

    /// Waits for the next event. Cancel-safe.
    pub(crate) async fn report(&mut self) -> Report {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let HopEvent::Opened(stream, _) = &event {
                        // Makes room for another stream that the session may announce.
                        self.hop.taken(stream);
                    }
                    return Report::Hop(event);
                }
                Some(ended) = self.drivers.join_next() => return Report::Failed(failure(ended)),
                Some(ended) = self.relays.join_next() => log_panic(ended),
            }
        }
    }

    /// Carries a client's connection over the hop.
    pub(crate) fn originate(&mut self, session: SessionId, arrival: ClientArrival) {
        let hop = self.hop.clone();
        let counters = self.counters.clone();
        let arriving = ArrivingConnection::new(counters.clone(), arrival.open().source.ip());
        match arrival {
            ClientArrival::Connection(AcceptedConnection { socket, open }) => {
                // Sockets are accepted on the first part's thread.
                let moves = session.part(self.hop.parts()) > 0;
                self.spawn(session, async move {
                    // What follows enters it in the register, without waiting for anything.
                    drop(arriving);
                    let socket = if moves { adopt(socket) } else { Ok(socket) };
                    match socket {
                        Ok(socket) => relay::originate(hop, session, socket, open, counters).await,
                        Err(error) => tracing::warn!("dropped a connection: {error}"),
                    }
                });
            }
            ClientArrival::Deferred(deferred) => {
                self.spawn(session, async move {
                    drop(arriving);
                    relay::originate_deferred(hop, session, deferred, counters).await;
                });
            }
        }
    }

    /// Returns those of a destination's addresses that the peer may reach with this stream. With
    /// `transparent`, the client's address must not be this machine's.
    ///
    /// # Errors
    /// If there are none, why the first is refused.
    pub(crate) fn check_egress<D>(
        &self,
        egress: &EgressRules,
        open: &StreamOpening<D>,
        addresses: &mut Vec<SocketAddr>,
    ) -> Result<(), EgressRefusal> {
        // Where the kernel gives no answer, an address counts as this machine's.
        if self.policy.transparent
            && self.own.is_own(open.source.ip().to_canonical()) != Some(false)
        {
            return Err(EgressRefusal::Source);
        }
        let mut refused = None;
        addresses.retain(|address| {
            // The addresses of the gateways across the hop are not the peers' to reach either: their
            // services take this machine for the one that asks.
            let is_gateway = |address| match self.own.is_own(address) {
                Some(false) => Some(self.hop.has_peer_at(address)),
                own => own,
            };
            let checked = egress.check(*address, is_gateway);
            let permitted = checked.is_ok();
            refused = refused.take().or_else(|| checked.err());
            permitted
        });
        if addresses.is_empty() { Err(refused.unwrap_or(EgressRefusal::NotListed)) } else { Ok(()) }
    }

    /// Carries a peer's stream to its destination, whose permitted addresses are given.
    pub(crate) fn answer(
        &mut self,
        stream: SessionStream,
        open: StreamOpening<Destination>,
        addresses: Vec<SocketAddr>,
        admission: Admission,
    ) {
        let session = stream.session();
        let counters = self.counters.clone();
        let answer = relay::answer(stream, open, addresses, admission, self.policy, counters);
        self.spawn(session, answer);
    }

    /// Time limit for connecting on the peer's behalf.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.policy.timeout
    }

    /// Forwards a stream to another peer, which connects it.
    pub(crate) fn forward(
        &mut self,
        stream: SessionStream,
        session: SessionId,
        open: StreamOpening,
        admission: Admission,
    ) {
        let hop = self.hop.clone();
        let counters = self.counters.clone();
        self.spawn(session, relay::forward(hop, stream, session, open, admission, counters));
    }

    /// Refuses a stream because of the egress rules.
    pub(crate) fn prohibit(
        &self,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
        why: &EgressRefusal,
    ) {
        tracing::debug!(destination = %open.destination, "refused: {why}");
        self.refuse(stream, open, ResetReason::Prohibited);
    }

    /// Refuses a stream for another reason.
    pub(crate) fn refuse(
        &self,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
        reason: ResetReason,
    ) {
        relay::refuse(&self.counters, stream, open, reason);
    }

    /// Resets all connections, tells the peer, and stops.
    pub(crate) async fn stop(mut self) {
        // Relays that end reset their streams; the drivers still send these resets.
        self.relays.shutdown().await;
        // How the driver ends no longer matters.
        let _ = tokio::time::timeout(LAST_PACKETS, self.drivers.join_next()).await;
        self.hop.shut_down(clock::now());
        let _ = tokio::time::timeout(FAREWELL, self.drivers.join_next()).await;
        self.drivers.shutdown().await;
        tracing::info!("stopped: {}", self.counters);
    }
}

/// Binds the hop's UDP socket.
pub(crate) fn bind(address: SocketAddr) -> Result<UdpLink, RunError> {
    UdpLink::bind(address).map_err(|cause| RunError::Bind { address, cause })
}

fn failure(ended: Result<io::Error, JoinError>) -> RunError {
    match ended {
        Ok(error) => RunError::Socket(error),
        Err(error) => RunError::Task(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use slacp::Config;
    use units::BitRate;

    use super::*;
    use crate::config::keys::{PrivateKey, random_bytes};
    use crate::testkit::{self, Hops};

    /// A hub on loopback without terminals.
    fn hub(transparent: bool) -> Gateway {
        let config = Config::new(BitRate::from_mbit(1));
        let key = PrivateKey::generate().unwrap();
        let endpoint = Endpoint::hub(config, key.pair(), vec![], random_bytes().unwrap());
        let links = vec![bind("127.0.0.1:0".parse().unwrap()).unwrap().into()];
        let policy = DialPolicy { timeout: Duration::from_secs(1), transparent, marked: false };
        let own = OwnAddresses::open().unwrap();
        let context = TrafficContext::default();
        let gateway =
            Gateway::start(Side::Hub, vec![endpoint], links, Workers::none(), policy, own, context);
        gateway.unwrap()
    }

    #[tokio::test]
    async fn a_client_is_never_shown_with_an_address_of_this_machine() {
        let destination: SocketAddr = "192.0.2.1:80".parse().unwrap();
        for (transparent, source, permitted) in [
            (true, "127.0.0.1:4000", false),
            (true, "[::ffff:127.0.0.1]:4000", false),
            (true, "198.51.100.7:4000", true),
            (false, "127.0.0.1:4000", true),
        ] {
            let open = StreamOpening { source: source.parse().unwrap(), destination, dscp: None };
            let checked = hub(transparent).check_egress(
                &EgressRules::everywhere(),
                &open,
                &mut vec![destination],
            );
            assert_eq!(checked.is_ok(), permitted, "{source}: {checked:?}");
        }
    }

    /// Its services would take this machine for the one that asks, also where a name leads to it.
    #[tokio::test]
    async fn an_address_at_which_a_peer_has_its_session_is_no_peer_s_to_reach() {
        let (hops, mut gateway) = (Hops::new(), hub(false));
        gateway.hop = hops.hops[0].clone();
        let [peer, other] = [testkit::address(1).ip(), IpAddr::from([192, 0, 2, 9])];
        let destination = Destination::Resolver;
        let open = StreamOpening { source: testkit::address(1), destination, dscp: None };
        let web = |addresses: &[IpAddr]| -> Vec<SocketAddr> {
            addresses.iter().map(|address| SocketAddr::new(*address, 80)).collect()
        };
        let check = |addresses: &[IpAddr]| {
            let mut addresses = web(addresses);
            let checked = gateway.check_egress(&EgressRules::everywhere(), &open, &mut addresses);
            (checked, addresses)
        };
        assert_eq!(check(&[peer]), (Err(EgressRefusal::Own), vec![]));
        assert_eq!(check(&[peer, other]), (Ok(()), web(&[other])));
    }
}
