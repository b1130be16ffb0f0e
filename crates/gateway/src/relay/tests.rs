//! Tests of every way a connection can end: two real endpoints on loopback UDP, clients and servers
//! on loopback TCP, no interception.

use std::cell::Cell;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pep::traffic::{ClassDefinition, DEFAULT_CLASS, TrafficClasses};
use slacp::{Config, Endpoint, Event, PublicKey, StreamOpening};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use units::{BitRate, ByteCount, Instant};

use super::open_in_time;
use crate::config::keys::{PrivateKey, random_bytes};
use crate::figures::connections::{ConnectionOrigin, DirectLeg, Registered};
use crate::figures::counters::GatewayCounters;
use crate::hop::class::LiveClasses;
use crate::hop::sockets::HopSockets;
use crate::hop::{HopEvent, SessionStream};
use crate::intercept::ClientArrival;
use crate::intercept::listener::AcceptedConnection;
use crate::intercept::own::OwnAddresses;
use crate::network::socket_options;
use crate::relay::terms::{Admission, DialPolicy};
use crate::roles::gateway::{Gateway, Report, Side, TrafficContext, bind};
use crate::roles::workers::{self, Workers};
use crate::testkit::{Hops, abort, assert_reset, payload, read_all, read_to_reset, speak_urgently};

fn own() -> OwnAddresses {
    OwnAddresses::open().unwrap()
}

const POLICY: DialPolicy =
    DialPolicy { timeout: Duration::from_secs(10), transparent: false, marked: false };

/// A running pair whose terminal connects every client to one destination.
struct Pair {
    entrance: SocketAddr,
    /// Drop or send to stop the terminal.
    stop: oneshot::Sender<()>,
    tasks: JoinSet<()>,
    /// Counters of hub and terminal.
    counters: [Arc<GatewayCounters>; 2],
}

impl Pair {
    async fn to(destination: SocketAddr) -> Self {
        Self::with(Config::new(BitRate::from_mbit(1000)), destination).await
    }

    async fn with(config: Config, destination: SocketAddr) -> Self {
        let mut config = config;
        let classes = compressing(&mut config);
        let local = "127.0.0.1:0".parse().unwrap();
        let workers = Workers::start(PARTS.get(), true).unwrap();
        let hub_links = workers::bind(local, &workers, None).unwrap();
        let hub_address = hub_links[0].local_addr().unwrap();
        let [hub_key, terminal_key] = [(); 2].map(|()| PrivateKey::generate().unwrap());
        let seed = || random_bytes().unwrap();
        // The least of the keys is in the first part, and so the terminal in the second, if there is one.
        let allow = [PublicKey([0; 32]), terminal_key.public()];
        let identity = hub_key.pair();
        let hub = Endpoint::hub_in_parts(&config, &identity, &allow, seed(), workers.count());
        let terminal = Endpoint::terminal(
            config,
            terminal_key.pair(),
            hub_key.public(),
            vec![hub_address],
            seed(),
        );
        let start = |side, endpoints, links, workers| {
            let context = context(&classes);
            Gateway::start(side, endpoints, links, workers, POLICY, own(), context).unwrap()
        };
        let hub_links = hub_links.into_iter().map(HopSockets::from).collect();
        let hub = start(Side::Hub, hub, hub_links, workers);
        let links = vec![bind(local).unwrap().into()];
        let terminal = start(Side::Terminal, vec![terminal], links, Workers::none());
        let listener = TcpListener::bind(local).await.unwrap();
        let entrance = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let counters = [&hub, &terminal].map(|side| side.counters());
        tasks.spawn(serve_hub(hub));
        tasks.spawn(serve_terminal(terminal, listener, destination, stopped));
        Self { entrance, stop, tasks, counters }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.entrance).await.unwrap()
    }
}

thread_local! {
    /// Whether the pairs of this thread's test compress their streams.
    static COMPRESS: Cell<bool> = const { Cell::new(false) };
    /// In how many parts the hubs of this thread's test are.
    static PARTS: Cell<u8> = const { Cell::new(1) };
}

/// The classes of both gateways.
fn compressing(config: &mut Config) -> TrafficClasses {
    let compress_streams = COMPRESS.get();
    config.decompressors = if compress_streams { 32 } else { 0 };
    let class = ClassDefinition { compress_streams, ..ClassDefinition::new(DEFAULT_CLASS) };
    TrafficClasses::install(vec![class], false, config).expect("the class is right")
}

fn context(classes: &TrafficClasses) -> TrafficContext {
    TrafficContext {
        classes: Arc::new(LiveClasses::new(classes.clone())),
        ..TrafficContext::default()
    }
}

