//! The terminal: intercepts its clients' connections while a hub is reachable, and lets new ones pass
//! unaccelerated while none is. Clients of the proxy are served either way.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use config::{TerminalConfig, TunnelConfig};
use control::status::GatewayStatus;
use pep::admission::{BypassReason, RefusalBackoff};
use pep::egress::EgressRules;
use pep::hubs::HubId;
use slacp::{Destination, Endpoint, Event, PublicKey, StreamOpening};
use units::Instant;

use crate::config::keys::random_bytes;
use crate::config::read_terminal;
use crate::figures::connections::ConnectionOrigin;
use crate::hop::peers::PeerTable;
use crate::hop::sockets::HopSockets;
use crate::hop::{HopEvent, SessionStream};
use crate::intercept::netfilter::{NameRules, Scope};
use crate::intercept::own::OwnAddresses;
use crate::intercept::{self, ClientArrival};
use crate::network::nft::rule::PASS_MARK;
use crate::network::presence;
use crate::network::tun::table::DeviceRules;
use crate::operate::{GatewayOperations, GatewayView};
use crate::process::clock;
use crate::process::error::RunError;
use crate::relay::dial::Dialer;
use crate::relay::names::NameResolver;
use crate::relay::route::Upstreams;
use crate::relay::terms::{Admission, DialPolicy};
use crate::roles::gateway::{Report, Side, bind};
use crate::roles::hubs::{HubTaskResult, KnownHubs, ResolvedHubs};
use crate::roles::pair::{PairEvent, Parts, Setup};
use crate::roles::workers::Workers;
use crate::roles::{self, RunningRole};
use crate::services::names;
use crate::services::rotation::HubKeys;
use crate::services::tunnel::{self, Selection, terminal_selection};
use crate::services::{self, LearnKeys, Ready, Services, Surroundings, Uplink};

/// A terminal does not know which networks are behind a hub, so the client's address stays
/// unverified.
const OF_HUB: Admission = Admission {
    origin: ConnectionOrigin::Peer { verified: false },
    _permit: None,
    exchange: false,
};

/// Runs a terminal until `shutdown` completes, then removes everything it installed. Prints `ready`
/// on standard output when the hub is first reachable and connections are carried.
///
/// # Errors
/// If it cannot start ([`RunError::is_setup`]) or its socket fails.
pub async fn run(
    config: TerminalConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let (mut ops, mut terminal) = Terminal::start(config).await?;
    terminal.with_services(clock::now(), &mut ops, |services, role| services.start(role));
    roles::run(ops, terminal, shutdown).await
}

/// Composes the terminal's side of the pair. `names`: what to redirect to the resolver.
fn setup(
    config: &TerminalConfig,
    own: OwnAddresses,
    sockets: HopSockets,
    endpoint: Endpoint,
    names: Option<NameRules>,
) -> Setup<'_> {
    let peers =
        PeerTable::new(&config.link.rate, config.operation.maximum_rate, hub_names(config), true);
    Setup {
        side: Side::Terminal,
        key: config.identity.public(),
        own,
        sockets: vec![sockets],
        endpoints: vec![endpoint],
        workers: Workers::none(),
        peers: peers.with_links(&config.links),
        dial: DialPolicy {
            timeout: config.connect_timeout,
            transparent: config.transparent,
            marked: config.intercept.as_ref().is_some_and(|intercept| intercept.own_traffic),
        },
        operation: &config.operation,
        intercept: config.intercept.as_ref(),
        policies: config.policies.clone(),
        classes: config.classes.clone(),
        names,
        tunnel: tunnel_of(config).map(|(tunnel, selection)| (tunnel, selection, true)),
        device: None,
    }
}

/// The sockets of the hop: one for each link, or the only one.
fn sockets(config: &TerminalConfig, local: SocketAddr) -> Result<HopSockets, RunError> {
    if config.links.is_empty() {
        presence::warn_of_address(local);
        return bind(local).map(HopSockets::from);
    }
    let bound = HopSockets::bind(&config.links, local);
    bound.map_err(|(name, cause)| RunError::Link { name, cause })
}

