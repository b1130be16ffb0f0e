//! Datagrams over TCP connections, where a network blocks UDP (`docs/slacp.md`).
//!
//! A connection begins with [`PREFACE`] from the side that opened it. Each datagram is preceded by its
//! length in two bytes, big-endian. The connection may run within TLS. It carries the datagrams for its
//! address; a terminal diverts those for a hub's UDP addresses to a connection, separately on each of its
//! links ([`TcpLinks::divert`]).
//!
//! TCP adds a queue and retransmissions of its own. To keep that queue short, a connection leaves little
//! unsent data in the kernel, holds its session back while more waits here, and finally drops datagrams.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use config::TcpAddress;
use os::socket::TcpInfo;
use pep::hubs::carriage::control::{ControlChoice, KernelControl, SegmentCounters};
use pep::work::cost;
use slacp::{SessionId, network};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use units::Instant;

use super::sockets::LocalEnd;
use crate::network::tls::{self, handshake};
use crate::process::clock;

/// The first bytes of a connection.
const PREFACE: &[u8; 8] = b"SLACP\0\0\x01";
/// Maximum length of a datagram in bytes: the largest MTU of a hop.
const LONGEST: usize = 9216;
/// Thresholds of the bytes queued here for the kernel: to hold the session back, to let it resume, and to
/// drop datagrams.
const HOLD_BACK_AT: usize = 128 << 10;
const RESUME_AT: usize = 32 << 10;
const DROP_ABOVE: usize = 1 << 20;
/// Bytes that the kernel may hold unsent (`TCP_NOTSENT_LOWAT`), and the size of one write.
const UNSENT: u32 = 64 << 10;
/// Capacity of the queue of received datagrams. While it is full, nothing is read from connections, so
/// the peers' TCP stops sending.
const EVENT_QUEUE: usize = 512;
/// Maximum connections: without a session in total, without a session from one network, and of all kinds.
const MOST_UNPROVEN: usize = 256;
const MOST_UNPROVEN_OF_NETWORK: usize = 64;
const MOST_LINKS: usize = 16_384;
/// Time limit for the preface, and for the first authentic datagram.
const PROOF_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle time-out of a connection. Longer than any session survives silence.
const IDLE: Duration = Duration::from_secs(20 * 60);
/// Minimum interval between two readings of a sending connection's TCP counters.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after a failure to accept, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Identifies a TCP connection that carries datagrams; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// A session and the number of one of its links.
pub(crate) type SessionLink = (SessionId, u8);

/// An event of the connections, for the driver.
#[derive(Debug)]
pub(crate) enum TcpEvent {
    /// A datagram from the far end of a connection.
    Datagram(ConnectionId, Vec<u8>),
    /// The session may send new data on the link again.
    Room(SessionLink),
    /// The connection has ended by itself, not by [`TcpLinks::close`].
    Ended(ConnectionId),
}

/// Outcome of [`TcpLinks::send`], which never waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// No connection carries it: send it over UDP.
    NoConnection,
    /// Queued on a connection, or dropped by it.
    Queued,
    /// As `Queued`; the connection's session must be held back on that link until [`TcpEvent::Room`].
    Full(SessionLink),
}

/// The TCP connections that carry datagrams.
#[derive(Clone)]
pub(crate) struct TcpLinks(Arc<TcpLinksShared>);

struct TcpLinksShared {
    state: Mutex<ConnectionTable>,
    events: Sender<TcpEvent>,
    arrivals: Mutex<Option<Receiver<TcpEvent>>>,
}

#[derive(Default)]
struct ConnectionTable {
    links: BTreeMap<ConnectionId, LinkConnection>,
    /// The connection for each link and destination. At a terminal, the destinations are the UDP
    /// addresses of its hubs; at a hub, the far ends of accepted connections, all on link 0.
    carrying: BTreeMap<(u8, SocketAddr), ConnectionId>,
    /// Sessions pinned to their connection, although later datagrams to their peer use another one.
    pinned: BTreeMap<SessionLink, ConnectionId>,
    /// Sessions that are held back because their connection is full.
    held_back: BTreeSet<SessionLink>,
    /// True for a hub, which accepts connections.
    accepts: bool,
    next: u64,
}

