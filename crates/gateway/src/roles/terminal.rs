//! The terminal: intercepts its clients' connections while a hub is reachable, and lets new ones pass
//! unaccelerated while none is. Clients of the proxy are served either way.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use pep::admission::{Backoff, Bypass};
use pep::bundles::PeerId;
use pep::config::{DnsConfig, InterceptConfig, KnownHub, TerminalConfig, TunnelConfig};
use pep::egress::Egress;
use pep::hubs::HubId;
use pep::traffic::Policy;
use slacp::{Destination, Endpoint, Event, Open, PublicKey, ResetReason, SessionId};
use units::Instant;

use crate::bundles::{Bundles, start_bundles};
use crate::clock;
use crate::config::keys::random_bytes;
use crate::config::read_terminal;
use crate::error::RunError;
use crate::figures::connections::Origin;
use crate::hop::peers::Peers;
use crate::hop::sockets::Sockets;
use crate::hop::{HopEvent, Stream};
use crate::http::{self, Http};
use crate::intercept::listener::Accepted;
use crate::intercept::netfilter::Scope;
use crate::intercept::own::OwnAddresses;
use crate::intercept::rule::PASSING;
use crate::intercept::{self, Arrival};
use crate::names::{self, Doors, Names};
use crate::operate::{Operations, RoleStatus, View};
use crate::presence;
use crate::proxy::{self, Proxy, ProxyClient, Upstream};
use crate::relay::dial::Dialer;
use crate::relay::names::Resolver;
use crate::relay::route::{Route, Upstreams};
use crate::relay::terms::{Admission, DialPolicy};
use crate::roles::gateway::{Report, Side, bind};
use crate::roles::hubs::{Change, Done, KnownHubs, Resolved};
use crate::roles::pair::{PairEvent, Parts, Setup};
use crate::roles::workers::Workers;
use crate::roles::{self, Service};
use crate::rotation::{self, HubKeys};
use crate::tunnel::{self, Selection};

/// A terminal does not know which networks are behind a hub, so the client's address stays
/// unverified.
const OF_HUB: Admission =
    Admission { origin: Origin::Peer { verified: false }, _permit: None, exchange: false };
/// Runs a terminal until `shutdown` completes, then removes everything it installed. Prints `ready`
/// on standard output when the hub is first reachable and connections are carried.
///
/// # Errors
/// If it cannot start ([`RunError::is_setup`]) or its socket fails.
pub async fn run(
    config: TerminalConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let keys = HubKeys::load(&config);
    let hubs = Resolved::of(&config, &keys).await;
    let own = OwnAddresses::open()?;
    let looking = config.hubs.iter().map(|hub| hub.address.as_str()).collect::<Vec<_>>().join(", ");
    let sockets = sockets(&config, config.listen.unwrap_or_else(|| any_address(&config)))?;
    let seed = random_bytes().map_err(RunError::Randomness)?;
    let (proxy, manner) = match &config.proxy {
        Some(proxy) => (Some(Proxy::listen(proxy.clone()).await?), (proxy.answer, proxy.names)),
        None => Default::default(),
    };
    let dial = DialPolicy {
        timeout: config.connect_timeout,
        transparent: config.transparent,
        marked: config.intercept.as_ref().is_some_and(|it| it.own_traffic),
    };
    let peers = Peers::new(&config.link.rate, config.operation.maximum_rate, names(&config), true)
        .with_links(&config.links);
    let (hub, addresses) = hubs.of_hub(config.ranking()[0]);
    let (hop, identity) = (config.link.clone(), config.identity.clone());
    let tunnel = tunnel_of(&config.tunnel, &config.intercept, (&config.policies, &config.accept));
    let dns = open_doors(config.dns.clone()).await?;
    let setup = Setup {
        side: Side::Terminal,
        key: config.identity.public(),
        own: own.clone(),
        sockets: vec![sockets],
        endpoints: vec![Endpoint::terminal(hop, identity, hub, addresses, seed)],
        workers: Workers::none(),
        peers,
        dial,
        operation: &config.operation,
        intercept: config.intercept.as_ref(),
        policies: config.policies.clone(),
        classes: config.classes.clone(),
        names: dns.as_ref().and_then(|(doors, dns)| doors.rules(dns)),
        tunnel: tunnel.map(|(tunnel, selection)| (tunnel, selection, true)),
        device: None,
    };
    let (ops, parts) = setup.start(clock::now())?;
    tracing::info!(
        "looking for the hub at {looking}: connections pass unaccelerated until it answers"
    );
    let mark = dial.marked.then_some(PASSING.value);
    let dialer = Dialer {
        side: Arc::default(),
        timeout: config.connect_timeout,
        egress: Egress::everywhere(),
        own: Some(own),
        mark,
        stack: None,
    };
    let upstreams = || Upstreams {
        hop: parts.gateway.hop().clone(),
        dialer: dialer.clone(),
        resolver: Resolver::default(),
        counters: parts.gateway.counters(),
    };
    let http = config.http.clone().map(|http| Http::start(http, upstreams()));
    let http = http.transpose().map_err(RunError::Certificate)?;
    let names = dns.map(|(doors, dns)| {
        let http = http.as_ref().map(Http::shared);
        Names::start(dns, doors, upstreams(), http)
    });
    let upstream = Upstream::new(manner, dialer, parts.gateway.counters());
    let bundles = start_bundles(config.bundles.clone()).await?;
    let hop = parts.gateway.hop().clone();
    let hubs = KnownHubs::new(clock::now(), &config, (hubs, keys), hop, mark);
    let terminal = Terminal {
        parts,
        full: Backoff::default(),
        accept: config.accept,
        proxy,
        upstream,
        names,
        http,
        hub_node: bundles.as_ref().and_then(Bundles::hub),
        bundles,
        session: None,
        hubs,
    };
    roles::run(ops, terminal, shutdown).await
}

