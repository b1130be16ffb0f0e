//! Redirection of clients' connections to the gateway: listeners, the nftables table, rules and routes.
//! Dropping it removes everything that it installed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use config::{AnswerTiming, HubConfig, InterceptConfig, SideConfig, SoloConfig, TerminalConfig};
use control::status::{RefusalStatus, SharedInterface};
use pep::traffic::{IpFamily, Prefix, Syn, TrafficPolicy};
use slacp::StreamOpening;

use super::answer_tap::{AnswerTap, LoggedPacket};
use super::bridges::{FilteredBridge, find_filtered};
use super::deferral::{Deferral, DeferredSyn, SynOutcome};
use super::firewall;
use super::lan_routes::{LanRoutes, LanWatch, LocalInterfaces};
use super::listener::{AcceptOutcome, AcceptedConnection, Listener};
use super::netfilter::{GatewaySlot, InterceptTable, NameRules, Rules, Scope, claimed_interfaces};
use super::refuser::Refuser;
use super::shared_interfaces;
use super::syn_tap::{SynInjector, SynTap};
use crate::figures::refused_connections::PassExemptions;
use crate::network::namespace_slot::NamespaceSlot;
use crate::network::nft::policy;
use crate::network::presence;
use crate::network::routing::{self, Routing};
use crate::network::socket_options;
use crate::process::error::RunError;
use crate::process::refusal::{self, KernelOperation, KernelRefusal};

/// Listener port in printed rules; a running gateway uses any free port.
const PRINTED_PORT: u16 = 5901;

/// Everything that is installed on the machine for interception.
pub(crate) struct Interception {
    listeners: Vec<Listener>,
    withheld: Option<Withheld>,
    watch: Option<AnswerTap>,
    /// Answers what policies refuse; `None` if no policy has refused anything yet.
    refuser: Option<Refuser>,
    lans: LanWatch,
    rules: Rules,
    table: InterceptTable,
    without_v6: Option<KernelRefusal>,
    routing: Routing<GatewaySlot>,
}

/// Handling of SYNs that the table drops and logs to the gateway.
struct Withheld {
    tap: SynTap,
    injector: Arc<SynInjector>,
    /// Holds SYNs until the far end has answered; `None` if they are reinjected at once.
    deferral: Option<Deferral>,
}

/// A new connection from a client.
pub(crate) enum ClientArrival {
    /// A connection that is already established.
    Connection(AcceptedConnection),
    /// A withheld SYN, to be answered after the far side.
    Deferred(DeferredSyn),
}

impl ClientArrival {
    /// Addresses and code point of the connection.
    pub(crate) fn open(&self) -> StreamOpening {
        match self {
            Self::Connection(accepted) => accepted.open,
            Self::Deferred(deferred) => deferred.open(),
        }
    }

    /// Gives up a connection that cannot be carried. An established connection is reset; a withheld SYN is
    /// dropped, and its retransmission passes unaccelerated.
    pub(crate) fn dismiss(self) {
        if let Self::Connection(accepted) = self {
            socket_options::reset(accepted.socket);
        }
    }
}

/// Result of waiting for a connection.
pub(crate) enum IntakeEvent {
    /// A new connection or withheld SYN.
    Connection(ClientArrival),
    /// Nothing to handle: the connection has ended, was not redirected here, or is already pending.
    Nothing,
    /// Logged SYNs and answers, from which unanswered clients are found.
    Seen(Vec<LoggedPacket>),
    /// The process or the system is out of descriptors or memory: retry later.
    Exhausted(io::Error),
}

impl Interception {
    /// Installs only the redirection of replies to transparent connections. New connections are never
    /// intercepted.
    ///
    /// # Errors
    /// If privileges or kernel features are missing.
    pub(crate) fn install_for_replies() -> Result<Self, RunError> {
        Self::install(&InterceptConfig::nowhere(), &[], None).map_err(RunError::of_transparency)
    }

