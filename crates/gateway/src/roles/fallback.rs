//! A terminal's way around a network that blocks UDP: does what [`pep::carriage::Fallback`] decides,
//! for one hub.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use pep::carriage::{Carriage, Fallback, Step};
use pep::config::TcpAddress;
use units::Instant;

use crate::doctor::knock::Knock;
use crate::hop::tcp::TcpLinks;

/// How long a connection that is no longer used stays open, for what the hub still sends over it.
const LINGER: Duration = Duration::from_secs(5);

/// The carrier of the datagrams for a hub that takes TCP, too.
pub(super) struct TcpFallback {
    fallback: Fallback,
    /// Where the hub listens on TCP.
    at: TcpAddress,
    links: TcpLinks,
    /// Mark of packets that the terminal itself must not intercept.
    mark: Option<u32>,
    /// The newest connection.
    newest: Option<SocketAddr>,
}

/// What has come to an end.
#[derive(Debug)]
pub(super) enum Done {
    Connected(io::Result<SocketAddr>),
    /// Whether the hub answered over UDP.
    Asked(bool),
}

/// What takes a while.
pub(super) enum Task {
    Connect { at: TcpAddress, links: TcpLinks, mark: Option<u32> },
    Ask(Box<Knock>),
}

impl Task {
    pub(super) async fn run(self) -> Done {
        match self {
            Self::Connect { at, links, mark } => Done::Connected(links.connect_to(&at, mark).await),
            Self::Ask(knock) => Done::Asked(knock.answered().await),
        }
    }
}

impl TcpFallback {
    /// For a hub that takes TCP at `at`. It is silent for as long as it is waited for
    /// ([`Self::handle_silence`]).
    pub(super) fn new(now: Instant, at: TcpAddress, links: TcpLinks, mark: Option<u32>) -> Self {
        let mut fallback = Fallback::new(now);
        fallback.handle_answer(now);
        Self { fallback, at, links, mark, newest: None }
    }

    pub(super) fn handle(&mut self, now: Instant, done: Done) {
        match done {
            Done::Connected(Ok(address)) => {
                self.newest = Some(address);
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

    /// A connection has ended.
    pub(super) fn handle_ended(&mut self, now: Instant, address: SocketAddr) {
        if self.newest.take_if(|newest| *newest == address).is_some() {
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
        knock: impl Fn() -> Knock,
    ) -> Option<Task> {
        while let Some(step) = self.fallback.poll_step(now) {
            match step {
                Step::Connect => {
                    let (at, links, mark) = (self.at.clone(), self.links.clone(), self.mark);
                    return Some(Task::Connect { at, links, mark });
                }
                Step::Ask => return Some(Task::Ask(Box::new(knock()))),
                Step::Use(carriage) => self.carry(carriage, name, addresses),
            }
        }
        None
    }

    fn carry(&mut self, carriage: Carriage, name: &str, addresses: &[SocketAddr]) {
        match (carriage, self.newest) {
            (Carriage::Tcp, Some(over)) => {
                tracing::warn!("{name} does not answer over UDP: going on over TCP, {over}");
                self.links.divert(addresses, Some(over));
            }
            (Carriage::Udp, Some(over)) => {
                tracing::info!("{name}: sending over UDP again");
                self.links.divert(addresses, None);
                self.newest = None;
                let links = self.links.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LINGER).await;
                    links.close(over);
                });
            }
            (_, None) => self.links.divert(addresses, None),
        }
    }
}
