//! The terminal side: takes over the connections of its clients while the hub
//! can be reached, and lets new ones pass by while it cannot.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use slacp::{Endpoint, Event, SessionId};
use tokio::time::{Instant, sleep_until};

use crate::config::TerminalConfig;
use crate::error::RunError;
use crate::gateway::{DialPolicy, Gateway, Report, Side, bind, say_ready};
use crate::hop::HopEvent;
use crate::interception::Interception;
use crate::keys::random_bytes;
use crate::listener::Accept;

/// How long new connections pass by after the process ran out of descriptors.
const RECOVERY: Duration = Duration::from_secs(1);

/// Runs a terminal until `shutdown` completes, then leaves the machine as it
/// was. Prints the line `ready` on standard output when it first takes
/// connections over.
///
/// # Errors
/// When it cannot start ([`RunError::is_setup`]) or its socket fails.
pub async fn run(
    config: TerminalConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let hubs = resolve(&config).await?;
    let interception = Interception::install(&config.intercept)?;
    let link = bind(config.listen.unwrap_or_else(|| any_address(&hubs)))?;
    let seed = random_bytes().map_err(RunError::Randomness)?;
    let identity = config.identity.pair();
    let looking = hubs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let endpoint = Endpoint::terminal(config.link, identity, config.hub_key, hubs, seed);
    let policy = DialPolicy { timeout: config.connect_timeout, allow_loopback: false };
    let gateway = Gateway::start(Side::Terminal, endpoint, link, policy)?;
    tracing::info!(
        "looking for the hub at {looking}: connections pass unaccelerated until it answers"
    );
    let mut terminal = Terminal {
        gateway,
        interception,
        session: None,
        reachable: false,
        paused_until: None,
        told_ready: false,
    };
    let result = terminal.serve(shutdown).await;
    // New connections first: from here on they pass by.
    drop(terminal.interception);
    terminal.gateway.stop().await;
    result
}

struct Terminal {
    gateway: Gateway,
    interception: Interception,
    session: Option<SessionId>,
    reachable: bool,
    paused_until: Option<Instant>,
    told_ready: bool,
}

impl Terminal {
    async fn serve(&mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut shutdown = pin!(shutdown);
        loop {
            let resume = self.paused_until.unwrap_or_else(Instant::now);
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                report = self.gateway.report() => match report {
                    Report::Hop(event) => self.handle(event),
                    Report::Failed(error) => return Err(error),
                },
                accept = self.interception.accept() => self.take(accept),
                () = sleep_until(resume), if self.paused_until.is_some() => {
                    self.paused_until = None;
                }
            }
            self.set_interception()?;
        }
    }

    fn handle(&mut self, event: HopEvent) {
        match event {
            HopEvent::Opened(stream, open) => self.gateway.answer(stream, open),
            HopEvent::Session(session, Event::Up { address, .. }) => {
                tracing::info!("session up with the hub at {address}");
                (self.session, self.reachable) = (Some(session), true);
            }
            HopEvent::Session(session, event) if self.session == Some(session) => {
                self.follow(&event);
            }
            HopEvent::Session(..) => {}
        }
    }

    /// What happens to the session in use.
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Unreachable => {
                tracing::warn!("hub unreachable: new connections pass unaccelerated");
                self.reachable = false;
            }
            Event::Reachable => {
                tracing::info!("hub reachable again");
                self.reachable = true;
            }
            Event::Down => {
                tracing::warn!("session with the hub lost: its connections are reset");
                (self.session, self.reachable) = (None, false);
            }
            _ => {}
        }
    }

    fn take(&mut self, accept: Accept) {
        match (accept, self.session) {
            (Accept::Connection(accepted), Some(session)) => {
                self.gateway.originate(session, accepted);
            }
            // Taken over in the last moment of the session.
            (Accept::Connection(accepted), None) => crate::tcp::reset(accepted.socket),
            (Accept::Nothing, _) => {}
            (Accept::Exhausted(error), _) => {
                self.gateway.counters().exhausted.increment();
                if self.paused_until.is_none() {
                    tracing::warn!("new connections pass unaccelerated for a while: {error}");
                }
                self.paused_until = Some(Instant::now() + RECOVERY);
            }
        }
    }

    /// Takes connections over exactly while that is of use.
    fn set_interception(&mut self) -> Result<(), RunError> {
        let wanted = self.reachable && self.paused_until.is_none();
        if wanted == self.interception.is_on() {
            return Ok(());
        }
        if !wanted {
            return self.interception.stop();
        }
        self.interception.start()?;
        if !self.told_ready {
            self.told_ready = true;
            say_ready();
        }
        Ok(())
    }
}

/// The addresses of the hub that our socket can reach.
async fn resolve(config: &TerminalConfig) -> Result<Vec<SocketAddr>, RunError> {
    let hub = config.hub.as_str();
    let failed = |cause| RunError::Resolve { hub: hub.to_owned(), cause };
    let mut addresses: Vec<SocketAddr> =
        tokio::net::lookup_host(hub).await.map_err(failed)?.collect();
    if let Some(local) = config.listen {
        addresses.retain(|address| local.is_ipv6() || address.is_ipv4());
    }
    if addresses.is_empty() {
        return Err(failed(std::io::ErrorKind::AddrNotAvailable.into()));
    }
    Ok(addresses)
}

/// A socket of the hub's family, or of both.
fn any_address(hubs: &[SocketAddr]) -> SocketAddr {
    if hubs.iter().all(SocketAddr::is_ipv4) {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}
