//! The terminal: intercepts its clients' connections while the hub is reachable, and lets new ones
//! pass unaccelerated while it is not. Clients of the proxy are served either way.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use pep::admission::{Backoff, Bypass};
use pep::config::{InterceptConfig, TerminalConfig, TunnelConfig};
use pep::egress::Egress;
use pep::traffic::Policy;
use slacp::{Destination, Endpoint, Event, ResetReason, SessionId};
use units::Instant;

use crate::clock;
use crate::config::keys::random_bytes;
use crate::config::read_terminal;
use crate::doctor::knock::Knock;
use crate::error::RunError;
use crate::hop::HopEvent;
use crate::hop::peers::Peers;
use crate::intercept::netfilter::{PASSING, Scope};
use crate::intercept::own::OwnAddresses;
use crate::intercept::{self, Arrival};
use crate::operate::connections::Origin;
use crate::operate::{Operations, RoleStatus, View};
use crate::proxy::{self, Proxy, ProxyClient, Upstream};
use crate::relay::dial::Dialer;
use crate::roles::fallback::{Done, TcpFallback};
use crate::roles::gateway::{Admission, DialPolicy, Report, Side, bind};
use crate::roles::pair::{PairEvent, Parts, Setup};
use crate::roles::{self, Service};
use crate::tunnel::{self, Selection};

/// A terminal does not know which networks are behind its only hub, so the client's address stays
/// unverified.
const OF_HUB: Admission = Admission { origin: Origin::Peer { verified: false }, _permit: None };
/// Name of the hub in logs and status.
const HUB: &str = "hub";

/// Runs a terminal until `shutdown` completes, then removes everything it installed. Prints `ready`
/// on standard output when the hub is first reachable and connections are carried.
///
/// # Errors
/// If it cannot start ([`RunError::is_setup`]) or its socket fails.
pub async fn run(
    config: TerminalConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let hubs = resolve(&config).await?;
    let own = OwnAddresses::open()?;
    let looking = hubs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let link = bind(config.listen.unwrap_or_else(|| any_address(&hubs)))?;
    let seed = random_bytes().map_err(RunError::Randomness)?;
    let knock = Knock::new(&config, hubs.clone());
    let (proxy, manner) = match config.proxy {
        Some(proxy) => (Some(Proxy::listen(proxy.clone()).await?), (proxy.answer, proxy.names)),
        None => Default::default(),
    };
    let dial = DialPolicy {
        timeout: config.connect_timeout,
        transparent: config.transparent,
        marked: config.intercept.as_ref().is_some_and(|it| it.own_traffic),
    };
    let names = [(config.hub_key, HUB.to_owned())].into();
    let peers = Peers::new(&config.link.rate, config.operation.maximum_rate, names, true);
    let tunnel = tunnel_of(&config.tunnel, &config.intercept, (&config.policies, &config.accept));
    let setup = Setup {
        side: Side::Terminal,
        own: own.clone(),
        link,
        endpoint: Endpoint::terminal(config.link, config.identity, config.hub_key, hubs, seed),
        peers,
        dial,
        operation: &config.operation,
        intercept: config.intercept.as_ref(),
        policies: config.policies.clone(),
        classes: config.classes,
        tunnel: tunnel.map(|(tunnel, selection)| (tunnel, selection, true)),
    };
    let (ops, parts) = setup.start(clock::now())?;
    tracing::info!(
        "looking for the hub at {looking}: connections pass unaccelerated until it answers"
    );
    let dialer = Dialer {
        side: Arc::default(),
        timeout: config.connect_timeout,
        egress: Egress::everywhere(),
        own: Some(own),
        mark: dial.marked.then_some(PASSING.value),
    };
    let upstream = Upstream::new(manner, dialer, parts.gateway.counters());
    let (links, mark) = (parts.gateway.hop().links().clone(), dial.marked.then_some(PASSING.value));
    let fallback = TcpFallback::new(
        clock::now(),
        config.hub_tcp.map(|hub| hub.as_str().to_owned()),
        links,
        mark,
        knock,
    );
    let terminal = Terminal {
        parts,
        full: Backoff::default(),
        accept: config.accept,
        proxy,
        upstream,
        session: None,
        reachable: false,
        fallback,
    };
    roles::run(ops, terminal, shutdown).await
}

/// The rules, routes and tables that a terminal with `config` installs while its hub is reachable,
/// in nft and ip syntax.
pub fn print_rules(config: &TerminalConfig) -> String {
    let mut rules = intercept::print_rules(config);
    if let Some((tunnel, selection)) =
        tunnel_of(&config.tunnel, &config.intercept, (&config.policies, &config.accept))
    {
        rules += &tunnel::print(tunnel, &selection, &tunnel::everywhere());
    }
    rules
}

