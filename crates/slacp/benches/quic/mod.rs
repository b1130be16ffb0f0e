//! The rival: QUIC by quinn-proto, in the same virtual time on the same links.
//! A request says in its first eight bytes how many bytes it wants back.

#![allow(dead_code, unreachable_pub, missing_docs)]
#![expect(
    clippy::disallowed_types,
    reason = "the library has no other time than the wall clock's type"
)]

mod tls;

use core::any::Any;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use link::LinkConfig;
use link::testkit::{Net, Peer};
use quinn_proto::congestion::{BbrConfig, Controller, ControllerFactory, CubicConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use units::{Instant, Machine};

use crate::hop::{HUB, Hop, TERMINAL};

/// Which congestion control a rival uses.
#[derive(Debug, Clone, Copy)]
pub enum Control {
    Cubic,
    Bbr,
    /// A window that nothing fills, for tests of speed.
    Unlimited,
}

impl Control {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Bbr => Arc::new(BbrConfig::default()),
            Self::Unlimited => Arc::new(Unlimited),
        }
    }
}

/// A congestion window that is never reached.
#[derive(Clone)]
struct Unlimited;

impl Controller for Unlimited {
    fn on_congestion_event(
        &mut self,
        _: std::time::Instant,
        _: std::time::Instant,
        _: bool,
        _: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        1 << 40
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for Unlimited {
    fn build(self: Arc<Self>, _: std::time::Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

/// Windows in MB, the largest as ours. The library's receiver gives a stream up
/// that has more than some thousand gaps, which losses make in large windows.
pub const WINDOWS: [u32; 6] = [64, 32, 16, 8, 4, 2];

/// Windows of so many megabytes, packets as large as ours.
fn transport(control: Control, window: u32) -> Arc<TransportConfig> {
    let window = VarInt::from_u32(window * 1_000_000);
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(control.factory())
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(window.into_inner())
        .max_concurrent_bidi_streams(VarInt::from_u32(20_000))
        .max_idle_timeout(None)
        .enable_segmentation_offload(false)
        .mtu_discovery_config(None)
        .initial_mtu(1472);
    Arc::new(transport)
}

/// One end of a connection, with its user.
pub struct Quic {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    /// What the library takes for the beginning of virtual time.
    origin: std::time::Instant,
    timeout: Option<Instant>,
    me: usize,
    outbox: VecDeque<Vec<u8>>,
    pub connected: bool,
    /// Why the library has given the connection up.
    pub failure: Option<String>,
    /// Bytes that came on each stream, and when the last did.
    pub received: BTreeMap<StreamId, (u64, Instant)>,
    /// Streams that the peer has ended.
    ended: usize,
    requests: BTreeMap<StreamId, Vec<u8>>,
    to_send: BTreeMap<StreamId, u64>,
}

fn address(peer: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, peer as u8], 1))
}

impl Quic {
    pub fn new(me: usize, control: Control, window: u32, seed: u64) -> Self {
        let mut bytes = [me as u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let origin = std::time::Instant::now();
        let mut server = ServerConfig::with_crypto(tls::server());
        server.transport_config(transport(control, window));
        let server = (me == HUB).then(|| Arc::new(server));
        let config = Arc::new(EndpointConfig::default());
        let mut endpoint = Endpoint::new(config, server, false, Some(bytes));
        let connection = (me == TERMINAL).then(|| {
            let mut client = ClientConfig::new(tls::client());
            client.transport_config(transport(control, window));
            endpoint.connect(origin, client, address(HUB), "hub").unwrap()
        });
        let mut quic = Self {
            endpoint,
            connection,
            origin,
            timeout: None,
            me,
            outbox: VecDeque::new(),
            connected: false,
            failure: None,
            received: BTreeMap::new(),
            ended: 0,
            requests: BTreeMap::new(),
            to_send: BTreeMap::new(),
        };
        quic.pump(Instant::ZERO);
        quic
    }

    fn wall(&self, now: Instant) -> std::time::Instant {
        self.origin + Duration::from_nanos(now.as_nanos())
    }

    /// Sends a request of `up` bytes for `down` bytes on a stream of its own.
    pub fn request(&mut self, now: Instant, up: usize, down: u64) -> StreamId {
        let (_, connection) = self.connection.as_mut().unwrap();
        let id = connection.streams().open(Dir::Bi).expect("a stream");
        let mut request = down.to_be_bytes().to_vec();
        request.resize(up, 7);
        let mut stream = connection.send_stream(id);
        assert_eq!(stream.write(&request).unwrap(), up);
        stream.finish().unwrap();
        self.pump(now);
        id
    }

    /// How many streams the peer has ended.
    pub fn ended(&self) -> usize {
        self.ended
    }

    /// Passes on what the library has to say, and acts as its user.
    fn pump(&mut self, now: Instant) {
        let Some((handle, mut connection)) = self.connection.take() else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.failure = Some(reason.to_string()),
                Event::Stream(StreamEvent::Opened { .. }) => {
                    while let Some(id) = connection.streams().accept(Dir::Bi) {
                        self.read(now, &mut connection, id);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => self.read(now, &mut connection, id),
                _ => {}
            }
        }
        self.write(&mut connection);
        let origin = self.origin;
        let virtual_time =
            |at: std::time::Instant| Instant::ZERO + at.saturating_duration_since(origin);
        self.timeout = connection.poll_timeout().map(virtual_time);
        self.connection = Some((handle, connection));
    }

    fn read(&mut self, now: Instant, connection: &mut Connection, id: StreamId) {
        let mut stream = connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        let mut ended = false;
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    let entry = self.received.entry(id).or_insert((0, now));
                    *entry = (entry.0 + chunk.bytes.len() as u64, now);
                    if self.me == HUB {
                        self.requests.entry(id).or_default().extend_from_slice(&chunk.bytes);
                    }
                }
                Ok(None) => {
                    ended = true;
                    break;
                }
                Err(_) => break,
            }
        }
        let _ = chunks.finalize();
        self.ended += usize::from(ended);
        if ended && let Some(request) = self.requests.remove(&id) {
            let wanted = u64::from_be_bytes(*request.first_chunk().expect("eight bytes"));
            self.to_send.insert(id, wanted);
        }
    }

    fn write(&mut self, connection: &mut Connection) {
        static BYTES: [u8; 65_536] = [7; 65_536];
        self.to_send.retain(|id, left| {
            let mut stream = connection.send_stream(*id);
            while *left > 0 {
                let most = (*left).min(BYTES.len() as u64) as usize;
                // Not more at once than a gateway would hold unsent.
                match stream.write(&BYTES[..most]) {
                    Ok(count) => *left -= count as u64,
                    Err(_) => return true,
                }
            }
            stream.finish().unwrap();
            false
        });
    }
}

