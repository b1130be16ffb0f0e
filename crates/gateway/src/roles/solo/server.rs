//! Connects intercepted clients to their servers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use pep::config::SoloConfig;
use slacp::Open;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::RECOVERY;
use crate::clock;
use crate::intercept::deferral::DeferredSyn;
use crate::intercept::listener::{Accepted, is_exhaustion};
use crate::operate::connections::Registered;
use crate::operate::counters::Counters;
use crate::relay;
use crate::relay::dial::{self, Dialer};
use crate::relay::leg::Leg;

/// Connects clients to their servers.
#[derive(Clone)]
pub(super) struct Server {
    dialer: Dialer,
    transparent: bool,
    /// Disables delayed ACKs towards clients.
    quick_ack: bool,
    counters: Arc<Counters>,
    /// Notified when no descriptor is left.
    pub(super) exhausted: Arc<Notify>,
}

impl Server {
    pub(super) fn new(dialer: Dialer, config: &SoloConfig, counters: Arc<Counters>) -> Self {
        let (transparent, quick_ack) = (config.transparent, config.lan.quick_ack);
        Self { dialer, transparent, quick_ack, counters, exhausted: Arc::default() }
    }

    /// Uses these settings for further clients.
    pub(super) fn configure(&mut self, dialer: Dialer, config: &SoloConfig) {
        self.dialer = dialer;
        (self.transparent, self.quick_ack) = (config.transparent, config.lan.quick_ack);
    }

    /// Carries an intercepted connection.
    pub(super) async fn connect(self, accepted: Accepted) {
        self.counters.connections.increment();
        let entry = Registered::straight(clock::now(), &self.counters, accepted.open);
        let leg = Leg::new(accepted.socket);
        let connected = tokio::select! {
            connected = self.dial(accepted.open) => connected,
            _ = leg.failure() => return self.counters.failed.increment(),
        };
        match connected {
            Ok(socket) => self.relay(leg, socket, entry).await,
            // Dropping the leg resets the client, which was already answered.
            Err(error) => {
                self.count_failure(accepted.open, &error);
                let destination = accepted.open.destination;
                self.counters
                    .refusals
                    .report(clock::now(), destination, dial::reason(&error))
                    .await;
            }
        }
    }

    /// Carries a connection whose client is answered after the server.
    pub(super) async fn answer(self, mut deferred: DeferredSyn) {
        self.counters.connections.increment();
        let open = deferred.open();
        let entry = Registered::straight(clock::now(), &self.counters, open);
        match self.dial(open).await {
            Ok(socket) if deferred.let_in() => match deferred.socket().await {
                Some(client) => self.relay(Leg::new(client), socket, entry).await,
                None => self.counters.reset.increment(),
            },
            Ok(_) => self.counters.reset.increment(),
            Err(error) => {
                self.count_failure(open, &error);
                deferred.refuse(dial::reason(&error));
            }
        }
    }

    async fn relay(&self, leg: Leg, socket: TcpStream, entry: Registered<'_>) {
        self.counters.straight.increment();
        let client = leg.acknowledging_at_once(self.quick_ack);
        let server = Leg::new(socket).acknowledging_at_once(self.dialer.side.quick_ack);
        relay::direct(client, server, &[], entry, &self.counters).await;
    }

    fn count_failure(&self, open: Open, error: &io::Error) {
        self.counters.failed.increment();
        self.counters.reasons.count(dial::reason(error));
        tracing::debug!(destination = %open.destination, "not connected: {error}");
    }

    /// Connects to the server. A client already answered waits for a descriptor; others pass
    /// unaccelerated meanwhile.
    async fn dial(&self, open: Open) -> io::Result<TcpStream> {
        // The client's address but not its port: otherwise connection tracking would take both
        // halves for the same connection.
        let source = self.transparent.then(|| SocketAddr::new(open.source.ip(), 0));
        let deadline = clock::now() + self.dialer.timeout;
        loop {
            match self.dialer.connect(open.destination, source, open.dscp).await {
                Err(error) if is_exhaustion(&error) && clock::now() < deadline => {
                    self.exhausted.notify_one();
                    sleep(RECOVERY).await;
                }
                result => return result,
            }
        }
    }
}