    /// Installs everything; intercepts nothing until [`Self::apply_scope`]. `names`: redirection to a
    /// resolver.
    ///
    /// # Errors
    /// If privileges or kernel features are missing.
    pub(crate) fn install(
        config: &InterceptConfig,
        policies: &[TrafficPolicy],
        names: Option<NameRules>,
    ) -> Result<Self, RunError> {
        Self::install_for(config, policies, names, LocalInterfaces::AllInterfaces)
    }

    /// Like [`Self::install`], for a solo gateway, which also splits connections between its interfaces.
    ///
    /// # Errors
    /// If privileges or kernel features are missing.
    pub(crate) fn install_for_solo(
        config: &InterceptConfig,
        policies: &[TrafficPolicy],
    ) -> Result<Self, RunError> {
        Self::install_for(config, policies, None, LocalInterfaces::SameInterface)
    }

    fn install_for(
        config: &InterceptConfig,
        policies: &[TrafficPolicy],
        names: Option<NameRules>,
        nearby: LocalInterfaces,
    ) -> Result<Self, RunError> {
        presence::warn_of_interfaces("intercept.interfaces", &config.interfaces);
        let (listeners, mut without_v6) = bind().map_err(RunError::Interception)?;
        check_loopback(config)?;
        // The table first: claiming it chooses the slot, which determines mark and routing table.
        let claimed = claimed_interfaces(&config.interfaces, config.own_traffic);
        let table = InterceptTable::claim(names.is_some(), &claimed).map_err(RunError::nftables)?;
        // Of two gateways that start at once, the later claim sees the earlier one.
        shared_interfaces::warn(&claimed, table.slot());
        let (routing, refusal) =
            Routing::install(table.slot(), routing::LOOPBACK, &versions(&listeners))
                .map_err(RunError::Interception)?;
        without_v6 = without_v6.or(refusal);
        // Only reported: the gateway changes no table but its own.
        for barrier in firewall::barriers(table.slot().mark()) {
            tracing::warn!("{barrier}");
        }
        let versions = versions(&listeners);
        if config.own_traffic {
            table.add_own().map_err(RunError::nftables)?;
        }
        let withheld = match config.answer {
            AnswerTiming::Early => None,
            AnswerTiming::Deferred => Some(Withheld::new(table.slot(), &versions, true)?),
        };
        let watch = watch(&table);
        let lans = LanWatch::start(&config.interfaces, nearby);
        let usable = usable(&listeners, without_v6.is_none());
        let rules = Rules {
            names,
            lans: lans.routes().clone(),
            watched: watch.is_some(),
            ..rules(config, policies, usable)
        };
        let refuser = None;
        let mut installed =
            Self { listeners, withheld, watch, refuser, lans, rules, table, without_v6, routing };
        installed.follow_bridges();
        installed.follow_refusals();
        if installed.without_v6.is_some() {
            installed.log_v6();
        }
        Ok(installed)
    }

    /// Restores rules and routes removed by other programs, or by the kernel when IPv6 or the loopback
    /// device went down. The IP versions are restored independently. Returns whether the next
    /// [`Self::apply_scope`] would intercept other connections than before.
    pub(crate) fn follow_routes(&mut self) -> bool {
        let versions = versions(&self.listeners);
        let without_v6 = match self.routing.restore(&versions) {
            Ok(without_v6) => without_v6,
            Err(refusal) => {
                // Tried again twice a second, so no warning.
                tracing::debug!("{refusal}");
                return false;
            }
        };
        let has_listener = versions.contains(&IpFamily::V6);
        if !has_listener || without_v6.is_none() == self.without_v6.is_none() {
            return false;
        }
        self.without_v6 = without_v6;
        self.rules.listeners = usable(&self.listeners, self.without_v6.is_none());
        true
    }

