//! A single gateway: splits connections in two, with kernel TCP settings for each side. Needs no
//! counterpart at the other end.
//!
//! The gateway never intercepts its own connections to servers: they originate on this machine, and
//! with `own_traffic` they bear a mark.

mod server;
pub(crate) mod window;
mod windows;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pep::admission::Bypass;
use pep::config::SoloConfig;
use pep::egress::Egress;
use pep::traffic::Policy;
use tokio::task::JoinSet;

use self::server::Server;
use self::windows::Windows;
use crate::config::read_solo;
use crate::error::RunError;
use crate::gateway::{say_ready, tell_panic};
use crate::hop::peers::Peers;
use crate::intercept::intake::{self, Intake};
use crate::intercept::netfilter::{PASSING, Scope};
use crate::intercept::{self, Arrival, Interception};
use crate::operate::counters::Counters;
use crate::operate::status::Role;
use crate::operate::{Operations, Own, Task, View};
use crate::proxy::{self, Exit, Proxy, Wish};
use crate::relay::dial::Dialer;
use crate::relay::side::Settings;

/// How long new connections pass unaccelerated after the descriptors ran out.
const RECOVERY: Duration = Duration::from_secs(1);

/// Runs a solo gateway until `shutdown` completes, then removes everything it installed. Prints
/// `ready` on standard output when in service.
///
/// # Errors
/// If it cannot start ([`RunError::is_setup`]).
pub async fn run(config: SoloConfig, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    let mut solo = Solo::start(config).await?;
    let result = solo.serve(shutdown).await;
    solo.ops.stop(View { hop: None, counters: &solo.counters });
    // Interception goes first: from here on new connections pass unaccelerated.
    drop((solo.intake, solo.proxy));
    solo.relays.shutdown().await;
    tracing::info!("stopped: {}", solo.counters.straight_only());
    result
}

/// The rules, routes and table that a solo gateway with `config` installs, in nft and ip syntax.
pub fn print_rules(config: &SoloConfig) -> String {
    intercept::print_solo_rules(config)
}

struct Solo {
    counters: Arc<Counters>,
    ops: Operations,
    intake: Option<Intake>,
    policies: Vec<Policy>,
    proxy: Option<Proxy>,
    exit: Exit,
    server: Server,
    windows: Windows,
    relays: JoinSet<()>,
}

impl Solo {
    async fn start(config: SoloConfig) -> Result<Self, RunError> {
        config.lan.check("lan")?;
        config.wan.check("wan")?;
        let windows = Windows::install(&config.lan, &config.wan)?;
        let counters = Arc::new(Counters::default());
        counters.keepalive.set(config.operation.keepalive);
        let install = |intercept| Interception::install(intercept, &config.policies);
        let interception = config.intercept.as_ref().map(install).transpose()?;
        if let Some(interception) = &interception {
            interception.prepare(&config.lan, windows.lan_mark());
        }
        let proxy = match config.proxy.clone() {
            Some(proxy) => Some(Proxy::listen(proxy).await?),
            None => None,
        };
        proxy.iter().for_each(|proxy| proxy.prepare(&config.lan, windows.lan_mark()));
        let ops = Operations::start(Role::Solo, &config.operation, Peers::none())?;
        let dialer = dialer(&config, &windows);
        Ok(Self {
            ops,
            intake: interception.map(|it| Intake::new(it, counters.clone())),
            proxy,
            exit: exit(&dialer, &config, &counters),
            server: Server::new(dialer, &config, counters.clone()),
            policies: config.policies,
            windows,
            relays: JoinSet::new(),
            counters,
        })
    }

