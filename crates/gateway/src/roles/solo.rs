//! A single gateway: splits connections in two, with kernel TCP settings for each side. Needs no
//! counterpart at the other end.
//!
//! The gateway never intercepts its own connections to servers: they originate on this machine, and
//! with `own_traffic` they bear a mark.

mod server;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use config::SoloConfig;
use control::Role;
use control::status::GatewayStatus;
use pep::admission::BypassReason;
use pep::egress::EgressRules;
use pep::traffic::TrafficPolicy;
use tokio::task::{JoinError, JoinSet};
use units::Instant;

use self::server::Server;
use crate::config::read_solo;
use crate::figures::connections::ArrivingConnection;
use crate::figures::counters::GatewayCounters;
use crate::hop::peers::PeerTable;
use crate::intercept::intake::{self, Intake};
use crate::intercept::netfilter::Scope;
use crate::intercept::own::OwnAddresses;
use crate::intercept::{self, ClientArrival, IntakeEvent, Interception};
use crate::network::nft::policy;
use crate::network::nft::rule::PASS_MARK;
use crate::network::side_settings::SocketSettings;
use crate::operate::{GatewayOperations, GatewayView, interception_status};
use crate::process::clock;
use crate::process::error::RunError;
use crate::process::runtime::log_panic;
use crate::relay::dial::{self, Dialer};
use crate::roles::{self, RunningRole};
use crate::services::proxy::{ProxyService, ProxyUpstream, UncarriedAction};
use crate::services::{self, Config, Ready, Services, Surroundings, Uplink};
use crate::stack::{self, StackEvent, WanStack};

/// Time for which new connections pass unaccelerated after the descriptors ran out.
const RECOVERY: Duration = Duration::from_secs(1);

/// Runs a solo gateway until `shutdown` completes, then removes everything it installed. Prints
/// `ready` on standard output when in service.
///
/// # Errors
/// If it cannot start ([`RunError::is_setup`]).
pub async fn run(config: SoloConfig, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    let (ops, solo) = Solo::start(config).await?;
    roles::run(ops, solo, shutdown).await
}

/// The rules that a solo gateway with `config` installs, in nft and ip syntax.
pub fn print_rules(config: &SoloConfig) -> String {
    let rules = intercept::print_solo_rules(config);
    match &config.stack {
        Some(stack) => format!("{rules}{}", stack::print(stack, &config.policies)),
        None => rules,
    }
}

struct Solo {
    counters: Arc<GatewayCounters>,
    intake: Option<Intake>,
    policies: Vec<TrafficPolicy>,
    services: Services,
    server: Server,
    stack: Option<WanStack>,
    /// Brings the replies to our connections that use the addresses of clients; with `transparent`, if nothing
    /// else does.
    _replies: Option<Interception>,
    relays: JoinSet<()>,
}

/// An event for a solo gateway's main loop.
enum SoloEvent {
    /// A client's connection at the interception, or a change there.
    Arrival(IntakeEvent),
    /// A service has work to do.
    Service(Ready),
    /// At our own TCP towards servers.
    Stack(StackEvent),
    /// The process has no descriptor left for a connection.
    Exhausted,
    /// The task of a connection has ended.
    Ended(Result<(), JoinError>),
}

impl RunningRole for Solo {
    type Event = SoloEvent;

