//! The hub: connects its terminals' streams to their destinations, forwards streams between
//! terminals, and, if configured, intercepts connections to the terminals' clients.

mod quotas;
mod rate_sharing;
mod shared_permits;
mod start;
mod streams;
mod upgrade;

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::io;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use config::{
    HubConfig, LinkConfig, PermittedTerminal, aggregates, link_rates, memory_limits, quotas,
};
use os::DirectoryWatch;
use pep::admission::{BypassReason, TerminalQuotas};
use pep::handover::ProcessNeed;
use pep::periodic::Periodic;
use pep::routes::TerminalSites;
use pep::traffic::Prefix;
use slacp::{Event, PublicKey, SessionId};
use tokio::task::JoinSet;
use units::Instant;

use self::rate_sharing::RateSharing;
use self::shared_permits::SharedPermits;
use self::start::{TcpListening, bind_hop, endpoints, log_start, peers};
use self::streams::{Lookups, Resolved};
use self::upgrade::{Predecessor, Stage, by_key_text, in_bits};
use crate::config::pair::PORT;
use crate::config::permits::TerminalPermits;
use crate::config::read_hub;
use crate::error::RunError;
use crate::figures::status::GatewayStatus;
use crate::hop::HopEvent;
use crate::hop::contact_store::ContactStore;
use crate::hop::sockets::HopSockets;
use crate::intercept::netfilter::Scope;
use crate::intercept::own::OwnAddresses;
use crate::operate::control::ControlAnswer;
use crate::operate::control::HandOverState;
use crate::operate::{GatewayOperations, GatewayView};
use crate::relay::terms::DialPolicy;
use crate::roles::RunningRole;
use crate::roles::gateway::{Report, Side};
use crate::roles::pair::{self, PairEvent, Parts, Setup};
use crate::roles::workers::Workers;
use crate::services::names::hub::HubResolver;
use crate::services::tunnel::{self, HubSelection, HubTunnel};
use crate::services::{self, HubSide, Ready, Services, Surroundings};
use crate::{clock, intercept, roles};

/// How often permits are looked at, besides when their directory tells of a change.
const LOOK: Duration = Duration::from_secs(10);

/// The least time between two readings of permits that were announced one by one.
const PERMITS_EVERY: Duration = Duration::from_millis(500);

/// How long connections go on at another process's side, unless it is said.
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
    let device = predecessor.as_ref().map(|it| it.take_device(&config)).transpose();
    let device = device.map_err(RunError::System)?.flatten();
    // The process before and the one after have the other half.
    let second_half = predecessor.as_ref().is_some_and(|it| !it.told.second_half);
    config.link.index_share = config.link.index_share.half(second_half);
    let own = OwnAddresses::open()?;
    let workers =
        Workers::start(config.workers, config.link.burst.is_none()).map_err(RunError::System)?;
    let beside = predecessor.as_ref().map(Predecessor::sockets);
    let links = bind_hop(&config, &workers, beside)?;
    let local = links[0].local_addr().map_err(RunError::System)?;
    let listener = TcpListening::open(&config)?;
    let mut permits = TerminalPermits::read(&config)?;
    let watch = permits.directory().and_then(watch);
    let mut shared = SharedPermits::start(&config);
    shared.apply(&mut permits);
    let wall = clock::unix_time();
    let terminals = permits.served(wall);
    let selection = HubSelection {
        port: local.port(),
        intercepts: config.intercept.is_some(),
        policies: config.policies.clone(),
    };
    let tunnel = config.tunnel.as_ref();
    let setup = Setup {
        side: Side::Hub,
        key: config.identity.public(),
        own,
        endpoints: endpoints(&config, &terminals)?,
        sockets: links.into_iter().map(HopSockets::from).collect(),
        workers,
        peers: peers(&config, &terminals, predecessor.as_ref()),
        dial: policy(&config),
        operation: &config.operation,
        intercept: config.intercept.as_ref(),
        policies: config.policies.clone(),
        classes: config.classes.clone(),
        names: None,
        tunnel: tunnel.map(|tunnel| (tunnel, selection.of(&terminals), config.mesh)),
        device,
    };
    let (mut ops, parts, tunnel) = setup.start(clock::now())?;
    let tunnel = tunnel.map(|tunnel| HubTunnel { tunnel, selection });
    let names = config.dns.clone().map(|dns| HubResolver::new(dns, parts.gateway.counters()));
    let services = services::of_hub(clock::now(), &config, names.clone(), tunnel).await?;
    ops.configure_accounts(&terminals);
    parts.gateway.hop().keep_tally();
    log_start(&config, terminals.len(), local);
    let mut listeners = JoinSet::new();
    listener.into_iter().for_each(|it| it.serve(&mut listeners, parts.gateway.hop()));
    let sibling = predecessor.as_ref().map(Predecessor::sibling);
    parts.gateway.hop().set_sibling(clock::now(), sibling.as_ref());
    let mut hub = Hub {
        parts,
        listeners,
        second_half,
        predecessor,
        successor: None,
        within: UPGRADE_WITHIN,
        stage: None,
        rate_sharing: RateSharing::default(),
        services,
        contacts: config.operation.state.as_deref().map(|at| ContactStore::new(clock::now(), at)),
        quotas: TerminalQuotas::new(&quotas(&terminals), ops.most_connections()),
        sites: TerminalSites::new(terminals, config.mesh, config.transparent),
        links: config.links,
        expired: permits.expired(wall),
        permits,
        watch,
        shared,
        look: Periodic::new(LOOK, clock::now() + LOOK),
        mesh: config.mesh,
        is_stale: false,
        fresh: Periodic::new(PERMITS_EVERY, clock::now()),
        scope: Periodic::new(SCOPE_EVERY, clock::now()),
        lookups: Lookups::new(names),
    };
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