    fn view(&self) -> View<'_> {
        View { hop: None, counters: &self.counters }
    }

    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut shutdown = pin!(shutdown);
        self.set_interception()?;
        say_ready();
        self.ops.say_ready();
        while !self.ops.is_drained(self.view()) {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                task = self.ops.next() => self.attend(task),
                arrival = intake::next(&mut self.intake) => {
                    arrival.into_iter().for_each(|arrival| self.take(arrival));
                }
                wish = proxy::next(&mut self.proxy) => self.fulfil(wish),
                () = self.windows.changed() => self.windows.follow(),
                () = self.server.exhausted.notified() => {
                    self.counters.exhausted.increment();
                    let pause = |intake: &mut Intake| intake.pause(RECOVERY, Bypass::Descriptors);
                    self.intake.iter_mut().for_each(pause);
                }
                Some(ended) = self.relays.join_next() => tell_panic(ended),
            }
            self.set_interception()?;
        }
        Ok(())
    }

    /// Handles an operator's request.
    fn attend(&mut self, task: Task) {
        let view = View { hop: None, counters: &self.counters };
        match task {
            Task::Answer(call) => {
                let own = Own::of(self.intake.as_ref(), None, &self.policies);
                if let Some(call) = self.ops.answer(view, own, call) {
                    let outcome = self.reload();
                    self.ops.reloaded(call, outcome);
                }
            }
            Task::Look => {
                self.ops.look(view);
                self.intake.iter_mut().for_each(Intake::follow_routes);
            }
        }
    }

    /// Applies a changed configuration to new connections. An invalid one changes nothing.
    fn reload(&mut self) -> Result<Vec<String>, String> {
        let config = read_solo(&self.ops.file()?).map_err(|error| error.to_string())?;
        for (section, side) in [("lan", &config.lan), ("wan", &config.wan)] {
            side.check(section).map_err(|error| error.to_string())?;
        }
        if let (Some(intake), Some(intercept)) = (&mut self.intake, &config.intercept) {
            intake.configure(intercept, &config.policies).map_err(|error| error.to_string())?;
            intake.prepare(&config.lan, self.windows.lan_mark());
        }
        let mark = self.windows.lan_mark();
        self.proxy.iter().for_each(|proxy| proxy.prepare(&config.lan, mark));
        let dialer = dialer(&config, &self.windows);
        self.exit = exit(&dialer, &config, &self.counters);
        self.server.configure(dialer, &config);
        let windows_stay = self.windows.are_of(&config.lan, &config.wan);
        self.policies = config.policies;
        self.counters.keepalive.set(config.operation.keepalive);
        let mut notes = self.ops.configure(config.operation);
        if !windows_stay {
            let note = "these need a restart: initial_window, initial_receive_window";
            notes.push(note.to_owned());
        }
        Ok(notes)
    }

    /// Intercepts connections while there is room for them.
    fn set_interception(&mut self) -> Result<(), RunError> {
        let hindrance = self.ops.hindrance(View { hop: None, counters: &self.counters });
        let wanted = hindrance.map_or(Ok(Scope::Everything), Err);
        self.intake.iter_mut().try_for_each(|intake| intake.set(wanted.clone()))
    }

    fn take(&mut self, arrival: Arrival) {
        let server = self.server.clone();
        match arrival {
            Arrival::Connection(accepted) => self.relays.spawn(server.connect(accepted)),
            Arrival::Question(question) => self.relays.spawn(server.answer(question)),
        };
    }

    fn fulfil(&mut self, wish: Wish) {
        let exit = self.exit.clone();
        match self.ops.hindrance(self.view()) {
            None => self.relays.spawn(proxy::carry(wish, None, exit)),
            Some(_) => self.relays.spawn(proxy::turn_away(wish, exit)),
        };
    }
}

/// How the proxy reaches servers.
fn exit(dialer: &Dialer, config: &SoloConfig, counters: &Arc<Counters>) -> Exit {
    let exit = Exit::new(Default::default(), dialer.clone(), counters.clone());
    exit.acknowledging_at_once(config.lan.quick_ack)
}

/// Permitted destinations: the operator's, plus loopback addresses if configured.
fn egress(config: &SoloConfig) -> Egress {
    match config.allow_loopback {
        true => Egress::everywhere().and_loopback(),
        false => Egress::everywhere(),
    }
}

/// How servers are connected to.
fn dialer(config: &SoloConfig, windows: &Windows) -> Dialer {
    let marked = config.intercept.as_ref().is_some_and(|it| it.own_traffic);
    let passing = if marked { PASSING.value } else { 0 };
    let mark = passing | windows.wan_mark().unwrap_or_default();
    Dialer {
        side: Arc::new(config.wan.clone()),
        timeout: config.connect_timeout,
        egress: egress(config),
        own: None,
        mark: (mark != 0).then_some(mark),
    }
}
