//! What both sides have in common: the endpoint with its driver, and the
//! connections that are being relayed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slacp::{Endpoint, Open, ResetReason, SessionId};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use crate::counters::Counters;
use crate::driver::{Driver, Sources};
use crate::error::RunError;
use crate::hop::{Hop, HopEvent, Stream};
use crate::listener::Accepted;
use crate::udp::UdpLink;
use crate::{dial, relay};

/// How long the last packets of a gateway that stops may take: they tell the
/// peer that its streams are reset.
const FAREWELL: Duration = Duration::from_millis(300);

/// Where the peer may have us connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialPolicy {
    pub(crate) timeout: Duration,
    pub(crate) allow_loopback: bool,
}

/// Which side of the hop this is; decides how peers are addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Hub,
    Terminal,
}

/// A running gateway.
pub(crate) struct Gateway {
    hop: Hop,
    events: UnboundedReceiver<HopEvent>,
    driver: JoinHandle<io::Error>,
    relays: JoinSet<()>,
    policy: DialPolicy,
    counters: Arc<Counters>,
}

/// What a gateway reports to the side that owns it.
pub(crate) enum Report {
    /// Something about a session.
    Hop(HopEvent),
    /// It cannot go on.
    Failed(RunError),
}

impl Gateway {
    /// Starts driving `endpoint` over `link`.
    pub(crate) fn start(
        side: Side,
        endpoint: Endpoint,
        link: UdpLink,
        policy: DialPolicy,
    ) -> Result<Self, RunError> {
        let hop = Hop::new(endpoint);
        let (sender, events) = unbounded_channel();
        let counters = Arc::new(Counters::default());
        let sources = match side {
            Side::Hub => Sources::AsAddressed(BTreeMap::new()),
            Side::Terminal => Sources::Routed,
        };
        let mut driver = Driver::new(hop.clone(), link, sources, sender, counters.clone())
            .map_err(RunError::System)?;
        let driver = tokio::spawn(async move { driver.run().await });
        Ok(Self { hop, events, driver, relays: JoinSet::new(), policy, counters })
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Waits for the next thing that the owner must know. May be cancelled
    /// without losing one.
    pub(crate) async fn report(&mut self) -> Report {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => return Report::Hop(event),
                ended = &mut self.driver => return Report::Failed(failure(ended)),
                Some(ended) = self.relays.join_next() => tell_panic(ended),
            }
        }
    }

    /// Carries a client's connection over the hop.
    pub(crate) fn originate(&mut self, session: SessionId, accepted: Accepted) {
        let Accepted { socket, open } = accepted;
        let counters = self.counters.clone();
        self.relays.spawn(relay::originate(self.hop.clone(), session, socket, open, counters));
    }

    /// Carries a stream of the peer to its destination.
    pub(crate) fn answer(&mut self, stream: Stream, open: Open) {
        if !dial::is_permitted(open.destination, self.policy.allow_loopback) {
            self.counters.failed.increment();
            tracing::debug!(destination = %open.destination, "not permitted");
            return stream.reset(ResetReason::Prohibited);
        }
        let (timeout, counters) = (self.policy.timeout, self.counters.clone());
        self.relays.spawn(relay::answer(stream, open, timeout, counters));
    }

    /// Resets all connections, tells the peer, and stops.
    pub(crate) async fn stop(mut self) {
        self.relays.shutdown().await;
        // Its end, should it come, has no consequence any more.
        let _ = tokio::time::timeout(FAREWELL, &mut self.driver).await;
        self.driver.abort();
        tracing::info!("stopped: {}", self.counters);
    }
}

/// Binds the UDP socket of the hop.
pub(crate) fn bind(address: SocketAddr) -> Result<UdpLink, RunError> {
    UdpLink::bind(address).map_err(|source| RunError::Bind { address, source })
}

/// Tells whoever started us that we are at work. Scripts wait for the line.
pub(crate) fn say_ready() {
    // Nobody may be listening, which is no reason to stop.
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "ready").and_then(|()| stdout.flush());
}

fn failure(ended: Result<io::Error, JoinError>) -> RunError {
    match ended {
        Ok(error) => RunError::Socket(error),
        Err(error) => RunError::Task(error),
    }
}

fn tell_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!("a connection was dropped: {error}");
    }
}