/// The same endings with compressed streams, and with a hub of which another thread has the
/// terminal's session.
macro_rules! again {
    ($($test:ident),* $(,)?) => {
        mod compressed {
            $(#[test]
            fn $test() {
                super::COMPRESS.set(true);
                super::$test();
            })*
        }

        mod elsewhere {
            $(#[test]
            fn $test() {
                super::PARTS.set(2);
                super::$test();
            })*
        }
    };
}

again! {
    a_client_that_half_closes_gets_its_reply,
    a_server_that_half_closes_still_hears_the_client,
    both_sides_may_close_at_once,
    a_reset_by_either_side_is_a_reset_at_the_other,
    a_reset_after_half_a_transfer_is_no_clean_end,
    a_reset_overtakes_nothing_that_was_sent_before,
    a_refused_connection_is_reset_not_ended,
    a_forbidden_destination_is_reset,
    a_slow_reader_gets_everything_of_a_sender_that_closed_at_once,
    a_server_that_is_gone_after_its_reply_does_not_spoil_it,
    single_bytes_pass_one_by_one,
    urgent_bytes_are_bytes_in_their_place,
    fifty_connections_do_not_mix,
    refused_connections_do_not_disturb_live_ones,
    a_stopped_reader_holds_back_only_its_sender,
    a_client_that_resets_while_the_stream_is_full_is_noticed,
    a_gateway_that_stops_resets_both_ends,
}

async fn serve_hub(mut hub: Gateway) {
    loop {
        match hub.report().await {
            Report::Hop(HopEvent::Opened(stream, open)) => {
                let slacp::Destination::Address(address) = open.destination else { panic!() };
                let admission = Admission {
                    origin: ConnectionOrigin::Peer { verified: true },
                    _permit: None,
                    exchange: false,
                };
                hub.answer(stream, open, vec![address], admission);
            }
            Report::Hop(HopEvent::Session(..) | HopEvent::TcpEnded(_)) => {}
            Report::Failed(error) => panic!("{error}"),
        }
    }
}

async fn serve_terminal(
    mut terminal: Gateway,
    listener: TcpListener,
    destination: SocketAddr,
    mut stopped: oneshot::Receiver<()>,
) {
    let session = loop {
        match terminal.report().await {
            Report::Hop(HopEvent::Session(session, Event::Up { .. })) => break session,
            Report::Hop(_) => {}
            Report::Failed(error) => panic!("{error}"),
        }
    };
    loop {
        tokio::select! {
            _ = &mut stopped => return terminal.stop().await,
            accepted = listener.accept() => {
                let (socket, source) = accepted.unwrap();
                let open = StreamOpening { destination, source, dscp: None };
                terminal.originate(session, ClientArrival::Connection(AcceptedConnection { socket, open }));
            }
            report = terminal.report() => {
                if let Report::Failed(error) = report {
                    panic!("{error}");
                }
            }
        }
    }
}

async fn server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A connection through the pair: the client's socket and the server's.
async fn connection() -> (Pair, TcpStream, TcpStream) {
    let (listener, address) = server().await;
    let pair = Pair::to(address).await;
    let (client, accepted) = tokio::join!(pair.connect(), listener.accept());
    (pair, client, accepted.unwrap().0)
}

#[tokio::test]
async fn a_client_that_half_closes_gets_its_reply() {
    let (_pair, mut client, mut server) = connection().await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut server).await.unwrap(), b"question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await.unwrap(), b"answer");
}

#[tokio::test]
async fn a_server_that_half_closes_still_hears_the_client() {
    let (_pair, mut client, mut server) = connection().await;
    server.write_all(b"greeting").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(read_all(&mut client).await.unwrap(), b"greeting");
    client.write_all(b"afterwards").await.unwrap();
    drop(client);
    assert_eq!(read_all(&mut server).await.unwrap(), b"afterwards");
}

#[tokio::test]
async fn both_sides_may_close_at_once() {
    let (_pair, mut client, mut server) = connection().await;
    let (one, other) = tokio::join!(client.shutdown(), server.shutdown());
    one.and(other).unwrap();
    let (one, other) = tokio::join!(read_all(&mut client), read_all(&mut server));
    assert!(one.unwrap().is_empty() && other.unwrap().is_empty());
}

#[tokio::test]
async fn a_reset_by_either_side_is_a_reset_at_the_other() {
    let (_pair, client, mut server) = connection().await;
    abort(client);
    assert_reset(read_all(&mut server).await);

    let (_pair, mut client, server) = connection().await;
    abort(server);
    assert_reset(read_all(&mut client).await);
}

#[tokio::test]
async fn a_reset_after_half_a_transfer_is_no_clean_end() {
    let (_pair, mut client, mut server) = connection().await;
    client.write_all(&payload(1, 100_000)).await.unwrap();
    let mut some = vec![0; 50_000];
    server.read_exact(&mut some).await.unwrap();
    abort(client);
    assert_reset(read_all(&mut server).await);
}

