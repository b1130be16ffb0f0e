//! A proxy for SOCKS5 and HTTP CONNECT on one port. It needs no privilege.
//!
//! Clients are untrusted, so both the duration and the number of handshakes are limited. Beyond the
//! limit the oldest handshake of the client with most is dropped, since an honest one takes
//! milliseconds.

mod carry;
mod service;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use config::{ProxyConfig, SideConfig};
use pep::proxy::{HandshakeStep, ProxyHandshake, ProxyRequest};
use slacp::client_network;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use units::Instant;

pub(crate) use self::carry::ProxyUpstream;
use self::carry::{ProxySettings, carry, reject};
pub(crate) use self::service::{ProxyService, UncarriedAction};
use crate::intercept::listener::is_exhaustion;
use crate::network::connection_slots::ConnectionSlots;
use crate::network::presence;
use crate::network::side_settings::SocketSettings;
use crate::network::socket_options;
use crate::process::clock;
use crate::process::error::RunError;
use crate::relay::leg::TcpLeg;

/// Time limit for a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const MAX_HANDSHAKES: usize = 256;
/// Time that a refused client has to read the answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause of accepting after the process ran out of descriptors.
const EXHAUSTION_PAUSE: Duration = Duration::from_secs(1);
/// Read size during a handshake, in bytes. Anything after the handshake is relayed.
const READ_SIZE: usize = 1024;

/// The proxy's listener and its handshakes in progress.
pub(crate) struct ProxyListener {
    listener: TcpListener,
    config: ProxyConfig,
    handshakes: JoinSet<Option<ProxyClient>>,
    slots: ConnectionSlots<IpAddr>,
    paused_until: Option<Instant>,
}

/// A client that has completed its request.
struct ProxyClient {
    leg: TcpLeg,
    source: SocketAddr,
    dscp: Option<u8>,
    request: ProxyRequest,
}

impl ProxyClient {
    fn address(&self) -> IpAddr {
        self.source.ip()
    }
}

impl ProxyListener {
    /// Listens on the configured address.
    ///
    /// # Errors
    /// The system's refusal.
    pub(crate) async fn listen(config: ProxyConfig) -> Result<Self, RunError> {
        let address = config.listen;
        let failed = |cause| RunError::Listen { address, cause };
        let listener = presence::listen(address).map_err(failed)?;
        socket_options::choose_congestion_control(&listener);
        // For the DSCP of clients' SYNs.
        os::socket::save_syns(&listener).map_err(failed)?;
        tracing::info!("SOCKS5 and HTTP CONNECT on {}", listener.local_addr().map_err(failed)?);
        Ok(Self {
            listener,
            config,
            handshakes: JoinSet::new(),
            slots: ConnectionSlots::new(MAX_HANDSHAKES, MAX_HANDSHAKES),
            paused_until: None,
        })
    }

    pub(crate) fn settings(&self) -> ProxySettings {
        ProxySettings { answer: self.config.answer, names: self.config.names }
    }

    /// Applies TCP settings to the connections it accepts.
    pub(crate) fn prepare(&self, side: &SideConfig) {
        // Cannot fail: the settings were tried on another socket.
        let _ = side.apply(&SockRef::from(&self.listener));
    }

    /// Waits for the next client with a complete request. Cancel-safe.
    async fn next(&mut self) -> ProxyClient {
        loop {
            let resume = self.paused_until;
            tokio::select! {
                accepted = self.listener.accept(), if resume.is_none() => {
                    self.handle_accepted(clock::now(), accepted);
                }
                () = clock::sleep_until(resume) => self.paused_until = None,
                Some(ended) = self.handshakes.join_next() => {
                    if let Ok(Some(client)) = ended {
                        return client;
                    }
                }
            }
        }
    }

    fn handle_accepted(&mut self, now: Instant, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((socket, source)) if self.config.serves(source.ip()) => self.begin(socket, source),
            Ok((socket, source)) => {
                tracing::debug!("proxy: refused {source}: not in `clients`");
                socket_options::reset(socket);
            }
            Err(error) if is_exhaustion(&error) => {
                tracing::warn!("proxy paused, accepts no clients: {error}");
                self.paused_until = Some(now + EXHAUSTION_PAUSE);
            }
            // The client has disconnected.
            Err(_) => {}
        }
    }

    fn begin(&mut self, socket: TcpStream, source: SocketAddr) {
        let client = client_network(source.ip());
        let Some(slot) = self.slots.take(clock::now(), client) else { return };
        let dscp = socket_options::dscp_of_syn(&socket);
        self.slots.serve(&mut self.handshakes, slot, async move |slot| {
            let negotiated = negotiate(TcpLeg::new(socket), source, dscp).await;
            drop(slot);
            negotiated
        });
    }
}

/// Runs a client's handshake; `None` if it did not complete, or was refused.
async fn negotiate(mut leg: TcpLeg, source: SocketAddr, dscp: Option<u8>) -> Option<ProxyClient> {
    let negotiated = timeout(HANDSHAKE_LIMIT, read_request(leg.socket_mut())).await.ok()?;
    match negotiated.ok()? {
        Ok(request) => Some(ProxyClient { leg, source, dscp, request }),
        Err(answer) => {
            refuse(leg, &answer).await;
            None
        }
    }
}

/// Reads until the request is complete. Returns the refusal to send if it is invalid.
async fn read_request(socket: &mut TcpStream) -> io::Result<Result<ProxyRequest, Vec<u8>>> {
    let mut handshake = ProxyHandshake::default();
    let mut piece = [0; READ_SIZE];
    loop {
        match handshake.step() {
            HandshakeStep::Read => match socket.read(&mut piece).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => handshake.handle_input(&piece[..count]),
            },
            HandshakeStep::Write(answer) => socket.write_all(&answer).await?,
            HandshakeStep::Connect(request) => return Ok(Ok(request)),
            HandshakeStep::Refuse(answer) => return Ok(Err(answer)),
        }
    }
}

/// Sends a refusal, and closes.
async fn refuse(mut leg: TcpLeg, answer: &[u8]) {
    let sent = timeout(CLOSE_TIMEOUT, async {
        leg.socket_mut().write_all(answer).await?;
        leg.socket_mut().shutdown().await
    });
    if matches!(sent.await, Ok(Ok(()))) {
        // Closing with unread data would reset the connection, and destroy the answer in flight.
        leg.discard(CLOSE_TIMEOUT).await;
    }
}

#[cfg(test)]
mod tests;
