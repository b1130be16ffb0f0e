//! The stack on its device, with the kernel's TCP of the same namespace at the other end.

use std::io::ErrorKind;

use config::{TunnelConfig, TunnelDevice};
use netlink_packet_route::link::LinkMessage;
use slacp::{ResetReason, StreamOpening};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::figures::connections::FlowFigures as _;
use crate::figures::connections::Registered;
use crate::relay;
use crate::relay::leg::TcpLeg;
use crate::testkit::{
    abort, assert_reset, connected, give_address, in_namespace, payload, read_all,
};

const LIMIT: Duration = Duration::from_secs(10);
/// An address of the kernel.
const KERNEL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PORT: u16 = 80;

fn config() -> StackConfig {
    let (name, device, mtu) = ("stack0".to_owned(), TunnelDevice::Auto, 1400);
    let tcp = tcp::Config { snack: true, ..tcp::Profile::Linux.config() };
    StackConfig {
        tcp: tcp.into(),
        device: TunnelConfig { name, device, mtu, pool: None, clamp_mss: true },
        interfaces: Vec::new(),
    }
}

fn install(most: Option<u64>) -> (WanStack, Arc<GatewayCounters>) {
    let counters = Arc::new(GatewayCounters::default());
    (WanStack::install(&config(), &[], most, counters.clone()).unwrap(), counters)
}

/// Runs `work` in a namespace in which the kernel has the address [`KERNEL`].
fn run<F: Future<Output = ()>>(work: impl FnOnce() -> F) {
    give_address("lo", KERNEL);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(work());
}

/// The next connection from the kernel.
async fn incoming(stack: &mut WanStack) -> IncomingFlow {
    match stack.next().await {
        StackEvent::Incoming(incoming) => incoming,
        StackEvent::Failed(error) => panic!("{error}"),
    }
}

/// A connection of the stack to a listener of the kernel, and the kernel's end of it.
async fn opened(caller: &StackCaller, listener: &TcpListener) -> (StackFlow, TcpStream) {
    let to = listener.local_addr().unwrap();
    let (flow, accepted) =
        tokio::join!(caller.connect(to, None, Some(46), LIMIT), listener.accept());
    (flow.unwrap(), accepted.unwrap().0)
}

/// Joins a connection of the stack with a socket, of which the other end is returned.
async fn joined(flow: StackFlow, counters: &Arc<GatewayCounters>) -> TcpStream {
    let [near, far] = connected().await;
    let counters = counters.clone();
    tokio::spawn(async move {
        let end = near.local_addr().unwrap();
        let open = StreamOpening { source: end, destination: end, dscp: None };
        let entry = Registered::direct(clock::now(), &counters, open);
        relay::direct(TcpLeg::new(near), flow, &[], entry, &counters).await;
    });
    far
}

/// Sends both ways through a relay, and ends each direction by itself.
async fn assert_talk(mut here: TcpStream, mut there: TcpStream) {
    let sent = payload(3, 3_000_000);
    let (mut from_there, mut to_there) = there.split();
    let talk = async {
        here.write_all(&sent).await.unwrap();
        here.shutdown().await.unwrap();
        read_all(&mut here).await.unwrap()
    };
    let answer = async {
        let mut question = Vec::new();
        from_there.read_to_end(&mut question).await.unwrap();
        to_there.write_all(&question).await.unwrap();
        to_there.shutdown().await.unwrap();
    };
    let (reply, ()) = tokio::join!(talk, answer);
    assert!(reply == sent, "{} bytes came back of {}", reply.len(), sent.len());
}

#[test]
fn the_stack_connects_to_the_kernel() {
    in_namespace(|| {
        run(|| async {
            let (stack, counters) = install(None);
            let listener = TcpListener::bind((KERNEL, PORT)).await.unwrap();
            let caller = stack.caller();
            let (flow, server) = opened(&caller, &listener).await;
            assert_eq!(server.peer_addr().unwrap().ip(), IpAddr::from(ADDRESS_V4));
            let view = flow.view();
            assert!(view.rtt().is_some() && view.congestion_window() == Some(10));
            assert_talk(joined(flow, &counters).await, server).await;
            let status = stack.status();
            assert_eq!((status.opened, status.accepted, status.snack, status.sack), (1, 0, 0, 1));

            let closed = SocketAddr::new(KERNEL.into(), PORT + 1);
            let refused = caller.connect(closed, None, None, LIMIT).await.err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        });
    });
}

