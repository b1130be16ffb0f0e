//! A terminal's way around a network that blocks UDP: does what [`pep::carriage::Fallback`] decides.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use pep::carriage::{Carriage, Fallback, Step};
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use units::Instant;

use crate::clock;
use crate::doctor::knock::Knock;
use crate::hop::tcp::TcpLinks;

/// How long a connection that is no longer used stays open, for what the hub still sends over it.
const LINGER: Duration = Duration::from_secs(5);

/// The carrier of a terminal's datagrams; without `hub_tcp` always UDP.
pub(super) struct TcpFallback(Option<Active>);

struct Active {
    fallback: Fallback,
    /// Key `hub_tcp`.
    hub: String,
    links: TcpLinks,
    /// Mark of packets that the terminal itself must not intercept.
    mark: Option<u32>,
    knock: Knock,
    tasks: JoinSet<Done>,
    /// The newest connection.
    newest: Option<SocketAddr>,
}

/// What has come to an end.
#[derive(Debug)]
pub(super) enum Done {
    Connected(io::Result<SocketAddr>),
    /// Whether the hub answered over UDP.
    Asked(bool),
    /// A step is due.
    Time,
}

impl TcpFallback {
    pub(super) fn new(
        now: Instant,
        hub: Option<String>,
        links: TcpLinks,
        mark: Option<u32>,
        knock: Knock,
    ) -> Self {
        let fallback = Fallback::new(now);
        let active =
            |hub| Active { fallback, hub, links, mark, knock, tasks: JoinSet::new(), newest: None };
        Self(hub.map(active))
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Done {
        let Some(active) = &mut self.0 else { return std::future::pending().await };
        tokio::select! {
            Some(done) = active.tasks.join_next() => match done {
                Ok(done) => done,
                Err(error) => Done::Connected(Err(io::Error::other(error))),
            },
            () = clock::sleep_until(active.fallback.poll_timeout()) => Done::Time,
        }
    }

    pub(super) fn handle(&mut self, now: Instant, done: Done) {
        let Some(active) = &mut self.0 else { return };
        match done {
            Done::Connected(Ok(address)) => {
                active.newest = Some(address);
                active.fallback.handle_connected(now);
            }
            Done::Connected(Err(error)) => {
                tracing::debug!("cannot reach the hub over TCP at {}: {error}", active.hub);
                active.fallback.handle_refused(now);
            }
            Done::Asked(answered) => active.fallback.handle_asked(now, answered),
            Done::Time => {}
        }
        active.step(now);
    }

    /// The hub answers, or no longer does.
    pub(super) fn handle_reachable(&mut self, now: Instant, reachable: bool) {
        let Some(active) = &mut self.0 else { return };
        match reachable {
            true => active.fallback.handle_answer(now),
            false => active.fallback.handle_silence(now),
        }
        active.step(now);
    }

    /// A connection has ended.
    pub(super) fn handle_ended(&mut self, now: Instant, address: SocketAddr) {
        let Some(active) = &mut self.0 else { return };
        if active.newest.take_if(|newest| *newest == address).is_some() {
            active.fallback.handle_ended(now);
            active.step(now);
        }
    }
}

impl Active {
    fn step(&mut self, now: Instant) {
        while let Some(step) = self.fallback.poll_step(now) {
            match step {
                Step::Connect => self.connect(),
                Step::Ask => {
                    let knock = self.knock.clone();
                    self.tasks.spawn(async move { Done::Asked(knock.answered().await) });
                }
                Step::Use(carriage) => self.carry(carriage),
            }
        }
    }

    fn connect(&mut self) {
        let (hub, links, mark) = (self.hub.clone(), self.links.clone(), self.mark);
        self.tasks.spawn(async move { Done::Connected(connect(&hub, &links, mark).await) });
    }

    fn carry(&mut self, carriage: Carriage) {
        match (carriage, self.newest) {
            (Carriage::Tcp, Some(address)) => {
                tracing::warn!("the hub does not answer over UDP: going on over TCP, {address}");
                self.links.divert(Some(address));
            }
            (Carriage::Udp, Some(address)) => {
                tracing::info!("sending over UDP again");
                self.links.divert(None);
                self.newest = None;
                let links = self.links.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LINGER).await;
                    links.close(address);
                });
            }
            (_, None) => self.links.divert(None),
        }
    }
}

/// Connects to the first of the hub's addresses that accepts.
async fn connect(hub: &str, links: &TcpLinks, mark: Option<u32>) -> io::Result<SocketAddr> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in lookup_host(hub).await? {
        match links.connect(address, mark).await {
            Ok(()) => return Ok(address),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