struct LinkConnection {
    /// The address of the far end.
    far: SocketAddr,
    /// The UDP address whose datagrams were last diverted here.
    udp_address: Option<SocketAddr>,
    frames: UnboundedSender<Vec<u8>>,
    level: Arc<QueueLevel>,
    /// The session and link authenticated at the far end.
    session: Option<SessionLink>,
    task: Option<AbortHandle>,
}

impl Drop for LinkConnection {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Fill level of a connection's queue towards the kernel.
#[derive(Default)]
struct QueueLevel {
    bytes: AtomicUsize,
    /// Set while the session is held back.
    full: AtomicBool,
}

impl ConnectionTable {
    /// Returns the connection for datagrams of `session` (`None`: outside any session) to a destination
    /// by a link. It may just have ended.
    fn connection_for(
        &self,
        link: u8,
        to: SocketAddr,
        session: Option<SessionId>,
    ) -> Option<ConnectionId> {
        let kept = session.and_then(|session| self.pinned.get(&(session, link)));
        if !self.accepts {
            return kept.or_else(|| self.carrying.get(&(link, to))).copied();
        }
        // Behind address translation, a UDP client may share its address and port with another
        // machine's TCP connection. So only the session's own connection carries its datagrams.
        let has_proved = |id: &&ConnectionId| match session {
            Some(session) => self.session_of(**id).is_some_and(|(proven, _)| proven == session),
            None => true,
        };
        self.carrying.get(&(0, to)).filter(has_proved).copied()
    }

    /// Returns the session and link authenticated at the far end of a connection.
    fn session_of(&self, id: ConnectionId) -> Option<SessionLink> {
        self.links.get(&id)?.session
    }

    /// Chooses the unauthenticated connection to close before another one from this network is accepted:
    /// the network's oldest if it is at its limit, else, at the total limit, the oldest of the network
    /// with most. `None` below both limits.
    fn connection_to_evict(&self, from: IpAddr) -> Option<ConnectionId> {
        let mut unproven = BTreeMap::<IpAddr, Vec<ConnectionId>>::new();
        for (id, link) in self.links.iter().filter(|(_, link)| link.session.is_none()) {
            unproven.entry(network(link.far.ip())).or_default().push(*id);
        }
        let own = unproven.get(&network(from)).filter(|own| own.len() >= MOST_UNPROVEN_OF_NETWORK);
        let all: usize = unproven.values().map(Vec::len).sum();
        let most =
            || unproven.values().max_by_key(|ids| ids.len()).filter(|_| all >= MOST_UNPROVEN);
        own.or_else(most)?.first().copied()
    }
}

impl TcpLinks {
    pub(crate) fn new() -> Self {
        let (events, arrivals) = mpsc::channel(EVENT_QUEUE);
        let state = Mutex::default();
        Self(Arc::new(TcpLinksShared { state, events, arrivals: Mutex::new(Some(arrivals)) }))
    }

    /// Takes the receiver of the connections' events; `None` after the first call.
    pub(crate) fn take_events(&self) -> Option<Receiver<TcpEvent>> {
        self.0.arrivals.lock().expect("no thread panics while it holds the lock").take()
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.state.lock().expect("no thread panics while it holds the lock")
    }

    /// Returns whether a connection carries datagrams of `session` (`None`: outside any session) to an
    /// address by a link.
    pub(crate) fn carries(&self, link: u8, to: SocketAddr, session: Option<SessionId>) -> bool {
        self.lock().connection_for(link, to, session).is_some()
    }

    /// True for a hub, which accepts connections.
    pub(crate) fn accepts(&self) -> bool {
        self.lock().accepts
    }

