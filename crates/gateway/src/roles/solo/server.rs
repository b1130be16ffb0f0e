//! Connects intercepted clients to their servers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use config::SoloConfig;
use slacp::StreamOpening;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::RECOVERY;
use crate::figures::connections::Registered;
use crate::figures::counters::GatewayCounters;
use crate::intercept::deferral::DeferredSyn;
use crate::intercept::listener::{AcceptedConnection, is_exhaustion};
use crate::process::clock;
use crate::relay;
use crate::relay::dial::{self, Dialer, Dialled};
use crate::relay::leg::TcpLeg;
use crate::stack::IncomingFlow;

/// Connects clients to their servers.
#[derive(Clone)]
pub(super) struct Server {
    dialer: Dialer,
    /// Towards the LAN, for connections from the WAN side.
    inward: Dialer,
    transparent: bool,
    /// Disables delayed ACKs towards clients.
    quick_ack: bool,
    counters: Arc<GatewayCounters>,
    /// Notified when no descriptor is left.
    pub(super) exhausted: Arc<Notify>,
}

impl Server {
    pub(super) fn new(
        dialer: Dialer,
        inward: Dialer,
        config: &SoloConfig,
        counters: Arc<GatewayCounters>,
    ) -> Self {
        Self {
            dialer,
            inward,
            transparent: config.transparent,
            quick_ack: config.lan.quick_ack,
            counters,
            exhausted: Arc::default(),
        }
    }

    /// Uses these settings for further clients.
    pub(super) fn configure(&mut self, dialer: Dialer, inward: Dialer, config: &SoloConfig) {
        self.dialer = dialer;
        self.inward = inward;
        self.transparent = config.transparent;
        self.quick_ack = config.lan.quick_ack;
    }

    /// Carries an intercepted connection, whose client was answered before the server.
    pub(super) async fn connect(self, accepted: AcceptedConnection) {
        self.counters.traffic.connections.increment();
        let entry = Registered::direct(clock::now(), &self.counters, accepted.open);
        let leg = TcpLeg::new(accepted.socket);
        let connected = tokio::select! {
            connected = self.dial(accepted.open, &self.dialer) => connected,
            _ = leg.failure() => return self.counters.traffic.failed.increment(),
        };
        match connected {
            Ok(dialled) => self.relay(leg, dialled, entry).await,
            // Dropping the leg resets the client, which was already answered.
            Err(error) => {
                self.count_failure(accepted.open, &error);
                let destination = accepted.open.destination;
                self.counters
                    .refusals
                    .report(clock::now(), destination, dial::reset_reason(&error))
                    .await;
            }
        }
    }

    /// Carries a connection whose client is answered after the server.
    pub(super) async fn answer(self, mut deferred: DeferredSyn) {
        self.counters.traffic.connections.increment();
        let open = deferred.open();
        let entry = Registered::direct(clock::now(), &self.counters, open);
        match self.dial(open, &self.dialer).await {
            Ok(dialled) if deferred.reinject() => match deferred.socket().await {
                Some(client) => self.relay(TcpLeg::new(client), dialled, entry).await,
                None => self.counters.traffic.reset.increment(),
            },
            Ok(_) => self.counters.traffic.reset.increment(),
            Err(error) => {
                self.count_failure(open, &error);
                deferred.refuse(dial::reset_reason(&error));
            }
        }
    }

    /// Carries a connection from the WAN side, whose host is answered after the server.
    pub(super) async fn admit(self, incoming: IncomingFlow) {
        self.counters.traffic.connections.increment();
        let IncomingFlow { flow, open } = incoming;
        let entry = Registered::direct(clock::now(), &self.counters, open);
        let connected = tokio::select! {
            connected = self.dial(open, &self.inward) => connected,
            _ = flow.failed() => return self.counters.traffic.failed.increment(),
        };
        match connected {
            Ok(dialled) => {
                let server = dialled.into_end(self.inward.side.quick_ack);
                // Only now, so that a host whose server is away learns the reason instead of a reset.
                flow.accept();
                // The sender of a forged address never answers, and must not hold a server for long.
                let connected = timeout(self.inward.timeout, flow.connected()).await;
                if !matches!(connected, Ok(Ok(()))) {
                    return self.counters.traffic.failed.increment();
                }
                self.counters.traffic.straight.increment();
                relay::direct(flow, server, &[], entry, &self.counters).await;
            }
            Err(error) => {
                self.count_failure(open, &error);
                flow.refuse(dial::reset_reason(&error));
            }
        }
    }

