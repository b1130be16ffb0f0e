//! Drives TCPCLv4 sessions (RFC 9174) with nodes of the LAN.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bundles::tcpcl::{ConnectionRole, SessionConfig, SessionEvent, TcpclConnection, TermReason};
use bundles::{
    BundleNodeId as NodeId, BundleOrigin, BundleRefusal, OfferDecision, PeerId, ReturnReason,
};
use config::NodeReach;
use slacp::client_network;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use units::Machine;

use super::incoming::{IncomingBundle, StoreOutcome};
use super::node::{BundleNode, OutgoingBundle, PeerLink};
use super::secure::PeerCertificate;
use crate::network::connection_slots::{ConnectionSlots, HeldSlot};
use crate::process::clock;
use crate::process::runtime::log_panic;

/// Limit of connections. Beyond it the oldest connection of an unidentified node is closed, from
/// the client that has most of them; if all nodes are identified, new connections are refused.
const MAX_CONNECTIONS: usize = 64;
/// First and longest pause between attempts to connect. It doubles.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time limit for connecting, and for writing to a peer that does not read.
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for telling the peer that the connection ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of a read, in bytes.
const READ_SIZE: usize = 64 << 10;

/// The newest session of each peer.
#[derive(Default)]
pub(super) struct SessionTable(Mutex<BTreeMap<PeerId, (u64, oneshot::Sender<()>)>>);

impl SessionTable {
    /// Registers a session in place of the peer's earlier one, which ends.
    fn replace(&self, peer: PeerId, number: u64) -> oneshot::Receiver<()> {
        let (sender, ends) = oneshot::channel();
        // Dropping the earlier sender ends its session.
        self.lock().insert(peer, (number, sender));
        ends
    }

