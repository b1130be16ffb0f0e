//! The hub: connects its terminals' streams to their destinations, forwards streams between
//! terminals, and, if configured, intercepts connections to the terminals' clients.

mod permits;
mod quotas;
mod rate_sharing;
mod shared_permits;
mod start;
mod streams;
mod upgrade;

use std::collections::BTreeMap;
use std::future::Future;
use std::process::Child;
use std::time::Duration;

use config::{
    HubConfig, LinkConfig, PermittedTerminal, aggregates, link_rates, memory_limits,
    packet_addresses, quotas,
};
use control::protocol::{ControlAnswer, HandOverState};
use control::status::GatewayStatus;
use pep::admission::{BypassReason, TerminalQuotas};
use pep::rates::handover::ProcessNeed;
use pep::routes::TerminalSites;
use pep::timing::Periodic;
use pep::traffic::Prefix;
use slacp::{Event, PublicKey, SessionId};
use tokio::task::JoinSet;
use units::Instant;

use self::permits::FollowedPermits;
use self::rate_sharing::RateSharing;
use self::start::{PartSockets, TcpListening, log_start, setup};
use self::streams::{Lookups, Resolved};
use self::upgrade::{Predecessor, Stage, by_key_text, in_bits};
use crate::config::pair::PORT;
use crate::config::read_hub;
use crate::hop::HopEvent;
use crate::hop::contact_store::ContactStore;
use crate::intercept::netfilter::Scope;
use crate::intercept::own::OwnAddresses;
use crate::network::tun::table::DeviceRules;
use crate::operate::{GatewayOperations, GatewayView};
use crate::process::clock;
use crate::process::error::RunError;
use crate::roles::RunningRole;
use crate::roles::gateway::Report;
use crate::roles::pair::{self, PairEvent, Parts};
use crate::services::names::hub::HubResolver;
use crate::services::tunnel::addresses::TerminalAddresses;
use crate::services::tunnel::{HubSelection, HubTunnel, Translation};
use crate::services::{self, HubSide, Ready, Services, Surroundings};
use crate::{intercept, roles};

/// Time for which connections go on in the former process after an upgrade, unless the request says it.
const UPGRADE_WITHIN: Duration = Duration::from_secs(300);

/// With more sessions than this, what is intercepted follows them at intervals.
const SESSIONS_AT_ONCE: usize = 64;
/// These intervals. Housekeeping comes twice a second, so at the latest then.
const SCOPE_EVERY: Duration = Duration::from_millis(250);

/// Runs a hub until `shutdown` completes, perhaps in place of the one that runs with the same configuration
/// (`take_over`), which then ends with its last connection. Prints `ready` on standard output when terminals
/// can connect.
///
/// # Errors
/// If it cannot start ([`RunError::is_setup`]) or its socket fails.
pub async fn run(
    mut config: HubConfig,
    take_over: bool,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let predecessor = take_over.then(|| Predecessor::ask(&config)).transpose();
    let predecessor = predecessor.map_err(|problem| RunError::TakeOver { problem })?;
    // The process before and the one after have the other half, so that packets of a session show whose it
    // is while two processes share the port.
    let second_half = predecessor.as_ref().is_some_and(|before| !before.state.second_half);
    config.link.index_share = config.link.index_share.half(second_half);
    let (mut ops, mut hub) = Hub::start(config, second_half, predecessor).await?;
    hub.with_services(clock::now(), &mut ops, |services, role| services.start(role));
    if take_over {
        hub.rate_sharing.begin(clock::now(), hub.parts.gateway.hop());
    } else {
        hub.call();
    }
    roles::run(ops, hub, shutdown).await
}

fn counted(terminals: usize) -> String {
    format!("{terminals} terminal{}", if terminals == 1 { "" } else { "s" })
}

fn names(terminals: &[PermittedTerminal]) -> BTreeMap<PublicKey, String> {
    terminals.iter().map(|terminal| (terminal.key, terminal.name.clone())).collect()
}