/// The tunnel, and the rules for what goes through it.
fn tunnel_of<'a>(
    tunnel: &'a Option<TunnelConfig>,
    intercept: &Option<InterceptConfig>,
    (policies, accept): (&[Policy], &Egress),
) -> Option<(&'a TunnelConfig, Selection)> {
    Some((tunnel.as_ref()?, tunnel::of_clients(intercept.as_ref()?, policies, accept)))
}

struct Terminal {
    parts: Parts,
    /// Backs off while the hub has no room.
    full: Backoff,
    /// Destinations permitted to the hub's side.
    accept: Egress,
    proxy: Option<Proxy>,
    upstream: Upstream,
    session: Option<SessionId>,
    reachable: bool,
    fallback: TcpFallback,
}

/// What a terminal waits for.
enum TerminalEvent {
    Pair(PairEvent),
    /// The carrier of the datagrams.
    Fallback(Done),
    /// A client of the proxy.
    Proxy(ProxyClient),
}

impl Service for Terminal {
    type Event = TerminalEvent;

    fn view(&self) -> View<'_> {
        self.parts.gateway.view()
    }

    fn role_status(&self, now: Instant) -> RoleStatus {
        self.parts.role_status(now)
    }

    async fn next(&mut self) -> TerminalEvent {
        tokio::select! {
            event = self.parts.next() => TerminalEvent::Pair(event),
            client = proxy::next(&mut self.proxy) => TerminalEvent::Proxy(client),
            done = self.fallback.next() => TerminalEvent::Fallback(done),
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        ops: &mut Operations,
        event: TerminalEvent,
    ) -> Result<(), RunError> {
        match event {
            TerminalEvent::Pair(PairEvent::Report(Report::Failed(error))) => return Err(error),
            TerminalEvent::Pair(PairEvent::Report(Report::Hop(event))) => {
                self.handle_hop(now, ops, event);
            }
            TerminalEvent::Pair(PairEvent::Arrival(arrived)) => {
                self.parts.admit(now, arrived).into_iter().for_each(|arrival| self.carry(arrival));
            }
            TerminalEvent::Fallback(done) => self.fallback.handle(now, done),
            TerminalEvent::Proxy(client) => {
                let session = self.session.filter(|_| self.bypass_reason(ops).is_none());
                self.parts.gateway.carry_proxy_client(client, session, self.upstream.clone());
            }
        }
        Ok(())
    }

    fn set_interception(&mut self, now: Instant, ops: &Operations) -> Result<bool, RunError> {
        let bypass_reason = self.bypass_reason(ops);
        let Some(intake) = &mut self.parts.intake else { return Ok(self.reachable) };
        intake.set(now, bypass_reason.map_or(Ok(Scope::Everything), Err))?;
        Ok(intake.is_on())
    }

    fn housekeep(&mut self, now: Instant) {
        let refused = self.parts.gateway.counters().reasons.of(ResetReason::Limit);
        if let Some(pause) = self.full.handle_refusals(now, refused)
            && let Some(intake) = &mut self.parts.intake
        {
            tracing::warn!("the hub has no room: new connections pass unaccelerated for a while");
            intake.pause(now, pause, Bypass::PeerFull);
        }
        self.parts.follow_routes();
    }

    fn reload(&mut self, now: Instant, ops: &mut Operations) -> Result<Vec<String>, String> {
        let config = read_terminal(&ops.file()?).map_err(|error| error.to_string())?;
        let Parts { gateway, intake, tunnel, policies } = &mut self.parts;
        if let (Some(intake), Some(intercept)) = (intake, &config.intercept) {
            intake.configure(intercept, &config.policies).map_err(|error| error.to_string())?;
            if let Some(tunnel) = tunnel {
                let selection = tunnel::of_clients(intercept, &config.policies, &config.accept);
                tunnel.configure(selection).map_err(|error| error.to_string())?;
            }
        }
        gateway.hop().configure_classes(now, &config.classes, tunnel.is_some())?;
        *policies = config.policies;
        self.accept = config.accept;
        let names = [(config.hub_key, HUB.to_owned())].into();
        gateway.counters().keepalive.set(config.operation.keepalive);
        let mut notes = ops.configure(config.operation);
        notes.extend(ops.configure_hop(now, gateway.hop(), &config.link.rate, names));
        Ok(notes)
    }

    async fn stop(self) {
        drop(self.proxy);
        self.parts.stop().await;
    }
}