/// The sockets of the resolver, and its settings with what these can do.
async fn open_doors(dns: Option<DnsConfig>) -> Result<Option<(Doors, DnsConfig)>, RunError> {
    let Some(mut dns) = dns else { return Ok(None) };
    let doors = Doors::open(&dns).await?;
    doors.restrict(&mut dns);
    Ok(Some((doors, dns)))
}

/// The sockets of the hop: one for each link, or the only one.
fn sockets(config: &TerminalConfig, local: SocketAddr) -> Result<Sockets, RunError> {
    if config.links.is_empty() {
        presence::warn_of_address(local);
        return bind(local).map(Sockets::from);
    }
    let bound = Sockets::bind(&config.links, local);
    bound.map_err(|(name, cause)| RunError::Link { name, cause })
}

/// The rules, routes and tables that a terminal with `config` installs while its hub is reachable,
/// in nft and ip syntax.
pub fn print_rules(config: &TerminalConfig) -> String {
    let names = config.dns.as_ref().and_then(names::printed_rules);
    let mut rules = intercept::print_rules(config, names);
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
    /// Resolves names; [`None`] unless configured.
    names: Option<Names>,
    /// Answers requests of cleartext HTTP; [`None`] unless configured.
    http: Option<Http>,
    /// The node for bundles; [`None`] unless configured. The hub is one of its peers, or not.
    bundles: Option<Bundles>,
    hub_node: Option<PeerId>,
    /// The session that has the tunnel.
    session: Option<SessionId>,
    hubs: KnownHubs,
}

/// The hubs' names in log and status.
fn names(config: &TerminalConfig) -> BTreeMap<PublicKey, String> {
    config.hubs.iter().map(|hub| (hub.key, hub.name.clone())).collect()
}

/// What a terminal waits for.
enum TerminalEvent {
    Pair(PairEvent),
    /// Something for the hubs to do.
    Hubs(Option<(HubId, Done)>),
    /// A client of the proxy.
    Proxy(ProxyClient),
}

impl Service for Terminal {
    type Event = TerminalEvent;

