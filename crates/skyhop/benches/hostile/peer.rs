//! A terminal with a valid key that sends what it likes: an endpoint on a socket of the second terminal.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use lab::{Node, find_netns};
use slacp::{Config, Endpoint, Event, SessionId, StreamId, StreamOpening};
use units::{BitRate, Machine};

use crate::gateways::Keys;

const HUB_PORT: u16 = 5900;
/// Time between looks at the socket.
const LOOK: Duration = Duration::from_millis(1);
/// Time for a session.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    session: Option<SessionId>,
    socket: UdpSocket,
    begin: Instant,
    sent: usize,
}

impl Peer {
    /// Sets up a session as the second terminal, which sends as fast as its link.
    pub(crate) fn connect(keys: &Keys) -> Self {
        let mut peer = Self::begin(keys, 2);
        while !peer.is_up() {
            assert!(peer.begin.elapsed() < PATIENCE, "no session");
            peer.turn();
        }
        peer
    }

    /// Whether it has had a session.
    pub(crate) fn is_up(&mut self) -> bool {
        let up = |(session, event)| matches!(event, Event::Up { .. }).then_some(session);
        self.session = self.session.or_else(|| self.endpoint.poll_event().and_then(up));
        self.session.is_some()
    }

    /// Begins to ask for a session with the key of the `number`-th terminal.
    pub(crate) fn begin(keys: &Keys, number: u8) -> Self {
        let node = Node::terminal(2).expect("there are two");
        let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        let socket = find_netns(node).expect("a lab").run(bind);
        socket.set_read_timeout(Some(LOOK)).expect("a timeout");
        let hub = SocketAddr::from((Node::Hub.address4(), HUB_PORT));
        let mut config = Config::new(BitRate::from_mbit(50));
        config.decompressors = 4;
        let (identity, hub_key) = keys.of_terminal(number);
        let endpoint = Endpoint::terminal(config, identity, hub_key, vec![hub], [7; 32]);
        Self { endpoint, session: None, socket, begin: Instant::now(), sent: 0 }
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session.expect("it is up")
    }

    pub(crate) fn now(&self) -> units::Instant {
        // Zero is reserved for the time before everything.
        units::Instant::from_nanos(1) + self.begin.elapsed()
    }

    /// Opens a stream to a destination.
    pub(crate) fn open(&mut self, destination: SocketAddr, compressed: bool) -> Option<StreamId> {
        let source = (Node::client(2)?.address4(), 40_000).into();
        let (now, open) = (self.now(), StreamOpening { destination, source, dscp: None });
        let opened = match compressed {
            true => self.endpoint.open_compressed(now, self.session(), open),
            false => self.endpoint.open(now, self.session(), open),
        };
        opened.ok()
    }

    /// Sends what may be sent, and receives what has come. Returns the bytes sent since the last call.
    pub(crate) fn turn(&mut self) -> usize {
        let (mut datagram, mut buffer) = (Vec::new(), [0; 2048]);
        let now = self.now();
        if self.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(to) = self.endpoint.poll_transmit(now, &mut datagram) {
            self.sent += datagram.len();
            // What the socket does not take is lost, as on the way.
            let _ = self.socket.send_to(&datagram, to);
        }
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((count, from)) => {
                    let now = self.now();
                    self.endpoint.handle_datagram(now, from, &mut buffer[..count]);
                }
                Err(error) => {
                    let is_silent =
                        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    assert!(is_silent || error.kind() == ErrorKind::ConnectionRefused, "{error}");
                    return std::mem::take(&mut self.sent);
                }
            }
        }
    }
}
