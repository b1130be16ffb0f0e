//! The terminal: intercepts its clients' connections while the hub is reachable, and lets new ones
//! pass unaccelerated while it is not. Clients of the proxy are served either way.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use pep::admission::{Backoff, Bypass};
use pep::config::{InterceptConfig, TerminalConfig, TunnelConfig};
use pep::egress::Egress;
use pep::traffic::Policy;
use slacp::{Destination, Endpoint, Event, ResetReason, SessionId};

use crate::clock;
use crate::config::keys::random_bytes;
use crate::config::read_terminal;
use crate::error::RunError;
use crate::gateway::{Admission, Carriage, DialPolicy, Gateway, Report, Side, bind, say_ready};
use crate::hop::HopEvent;
use crate::hop::class::LiveClasses;
use crate::hop::peers::Peers;
use crate::intercept::intake::{self, Intake};
use crate::intercept::netfilter::{PASSING, Scope};
use crate::intercept::own::OwnAddresses;
use crate::intercept::{self, Arrival, Interception};
use crate::operate::connections::Origin;
use crate::operate::counters::Counters;
use crate::operate::status::Role;
use crate::operate::{Operations, Own, Task};
use crate::proxy::{self, Exit, Proxy};
use crate::relay::dial::Dialer;
use crate::tunnel::{self, Selection, Tunnel};

/// A terminal does not know which networks are behind its only hub, so the client's address stays
/// unverified.
const OF_HUB: Admission = Admission { origin: Origin::Peer { verified: false }, _seat: None };
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
    let interception = match &config.intercept {
        Some(intercept) => Some(Interception::install(intercept, &config.policies)?),
        None if config.transparent => Some(Interception::of_replies()?),
        None => None,
    };
    let (proxy, manner) = match config.proxy {
        Some(proxy) => (Some(Proxy::listen(proxy.clone()).await?), (proxy.answer, proxy.names)),
        None => Default::default(),
    };
    let link = bind(config.listen.unwrap_or_else(|| any_address(&hubs)))?;
    let seed = random_bytes().map_err(RunError::Randomness)?;
    let identity = config.identity;
    let looking = hubs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let names = [(config.hub_key, HUB.to_owned())].into();
    let peers = Peers::new(&config.link.rate, config.operation.maximum_rate, names, true);
    let ops = Operations::start(Role::Terminal, &config.operation, peers)?;
    let endpoint = Endpoint::terminal(config.link, identity, config.hub_key, hubs, seed);
    let policy = DialPolicy {
        timeout: config.connect_timeout,
        transparent: config.transparent,
        marked: config.intercept.as_ref().is_some_and(|it| it.own_traffic),
    };
    let (classes, counters) =
        (Arc::new(LiveClasses::new(config.classes)), Arc::new(Counters::default()));
    counters.keepalive.set(config.operation.keepalive);
    let mut tunnel =
        match tunnel_of(&config.tunnel, &config.intercept, (&config.policies, &config.accept)) {
            None => None,
            Some((tunnel, of)) => {
                Some(Tunnel::install(tunnel, of, true, classes.clone(), counters.clone())?)
            }
        };
    let carriage = Carriage { classes, counters, tunnel: tunnel.as_ref().map(Tunnel::port) };
    let gateway = Gateway::start(Side::Terminal, endpoint, link, (policy, own.clone()), carriage)?;
    if let Some(tunnel) = &mut tunnel {
        tunnel.start(gateway.hop().clone());
    }
    tracing::info!(
        "looking for the hub at {looking}: connections pass unaccelerated until it answers"
    );
    let intake = interception.map(|interception| Intake::new(interception, gateway.counters()));
    let dialer = Dialer {
        side: Arc::default(),
        timeout: config.connect_timeout,
        egress: Egress::everywhere(),
        own: Some(own),
        mark: policy.marked.then_some(PASSING.value),
    };
    let exit = Exit::new(manner, dialer, gateway.counters());
    let mut terminal = Terminal {
        gateway,
        ops,
        intake,
        full: Backoff::default(),
        tunnel,
        policies: config.policies,
        accept: config.accept,
        proxy,
        exit,
        session: None,
        reachable: false,
        told_ready: false,
    };
    terminal.ops.remember(terminal.gateway.hop());
    terminal.ops.say_ready();
    let result = terminal.serve(shutdown).await;
    terminal.ops.stop(terminal.gateway.view());
    // Interception goes first: from here on new connections pass unaccelerated.
    drop((terminal.intake, terminal.tunnel, terminal.proxy));
    terminal.gateway.stop().await;
    result
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
    gateway: Gateway,
    ops: Operations,
    intake: Option<Intake>,
    /// Backs off while the hub has no room.
    full: Backoff,
    tunnel: Option<Tunnel>,
    policies: Vec<Policy>,
    /// Destinations permitted to the hub's side.
    accept: Egress,
    proxy: Option<Proxy>,
    exit: Exit,
    session: Option<SessionId>,
    reachable: bool,
    told_ready: bool,
}

