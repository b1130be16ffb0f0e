//! Connects a client of the proxy to where it wants to go: over the hop, or
//! straight where there is none.
//!
//! A name is resolved here, by this machine's resolver: a stream carries an
//! address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use slacp::{Open, ResetReason, SessionId};
use tokio::io::AsyncWriteExt;
use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::handshake::{Dialect, Target};
use super::{Wish, refuse};
use crate::config::Answer;
use crate::connections::Registered;
use crate::counters::Counters;
use crate::dial::{self, Dialer};
use crate::hop::{Hop, Stream};
use crate::leg::Leg;
use crate::{relay, straight};

/// How many names are resolved at the same time: each takes a thread.
const LOOKUPS: usize = 32;
/// How many addresses of a name are tried.
const ADDRESSES: usize = 4;

/// How clients get out.
#[derive(Clone)]
pub(crate) struct Exit {
    answer: Answer,
    /// How they get there without a hop; its patience is also that with names.
    dialer: Dialer,
    lookups: Arc<Semaphore>,
    quick_ack: bool,
    counters: Arc<Counters>,
}

impl Exit {
    /// Has what clients say acknowledged at once, if asked.
    pub(crate) fn acknowledging_at_once(self, quick_ack: bool) -> Self {
        Self { quick_ack, ..self }
    }

    pub(crate) fn new(answer: Answer, dialer: Dialer, counters: Arc<Counters>) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        Self { answer, dialer, lookups, quick_ack: false, counters }
    }

    /// The addresses of `target`, in the order in which they should be tried.
    async fn resolve(&self, target: Target) -> Result<Vec<SocketAddr>, ResetReason> {
        let (name, port) = match target {
            Target::Address(address) => return Ok(vec![address]),
            Target::Name(name, port) => (name, port),
        };
        let looked_up = timeout(self.dialer.timeout, async {
            let _permit = self.lookups.acquire().await.expect("nobody closes it");
            lookup_host((name.as_str(), port)).await
        });
        let addresses = looked_up.await.map_err(|_| ResetReason::TimedOut)?;
        let addresses: Vec<_> =
            addresses.map_err(|_| ResetReason::Unreachable)?.take(ADDRESSES).collect();
        if addresses.is_empty() { Err(ResetReason::Unreachable) } else { Ok(addresses) }
    }
}

/// Carries a client's connection until it is over. `hop` is the way over the hop,
/// if the hub can be reached.
pub(crate) async fn carry(wish: Wish, hop: Option<(Hop, SessionId)>, exit: Exit) {
    exit.counters.connections.increment();
    let Wish { leg, source, request } = wish;
    let addresses = match exit.resolve(request.target).await {
        Ok(addresses) => addresses,
        Err(reason) => return give_up(leg, request.dialect, reason, &exit).await,
    };
    let client = Client { leg, source, dialect: request.dialect, first: request.first };
    let Some((hop, session)) = hop else { return client.straight(&addresses, &exit).await };
    match exit.answer {
        Answer::Early => client.early(&hop, session, &addresses, &exit).await,
        Answer::Deferred => client.deferred(&hop, session, &addresses, &exit).await,
    }
}

/// Tells a client that there is no room for it.
pub(crate) async fn turn_away(wish: Wish, exit: Exit) {
    give_up(wish.leg, wish.request.dialect, ResetReason::Limit, &exit).await;
}

async fn give_up(leg: Leg, dialect: Dialect, reason: ResetReason, exit: &Exit) {
    exit.counters.failed.increment();
    refuse(leg, &dialect.answer(Err(reason))).await;
}

/// A client that is not connected yet.
struct Client {
    leg: Leg,
    source: SocketAddr,
    dialect: Dialect,
    first: Vec<u8>,
}

impl Client {
    /// The answer at once: what the client then says travels with the opening of
    /// the stream, and a refusal is a reset. There is no second try, so the
    /// address is of the version that hubs are surest to have.
    async fn early(self, hop: &Hop, session: SessionId, addresses: &[SocketAddr], exit: &Exit) {
        let v4 = addresses.iter().find(|address| address.is_ipv4());
        let destination = *v4.unwrap_or(&addresses[0]);
        let open = Open { destination, source: self.source };
        match hop.open(session, open, None) {
            Ok(stream) => self.relay(stream, open, exit).await,
            // The hub has no room for it.
            Err(_) => self.straight(addresses, exit).await,
        }
    }

    /// The answer when the far end has been connected, or the reason why not.
    async fn deferred(self, hop: &Hop, session: SessionId, addresses: &[SocketAddr], exit: &Exit) {
        let mut reason = ResetReason::Unreachable;
        for destination in addresses {
            let open = Open { destination: *destination, source: self.source };
            let Ok(stream) = hop.open(session, open, None) else {
                return self.straight(addresses, exit).await;
            };
            tokio::select! {
                accepted = stream.accepted() => match accepted {
                    Ok(()) => return self.relay(stream, open, exit).await,
                    Err(why) => reason = why,
                },
                _ = self.leg.failure(|| false) => return exit.counters.failed.increment(),
            }
        }
        give_up(self.leg, self.dialect, reason, exit).await;
    }

    async fn relay(mut self, stream: Stream, open: Open, exit: &Exit) {
        if self.say_connected().await.is_ok() {
            let entry = Registered::new(&exit.counters, stream.session(), open, false);
            relay::relay(stream, self.leg, &self.first, entry, &exit.counters).await;
        }
    }

    /// The way without a hop: the answer is the server's.
    async fn straight(mut self, addresses: &[SocketAddr], exit: &Exit) {
        let open = Open { destination: addresses[0], source: self.source };
        let entry = Registered::straight(&exit.counters, open);
        let mut reason = ResetReason::Unreachable;
        for destination in addresses {
            let dialled = tokio::select! {
                dialled = exit.dialer.connect(*destination, None) => dialled,
                _ = self.leg.failure(|| false) => return exit.counters.failed.increment(),
            };
            match dialled {
                Ok(socket) => {
                    exit.counters.straight.increment();
                    let server = Leg::new(socket).acknowledging_at_once(exit.dialer.side.quick_ack);
                    if self.say_connected().await.is_ok() {
                        let client = self.leg.acknowledging_at_once(exit.quick_ack);
                        straight::relay(client, server, &self.first, entry, &exit.counters).await;
                    }
                    return;
                }
                Err(error) => reason = dial::reason(&error),
            }
        }
        give_up(self.leg, self.dialect, reason, exit).await;
    }

    async fn say_connected(&mut self) -> io::Result<()> {
        let answer = self.dialect.answer(Ok(()));
        self.leg.socket_mut().write_all(&answer).await
    }
}