    /// Applies changes of routes, rules and bridges of the machine. Returns whether the next
    /// [`Self::apply_scope`] would intercept other connections than before.
    pub(crate) fn follow_lans(&mut self) -> bool {
        let routes_differ = self.lans.follow();
        if routes_differ {
            self.rules.lans = self.lans.routes().clone();
        }
        self.follow_bridges() | routes_differ
    }

    /// Updates the bridges on which the kernel loses redirected packets. Their SYNs are withheld, or pass
    /// if that is impossible. Returns whether the bridges have changed.
    fn follow_bridges(&mut self) -> bool {
        let found = find_filtered(&self.rules.interfaces);
        if found == self.rules.bridges {
            return false;
        }
        if !found.is_empty() && self.withheld.is_none() {
            // Only now: raw sockets need CAP_NET_RAW, which early answers do without.
            let versions = versions(&self.listeners);
            self.withheld = Withheld::new(self.table.slot(), &versions, false)
                .inspect_err(|error| tracing::warn!("{error}"))
                .ok();
        }
        self.rules.can_withhold = self.withheld.is_some();
        for bridge in found.iter().filter(|bridge| !self.rules.bridges.contains(bridge)) {
            self.log_bridge(bridge);
        }
        self.rules.bridges = found;
        true
    }

    /// Opens what refusals need, once a policy refuses anything. If that is impossible, the policy has no effect.
    fn follow_refusals(&mut self) {
        if self.refuser.is_none() && policy::refuse(&self.rules.policies) {
            let group = self.table.slot().refusal_group();
            let opened = Refuser::open(group, &versions(&self.listeners))
                .map_err(KernelRefusal::wrap(KernelOperation::Packets));
            let warn = |refusal: &KernelRefusal| {
                tracing::warn!("cannot answer refused traffic, which therefore passes: {refusal}");
            };
            self.refuser = opened.inspect_err(warn).ok();
        }
        self.rules.can_refuse = self.refuser.is_some();
    }

    fn log_bridge(&self, bridge: &FilteredBridge) {
        let name = &bridge.name;
        let mend = bridge.fix_advice();
        if self.withheld.is_none() {
            tracing::warn!(
                "connections from {name} pass unaccelerated: its frames pass through netfilter: {mend}"
            );
        } else if !self.rules.deferred {
            tracing::info!(
                "frames of the bridge {name} pass through netfilter: each SYN takes a detour through \
                 this process. Without the detour: {mend}"
            );
        }
        if self.rules.names.is_some() {
            tracing::warn!("DNS queries from {name} are not answered, for the same reason: {mend}");
        }
    }

    /// Describes possible reasons why clients get no answers, for logs and status.
    pub(crate) fn possible_causes(&self) -> String {
        let barriers = firewall::barriers(self.table.slot().mark());
        let bridges = find_filtered(&self.rules.interfaces);
        let suspects = barriers.iter().map(ToString::to_string);
        let suspects = suspects.chain(bridges.iter().map(FilteredBridge::fix_advice));
        suspects.reduce(|one, other| format!("{one}; {other}")).unwrap_or_else(|| {
            "a firewall drops them (`nft list ruleset`: chains on the hooks prerouting, input and \
             output)"
                .to_owned()
        })
    }

    /// Sets the clients that pass because they get no answers, from the next [`Self::apply_scope`] on.
    pub(crate) fn set_unanswered(&mut self, clients: Vec<Prefix>) {
        self.rules.unanswered = clients;
    }

    /// Logs whether IPv6 connections are intercepted.
    pub(crate) fn log_v6(&self) {
        match &self.without_v6 {
            Some(refusal) => {
                tracing::warn!("{}; {}", refusal::without_v6(refusal), refusal.later_advice());
            }
            None => tracing::info!("IPv6 connections are intercepted too"),
        }
    }

