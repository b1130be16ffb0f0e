//! Datagrams over TCP connections, where a network blocks UDP.
//!
//! A connection begins with [`PREFACE`] from the side that opened it. Then each datagram follows its
//! length in two bytes, big-endian; both may be within TLS. A connection carries the datagrams for its address; a terminal
//! diverts those for a hub's UDP addresses to one ([`TcpLinks::divert`]).
//!
//! TCP has its own queue and its own losses. A connection therefore lets little wait in the kernel,
//! holds its session back when more waits here, and drops what comes all the same.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use os::socket::TcpInfo;
use pep::carriage::control::{Control, ControlChoice, Figures};
use pep::config::TcpAddress;
use slacp::SessionId;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use units::Instant;

use super::tls;
use crate::clock;

/// The first bytes of a connection.
const PREFACE: &[u8; 8] = b"SLACP\0\0\x01";
/// The longest datagram, in bytes: the largest MTU.
const LONGEST: usize = 9216;
/// Bytes that wait here for the kernel before the session is held back, until it goes on, and before
/// datagrams are dropped.
const FULL: usize = 128 << 10;
const ROOM: usize = 32 << 10;
const MOST: usize = 1 << 20;
/// Bytes that the kernel holds without having sent them.
const UNSENT: u32 = 64 << 10;
/// Received datagrams that wait for the driver; then the peer's TCP waits.
const ARRIVALS: usize = 512;
/// Connections that belong to no session yet, those of one address, and all connections.
const MOST_UNPROVEN: usize = 256;
const MOST_UNPROVEN_OF_ADDRESS: usize = 64;
const MOST_LINKS: usize = 16_384;
/// Time for the preface, and for the first datagram of a session.
const PROOF: Duration = Duration::from_secs(10);
/// A connection without datagrams for this long is closed. Longer than any session survives silence.
const IDLE: Duration = Duration::from_secs(20 * 60);
/// How often a connection that sends is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after a failure to accept, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// What happens on connections.
#[derive(Debug)]
pub(crate) enum TcpEvent {
    /// A datagram from the far end of a connection.
    Datagram(SocketAddr, Vec<u8>),
    /// The session may send new data again.
    Room(SessionId),
    /// The connection has ended.
    Ended(SocketAddr),
}

/// What became of a datagram to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// No connection carries it: it is UDP's.
    NotHere,
    /// A connection has it, or dropped it.
    Taken,
    /// As `Taken`; the connection's session is to be held back until [`TcpEvent::Room`].
    Full(SessionId),
}

/// The TCP connections that carry datagrams.
#[derive(Clone)]
pub(crate) struct TcpLinks(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    events: Sender<TcpEvent>,
    arrivals: Mutex<Option<Receiver<TcpEvent>>>,
}

#[derive(Default)]
struct State {
    links: BTreeMap<SocketAddr, Link>,
    /// The UDP addresses of hubs whose datagrams a connection carries, and its address.
    diverted: BTreeMap<SocketAddr, SocketAddr>,
    /// Distinguishes a connection from a later one with the same address.
    next: u64,
}

struct Link {
    number: u64,
    /// The UDP address for which datagrams were diverted here last.
    stands_for: Option<SocketAddr>,
    frames: UnboundedSender<Vec<u8>>,
    level: Arc<Level>,
    /// The session that has proved to be at the far end.
    session: Option<SessionId>,
    task: Option<AbortHandle>,
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What waits for the kernel.
#[derive(Default)]
struct Level {
    bytes: AtomicUsize,
    /// Whether the session is held back.
    full: AtomicBool,
}

impl TcpLinks {
    pub(crate) fn new() -> Self {
        let (events, arrivals) = mpsc::channel(ARRIVALS);
        let state = Mutex::default();
        Self(Arc::new(Shared { state, events, arrivals: Mutex::new(Some(arrivals)) }))
    }

    /// What happens on the connections; for the driver, once.
    pub(crate) fn take_events(&self) -> Option<Receiver<TcpEvent>> {
        self.0.arrivals.lock().expect("nobody panics with the lock").take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody panics with the lock")
    }

    /// Whether a connection carries the datagrams for this address.
    pub(crate) fn carries(&self, to: SocketAddr) -> bool {
        let state = self.lock();
        state.diverted.contains_key(&to) || state.links.contains_key(&to)
    }

    /// Sends the datagrams for a hub's UDP addresses over a connection from now on, or over none.
    pub(crate) fn divert(&self, hub: &[SocketAddr], over: Option<SocketAddr>) {
        let mut state = self.lock();
        for address in hub {
            match over {
                Some(over) => state.diverted.insert(*address, over),
                None => state.diverted.remove(address),
            };
        }
    }