impl Terminal {
    fn handle_hop(&mut self, now: Instant, ops: &mut Operations, event: HopEvent) {
        if let HopEvent::Session(session, event) = &event {
            ops.peers.handle_event(now, self.parts.gateway.hop(), *session, event);
        }
        match event {
            HopEvent::Opened(stream, open) => match open.destination {
                Destination::Address(address) => {
                    let mut addresses = vec![address];
                    match self.parts.gateway.check_egress(&self.accept, &open, &mut addresses) {
                        Ok(()) => self.parts.gateway.answer(stream, open, addresses, OF_HUB),
                        Err(why) => self.parts.gateway.prohibit(stream, &open, &why),
                    }
                }
                // From a hub that ignores that this terminal resolves no names.
                Destination::Name(..) => {
                    self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
                }
            },
            HopEvent::TcpEnded(address) => self.fallback.handle_ended(now, address),
            HopEvent::Session(session, Event::Up { address, .. }) => {
                tracing::info!("session up with the hub at {address}");
                (self.session, self.reachable) = (Some(session), true);
                self.fallback.handle_reachable(now, true);
                self.tunnel_to(session);
            }
            HopEvent::Session(session, event) if self.session == Some(session) => {
                self.handle_session(now, &event);
            }
            HopEvent::Session(session, Event::Down(_)) => self.end_tunnel_to(session),
            HopEvent::Session(..) => {}
        }
    }

    /// Routes packets that are not split to this session, if the hub accepts them.
    fn tunnel_to(&self, session: SessionId) {
        let Some(tunnel) = &self.parts.tunnel else { return };
        if !tunnel.add(self.parts.gateway.hop(), session, tunnel::everywhere()) {
            tracing::warn!("the hub has no tunnel: traffic that is not split passes unaccelerated");
        }
    }

    fn end_tunnel_to(&self, session: SessionId) {
        if let Some(tunnel) = &self.parts.tunnel {
            tunnel.remove(session);
        }
    }

    /// Opens the tunnel while the hub is reachable; otherwise packets pass unaccelerated.
    fn set_tunnel(&self) {
        if let (Some(tunnel), Some(session)) = (&self.parts.tunnel, self.session) {
            tunnel.set_open(session, self.reachable);
        }
    }

    /// Handles an event of the session in use.
    fn handle_session(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Unreachable => {
                tracing::warn!("hub unreachable: new connections pass unaccelerated");
                self.reachable = false;
                self.set_tunnel();
                self.fallback.handle_reachable(now, false);
            }
            Event::Reachable => {
                tracing::info!("hub reachable again");
                self.reachable = true;
                self.set_tunnel();
                self.fallback.handle_reachable(now, true);
            }
            Event::Moved { address } => tracing::info!("the hub has moved to {address}"),
            Event::Down(why) => {
                tracing::warn!("session with the hub lost ({why}): its connections are reset");
                if let Some(session) = self.session {
                    self.end_tunnel_to(session);
                }
                (self.session, self.reachable) = (None, false);
                self.fallback.handle_reachable(now, false);
            }
            _ => {}
        }
    }

    fn carry(&mut self, arrival: Arrival) {
        match self.session {
            Some(session) => self.parts.gateway.originate(session, arrival),
            // Intercepted just as the session ended.
            None => arrival.dismiss(),
        }
    }

    /// Why new connections are not carried; `None` if they are.
    fn bypass_reason(&self, ops: &Operations) -> Option<Bypass> {
        if !self.reachable {
            return Some(Bypass::PeerUnreachable);
        }
        if self.session.is_some_and(|session| !self.parts.gateway.hop().has_room(session)) {
            return Some(Bypass::SessionMemory);
        }
        ops.bypass_reason(self.parts.gateway.view())
    }
}

/// The hub's addresses that our socket can reach.
async fn resolve(config: &TerminalConfig) -> Result<Vec<SocketAddr>, RunError> {
    let hub = config.hub.as_str();
    let failed = |cause| RunError::Resolve { hub: hub.to_owned(), cause };
    let mut addresses: Vec<SocketAddr> =
        tokio::net::lookup_host(hub).await.map_err(failed)?.collect();
    let v6 = config.listen.map_or_else(os::has_ipv6, |local| local.is_ipv6());
    addresses.retain(|address| v6 || address.is_ipv4());
    if addresses.is_empty() {
        return Err(failed(std::io::ErrorKind::AddrNotAvailable.into()));
    }
    Ok(addresses)
}

/// An unspecified address of the hub's family, or of both.
fn any_address(hubs: &[SocketAddr]) -> SocketAddr {
    if hubs.iter().all(SocketAddr::is_ipv4) {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}