impl Machine for Quic {
    type Wake = ();

    fn poll_timeout(&self) -> Option<(Instant, ())> {
        self.timeout.map(|at| (at, ()))
    }

    fn handle_timeout(&mut self, now: Instant) {
        let wall = self.wall(now);
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(wall);
        }
        self.pump(now);
    }
}

impl Peer for Quic {
    fn receive(&mut self, now: Instant, from: usize, datagram: Vec<u8>) {
        let (wall, mut buffer) = (self.wall(now), Vec::new());
        let data = BytesMut::from(&datagram[..]);
        match self.endpoint.handle(wall, address(from), None, None, data, &mut buffer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, wall, &mut buffer, None);
                self.connection = accepted.ok();
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::Response(_)) => self.outbox.push_back(buffer),
            None => {}
        }
        self.pump(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        if let Some(datagram) = self.outbox.pop_front() {
            return Some((1 - self.me, datagram));
        }
        let wall = self.wall(now);
        let mut datagram = Vec::new();
        let sent = self.connection.as_mut()?.1.poll_transmit(wall, 1, &mut datagram);
        self.pump(now);
        sent.map(|_| (1 - self.me, datagram))
    }
}

/// Two rivals over the links of a [`Hop`], with these from the hub and from the terminal.
pub fn net(hop: &Hop, [forward, ret]: [LinkConfig; 2], control: Control, window: u32) -> Net<Quic> {
    let peers = [TERMINAL, HUB].map(|me| Quic::new(me, control, window, hop.seed));
    let mut net = Net::new(peers.into(), hop.seed);
    net.connect(HUB, TERMINAL, forward);
    net.connect(TERMINAL, HUB, ret);
    net
}

/// The same links as those of [`Hop`], between two connected rivals.
pub fn connected(hop: &Hop, control: Control, window: u32) -> Net<Quic> {
    let mut net = net(hop, [hop.forward, hop.ret].map(|rate| hop.link(rate)), control, window);
    let deadline = Instant::ZERO + Duration::from_secs(60);
    net.run_until(|peers| peers.iter().all(|peer| peer.connected), deadline).unwrap();
    net
}

/// The time of a download, from its request to the last byte, with the largest
/// window in MB with which the connection lives; `None` without any.
pub fn download(hop: &Hop, control: Control, bytes: u64) -> Option<(f64, u32)> {
    WINDOWS.into_iter().find_map(|window| {
        let mut net = connected(hop, control, window);
        exchange(&mut net, 100, bytes).map(|seconds| (seconds, window))
    })
}

/// One request and its reply.
pub fn exchange(net: &mut Net<Quic>, up: usize, down: u64) -> Option<f64> {
    let start = net.now();
    let id = net.peers_mut()[TERMINAL].request(start, up, down);
    let failed = |peers: &[Quic]| peers.iter().any(|peer| peer.failure.is_some());
    let done = |peers: &[Quic]| peers[TERMINAL].received.get(&id).is_some_and(|r| r.0 == down);
    let over = |peers: &mut [Quic]| failed(peers) || done(peers);
    let end = net.run_until(over, start + Duration::from_secs(40_000)).ok()?;
    if failed(net.peers()) {
        return None;
    }
    net.peers_mut()[TERMINAL].received.remove(&id);
    Some(end.saturating_since(start).as_secs_f64())
}