#[tokio::test]
async fn a_reset_overtakes_nothing_that_was_sent_before() {
    for sent in [payload(8, 50_000), b"the same again ".repeat(3000)] {
        let (_pair, client, server) = connection().await;
        breaks_off(client, server, &sent).await;
        let (_pair, client, server) = connection().await;
        breaks_off(server, client, &sent).await;
    }
}

/// A host sends something and resets its connection, before the other reads anything.
async fn breaks_off(mut quitter: TcpStream, mut reader: TcpStream, sent: &[u8]) {
    quitter.write_all(sent).await.unwrap();
    while socket_options::unacknowledged(&quitter).unwrap() > 0 {
        tokio::task::yield_now().await;
    }
    abort(quitter);
    assert!(read_to_reset(&mut reader).await == sent);
}

#[tokio::test]
async fn a_refused_connection_is_reset_not_ended() {
    let (listener, closed) = server().await;
    drop(listener);
    let pair = Pair::to(closed).await;
    assert_reset(read_all(&mut pair.connect().await).await);
}

#[tokio::test]
async fn a_forbidden_destination_is_reset() {
    let pair = Pair::to("0.0.0.0:80".parse().unwrap()).await;
    assert_reset(read_all(&mut pair.connect().await).await);
}

#[tokio::test]
async fn a_slow_reader_gets_everything_of_a_sender_that_closed_at_once() {
    const LENGTH: usize = 10_000_000;
    let (_pair, mut client, mut server) = connection().await;
    SockRef::from(&client).set_recv_buffer_size(100_000).unwrap();
    let sent = payload(2, LENGTH);
    server.write_all(&sent).await.unwrap();
    drop(server);
    // The client starts to read only now, long after the server has gone.
    let mut received = Vec::with_capacity(LENGTH);
    let mut piece = [0; 1000];
    loop {
        match client.read(&mut piece).await.unwrap() {
            0 => break,
            count => received.extend_from_slice(&piece[..count]),
        }
    }
    assert!(received == sent, "{} of {LENGTH} bytes", received.len());
}

#[tokio::test]
async fn a_server_that_is_gone_after_its_reply_does_not_spoil_it() {
    const LENGTH: usize = 1_000_000;
    let (_pair, mut client, mut server) = connection().await;
    let sent = payload(6, LENGTH);
    server.write_all(&sent).await.unwrap();
    server.shutdown().await.unwrap();
    while socket_options::unacknowledged(&server).unwrap() > 0 {
        tokio::task::yield_now().await;
    }
    // Like a kernel that has forgotten the connection and is probed.
    abort(server);
    client.write_all(b"never read").await.unwrap();
    assert!(read_all(&mut client).await.unwrap() == sent);
}

#[tokio::test]
async fn single_bytes_pass_one_by_one() {
    let (_pair, mut client, mut server) = connection().await;
    for byte in 0..=255 {
        client.write_u8(byte).await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), byte);
        server.write_u8(!byte).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), !byte);
    }
}

#[tokio::test]
async fn urgent_bytes_are_bytes_in_their_place() {
    let (pair, mut client, mut server) = connection().await;
    speak_urgently(&client, &mut server).await;
    speak_urgently(&server, &mut client).await;
    assert_eq!(pair.counters.each_ref().map(|side| side.traffic.urgent.get()), [3, 3]);
}

