//! What hub and terminal share: the endpoint with its driver, and the relayed connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pep::egress::{Egress, Refusal};
use pep::routes::Sources;
use slacp::{Destination, Endpoint, Open, ResetReason, SessionId};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinError, JoinSet};

use crate::clock;
use crate::error::RunError;
use crate::figures::connections::Arriving;
use crate::figures::counters::Counters;
use crate::hop::PacketSink;
use crate::hop::class::LiveClasses;
use crate::hop::driver::Driver;
use crate::hop::exchange::Exchange;
use crate::hop::sockets::Sockets;
use crate::hop::udp::UdpLink;
use crate::hop::{Hop, HopEvent, Stream};
use crate::http::hub::{HubHttp, Job};
use crate::http::hub_store::Asker;
use crate::intercept::Arrival;
use crate::intercept::listener::Accepted;
use crate::intercept::own::OwnAddresses;
use crate::operate::View;
use crate::proxy::{self, ProxyClient, Upstream};
use crate::relay;
use crate::relay::terms::{Admission, DialPolicy};
use crate::roles::workers::{Workers, adopt};
use crate::runtime::log_panic;

/// Time for the last packets of connections when a gateway stops.
const LAST_PACKETS: Duration = Duration::from_millis(300);
/// Time for telling the peer that the session is over.
const FAREWELL: Duration = Duration::from_millis(200);

/// How traffic is classified and counted, and where packets go.
#[derive(Default)]
pub(crate) struct TrafficContext {
    pub(crate) classes: Arc<LiveClasses>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) tunnel: Option<Arc<dyn PacketSink>>,
}

/// The side of the hop, which decides how peers are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Hub,
    Terminal,
}

/// A running gateway.
pub(crate) struct Gateway {
    hop: Hop,
    events: UnboundedReceiver<HopEvent>,
    drivers: JoinSet<io::Error>,
    relays: JoinSet<()>,
    /// Dropped last: what runs on them has ended by then.
    workers: Workers,
    own: OwnAddresses,
    policy: DialPolicy,
    counters: Arc<Counters>,
}

/// An event for the role's main loop.
pub(crate) enum Report {
    /// An event of the hop.
    Hop(HopEvent),
    /// A fatal error.
    Failed(RunError),
}