/// The rules, routes and tables that a terminal with `config` installs while its hub is reachable,
/// in nft and ip syntax.
pub fn print_rules(config: &TerminalConfig) -> String {
    // A running terminal knows the ports of its resolver; here they are placeholders.
    let names = config.dns.as_ref().and_then(names::printed_rules);
    let mut rules = intercept::print_rules(config, names);
    if let Some((tunnel, selection)) = tunnel_of(config) {
        rules += &selection.print(&tunnel::everywhere(), &tunnel.name);
    }
    rules
}

/// The tunnel, and the rules for what goes through it; [`None`] without a tunnel.
fn tunnel_of(config: &TerminalConfig) -> Option<(&TunnelConfig, Selection)> {
    config.tunnel.as_ref().zip(terminal_selection(config))
}

struct Terminal {
    parts: Parts,
    /// Backs off while the hub has no room.
    full: RefusalBackoff,
    /// Destinations permitted to the hub's side.
    accept: EgressRules,
    services: Services,
    hubs: KnownHubs,
}

/// The hubs' names in log and status.
fn hub_names(config: &TerminalConfig) -> BTreeMap<PublicKey, String> {
    config.hubs.iter().map(|hub| (hub.key, hub.name.clone())).collect()
}

/// An event for a terminal's main loop.
enum TerminalEvent {
    Pair(PairEvent),
    /// A task for a hub has ended, or ([`None`]) the hubs have something to do by now.
    Hubs(Option<(HubId, HubTaskResult)>),
    /// A service has work to do.
    Service(Ready),
}

impl RunningRole for Terminal {
    type Event = TerminalEvent;