/// The rules, routes and table that a hub with `config` installs while all its terminals are
/// reachable, in nft and ip syntax.
pub fn print_rules(config: &HubConfig) -> String {
    let mut rules = intercept::print_hub_rules(config);
    let Some(tunnel) = &config.tunnel else { return rules };
    let hop = config.listen.map_or(PORT, |address| address.port());
    let mut terminals = config.terminals.clone();
    if let Some(mut addresses) = TerminalAddresses::load(config) {
        addresses.fill(&mut terminals);
    }
    let networks: Vec<Prefix> =
        terminals.iter().flat_map(|terminal| terminal.networks.clone()).collect();
    let selection = selection(config, hop).of(&terminals);
    if let Some(Translation::Of(pool)) = selection.translation {
        rules += &format!("# ip route add {pool} dev {}\n", tunnel.name);
    }
    rules += &selection.print(&networks, &tunnel.name);
    rules
}

/// The rules for what goes through the tunnel; `port`: the hop's.
fn selection(config: &HubConfig, port: u16) -> HubSelection {
    HubSelection {
        port,
        intercepts: config.intercept.is_some(),
        policies: config.policies.clone(),
        pool: config.tunnel.as_ref().and_then(|tunnel| tunnel.pool),
    }
}

struct Hub {
    parts: Parts,
    permits: FollowedPermits,
    /// The task that accepts TCP connections of terminals.
    listeners: JoinSet<()>,
    /// This process has the second half of the indices, and its neighbours in time the first.
    second_half: bool,
    /// The process before this one, while it carries connections.
    predecessor: Option<Predecessor>,
    /// The process that is to take this one's place.
    successor: Option<Child>,
    /// Time for which connections may go on here once it has.
    within: Duration,
    /// Progress of that; [`None`] outside an upgrade.
    stage: Option<Stage>,
    rate_sharing: RateSharing,
    services: Services,
    /// Where terminals were last heard; [`None`] without `state`.
    contacts: Option<ContactStore>,
    mesh: bool,
    /// When to compute what is intercepted, with many sessions.
    scope: Periodic,
    sites: TerminalSites,
    links: Vec<LinkConfig>,
    quotas: TerminalQuotas,
    /// Names that are being resolved for streams of terminals.
    lookups: Lookups,
}

/// An event for a hub's main loop.
enum HubEvent {
    Pair(PairEvent),
    /// A name lookup has ended; `None` if its stream was reset meanwhile.
    Resolved(Option<Resolved>),
    /// Permits may have changed, in their directory or in etcd.
    Permits,
    /// A service has work to do.
    Service(Ready),
}

impl RunningRole for Hub {
    type Event = HubEvent;