    /// Sets interfaces and policies for the next [`Self::apply_scope`]. Early or deferred answers stay as
    /// installed.
    pub(crate) fn configure(&mut self, config: &InterceptConfig, policies: &[TrafficPolicy]) {
        presence::warn_of_interfaces("intercept.interfaces", &config.interfaces);
        self.rules.interfaces.clone_from(&config.interfaces);
        shared_interfaces::warn(&self.rules.claimed_interfaces(), self.table.slot());
        // The routes are those over the clients' interfaces, so other interfaces have others.
        self.lans.follow_interfaces(&config.interfaces);
        self.rules.lans = self.lans.routes().clone();
        self.follow_bridges();
        policies.clone_into(&mut self.rules.policies);
        self.follow_refusals();
    }

    /// Finds the interfaces that another gateway of this machine intercepts as well.
    pub(crate) fn shared_interfaces(&self) -> Vec<SharedInterface> {
        shared_interfaces::find(&self.rules.claimed_interfaces(), Some(self.table.slot()))
    }

    /// Reason why IPv6 connections are not intercepted; `None` if they are.
    pub(crate) fn without_v6(&self) -> Option<&KernelRefusal> {
        self.without_v6.as_ref()
    }

    /// Starts or stops the redirection of queries to the resolver at the next [`Self::apply_scope`]. Returns
    /// whether that is a change.
    pub(crate) fn redirect_queries(&mut self, answer: bool) -> bool {
        let names = self.rules.names.as_mut();
        names.is_some_and(|names| std::mem::replace(&mut names.answering, answer) != answer)
    }

    /// Sets the destinations and clients that pass, from the next [`Self::apply_scope`] on.
    pub(crate) fn set_exemptions(&mut self, passing: PassExemptions) {
        self.rules.exemptions = passing;
    }

    /// Number of packets that policies refuse; `None` if none does.
    pub(crate) fn refusals(&self) -> Option<RefusalStatus> {
        self.refuser.as_ref().map(Refuser::counts)
    }

    /// Number of connections and datagrams decided by each policy; empty if the kernel refuses to tell.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.table.counts().unwrap_or_else(|error| {
            tracing::debug!("cannot read the policies' counters: {error}");
            BTreeMap::new()
        })
    }

    /// Applies a side's TCP settings to the listeners, from which accepted connections inherit them.
    pub(crate) fn prepare(&self, side: &SideConfig) {
        self.listeners.iter().for_each(|listener| listener.prepare(side));
    }

    /// Intercepts new connections to `scope` from now on. Existing connections are kept.
    pub(crate) fn apply_scope(&mut self, scope: &Scope) -> Result<(), RunError> {
        self.table.apply(&self.rules, scope).map_err(RunError::nftables)?;
        if let Some(Withheld { deferral: Some(deferral), .. }) = &self.withheld {
            // A retransmission may now pass, so the gateway must not answer the pending SYN as well.
            deferral.clear_pending();
        }
        Ok(())
    }

    /// Waits for the next connection. Cancel-safe.
    pub(crate) async fn next(&mut self) -> IntakeEvent {
        let accept = tokio::select! {
            syn = next_syn(&mut self.withheld) => return self.handle_syn(syn),
            seen = next_sightings(&mut self.watch) => return IntakeEvent::Seen(seen),
            never = serve_refusals(&mut self.refuser) => match never {},
            accept = accept(&self.listeners) => accept,
        };
        // With deferred answers, each connection belongs to a task that waits for it.
        let deferral = self.withheld.as_ref().and_then(|withheld| withheld.deferral.as_ref());
        match (accept, deferral) {
            (AcceptOutcome::Connection(accepted), Some(deferral)) => {
                deferral.deliver(accepted);
                IntakeEvent::Nothing
            }
            (AcceptOutcome::Connection(accepted), None) => {
                IntakeEvent::Connection(ClientArrival::Connection(accepted))
            }
            (AcceptOutcome::Nothing, _) => IntakeEvent::Nothing,
            (AcceptOutcome::Exhausted(error), _) => IntakeEvent::Exhausted(error),
        }
    }

    fn handle_syn(&self, syn: Syn) -> IntakeEvent {
        let Some(withheld) = &self.withheld else { return IntakeEvent::Nothing };
        let StreamOpening { source, destination, .. } = syn.open();
        let on_its_way = || IntakeEvent::Seen(vec![LoggedPacket::Syn { source, destination }]);
        let Some(deferral) = &withheld.deferral else {
            withheld.injector.reinject(&syn);
            return on_its_way();
        };
        match deferral.handle_syn(syn) {
            SynOutcome::New(deferred) => IntakeEvent::Connection(ClientArrival::Deferred(deferred)),
            SynOutcome::Reinjected => on_its_way(),
            SynOutcome::Dropped => IntakeEvent::Nothing,
        }
    }
}