    fn view(&self) -> GatewayView<'_> {
        self.parts.gateway.view()
    }

    fn with_services<R>(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        work: impl FnOnce(&mut Services, &mut Surroundings<'_>) -> R,
    ) -> R {
        let uplink = Uplink {
            session: self.hubs.session(),
            answers: self.hubs.answers(),
            is_good: self.hubs.is_good(),
            is_open: self.bypass_reason(ops).is_none(),
        };
        let role = self.parts.gateway.surroundings(now, &mut ops.peers);
        let keys = Some(&mut self.hubs as &mut dyn LearnKeys);
        work(&mut self.services, &mut Surroundings { uplink, keys, ..role })
    }

    fn role_status(&self, now: Instant) -> GatewayStatus {
        GatewayStatus { hubs: self.hubs.status(now), ..self.parts.role_status(now) }
    }

    async fn next(&mut self) -> TerminalEvent {
        tokio::select! {
            event = self.parts.next() => TerminalEvent::Pair(event),
            ready = self.services.next() => TerminalEvent::Service(ready),
            done = self.hubs.next() => TerminalEvent::Hubs(done),
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        event: TerminalEvent,
    ) -> Result<(), RunError> {
        match event {
            TerminalEvent::Pair(PairEvent::Report(Report::Failed(error))) => return Err(error),
            TerminalEvent::Pair(PairEvent::Report(Report::Hop(event))) => {
                self.handle_hop(now, ops, event);
            }
            TerminalEvent::Pair(PairEvent::Arrival(arrived)) => {
                let arrival = self.parts.admit(now, arrived);
                arrival.into_iter().for_each(|arrival| self.carry(now, ops, arrival));
            }
            TerminalEvent::Hubs(done) => self.hubs.handle(now, done),
            TerminalEvent::Service(ready) => {
                self.with_services(now, ops, |services, role| services.work(role, ready));
            }
        }
        Ok(())
    }

    fn set_interception(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
    ) -> Result<bool, RunError> {
        let bypass_reason = self.bypass_reason(ops);
        let (asking, offline) = self.with_services(now, ops, |services, role| {
            services.follow_uplink(role);
            (services.take_questions(role), services.offline_ports())
        });
        let Some(intake) = &mut self.parts.intake else { return Ok(self.hubs.is_good()) };
        // Without a hub, some services still answer from what they have stored.
        let scope = Scope::ports(&offline);
        intake.set_scope(now, bypass_reason.map_or(Ok(Scope::Everything), Err), scope)?;
        intake.redirect_queries(asking)?;
        Ok(intake.is_on())
    }

    fn housekeep(&mut self, now: Instant, ops: &mut GatewayOperations) {
        let refused = self.parts.gateway.counters().peer_full.get();
        if let Some(pause) = self.full.handle_refusals(now, refused)
            && let Some(intake) = &mut self.parts.intake
        {
            tracing::warn!("the hub has no room: new connections pass unaccelerated for a while");
            intake.pause(now, pause, BypassReason::PeerFull);
        }
        // Twice a second, instead of by notifications.
        self.parts.follow_routes();
        let session = self.hubs.session();
        let is_short = session.is_some_and(|session| !self.parts.gateway.hop().has_room(session));
        ops.evict_idle(now, self.parts.gateway.view(), is_short);
        self.hubs.housekeep(now);
    }

    fn reload(&mut self, now: Instant, ops: &mut GatewayOperations) -> Result<Vec<String>, String> {
        let config = read_terminal(&ops.file()?).map_err(|error| error.to_string())?;
        // What may be refused comes first, so that an invalid file changes as little as possible.
        let Parts { gateway, intake, .. } = &mut self.parts;
        if let (Some(intake), Some(intercept)) = (intake, &config.intercept) {
            intake.configure(intercept, &config.policies).map_err(|error| error.to_string())?;
        }
        gateway.hop().configure_classes(now, &config.classes)?;
        let changed = services::Config::Terminal(&config);
        let configured =
            self.with_services(now, ops, |services, role| services.configure(role, changed));
        configured.map_err(|error| error.to_string())?;
        let Parts { gateway, policies, .. } = &mut self.parts;
        let mut names = hub_names(&config);
        names.extend(self.hubs.names());
        *policies = config.policies;
        self.accept = config.accept.clone();
        gateway.counters().keepalive.set(config.operation.keepalive);
        let mut notes = ops.configure(config.operation);
        gateway.counters().live.set_limit(ops.most_connections());
        notes.extend(ops.configure_hop(now, gateway.hop(), &config.link.rate, names));
        Ok(notes)
    }

    async fn stop(mut self) {
        self.services.stop();
        self.parts.stop().await;
    }
}

impl Terminal {
    /// Opens and starts everything but the services.
    async fn start(config: TerminalConfig) -> Result<(GatewayOperations, Self), RunError> {
        let keys = HubKeys::load(&config);
        let hubs = ResolvedHubs::of(&config, &keys).await;
        let own = OwnAddresses::open()?;
        let looking = addresses_of(&config).collect::<Vec<_>>().join(", ");
        let local = config.listen.unwrap_or_else(|| any_address(addresses_of(&config)));
        let sockets = sockets(&config, local)?;
        let seed = random_bytes().map_err(RunError::Randomness)?;
        let link = config.link.clone();
        let identity = config.identity.clone();
        let (key, addresses) = hubs.of_hub(config.ranking()[0]);
        let endpoint = Endpoint::terminal(link, identity, key, addresses, seed);
        let proxy = services::listen_as_proxy(&config.proxy).await?;
        // Before the interception, which redirects queries to the resolver's ports.
        let dns = services::open_resolver_sockets(config.dns.clone()).await?;
        let names = dns.as_ref().and_then(|(sockets, dns)| sockets.rules(dns));
        let setup = setup(&config, own.clone(), sockets, endpoint, names);
        let mark = setup.dial.marked.then_some(PASS_MARK.value);
        let (ops, parts, tunnel) = setup.start(clock::now())?;
        tracing::info!(
            "looking for the hub at {looking}: connections pass unaccelerated until it answers"
        );
        let dialer = Dialer {
            side: Arc::default(),
            timeout: config.connect_timeout,
            egress: EgressRules::everywhere(),
            own: Some(own),
            mark,
            stack: None,
        };
        let hop = parts.gateway.hop().clone();
        let upstreams = || Upstreams {
            hop: hop.clone(),
            dialer: dialer.clone(),
            resolver: NameResolver::default(),
            counters: parts.gateway.counters(),
        };
        let services = services::of_terminal(&config, proxy, dns, tunnel, upstreams).await?;
        let hubs = KnownHubs::new(clock::now(), &config, hubs, keys, hop, mark);
        let full = RefusalBackoff::default();
        Ok((ops, Self { parts, full, accept: config.accept, services, hubs }))
    }

    fn handle_hop(&mut self, now: Instant, ops: &mut GatewayOperations, event: HopEvent) {
        if let HopEvent::Session(session, event) = &event {
            if let Event::Up { .. } = event {
                // The hub may have answered to another of its keys.
                ops.peers.set_names(self.hubs.names());
            }
            ops.follow_session(now, self.parts.gateway.hop(), *session, event);
        }
        match event {
            HopEvent::Opened(stream, open) => self.answer(now, ops, stream, open),
            HopEvent::TcpEnded(address) => self.hubs.handle_ended(now, address),
            HopEvent::Session(session, event) => self.hubs.handle_session(now, session, &event),
        }
    }

    /// Answers a stream that the hub has opened.
    fn answer(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        stream: SessionStream,
        open: StreamOpening<Destination>,
    ) {
        if let Destination::Address(address) = open.destination {
            let mut addresses = vec![address];
            return match self.parts.gateway.check_egress(&self.accept, &open, &mut addresses) {
                Ok(()) => self.parts.gateway.answer(stream, open, addresses, OF_HUB),
                Err(why) => self.parts.gateway.prohibit(stream, &open, &why),
            };
        }
        // A hub knows from the handshake what this terminal answers; the rest is refused.
        self.with_services(now, ops, |services, role| services.answer(role, stream, &open));
    }

    fn carry(&mut self, now: Instant, ops: &mut GatewayOperations, arrival: ClientArrival) {
        let left = self.with_services(now, ops, |services, role| services.take(role, arrival));
        match (left, self.hubs.session()) {
            (Some(arrival), Some(session)) => self.parts.gateway.originate(session, arrival),
            // Intercepted just as the session ended.
            (Some(arrival), None) => arrival.dismiss(),
            (None, _) => {}
        }
    }

    /// Returns the reason for which new connections are not carried; `None` if they are.
    fn bypass_reason(&self, ops: &GatewayOperations) -> Option<BypassReason> {
        if !self.hubs.is_good() {
            let leaving = self.hubs.is_leaving();
            return Some(if leaving {
                BypassReason::PeerDraining
            } else {
                BypassReason::PeerUnreachable
            });
        }
        if self.hubs.session().is_some_and(|session| !self.parts.gateway.hop().has_room(session)) {
            return Some(BypassReason::SessionMemory);
        }
        ops.bypass_reason(self.parts.gateway.view())
    }
}

/// The hubs' addresses as configured: each an IP address or a name, with a port.
fn addresses_of(config: &TerminalConfig) -> impl Iterator<Item = &str> {
    config.hubs.iter().map(|hub| hub.address.as_str())
}

/// An unspecified address of the hubs' family, or of both. Names may lead elsewhere later, so an IPv4
/// socket will do only if all hubs are given by address.
fn any_address<'a>(mut hubs: impl Iterator<Item = &'a str>) -> SocketAddr {
    if hubs.all(|hub| hub.parse::<SocketAddrV4>().is_ok()) {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        os::any_address(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_with_a_name_may_be_reached_by_either_version_later() {
        let (v4, v6, name) = ("192.0.2.1:5900", "[2001:db8::1]:5900", "hub.example:5900");
        let of = |hubs: &[&str]| any_address(hubs.iter().copied());
        assert_eq!(of(&[v4, v4]), SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        for hubs in [[v4, name], [name, name], [v4, v6]] {
            assert_eq!(of(&hubs), os::any_address(0), "{hubs:?}");
        }
    }
}