    fn view(&self) -> View<'_> {
        self.parts.gateway.view()
    }

    fn role_status(&self, now: Instant) -> RoleStatus {
        let dns = self.names.as_ref().map(Names::status);
        let http = self.http.as_ref().map(Http::status);
        let hubs = self.hubs.status(now);
        let bundles = self.bundles.as_ref().map(Bundles::status);
        RoleStatus { dns, http, hubs, bundles, ..self.parts.role_status(now) }
    }

    async fn next(&mut self) -> TerminalEvent {
        tokio::select! {
            event = self.parts.next() => TerminalEvent::Pair(event),
            client = proxy::next(&mut self.proxy) => TerminalEvent::Proxy(client),
            done = self.hubs.next() => TerminalEvent::Hubs(done),
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
            TerminalEvent::Hubs(done) => {
                let changes = self.hubs.handle(now, done);
                self.follow(changes);
            }
            TerminalEvent::Proxy(client) => {
                let is_admitted = self.parts.gateway.counters().live.admits(now, client.address());
                let is_carried = is_admitted && self.bypass_reason(ops).is_none();
                let session = self.hubs.session().filter(|_| is_carried);
                self.parts.gateway.carry_proxy_client(client, session, self.upstream.clone());
            }
        }
        Ok(())
    }

    fn set_interception(&mut self, now: Instant, ops: &Operations) -> Result<bool, RunError> {
        let bypass_reason = self.bypass_reason(ops);
        let asking = self.set_names(bypass_reason.is_none());
        if let (Some(bundles), Some(hub)) = (&mut self.bundles, self.hub_node) {
            let (session, up) = (self.hubs.session(), self.hubs.is_good());
            bundles.set_session(self.parts.gateway.hop(), hub, session, up);
        }
        let Some(intake) = &mut self.parts.intake else { return Ok(self.hubs.is_good()) };
        let offline = self.http.as_ref().map_or(&[][..], Http::offline_ports);
        let scope = Scope::ports(offline);
        intake.set(now, bypass_reason.map_or(Ok(Scope::Everything), Err), scope)?;
        intake.answer_questions(asking)?;
        Ok(intake.is_on())
    }

    fn housekeep(&mut self, now: Instant, ops: &mut Operations) {
        let refused = self.parts.gateway.counters().peer_full.get();
        if let Some(pause) = self.full.handle_refusals(now, refused)
            && let Some(intake) = &mut self.parts.intake
        {
            tracing::warn!("the hub has no room: new connections pass unaccelerated for a while");
            intake.pause(now, pause, Bypass::PeerFull);
        }
        self.parts.follow_routes();
        let session = self.hubs.session();
        let is_short = session.is_some_and(|session| !self.parts.gateway.hop().has_room(session));
        ops.relieve(now, self.parts.gateway.view(), is_short);
        let changes = self.hubs.housekeep(now);
        self.follow(changes);
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
        let mut names = names(&config);
        names.extend(self.hubs.names());
        *policies = config.policies;
        self.accept = config.accept;
        gateway.counters().keepalive.set(config.operation.keepalive);
        let mut notes = ops.configure(config.operation);
        gateway.counters().live.set_most(ops.most_connections());
        notes.extend(ops.configure_hop(now, gateway.hop(), &config.link.rate, names));
        Ok(notes)
    }

    fn bundles(&mut self) -> Option<&mut Bundles> {
        self.bundles.as_mut()
    }

    async fn stop(self) {
        drop((self.proxy, self.names, self.http));
        self.parts.stop().await;
    }
}