/// Watches the directory with the permits. Where that is impossible, it is looked at now and then.
fn watch(directory: &Path) -> Option<DirectoryWatch> {
    let watch = DirectoryWatch::new(directory);
    let failed = |error: &io::Error| {
        let every = LOOK.as_secs();
        let directory = directory.display();
        tracing::warn!("cannot watch {directory}, looking every {every} s: {error}");
    };
    watch.inspect_err(failed).ok()
}

fn policy(config: &HubConfig) -> DialPolicy {
    DialPolicy {
        timeout: config.connect_timeout,
        transparent: config.transparent,
        marked: config.intercept.as_ref().is_some_and(|it| it.own_traffic),
    }
}

/// The rules, routes and table that a hub with `config` installs while all its terminals are
/// reachable, in nft and ip syntax.
pub fn print_rules(config: &HubConfig) -> String {
    let mut rules = intercept::print_hub_rules(config);
    let Some(tunnel) = &config.tunnel else { return rules };
    let hop = config.listen.map_or(PORT, |address| address.port());
    let networks: Vec<Prefix> =
        config.terminals.iter().flat_map(|terminal| terminal.networks.clone()).collect();
    let (intercepts, policies) = (config.intercept.is_some(), config.policies.clone());
    let selection = HubSelection { port: hop, intercepts, policies }.of(&config.terminals);
    rules += &tunnel::print(tunnel, &selection, &networks);
    rules
}

struct Hub {
    parts: Parts,
    permits: TerminalPermits,
    /// The task that accepts TCP connections of terminals.
    listeners: JoinSet<()>,
    /// Which half of the indices is this process's.
    second_half: bool,
    /// The process before this one, while it carries connections.
    predecessor: Option<Predecessor>,
    /// The process that is to take this one's place, how long connections may go on then, and how far
    /// that is.
    successor: Option<Child>,
    within: Duration,
    stage: Option<Stage>,
    rate_sharing: RateSharing,
    services: Services,
    /// Where terminals were last heard; [`None`] without `state`.
    contacts: Option<ContactStore>,
    watch: Option<DirectoryWatch>,
    /// The permits in etcd.
    shared: SharedPermits,
    /// When to look at the permits without being told: a network file system does not tell.
    look: Periodic,
    /// Terminals that have expired.
    expired: usize,
    /// Whether permits may have changed, and when they may be read again at once. In between the
    /// housekeeping reads them, so that thousands that come together are not read thousands of times.
    is_stale: bool,
    fresh: Periodic,
    mesh: bool,
    /// When to compute what is intercepted, with many sessions.
    scope: Periodic,
    sites: TerminalSites,
    links: Vec<LinkConfig>,
    quotas: TerminalQuotas,
    /// Name lookups for streams.
    lookups: Lookups,
}

/// What a hub waits for.
enum HubEvent {
    Pair(PairEvent),
    /// A name lookup has ended; `None` if its stream was reset meanwhile.
    Resolved(Option<Resolved>),
    /// Permits may have changed.
    Permits,
    /// A service has work to do.
    Service(Ready),
}