#[tokio::test]
async fn fifty_connections_do_not_mix() {
    const LENGTH: usize = 200_000;
    let (listener, address) = server().await;
    let pair = Pair::to(address).await;
    let mut tasks = JoinSet::new();
    for key in 0..50 {
        let mut client = pair.connect().await;
        tasks.spawn(async move {
            client.write_u64(key).await.unwrap();
            client.write_all(&payload(key, LENGTH)).await.unwrap();
            client.shutdown().await.unwrap();
            assert!(read_all(&mut client).await.unwrap() == payload(!key, LENGTH), "{key} down");
        });
        let (mut server, _) = listener.accept().await.unwrap();
        tasks.spawn(async move {
            let key = server.read_u64().await.unwrap();
            assert!(read_all(&mut server).await.unwrap() == payload(key, LENGTH), "{key} up");
            server.write_all(&payload(!key, LENGTH)).await.unwrap();
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn refused_connections_do_not_disturb_live_ones() {
    let (_pair, mut client, mut server) = connection().await;
    let (listener, closed) = self::server().await;
    drop(listener);
    let other = Pair::to(closed).await;
    for _ in 0..20 {
        assert_reset(read_all(&mut other.connect().await).await);
        client.write_u8(1).await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_stopped_reader_holds_back_only_its_sender() {
    const WINDOW: u64 = 300_000;
    const PATIENT: usize = 40_000_000;
    let mut config = Config::new(BitRate::from_mbit(1000));
    config.stream_window = ByteCount::new(WINDOW);
    let (listener, address) = server().await;
    let pair = Pair::with(config, address).await;

    let (_stopped, accepted) = tokio::join!(pair.connect(), listener.accept());
    let mut stuck = accepted.unwrap().0;
    let (written, mut progress) = tokio::sync::watch::channel(0u64);
    let writer = tokio::spawn(async move {
        let piece = payload(3, 10_000);
        while let Ok(count) = stuck.write(&piece).await {
            written.send_modify(|sum| *sum += count as u64);
        }
    });
    progress.changed().await.unwrap();

    let (mut client, accepted) = tokio::join!(pair.connect(), listener.accept());
    let mut server = accepted.unwrap().0;
    let sent = payload(4, PATIENT);
    let (wrote, received) = tokio::join!(
        async {
            server.write_all(&sent).await?;
            server.shutdown().await
        },
        read_all(&mut client)
    );
    wrote.unwrap();
    assert!(received.unwrap() == sent);
    // The window, the data in flight into it, and four kernel buffers.
    let held = *progress.borrow();
    assert!(held < PATIENT as u64 * 4 / 5, "a stopped reader took {held} bytes");
    writer.abort();
}

#[tokio::test]
async fn a_client_that_resets_while_the_stream_is_full_is_noticed() {
    let mut config = Config::new(BitRate::from_mbit(1000));
    config.stream_window = ByteCount::new(100_000);
    let (listener, address) = server().await;
    let pair = Pair::with(config, address).await;
    let (client, accepted) = tokio::join!(pair.connect(), listener.accept());
    let mut server = accepted.unwrap().0;
    SockRef::from(&server).set_recv_buffer_size(4096).unwrap();
    // Nothing reads: write until all buffers on the way are full.
    let piece = payload(5, 100_000);
    let mut full = 0;
    while full < 100 {
        match client.try_write(&piece) {
            Ok(_) => full = 0,
            Err(_) => full += 1,
        }
        tokio::task::yield_now().await;
    }
    abort(client);
    // What the gateways hold precedes the reset; the test would wait for ever if nobody noticed it.
    let received = read_to_reset(&mut server).await;
    assert!(received.len() > 100_000, "the stream was full");
}

#[tokio::test]
async fn a_gateway_that_stops_resets_both_ends() {
    let (mut pair, mut client, mut server) = connection().await;
    client.write_u8(7).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), 7);
    pair.stop.send(()).unwrap();
    assert_reset(read_all(&mut client).await);
    assert_reset(read_all(&mut server).await);
    pair.tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn without_room_in_the_session_an_idle_connection_of_the_client_gives_way() {
    let (hops, counters) = (Hops::new(), GatewayCounters::default());
    let (hop, session) = (&hops.hops[1], hops.sessions[1]);
    let (source, destination) = (([10, 0, 0, 1], 40_000).into(), ([192, 0, 2, 1], 80).into());
    let open: StreamOpening = StreamOpening { destination, source, dscp: None };
    // Idle since the machine's start.
    let idle = Registered::direct(Instant::ZERO, &counters, open);
    idle.attach_ends([5, 6].map(|socket| Some(DirectLeg::Socket(socket))));
    let held: Vec<SessionStream> =
        std::iter::from_fn(|| hop.open(hops.now, session, open).ok()).collect();
    let mut waiting = pin!(open_in_time(hop, session, open, &counters));
    tokio::select! {
        opened = &mut waiting => panic!("nothing gives way: {:?}", opened.err()),
        () = idle.run_until_evicted(pending()) => {}
    }
    drop(held);
    assert!(waiting.await.is_ok());
}

/// The session has room for a dozen of them at a time.
#[tokio::test]
async fn clients_for_whom_there_is_no_room_wait_for_it() {
    const CLIENTS: usize = 40;
    let (listener, address) = server().await;
    let mut config = Config::new(BitRate::from_mbit(1000));
    config.memory = ByteCount::new(1 << 20);
    let pair = Pair::with(config, address).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = pair.connect().await;
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        clients.push(client);
    }
    for _ in 0..CLIENTS {
        let (mut server, _) = listener.accept().await.unwrap();
        assert_eq!(read_all(&mut server).await.unwrap(), b"question");
        server.write_all(b"answer").await.unwrap();
    }
    for mut client in clients {
        assert_eq!(read_all(&mut client).await.unwrap(), b"answer");
    }
    assert_eq!(pair.counters[1].traffic.failed.get(), 0);
}