impl Terminal {
    fn handle_hop(&mut self, now: Instant, ops: &mut Operations, event: HopEvent) {
        if let HopEvent::Session(session, event) = &event {
            if let Event::Up { .. } = event {
                ops.peers.set_names(self.hubs.names());
            }
            ops.follow_session(now, self.parts.gateway.hop(), *session, event);
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
                _ if rotation::is_meant(&open.destination) => self.hubs.hear(stream),
                Destination::Bundles => self.take_bundle(stream, &open),
                // From a hub that ignores that this terminal resolves no names.
                Destination::Name(..) | Destination::Resolver | Destination::Exchange(_) => {
                    self.parts.gateway.refuse(stream, &open, ResetReason::Prohibited);
                }
            },
            HopEvent::TcpEnded(address) => {
                let changes = self.hubs.handle_ended(now, address);
                self.follow(changes);
            }
            HopEvent::Session(session, event) => {
                if let Event::Down(_) = event {
                    self.end_tunnel_to(session);
                }
                let changes = self.hubs.handle_session(now, session, &event);
                self.follow(changes);
            }
        }
    }

    /// Takes the bundle that the hub's stream carries.
    fn take_bundle(&mut self, stream: Stream, open: &Open<Destination>) {
        match (&mut self.bundles, self.hub_node) {
            (Some(bundles), Some(hub)) => bundles.answer(hub, stream),
            _ => self.parts.gateway.refuse(stream, open, ResetReason::Prohibited),
        }
    }

    /// Follows the choice of the hub. The tunnel leads to the one in use.
    fn follow(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Use(session) if self.session != Some(session) => {
                    self.session.into_iter().for_each(|old| self.end_tunnel_to(old));
                    self.session = Some(session);
                    self.tunnel_to(session);
                    if self.names.is_some() && !self.parts.gateway.hop().peer_answers(session) {
                        tracing::warn!(
                            "the hub has no section [dns]: names are resolved without it"
                        );
                    }
                    let takes = self.parts.gateway.hop().peer_takes_bundles(session);
                    if self.hub_node.is_some() && !takes {
                        tracing::warn!("the hub has no section [bundles]: bundles wait here");
                    }
                }
                Change::Use(_) => {}
                Change::Open(session, open) => {
                    if let Some(tunnel) = &self.parts.tunnel {
                        tunnel.set_open(session, open);
                    }
                }
            }
        }
    }

    /// Sets how names are resolved, and whether connections may be opened by name. Returns whether
    /// questions are to be redirected: while there is a session, even one whose hub cannot be reached,
    /// because then the cache may know.
    fn set_names(&self, by_name: bool) -> bool {
        let session = self.hubs.session();
        let route = Route { hub: session.filter(|_| self.hubs.is_good()), by_name };
        self.http.iter().for_each(|http| http.set(route));
        let Some(names) = &self.names else { return false };
        names.set(route);
        session.is_some_and(|session| self.parts.gateway.hop().peer_answers(session))
    }

    /// Routes packets that are not split to this session, if the hub accepts them.
    fn tunnel_to(&self, session: SessionId) {
        let Some(tunnel) = &self.parts.tunnel else { return };
        if !tunnel.add(self.parts.gateway.hop(), session, tunnel::everywhere()) {
            tracing::warn!("the hub has no tunnel: traffic that is not split passes unaccelerated");
        }
    }

    fn end_tunnel_to(&mut self, session: SessionId) {
        self.session.take_if(|used| *used == session);
        if let Some(tunnel) = &self.parts.tunnel {
            tunnel.remove(session);
        }
    }

    fn carry(&mut self, arrival: Arrival) {
        if let (Some(http), Arrival::Connection(accepted)) = (&self.http, &arrival)
            && http.takes(accepted.open.destination.port())
        {
            let Arrival::Connection(Accepted { socket, open }) = arrival else { return };
            return self.parts.gateway.serve(http::serve(http.shared(), socket, open.into()));
        }
        match self.hubs.session() {
            Some(session) => self.parts.gateway.originate(session, arrival),
            // Intercepted just as the session ended.
            None => arrival.dismiss(),
        }
    }

    /// Why new connections are not carried; `None` if they are.
    fn bypass_reason(&self, ops: &Operations) -> Option<Bypass> {
        if !self.hubs.is_good() {
            let leaving = self.hubs.is_leaving();
            return Some(if leaving { Bypass::PeerDraining } else { Bypass::PeerUnreachable });
        }
        if self.hubs.session().is_some_and(|session| !self.parts.gateway.hop().has_room(session)) {
            return Some(Bypass::SessionMemory);
        }
        ops.bypass_reason(self.parts.gateway.view())
    }
}

/// An unspecified address of the hubs' family, or of both. Names may lead elsewhere later, so an IPv4
/// socket will do only if all hubs are given by address.
fn any_address(config: &TerminalConfig) -> SocketAddr {
    let is_v4 = |hub: &KnownHub| hub.address.as_str().parse::<SocketAddrV4>().is_ok();
    if config.hubs.iter().all(is_v4) {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        os::any_address(0)
    }
}