    async fn relay(&self, leg: TcpLeg, dialled: Dialled, entry: Registered<'_>) {
        self.counters.traffic.straight.increment();
        let client = leg.with_quick_ack(self.quick_ack);
        let server = dialled.into_end(self.dialer.side.quick_ack);
        relay::direct(client, server, &[], entry, &self.counters).await;
    }

    fn count_failure(&self, open: StreamOpening, error: &io::Error) {
        self.counters.traffic.failed.increment();
        self.counters.reasons.count(dial::reset_reason(error));
        tracing::debug!(destination = %open.destination, "not connected: {error}");
    }

    /// Connects to the server. A client already answered waits for a descriptor; others pass
    /// unaccelerated meanwhile.
    async fn dial(&self, open: StreamOpening, dialer: &Dialer) -> io::Result<Dialled> {
        // The client's address but not its port: otherwise connection tracking would take both
        // halves for the same connection.
        let source = self.transparent.then(|| SocketAddr::new(open.source.ip(), 0));
        let deadline = clock::now() + dialer.timeout;
        loop {
            match dialer.reach(open.destination, source, open.dscp).await {
                Err(error) if is_exhaustion(&error) && clock::now() < deadline => {
                    self.exhausted.notify_one();
                    sleep(RECOVERY).await;
                }
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pep::egress::EgressRules;
    use slacp::ResetReason;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::testkit::{assert_reset, connected, dialer, read_all};

    fn server(reach: &[&str]) -> Server {
        let reach = reach.iter().map(|text| text.parse().unwrap()).collect();
        Server {
            dialer: dialer(EgressRules { reach, ..EgressRules::nowhere() }),
            inward: dialer(EgressRules::nowhere()),
            transparent: false,
            quick_ack: false,
            counters: Arc::default(),
            exhausted: Arc::default(),
        }
    }

    fn accepted(socket: TcpStream, destination: SocketAddr) -> AcceptedConnection {
        let source = socket.peer_addr().unwrap();
        AcceptedConnection { socket, open: StreamOpening { destination, source, dscp: None } }
    }

    fn outcome(counters: &GatewayCounters) -> [u64; 4] {
        [
            &counters.traffic.connections,
            &counters.traffic.straight,
            &counters.traffic.closed,
            &counters.traffic.failed,
        ]
        .map(|counter| counter.get())
    }

    #[tokio::test]
    async fn a_client_gets_what_its_server_says_and_is_counted_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (server, address) = (server(&["127.0.0.0/8"]), listener.local_addr().unwrap());
        let [mut client, socket] = connected().await;
        let serve = async {
            let (mut there, _) = listener.accept().await.unwrap();
            let request = read_all(&mut there).await.unwrap();
            there.write_all(&request).await.unwrap();
            there.shutdown().await.unwrap();
        };
        let talk = async {
            client.write_all(b"hello").await.unwrap();
            client.shutdown().await.unwrap();
            read_all(&mut client).await.unwrap()
        };
        let carried = server.clone().connect(accepted(socket, address));
        let ((), (), reply) = tokio::join!(carried, serve, talk);
        assert_eq!(reply, b"hello");
        assert_eq!(outcome(&server.counters), [1, 1, 1, 0]);
        let bytes =
            [server.counters.traffic.up_bytes.get(), server.counters.traffic.down_bytes.get()];
        assert_eq!((bytes, server.counters.live.count()), ([5, 5], 0));
    }

    #[tokio::test]
    async fn a_client_whose_server_refuses_is_reset_and_the_reason_counted() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        for (reach, reason) in
            [(&["127.0.0.0/8"][..], ResetReason::Refused), (&[], ResetReason::Prohibited)]
        {
            let server = server(reach);
            let [mut client, socket] = connected().await;
            server.clone().connect(accepted(socket, closed)).await;
            assert_reset(read_all(&mut client).await);
            assert_eq!(outcome(&server.counters), [1, 0, 0, 1]);
            assert_eq!(server.counters.reasons.of(reason), 1);
        }
    }
}
