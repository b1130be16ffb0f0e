//! A terminal's way around a network that blocks UDP: does what [`pep::hubs::carriage::TransportFallback`] decides,
//! for one hub and one link.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use config::TcpAddress;
use pep::hubs::carriage::{FallbackStep, HopTransport, TransportFallback};
use slacp::SessionId;
use units::Instant;

use crate::hop::knock::HubProbe;
use crate::hop::sockets::LocalEnd;
use crate::hop::tcp::{ConnectionId, TcpLinks};

/// Time for which a connection that is no longer used stays open: the hub may still send over it.
const LINGER: Duration = Duration::from_secs(5);

/// The carrier of the datagrams of a link for a hub that takes TCP, too.
pub(super) struct TcpFallback {
    fallback: TransportFallback,
    /// The local end of the link, from which connections are made.
    end: LocalEnd,
    /// Where the hub listens on TCP.
    at: TcpAddress,
    links: TcpLinks,
    /// Mark of packets that the terminal itself must not intercept.
    mark: Option<u32>,
    /// The newest connection, and where it leads.
    newest: Option<(ConnectionId, SocketAddr)>,
    /// The connection that carries the datagrams now; `None` while UDP does.
    used: Option<ConnectionId>,
}

/// Result of a [`FallbackTask`], for [`TcpFallback::handle`].
#[derive(Debug)]
pub(super) enum FallbackTaskResult {
    /// The new connection and its far end.
    Connected(io::Result<(ConnectionId, SocketAddr)>),
    /// True if the hub answered over UDP.
    Asked(bool),
}

/// Work that must not delay the terminal's main loop.
pub(super) enum FallbackTask {
    Connect { at: TcpAddress, links: TcpLinks, end: LocalEnd, mark: Option<u32> },
    Ask(Box<HubProbe>),
}

impl FallbackTask {
    pub(super) async fn run(self) -> FallbackTaskResult {
        match self {
            Self::Connect { at, links, end, mark } => {
                FallbackTaskResult::Connected(links.connect_to(&at, &end, mark).await)
            }
            Self::Ask(probe) => FallbackTaskResult::Asked(probe.answered().await),
        }
    }
}

impl TcpFallback {
    /// Creates the fallback for a hub that accepts TCP at `at`. The hub counts as answering
    /// until [`Self::handle_silence`].
    pub(super) fn new(
        now: Instant,
        at: TcpAddress,
        links: TcpLinks,
        end: LocalEnd,
        mark: Option<u32>,
    ) -> Self {
        let mut fallback = TransportFallback::new(now);
        fallback.handle_answer(now);
        Self { fallback, end, at, links, mark, newest: None, used: None }
    }

    /// The number of the link.
    pub(super) fn link(&self) -> u8 {
        self.end.link
    }

    pub(super) fn handle(&mut self, now: Instant, result: FallbackTaskResult) {
        match result {
            FallbackTaskResult::Connected(Ok(connection)) => {
                self.newest = Some(connection);
                self.fallback.handle_connected(now);
            }
            FallbackTaskResult::Connected(Err(error)) => {
                tracing::debug!("cannot reach the hub over TCP at {}: {error}", self.at);
                self.fallback.handle_refused(now);
            }
            FallbackTaskResult::Asked(answered) => self.fallback.handle_asked(now, answered),
        }
    }

    /// The hub is waited for, but does not answer.
    pub(super) fn handle_silence(&mut self, now: Instant) {
        self.fallback.handle_silence(now);
    }

    /// The hub answers, or need not.
    pub(super) fn handle_answer(&mut self, now: Instant) {
        self.fallback.handle_answer(now);
    }

    /// Another process takes over from the one that the session is with, whose connection it keeps.
    /// Returns whether a new connection is on its way for sessions with the next one.
    pub(super) fn handle_successor(&mut self, now: Instant, session: SessionId) -> bool {
        self.links.pin((session, self.end.link));
        self.fallback.handle_successor(now)
    }

    /// Handles the end of a TCP connection, which may be another fallback's.
    pub(super) fn handle_ended(&mut self, now: Instant, id: ConnectionId) {
        if self.newest.take_if(|(newest, _)| *newest == id).is_some() {
            self.fallback.handle_ended(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.fallback.poll_timeout()
    }

    /// Takes the steps that are due, for the hub with this name and these UDP addresses. `probe` makes the
    /// question that it is asked. Returns a task to run; repeat until `None`.
    pub(super) fn step(
        &mut self,
        now: Instant,
        name: &str,
        addresses: &[SocketAddr],
        probe: impl Fn() -> HubProbe,
    ) -> Option<FallbackTask> {
        while let Some(step) = self.fallback.poll_step(now) {
            match step {
                FallbackStep::Connect => {
                    return Some(FallbackTask::Connect {
                        at: self.at.clone(),
                        links: self.links.clone(),
                        end: self.end.clone(),
                        mark: self.mark,
                    });
                }
                FallbackStep::Ask => {
                    let probe = probe().over_link(self.end.clone());
                    return Some(FallbackTask::Ask(Box::new(probe)));
                }
                FallbackStep::Use(carriage) => self.carry(carriage, name, addresses),
            }
        }
        None
    }

    fn carry(&mut self, carriage: HopTransport, name: &str, addresses: &[SocketAddr]) {
        let by = self.end.name.as_ref().map_or(String::new(), |link| format!(" on {link}"));
        match (carriage, self.newest) {
            (HopTransport::Tcp, Some((id, over))) => {
                match self.used.replace(id) {
                    // The hub is silent on it, or has a new process: sessions of the former one are pinned.
                    Some(before) if before != id => self.links.close(before),
                    Some(_) => {}
                    None => tracing::warn!(
                        "{name} does not answer over UDP{by}: going on over TCP, {over}"
                    ),
                }
                self.links.divert(self.end.link, addresses, Some(id));
            }
            (HopTransport::Udp, Some((id, _))) => {
                tracing::info!("{name}: sending over UDP again{by}");
                self.links.divert(self.end.link, addresses, None);
                self.newest = None;
                self.used = None;
                let links = self.links.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LINGER).await;
                    links.close(id);
                });
            }
            // Without a connection only UDP is left.
            (_, None) => {
                self.used = None;
                self.links.divert(self.end.link, addresses, None);
            }
        }
    }
}