    /// The address that datagrams from the far end of a connection come from, as far as sessions are
    /// concerned.
    pub(super) fn source(&self, link: SocketAddr) -> SocketAddr {
        self.lock().links.get(&link).and_then(|link| link.stands_for).unwrap_or(link)
    }

    /// Closes a connection.
    pub(crate) fn close(&self, address: SocketAddr) {
        let closed = {
            let mut state = self.lock();
            state.diverted.retain(|_, over| *over != address);
            state.links.remove(&address)
        };
        closed.into_iter().for_each(|link| self.release(&link));
    }

    /// Lets the session of a closed connection go on, if it was held back for it.
    fn release(&self, link: &Link) {
        if let Some(session) = link.session
            && link.level.full.load(Ordering::Relaxed)
        {
            let events = self.0.events.clone();
            tokio::spawn(async move { events.send(TcpEvent::Room(session)).await });
        }
    }

    /// The session at the far end of a connection has sent an authentic datagram. An older connection
    /// of the same session is closed.
    pub(super) fn prove(&self, address: SocketAddr, session: SessionId) {
        let mut older = Vec::new();
        {
            let mut state = self.lock();
            let Some(link) = state.links.get_mut(&address) else { return };
            if link.session.replace(session) != Some(session) {
                let is_older = |at: &SocketAddr, link: &mut Link| {
                    *at != address && link.session == Some(session)
                };
                older.extend(state.links.extract_if(.., is_older));
            }
        }
        older.iter().for_each(|(_, link)| self.release(link));
    }

    /// Sends a datagram, if a connection carries those for its destination.
    pub(crate) fn send(&self, to: SocketAddr, datagram: &[u8]) -> Sent {
        let mut state = self.lock();
        let over = state.diverted.get(&to).copied();
        let Some(link) = state.links.get_mut(&over.unwrap_or(to)) else {
            // Diverted to a connection that has just ended: lost, like a datagram.
            return if over.is_some() { Sent::Taken } else { Sent::NotHere };
        };
        link.stands_for = over.map(|_| to);
        let Ok(length) = u16::try_from(datagram.len()) else { return Sent::Taken };
        let waiting = link.level.bytes.load(Ordering::Relaxed);
        if waiting + datagram.len() > MOST {
            return Sent::Taken;
        }
        link.level.bytes.fetch_add(2 + datagram.len(), Ordering::Relaxed);
        let mut frame = Vec::with_capacity(2 + datagram.len());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(datagram);
        // A task that has ended reports so itself.
        let _ = link.frames.send(frame);
        match link.session {
            Some(session) if waiting >= FULL && !link.level.full.swap(true, Ordering::Relaxed) => {
                Sent::Full(session)
            }
            _ => Sent::Taken,
        }
    }

    /// Connects to a hub, within TLS if this host is given. The connection carries nothing until
    /// [`Self::divert`].
    ///
    /// # Errors
    /// The system's, and those of TLS; `TimedOut` after 10 s.
    pub(crate) async fn connect(
        &self,
        hub: SocketAddr,
        mark: Option<u32>,
        tls_host: Option<&str>,
    ) -> io::Result<()> {
        let socket = match hub {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
        };
        if let Some(mark) = mark {
            SockRef::from(&socket).set_mark(mark)?;
        }
        prepare(&SockRef::from(&socket));
        let connected = timeout(PROOF, async {
            let stream = socket.connect(hub).await?;
            let mut connection = match tls_host {
                Some(host) => Connection::to_hub(stream, host).await?,
                None => Connection::plain(stream)?,
            };
            connection.writer.write_all(PREFACE).await?;
            connection.writer.flush().await?;
            Ok::<_, io::Error>(connection)
        });
        let connection = connected.await.map_err(|_| io::ErrorKind::TimedOut)??;
        self.close(hub);
        self.add(hub, Arrived::Ours(connection));
        Ok(())
    }