/// Checks that the loopback device is up where SYNs go through it.
fn check_loopback(config: &InterceptConfig) -> Result<(), RunError> {
    // Reinjected SYNs and own connections come in by loopback.
    let is_needed = config.own_traffic || config.answer == AnswerTiming::Deferred;
    if is_needed && !routing::is_loopback_up() {
        let refusal = KernelRefusal::expected(KernelOperation::Loopback, libc::ENETDOWN);
        return Err(RunError::Interception(refusal));
    }
    Ok(())
}

impl Withheld {
    fn new(slot: GatewaySlot, versions: &[IpFamily], deferred: bool) -> Result<Self, RunError> {
        let refused =
            |cause| RunError::Deferral(KernelRefusal::wrap(KernelOperation::Packets)(cause));
        let injector = SynInjector::new(versions, slot.reinjection_mark()).map_err(refused)?;
        let tap = SynTap::open(slot.log_group()).map_err(refused)?;
        let injector = Arc::new(injector);
        let deferral = deferred.then(|| Deferral::new(injector.clone()));
        Ok(Self { tap, injector, deferral })
    }
}

/// Starts logging SYNs and answers, if the kernel supports it.
fn watch(table: &InterceptTable) -> Option<AnswerTap> {
    let opened = AnswerTap::open(table.slot()).and_then(|tap| table.add_watch().map(|()| tap));
    let watch = opened.inspect_err(|error| {
        tracing::info!(
            "clients without answers are not detected, since the kernel cannot log: {error}"
        );
    });
    watch.ok()
}

async fn next_syn(withheld: &mut Option<Withheld>) -> Syn {
    match withheld {
        Some(withheld) => withheld.tap.next().await,
        None => std::future::pending().await,
    }
}

async fn next_sightings(watch: &mut Option<AnswerTap>) -> Vec<LoggedPacket> {
    match watch {
        Some(tap) => tap.next().await,
        None => std::future::pending().await,
    }
}

async fn serve_refusals(refuser: &mut Option<Refuser>) -> Infallible {
    match refuser {
        Some(refuser) => refuser.serve().await,
        None => std::future::pending().await,
    }
}

async fn accept(listeners: &[Listener]) -> AcceptOutcome {
    match listeners {
        [first, second] => tokio::select! {
            accept = first.accept() => accept,
            accept = second.accept() => accept,
        },
        [only] => only.accept().await,
        _ => std::future::pending().await,
    }
}

/// Formats the rules, routes and table that a terminal with `config` installs, in nft and ip syntax.
/// `names`: those of its resolver.
pub(crate) fn print_rules(config: &TerminalConfig, names: Option<NameRules>) -> String {
    match &config.intercept {
        Some(intercept) => {
            let lans = LanRoutes::of(&intercept.interfaces, LocalInterfaces::AllInterfaces);
            print_with(intercept, &config.policies, &Scope::Everything, lans, names)
        }
        None if config.transparent => print(&InterceptConfig::nowhere(), &[], &Scope::Nothing),
        None => "# This terminal sets no rules: it intercepts nothing and is not transparent.\n"
            .to_owned(),
    }
}