impl Gateway {
    /// Starts driving each of `endpoints` over its sockets, on its worker.
    pub(crate) fn start(
        side: Side,
        endpoints: Vec<Endpoint>,
        (sockets, workers): (Vec<Sockets>, Workers),
        (policy, own): (DialPolicy, OwnAddresses),
        context: TrafficContext,
    ) -> Result<Self, RunError> {
        let TrafficContext { classes, counters, tunnel } = context;
        let hop = Hop::new(endpoints, classes);
        let (sender, events) = unbounded_channel();
        let mut exchanges = match hop.parts() {
            1 => Vec::new(),
            parts => Exchange::among(parts),
        }
        .into_iter();
        let mut drivers = JoinSet::new();
        for (part, sockets) in (0..).zip(sockets) {
            let sources = match side {
                Side::Hub => Sources::as_addressed(),
                Side::Terminal => Sources::Routed,
            };
            let (served, events) = ((hop.clone(), part, exchanges.next()), sender.clone());
            let worker = workers.of(part);
            let _its = worker.enter();
            let (counters, tunnel) = (counters.clone(), tunnel.clone());
            let mut driver = Driver::new(served, sockets, sources, events, counters, tunnel)
                .map_err(RunError::System)?;
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

    /// The gateway as its operators see it.
    pub(crate) fn view(&self) -> View<'_> {
        View { hop: Some(&self.hop), counters: &self.counters }
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Waits for the next event. Cancel-safe.
    pub(crate) async fn report(&mut self) -> Report {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let HopEvent::Opened(stream, _) = &event {
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
    pub(crate) fn originate(&mut self, session: SessionId, arrival: Arrival) {
        let (hop, counters) = (self.hop.clone(), self.counters.clone());
        let arriving = Arriving::new(counters.clone(), arrival.open().source.ip());
        match arrival {
            Arrival::Connection(Accepted { socket, open }) => {
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
            Arrival::Deferred(deferred) => {
                self.spawn(session, async move {
                    drop(arriving);
                    relay::originate_deferred(hop, session, deferred, counters).await;
                });
            }
        }
    }

    /// Carries a client of the proxy: over the hop if there is a session, otherwise directly.
    pub(crate) fn carry_proxy_client(
        &mut self,
        client: ProxyClient,
        session: Option<SessionId>,
        upstream: Upstream,
    ) {
        let hop = session.map(|session| (self.hop.clone(), session));
        self.relays.spawn(proxy::carry(client, hop, upstream));
    }

    /// Returns those of a destination's addresses that the peer may reach with this stream. With
    /// `transparent`, the client's address must not be this machine's.
    ///
    /// # Errors
    /// If there are none, why the first is refused.
    pub(crate) fn check_egress<D>(
        &self,
        egress: &Egress,
        open: &Open<D>,
        addresses: &mut Vec<SocketAddr>,
    ) -> Result<(), Refusal> {
        if self.policy.transparent && self.own.has(open.source.ip().to_canonical()) != Some(false) {
            return Err(Refusal::Source);
        }
        let mut refused = None;
        addresses.retain(|address| {
            // The addresses of the gateways across the hop are not the peers' to reach either: their
            // services take this machine for the one that asks.
            let is_gateway = |address| match self.own.has(address) {
                Some(false) => Some(self.hop.has_peer_at(address)),
                own => own,
            };
            let checked = egress.check(*address, is_gateway);
            let permitted = checked.is_ok();
            refused = refused.take().or(checked.err());
            permitted
        });
        if addresses.is_empty() { Err(refused.unwrap_or(Refusal::NotListed)) } else { Ok(()) }
    }

    /// Carries a peer's stream to its destination, whose permitted addresses are given.
    pub(crate) fn answer(
        &mut self,
        stream: Stream,
        open: Open<Destination>,
        addresses: Vec<SocketAddr>,
        admission: Admission,
    ) {
        let (policy, counters) = (self.policy, self.counters.clone());
        let session = stream.session();
        let answer = relay::answer(stream, open, addresses, admission, policy, counters);
        self.spawn(session, answer);
    }

    /// Has an HTTP exchange for a peer with a host, whose permitted addresses are given.
    pub(crate) fn exchange(
        &mut self,
        http: HubHttp,
        stream: Stream,
        open: Open<Destination>,
        (addresses, asker): (Vec<SocketAddr>, Asker),
        admission: Admission,
    ) {
        let (policy, counters) = (self.policy, self.counters.clone());
        let job = Job { stream, open, addresses, admission, policy, counters, asker };
        self.relays.spawn(http.exchange(job));
    }

    /// Time limit for connecting on the peer's behalf.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.policy.timeout
    }

    /// Runs other work for the peer, which ends with the gateway.
    pub(crate) fn serve(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.relays.spawn(work);
    }

    /// Forwards a stream to another peer, which connects it.
    pub(crate) fn forward(
        &mut self,
        stream: Stream,
        session: SessionId,
        open: Open,
        admission: Admission,
    ) {
        let (hop, counters) = (self.hop.clone(), self.counters.clone());
        self.spawn(session, relay::forward(hop, stream, session, open, admission, counters));
    }

    /// Refuses a stream because of the egress rules.
    pub(crate) fn prohibit(&self, stream: Stream, open: &Open<Destination>, why: &Refusal) {
        tracing::debug!(destination = %open.destination, "refused: {why}");
        self.refuse(stream, open, ResetReason::Prohibited);
    }

    /// Refuses a stream for another reason.
    pub(crate) fn refuse(&self, stream: Stream, open: &Open<Destination>, reason: ResetReason) {
        self.counters.failed.increment();
        self.counters.reasons.count(reason);
        tracing::debug!(destination = %open.destination, source = %open.source, "{reason:?}");
        stream.reset(reason);
    }

    /// Resets all connections, tells the peer, and stops.
    pub(crate) async fn stop(mut self) {
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
    use slacp::Config;
    use units::BitRate;

    use super::*;
    use crate::config::keys::{PrivateKey, random_bytes};

    /// A hub on loopback without terminals.
    fn hub(transparent: bool) -> Gateway {
        let config = Config::new(BitRate::from_mbit(1));
        let key = PrivateKey::generate().unwrap();
        let endpoint = Endpoint::hub(config, key.pair(), vec![], random_bytes().unwrap());
        let links = vec![bind("127.0.0.1:0".parse().unwrap()).unwrap().into()];
        let policy = DialPolicy { timeout: Duration::from_secs(1), transparent, marked: false };
        let terms = (policy, OwnAddresses::open().unwrap());
        let context = TrafficContext::default();
        Gateway::start(Side::Hub, vec![endpoint], (links, Workers::none()), terms, context).unwrap()
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
            let open = Open { source: source.parse().unwrap(), destination, dscp: None };
            let checked =
                hub(transparent).check_egress(&Egress::everywhere(), &open, &mut vec![destination]);
            assert_eq!(checked.is_ok(), permitted, "{source}: {checked:?}");
        }
    }
}