    fn view(&self) -> GatewayView<'_> {
        GatewayView { hop: None, counters: &self.counters }
    }

    fn with_services<R>(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        work: impl FnOnce(&mut Services, &mut Surroundings<'_>) -> R,
    ) -> R {
        let is_open = ops.bypass_reason(self.view()).is_none();
        let Self { services, counters, relays, .. } = self;
        let mut surroundings = Surroundings {
            now,
            hop: None,
            counters,
            relays,
            peers: &mut ops.peers,
            uplink: Uplink { is_open, ..Uplink::default() },
            hub: None,
            keys: None,
        };
        work(services, &mut surroundings)
    }

    fn role_status(&self, now: Instant) -> GatewayStatus {
        let mut status = interception_status(now, self.intake.as_ref(), &self.policies);
        if let Some(stack) = &self.stack {
            status.stack = Some(stack.status());
            policy::add_counts(&mut status.policies, &stack.counts());
        }
        status
    }

    async fn next(&mut self) -> SoloEvent {
        tokio::select! {
            arrival = intake::next(&mut self.intake) => SoloEvent::Arrival(arrival),
            ready = self.services.next() => SoloEvent::Service(ready),
            event = stack::next(&mut self.stack) => SoloEvent::Stack(event),
            () = self.server.exhausted.notified() => SoloEvent::Exhausted,
            Some(ended) = self.relays.join_next() => SoloEvent::Ended(ended),
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        event: SoloEvent,
    ) -> Result<(), RunError> {
        match event {
            SoloEvent::Arrival(arrived) => {
                let arrival = self.intake.as_mut().and_then(|intake| intake.handle(now, arrived));
                arrival.into_iter().for_each(|arrival| self.carry(arrival));
            }
            SoloEvent::Service(ready) => {
                self.with_services(now, ops, |services, role| services.work(role, ready));
            }
            SoloEvent::Stack(StackEvent::Incoming(incoming)) => {
                self.relays.spawn(self.server.clone().admit(incoming));
            }
            SoloEvent::Stack(StackEvent::Failed(error)) => return Err(error),
            SoloEvent::Exhausted => {
                self.counters.exhausted.increment();
                let pause =
                    |intake: &mut Intake| intake.pause(now, RECOVERY, BypassReason::Descriptors);
                self.intake.iter_mut().for_each(pause);
            }
            SoloEvent::Ended(ended) => log_panic(ended),
        }
        Ok(())
    }

    fn set_interception(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
    ) -> Result<bool, RunError> {
        let wanted = ops.bypass_reason(self.view()).map_or(Ok(Scope::Everything), Err);
        self.stack.iter_mut().try_for_each(|stack| stack.accept(wanted.is_ok()))?;
        // A solo gateway has no peer that could be away.
        let offline = Scope::Nothing;
        let mut intakes = self.intake.iter_mut();
        intakes.try_for_each(|intake| intake.set_scope(now, wanted.clone(), offline.clone()))?;
        Ok(true)
    }

    fn housekeep(&mut self, now: Instant, ops: &mut GatewayOperations) {
        ops.evict_idle(now, self.view(), false);
        self.intake.iter_mut().for_each(Intake::follow_routes);
        if let Some(stack) = &mut self.stack {
            stack.follow_routes();
            self.counters.in_stack.set(stack.held());
        }
    }

    fn reload(&mut self, now: Instant, ops: &mut GatewayOperations) -> Result<Vec<String>, String> {
        let config = read_solo(&ops.file()?).map_err(|error| error.to_string())?;
        for (section, side) in [("lan", &config.lan), ("wan", &config.wan)] {
            side.check(section).map_err(|error| error.to_string())?;
        }
        if let (Some(intake), Some(intercept)) = (&mut self.intake, &config.intercept) {
            intake.configure(intercept, &config.policies).map_err(|error| error.to_string())?;
            intake.prepare(&config.lan);
        }
        if let (Some(stack), Some(config_of_stack)) = (&mut self.stack, &config.stack) {
            let configured = stack.configure(config_of_stack, &config.policies);
            configured.map_err(|error| error.to_string())?;
        }
        let stack = dialling(self.stack.as_ref()).map_err(|error| error.to_string())?;
        let dialer = dialer(&config).map_err(|error| error.to_string())?;
        let dialer = Dialer { stack, ..dialer };
        let changed = Config::Solo { config: &config, dialer: &dialer };
        let configured =
            self.with_services(now, ops, |services, role| services.configure(role, changed));
        configured.map_err(|error| error.to_string())?;
        // What may be refused comes first: from here on nothing fails.
        self.server.configure(dialer, inward(&config), &config);
        self.policies = config.policies;
        self.counters.keepalive.set(config.operation.keepalive);
        let notes = ops.configure(config.operation);
        self.counters.live.set_limit(ops.most_connections());
        Ok(notes)
    }

    async fn stop(mut self) {
        self.stack.iter_mut().for_each(|stack| {
            // Fails if the kernel refuses, but the table disappears with the process anyway. Until then, new
            // connections pass unaccelerated.
            let _ = stack.accept(false);
        });
        self.services.stop();
        drop(self.intake);
        self.relays.shutdown().await;
        if let Some(stack) = self.stack {
            stack.stop();
        }
        tracing::info!("stopped: {}", self.counters.summary_without_hop());
    }
}

impl Solo {
    async fn start(config: SoloConfig) -> Result<(GatewayOperations, Self), RunError> {
        let now = clock::now();
        // Tried here, since a refused setting would otherwise fail on each connection.
        config.lan.check("lan")?;
        config.wan.check("wan")?;
        let counters = Arc::new(GatewayCounters::default());
        counters.keepalive.set(config.operation.keepalive);
        let install = |intercept| Interception::install_for_solo(intercept, &config.policies);
        let interception = config.intercept.as_ref().map(install).transpose()?;
        if let Some(interception) = &interception {
            interception.prepare(&config.lan);
        }
        let proxy = services::listen_as_proxy(&config.proxy).await?;
        proxy.iter().for_each(|proxy| proxy.prepare(&config.lan));
        let most = config.operation.max_connections;
        let stack = config
            .stack
            .as_ref()
            .map(|stack| WanStack::install(stack, &config.policies, most, counters.clone()));
        let stack = stack.transpose()?;
        // With an interception, its own rules bring the replies.
        let alone = stack.is_some() && interception.is_none() && config.transparent;
        let replies = alone.then(Interception::install_for_replies).transpose()?;
        let ops =
            GatewayOperations::start(now, Role::Solo, None, &config.operation, PeerTable::none())?;
        let dialer = Dialer { stack: dialling(stack.as_ref())?, ..dialer(&config)? };
        let mut services = Services::default();
        services.add(proxy.map(|proxy| {
            let upstream = upstream(&dialer, &config, &counters);
            ProxyService::new(proxy, upstream, UncarriedAction::Refused)
        }));
        let solo = Self {
            intake: interception
                .map(|interception| Intake::new(now, interception, counters.clone())),
            services,
            server: Server::new(dialer, inward(&config), &config, counters.clone()),
            policies: config.policies,
            stack,
            _replies: replies,
            relays: JoinSet::new(),
            counters,
        };
        Ok((ops, solo))
    }

    fn carry(&mut self, arrival: ClientArrival) {
        let server = self.server.clone();
        let arriving = ArrivingConnection::new(self.counters.clone(), arrival.open().source.ip());
        self.relays.spawn(async move {
            // What follows enters it in the register, without waiting for anything.
            drop(arriving);
            match arrival {
                ClientArrival::Connection(accepted) => server.connect(accepted).await,
                ClientArrival::Deferred(deferred) => server.answer(deferred).await,
            }
        });
    }
}

/// The upstream of the proxy: connections to servers, with the settings of the LAN for its clients.
fn upstream(
    dialer: &Dialer,
    config: &SoloConfig,
    counters: &Arc<GatewayCounters>,
) -> ProxyUpstream {
    let upstream = ProxyUpstream::new(Default::default(), dialer.clone(), counters.clone());
    upstream.with_quick_ack(config.lan.quick_ack)
}

/// Permitted destinations: the operator's, plus loopback addresses if configured.
fn egress(config: &SoloConfig) -> EgressRules {
    match config.allow_loopback {
        true => EgressRules::everywhere().and_loopback(),
        false => EgressRules::everywhere(),
    }
}

/// The mark of the gateway's own connections, which must not be intercepted again.
fn mark(config: &SoloConfig) -> Option<u32> {
    let is_intercepted = config.intercept.as_ref().is_some_and(|intercept| intercept.own_traffic);
    is_intercepted.then_some(PASS_MARK.value)
}

/// Settings of connections to servers.
fn dialer(config: &SoloConfig) -> Result<Dialer, RunError> {
    // Whoever may reach loopback may reach the machine's other addresses.
    let own = (!config.allow_loopback).then(OwnAddresses::open).transpose()?;
    Ok(Dialer {
        side: Arc::new(config.wan.clone()),
        timeout: config.connect_timeout,
        egress: egress(config),
        own,
        mark: mark(config),
        stack: None,
    })
}

/// The part of our own TCP that a dialer uses; `None` for the kernel's.
fn dialling(stack: Option<&WanStack>) -> Result<Option<dial::StackDialer>, RunError> {
    let Some(stack) = stack else { return Ok(None) };
    Ok(Some(dial::StackDialer { caller: stack.caller(), own: OwnAddresses::open()? }))
}

/// Settings of connections to hosts on the LAN, for connections from the WAN side.
fn inward(config: &SoloConfig) -> Dialer {
    Dialer {
        side: Arc::new(config.lan.clone()),
        timeout: config.connect_timeout,
        egress: EgressRules::everywhere(),
        own: None,
        mark: mark(config),
        stack: None,
    }
}