    fn view(&self) -> GatewayView<'_> {
        self.parts.gateway.view()
    }

    fn with_services<R>(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        work: impl FnOnce(&mut Services, &mut Surroundings<'_>) -> R,
    ) -> R {
        let Self { parts, services, sites, permits, .. } = self;
        let dial = parts.gateway.dial_policy();
        let (peers, accounts) = ops.peers_and_accounts();
        let (permits, is_permit_changed) = permits.for_services();
        let hub = HubSide { sites, permits, is_permit_changed, dial, accounts };
        let role = parts.gateway.surroundings(now, peers);
        work(services, &mut Surroundings { hub: Some(hub), ..role })
    }

    fn role_status(&self, now: Instant) -> GatewayStatus {
        let predecessor = self.predecessor.as_ref().map(|before| before.state.pid);
        GatewayStatus { predecessor, ..self.parts.role_status(now) }
    }

    async fn next(&mut self) -> HubEvent {
        tokio::select! {
            event = self.parts.next() => HubEvent::Pair(event),
            resolved = self.lookups.next() => HubEvent::Resolved(resolved),
            () = self.permits.changed() => HubEvent::Permits,
            ready = self.services.next() => HubEvent::Service(ready),
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        event: HubEvent,
    ) -> Result<(), RunError> {
        match event {
            HubEvent::Pair(PairEvent::Report(Report::Failed(error))) => return Err(error),
            HubEvent::Pair(PairEvent::Report(Report::Hop(HopEvent::Opened(stream, open)))) => {
                self.answer(now, ops, stream, open);
            }
            HubEvent::Pair(PairEvent::Report(Report::Hop(HopEvent::Session(session, event)))) => {
                self.handle_session(now, ops, session, &event);
            }
            // The session moves, or the terminal connects again.
            HubEvent::Pair(PairEvent::Report(Report::Hop(HopEvent::TcpEnded(_)))) => {}
            HubEvent::Pair(PairEvent::Arrival(arrived)) => {
                let arrivals = self.parts.admit(now, arrived);
                arrivals.into_iter().for_each(|arrival| self.carry(ops, arrival));
            }
            HubEvent::Resolved(resolved) => {
                resolved.into_iter().for_each(|resolved| self.answer_resolved(now, ops, resolved));
            }
            HubEvent::Permits => {
                // A revocation waits for no timer.
                if self.permits.handle_change(now) {
                    self.follow_permits(now, ops, false);
                }
            }
            HubEvent::Service(ready) => {
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
        // Computing the scope visits every session, so it happens only with interception, and with
        // many sessions not after every event.
        let many = self.sites.session_count() > SESSIONS_AT_ONCE;
        if many && !self.scope.is_due(now) {
            return Ok(true);
        }
        let wanted = self.parts.intake.is_some().then(|| self.wanted(ops));
        if let (Some(intake), Some(wanted)) = (&mut self.parts.intake, wanted) {
            intake.set_scope(now, wanted, Scope::Nothing)?;
        }
        Ok(true)
    }

    fn housekeep(&mut self, now: Instant, ops: &mut GatewayOperations) {
        // Twice a second, instead of by notifications.
        self.parts.follow_routes();
        let hop = self.parts.gateway.hop();
        let is_short = self.sites.sessions().any(|session| !hop.has_room(session));
        ops.evict_idle(now, self.parts.gateway.view(), is_short);
        self.account(now, ops);
        let force = self.permits.is_look_due(now);
        self.follow_permits(now, ops, force);
        self.follow_upgrade(now, ops);
        let hop = self.parts.gateway.hop();
        self.contacts.iter_mut().for_each(|contacts| contacts.housekeep(now, hop));
    }

    fn reload(&mut self, now: Instant, ops: &mut GatewayOperations) -> Result<Vec<String>, String> {
        let config = read_hub(&ops.file()?).map_err(|error| error.to_string())?;
        self.permits.configure(&config)?;
        let Parts { gateway, intake, policies } = &mut self.parts;
        gateway.set_connect_timeout(config.connect_timeout);
        if let (Some(intake), Some(intercept)) = (intake, &config.intercept) {
            intake.configure(intercept, &config.policies).map_err(|error| error.to_string())?;
        }
        // What was carried so far counts in the classes that it had.
        let hop = gateway.hop();
        let changes = ops.settle_usage(now, hop);
        hop.configure_classes(now, &config.classes)?;
        policies.clone_from(&config.policies);
        gateway.counters().keepalive.set(config.operation.keepalive);
        let mut notes = ops.configure(config.operation.clone());
        gateway.counters().live.set_limit(ops.most_connections());
        notes.extend(ops.configure_hop(now, hop, &config.link.rate, BTreeMap::new()));
        self.mesh = config.mesh;
        let changed = services::Config::Hub(&config);
        let configured =
            self.with_services(now, ops, |services, role| services.configure(role, changed));
        configured.map_err(|error| error.to_string())?;
        self.serve(now, ops);
        self.apply(now, ops, &changes);
        Ok(notes)
    }

    fn upgrade(
        &mut self,
        _: Instant,
        ops: &GatewayOperations,
        within: Duration,
    ) -> Result<ControlAnswer, String> {
        self.may_hand_over()?;
        let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if self.successor.as_mut().is_some_and(is_running) {
            return Err("another process is starting already".to_owned());
        }
        // The next process gets the device of the tunnel as its standard input.
        let device = self.services.share_device().map_err(|error| error.to_string())?;
        let successor = ops.start_successor(device.map(|device| device.descriptor))?;
        let line = format!("started pid {}", successor.id());
        self.successor = Some(successor);
        self.within = within;
        Ok(ControlAnswer::Done(vec![line]))
    }

    fn hand_over(
        &mut self,
        now: Instant,
        ops: &GatewayOperations,
    ) -> Result<ControlAnswer, String> {
        self.may_hand_over()?;
        let device = self.services.share_device().map_err(|error| error.to_string())?;
        self.stage = Some(Stage::Prepared { since: now, within: self.within });
        Ok(ControlAnswer::HandOver(HandOverState {
            pid: std::process::id(),
            sockets: self.parts.gateway.hop().parts(),
            second_half: self.second_half,
            tunnel: device.map(|device| device.name),
            sessions: self.parts.gateway.hop().names(),
            tokens: by_key_text(self.parts.gateway.hop().succession_tokens()),
            rates: in_bits(ops.peers.reported(now)),
        }))
    }

    fn share_rate(&mut self, now: Instant, former: ProcessNeed) -> Result<f64, String> {
        if self.predecessor.is_none() {
            return Err("there is no process before this one".to_owned());
        }
        let gateway = &self.parts.gateway;
        Ok(self.rate_sharing.answer(now, gateway.hop(), former, gateway.view().live()))
    }

    async fn stop(mut self) {
        // First everything that would open further connections.
        drop(self.lookups);
        self.services.stop();
        // Ends interception, then the connections.
        self.parts.stop().await;
        if let Some(contacts) = self.contacts {
            // Terminals that have been told of the end need no call from the next process.
            contacts.remove().await;
        }
    }
}

impl Hub {
    /// Opens, reads and starts everything but the services. `second_half`: which of the session indices are
    /// this process's.
    async fn start(
        config: HubConfig,
        second_half: bool,
        predecessor: Option<Predecessor>,
    ) -> Result<(GatewayOperations, Self), RunError> {
        let device = predecessor.as_ref().map(|before| before.take_device(&config)).transpose();
        let device = device.map_err(RunError::System)?.flatten();
        let own = OwnAddresses::open()?;
        let sockets = PartSockets::bind(&config, predecessor.as_ref())?;
        let local = sockets.local_addr()?;
        let listener = TcpListening::open(&config)?;
        let mut permits = FollowedPermits::read(clock::now(), &config)?;
        let terminals = permits.serve(clock::unix_time());
        let selection = selection(&config, local.port());
        let before = predecessor.as_ref();
        let setup = setup(&config, &terminals, &selection, own, sockets, device, before)?;
        let (mut ops, parts, tunnel) = setup.start(clock::now())?;
        let tunnel = tunnel.map(|tunnel| HubTunnel { tunnel, selection });
        let names = config.dns.as_ref();
        let names = names.map(|keys| HubResolver::new(keys, parts.gateway.counters()));
        let services = services::of_hub(clock::now(), &config, names.clone(), tunnel).await?;
        ops.configure_accounts(&terminals);
        // Before the first session: a tally counts sessions from their beginning.
        parts.gateway.hop().keep_tally();
        log_start(&config, terminals.len(), local);
        let mut listeners = JoinSet::new();
        let hop = parts.gateway.hop();
        listener.into_iter().for_each(|listener| listener.serve(&mut listeners, hop));
        let sibling = predecessor.as_ref().map(Predecessor::sibling);
        hop.set_sibling(clock::now(), sibling.as_ref());
        let state = config.operation.state.as_deref();
        let hub = Self {
            parts,
            listeners,
            second_half,
            predecessor,
            successor: None,
            within: UPGRADE_WITHIN,
            stage: None,
            rate_sharing: RateSharing::default(),
            services,
            contacts: state.map(|directory| ContactStore::new(clock::now(), directory)),
            quotas: TerminalQuotas::new(&quotas(&terminals), ops.most_connections()),
            sites: TerminalSites::new(terminals, config.mesh, config.transparent),
            links: config.links,
            permits,
            mesh: config.mesh,
            scope: Periodic::new(SCOPE_EVERY, clock::now()),
            lookups: Lookups::new(names),
        };
        Ok((ops, hub))
    }

    /// Reads the permits again if they may have changed, or if `force` is set, and serves those terminals.
    fn follow_permits(&mut self, now: Instant, ops: &mut GatewayOperations, force: bool) {
        if self.permits.refresh(clock::unix_time(), force) {
            self.serve(now, ops);
        }
    }

    /// Calls the terminals of a process before this one that did not end in order.
    fn call(&self) {
        let contacts = self.contacts.as_ref().map(ContactStore::load).unwrap_or_default();
        if !contacts.is_empty() {
            tracing::info!("calling {} terminals that had sessions before", contacts.len());
            self.parts.gateway.hop().notify_lost_sessions(contacts);
        }
    }

    /// Serves the terminals that are permitted now, and no others.
    fn serve(&mut self, now: Instant, ops: &mut GatewayOperations) {
        let terminals = self.permits.serve(clock::unix_time());
        let hop = self.parts.gateway.hop();
        // Limits before permits: they apply to sessions that begin from now on.
        hop.set_memory(&memory_limits(&terminals));
        hop.set_packet_addresses(&packet_addresses(&terminals));
        hop.set_link_rates(&link_rates(&terminals, &self.links));
        hop.set_aggregates(now, &aggregates(&terminals));
        let allow: Vec<PublicKey> = terminals.iter().map(|terminal| terminal.key).collect();
        hop.set_allowed(now, &allow);
        ops.peers.set_names(names(&terminals));
        ops.configure_accounts(&terminals);
        let changes = ops.settle_usage(now, hop);
        self.quotas.configure(&quotas(&terminals), ops.most_connections());
        let before = self.sites.count();
        let count = terminals.len();
        self.sites.configure(terminals, self.mesh);
        self.with_services(now, ops, |services, role| services.follow_permits(role));
        if before != count {
            tracing::info!("serving {}", counted(count));
        }
        self.apply(now, ops, &changes);
        // The shares of terminals that stay may have changed.
        self.sites.sessions().for_each(|session| self.set_share(now, ops, session));
    }

    /// Returns the connections to intercept, or the reason for intercepting none.
    fn wanted(&self, ops: &GatewayOperations) -> Result<Scope, BypassReason> {
        if let Some(why) = ops.bypass_reason(self.parts.gateway.view()) {
            return Err(why);
        }
        let hop = self.parts.gateway.hop();
        let is_open = |session| hop.has_room(session) && !self.is_blocked(ops, session);
        match Scope::only(self.sites.open_networks(is_open)) {
            // Not even without the limits: no terminal with networks is reachable.
            Scope::Nothing if self.sites.open_networks(|_| true).is_empty() => {
                Err(BypassReason::PeerUnreachable)
            }
            Scope::Nothing => Err(BypassReason::SessionMemory),
            scope => Ok(scope),
        }
    }

    fn handle_session(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        session: SessionId,
        event: &Event,
    ) {
        ops.follow_session(now, self.parts.gateway.hop(), session, event);
        if let Event::Up { peer, address } = event {
            // Before the services, which look up the terminal of a session.
            self.sites.add(session, peer);
            self.set_share(now, ops, session);
            tracing::info!("session up with {} at {address}", self.sites.name(session));
        }
        self.with_services(now, ops, |services, role| {
            services.handle_session(role, session, event);
        });
        let name = self.sites.name(session);
        match event {
            Event::Unreachable => {
                tracing::warn!("{name} unreachable: its connections are frozen");
                self.sites.set_reachable(session, false);
            }
            Event::Reachable => {
                tracing::info!("{name} reachable again");
                self.sites.set_reachable(session, true);
            }
            Event::Moved { address } => tracing::info!("{name} has moved to {address}"),
            Event::Down(why) => {
                let lost = self.parts.gateway.hop().take_lost(session);
                pair::log_end(&format!("session with {name} over ({why})"), lost);
                self.sites.remove(session);
            }
            _ => {}
        }
    }
}