    /// [`Self::connect`] to the first of a hub's addresses that accepts; returns that.
    ///
    /// # Errors
    /// The last one's.
    pub(crate) async fn connect_to(
        &self,
        hub: &TcpAddress,
        mark: Option<u32>,
    ) -> io::Result<SocketAddr> {
        let host = hub.tls.then(|| hub.address.host());
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in lookup_host(hub.address.as_str()).await? {
            match self.connect(address, mark, host).await {
                Ok(()) => return Ok(address),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Accepts terminals' connections until dropped; with `tls`, also those within TLS.
    pub(crate) async fn serve(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                    if self.has_room(address.ip()) {
                        prepare(&SockRef::from(&stream));
                        self.add(address, Arrived::Theirs(stream, tls.clone()));
                    }
                }
                Err(error) => {
                    tracing::debug!("cannot accept a terminal's TCP connection: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether another connection, from this address, may try to prove itself.
    fn has_room(&self, from: IpAddr) -> bool {
        let state = self.lock();
        let unproven = || state.links.iter().filter(|(_, link)| link.session.is_none());
        let of_address = unproven().filter(|(address, _)| address.ip() == from).count();
        of_address < MOST_UNPROVEN_OF_ADDRESS
            && unproven().count() < MOST_UNPROVEN
            && state.links.len() < MOST_LINKS
    }

    /// Carries the datagrams of a connection. The far end of an accepted one has to prove itself.
    fn add(&self, address: SocketAddr, arrived: Arrived) {
        let (frames, outgoing) = mpsc::unbounded_channel();
        let level = Arc::<Level>::default();
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let (stands_for, session, task) = (None, None, None);
        let link = Link { number, stands_for, frames, level: level.clone(), session, task };
        state.links.insert(address, link);
        let links = self.clone();
        let task = tokio::spawn(async move {
            let ended = links.carry(address, arrived, outgoing, &level).await;
            tracing::debug!(%address, "TCP connection of the hop ended: {ended:?}");
            links.end(address, number).await;
        });
        if let Some(link) = state.links.get_mut(&address) {
            link.task = Some(task.abort_handle());
        }
    }

    async fn carry(
        &self,
        address: SocketAddr,
        arrived: Arrived,
        outgoing: UnboundedReceiver<Vec<u8>>,
        level: &Level,
    ) -> io::Result<()> {
        let begun = tokio::time::Instant::now();
        let (connection, accepted) = match arrived {
            Arrived::Ours(connection) => (connection, false),
            Arrived::Theirs(stream, tls) => {
                (timeout(PROOF, Connection::of_terminal(stream, tls)).await??, true)
            }
        };
        let Connection { socket, reader, writer } = connection;
        tokio::select! {
            ended = self.read(address, reader, accepted.then_some(begun)) => ended,
            ended = self.write(address, (writer, &socket), outgoing, level) => ended,
        }
    }

    /// Forgets a connection that has ended by itself.
    async fn end(&self, address: SocketAddr, number: u64) {
        let session = {
            let mut state = self.lock();
            if state.links.get(&address).is_none_or(|link| link.number != number) {
                return;
            }
            let Some(mut link) = state.links.remove(&address) else { return };
            // This is its task.
            link.task = None;
            link.session
        };
        if let Some(session) = session {
            let _ = self.0.events.send(TcpEvent::Room(session)).await;
        }
        let _ = self.0.events.send(TcpEvent::Ended(address)).await;
    }

    /// Reads datagrams until the connection ends or breaks the rules. One that was accepted must
    /// prove itself soon after it has `begun`.
    async fn read(
        &self,
        address: SocketAddr,
        reader: Reader,
        begun: Option<tokio::time::Instant>,
    ) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(64 << 10, reader);
        if begun.is_some() {
            let mut preface = [0; PREFACE.len()];
            timeout(PROOF, reader.read_exact(&mut preface)).await??;
            if preface != *PREFACE {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let mut proven = begun.is_none();
        loop {
            proven = proven
                || self.lock().links.get(&address).is_some_and(|link| link.session.is_some());
            let patience = match begun {
                Some(begun) if !proven => PROOF.saturating_sub(begun.elapsed()),
                _ => IDLE,
            };
            let datagram = timeout(patience, read_datagram(&mut reader)).await??;
            let event = TcpEvent::Datagram(address, datagram);
            if self.0.events.send(event).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Writes datagrams, many at a time, until the connection ends.
    async fn write(
        &self,
        address: SocketAddr,
        (mut writer, socket): (Writer, &OwnedFd),
        mut outgoing: UnboundedReceiver<Vec<u8>>,
        level: &Level,
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
            writer.flush().await?;
            follow(&mut choice, &mut looked, socket);
            let before = level.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            if before - bytes.len() <= ROOM && level.full.swap(false, Ordering::Relaxed) {
                let session = self.lock().links.get(&address).and_then(|link| link.session);
                if let Some(session) = session {
                    let _ = self.0.events.send(TcpEvent::Room(session)).await;
                }
            }
        }
        Ok(())
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection, plain or within TLS.
struct Connection {
    /// The socket itself, for its settings and figures.
    socket: OwnedFd,
    reader: Reader,
    writer: Writer,
}

/// A connection that is to carry datagrams.
enum Arrived {
    /// This side has opened it.
    Ours(Connection),
    /// A terminal has opened it, within TLS or not.
    Theirs(TcpStream, Option<TlsAcceptor>),
}

impl Connection {
    fn plain(stream: TcpStream) -> io::Result<Self> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        let (reader, writer) = stream.into_split();
        Ok(Self { socket, reader: Box::new(reader), writer: Box::new(writer) })
    }

    /// Asks for this host by TLS.
    async fn to_hub(stream: TcpStream, host: &str) -> io::Result<Self> {
        let socket = stream.as_fd().try_clone_to_owned()?;
        let within = tls::connector()?.connect(tls::server_name(host)?, stream).await?;
        let (reader, writer) = tokio::io::split(within);
        Ok(Self { socket, reader: Box::new(reader), writer: Box::new(writer) })
    }

    /// Looks whether a terminal speaks TLS.
    async fn of_terminal(stream: TcpStream, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let Some(tls) = tls else { return Self::plain(stream) };
        let mut first = [0];
        stream.peek(&mut first).await?;
        if first[0] != tls::FIRST {
            return Self::plain(stream);
        }
        let socket = stream.as_fd().try_clone_to_owned()?;
        let (reader, writer) = tokio::io::split(tls.accept(stream).await?);
        Ok(Self { socket, reader: Box::new(reader), writer: Box::new(writer) })
    }
}

/// Reads one datagram behind its length.
async fn read_datagram(reader: &mut BufReader<Reader>) -> io::Result<Vec<u8>> {
    let length = usize::from(reader.read_u16().await?);
    if length == 0 || length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut datagram = vec![0; length];
    reader.read_exact(&mut datagram).await?;
    Ok(datagram)
}

/// Looks at a connection that sends, once a second, and changes its congestion control if it should
/// have another. Where there is no BBR, it has the default, or CUBIC.
fn follow(choice: &mut ControlChoice, looked: &mut Instant, socket: &OwnedFd) {
    let now = clock::now();
    if now.saturating_since(*looked) < LOOK {
        return;
    }
    *looked = now;
    let Ok(info) = TcpInfo::of(socket) else { return };
    let figures = Figures {
        sent: info.segments_sent(),
        resent: info.retransmitted_segments(),
        window: info.congestion_window(),
    };
    if let Some(control) = choice.look(now, figures) {
        let set = SockRef::from(socket).set_tcp_congestion(control.name().as_bytes());
        tracing::debug!("TCP connection of the hop: {} ({set:?})", control.name());
    }
}

/// Settings of a connection that carries datagrams. Each is an improvement only.
fn prepare(socket: &SockRef<'_>) {
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
    // The losses of a satellite link are not congestion. Where there is no BBR, the default stays.
    let _ = socket.set_tcp_congestion(Control::Bbr.name().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Hops;

    /// A connection of a session whose far end does not read, full.
    async fn full(session: SessionId) -> (TcpLinks, Receiver<TcpEvent>, SocketAddr, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let links = TcpLinks::new();
        let events = links.take_events().unwrap();
        links.connect(at, None, None).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        links.prove(at, session);
        while links.send(at, &[7; 1400]) != Sent::Full(session) {}
        (links, events, at, far)
    }

    #[tokio::test]
    async fn a_session_goes_on_when_its_full_connection_is_closed() {
        let session = Hops::new().sessions[0];
        let (links, mut events, at, _far) = full(session).await;
        links.close(at);
        assert!(!links.carries(at));
        let event = events.recv().await;
        assert!(matches!(event, Some(TcpEvent::Room(room)) if room == session), "{event:?}");
    }

    #[tokio::test]
    async fn a_newer_connection_of_a_session_replaces_a_full_one() {
        let session = Hops::new().sessions[0];
        let (links, mut events, old, _far) = full(session).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let new = listener.local_addr().unwrap();
        links.connect(new, None, None).await.unwrap();
        links.prove(new, session);
        assert!(links.carries(new) && !links.carries(old));
        let event = events.recv().await;
        assert!(matches!(event, Some(TcpEvent::Room(room)) if room == session), "{event:?}");
    }

    #[tokio::test]
    async fn one_address_cannot_take_all_places_of_strangers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let links = TcpLinks::new();
        let mut held = Vec::new();
        for _ in 0..MOST_UNPROVEN_OF_ADDRESS {
            held.push(TcpStream::connect(at).await.unwrap());
            let (stream, from) = listener.accept().await.unwrap();
            assert!(links.has_room(from.ip()));
            links.add(from, Arrived::Theirs(stream, None));
        }
        assert!(!links.has_room(at.ip()));
        assert!(links.has_room(IpAddr::from([192, 0, 2, 1])));
    }
}