/// Formats the rules, routes and table of a solo gateway.
pub(crate) fn print_solo_rules(config: &SoloConfig) -> String {
    match &config.intercept {
        Some(intercept) => {
            let lans = LanRoutes::of(&intercept.interfaces, LocalInterfaces::SameInterface);
            print_with(intercept, &config.policies, &Scope::Everything, lans, None)
        }
        None => "# This gateway sets no rules: it intercepts nothing.\n".to_owned(),
    }
}

/// Formats the rules, routes and table of a hub while all its terminals are reachable.
pub(crate) fn print_hub_rules(config: &HubConfig) -> String {
    let networks = config.terminals.iter().flat_map(|terminal| terminal.networks.clone());
    match &config.intercept {
        Some(intercept) => print(intercept, &config.policies, &Scope::only(networks.collect())),
        None if config.transparent => print(&InterceptConfig::nowhere(), &[], &Scope::Nothing),
        None => {
            "# This hub sets no rules: it intercepts nothing and is not transparent.\n".to_owned()
        }
    }
}

fn print(config: &InterceptConfig, policies: &[TrafficPolicy], scope: &Scope) -> String {
    let lans = LanRoutes::of(&config.interfaces, LocalInterfaces::AllInterfaces);
    print_with(config, policies, scope, lans, None)
}

fn print_with(
    config: &InterceptConfig,
    policies: &[TrafficPolicy],
    scope: &Scope,
    lans: LanRoutes,
    names: Option<NameRules>,
) -> String {
    let versions = IpFamily::BOTH;
    let listeners = versions.map(|version| (version, PRINTED_PORT)).to_vec();
    let rules = Rules {
        names,
        lans,
        bridges: find_filtered(&config.interfaces),
        can_withhold: true,
        watched: true,
        can_refuse: true,
        ..rules(config, policies, listeners)
    };
    let slot = GatewaySlot(0);
    format!(
        "# A running gateway uses the first free table and any free port, and follows routes and bridges.\n\
         {}{}\n",
        routing::display(slot, "lo", &versions),
        rules.display(slot, scope)
    )
}

pub(super) fn rules(
    config: &InterceptConfig,
    policies: &[TrafficPolicy],
    listeners: Vec<(IpFamily, u16)>,
) -> Rules {
    Rules {
        interfaces: config.interfaces.clone(),
        policies: policies.to_vec(),
        exemptions: PassExemptions::default(),
        unanswered: Vec::new(),
        lans: LanRoutes::default(),
        bridges: Vec::new(),
        can_withhold: false,
        watched: false,
        can_refuse: false,
        listeners,
        deferred: config.answer == AnswerTiming::Deferred,
        own_traffic: config.own_traffic,
        names: None,
    }
}

/// Binds a listener for each IP version. Also returns the reason why IPv6 has none.
fn bind() -> Result<(Vec<Listener>, Option<KernelRefusal>), KernelRefusal> {
    let mut listeners = Vec::new();
    let without_v6 = routing::for_versions(&IpFamily::BOTH, |version| {
        listeners.push(
            Listener::bind(version)
                .map_err(KernelRefusal::wrap(KernelOperation::Listener(version)))?,
        );
        Ok(())
    })?;
    Ok((listeners, without_v6))
}

/// Ports of the listeners that connections can be redirected to: without rules and routes of IPv6, those of
/// IPv4 only.
fn usable(listeners: &[Listener], with_v6: bool) -> Vec<(IpFamily, u16)> {
    let ports = listeners.iter().map(Listener::port);
    ports.filter(|(version, _)| with_v6 || *version == IpFamily::V4).collect()
}

fn versions(listeners: &[Listener]) -> Vec<IpFamily> {
    listeners.iter().map(|listener| listener.port().0).collect()
}