#[test]
fn the_kernel_connects_to_the_stack() {
    in_namespace(|| {
        run(|| async {
            let (mut stack, counters) = install(None);
            let here = SocketAddr::new(ADDRESS_V4.into(), PORT);
            let called = async {
                let IncomingFlow { flow, open } = incoming(&mut stack).await;
                assert_eq!((open.destination, open.dscp), (here, None));
                flow.accept();
                flow
            };
            let (there, flow) = tokio::join!(TcpStream::connect(here), called);
            assert_talk(there.unwrap(), joined(flow, &counters).await).await;

            let refused = async {
                incoming(&mut stack).await.flow.refuse(ResetReason::Refused);
                // The device is read in another task.
                tokio::task::yield_now().await;
            };
            let (there, ()) = tokio::join!(TcpStream::connect(here), refused);
            assert_eq!(there.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
    });
}

#[test]
fn a_reset_of_either_side_is_one_at_the_other() {
    in_namespace(|| {
        run(|| async {
            let (stack, counters) = install(None);
            let listener = TcpListener::bind((KERNEL, PORT)).await.unwrap();
            let caller = stack.caller();
            for is_server in [true, false] {
                let (flow, mut server) = opened(&caller, &listener).await;
                let mut client = joined(flow, &counters).await;
                client.write_all(b"x").await.unwrap();
                server.read_exact(&mut [0]).await.unwrap();
                let mut other = if is_server {
                    abort(server);
                    client
                } else {
                    abort(client);
                    server
                };
                assert_reset(read_all(&mut other).await);
            }
            // A connection that nobody finished is reset when it is dropped.
            let (flow, mut server) = opened(&caller, &listener).await;
            drop(flow);
            assert_reset(read_all(&mut server).await);
        });
    });
}

#[test]
fn there_are_no_more_connections_than_configured() {
    in_namespace(|| {
        run(|| async {
            let (stack, _) = install(Some(1));
            let closed = SocketAddr::new(KERNEL.into(), PORT);
            let caller = stack.caller();
            for _ in 0..3 {
                let first = caller.connect(closed, None, None, LIMIT);
                let (first, second) =
                    tokio::join!(first, caller.connect(closed, None, None, LIMIT));
                assert_eq!(first.err().unwrap().kind(), ErrorKind::ConnectionRefused);
                assert_eq!(second.err().unwrap().raw_os_error(), Some(libc::ENOBUFS));
            }
        });
    });
}

#[test]
fn the_routes_to_the_stack_s_own_addresses_are_restored() {
    in_namespace(|| {
        run(|| async {
            let (mut stack, _) = install(None);
            let mut kernel = RouteSocket::open().unwrap();
            let device = stack.device.index();
            for version in IpFamily::BOTH {
                let mut remove = || {
                    let route = own_route(device, version);
                    kernel.remove(RouteNetlinkMessage::DelRoute(route)).unwrap()
                };
                assert!(remove() && !remove(), "{version:?}");
                stack.follow_routes();
                assert!(remove(), "{version:?}");
            }
        });
    });
}

/// Its connections outlive it, as TCP outlives a cable that is pulled.
#[test]
fn a_device_that_is_removed_is_made_anew() {
    in_namespace(|| {
        run(|| async {
            let (mut stack, counters) = install(None);
            let listener = TcpListener::bind((KERNEL, PORT)).await.unwrap();
            let (flow, server) = opened(&stack.caller(), &listener).await;
            let before = stack.device.index();
            let mut link = LinkMessage::default();
            link.header.index = before;
            let mut kernel = RouteSocket::open().unwrap();
            assert!(kernel.remove(RouteNetlinkMessage::DelLink(link)).unwrap());
            // The driver finds out.
            tokio::task::yield_now().await;
            stack.follow_routes();
            assert_ne!(stack.device.index(), before);
            assert_talk(joined(flow, &counters).await, server).await;
        });
    });
}