    /// Removes a session. Returns `false` if it was not the peer's newest any more.
    fn remove(&self, peer: PeerId, number: u64) -> bool {
        let mut all = self.lock();
        let newest = all.get(&peer).is_some_and(|(newest, _)| *newest == number);
        if newest {
            all.remove(&peer);
        }
        newest
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PeerId, (u64, oneshot::Sender<()>)>> {
        self.0.lock().expect("nobody panics while holding the sessions")
    }
}

pub(super) async fn listen(node: Arc<BundleNode>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let slots = ConnectionSlots::new(MAX_CONNECTIONS, MAX_CONNECTIONS);
    loop {
        while let Some(ended) = connections.try_join_next() {
            log_panic(ended);
        }
        match listener.accept().await {
            // A socket for both IP versions shows IPv4 addresses as mapped ones.
            Ok((socket, from)) if node.config.serves(from.ip().to_canonical()) => {
                let Some(slot) = slots.take(clock::now(), client_network(from.ip())) else {
                    tracing::debug!(
                        "bundles: refused {from}: all {MAX_CONNECTIONS} connections are in use"
                    );
                    continue;
                };
                let node = node.clone();
                slots.serve(&mut connections, slot, async move |slot| {
                    let end =
                        run_session(&node, socket, ConnectionRole::Passive, Some(slot), None).await;
                    tracing::info!("bundles: session with {from} over: {end}");
                });
            }
            Ok((_, from)) => tracing::debug!("bundles: refused {from}: not in `clients`"),
            // Usually out of descriptors, which passes.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Connects to a node, and again whenever the session ends.
pub(super) async fn connect(node: Arc<BundleNode>, peer: PeerId, address: SocketAddr) {
    let mut pause = RETRY_PAUSES.0;
    loop {
        let connected = timeout(IO_TIMEOUT, TcpStream::connect(address)).await;
        match connected.map_err(io::Error::from).and_then(|connected| connected) {
            Ok(socket) => {
                let began = clock::now();
                let end =
                    run_session(&node, socket, ConnectionRole::Active, None, Some(peer)).await;
                tracing::info!("bundles: session with {address} over: {end}");
                // Only a session that has lasted shows that connecting is of use.
                if clock::now().saturating_since(began) > RETRY_PAUSES.1 {
                    pause = RETRY_PAUSES.0;
                }
            }
            Err(error) => tracing::debug!("bundles: cannot connect to {address}: {error}"),
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(RETRY_PAUSES.1);
    }
}

type BoxedReader = Box<dyn AsyncRead + Send + Unpin>;
type BoxedWriter = Box<dyn AsyncWrite + Send + Unpin>;

struct TcpclSession<'a> {
    node: &'a Arc<BundleNode>,
    session: TcpclConnection,
    writer: BoxedWriter,
    /// The peer's certificate, with TLS.
    shown: Option<PeerCertificate>,
    /// The peer; `None` until it is identified.
    peer: Option<PeerId>,
    /// The only peer accepted, on connections that we made.
    expected: Option<PeerId>,
    number: u64,
    /// Its connection slot at the listener.
    slot: Option<HeldSlot<IpAddr>>,
    incoming: Option<IncomingBundle>,
    sending: Option<OutgoingBundle>,
    /// Bundles waiting to be sent.
    queue: Option<mpsc::Receiver<OutgoingBundle>>,
    ends: Option<oneshot::Receiver<()>>,
}

/// Runs a session to its end. Returns the reason for the log.
async fn run_session(
    node: &Arc<BundleNode>,
    socket: TcpStream,
    role: ConnectionRole,
    slot: Option<HeldSlot<IpAddr>>,
    expected: Option<PeerId>,
) -> String {
    let config = SessionConfig {
        node: node.config.agent.node.clone(),
        largest: node.config.agent.limits.largest.get(),
        tls: node.secure.is_some(),
    };
    let mut session = TcpclConnection::new(clock::now(), role, config);
    let ends = match open_ends(node, socket, &mut session, role, expected).await {
        Ok(ends) => ends,
        Err(end) => return end,
    };
    let mut talk = TcpclSession {
        node,
        session,
        writer: ends.writer,
        shown: ends.shown,
        peer: None,
        expected,
        number: node.next_number(),
        slot,
        incoming: None,
        sending: None,
        queue: None,
        ends: None,
    };
    let mut reader = ends.reader;
    let end = talk.run(&mut reader).await;
    talk.unregister();
    // The session is over already: a peer that does not read must not hold the connection slot.
    let _ = timeout(CLOSE_TIMEOUT, talk.writer.shutdown()).await;
    end
}

/// The two directions of a connection, with or without TLS.
struct ConnectionEnds {
    reader: BoxedReader,
    writer: BoxedWriter,
    /// The peer's certificate, with TLS.
    shown: Option<PeerCertificate>,
}

/// Prepares a connection for a session: with TLS, if the node is configured for it.
///
/// # Errors
/// The reason for which the session ends.
async fn open_ends(
    node: &BundleNode,
    socket: TcpStream,
    session: &mut TcpclConnection,
    role: ConnectionRole,
    expected: Option<PeerId>,
) -> Result<ConnectionEnds, String> {
    // Without it, transfers are only slower.
    let _ = socket.set_nodelay(true);
    let Some(secure) = &node.secure else {
        let (reader, writer) = socket.into_split();
        return Ok(ConnectionEnds {
            reader: Box::new(reader),
            writer: Box::new(writer),
            shown: None,
        });
    };
    let (stream, shown) = secure.negotiate(socket, session, role, expected).await?;
    let (reader, writer) = tokio::io::split(stream);
    Ok(ConnectionEnds { reader: Box::new(reader), writer: Box::new(writer), shown: Some(shown) })
}

impl TcpclSession<'_> {
    async fn run(&mut self, reader: &mut BoxedReader) -> String {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            if let Some(end) = self.drain().await {
                return end;
            }
            let until = self.session.poll_timeout().map(|(until, _)| until);
            tokio::select! {
                read = reader.read(&mut buffer), if self.session.wants_bytes() => match read {
                    Ok(0) | Err(_) => self.session.handle_close(),
                    Ok(count) => {
                        self.session.handle_bytes(clock::now(), &buffer[..count]);
                        // Small messages cost time, and the next may be here already: other tasks
                        // get their turn.
                        tokio::task::yield_now().await;
                    }
                },
                Some(outgoing) = next(&mut self.queue), if self.session.can_send() => {
                    self.send(outgoing);
                }
                () = replaced(&mut self.ends) => {
                    self.session.end(clock::now(), TermReason::ContactFailure);
                }
                () = clock::sleep_until(until) => self.session.handle_timeout(clock::now()),
            }
        }
    }

    /// Carries out the session's outputs. Returns the reason once it is over.
    async fn drain(&mut self) -> Option<String> {
        let mut over = None;
        loop {
            while let Some(event) = self.session.poll_event() {
                if let SessionEvent::Finished(end) = event {
                    over = Some(end.to_string());
                    continue;
                }
                self.handle(event).await;
            }
            self.send_parts();
            let output = self.session.take_output();
            if output.is_empty() {
                return over;
            }
            let writing = async {
                self.writer.write_all(&output).await?;
                self.writer.flush().await
            };
            let written = timeout(IO_TIMEOUT, writing).await;
            if !matches!(written, Ok(Ok(()))) && over.is_none() {
                self.session.handle_close();
            }
        }
    }

    async fn handle(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Peer(node) => self.identify_peer(node),
            SessionEvent::BundleStarted(length) => self.begin(length).await,
            SessionEvent::Data(data) => {
                let Some(incoming) = &mut self.incoming else { return };
                if let Err(why) = incoming.append(data).await {
                    self.refuse(why);
                }
            }
            SessionEvent::BundleComplete => self.finish().await,
            SessionEvent::BundleAborted => self.incoming = None,
            SessionEvent::Stored => {
                if let Some(OutgoingBundle { done, .. }) = self.sending.take() {
                    // Fails only while the node ends.
                    let _ = done.send(Ok(()));
                }
            }
            SessionEvent::Refused { passing } => {
                self.return_bundle(if passing {
                    ReturnReason::NoRoom
                } else {
                    ReturnReason::Unwanted
                });
            }
            _ => {}
        }
    }

    /// Identifies the peer by the node ID that it has sent.
    fn identify_peer(&mut self, said: Option<NodeId>) {
        let place = said.as_ref().and_then(|said| {
            self.node.config.agent.peers.iter().position(|peer| peer.node == *said)
        });
        // Peers of the hop are known by their keys, which a node that connects does not prove to
        // have.
        let by_tcp = |place: &usize| {
            matches!(
                self.node.config.reach.get(*place),
                Some(NodeReach::Listen | NodeReach::Connect(_))
            )
        };
        let peer = place.filter(by_tcp).map(PeerId);
        let is_expected = self.expected.is_none_or(|expected| peer == Some(expected));
        let Some(peer) = peer.filter(|_| is_expected) else {
            tracing::warn!("bundles: refused a session: {}", self.refusal_text(said, place));
            return self.session.end(clock::now(), TermReason::ContactFailure);
        };
        let is_certified = match (&self.node.secure, &self.shown) {
            (Some(secure), Some(shown)) => secure.is_certified(peer, shown),
            (secure, _) => secure.is_none(),
        };
        if !is_certified {
            let name = self.node.name(BundleOrigin::Peer(peer));
            tracing::warn!(
                "bundles: refused a session: the certificate is not that of {name}, the node it claims to be"
            );
            return self.session.end(clock::now(), TermReason::ContactFailure);
        }
        self.session.accept(clock::now());
        // An identified peer keeps its connection when new ones come.
        self.slot.iter().for_each(|slot| slot.set_busy(true));
        let (sender, queue) = mpsc::channel(self.node.config.agent.limits.window);
        (self.peer, self.queue) = (Some(peer), Some(queue));
        self.ends = Some(self.node.sessions.replace(peer, self.number));
        self.node.set_link(peer, Some(PeerLink::Tcp(sender, self.session.largest())), true);
        tracing::info!("bundles: session with {}", self.node.name(BundleOrigin::Peer(peer)));
    }

    /// The reason for which a node is refused: it says that it is `said`, which is configured at
    /// `place`.
    fn refusal_text(&self, said: Option<NodeId>, place: Option<usize>) -> String {
        let Some(said) = said else { return "the other node sent no node ID".to_owned() };
        match (place, self.expected) {
            (_, Some(expected)) => {
                let expected = self.node.name(BundleOrigin::Peer(expected));
                format!("the other node is {said}, where {expected} was expected")
            }
            (None, None) => format!("no [[bundles.peer]] is the node {said}"),
            (Some(_), None) => format!("the peer {said} is reached over the hop, not by TCP"),
        }
    }

    async fn begin(&mut self, length: u64) {
        let Some(peer) = self.peer else { return };
        match self.node.begin(BundleOrigin::Peer(peer), None, length, false).await {
            Ok(OfferDecision::Take((incoming, _))) => self.incoming = Some(incoming),
            Ok(OfferDecision::Duplicate) => {}
            Err(why) => self.refuse(why),
        }
    }

    async fn finish(&mut self) {
        let Some(peer) = self.peer else { return self.refuse(BundleRefusal::Busy) };
        let Some(incoming) = self.incoming.take() else {
            return self.refuse(BundleRefusal::Busy);
        };
        match incoming.finish(BundleOrigin::Peer(peer)).await {
            // A duplicate is acknowledged, or its sender would send it again.
            Ok(StoreOutcome::Stored(_) | StoreOutcome::AlreadyStored(_)) => {
                self.session.stored(clock::now());
            }
            Err(why) => self.refuse(why),
        }
    }

    fn refuse(&mut self, why: BundleRefusal) {
        self.incoming = None;
        self.session.refuse(clock::now(), why.is_passing());
    }

    fn send(&mut self, outgoing: OutgoingBundle) {
        let taken = self.session.send(outgoing.bytes.len() as u64);
        self.sending = Some(outgoing);
        if !taken {
            let to =
                self.peer.map_or_else(String::new, |peer| self.node.name(BundleOrigin::Peer(peer)));
            self.node.warnings.unwanted(&to, "it is larger than that node takes");
            self.return_bundle(ReturnReason::Unwanted);
        }
    }

    fn send_parts(&mut self) {
        while let (Some(outgoing), Some((from, length))) =
            (&self.sending, self.session.wanted_range())
        {
            let part = &outgoing.bytes[from as usize..(from + length) as usize];
            self.session.send_part(clock::now(), part);
        }
    }

    fn return_bundle(&mut self, why: ReturnReason) {
        let Some(OutgoingBundle { done, .. }) = self.sending.take() else { return };
        // Fails only while the node ends.
        let _ = done.send(Err(why));
    }

    /// Unregisters the session. A bundle without an acknowledgement returns to the agent.
    fn unregister(&mut self) {
        let Some(peer) = self.peer else { return };
        if self.node.sessions.remove(peer, self.number) {
            self.node.set_link(peer, None, false);
        }
    }
}

/// The next bundle to send; pending before the peer is identified.
async fn next(queue: &mut Option<mpsc::Receiver<OutgoingBundle>>) -> Option<OutgoingBundle> {
    match queue {
        Some(queue) => queue.recv().await,
        None => std::future::pending().await,
    }
}

/// Waits until the peer has a newer session.
async fn replaced(ends: &mut Option<oneshot::Receiver<()>>) {
    match ends {
        // Nothing is ever sent: the receiver resolves when the sender is dropped.
        Some(replaced) => {
            let _ = replaced.await;
            *ends = None;
        }
        None => std::future::pending().await,
    }
}
