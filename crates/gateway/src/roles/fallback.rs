//! A terminal's way around a network that blocks UDP: does what [`pep::carriage::TransportFallback`] decides,
//! for one hub and one link.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use config::TcpAddress;
use pep::carriage::{FallbackStep, HopTransport, TransportFallback};
use slacp::SessionId;
use units::Instant;

use crate::hop::knock::HubProbe;
use crate::hop::sockets::LocalEnd;
use crate::hop::tcp::{ConnectionId, TcpLinks};

/// How long a connection that is no longer used stays open, for what the hub still sends over it.
const LINGER: Duration = Duration::from_secs(5);

/// The carrier of the datagrams of a link for a hub that takes TCP, too.
pub(super) struct TcpFallback {
    fallback: TransportFallback,
    /// The link.
    end: LocalEnd,
    /// Where the hub listens on TCP.
    at: TcpAddress,
    links: TcpLinks,
    /// Mark of packets that the terminal itself must not intercept.
    mark: Option<u32>,
    /// The newest connection, and where it leads.
    newest: Option<(ConnectionId, SocketAddr)>,
    /// The connection in use.
    used: Option<ConnectionId>,
}

/// What has come to an end.
#[derive(Debug)]
pub(super) enum Done {
    Connected(io::Result<(ConnectionId, SocketAddr)>),
    /// Whether the hub answered over UDP.
    Asked(bool),
}

/// What takes a while.
pub(super) enum Task {
    Connect { at: TcpAddress, links: TcpLinks, end: LocalEnd, mark: Option<u32> },
    Ask(Box<HubProbe>),
}

impl Task {
    pub(super) async fn run(self) -> Done {
        match self {
            Self::Connect { at, links, end, mark } => {
                Done::Connected(links.connect_to(&at, (&end, mark)).await)
            }
            Self::Ask(knock) => Done::Asked(knock.answered().await),
        }
    }
}

impl TcpFallback {
    /// For a hub that takes TCP at `at`. It is silent for as long as it is waited for
    /// ([`Self::handle_silence`]).
    pub(super) fn new(
        now: Instant,
        at: TcpAddress,
        links: TcpLinks,
        (end, mark): (LocalEnd, Option<u32>),
    ) -> Self {
        let mut fallback = TransportFallback::new(now);
        fallback.handle_answer(now);
        Self { fallback, end, at, links, mark, newest: None, used: None }
    }

    /// The number of the link.
    pub(super) fn link(&self) -> u8 {
        self.end.link
    }

    pub(super) fn handle(&mut self, now: Instant, done: Done) {
        match done {
            Done::Connected(Ok(connection)) => {
                self.newest = Some(connection);
                self.fallback.handle_connected(now);
            }
            Done::Connected(Err(error)) => {
                tracing::debug!("cannot reach the hub over TCP at {}: {error}", self.at);
                self.fallback.handle_refused(now);
            }
            Done::Asked(answered) => self.fallback.handle_asked(now, answered),
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

    /// A connection has ended.
    pub(super) fn handle_ended(&mut self, now: Instant, id: ConnectionId) {
        if self.newest.take_if(|(newest, _)| *newest == id).is_some() {
            self.fallback.handle_ended(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.fallback.poll_timeout()
    }

    /// Does what is due. `hub` is what sets it apart: name, UDP addresses, and how to ask it. Returns
    /// what takes a while; repeat until that is nothing.
    pub(super) fn step(
        &mut self,
        now: Instant,
        name: &str,
        addresses: &[SocketAddr],
        knock: impl Fn() -> HubProbe,
    ) -> Option<Task> {
        while let Some(step) = self.fallback.poll_step(now) {
            match step {
                FallbackStep::Connect => {
                    let (at, links) = (self.at.clone(), self.links.clone());
                    let (end, mark) = (self.end.clone(), self.mark);
                    return Some(Task::Connect { at, links, end, mark });
                }
                FallbackStep::Ask => {
                    return Some(Task::Ask(Box::new(knock().over_link(self.end.clone()))));
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
                (self.newest, self.used) = (None, None);
                let links = self.links.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LINGER).await;
                    links.close(id);
                });
            }
            (_, None) => {
                self.used = None;
                self.links.divert(self.end.link, addresses, None);
            }
        }
    }
}