impl Terminal {
    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut shutdown = pin!(shutdown);
        while !self.ops.is_drained(self.gateway.view()) {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                task = self.ops.next() => self.attend(task),
                report = self.gateway.report() => match report {
                    Report::Hop(event) => self.handle(event),
                    Report::Failed(error) => return Err(error),
                },
                arrival = intake::next(&mut self.intake) => {
                    arrival.into_iter().for_each(|arrival| self.take(arrival));
                }
                wish = proxy::next(&mut self.proxy) => {
                    let session = self.session.filter(|_| self.hindrance().is_none());
                    self.gateway.fulfil(wish, session, self.exit.clone());
                }
            }
            self.set_interception()?;
        }
        Ok(())
    }

    /// Handles an operator's request, and checks whether the hub has room again.
    fn attend(&mut self, task: Task) {
        let refused = self.gateway.counters().reasons.of(ResetReason::Limit);
        if let Some(pause) = self.full.look(clock::now(), refused)
            && let Some(intake) = &mut self.intake
        {
            tracing::warn!("the hub has no room: new connections pass unaccelerated for a while");
            intake.pause(pause, Bypass::PeerFull);
        }
        match task {
            Task::Answer(call) => {
                let own = Own::of(self.intake.as_ref(), self.tunnel.as_ref(), &self.policies);
                if let Some(call) = self.ops.answer(self.gateway.view(), own, call) {
                    let outcome = self.reload();
                    self.ops.reloaded(call, outcome);
                }
            }
            Task::Look => {
                self.ops.look(self.gateway.view());
                self.intake.iter_mut().for_each(Intake::follow_routes);
                self.tunnel.iter_mut().for_each(Tunnel::follow_routes);
            }
        }
    }

    /// Applies a changed configuration. An invalid one changes nothing.
    fn reload(&mut self) -> Result<Vec<String>, String> {
        let config = read_terminal(&self.ops.file()?).map_err(|error| error.to_string())?;
        if let (Some(intake), Some(intercept)) = (&mut self.intake, &config.intercept) {
            intake.configure(intercept, &config.policies).map_err(|error| error.to_string())?;
            if let Some(tunnel) = &self.tunnel {
                let selection = tunnel::of_clients(intercept, &config.policies, &config.accept);
                tunnel.configure(selection).map_err(|error| error.to_string())?;
            }
        }
        self.gateway.hop().configure_classes(&config.classes, self.tunnel.is_some())?;
        self.policies = config.policies;
        self.accept = config.accept;
        let names = [(config.hub_key, HUB.to_owned())].into();
        self.gateway.counters().keepalive.set(config.operation.keepalive);
        let mut notes = self.ops.configure(config.operation);
        notes.extend(self.ops.configure_hop(self.gateway.hop(), &config.link.rate, names));
        Ok(notes)
    }

    fn handle(&mut self, event: HopEvent) {
        if let HopEvent::Session(session, event) = &event {
            self.ops.peers.follow(self.gateway.hop(), *session, event);
        }
        match event {
            HopEvent::Opened(stream, open) => match open.destination {
                Destination::Address(address) => {
                    let mut addresses = vec![address];
                    match self.gateway.judge(&self.accept, &open, &mut addresses) {
                        Ok(()) => self.gateway.answer(stream, open, addresses, OF_HUB),
                        Err(why) => self.gateway.prohibit(stream, &open, &why),
                    }
                }
                // From a hub that ignores that this terminal resolves no names.
                Destination::Name(..) => {
                    self.gateway.refuse(stream, &open, ResetReason::Prohibited);
                }
            },
            HopEvent::Session(session, Event::Up { address, .. }) => {
                tracing::info!("session up with the hub at {address}");
                (self.session, self.reachable) = (Some(session), true);
                self.tunnel_to(session);
            }
            HopEvent::Session(session, event) if self.session == Some(session) => {
                self.follow(&event);
            }
            HopEvent::Session(session, Event::Down(_)) => self.end_tunnel_to(session),
            HopEvent::Session(..) => {}
        }
    }

    /// Routes packets that are not split to this session, if the hub accepts them.
    fn tunnel_to(&self, session: SessionId) {
        let Some(tunnel) = &self.tunnel else { return };
        if !tunnel.add(self.gateway.hop(), session, tunnel::everywhere()) {
            tracing::warn!("the hub has no tunnel: traffic that is not split passes unaccelerated");
        }
    }

    fn end_tunnel_to(&self, session: SessionId) {
        if let Some(tunnel) = &self.tunnel {
            tunnel.remove(session);
        }
    }

    /// Opens the tunnel while the hub is reachable; otherwise packets pass unaccelerated.
    fn set_tunnel(&self) {
        if let (Some(tunnel), Some(session)) = (&self.tunnel, self.session) {
            tunnel.set_open(session, self.reachable);
        }
    }

    /// Handles an event of the session in use.
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Unreachable => {
                tracing::warn!("hub unreachable: new connections pass unaccelerated");
                self.reachable = false;
                self.set_tunnel();
            }
            Event::Reachable => {
                tracing::info!("hub reachable again");
                self.reachable = true;
                self.set_tunnel();
            }
            Event::Moved { address } => tracing::info!("the hub has moved to {address}"),
            Event::Down(why) => {
                tracing::warn!("session with the hub lost ({why}): its connections are reset");
                if let Some(session) = self.session {
                    self.end_tunnel_to(session);
                }
                (self.session, self.reachable) = (None, false);
            }
            _ => {}
        }
    }

    fn take(&mut self, arrival: Arrival) {
        match self.session {
            Some(session) => self.gateway.originate(session, arrival),
            // Intercepted just as the session ended.
            None => arrival.dismiss(),
        }
    }

    /// Why new connections are not carried; `None` if they are.
    fn hindrance(&self) -> Option<Bypass> {
        if !self.reachable {
            return Some(Bypass::PeerUnreachable);
        }
        if self.session.is_some_and(|session| !self.gateway.hop().has_room(session)) {
            return Some(Bypass::SessionMemory);
        }
        self.ops.hindrance(self.gateway.view())
    }

    /// Turns interception on exactly while it is useful.
    fn set_interception(&mut self) -> Result<(), RunError> {
        let mut in_service = self.reachable;
        let hindrance = self.hindrance();
        if let Some(intake) = &mut self.intake {
            intake.set(hindrance.map_or(Ok(Scope::Everything), Err))?;
            in_service = intake.is_on();
        }
        if in_service && !self.told_ready {
            self.told_ready = true;
            say_ready();
        }
        Ok(())
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