    /// Diverts a link's datagrams for a hub's UDP addresses to a connection, or back to UDP (`None`).
    pub(crate) fn divert(&self, link: u8, hub: &[SocketAddr], over: Option<ConnectionId>) {
        let mut state = self.lock();
        for address in hub {
            match over {
                Some(over) => state.carrying.insert((link, *address), over),
                None => state.carrying.remove(&(link, *address)),
            };
        }
    }

    /// Pins a session's link to its current connection, whatever is diverted later.
    pub(crate) fn pin(&self, session: SessionLink) {
        let mut state = self.lock();
        let has = |(_, link): &(&ConnectionId, &LinkConnection)| link.session == Some(session);
        let found = state.links.iter().find(has).map(|(id, _)| *id);
        found.into_iter().for_each(|id| _ = state.pinned.insert(session, id));
    }

    /// Returns the source address to report to the endpoint for datagrams of a connection; `None` if the
    /// connection is closed.
    pub(crate) fn source(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.lock().links.get(&id).map(|link| link.udp_address.unwrap_or(link.far))
    }

    /// Closes a connection, unless a session keeps it.
    pub(crate) fn close(&self, id: ConnectionId) {
        let closed = {
            let mut state = self.lock();
            if state.pinned.values().any(|kept| *kept == id) {
                return;
            }
            state.carrying.retain(|_, over| *over != id);
            state.links.remove(&id)
        };
        closed.and_then(|link| link.session).into_iter().for_each(|session| self.release(session));
    }

    /// Releases a session that was held back, because its connection has room, is closed or is no longer
    /// used.
    pub(crate) fn release(&self, session: SessionLink) {
        if self.lock().held_back.remove(&session) {
            let events = self.0.events.clone();
            // A task, because the driver itself calls this: it must not wait for room in its queue.
            tokio::spawn(async move { events.send(TcpEvent::Room(session)).await });
        }
    }

    /// Records that a connection has delivered an authentic datagram of a session's link. Closes an older
    /// connection of the same session and link.
    pub(super) fn authenticate(&self, id: ConnectionId, session: SessionLink) {
        let mut older = Vec::new();
        let before = {
            let mut state = self.lock();
            let Some(link) = state.links.get_mut(&id) else { return };
            let before = link.session.replace(session);
            if before != Some(session) {
                let is_older = |other: &ConnectionId, link: &mut LinkConnection| {
                    *other != id && link.session == Some(session)
                };
                older.extend(state.links.extract_if(.., is_older));
                let is_closed = |id: &ConnectionId| older.iter().any(|(closed, _)| closed == id);
                state.carrying.retain(|_, over| !is_closed(over));
                state.pinned.retain(|_, over| !is_closed(over));
            }
            before.filter(|before| *before != session)
        };
        // A session that used this connection before no longer learns of room on it.
        before.into_iter().for_each(|before| self.release(before));
        if !older.is_empty() {
            self.release(session);
        }
    }

    /// Queues a datagram on the connection that carries its session or destination, if there is one.
    pub(crate) fn send(
        &self,
        link: u8,
        to: SocketAddr,
        session: Option<SessionId>,
        datagram: &[u8],
    ) -> SendOutcome {
        let mut state = self.lock();
        let Some(id) = state.connection_for(link, to, session) else {
            return SendOutcome::NoConnection;
        };
        // The connection has just ended: the datagram is lost, as UDP would lose it.
        let Some(link) = state.links.get_mut(&id) else { return SendOutcome::Queued };
        link.udp_address = Some(to);
        let Ok(length) = u16::try_from(datagram.len()) else { return SendOutcome::Queued };
        let waiting = link.level.bytes.load(Ordering::Relaxed);
        if waiting + datagram.len() > DROP_ABOVE {
            // Acknowledgements and repairs pass a session that is held back, so memory needs a bound.
            return SendOutcome::Queued;
        }
        link.level.bytes.fetch_add(2 + datagram.len(), Ordering::Relaxed);
        let mut frame = Vec::with_capacity(2 + datagram.len());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(datagram);
        // Fails if the task has ended, which reports that by an event of its own.
        let _ = link.frames.send(frame);
        match link.session {
            Some(session)
                if waiting >= HOLD_BACK_AT && !link.level.full.swap(true, Ordering::Relaxed) =>
            {
                state.held_back.insert(session);
                SendOutcome::Full(session)
            }
            _ => SendOutcome::Queued,
        }
    }