/// The next change of the permits. Cancel-safe.
async fn changed(watch: &mut Option<DirectoryWatch>) {
    match watch {
        Some(known) => {
            if let Err(error) = known.changed().await {
                tracing::warn!("the permits are no longer watched: {error}");
                *watch = None;
            }
        }
        None => pending().await,
    }
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
        let Self { parts, services, sites, permits, is_stale, .. } = self;
        let dial = parts.gateway.dial_policy();
        let (peers, accounts) = ops.peers_and_accounts();
        let hub = HubSide { sites, permits, is_permit_changed: is_stale, dial, accounts };
        let role = parts.gateway.surroundings(now, peers);
        work(services, &mut Surroundings { hub: Some(hub), ..role })
    }

    fn role_status(&self, now: Instant) -> GatewayStatus {
        let predecessor = self.predecessor.as_ref().map(|it| it.told.pid);
        GatewayStatus { predecessor, ..self.parts.role_status(now) }
    }

    async fn next(&mut self) -> HubEvent {
        tokio::select! {
            event = self.parts.next() => HubEvent::Pair(event),
            resolved = self.lookups.next() => HubEvent::Resolved(resolved),
            () = changed(&mut self.watch) => HubEvent::Permits,
            () = self.shared.changed() => HubEvent::Permits,
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
                self.is_stale = true;
                // A revocation waits for no timer.
                if self.fresh.is_due(now) {
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
        self.parts.follow_routes();
        let hop = self.parts.gateway.hop();
        let is_short = self.sites.sessions().any(|session| !hop.has_room(session));
        ops.evict_idle(now, self.parts.gateway.view(), is_short);
        self.account(now, ops);
        let looks = self.look.is_due(now);
        self.follow_permits(now, ops, looks);
        self.follow_upgrade(now, ops);
        let hop = self.parts.gateway.hop();
        self.contacts.iter_mut().for_each(|contacts| contacts.housekeep(now, hop));
    }

    fn reload(&mut self, now: Instant, ops: &mut GatewayOperations) -> Result<Vec<String>, String> {
        let config = read_hub(&ops.file()?).map_err(|error| error.to_string())?;
        self.permits.configure(&config).map_err(|error| error.to_string())?;
        self.watch = self.permits.directory().and_then(watch);
        self.shared.configure(&config);
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
        let configured = self
            .with_services(now, ops, |it, role| it.configure(role, services::Config::Hub(&config)));
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
        if self.successor.as_mut().is_some_and(|it| matches!(it.try_wait(), Ok(None))) {
            return Err("another process is starting already".to_owned());
        }
        let device = self.services.share_device().map_err(|error| error.to_string())?;
        let successor = ops.start_successor(device.map(|device| device.descriptor))?;
        let line = format!("started pid {}", successor.id());
        (self.successor, self.within) = (Some(successor), within);
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
        drop(self.lookups);
        self.services.stop();
        self.parts.stop().await;
        if let Some(contacts) = self.contacts {
            contacts.remove().await;
        }
    }
}

impl Hub {
    /// Serves whom the permits say, if they may have changed or are looked at anyway.
    fn follow_permits(&mut self, now: Instant, ops: &mut GatewayOperations, looks: bool) {
        let told = std::mem::take(&mut self.is_stale);
        let mut changed = (told || looks) && self.permits.refresh();
        changed |= told && self.shared.apply(&mut self.permits);
        if changed || self.permits.expired(clock::unix_time()) != self.expired {
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
        let wall = clock::unix_time();
        self.expired = self.permits.expired(wall);
        let terminals = self.permits.served(wall);
        let hop = self.parts.gateway.hop();
        hop.set_memory(&memory_limits(&terminals));
        hop.set_link_rates(&link_rates(&terminals, &self.links));
        hop.set_aggregates(now, &aggregates(&terminals));
        let allow: Vec<PublicKey> = terminals.iter().map(|terminal| terminal.key).collect();
        hop.set_allowed(now, &allow);
        ops.peers.set_names(names(&terminals));
        ops.configure_accounts(&terminals);
        let changes = ops.settle_usage(now, hop);
        self.quotas.configure(&quotas(&terminals), ops.most_connections());
        let (before, count) = (self.sites.count(), terminals.len());
        self.sites.configure(terminals, self.mesh);
        self.with_services(now, ops, |services, role| services.follow_permits(role));
        if before != count {
            tracing::info!("serving {}", counted(count));
        }
        self.apply(now, ops, &changes);
        self.sites.sessions().for_each(|session| self.set_share(now, ops, session));
    }

    /// Which connections to intercept, or why none.
    fn wanted(&self, ops: &GatewayOperations) -> Result<Scope, BypassReason> {
        if let Some(why) = ops.bypass_reason(self.parts.gateway.view()) {
            return Err(why);
        }
        let hop = self.parts.gateway.hop();
        let is_open = |session| hop.has_room(session) && !self.is_blocked(ops, session);
        match Scope::only(self.sites.open_networks(is_open)) {
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
