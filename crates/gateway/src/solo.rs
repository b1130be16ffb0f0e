//! One gateway alone: splits connections in two, each with the kernel's TCP set
//! up for its side. Nothing is needed at the other end.
//!
//! Its own connections to servers never come back to us: they begin on this
//! machine, and where its own traffic is taken over too, they bear a mark.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use slacp::Open;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::config::{Answer, SoloConfig};
use crate::counters::Counters;
use crate::deferral::Question;
use crate::dial::{self, Dialer};
use crate::error::RunError;
use crate::gateway::{say_ready, tell_panic};
use crate::intake::{self, Intake};
use crate::interception::{self, Arrival, Interception};
use crate::leg::{Leg, PATIENCE};
use crate::listener::{Accepted, is_exhaustion};
use crate::netfilter::{PASSING, Scope};
use crate::proxy::{self, Exit, Proxy, Wish};
use crate::status::Bypass;
use crate::straight;

/// How long a connection waits when there is no descriptor for its other half.
const RECOVERY: Duration = Duration::from_secs(1);

/// Runs a solo gateway until `shutdown` completes, then leaves the machine as it
/// was. Prints the line `ready` on standard output when it serves.
///
/// # Errors
/// When it cannot start ([`RunError::is_setup`]).
pub async fn run(config: SoloConfig, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    config.lan.check("lan")?;
    config.wan.check("wan")?;
    let counters = Arc::new(Counters::default());
    let interception = config.intercept.as_ref().map(Interception::install).transpose()?;
    if let Some(interception) = &interception {
        interception.prepare(&config.lan);
    }
    let marked = config.intercept.as_ref().is_some_and(|it| it.own_traffic);
    let dialer = Dialer {
        side: Arc::new(config.wan),
        timeout: config.connect_timeout,
        allow_loopback: config.allow_loopback,
        mark: marked.then_some(PASSING.value),
    };
    let mut solo = Solo {
        intake: interception.map(|it| Intake::new(it, counters.clone())),
        proxy: None,
        exit: Exit::new(Answer::default(), dialer.clone(), counters.clone()),
        server: Server {
            dialer,
            transparent: config.transparent,
            counters,
            exhausted: Arc::default(),
        },
        relays: JoinSet::new(),
    };
    if let Some(proxy) = config.proxy {
        let proxy = Proxy::listen(proxy).await?;
        proxy.prepare(&config.lan);
        solo.proxy = Some(proxy);
    }
    let result = solo.serve(shutdown).await;
    // New connections first: from here on they pass by.
    drop((solo.intake, solo.proxy));
    solo.relays.shutdown().await;
    tracing::info!("stopped: {}", solo.server.counters.straight_only());
    result
}

/// The rules, routes and table that a solo gateway with `config` sets, in the
/// syntax of nft and ip, for people to read.
pub fn print_rules(config: &SoloConfig) -> String {
    interception::print_solo_rules(config)
}

struct Solo {
    intake: Option<Intake>,
    proxy: Option<Proxy>,
    exit: Exit,
    server: Server,
    relays: JoinSet<()>,
}

impl Solo {
    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut shutdown = pin!(shutdown);
        self.take_over()?;
        say_ready();
        loop {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                arrival = intake::next(&mut self.intake) => {
                    arrival.into_iter().for_each(|arrival| self.take(arrival));
                }
                wish = proxy::next(&mut self.proxy) => self.fulfil(wish),
                () = self.server.exhausted.notified() => {
                    self.server.counters.exhausted.increment();
                    let pause = |intake: &mut Intake| intake.pause(RECOVERY, Bypass::Descriptors);
                    self.intake.iter_mut().for_each(pause);
                }
                Some(ended) = self.relays.join_next() => tell_panic(ended),
            }
            self.take_over()?;
        }
    }

    fn take_over(&mut self) -> Result<(), RunError> {
        self.intake.iter_mut().try_for_each(|intake| intake.set(Ok(Scope::Everything)))
    }

    fn take(&mut self, arrival: Arrival) {
        let server = self.server.clone();
        match arrival {
            Arrival::Connection(accepted) => self.relays.spawn(server.connect(accepted)),
            Arrival::Question(question) => self.relays.spawn(server.answer(question)),
        };
    }

    fn fulfil(&mut self, wish: Wish) {
        self.relays.spawn(proxy::carry(wish, None, self.exit.clone()));
    }
}

/// What connects clients to their servers.
#[derive(Clone)]
struct Server {
    dialer: Dialer,
    transparent: bool,
    counters: Arc<Counters>,
    /// There is no descriptor left.
    exhausted: Arc<Notify>,
}

impl Server {
    /// Carries a connection that was taken over.
    async fn connect(self, accepted: Accepted) {
        self.counters.connections.increment();
        let leg = Leg::new(accepted.socket);
        let connected = tokio::select! {
            connected = self.dial(accepted.open) => connected,
            _ = leg.failure(|| false) => return self.counters.failed.increment(),
        };
        match connected {
            Ok(socket) => self.relay(leg, socket).await,
            // Dropping the leg resets the client: it was answered already.
            Err(error) => self.tell_failure(accepted.open, &error),
        }
    }

    /// Carries a connection that a client has asked for, once the server has
    /// answered.
    async fn answer(self, mut question: Question) {
        self.counters.connections.increment();
        let open = question.open();
        match self.dial(open).await {
            Ok(socket) if question.let_in() => match timeout(PATIENCE, question.socket()).await {
                Ok(client) => self.relay(Leg::new(client), socket).await,
                Err(_) => self.counters.reset.increment(),
            },
            Ok(_) => self.counters.reset.increment(),
            Err(error) => {
                self.tell_failure(open, &error);
                question.turn_away(dial::reason(&error));
            }
        }
    }

    async fn relay(&self, leg: Leg, socket: TcpStream) {
        self.counters.straight.increment();
        straight::relay(leg, Leg::new(socket), &[], &self.counters).await;
    }

    fn tell_failure(&self, open: Open, error: &io::Error) {
        self.counters.failed.increment();
        tracing::debug!(destination = %open.destination, "not connected: {error}");
    }

    /// Connects to the server. A client that was answered waits for a descriptor;
    /// others pass by meanwhile.
    async fn dial(&self, open: Open) -> io::Result<TcpStream> {
        // The client's address, not its port: the firewall's memory of connections
        // would take both halves for the same.
        let source = self.transparent.then(|| SocketAddr::new(open.source.ip(), 0));
        let patience = Instant::now() + self.dialer.timeout;
        loop {
            match self.dialer.connect(open.destination, source).await {
                Err(error) if is_exhaustion(&error) && Instant::now() < patience => {
                    self.exhausted.notify_one();
                    sleep(RECOVERY).await;
                }
                result => return result,
            }
        }
    }
}