    /// Connects to a hub by a link, within TLS if `tls_host` is given. `mark`: firewall mark of its packets.
    /// The connection carries no datagrams until [`Self::divert`].
    ///
    /// # Errors
    /// Those of the system and of TLS; `TimedOut` after 10 s.
    pub(crate) async fn connect(
        &self,
        hub: SocketAddr,
        end: &LocalEnd,
        mark: Option<u32>,
        tls_host: Option<&str>,
    ) -> io::Result<ConnectionId> {
        let socket = match hub {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
        };
        if let Some(mark) = mark {
            // Without it, a terminal that intercepts its own connections would send this one over itself.
            SockRef::from(&socket).set_mark(mark)?;
        }
        end.bind(&socket)?;
        set_socket_options(&SockRef::from(&socket));
        let connected = timeout(PROOF_TIMEOUT, async {
            let stream = socket.connect(hub).await?;
            let mut connection = match tls_host {
                Some(host) => TcpConnection::to_hub(stream, host).await?,
                None => TcpConnection::plain(stream)?,
            };
            connection.writer.write_all(PREFACE).await?;
            connection.writer.flush().await?;
            Ok::<_, io::Error>(connection)
        });
        let connection = connected.await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(self.add(hub, NewConnection::Opened(connection)))
    }

    /// Tries the addresses of a hub in turn with [`Self::connect`]. Returns the first connection and its
    /// address.
    ///
    /// # Errors
    /// That of the last address.
    pub(crate) async fn connect_to(
        &self,
        hub: &TcpAddress,
        end: &LocalEnd,
        mark: Option<u32>,
    ) -> io::Result<(ConnectionId, SocketAddr)> {
        let host = hub.tls.then(|| hub.address.host());
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in lookup_host(hub.address.as_str()).await? {
            match self.connect(address, end, mark, host).await {
                Ok(id) => return Ok((id, address)),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Accepts terminals' connections until dropped; with `tls`, also those within TLS.
    pub(crate) async fn serve(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        self.lock().accepts = true;
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // A dual-stack listener reports IPv4 addresses in mapped form.
                    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                    if self.make_room(address.ip()) {
                        set_socket_options(&SockRef::from(&stream));
                        self.add(address, NewConnection::Accepted(stream, tls.clone()));
                    }
                }
                Err(error) => {
                    tracing::debug!("cannot accept a terminal's TCP connection: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Makes room for another unauthenticated connection from this address, closing one if necessary.
    /// Returns false at the limit of all connections.
    fn make_room(&self, from: IpAddr) -> bool {
        let closed = self.lock().connection_to_evict(from);
        closed.into_iter().for_each(|id| self.close(id));
        self.lock().links.len() < MOST_LINKS
    }

    /// Registers a connection and spawns the task that carries its datagrams.
    fn add(&self, far: SocketAddr, arrived: NewConnection) -> ConnectionId {
        let (frames, outgoing) = mpsc::unbounded_channel();
        let level = Arc::<QueueLevel>::default();
        let mut state = self.lock();
        state.next += 1;
        let id = ConnectionId(state.next);
        let mut replaced = None;
        if let NewConnection::Accepted(..) = arrived {
            // Its client reuses the port, so an earlier connection from there has ended.
            let before = state.carrying.insert((0, far), id);
            replaced = before.and_then(|before| state.links.remove(&before)?.session);
        }
        let links = self.clone();
        let carried = level.clone();
        let task = tokio::spawn(async move {
            let ended = links.run_connection(id, far, arrived, outgoing, &carried).await;
            tracing::debug!(%far, "TCP connection of the hop ended: {ended:?}");
            links.end(id).await;
        });
        let connection = LinkConnection {
            far,
            udp_address: None,
            frames,
            level,
            session: None,
            task: Some(task.abort_handle()),
        };
        state.links.insert(id, connection);
        drop(state);
        replaced.into_iter().for_each(|session| self.release(session));
        id
    }

    async fn run_connection(
        &self,
        id: ConnectionId,
        far: SocketAddr,
        arrived: NewConnection,
        outgoing: UnboundedReceiver<Vec<u8>>,
        level: &QueueLevel,
    ) -> io::Result<()> {
        let begun = tokio::time::Instant::now();
        let (connection, accepted) = match arrived {
            NewConnection::Opened(connection) => (connection, false),
            NewConnection::Accepted(stream, tls) => {
                let begun = TcpConnection::of_terminal(stream, far.ip(), tls);
                (timeout(PROOF_TIMEOUT, begun).await??, true)
            }
        };
        let TcpConnection { socket, reader, writer } = connection;
        tokio::select! {
            ended = self.read(id, reader, accepted.then_some(begun)) => ended,
            ended = self.write(id, writer, &socket, outgoing, level) => ended,
        }
    }

    /// Forgets a connection that has ended by itself.
    async fn end(&self, id: ConnectionId) {
        let session = {
            let mut state = self.lock();
            let Some(mut link) = state.links.remove(&id) else { return };
            // Dropping the entry would abort the task that runs this.
            link.task = None;
            state.pinned.retain(|_, over| *over != id);
            // A terminal keeps the entry until it diverts again: what it sends meanwhile is lost, instead of
            // going over UDP, which is blocked.
            if state.accepts {
                state.carrying.retain(|_, over| *over != id);
            }
            link.session
        };
        session.into_iter().for_each(|session| self.release(session));
        let _ = self.0.events.send(TcpEvent::Ended(id)).await;
    }

    /// Reads datagrams until the connection ends or violates the framing. An accepted connection
    /// (`begun`: its start) must deliver an authentic datagram within 10 s.
    async fn read(
        &self,
        id: ConnectionId,
        reader: BoxedReader,
        begun: Option<tokio::time::Instant>,
    ) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(64 << 10, reader);
        if begun.is_some() {
            timeout(PROOF_TIMEOUT, read_preface(&mut reader)).await??;
        }
        let mut proven = begun.is_none();
        loop {
            proven = proven || self.lock().session_of(id).is_some();
            let patience = match begun {
                Some(begun) if !proven => PROOF_TIMEOUT.saturating_sub(begun.elapsed()),
                _ => IDLE,
            };
            let datagram = timeout(patience, read_datagram(&mut reader)).await??;
            let event = TcpEvent::Datagram(id, datagram);
            if self.0.events.send(event).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Writes queued datagrams, up to 64 kB at a time, until the connection ends.
    async fn write(
        &self,
        id: ConnectionId,
        mut writer: BoxedWriter,
        socket: &OwnedFd,
        mut outgoing: UnboundedReceiver<Vec<u8>>,
        level: &QueueLevel,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut looked = clock::now();
        let mut choice = ControlChoice::new(looked);
        while let Some(frame) = outgoing.recv().await {
            bytes.clear();
            bytes.extend(frame);
            while bytes.len() < UNSENT as usize
                && let Ok(frame) = outgoing.try_recv()
            {
                bytes.extend(frame);
            }
            writer.write_all(&bytes).await?;
            // TLS buffers records of its own.
            writer.flush().await?;
            update_congestion_control(&mut choice, &mut looked, socket);
            let before = level.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            if before - bytes.len() <= RESUME_AT && level.full.swap(false, Ordering::Relaxed) {
                let session = self.lock().session_of(id);
                session.into_iter().for_each(|session| self.release(session));
            }
        }
        Ok(())
    }
}

type BoxedReader = Box<dyn AsyncRead + Send + Unpin>;
type BoxedWriter = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection, plain or within TLS.
struct TcpConnection {
    /// A duplicate of the socket, for its options and counters.
    socket: OwnedFd,
    reader: BoxedReader,
    writer: BoxedWriter,
}

/// A new connection, by the side that opened it.
enum NewConnection {
    /// Opened by this side; the preface has been sent.
    Opened(TcpConnection),
    /// Opened by a terminal. With an acceptor, it may begin with a TLS handshake.
    Accepted(TcpStream, Option<TlsAcceptor>),
}

impl TcpConnection {
    fn plain(stream: TcpStream) -> io::Result<Self> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        let (reader, writer) = stream.into_split();
        Ok(Self { socket, reader: Box::new(reader), writer: Box::new(writer) })
    }

    /// Performs the TLS handshake of a terminal, with `host` as the server name (SNI).
    async fn to_hub(stream: TcpStream, host: &str) -> io::Result<Self> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        let within = tls::connector()?.connect(tls::server_name(host)?, stream).await?;
        let (reader, writer) = tokio::io::split(within);
        Ok(Self { socket, reader: Box::new(reader), writer: Box::new(writer) })
    }

    /// Performs the TLS handshake of a hub if the terminal's first byte announces one.
    async fn of_terminal(
        stream: TcpStream,
        far: IpAddr,
        tls: Option<TlsAcceptor>,
    ) -> io::Result<Self> {
        let Some(tls) = tls else { return Self::plain(stream) };
        // Not consumed, since the TLS handshake or the preface begins with it.
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0] != tls::FIRST {
            return Self::plain(stream);
        }
        let socket = stream.as_fd().try_clone_to_owned()?;
        let (reader, writer) =
            tokio::io::split(handshake::accept(&tls, network(far), stream).await?);
        Ok(Self { socket, reader: Box::new(reader), writer: Box::new(writer) })
    }
}

/// Reads and checks the preface of an accepted connection.
async fn read_preface(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    reader.read_exact(&mut preface).await?;
    if preface == *PREFACE { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Reads one datagram with its length prefix of two bytes.
async fn read_datagram(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = usize::from(reader.read_u16().await?);
    if length == 0 || length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    cost::count(length);
    let mut datagram = vec![0; length];
    reader.read_exact(&mut datagram).await?;
    Ok(datagram)
}

/// Returns the datagrams of an accepted connection until it ends or violates the framing.
#[cfg(feature = "fuzzing")]
pub(crate) async fn datagrams(mut reader: impl AsyncRead + Unpin) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    if read_preface(&mut reader).await.is_ok() {
        while let Ok(datagram) = read_datagram(&mut reader).await {
            datagrams.push(datagram);
        }
    }
    datagrams
}

/// Reads a sending connection's counters, at most once a second, and switches its congestion control if
/// [`ControlChoice`] says so. Without BBR in the kernel, the default or CUBIC stays.
fn update_congestion_control(choice: &mut ControlChoice, looked: &mut Instant, socket: &OwnedFd) {
    let now = clock::now();
    if now.saturating_since(*looked) < LOOK {
        return;
    }
    *looked = now;
    let Ok(info) = TcpInfo::of(socket) else { return };
    let figures = SegmentCounters {
        sent: info.segments_sent(),
        resent: info.retransmitted_segments(),
        window: info.congestion_window(),
    };
    // CUBIC while nothing is lost, BBR otherwise: 42.6 instead of 39.9 Mbit/s (`benches/blocked.sh` of
    // crate `skyhop`).
    if let Some(control) = choice.handle_counters(now, figures) {
        let set = SockRef::from(socket).set_tcp_congestion(control.name().as_bytes());
        tracing::debug!("TCP connection of the hop: {} ({set:?})", control.name());
    }
}

/// Sets the options of a connection that carries datagrams. Failures are ignored: the connection also
/// works without each of them.
fn set_socket_options(socket: &SockRef<'_>) {
    let _ = socket.set_tcp_nodelay(true);
    // What lies unsent in the kernel delays everything behind it.
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
    // The losses of a satellite link are not congestion. Where there is no BBR, the default stays.
    let _ = socket.set_tcp_congestion(KernelControl::Bbr.name().as_bytes());
}

#[cfg(test)]
mod tests;
